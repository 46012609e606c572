/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_PLANS_H
#define WB_DAEMON_PLANS_H
/*
 * Plans on their way from the operator into the core: what comes is put together (intake.h),
 * checked, given a roster and installed; activation and feeds follow.
 *
 * Nothing of what the operator sends is trusted to fit: numbers and digests are checked.
 * Loop thread.  Layer: daemon (L4).
 */
#include "proto/messages.h"

#include <stdbool.h>

struct wb__agent;
struct wb_object_id;
struct wb__plans;

struct wb__plans_cb {
	void *cookie;
	/* The plan can run here (@err NULL), or cannot. */
	void (*on_installed)(void *cookie, const struct wb_p_epoch *epoch, struct wb_digest digest,
		const struct wb_err *err);
};

/** wb__plans_create - for the object with that index; @cb is copied.  0 or -ENOMEM. */
int wb__plans_create(struct wb__agent *a, uint32_t object_index, const struct wb__plans_cb *cb,
	struct wb__plans **out);
/** wb__plans_destroy - free it; its memory is nobody's need any more.  NULL is allowed. */
void wb__plans_destroy(struct wb__plans *p);
/** wb__plans_object - what WELCOME said; later plans go by it.  @patience_ns: an agent that says
 * nothing to another one for so long is gone. */
void wb__plans_object(struct wb__plans *p, const struct wb_object_id *id,
	const struct wb_p_object *o, uint64_t patience_ns);
/** wb__plans_reset - the connection is lost: forget what has come and is not yet installed. */
void wb__plans_reset(struct wb__plans *p);

/** wb__plans_content - a piece of a plan.  0; -EBADMSG, -ENOMEM: close the connection. */
int wb__plans_content(struct wb__plans *p, const struct wb_msg_content *m, struct wb_err *err);
/** wb__plans_plan - PLAN; borrowed.  The answer comes by on_installed, not before this returns
 * where a transfer must end first. */
void wb__plans_plan(struct wb__plans *p, const struct wb_msg_plan *m);
/** wb__plans_activate - ACTIVATE came: the plan goes into force, and its feeds begin.  One that is
 *  not here is logged and is no failure. */
void wb__plans_activate(struct wb__plans *p, const struct wb_msg_activate *m);
/** wb__plans_is_suspended - the operator says: no new transfers. */
bool wb__plans_is_suspended(const struct wb__plans *p);

#endif
