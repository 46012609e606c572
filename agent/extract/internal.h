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
#define WB__OPS_MAX (8u << 20) /* most ops of one parameter */
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

/* What is kept for a parameter on a device; all addresses are of the device. */
struct wb__kept {
	uint64_t before; /* snapshot of its content, dense; 0 = none */
	uint8_t store; /* number of the device's store that has the snapshot */
	uint64_t was; /* its content after the first pass, if that was not all constant; else 0 */
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
	WB__FAULTY, /* not a copy: not read any more, only put back at the end */
	WB__OUT, /* not a parameter, and cannot be looked at: never touched */
	WB__ASIDE, /* not a parameter, and not in the cached map: only put back at the end */
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
	/* borrowed; moved_to: where load_weights moved it; data NULL: load_weights freed it, and it
	 * is FAULTY */
	uint8_t *data, *moved_to;
	size_t elem_bytes;
	enum wbk_code code;
	struct wb__geom geom;
	struct wb__dev *dev; /* borrowed: the device that it lies on; NULL: the host's memory */
	struct wb__kept kept; /* with dev: instead of snapshot, residual and cls */
	enum wb__state state;
	bool is_nd; /* differences along every axis */
	bool has_digits; /* its fields are whole, its ops recovered */
	bool is_over; /* too many records in this round of digits */
	bool is_again; /* on a device: there was no room for its hits beside those of others */
	struct wb_alias alias;
	bool has_snapshot; /* it has a snapshot of its content before the passes */
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
	uint64_t n_unlike; /* on a device: elements that differ from the snapshot */
	/* Elements that held the constant of the first pass before that pass; counted without a
	 * snapshot */
	uint64_t n_held;
	struct wb__bad bad; /* found in the current pass */
	uint32_t out; /* at the end: its number in the map; WB__NOT_OUT = not in the map */
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
	bool is_stale; /* that map is not valid any more */
	uint32_t round; /* round of digit passes: 0, or 1 for the N-D retry */
	uint32_t hash_done;
	struct wb_srcmap_stats stats;
	uint64_t began_ns;
	pthread_mutex_t lock; /* protects what the pieces of one parameter gather: bad, field */
	struct wb__dev **dev; /* owned: the devices on which parameters lie */
	uint32_t n_dev;
	struct wb_err dev_err; /* the first failure on a device */
	struct wb_buf fault, note, outside;
};

/* geom.c */
/** wb__geom_init - set the axes of a parameter from its shape and strides (elements); @is_nd keeps
 * all axes separate, else axes that continue each other are joined.  0, or -EINVAL with a sentence
 * that names the parameter when two of its indices may be one element, or when it is too large. */
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
/** wb__codes_types - set of enum wb__types: the types that this rank has. */
uint32_t wb__codes_types(const struct wb_probe *p);
/** wb__codes_setup - choose the codes and the numbers of passes; @all: the types of all ranks. */
void wb__codes_setup(struct wb_probe *p, uint32_t all);
/** wb__code_width - number of digit bits of a tensor or parameter type in this probe. */
unsigned wb__code_width(const struct wb_probe *p, enum wb_dtype t);
/** wb__code_mask - the mask of these bits. */
uint32_t wb__code_mask(const struct wb_probe *p, enum wb_dtype t);
/** wb__code_offset - the constant by which a decoded digit of type @t is too large. */
int64_t wb__code_offset(const struct wb_probe *p, enum wb_dtype t);
/** wb__const_raw - the bits of an element that hold the constant of pass @kind: WB_PASS_CONST gives
 * the first constant, any other kind the second. */
