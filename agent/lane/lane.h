/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LANE_LANE_H
#define WB_LANE_LANE_H
/*
 * Lanes: the executors of pack and assemble work for one worker's memory.
 *
 * A lane takes jobs, runs them in order and returns them with the checksum.  There are three kinds
 * behind one table: host (a thread of this process, for memory mapped here), inline (runs in
 * submit, for the simulator), and remote (runs in the worker, for memory only it can touch;
 * shared.h says how).
 *
 * Jobs are copied; what they point to (bases, boxes, keys, wire) is borrowed until the job is
 * reaped.  Every job that submit accepted is reaped exactly once, with its rc.
 * Threads: submit, reap, abort and destroy: one thread, the owner's; fd: any.  No lock and no
 * allocation on the job path.  Layer: lane (L2).
 */
#include "kernels/kernels.h"

#include <stdbool.h>
#include <stdint.h>

struct wb_err;
struct wb_lane;

/* Numbers travel to remote lanes: append only. */
enum wb_lane_kind {
	WB_LANE_PACK = 1, /* memory -> wire */
	WB_LANE_ASSEMBLE = 2, /* wire -> memory */
	WB_LANE_SUM = 3, /* sum of what pack would write; wire may be NULL */
};

struct wb_lane_job {
	enum wb_lane_kind kind;
	/* Indexed by box.base; not used by remote lanes, which have their own */
	void *const *bases;
	const struct wbk_box *box;
	uint32_t n_box;
	void *wire;
	uint64_t wire_bytes; /* boxes must not reach beyond this */
	const struct wbk_sum_keys *keys; /* NULL = no sum; needed for WB_LANE_SUM */
	uint64_t cookie;
	bool cold; /* a hint for PACK: the wire is not read again soon */
	/* Results, at reap. */
	struct wbk_sum sum;
	int rc; /* 0; -EINVAL: a box out of bounds, nothing or part done; -EPIPE: worker gone;
		   -ECANCELED: aborted before it began */
};

struct wb_lane_opts {
	uint32_t depth; /* most jobs submitted and not reaped; 0 = 64 */
	const char *name; /* name of the thread, at most 15 characters; NULL = "wb-lane" */
};

/** wb_lane_create_host - a lane with a thread of its own.  0; -ENOMEM, -EAGAIN, -EMFILE. */
int wb_lane_create_host(const struct wb_lane_opts *o, struct wb_lane **out, struct wb_err *err);
/** wb_lane_create_inline - a lane that runs each job inside submit.  0; -ENOMEM; -EINVAL (depth).
 * Agents do not use it; it is for simulations, in which the timing of threads must not matter. */
int wb_lane_create_inline(const struct wb_lane_opts *o, struct wb_lane **out, struct wb_err *err);

/* What a remote lane hands to its worker (with the slot arena): all descriptors are owned by the
 * lane. */
struct wb_lane_remote_fds {
	int shared; /* memfd of the rings, sealed */
	int submit, complete; /* eventfds */
};

/**
 * wb_lane_create_remote - a lane whose jobs run in another process
 * @arena, @arena_bytes: slots as mapped here (borrowed); job.wire must lie inside
 * @fds:	written on success, to be passed to the worker's wb_lane_worker_open()
 * While the worker has not opened its side, jobs are accepted and wait.
 * 0; -ENOMEM, -EMFILE, -EINVAL.
 */
int wb_lane_create_remote(const struct wb_lane_opts *o, void *arena, uint64_t arena_bytes,
	struct wb_lane **out, struct wb_lane_remote_fds *fds, struct wb_err *err);

/** wb_lane_submit - give the lane a job.  0; -EAGAIN when depth jobs are not reaped yet; -EPIPE
 * after abort;
 *  -EINVAL (remote: wire outside the arena). */
int wb_lane_submit(struct wb_lane *l, const struct wb_lane_job *job);
/** wb_lane_reap - write finished jobs, in submission order, to @job; returns their number <= @n. */
int wb_lane_reap(struct wb_lane *l, struct wb_lane_job *job, int n);
/** wb_lane_fd - a descriptor that is readable while there may be something to reap; -1 for inline
 * lanes.  The lane owns it. */
int wb_lane_fd(const struct wb_lane *l);
/** wb_lane_fired - tell the lane that wb_lane_fd() is readable; call wb_lane_reap() after it.
 * Reaping reads the descriptor only when there is something to reap, so that many idle lanes cost
 * nothing; a signal whose job was reaped before it came is taken here. */
void wb_lane_fired(struct wb_lane *l);
/** wb_lane_abort - the worker is gone: remote jobs end with -EPIPE at the next reap, host jobs that
 * have not begun with -ECANCELED; later submits return -EPIPE.  A worker that is still alive may
 * continue to write for a job that it has begun: its memory and slots must not be used again before
 * it is known to be dead. */
void wb_lane_abort(struct wb_lane *l);
/** wb_lane_destroy - end the thread after its present job, and free; other jobs are dropped.
 * Blocks until the thread has ended.  NULL is allowed. */
void wb_lane_destroy(struct wb_lane *l);

/* ---- the worker's side of a remote lane ------------------------------------------------------ */

struct wb_lane_worker;

/* A memory object of this process: box.base is its index. */
struct wb_lane_mem {
	void *addr; /* borrowed, must outlive the worker side */
	uint64_t bytes;
	bool is_device; /* addr is on the worker's device (opts.device) */
};

struct wb_lane_worker_opts {
	struct wb_lane_remote_fds
		fds; /* given: closed by wb_lane_worker_close(); kept on failure */
	const struct wb_lane_mem *mem; /* copied */
	uint32_t n_mem;
	void *arena; /* slots as mapped here; borrowed */
	uint64_t arena_bytes;
	const uint8_t *device; /* UUID, copied; NULL = no object is on a device */
};

/** wb_lane_worker_open - open the worker's side.  0; -EPERM (not sealed), -EPROTO (not a lane, or
 * another version), -EINVAL, -ENOMEM, and with a device as wb_lane_gpu_create().  Release with
 * wb_lane_worker_close(). */
int wb_lane_worker_open(
	const struct wb_lane_worker_opts *o, struct wb_lane_worker **out, struct wb_err *err);
/** wb_lane_worker_run - run jobs until stopped.  Blocks, so it needs a thread of its own.  Never
 * touches a byte outside the memory objects and the arena, whatever the shared page says.  Returns
 * 0 when stopped, -EPROTO when the rings are invalid, or -errno of its eventfd. */
int wb_lane_worker_run(struct wb_lane_worker *w);
/**
 * wb_lane_worker_pass - hand the parameters from the application to the lane, or back
 * The order of their accesses comes from messages through the agent, a process that the memory
 * model does not know.  Both sides of each hand-over call this function, which is a release and an
 * acquire.  Any thread.
 */
void wb_lane_worker_pass(struct wb_lane_worker *w);
/** wb_lane_worker_stop - make run return after the jobs that it has begun.  Any thread. */
void wb_lane_worker_stop(struct wb_lane_worker *w);
/** wb_lane_worker_forked - call it in a forked child before close: the device and what was made
 * there belong to the parent, and close leaves them alone. */
void wb_lane_worker_forked(struct wb_lane_worker *w);
/** wb_lane_worker_close - free it; only after run has returned.  NULL is allowed. */
void wb_lane_worker_close(struct wb_lane_worker *w);

#endif
