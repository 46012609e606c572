/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_EXTRACT_DEVICE_H
#define WB_EXTRACT_DEVICE_H
/*
 * Parameters on GPUs: what probe.h does with a parameter's bytes, done where they lie.
 *
 * Each step below is the device's half of the step of the same name in internal.h: it takes all
 * parameters with a dev, those of the host's half are the others.  A step is a few launches over
 * tables of all parameters (kernels/gpu.h).  What comes to the host is what was found: counts, and
 * the places where something differs; never a parameter.  Snapshots and classes stay on the device;
 * where that has no room for a snapshot it is pinned memory of the host that kernels write.
 *
 * Order with the application: wb__dev_settle() before a pass and after it, which waits for all of
 * the device's streams, as nothing here has to be fast; a step returns when its own work is done.
 *
 * Errors: a negative code, and the first sentence in p->dev_err.  After -EIO the device is lost to
 * this process, and with it what its parameters held.
 * Threads: wb__dev_indicator() and wb__dev_fill() any, the rest the probe's.  Blocks.
 * Layer: extract.
 */
#include "extract/internal.h"

/** wb__dev_find - which parameters lie on devices, and hold those.  0, -EINVAL with the parameter
 *  named, or as wb_gpu_get(). */
int wb__dev_find(struct wb_probe *p, struct wb_err *err);
/** wb__dev_finish - give all of the devices back.  Parameters are as they are. */
void wb__dev_finish(struct wb_probe *p);
/** wb__dev_where - as wb_mem_where(); 0 where nobody said that there may be devices. */
int wb__dev_where(const struct wb_probe *p, const void *addr);
/** wb__dev_out_bytes - copied from the devices to the host so far; while no step is under way. */
uint64_t wb__dev_out_bytes(const struct wb_probe *p);
/** wb__dev_settle - wait for all work on the devices, in any stream of their primary contexts. */
int wb__dev_settle(struct wb_probe *p);

/** wb__dev_snapshot - as wb__snapshot(). */
int wb__dev_snapshot(struct wb_probe *p);
/** wb__dev_count - n_equal: elements that hold the constant of pass @kind. */
int wb__dev_count(struct wb_probe *p, enum wb_pass_kind kind);
/** wb__dev_first - as wb__classify_first(). */
int wb__dev_first(struct wb_probe *p);
/** wb__dev_second - as wb__classify_second(). */
int wb__dev_second(struct wb_probe *p);
/** wb__dev_left - hash what is LEFT, for the check of a map from the cache. */
int wb__dev_left(struct wb_probe *p);
/** wb__dev_prefill - the sentinel, where wb__is_prefilled(). */
int wb__dev_prefill(struct wb_probe *p);
/** wb__dev_digits - as wb__digits_read(). */
int wb__dev_digits(struct wb_probe *p);
/** wb__dev_indicator - as wb__indicator(), of a parameter with classes. */
int wb__dev_indicator(struct wb_probe *p, const struct wb__param *a, struct wb__recs *out);
/** wb__dev_verify - as wb__verify(). */
int wb__dev_verify(struct wb_probe *p);
/** wb__dev_restore - as wb__restore(), but for moved_to. */
int wb__dev_restore(struct wb_probe *p);
/** wb__dev_put_elsewhere - the snapshot of @a to moved_to, where one of both is a device's.  0, or
 *  a negative code. */
int wb__dev_put_elsewhere(struct wb_probe *p, struct wb__param *a);
/** wb__dev_equals_snapshot - false also when the device failed. */
bool wb__dev_equals_snapshot(struct wb_probe *p, const struct wb__param *a);

struct wb__fill_at {
	void *out; /* of a device */
	uint64_t rows, cols; /* what is written */
};
/** wb__dev_fill - write a tensor's content for the current pass on a device on which parameters
 *  lie, and wait for it.  0; -ENOTSUP: another device; -ENOMEM; -EIO: whatever else it said. */
int wb__dev_fill(const struct wb_probe *p, const struct wb_tensor *t, const struct wb__fill_at *at);

#endif