uint32_t wb__const_raw(enum wb_dtype t, enum wb_pass_kind kind);
/** wb__sentinel_raw - the bits that stand for "nothing was written here"; no pass delivers them. */
uint32_t wb__sentinel_raw(enum wb_dtype t);
/** wb__raw_at - the bits of one element at any alignment, zero-extended. */
uint64_t wb__raw_at(const uint8_t *p, size_t elem_bytes);
/** wb__raw_fill - write @n elements of @elem_bytes bytes, all with the low bits of @raw. */
void wb__raw_fill(uint8_t *out, size_t elem_bytes, uint64_t raw, size_t n);
struct wb__digit {
	unsigned shift;
	uint32_t mask;
};
/** wb__digit_of - which digit tensors of type @t carry in the current pass; mask 0: they carry
 * 0. */
struct wb__digit wb__digit_of(const struct wb_probe *p, enum wb_dtype t);
/** wb__ramp - write the codes of the digit of @first + i, i < @n. */
void wb__ramp(const struct wb_probe *p, enum wb_dtype t, const struct wb__digit *d, uint64_t first,
	void *out, size_t n);
/** wb__hash_row - write the hash words of elements (row, col + i * step), i < @n: codes whose
 * unused low bits are filled, too. */
struct wb__hash_at {
	uint64_t seed, row, col, step;
};
void wb__hash_row(const struct wb_probe *p, enum wb_dtype t, const struct wb__hash_at *at,
	void *out, size_t n);

/* work.c: @fn(ctx, task) for every task below @n, on some threads; the first failure is kept. */
typedef int (*wb__task_fn)(void *ctx, size_t task);
/** wb__parallel - call @fn for tasks 0 to @n - 1 on up to @threads threads (64 at most), including
 * this one, and wait.  0, or the first failure; after a failure no more tasks are begun. */
int wb__parallel(uint32_t threads, size_t n, wb__task_fn fn, void *ctx);
/* A piece of a parameter that still takes part: rows [row, row_end) over all slabs, or columns when
 * it has one row. */
struct wb__piece {
	uint32_t param;
	uint64_t row, row_end, col, col_end;
};
/** wb__takes_part - does the parameter take part in this pass? */
bool wb__takes_part(const struct wb__param *a);
/** wb__pieces - cut all parameters in host memory that take part into pieces for wb__parallel();
 * the pieces of one parameter follow each other.  0 or -ENOMEM; *out is owned (wb_free()). */
int wb__pieces(const struct wb_probe *p, struct wb__piece **out, size_t *n_out);

/* fields.c */
/** wb__recs_finish - free the records; @a is an empty field afterwards, and can be used again. */
void wb__recs_finish(struct wb__recs *a);
/** wb__recs_put - append @n records, whose indices must be above those in @a.  0, -E2BIG above @max
 * records, -ENOMEM; @a is unchanged on failure. */
int wb__recs_put(struct wb__recs *a, const struct wbk_record *r, size_t n, size_t max);
/** wb__recs_add - a += scale * (b, its indices moved by @shift).  -E2BIG above @max. */
int wb__recs_add(
	struct wb__recs *a, const struct wb__recs *b, int64_t scale, uint64_t shift, size_t max);

/* classify.c */
/** wb__count_held - before the second pass of constants: count in n_held the elements that hold the
 *  first constant.  0 or -ENOMEM. */
int wb__count_held(struct wb_probe *p);
/** wb__classify_first - after the pass of the first constant: parameters that were not written
 * become LEFT; for the others, the elements that do not hold the constant are kept as residual.  0
 * or -ENOMEM. */
int wb__classify_first(struct wb_probe *p);
/* Elements that are neither copies nor constants. */
struct wb__found {
	struct wb__bad arithmetic;
	/* Written only by the first call; without a snapshot also unwritten elements that held the
	 * first constant before */
	struct wb__bad once;
};
/** wb__classify_judge - set a parameter's fault from what was found; true when something was
 * found. */
bool wb__classify_judge(struct wb__param *a, const struct wb__found *f);
/** wb__classify_left - set the fault that the content of a LEFT parameter has changed. */
void wb__classify_left(struct wb__param *a);
/** wb__classify_second - after the pass of the second constant: find which elements are copies,
 * constants, unwritten or faulty.  0 or -ENOMEM. */
