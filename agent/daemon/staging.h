/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_STAGING_H
#define WB_DAEMON_STAGING_H
/*
 * Memory for staging, set aside when a plan comes: snapshots of trainer workers behind the slots,
 * staging areas of rollout workers in memfds that the workers keep.
 * Loop thread.  Layer: daemon (L4).
 */
#include <stdint.h>

struct wb__agent;
struct wb_err;
struct wb_p_object;
struct wb_roster;

/* What staging for a plan goes by; all borrowed. */
struct wb__staging_in {
	const struct wb_roster *roster;
	const struct wb_p_object *object;
	uint32_t object_index; /* among those served here */
	uint64_t buffer_bytes; /* slots that the plan wants, which count against the limit, too */
};

/** wb__staging_check - may this plan have its slots and its staging memory?  Takes nothing.  0;
 * -ENOMEM with the figures when it is more than --staging-limit or the control group allows. */
int wb__staging_check(
	const struct wb__agent *a, const struct wb__staging_in *in, struct wb_err *err);
/**
 * wb__staging_reserve - take the memory that the object's mode needs for this plan
 * Call it after wb__staging_check() and wb__env_arena_use().  Does nothing for a plan that needs no
 * more than there is.  Returns 0; -ENOMEM; -EBUSY while the memory that is there is in use, and
 * -EINPROGRESS while pages are taken: call it again later.
 */
int wb__staging_reserve(struct wb__agent *a, const struct wb__staging_in *in, struct wb_err *err);

/** wb__staging_left - bytes that the control group's limit leaves beside all staging that there is
 * and all slots, of which object @index is counted with at least @buffer_bytes; UINT64_MAX: there
 * is no limit. */
uint64_t wb__staging_left(const struct wb__agent *a, uint32_t index, uint64_t buffer_bytes);
/** wb__staging_due - bytes that slots and staging of the plans here have not taken yet and may take
 *  at any time: the first transfer fills the slots, a worker that wakes gets its area again. */
uint64_t wb__staging_due(const struct wb__agent *a);

#endif
