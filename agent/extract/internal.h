/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_EXTRACT_INTERNAL_H
#define WB_EXTRACT_INTERNAL_H
/*
 * Shared by the files of extract: geometry of a parameter, sparse fields, the state of a probe.
 *
 * A parameter's elements are numbered in physical order ("dense index"): dimensions sorted by
 * stride, gaps left out.  Its last two axes make slabs of rows x cols; normally all outer axes
 * fall into the rows and there is one slab.
 */
#include "base/buf.h"
#include "base/err.h"
#include "extract/probe.h"
#include "extract/srcmap.h"
#include "kernels/kernels.h"

#include <pthread.h>

#define WB__AXES_MAX (WB_NDIM_MAX + 1)
#define WB__RECORD_MAX (4u << 20)
#define WB__OPS_MAX (8u << 20) /* of one parameter */
#define WB__CONSTANT_REGIONS_MAX 4096

struct wb__geom {
	uint32_t n_axis; /* >= 2 */
	uint64_t n[WB__AXES_MAX];
	int64_t stride[WB__AXES_MAX]; /* elements, >= 0; the last is 1 */
	uint64_t slabs, rows, cols;
	uint64_t rows_all, total; /* slabs * rows, elements */
	uint64_t span; /* elements from the first to one past the last */
};

/* A sparse field: nonzeros by ascending index. */
struct wb__recs {
	struct wbk_record *r; /* owned */
	size_t n, cap;
};

/* Elements that P0 did not turn into 1.5, with their values. */
struct wb__run {
	uint64_t begin, n; /* dense index, elements */
	uint64_t at; /* index of the first value */
};

struct wb__dev; /* device.h */

/* What is kept of a parameter on a device; addresses there. */
struct wb__kept {
	uint64_t before; /* its content; dense; 0 without */
	uint8_t store; /* which store of the device that is in */
	uint64_t was; /* its content after the first pass, where that was not all constant; or 0 */
	uint64_t cls; /* dense classes; 0 = all copy */
	struct wbk_sum sum; /* of its content */
};

struct wb__residual {
	struct wb__run *run; /* owned */
	size_t n, cap;
	uint8_t *value; /* owned; raw elements, one after the other */
	size_t n_value, value_cap;
};

enum wb__class { WB__COPY = 0, WB__UNWRITTEN = 1, WB__ARITHMETIC = 2, WB__CONSTANT = 4 };

enum wb__state {
	WB__ACTIVE, /* takes part in the passes */
	WB__LEFT, /* load_weights does not write it: never touched */
	WB__ALIAS, /* inside another parameter's memory */
	WB__FAULTY, /* not a copy: only read no more, and put back at the end */
	WB__OUT, /* no parameter, and cannot be looked at: never touched */
	WB__ASIDE, /* no parameter, and not in the map of the cache: only put back at the end */
};

/* Elements that are not what they should be: dense indices and their number. */
struct wb__bad {
	uint64_t first, last, n;
};

/* One parameter under probe. */
struct wb__param {
	char *name; /* owned */
	enum wb_probe_role role;
	enum wb_dtype dtype;
	uint32_t ndim;
	uint64_t shape[WB_NDIM_MAX];
	int64_t stride[WB_NDIM_MAX];
	uint8_t *data, *moved_to; /* borrowed; moved_to: where load_weights put it instead; NULL:
				   * freed by load_weights, and FAULTY */
	size_t elem_bytes;
	enum wbk_code code;
	struct wb__geom geom;
	struct wb__dev *dev; /* borrowed: the device that it lies on; NULL: the host's memory */
	struct wb__kept kept; /* with dev: instead of snapshot, residual and cls */
	enum wb__state state;
	bool is_nd; /* differences along every axis */
	bool has_digits; /* its fields are whole, its ops recovered */
	bool is_over; /* too many records in this round of digits */
	bool is_again; /* on a device: what was found in it had no room beside the others' */
	struct wb_alias alias;
	bool has_snapshot; /* of its content before the passes */
	uint8_t *snapshot; /* owned; dense; NULL without, and on a device */
	bool needs_snapshot; /* even when the caller reloads */
	bool is_merged; /* its constants are listed as unwritten: too many of them */
	uint64_t hash; /* of the content when it was LEFT */
	struct wb__residual residual;
	uint8_t *cls; /* owned; dense classes, NULL = all copy */
	struct wb__recs field[2]; /* 0: rows (g), 1: columns (j) */
	struct wb_op *op; /* owned */
	size_t n_op, op_cap;
	struct wb_region *region; /* owned */
	size_t n_region, region_cap;
	uint64_t n_equal; /* elements that hold the constant of the pass */
	uint64_t n_unlike; /* on a device: that are not as in the snapshot */
	uint64_t n_held; /* those that held the first one's before it; counted without snapshot */
	struct wb__bad bad; /* found in the current pass */
	uint32_t out; /* at the end: number in the map, WB__NOT_OUT = not in it */
	char fault[384]; /* "" = none */
};

