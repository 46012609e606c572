/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LANE_GPU_H
#define WB_LANE_GPU_H
/*
 * Pack, assemble and sum on a device, for a lane that runs where the parameters' device is mapped.
 *
 * Jobs are begun, and end in the order in which they were; up to WB_LANE_GPU_JOBS are under way at
 * once, so that the bus moves one while the device's memory is read or written for its neighbours.
 * Three streams that nothing else waits for (non-blocking) hold their work, with events between
 * them; a job waits for nothing of another, with the exceptions below.
 *
 *	stream	PACK				ASSEMBLE
 *	in					tables; slot -> staging buffer
 *	work	tables; kernel: parameters	kernel: staging buffer
 *		-> staging buffer, sum		-> parameters, sum
 *	out	staging buffer -> slot; sum	sum
 *
 * A kernel that reaches the host's memory itself moves two thirds of what a copy does, so chunks go
 * through a staging buffer on the device, and the kernel runs at the speed of its memory.  Each of
 * the jobs under way has a buffer of its own, WB_LANE_GPU_STAGE bytes, taken at its first use and
 * kept until the lane ends: 64 MiB in all.  Where the device has no room for it (less than
 * WB_LANE_GPU_LEAVE bytes would be left to the application) the kernel reads and writes slots
 * itself; so it does for small jobs, whose copies would take longer to begin than to run, and for
 * jobs whose boxes lie scattered on the wire.
 *
 * What a job finds is as if they were run one by one: kernels follow each other in one stream, and
 * a job that touches a part of a slot that one under way touches waits for the end of that.
 * A job is over when an event behind all of its work is: what it read may change then, what it
 * wrote is there for every later kernel and for the host, and its slot and staging buffer are free.
 * Slots are pinned as they are first used, in windows; a copy never crosses their borders.
 *
 * Order with the application: it hands its parameters over when its work on them is done
 * (wb_gpu_settle()).
 *
 * Threads: one, the lane's, in which the device's context stays current while jobs are under way;
 * create and, when none are, destroy: any.  Layer: lane (L2).
 */
#include "lane/lane.h"

#include <stdint.h>

struct wb_err;
struct wb_lane_gpu;

#define WB_LANE_GPU_BOXES 128u /* of a job */
#define WB_LANE_GPU_JOBS 4u /* under way */
#define WB_LANE_GPU_STAGE ((uint64_t)16 << 20) /* bytes: the largest chunk */
#define WB_LANE_GPU_LEAVE ((uint64_t)256 << 20) /* bytes */

/**
 * wb_lane_gpu_create - streams, the kernels, tables on device @uuid
 * @arena:	slots as mapped here; borrowed; a job's wire lies inside
 * Blocks.  0; -ENOTSUP: no driver, or this build has no device code; -ENODEV; -ENOMEM; -EIO.
 */
int wb_lane_gpu_create(const uint8_t *uuid, void *arena, uint64_t arena_bytes,
	struct wb_lane_gpu **out, struct wb_err *err);
/**
 * wb_lane_gpu_begin - queue a job; less than WB_LANE_GPU_JOBS are under way
 * @job:	bases are addresses of the device; at most WB_LANE_GPU_BOXES boxes, checked by the
 *		caller against them and the wire.  Copied with all that it points to, but for its
 *		memory and its wire.
 * What goes wrong is told by the end of the job, in its turn.  Blocks where slots have to be pinned
 * or a buffer taken, and after a failure.
 */
void wb_lane_gpu_begin(struct wb_lane_gpu *l, const struct wb_lane_job *job);
/** wb_lane_gpu_under_way - jobs begun and not ended. */
uint32_t wb_lane_gpu_under_way(const struct wb_lane_gpu *l);
/** wb_lane_gpu_is_over - would wb_lane_gpu_end() return at once?  Some job is under way. */
bool wb_lane_gpu_is_over(struct wb_lane_gpu *l);
/**
 * wb_lane_gpu_wait - wait until the oldest job is over, or @fd can be read
 * Returns whether it is over.  Some job is under way.  Blocks: by short sleeps, which get longer
 * with the job, since no descriptor tells of a device.
 */
bool wb_lane_gpu_wait(struct wb_lane_gpu *l, int fd);
/**
 * wb_lane_gpu_end - wait for the oldest job under way
 * @sum:	written: its sum, 0 without keys or when it failed
 * Returns its rc: 0; -EINVAL (a kind, or a box, that cannot be); -ENOMEM (slots cannot be pinned);
 * -EIO: the device failed.  In any case nothing of the job runs any more; others may.
 * Blocks: looks for a moment where the end is near, since to be woken takes as long, and else
 * sleeps.
 */
int wb_lane_gpu_end(struct wb_lane_gpu *l, struct wbk_sum *sum);
/** wb_lane_gpu_destroy - jobs under way run to their end first, and are forgotten.  NULL is
 *  allowed. */
void wb_lane_gpu_destroy(struct wb_lane_gpu *l);

#endif
