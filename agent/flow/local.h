/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FLOW_LOCAL_H
#define WB_FLOW_LOCAL_H
/*
 * What one plan means for one agent: its workers, their memory, and the list of chunks they want.
 *
 * Made once when a plan arrives, used by every transfer of that plan.  Owns the bindings; borrows
 * the plan, the manifest, the maps and the workers' memory, which must outlive it.
 * Loop thread.  Layer: flow (L3).
 */
#include "flow/lists.h"
#include "lane/area.h"
#include "planner/binding.h"
#include "planner/plan.h"

#include <stdbool.h>
#include <stdint.h>

struct wb_err;
struct wb_lane;

/* One worker of this agent, as it attached.  What it points to is borrowed by wb_local. */
struct wb_member {
	uint32_t plan_worker; /* its number in the plan */
	const struct wb_map *map;
	const struct wb_place *place; /* where each parameter lies */
	void *const *base; /* each memory object's address here; NULL = not mapped */
	struct wb_lane *lane;
};

/* A chunk that a local rollout worker wants, as the plan routes it. */
struct wb_want {
	uint32_t worker; /* local index */
	uint32_t cls, chunk;
	uint32_t src; /* plan worker */
	/* Plan workers whose rails carry it: its own worker's (dst) and @src's, or others that lend
	 * theirs. */
	uint16_t dst_rail, src_rail;
	uint8_t stage; /* enum wb_stage */
};

/* Bytes that the routes of a plan bring to a worker, and take from it. */
struct wb_local_bytes {
	uint64_t in, out;
};

struct wb_local {
	const struct wb_plan *plan;
	const struct wb_manifest *manifest;
	uint32_t domain, node;
	uint32_t n;
	struct wb_member *member; /* owned array */
	struct wb_binding **binding; /* owned */
	int32_t *index_of; /* owned: plan worker -> local index or -1 */
	struct wb_want *want; /* owned: by stage, then destination and route order */
	uint32_t n_want;
	uint32_t *want_first; /* owned, by worker: its first want; UINT32_MAX = none */
	uint32_t *want_same; /* owned, by want: the next want of the same worker */
	struct wb_local_bytes *bytes; /* owned: by worker */
	struct wb_keyed want_of; /* owned: wants by worker and chunk */
	size_t boxes_max; /* most boxes of any chunk of any local worker */
	uint8_t *
		shape; /* owned: by worker and chunk, WB_LANDS_*, WB_LEAVES_*: what was found out */
	bool is_view; /* only member and shape are owned */
};

/**
 * wb_local_create - index a plan for this agent
 * @member, @n: this agent's workers that take part
 * Returns 0; WB_EPLAN when the plan does not fit the maps (named); -ENOMEM.
 */
int wb_local_create(const struct wb_plan *plan, const struct wb_manifest *manifest,
	const struct wb_member *member, uint32_t n, struct wb_local **out, struct wb_err *err);
/** wb_local_destroy - free it; NULL is allowed.  A view does not free what it shares, and must be
 * freed before what it is a view of. */
void wb_local_destroy(struct wb_local *l);
/** wb_local_view - the same plan and workers with other memory: @member (as many, in the same
 * order) takes the place of @of's.  @of must outlive the view.  0 or -ENOMEM. */
int wb_local_view(const struct wb_local *of, const struct wb_member *member, struct wb_local **out);

/**
 * wb_local_boxes - boxes of a chunk in a local worker's memory objects
 * @all: every copy of each element (to assemble); false: one for each wire byte, in wire order
 * @box, @scratch: room for l->boxes_max each
 * Returns the count (<= l->boxes_max) or -errno.
 */
int wb_local_boxes(const struct wb_local *l, uint32_t index, uint32_t cls, uint32_t chunk, bool all,
	struct wbk_box *box, uint32_t *scratch);

/* How a chunk goes into and out of a worker's memory; no bit is set before somebody has looked. */
#define WB_LANDS_IN_SLOT 1u
/* Each element has one place: it may land in the parameters, if runs are long. */
#define WB_LANDS_ONCE 2u
#define WB_LEAVES_BY_SLOT 4u

/** wb_local_shape - shape of global chunk number @id in local worker @index; the caller may read
 * it, and note what it found. */
static inline uint8_t *wb_local_shape(const struct wb_local *l, uint32_t index, uint32_t id)
{
	return &l->shape[(size_t)index * l->plan->n_chunk + id];
}

/** wb_local_want - the want of worker @index for a chunk, or UINT32_MAX. */
uint32_t wb_local_want(const struct wb_local *l, uint32_t index, uint32_t cls, uint32_t chunk);

/** wb_local_is_member - does worker @index hold or need class @cls? */
bool wb_local_is_member(const struct wb_local *l, uint32_t index, uint32_t cls);

#endif