struct wb_probe {
	const struct wb_manifest *manifest; /* borrowed */
	struct wb__param *param; /* owned */
	uint32_t n_param;
	struct wb_probe_opts opts; /* strings owned below */
	char *cache_dir, *cache_key; /* owned */
	uint32_t threads;
	/* Digits, by code: how many passes columns and rows take. */
	bool is_mixed; /* 16-bit floats of both kinds: 11-bit digits that fit all */
	uint32_t n_col_pass, n_row_pass;
	uint64_t col_max; /* the last column of the widest tensor */
	/* The pass. */
	struct wb_pass pass;
	bool in_pass, is_done, is_restored;
	bool is_cached; /* verifying a map from the cache */
	bool is_stale; /* which does not hold */
	uint32_t round; /* of digits: 0, or 1 for the N-D retry */
	uint32_t hash_done;
	struct wb_srcmap_stats stats;
	uint64_t began_ns;
	pthread_mutex_t lock; /* of what pieces of one parameter gather: bad, field */
	struct wb__dev **dev; /* owned: those that parameters lie on */
	uint32_t n_dev;
	struct wb_err dev_err; /* the first thing that failed on one */
	struct wb_buf fault, note, outside;
};

/* geom.c */
/** wb__geom_init - axes of a parameter by its shape and strides (elements); @is_nd keeps all axes
 *  apart, else those that lie behind each other are one.  0, or -EINVAL with a sentence that names
 *  the parameter when two of its indices may be one element, or when it is too large. */
int wb__geom_init(
	struct wb__geom *g, const struct wb_probe_param *p, bool is_nd, struct wb_err *err);
/** wb__geom_row - elements from the parameter's first to element (row, 0); row counts all slabs. */
uint64_t wb__geom_row(const struct wb__geom *g, uint64_t row);
/** wb__geom_at - elements from the parameter's first to the one with dense index @index. */
uint64_t wb__geom_at(const struct wb__geom *g, uint64_t index);

/* codes.c */
/** wb__code_of - the code in which elements of a type carry digits. */
enum wbk_code wb__code_of(enum wb_dtype t);
enum wb__types { /* of tensors and parameters, of all ranks */
	WB__TYPES_F16 = 1,
	WB__TYPES_OTHER = 2, /* BF16, F32 */
};
/** wb__codes_types - which there are here. */
uint32_t wb__codes_types(const struct wb_probe *p);
/** wb__codes_setup - @all: the types of all ranks. */
void wb__codes_setup(struct wb_probe *p, uint32_t all);
/** wb__code_width - digit bits of a tensor or parameter type in this probe. */
unsigned wb__code_width(const struct wb_probe *p, enum wb_dtype t);
/** wb__code_mask - those bits. */
uint32_t wb__code_mask(const struct wb_probe *p, enum wb_dtype t);
/** wb__code_offset - what a decoded digit of type @t has too much. */
int64_t wb__code_offset(const struct wb_probe *p, enum wb_dtype t);
/** wb__const_raw - the bits of an element that hold the constant of pass @kind: WB_PASS_CONST, or
 *  else the second one. */
