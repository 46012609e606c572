/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LANE_AREA_H
#define WB_LANE_AREA_H
/*
 * A staging area: a shadow of one rollout worker's memory objects, in a memfd that worker and agent
 * both map and that the worker keeps when its agent dies.
 *
 * A head page, then each memory object's bytes at the offsets it has in the object itself, so that
 * a parameter lies in the area as it lies in the worker and the area is readable without any plan.
 * Only bytes that parameters are made of are ever written; the rest takes no memory.  The agent
 * receives and verifies here; the worker installs: copies exactly the elements of its source map,
 * never padding between them.
 *
 * The head says what is inside.  The agent writes it but for INSTALLING and INSTALLED, which are
 * the worker's.  A state of WHOLE and above is set after everything below it is true, with release.
 * Threads: one writer at a time (the update's messages order them).  Layer: lane (L2).
 */
#include "planner/map.h"

#include <stdbool.h>
#include <stdint.h>

#define WB_AREA_MAGIC 0x31534257u /* "WBS1" */
#define WB_AREA_HEAD_BYTES 4096u
#define WB_AREA_JUDGES_MAX 128u

enum wb_area_state {
	WB_AREA_EMPTY, /* nothing that counts */
	WB_AREA_FILLING,
	WB_AREA_WHOLE, /* all of `transfer`, verified; the parameters are as they were */
	WB_AREA_INSTALLING, /* decided; the parameters may be a mix */
	WB_AREA_INSTALLED, /* the parameters hold `transfer` */
};

struct wb_area_head {
	uint32_t magic, state; /* enum wb_area_state; atomic */
	uint64_t bytes; /* of the whole area */
	uint64_t transfer;
	int64_t version;
	uint64_t sum[2]; /* content sum of this worker's share */
	/* What the parameters hold, committed: 0 = not known, or a mix. */
	uint64_t held_transfer;
	int64_t held_version;
	/* Who keeps the decision on `transfer`: hashes of agent names; none = the engine's lead. */
	uint32_t n_judge, pad;
	uint64_t judge[WB_AREA_JUDGES_MAX];
};

/* Where parameter i of a worker lies: memory object and byte offset in it. */
struct wb_place {
	uint32_t mem;
	uint64_t off_bytes;
};

/** wb_area_layout - bytes of an area; @off (n_mem, or NULL) gets each object's offset in it. */
uint64_t wb_area_layout(const uint64_t *mem_bytes, uint32_t n_mem, uint64_t *off);
/** wb_area_used - bytes of it that this map writes. */
uint64_t wb_area_used(const struct wb_map *map);
/** wb_area_check - is this the head of an area of @bytes?  What another process wrote is not
 *  trusted: states and counts out of range make it false. */
bool wb_area_check(const struct wb_area_head *h, uint64_t bytes);
/** wb_area_reset - make it an empty area of @bytes. */
void wb_area_reset(struct wb_area_head *h, uint64_t bytes);

/** wb_area_state - the state, with acquire: what it promises about the area is seen too. */
static inline enum wb_area_state wb_area_state(const struct wb_area_head *h)
{
	return (enum wb_area_state)__atomic_load_n(&h->state, __ATOMIC_ACQUIRE);
}
/** wb_area_set - go to a state, with release: everything written before is seen by who reads it. */
static inline void wb_area_set(struct wb_area_head *h, enum wb_area_state s)
{
	__atomic_store_n(&h->state, (uint32_t)s, __ATOMIC_RELEASE);
}

/** wb_area_move - from one state to another; false when it is in a third. */
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
/** wb_area_differs - the first range, from @i on, that is not the same in both; @n = none.  Blocks
 *  as well. */
uint32_t wb_area_differs(
	const struct wb_area_range *r, uint32_t n, uint32_t i, void *const *from, void *const *to);
/** wb_area_flip - WB_FAULT: change a bit of @to that one of the ranges covers. */
void wb_area_flip(const struct wb_area_range *r, uint32_t n, void *const *to, uint64_t bit);

#endif
