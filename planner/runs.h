/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PLANNER_RUNS_H
#define WB_PLANNER_RUNS_H
/*
 * Runs: a segment and its repetitions.  The experts of a layer are equal matrices, and so are the
 * layers: their segments repeat with constant steps, in levels, and one record stands for all of
 * them.  Only for the planner.  Layer: planner (L1).
 */
#include "planner/plan.h"

#define WB__RUN_LEVELS 3

/* One level: everything below it n times, each time advanced by these steps (modulo 2^32 and
 * 2^64). */
struct wb__level {
	uint32_t n, tensor;
	uint64_t row, wire_off;
};

struct wb__run {
	struct wb_segment first;
	uint32_t n_level;
	struct wb__level level[WB__RUN_LEVELS]; /* the innermost first; their n >= 2 */
};

/* Scratch and result of wb__runs_make(): runs that together make the given segments. */
struct wb__runs {
	struct wb__run *run; /* owned */
	uint32_t n_run;
	struct wb__level *step; /* owned: the level of each run, as it grows in a pass */
	uint32_t *slot; /* owned: open hash table of run number + 1 */
	size_t cap_run, cap_step, cap_slot;
};

/**
 * wb__runs_make - find runs that together make these segments, greedily as few as possible
 * @f:		zeroed before its first use; f->run is the result, valid until the next call
 * @n:		at most 2^24
 * Returns 0 or -ENOMEM.
 */
int wb__runs_make(struct wb__runs *f, const struct wb_segment *s, uint32_t n);
/** wb__runs_finish - free scratch and result; @f is zeroed afterwards. */
void wb__runs_finish(struct wb__runs *f);

/** wb__run_segments - number of segments that a run makes; UINT64_MAX when it is too large to
 * count. */
uint64_t wb__run_segments(const struct wb__run *r);
/** wb__run_unfold - write these segments to @out, in the order of the levels. */
void wb__run_unfold(const struct wb__run *r, struct wb_segment *out);

#endif
