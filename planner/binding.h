/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PLANNER_BINDING_H
#define WB_PLANNER_BINDING_H
/*
 * A binding: where the classes in which one worker takes part lie in its parameters.  Segment s of
 * a class is contained in ops [first[s], first[s + 1]) of op[] (one op, or more if the worker holds
 * copies).  Read-only after creation.  Layer: planner (L1).
 */
#include "kernels/kernels.h"
#include "planner/plan.h"

struct wb_binding;

/**
 * wb_binding_create - bind a worker's map to the classes of a plan
 * @worker:	worker number; @map: its layout (borrowed, must outlive the binding)
 * Returns 0, WB_EPLAN when a segment is in no op, -ENOMEM.
 */
int wb_binding_create(const struct wb_plan *p, const struct wb_manifest *m,
	const struct wb_map *map, uint32_t worker, struct wb_binding **out, struct wb_err *err);
/** wb_binding_destroy - free it; NULL is allowed.  Map and plan are borrowed, and stay. */
void wb_binding_destroy(struct wb_binding *b);

/**
 * wb_binding_boxes - the boxes of one chunk in a worker's parameters
 * @cls, @chunk: chunk; the worker must be a holder or needer of the class
 * @all:	true: every copy (assemble); false: one source for each wire byte (pack)
 * @box, @cap:	written; box.base is 0 and box.mem_off counts bytes of parameter box_param[i]
 * @box_param:	parameter number of each box, same capacity
 * Returns the number of boxes; -E2BIG when @cap is too small (call wb_binding_boxes_max()).
 * A chunk boundary inside a row cuts the box.  Wire offsets count from the chunk's first byte.
 */
int wb_binding_boxes(const struct wb_binding *b, uint32_t cls, uint32_t chunk, bool all,
	struct wbk_box *box, uint32_t *box_param, size_t cap);
/** wb_binding_boxes_max - greatest number of boxes that any chunk needs. */
size_t wb_binding_boxes_max(const struct wb_binding *b);

#endif
