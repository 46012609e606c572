/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LANE_AREA_H
#define WB_LANE_AREA_H
/*
 * A staging area: a shadow copy of one rollout worker's memory objects, in a memfd that worker and
 * agent both map, and that the worker keeps when its agent dies.
 *
 * It has a head page, then each memory object's bytes at the same offsets as in the object itself,
 * so a parameter lies in the area as it lies in the worker, and the area can be read without any
 * plan.  Only bytes of parameters are ever written; the rest takes no memory.  The agent receives
 * and verifies here; the worker installs: copies exactly the elements of its source map, never
 * padding between them.
 *
 * The head says what is inside.  The agent writes the state, except INSTALLING and INSTALLED, which
 * the worker writes.  A state of WHOLE and above is set, with release, after everything that it
 * promises is true.  Threads: one writer at a time (the update's messages order them).  Layer: lane
 * (L2).
 */
#include "planner/map.h"

#include <stdbool.h>
#include <stdint.h>

#define WB_AREA_MAGIC 0x31534257u /* "WBS1" */
#define WB_AREA_HEAD_BYTES 4096u
#define WB_AREA_JUDGES_MAX 128u

enum wb_area_state {
	WB_AREA_EMPTY, /* nothing valid */
	WB_AREA_FILLING,
	WB_AREA_WHOLE, /* all of `transfer`, verified; the parameters are as they were */
	WB_AREA_INSTALLING, /* the install was decided; the parameters may be a mix */
	WB_AREA_INSTALLED, /* the parameters hold `transfer` */
};

struct wb_area_head {
	uint32_t magic, state; /* enum wb_area_state; atomic */
	uint64_t bytes; /* size of the whole area */
	uint64_t transfer;
	int64_t version;
	uint64_t sum[2]; /* content sum of this worker's share */
	/* What the parameters hold, committed: 0 = not known, or a mix. */
	uint64_t held_transfer;
	int64_t held_version;
	/* The agents that keep the decision on `transfer`: hashes of their names; none = the
	 * engine's lead. */
	uint32_t n_judge, pad;
	uint64_t judge[WB_AREA_JUDGES_MAX];
};

/* Where parameter i of a worker lies: memory object and byte offset in it. */
struct wb_place {
	uint32_t mem;
	uint64_t off_bytes;
};

/** wb_area_layout - size of an area in bytes; @off (n_mem entries, or NULL) gets each object's
 * offset in the area. */
uint64_t wb_area_layout(const uint64_t *mem_bytes, uint32_t n_mem, uint64_t *off);
/** wb_area_used - bytes of an area that this map writes. */
uint64_t wb_area_used(const struct wb_map *map);
/** wb_area_check - is this the head of an area of @bytes?  What another process wrote is not
 *  trusted: states and counts out of range make it false. */
bool wb_area_check(const struct wb_area_head *h, uint64_t bytes);
/** wb_area_reset - make @h the head of an empty area of @bytes. */
void wb_area_reset(struct wb_area_head *h, uint64_t bytes);

/** wb_area_state - the state, read with acquire: what it promises about the area is visible,
 * too. */
static inline enum wb_area_state wb_area_state(const struct wb_area_head *h)
{
	return (enum wb_area_state)__atomic_load_n(&h->state, __ATOMIC_ACQUIRE);
}
/** wb_area_set - set the state, with release: a reader of the state sees everything written
 * before. */
static inline void wb_area_set(struct wb_area_head *h, enum wb_area_state s)
{
	__atomic_store_n(&h->state, (uint32_t)s, __ATOMIC_RELEASE);
}

/** wb_area_move - change the state from @from to @to; false when it is not @from. */
static inline bool wb_area_move(
	struct wb_area_head *h, enum wb_area_state from, enum wb_area_state to)
{
	uint32_t was = from;

	return __atomic_compare_exchange_n(
		&h->state, &was, (uint32_t)to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* What to copy: n_row x n_rep pieces of `bytes`, strides in bytes. */
struct wb_area_range {
	uint32_t mem, param;
	uint64_t off, bytes;
	uint64_t n_row, n_rep;
	int64_t row_stride, rep_stride;
};

/** wb_area_ranges - the elements that @map writes, as ranges of the memory objects.  0 or -ENOMEM;
 *  *out is owned (wb_free()). */
int wb_area_ranges(const struct wb_map *map, const struct wb_place *place,
	struct wb_area_range **out, uint32_t *n_out);
/** wb_area_copy - copy the ranges from the objects at @from to those at @to.  Blocks for as long
 *  as the memory takes. */
void wb_area_copy(const struct wb_area_range *r, uint32_t n, void *const *from, void *const *to);
/** wb_area_differs - the first range, from @i on, that differs between the two; @n = none.  Blocks,
 * too. */
uint32_t wb_area_differs(
	const struct wb_area_range *r, uint32_t n, uint32_t i, void *const *from, void *const *to);
/** wb_area_flip - WB_FAULT: change one bit in @to that one of the ranges covers; @bit chooses
 * it. */
void wb_area_flip(const struct wb_area_range *r, uint32_t n, void *const *to, uint64_t bit);

#endif
