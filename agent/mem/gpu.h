/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MEM_GPU_H
#define WB_MEM_GPU_H
/*
 * Devices of this process, by UUID, and the edge to their driver.
 *
 * A device that is held has its primary context retained: that is what the frameworks of the
 * process use as well, so memory and streams of both are of one context.  The last reference
 * gives it back, with what it cost in device memory.  The context is made current only between
 * wb_gpu_enter() and wb_gpu_leave(), so that the calling thread, which may be an application's,
 * is left as it was.
 *
 * Threads: any; get and put block (a context takes up to a second to make).  Layer: mem (L1).
 */
#include "mem/cuda.h"

struct wb_err;

/* Fields do not change while it is held. */
struct wb_gpu {
	const struct wbcu *cu; /* the driver's functions */
	struct wbcu_uuid uuid;
	char name[64];
	int number; /* in this process: for the driver alone, never told to another */
	int n_sm;
	void *context;
	unsigned refs; /* gpu.c's */
};

/**
 * wb_gpu_get - hold a device
 * @uuid:	16 bytes; NULL = the first device of this process
 * @out:	a reference; wb_gpu_put()
 * 0; -ENOTSUP: no driver here (the sentence says what is missing); -ENODEV: this process does not
 * see that device; -ENOMEM: no room for a context; -EIO.
 */
int wb_gpu_get(const uint8_t *uuid, struct wb_gpu **out, struct wb_err *err);
/** wb_gpu_ref - one reference more; returns @g. */
struct wb_gpu *wb_gpu_ref(struct wb_gpu *g);
/** wb_gpu_put - let go.  NULL is allowed. */
void wb_gpu_put(struct wb_gpu *g);

/** wb_gpu_enter - the device's context becomes current in this thread.  0, or as wb_gpu_rc(): then
 *  there is nothing to leave.  Says nothing of a lost device, which lets itself be entered: what
 *  works on it or its memory fails. */
int wb_gpu_enter(struct wb_gpu *g, struct wb_err *err);
/** wb_gpu_leave - what was current before is again. */
void wb_gpu_leave(struct wb_gpu *g);

/**
 * wb_gpu_rc - a result of the driver as a code of this project
 * @what:	the call, for the sentence: "cuMemCreate"
 * 0; -EAGAIN (not ready); -ENOMEM; -EINVAL; -ENOTSUP; -ENODEV; -EPERM; -EIO: all else, above all a
 * device that is lost to this process, which no call brings back.  No sentence with 0 and -EAGAIN.
 */
int wb_gpu_rc(const struct wb_gpu *g, int result, const char *what, struct wb_err *err);

/** wb_gpu_text - "GPU-" and the UUID, as tools print it, into @out (41 bytes at least). */
void wb_gpu_text(const uint8_t *uuid, char *out, size_t out_bytes);
/**
 * wb_gpu_settle - wait until the application's work on a device is done, as far as it can be seen
 * That is what went to the default stream before, and to streams that block on it; for others the
 * application waits itself.  By an event: work that comes later is not waited for.
 * 0, or as wb_gpu_rc().  Any thread.  Blocks.
 */
int wb_gpu_settle(struct wb_gpu *g, struct wb_err *err);
/** wb_gpu_room - free and total bytes of the device's memory.  0, or as wb_gpu_rc(). */
int wb_gpu_room(struct wb_gpu *g, uint64_t *free_bytes, uint64_t *total_bytes, struct wb_err *err);

#endif