uint32_t wb__const_raw(enum wb_dtype t, enum wb_pass_kind kind);
/** wb__sentinel_raw - the bits that stand for "nothing was written here"; no pass delivers them. */
uint32_t wb__sentinel_raw(enum wb_dtype t);
/** wb__raw_at - the bits of one element at any alignment, the rest 0. */
uint64_t wb__raw_at(const uint8_t *p, size_t elem_bytes);
/** wb__raw_fill - write @n elements of @elem_bytes bytes, all with the low bits of @raw. */
void wb__raw_fill(uint8_t *out, size_t elem_bytes, uint64_t raw, size_t n);
struct wb__digit {
	unsigned shift;
	uint32_t mask;
};
/** wb__digit_of - the digit of tensors of type @t in the current pass; mask 0: they write 0. */
struct wb__digit wb__digit_of(const struct wb_probe *p, enum wb_dtype t);
/** wb__ramp - codes of the digit of first + i, i < @n. */
void wb__ramp(const struct wb_probe *p, enum wb_dtype t, const struct wb__digit *d, uint64_t first,
	void *out, size_t n);
/** wb__hash_row - words of the hash of elements (row, col + i * step), i < @n: codes whose unused
 * low bits are filled as well. */
struct wb__hash_at {
	uint64_t seed, row, col, step;
};
void wb__hash_row(const struct wb_probe *p, enum wb_dtype t, const struct wb__hash_at *at,
	void *out, size_t n);

/* work.c: @fn(ctx, task) for every task below @n, on some threads; the first failure is kept. */
typedef int (*wb__task_fn)(void *ctx, size_t task);
/** wb__parallel - call @fn for tasks 0 to @n - 1 on up to @threads threads (64 at most), of which
 *  this is one, and wait.  0, or the first failure; tasks that have not begun then are left out. */
int wb__parallel(uint32_t threads, size_t n, wb__task_fn fn, void *ctx);
/* A piece of a parameter that still takes part: rows [row, row_end) over all slabs, or columns when
 * it has one row. */
struct wb__piece {
	uint32_t param;
	uint64_t row, row_end, col, col_end;
};
/** wb__takes_part - is the parameter looked at in this pass? */
bool wb__takes_part(const struct wb__param *a);
/** wb__pieces - cut all parameters of the host that take part into pieces for wb__parallel(), those
 * of one parameter side by side.  0 or -ENOMEM; *out is owned (wb_free()). */
int wb__pieces(const struct wb_probe *p, struct wb__piece **out, size_t *n_out);

/* fields.c */
/** wb__recs_finish - free the records; @a is an empty field after and can be used again. */
void wb__recs_finish(struct wb__recs *a);
/** wb__recs_put - append @n records, which must come behind those that are there.  0, -E2BIG above
 *  @max records, -ENOMEM; unchanged on failure. */
int wb__recs_put(struct wb__recs *a, const struct wbk_record *r, size_t n, size_t max);
/** wb__recs_add - a += scale * (b, its indices moved by @shift).  -E2BIG above @max. */
int wb__recs_add(
	struct wb__recs *a, const struct wb__recs *b, int64_t scale, uint64_t shift, size_t max);

/* classify.c */
/** wb__count_held - before the second pass of constants: count in n_held the elements that hold the
 *  first constant.  0 or -ENOMEM. */
int wb__count_held(struct wb_probe *p);
/** wb__classify_first - after the pass of the first constant: parameters that nobody wrote become
 *  LEFT, of the others the elements that do not hold it are kept as residual.  0 or -ENOMEM. */
int wb__classify_first(struct wb_probe *p);
/* What is no copy, and no constant. */
struct wb__found {
	struct wb__bad arithmetic;
	struct wb__bad once; /* written by the first call alone; without a snapshot also unwritten
				elements that held the first constant before */
};
/** wb__classify_judge - names what is found in a parameter; true when there is something. */
bool wb__classify_judge(struct wb__param *a, const struct wb__found *f);
/** wb__classify_left - a parameter that was LEFT has another content. */
void wb__classify_left(struct wb__param *a);
/** wb__classify_second - after the pass of the second constant: which elements are copies,
 *  constants, unwritten or faulty.  0 or -ENOMEM. */
