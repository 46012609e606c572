/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LANE_GPU_H
#define WB_LANE_GPU_H
/*
 * Pack, assemble and sum on a device, for a lane in a process that can use the parameters' device.
 *
 * Jobs end in the order in which they were begun; up to WB_LANE_GPU_JOBS are under way at once, so
 * that the bus moves the bytes of one job while the device's memory is read or written for others.
 * Three streams that nothing else waits for (non-blocking) have their work, with events between
 * them; a job does not wait for another job, with the exceptions below.
 *
 *	stream	PACK				ASSEMBLE
 *	in					tables; slot -> staging buffer
 *	work	tables; kernel: parameters	kernel: staging buffer
 *		-> staging buffer, sum		-> parameters, sum
 *	out	staging buffer -> slot; sum	sum
 *
 * A kernel that accesses the host's memory itself has two thirds of a copy's throughput, so chunks
 * go through a staging buffer on the device, and the kernel runs at the speed of the device's
 * memory.  Each of the jobs under way has a buffer of its own, WB_LANE_GPU_STAGE bytes, taken at
 * its first use and kept until the lane ends: 64 MiB in all.  If the device has no room for a
 * buffer (less than WB_LANE_GPU_LEAVE bytes would be left to the application) the kernel reads and
 * writes slots itself; it also does so for small jobs, whose copies would take longer to begin than
 * to run, and for jobs whose boxes lie scattered on the wire.
 *
 * The results are as if jobs were run one by one: kernels follow each other in one stream, and a
 * job that touches a part of a slot which another job under way touches waits for the end of that
 * job.  A job is over when the event after all of its work has come: then what it read may change,
 * what it wrote is visible to every later kernel and to the host, and its slot and staging buffer
 * are free.  Slots are pinned when they are first used, in windows; a copy never crosses the border
 * of a window.
 *
 * Order with the application: it hands its parameters over when its work on them is done
 * (wb_gpu_settle()).
 *
 * Threads: one, the lane's, in which the device's context stays current while jobs are under way;
 * any thread may create, and destroy when no job is under way.  Layer: lane (L2).
 */
#include "lane/lane.h"

#include <stdint.h>

struct wb_err;
struct wb_lane_gpu;

#define WB_LANE_GPU_BOXES 128u /* most boxes of a job */
#define WB_LANE_GPU_JOBS 4u /* most jobs under way */
#define WB_LANE_GPU_STAGE ((uint64_t)16 << 20) /* bytes: the largest chunk */
#define WB_LANE_GPU_LEAVE ((uint64_t)256 << 20) /* bytes */

/**
 * wb_lane_gpu_create - make streams and tables, and load the kernels, on device @uuid
 * @arena:	slots as mapped here; borrowed; a job's wire lies inside
 * Blocks.  0; -ENOTSUP: no driver, or this build has no device code; -ENODEV; -ENOMEM; -EIO.
 */
int wb_lane_gpu_create(const uint8_t *uuid, void *arena, uint64_t arena_bytes,
	struct wb_lane_gpu **out, struct wb_err *err);
/**
 * wb_lane_gpu_begin - queue a job; fewer than WB_LANE_GPU_JOBS must be under way
 * @job:	bases are addresses of the device; at most WB_LANE_GPU_BOXES boxes, which the caller
 *		has checked against the bases' memory and the wire.  The job is copied with all that
 *		it points to, except its memory and its wire.
 * A failure is returned by wb_lane_gpu_end() for the job, in its turn.  Blocks when slots have to
 * be pinned or a buffer taken, and after a failure.
 */
void wb_lane_gpu_begin(struct wb_lane_gpu *l, const struct wb_lane_job *job);
/** wb_lane_gpu_under_way - number of jobs begun and not ended. */
uint32_t wb_lane_gpu_under_way(const struct wb_lane_gpu *l);
/** wb_lane_gpu_is_over - would wb_lane_gpu_end() return at once?  A job must be under way. */
bool wb_lane_gpu_is_over(struct wb_lane_gpu *l);
/**
 * wb_lane_gpu_wait - wait until the oldest job is over, or @fd can be read
 * Returns whether the job is over.  A job must be under way.  Blocks in short sleeps, which get
 * longer the longer the job takes, since a device has no descriptor to wait for.
 */
bool wb_lane_gpu_wait(struct wb_lane_gpu *l, int fd);
/**
 * wb_lane_gpu_end - wait for the oldest job under way
 * @sum:	written: the job's sum; 0 without keys, or when it failed
 * Returns the job's rc: 0; -EINVAL (an impossible kind or box); -ENOMEM (slots cannot be pinned);
 * -EIO: the device failed.  In any case nothing of the job runs any more; other jobs may.  Blocks:
 * it polls for a moment when the end is near, since waking up would take as long, and else sleeps.
 */
int wb_lane_gpu_end(struct wb_lane_gpu *l, struct wbk_sum *sum);
/** wb_lane_gpu_destroy - wait for the end of jobs under way, whose results are dropped, and free.
 * NULL is allowed. */
void wb_lane_gpu_destroy(struct wb_lane_gpu *l);

#endif
