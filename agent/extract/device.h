/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_EXTRACT_DEVICE_H
#define WB_EXTRACT_DEVICE_H
/*
 * Parameters on GPUs: what probe.h does with a parameter's bytes is done there, where they lie.
 *
 * Each step below is the device's half of the step of the same name in internal.h: it handles all
 * parameters with a dev, and the host's half handles the others.  A step is a few launches over
 * tables of all parameters (kernels/gpu.h).  Only what was found comes to the host: counts, and the
 * places where something differs; never a parameter.  Snapshots and classes stay on the device; if
 * it has no room for a snapshot, kernels write it to pinned memory of the host.
 *
 * Order with the application: wb__dev_settle() is called before a pass and after it, and waits for
 * all of the device's streams, since nothing here has to be fast; a step returns when its own work
 * is done.
 *
 * Errors: a negative code, and the first sentence in p->dev_err.  After -EIO the device is lost to
 * this process, and with it what its parameters held.
 * Threads: wb__dev_indicator() and wb__dev_fill() any, the others the probe's.  Blocks.
 * Layer: extract.
 */
#include "extract/internal.h"

/** wb__dev_find - find which parameters lie on devices, and hold these devices.  0, -EINVAL with
 * the parameter named, or as wb_gpu_get(). */
int wb__dev_find(struct wb_probe *p, struct wb_err *err);
/** wb__dev_finish - give all of the devices back.  Parameters stay as they are. */
void wb__dev_finish(struct wb_probe *p);
/** wb__dev_where - as wb_mem_where(); 0 if the probe's options do not allow devices. */
int wb__dev_where(const struct wb_probe *p, const void *addr);
/** wb__dev_out_bytes - bytes copied from the devices to the host so far.  Call it only while no
 * step is under way. */
uint64_t wb__dev_out_bytes(const struct wb_probe *p);
/** wb__dev_settle - wait for all work on the devices, in any stream of their primary contexts. */
int wb__dev_settle(struct wb_probe *p);

/** wb__dev_snapshot - as wb__snapshot(). */
int wb__dev_snapshot(struct wb_probe *p);
/** wb__dev_count - count in n_equal the elements that hold the constant of pass @kind. */
int wb__dev_count(struct wb_probe *p, enum wb_pass_kind kind);
/** wb__dev_first - as wb__classify_first(). */
int wb__dev_first(struct wb_probe *p);
/** wb__dev_second - as wb__classify_second(). */
int wb__dev_second(struct wb_probe *p);
/** wb__dev_left - hash the parameters that are LEFT, to check a map from the cache. */
int wb__dev_left(struct wb_probe *p);
/** wb__dev_prefill - write the sentinel into parameters for which wb__is_prefilled(). */
int wb__dev_prefill(struct wb_probe *p);
/** wb__dev_digits - as wb__digits_read(). */
int wb__dev_digits(struct wb_probe *p);
/** wb__dev_indicator - as wb__indicator(), for a parameter with classes. */
int wb__dev_indicator(struct wb_probe *p, const struct wb__param *a, struct wb__recs *out);
/** wb__dev_verify - as wb__verify(). */
int wb__dev_verify(struct wb_probe *p);
/** wb__dev_restore - as wb__restore(), except for moved_to. */
int wb__dev_restore(struct wb_probe *p);
/** wb__dev_put_elsewhere - copy the snapshot of @a to moved_to, when at least one of the two is on
 * a device.  0, or a negative code. */
int wb__dev_put_elsewhere(struct wb_probe *p, struct wb__param *a);
/** wb__dev_equals_snapshot - as wb__equals_snapshot(); also false when the device failed. */
bool wb__dev_equals_snapshot(struct wb_probe *p, const struct wb__param *a);

struct wb__fill_at {
	void *out; /* address on a device */
	uint64_t rows, cols; /* what is written */
};
/** wb__dev_fill - write a tensor's content for the current pass on a device on which parameters
 * lie, and wait for it.  0; -ENOTSUP: another device; -ENOMEM; -EIO: the device failed. */
int wb__dev_fill(const struct wb_probe *p, const struct wb_tensor *t, const struct wb__fill_at *at);

#endif
