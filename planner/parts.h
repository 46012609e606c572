/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PLANNER_PARTS_H
#define WB_PLANNER_PARTS_H
/*
 * A plan as it travels: a head that all agents get, and for each agent a part with what concerns
 * its own workers: the segments of their classes, and the routes from and to them.
 *
 * Packed, the head and all parts are one piece of memory, of which each agent is sent two slices.
 * The head contains the digests of the parts, so an agent with the right head cannot accept a part
 * of another plan.  Format: planner/FORMAT.md, version 2.  Pure; any thread.  Layer: planner (L1).
 */
#include "planner/plan.h"

struct wb_plan_slice {
	uint64_t at, bytes;
	struct wb_digest digest; /* of these bytes */
};

/** wb_plan_pack - append the head and the parts of a whole plan.  0, -ENOMEM or -E2BIG (as @out's
 * error, or because the plan has more runs than a part may have). */
int wb_plan_pack(const struct wb_plan *p, struct wb_buf *out);
/**
 * wb_plan_slices - find where the head and the parts lie in a packed plan
 * @out:	wb_free(): slice 0 is the head, slice 1 + d the part of domain d
 * Returns their number; -EBADMSG, -ENOMEM.  Untrusted input; digests are not checked.
 */
int wb_plan_slices(
	const void *packed, size_t bytes, struct wb_plan_slice **out, struct wb_err *err);

struct wb_plan_piece {
	const void *data;
	size_t bytes;
};
/**
 * wb_plan_unpack - read the plan as one agent has it
 * @head:	the caller must have checked its digest
 * @part:	of any domain; checked against the digest in the head
 * @memory_max:	bytes that the plan may take, counted before they are allocated
 * Returns 0; -EFBIG with figures: the plan would take more; -EBADMSG, -ENOMEM.  Untrusted input;
 * every index is checked.
 */
int wb_plan_unpack(struct wb_plan_piece head, struct wb_plan_piece part, uint64_t memory_max,
	struct wb_plan **out, struct wb_err *err);

#endif