int wb__classify_second(struct wb_probe *p);
/** wb__is_prefilled - does the parameter get the sentinel before the pass that asks for it? */
bool wb__is_prefilled(const struct wb_probe *p, const struct wb__param *a);
/** wb__prefill - write the sentinel into each element of the parameter; gaps between them stay. */
void wb__prefill(struct wb__param *a);
/** wb__content_hash - a hash of all elements as they are now, without the gaps. */
uint64_t wb__content_hash(const struct wb__param *a);

/* regions.c */
/** wb__regions - describe what is no copy in regions, from the classes.  0 or -ENOMEM; too many
 *  different constants are no failure: they are listed as unwritten (is_merged). */
int wb__regions(struct wb_probe *p, struct wb__param *a);
/* The regions of the row before, which the next row may extend. */
struct wb__open {
	uint32_t *last; /* region number by order of column; owned */
	size_t n, cap;
};
/* Makes regions of runs. */
struct wb__regions {
	struct wb__param *a;
	uint32_t number;
	struct wb__open was, is;
	uint64_t row; /* of the last run */
	size_t above; /* regions of the row before that end before the next run */
};
/* Neighbours in a row that are no copy and all the same. */
struct wb__region_run {
	uint64_t row, col, col_end; /* row: over all slabs */
	bool is_constant; /* else unwritten */
	uint64_t value;
};
/** wb__regions_begin - forget the regions of parameter @number.  wb__regions_finish() after. */
void wb__regions_begin(struct wb__regions *m, struct wb__param *a, uint32_t number);
/** wb__regions_run - the next run; they come in the order of their elements.  0, -ENOMEM; -E2BIG:
 *  more regions than there may be while constants are told apart (then is_merged, and again). */
int wb__regions_run(struct wb__regions *m, const struct wb__region_run *run);
void wb__regions_finish(struct wb__regions *m);
/** wb__region_whole - give all elements of parameter @number one kind, in as many regions as their
 *  32-bit sides take.  0, -E2BIG or -ENOMEM. */
int wb__region_whole(struct wb__param *a, uint32_t number, enum wb_region_kind kind);

/* digits.c */
/** wb__digits_read - after a pass of digits: decode what arrived and add it to the fields.  A
 *  parameter with what is no code gets a fault, one with too many records is_over.  0, -ENOMEM. */
int wb__digits_read(struct wb_probe *p);
/** wb__digits_add - records of a pass to the field of parameter @a; @all is consumed.  As
 *  wb__digits_read(). */
int wb__digits_add(struct wb_probe *p, struct wb__param *a, struct wb__recs *all);
/* Where the second differences of single slabs come from, asked for in ascending order. */
struct wb__slabs {
	int (*get)(struct wb__slabs *s, uint64_t slab, struct wb__recs *out);
	const struct wb__geom *g;
	uint64_t max; /* records */
};
/** wb__digits_nd - differences along the outer axes as well, of all elements.  0, what get returns,
 *  -ENOMEM; -E2BIG above s->max. */
int wb__digits_nd(struct wb__slabs *s, struct wb__recs *out);
/** wb__digits_bad - elements that hold no code, found in this pass. */
void wb__digits_bad(struct wb__param *a, const struct wb__bad *found);
/** wb__indicator - second difference of "is a copy" along the axes of the parameter. */
int wb__indicator(struct wb_probe *p, const struct wb__param *a, struct wb__recs *out);

/* recover.c: boxes of affine source ids; each is 4 * n_axis + 2 words: lo[], n[], value of
 * (g, j), slope of (g, j) per axis. */
struct wb__boxes {
	uint32_t n_axis;
	int64_t *w; /* owned */
	size_t n, cap, max;
};
#define WB__BOX_WORDS(n_axis) (4 * (size_t)(n_axis) + 2)
/** wb__boxes_finish - free the boxes. */
void wb__boxes_finish(struct wb__boxes *b);
/** wb__recover - boxes of equal steps from @g and @j, the sparse second differences of the ids
 *  along all axes of @geom (0 outside copies).  0; -ENOMEM; -E2BIG above out->max. */
int wb__recover(const struct wb__geom *geom, const struct wb__recs *g, const struct wb__recs *j,
	struct wb__boxes *out);

