/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_EXTRACT_PROBE_H
#define WB_EXTRACT_PROBE_H
/*
 * Probing load_weights: a driver of passes that the caller pulls.
 *
 *	wb_probe_create()
 *	while (wb_probe_next_pass() == 1) {
 *		run load_weights on tensors filled by wb_probe_fill();
 *		wb_probe_end_pass();
 *	}
 *	wb_probe_finish()
 *
 * Every element of every checkpoint tensor has an id: (row_base + row, column).  Passes write the
 * ids' digits, as value-safe codes, through load_weights into the parameters; the second
 * differences of what arrives are kept, and turned into strided copies.  Before these, two passes
 * with constants distinguish copies from constants, unwritten elements and arithmetic; afterwards
 * one hash pass checks the result.
 *
 * Parameters may lie on GPUs (has_devices): they are probed there (extract/device.h).
 *
 * The caller owns the parameters' memory, which must stay valid until destroy.  Probing overwrites
 * its content; finish and destroy put it back (with a snapshot all of it, else only what
 * load_weights does not write, and the caller then reloads).
 *
 * Threads: one thread at a time per probe; calls may start short-lived threads.  Layer: extract.
 */
#include "planner/map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wb_err;
struct wb_probe; /* opaque */
struct wb_srcmap;

/* What a piece of memory is to the worker. */
enum wb_probe_role {
	WB_PROBE_PARAM = 0, /* a parameter: must be a copy, and is in the map */
	/* Attributes and witnesses are left alone if they share memory with another piece, or have
	 * an impossible shape; elements of them that are not copies are no fault
	 * (wb_probe_outside()). */
	WB_PROBE_ATTRIBUTE = 1, /* in the map when load_weights writes it and it is a copy */
	WB_PROBE_WITNESS = 2, /* never in the map: only looked at, and put back */
};

/* One parameter of the worker, as the framework holds it. */
struct wb_probe_param {
	enum wb_probe_role role;
	const char *name; /* borrowed for the call */
	enum wb_dtype dtype;
	uint32_t ndim;
	uint64_t shape[WB_NDIM_MAX];
	int64_t stride[WB_NDIM_MAX]; /* elements, positive */
	void *data; /* element (0, .., 0) */
};

enum wb_pass_kind {
	WB_PASS_CONST = 1, /* every element 1.5 (integers 3) */
	WB_PASS_CONST_B = 2, /* every element -5.0, parameters prefilled with a sentinel */
	WB_PASS_COLUMN = 3, /* a digit of the column */
	WB_PASS_ROW = 4, /* a digit of the row */
	WB_PASS_HASH = 5, /* a hash of row and column */
};

struct wb_pass {
	enum wb_pass_kind kind;
	uint32_t index; /* passes begun before this one */
	uint32_t n_expected; /* passes in all, if nothing is repeated */
	uint32_t digit; /* column and row passes: number of the digit, lowest = 0 */
	char name[32]; /* for people: "row digit 0" */
};

/* How little memory a fill needs when the framework can expand views. */
enum wb_fill_kind {
	WB_FILL_FULL = 0, /* rows x cols elements */
	WB_FILL_COLUMNS = 1, /* all rows are equal: one row of cols elements */
	WB_FILL_ROWS = 2, /* all columns are equal: one column of rows elements */
	WB_FILL_ONE = 3, /* all elements are equal: one element */
};

struct wb_probe_opts {
	uint32_t threads; /* 0 = 2, or fewer when there are fewer CPUs */
	uint64_t record_max; /* most records of one field of a parameter; 0 = 4 Mi */
	uint64_t seed; /* of the hash pass; 0 = a fixed one */
	uint32_t n_hash; /* hash passes; 0 = 1 */
	/* parameters, and tensors to fill, may lie on GPUs, so the driver is asked */
	bool has_devices;
	bool keep_no_snapshot; /* the caller reloads after probing: save only unwritten elements */
	const char *cache_dir; /* NULL = no cache; created when missing */
	/* Names what else the map depends on (loader's version); NULL = "" */
	const char *cache_key;
	/* Called at the beginning (@done 0) and end (@done 1) of each pass; may be NULL. */
	void (*on_progress)(void *cookie, const struct wb_pass *pass, int done);
	void *cookie;
	/* As in weightbridge/extract.h; called in create and in each next_pass.  May be NULL. */
	int (*agree)(void *cookie, uint32_t said, uint32_t *all);
	void *agree_cookie;
};

