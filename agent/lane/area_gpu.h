/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LANE_AREA_GPU_H
#define WB_LANE_AREA_GPU_H
/*
 * What wb_area_copy() and wb_area_differs() do, for parameters on a device: the worker's install.
 *
 * The area is in the host's memory.  It goes to the device as jobs of lane/gpu.h, of 16 MiB and 128
 * pieces at most, some of them under way at once; what comes back to be compared are sums, made on
 * the device, not bytes.  The area is pinned as its parts are first installed, in windows of 16
 * MiB, and stays so until destroy: the first install takes longer, and bytes of a window that no
 * parameter is made of take memory as well.
 *
 * A piece is what lies without a gap in the area and in the parameter.  Parameters that are written
 * whole are one; pieces of a few bytes each cost a tenth of a microsecond or more.
 *
 * Order with the application: its work on the parameters is done (wb_gpu_settle()) before a copy,
 * and finds what was copied after it.  Threads: one at a time; create and destroy: any.
 * Layer: lane (L2).
 */
#include "lane/area.h"

struct wb_err;
struct wb_area_gpu;

/**
 * wb_area_gpu_create - take what an install on device @uuid needs, but for pinned memory
 * @area:	borrowed until destroy; page-aligned
 * Blocks.  0; codes as wb_lane_gpu_create().
 */
int wb_area_gpu_create(const uint8_t *uuid, void *area, uint64_t area_bytes,
	struct wb_area_gpu **out, struct wb_err *err);
/**
 * wb_area_gpu_copy - copy the ranges from the objects at @from to those at @to
 * @from:	in the area
 * @to:		addresses of the device
 * 0; -EINVAL: a range beyond the area; -ENOMEM: it cannot be pinned; -EIO: the device failed.
 * After a failure part of it may be copied, and nothing is under way.  Blocks.
 */
int wb_area_gpu_copy(struct wb_area_gpu *g, const struct wb_area_range *r, uint32_t n,
	void *const *from, void *const *to);
/** wb_area_gpu_differs - the first range, from @i on, that is not the same in both, into @out; @n =
 *  none.  Returns as wb_area_gpu_copy().  Blocks. */
int wb_area_gpu_differs(struct wb_area_gpu *g, const struct wb_area_range *r, uint32_t n,
	uint32_t i, void *const *from, void *const *to, uint32_t *out);
/** wb_area_gpu_forked - in a forked child, before destroy: the device and what was made there are
 *  the parent's, and destroy leaves them alone.  NULL is allowed. */
void wb_area_gpu_forked(struct wb_area_gpu *g);
/** wb_area_gpu_destroy - NULL is allowed. */
void wb_area_gpu_destroy(struct wb_area_gpu *g);

#endif