/* fold.c */
/** wb__fold - join ops that go on where another ends, by rows and by columns, until none do. */
void wb__fold(struct wb__param *a);

/* lattice.c */
/** wb__recover_all - from the fields of all parameters to their ops, on the probe's threads.  0 or
 *  -ENOMEM; what is no copy becomes a fault of its parameter. */
int wb__recover_all(struct wb_probe *p);

/* verify.c */
int wb__verify(struct wb_probe *p); /* gathers in param.bad */
/** wb__ledger - @n elements from @dst on (elements from the first) are not what they should be. */
void wb__ledger(struct wb_probe *p, struct wb__param *a, uint64_t dst, uint64_t n);
/** wb__verify_judge - turn what wb__verify() found into faults, and forget it. */
void wb__verify_judge(struct wb_probe *p);

/* alias.c */
/** wb__alias_find - before the passes: parameters that lie in another one's memory become its
 *  ALIAS, things that are no parameters and share memory become OUT.  0, -ENOMEM, or -EINVAL with a
 *  sentence that names two that overlap in part or with two types. */
int wb__alias_find(struct wb_probe *p, struct wb_err *err);

/* outside.c */
#define WB__NOT_OUT UINT32_MAX
/** wb__outside_settle - before the parameters are put back: number those that go into the map, and
 * name what load_weights writes elsewhere.  Returns how many go. */
uint32_t wb__outside_settle(struct wb_probe *p);

/* restore.c */
/** wb__snapshot - keep the content of what the passes may overwrite, unless the caller loads it
 *  again afterwards (keep_no_snapshot) and nothing else needs it.  0 or -ENOMEM; what was kept is
 *  the probe's either way. */
int wb__snapshot(struct wb_probe *p);
/** wb__restore - put back what the passes have overwritten: from snapshots, and where there is none
 *  what load_weights will not write again.  0, or the first failure of a device: dev_err says what
 *  is not as it was. */
int wb__restore(struct wb_probe *p);
/** wb__equals_snapshot - true when the parameter, which has a snapshot, holds its content again. */
bool wb__equals_snapshot(struct wb_probe *p, const struct wb__param *a);
/** wb__is_kept - does the probe keep the parameter's content? */
bool wb__is_kept(const struct wb_probe *p, const struct wb__param *a);

/* faults.c: the first fault of a parameter is kept; called by who works on it alone. */
void wb__fault(struct wb__param *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define WB__RANGE_TEXT 96
/** wb__range_text - "rows a..b" of the dense indices @first to @last; returns @text. */
const char *wb__range_text(
	const struct wb__param *a, uint64_t first, uint64_t last, char text[WB__RANGE_TEXT]);
/** wb__faults_text - gather all in p->fault; their number. */
uint32_t wb__faults_text(struct wb_probe *p);
/** wb__note - append a line to what the caller is told beside faults; lost when memory is short. */
void wb__note(struct wb_probe *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* passes.c: what ranks that load together tell each other, beside the types. */
enum wb__said {
	WB__SAID_NO_MAP = 4, /* none in the cache */
	WB__SAID_STALE = 8, /* the one in the cache does not hold */
	WB__SAID_ROUND = 16, /* digits once more */
};
/** wb__agree - the or of what all ranks say, this one @said.  0 or what agree returned. */
int wb__agree(struct wb_probe *p, uint32_t said, uint32_t *all, struct wb_err *err);

/* cache.c */
/** wb__cache_load - take the map of the cache for these parameters, if there is one: then
 *  is_cached.  One that cannot be used is noted, and is no failure.  Reads a file. */
void wb__cache_load(struct wb_probe *p);
/** wb__cache_forget - as if there had been no map. */
void wb__cache_forget(struct wb_probe *p);
/** wb__cache_store - keep @s for the next time, or note why not.  Writes a file. */
void wb__cache_store(struct wb_probe *p, const struct wb_srcmap *s);
/** wb__cache_check - the payload of a cache file, or NULL with the reason. */
const uint8_t *wb__cache_check(const void *file, size_t bytes, struct wb_digest name,
	size_t *payload_bytes, const char **why);

#endif