/**
 * wb_probe_create - start probing
 * @m:		borrowed until destroy
 * @param:	borrowed for the call (names are copied); the data is read and written until destroy
 * @opts:	borrowed for the call; NULL = defaults
 * Returns 0; -EINVAL (an impossible shape, stride or type; elements of one parameter that overlap;
 * two parameters that share memory in a way that cannot be one layout: both are named); -ENOMEM.
 * Release with wb_probe_destroy().
 */
int wb_probe_create(const struct wb_manifest *m, const struct wb_probe_param *param, uint32_t n,
	const struct wb_probe_opts *opts, struct wb_probe **out, struct wb_err *err);
/** wb_probe_destroy - put the parameters back unless finish did, and free.  NULL is allowed. */
void wb_probe_destroy(struct wb_probe *p);

/**
 * wb_probe_next_pass - begin the next pass; may prefill parameters
 * Returns 1 and fills @pass; 0 when no pass is left (call finish); -ENOMEM; -EINVAL when the
 * previous pass was not ended; or what agree returned.
 */
int wb_probe_next_pass(struct wb_probe *p, struct wb_pass *pass, struct wb_err *err);

/** wb_probe_fill_kind - how @tensor's fill may be expanded in the current pass. */
enum wb_fill_kind wb_probe_fill_kind(const struct wb_probe *p, uint32_t tensor);
/**
 * wb_probe_fill - write a tensor's content for the current pass
 * @expand:	write only what wb_probe_fill_kind() says, not all elements
 * @out, @bytes: memory for it, row-major, in the tensor's dtype
 *		(with has_devices: also of a device that parameters lie on, written there)
 * Returns 0; -EINVAL (no pass, no such tensor, @bytes differs from what is to be written);
 * -ENOTSUP: another device; -ENOMEM; -EIO: the device failed, whatever its driver calls that.
 * Any thread between next_pass and end_pass.
 */
int wb_probe_fill(const struct wb_probe *p, uint32_t tensor, bool expand, void *out, size_t bytes);

/**
 * wb_probe_end_pass - read the parameters after load_weights
 * @param, @n:	the parameters as they are now, in the same order; NULL = not moved.  A parameter
 *		with another address, shape, stride or dtype is a fault of its own.
 * Faults are gathered, not returned.  Returns 0; -EINVAL; -ENOMEM.
 */
int wb_probe_end_pass(
	struct wb_probe *p, const struct wb_probe_param *param, uint32_t n, struct wb_err *err);

/**
 * wb_probe_gone - load_weights has freed the memory of parameter @i at @data: it is not touched
 * again
 * @data:	where it was, at create or in the last end_pass; anything else is ignored
 * This counts as a fault of the parameter.  Call it before the end_pass of the pass that freed it,
 * or before destroy.
 */
void wb_probe_gone(struct wb_probe *p, uint32_t i, const void *data);

/**
 * wb_probe_finish - put the parameters back and hand out the map
 * Returns 0; WB_ENOTCOPY with all faults in one sentence (cut to its length; wb_probe_faults() has
 * all); -EINVAL while passes are left, when it was called before, or when there are elements and
 * none is a copy; -ENOMEM; -EIO: a device failed, and what lay on it could not be put back.
 */
int wb_probe_finish(struct wb_probe *p, struct wb_srcmap **out, struct wb_err *err);

/**
 * wb_probe_outside - after finish: what load_weights writes that is not in the map
 * These are attributes that are not copies, and witnesses that are written from the checkpoint.
 * Each line is a name, a tab and a reason; "" = none.
 */
const char *wb_probe_outside(struct wb_probe *p);

/** wb_probe_faults - one line for each parameter range that is not a copy; "" = none.  Valid until
 *  the next call. */
const char *wb_probe_faults(struct wb_probe *p);
/** wb_probe_notes - what a person may want to know (a cache file was ignored ...), one note per
 * line. */
const char *wb_probe_notes(struct wb_probe *p);

#endif