int wb__classify_second(struct wb_probe *p);
/** wb__is_prefilled - does the parameter get the sentinel before the pass that asks for it? */
bool wb__is_prefilled(const struct wb_probe *p, const struct wb__param *a);
/** wb__prefill - write the sentinel into each element of the parameter; gaps between them stay. */
void wb__prefill(struct wb__param *a);
/** wb__content_hash - a hash of all elements as they are now, without the gaps. */
uint64_t wb__content_hash(const struct wb__param *a);

/* regions.c */
/** wb__regions - make regions, from the classes, of the elements that are not copies.  0 or
 * -ENOMEM; too many different constants are not a failure: they are listed as unwritten
 * (is_merged). */
int wb__regions(struct wb_probe *p, struct wb__param *a);
/* The regions of the row before, which the next row may extend. */
struct wb__open {
	uint32_t *last; /* region numbers in the order of columns; owned */
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
/* Neighbours in a row that are not copies, and are all the same. */
struct wb__region_run {
	uint64_t row, col, col_end; /* row: over all slabs */
	bool is_constant; /* else unwritten */
	uint64_t value;
};
/** wb__regions_begin - drop the regions of @a, which is parameter @number, and begin anew.  Release
 * with wb__regions_finish(). */
void wb__regions_begin(struct wb__regions *m, struct wb__param *a, uint32_t number);
/** wb__regions_run - add the next run; runs must come in the order of their elements.  0, -ENOMEM;
 * -E2BIG: there are more regions than are allowed while constants are told apart (the caller then
 * sets is_merged, and begins again). */
int wb__regions_run(struct wb__regions *m, const struct wb__region_run *run);
void wb__regions_finish(struct wb__regions *m);
/** wb__region_whole - give all elements of parameter @number one kind, in as many regions as their
 * 32-bit sides require.  0, -E2BIG or -ENOMEM. */
int wb__region_whole(struct wb__param *a, uint32_t number, enum wb_region_kind kind);

/* digits.c */
/** wb__digits_read - after a pass of digits: decode what arrived and add it to the fields.  A
 * parameter with elements that are not codes gets a fault; one with too many records gets is_over.
 * 0, -ENOMEM. */
int wb__digits_read(struct wb_probe *p);
/** wb__digits_add - add the records of a pass to the field of parameter @a; @all is consumed.
 * Otherwise as wb__digits_read(). */
int wb__digits_add(struct wb_probe *p, struct wb__param *a, struct wb__recs *all);
/* A source of the second differences of single slabs, which are asked for in ascending order. */
struct wb__slabs {
	int (*get)(struct wb__slabs *s, uint64_t slab, struct wb__recs *out);
	const struct wb__geom *g;
	uint64_t max; /* records */
};
/** wb__digits_nd - compute differences of all elements along the outer axes, too.  0, what s->get
 * returned, -ENOMEM; -E2BIG above s->max. */
int wb__digits_nd(struct wb__slabs *s, struct wb__recs *out);
/** wb__digits_bad - note elements that hold no code, found in this pass. */
void wb__digits_bad(struct wb__param *a, const struct wb__bad *found);
/** wb__indicator - the second difference of "is a copy" (0 or 1) along the axes of the
 * parameter. */
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
/** wb__recover - recover boxes of equal steps from @g and @j, the sparse second differences of the
 * ids along all axes of @geom (ids are 0 outside copies).  0; -ENOMEM; -E2BIG above out->max. */
int wb__recover(const struct wb__geom *geom, const struct wb__recs *g, const struct wb__recs *j,
	struct wb__boxes *out);

/* fold.c */
/** wb__fold - join ops that continue where another ends, by rows and by columns, until there are
 * none. */
void wb__fold(struct wb__param *a);

/* lattice.c */
/** wb__recover_all - turn the fields of all parameters into ops, on the probe's threads.  0 or
 * -ENOMEM; elements that are not copies become a fault of their parameter. */
int wb__recover_all(struct wb_probe *p);

/* verify.c */
int wb__verify(struct wb_probe *p); /* gathers in param.bad */
/** wb__ledger - note that @n elements from @dst on (counted from the parameter's first) are not
 * what they should be. */
void wb__ledger(struct wb_probe *p, struct wb__param *a, uint64_t dst, uint64_t n);
/** wb__verify_judge - turn what wb__verify() found into faults, and forget it. */
void wb__verify_judge(struct wb_probe *p);

/* alias.c */
/** wb__alias_find - before the passes: parameters that lie in another one's memory become its
 * ALIAS, other memory (not parameters) that shares memory with another piece becomes OUT.  0,
 * -ENOMEM, or -EINVAL with a sentence that names two parameters that overlap partly or have
 * different types. */
int wb__alias_find(struct wb_probe *p, struct wb_err *err);

/* outside.c */
#define WB__NOT_OUT UINT32_MAX
/** wb__outside_settle - before the parameters are put back: number those that go into the map, and
 * name what load_weights writes elsewhere.  Returns how many go into the map. */
uint32_t wb__outside_settle(struct wb_probe *p);

/* restore.c */
/** wb__snapshot - keep the content of parameters that the passes may overwrite, unless the caller
 * loads it again afterwards (keep_no_snapshot) and nothing else needs it.  0 or -ENOMEM; in both
 * cases the probe owns what was kept. */
int wb__snapshot(struct wb_probe *p);
/** wb__restore - put back what the passes have overwritten: from snapshots, or, without a snapshot,
 * only what load_weights will not write again.  0, or the first failure of a device: dev_err says
 * what was not restored. */
int wb__restore(struct wb_probe *p);
/** wb__equals_snapshot - true when the parameter, which has a snapshot, holds its content again. */
bool wb__equals_snapshot(struct wb_probe *p, const struct wb__param *a);
/** wb__is_kept - does the probe keep the parameter's content? */
bool wb__is_kept(const struct wb_probe *p, const struct wb__param *a);

/* faults.c: the first fault of a parameter is kept; only the thread that works on the parameter
 * calls it. */
void wb__fault(struct wb__param *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define WB__RANGE_TEXT 96
/** wb__range_text - write "rows a..b" for the dense indices @first to @last; returns @text. */
const char *wb__range_text(
	const struct wb__param *a, uint64_t first, uint64_t last, char text[WB__RANGE_TEXT]);
/** wb__faults_text - gather all faults in p->fault; returns their number. */
uint32_t wb__faults_text(struct wb_probe *p);
/** wb__note - append a line to the notes, which the caller gets besides faults; lost when memory is
 * short. */
void wb__note(struct wb_probe *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* passes.c: what ranks that load together tell each other, besides the types. */
enum wb__said {
	WB__SAID_NO_MAP = 4, /* there is no map in the cache */
	WB__SAID_STALE = 8, /* the map in the cache is not valid any more */
	WB__SAID_ROUND = 16, /* the digit passes must be run once more */
};
/** wb__agree - set *@all to the bitwise or of what all ranks say; this rank says @said.  0, or what
 * agree returned. */
int wb__agree(struct wb_probe *p, uint32_t said, uint32_t *all, struct wb_err *err);

/* cache.c */
/** wb__cache_load - take the cached map for these parameters, if there is one, and set is_cached.
 * A map that cannot be used is noted, and is not a failure.  Reads a file. */
void wb__cache_load(struct wb_probe *p);
/** wb__cache_forget - drop the cached map, as if there had been none. */
void wb__cache_forget(struct wb_probe *p);
/** wb__cache_store - store @s for the next time, or note why that failed.  Writes a file. */
void wb__cache_store(struct wb_probe *p, const struct wb_srcmap *s);
/** wb__cache_check - check a cache file; returns its payload, or NULL with the reason. */
const uint8_t *wb__cache_check(const void *file, size_t bytes, struct wb_digest name,
	size_t *payload_bytes, const char **why);

#endif
