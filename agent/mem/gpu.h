/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MEM_GPU_H
#define WB_MEM_GPU_H
/*
 * Devices of this process, found by UUID, and the interface to their driver.
 *
 * Holding a device retains its primary context: the frameworks of the process use this context,
 * too, so their memory and streams and ours are of one context.  The last reference releases the
 * context, and with it the device memory that it costs.  The context is made current only between
 * wb_gpu_enter() and wb_gpu_leave(), so that the calling thread, which may be an application's, is
 * left as it was.
 *
 * Threads: any; get and put block (a context takes up to a second to make).  Layer: mem (L1).
 */
#include "mem/cuda.h"

struct wb_err;

/* Fields do not change while the device is held. */
struct wb_gpu {
	const struct wbcu *cu; /* the driver's functions */
	struct wbcu_uuid uuid;
	char name[64];
	/* Its number in this process: only for the driver, never sent to another process */
	int number;
	int n_sm;
	void *context;
	unsigned refs; /* used only by gpu.c */
};

/**
 * wb_gpu_get - hold a device
 * @uuid:	16 bytes; NULL = the first device of this process
 * @out:	a reference; wb_gpu_put()
 * 0; -ENOTSUP: no driver here (the sentence says what is missing); -ENODEV: this process does not
 * see the device; -ENOMEM: no room for a context; -EIO.
 */
int wb_gpu_get(const uint8_t *uuid, struct wb_gpu **out, struct wb_err *err);
/** wb_gpu_ref - take one more reference; returns @g. */
struct wb_gpu *wb_gpu_ref(struct wb_gpu *g);
/** wb_gpu_put - release a reference.  NULL is allowed. */
void wb_gpu_put(struct wb_gpu *g);

/** wb_gpu_enter - make the device's context current in this thread.  0, or as wb_gpu_rc(): then
 * there is nothing to leave.  It does not detect a lost device: entering succeeds, and only calls
 * that use the device or its memory fail. */
int wb_gpu_enter(struct wb_gpu *g, struct wb_err *err);
/** wb_gpu_leave - make the context current that was current before. */
void wb_gpu_leave(struct wb_gpu *g);

/**
 * wb_gpu_rc - turn a result of the driver into a code of this project
 * @what:	the call, for the sentence: "cuMemCreate"
 * 0; -EAGAIN (not ready); -ENOMEM; -EINVAL; -ENOTSUP; -ENODEV; -EPERM; -EIO: everything else, above
 * all a device that is lost to this process, which no call brings back.  No sentence with 0 and
 * -EAGAIN.
 */
int wb_gpu_rc(const struct wb_gpu *g, int result, const char *what, struct wb_err *err);

/** wb_gpu_text - "GPU-" and the UUID, as tools print it, into @out (41 bytes at least). */
void wb_gpu_text(const uint8_t *uuid, char *out, size_t out_bytes);
/**
 * wb_gpu_settle - wait until the application's work on a device is done, as far as it can be seen
 * This covers work queued earlier in the default stream, and in streams that block on it; the
 * application must wait for other streams itself.  It uses an event, so it does not wait for work
 * that comes later.
 * 0, or as wb_gpu_rc().  Any thread.  Blocks.
 */
int wb_gpu_settle(struct wb_gpu *g, struct wb_err *err);
/** wb_gpu_room - free and total bytes of the device's memory.  0, or as wb_gpu_rc(). */
int wb_gpu_room(struct wb_gpu *g, uint64_t *free_bytes, uint64_t *total_bytes, struct wb_err *err);

#endif
