/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LANE_GPU_H
#define WB_LANE_GPU_H
/*
 * Pack, assemble and sum on a device, for a lane that runs where the parameters' device is mapped.
 *
 * A job is one launch on a stream of its own that nothing else waits for (non-blocking): tables go
 * in, the kernel moves between the device's memory and slots of the host, which are pinned as they
 * are first used, sums come out.  The job is over when an event behind all of that is: what it read
 * may change then, what it wrote is there for every later kernel, and its slot is free.
 *
 * Order with the application: it hands its parameters over when its work on them is done
 * (wb_gpu_settle()).
 *
 * Threads: one, the lane's; create and destroy: any.  Layer: lane (L2).
 */
#include "lane/lane.h"

#include <stdint.h>

struct wb_err;
struct wb_lane_gpu;

#define WB_LANE_GPU_BOXES 128u /* of a job */

/**
 * wb_lane_gpu_create - a stream, the kernels, tables on device @uuid
 * @arena:	slots as mapped here; borrowed; a job's wire lies inside
 * Blocks.  0; -ENOTSUP: no driver, or this build has no device code; -ENODEV; -ENOMEM; -EIO.
 */
int wb_lane_gpu_create(const uint8_t *uuid, void *arena, uint64_t arena_bytes,
	struct wb_lane_gpu **out, struct wb_err *err);
/**
 * wb_lane_gpu_run - a job, from its beginning to its end
 * @job:	bases are addresses of the device; at most WB_LANE_GPU_BOXES boxes, checked by the
 *		caller against them and the wire
 * Sets job->sum and job->rc: 0; -EINVAL (a kind, or a box, that cannot be); -ENOMEM (slots
 *		cannot be pinned); -EIO: the device failed.  In any case nothing of the job runs any
 *		more.
 */
void wb_lane_gpu_run(struct wb_lane_gpu *l, struct wb_lane_job *job);
/** wb_lane_gpu_destroy - no job is under way.  NULL is allowed. */
void wb_lane_gpu_destroy(struct wb_lane_gpu *l);

#endif
