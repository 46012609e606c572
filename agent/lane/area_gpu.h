/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LANE_AREA_GPU_H
#define WB_LANE_AREA_GPU_H
/*
 * What wb_area_copy() and wb_area_differs() do, for parameters on a device: the worker's install.
 *
 * The area is in the host's memory.  Its bytes go to the device as jobs of lane/gpu.h, of 16 MiB
 * and 128 pieces at most, several of them under way at once; for comparison only sums, made on the
 * device, come back, not bytes.  The area's parts are pinned when they are first installed, in
 * windows of 16 MiB, and stay pinned until destroy: so the first install takes longer, and all
 * bytes of a window take memory, also those that belong to no parameter.
 *
 * A piece is a run of bytes without a gap, both in the area and in the parameter.  A parameter that
 * is written whole is one piece; small pieces of a few bytes cost a tenth of a microsecond or more
 * each.
 *
 * Order with the application: its work on the parameters must be done (wb_gpu_settle()) before a
 * copy, and its work after the copy finds what was copied.  Threads: one at a time; create and
 * destroy: any.
 * Layer: lane (L2).
 */
#include "lane/area.h"

struct wb_err;
struct wb_area_gpu;

/**
 * wb_area_gpu_create - take what an install on device @uuid needs, except pinned memory
 * @area:	borrowed until destroy; page-aligned
 * Blocks.  0; codes as wb_lane_gpu_create().
 */
int wb_area_gpu_create(const uint8_t *uuid, void *area, uint64_t area_bytes,
	struct wb_area_gpu **out, struct wb_err *err);
/**
 * wb_area_gpu_copy - copy the ranges from the objects at @from to those at @to
 * @from:	in the area
 * @to:		addresses of the device
 * 0; -EINVAL: a range is beyond the area; -ENOMEM: the area cannot be pinned; -EIO: the device
 * failed.  After a failure a part may have been copied, and nothing is under way.  Blocks.
 */
int wb_area_gpu_copy(struct wb_area_gpu *g, const struct wb_area_range *r, uint32_t n,
	void *const *from, void *const *to);
/** wb_area_gpu_differs - set *@out to the first range, from @i on, that differs between the two; @n
 * = none.  Returns as wb_area_gpu_copy().  Blocks. */
int wb_area_gpu_differs(struct wb_area_gpu *g, const struct wb_area_range *r, uint32_t n,
	uint32_t i, void *const *from, void *const *to, uint32_t *out);
/** wb_area_gpu_forked - call it in a forked child before destroy: the device and what was made
 * there belong to the parent, and destroy leaves them alone.  NULL is allowed. */
void wb_area_gpu_forked(struct wb_area_gpu *g);
/** wb_area_gpu_destroy - NULL is allowed. */
void wb_area_gpu_destroy(struct wb_area_gpu *g);

#endif
