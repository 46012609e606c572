/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_PLANS_H
#define WB_DAEMON_PLANS_H
/*
 * Plans on their way from the operator into the core: pieces are put together (intake.h); the plan
 * is checked, given a roster and installed; later it is activated, and feeds begin.
 *
 * Nothing that the operator sends is trusted to fit: numbers and digests are checked.
 * Loop thread.  Layer: daemon (L4).
 */
#include "proto/messages.h"

#include <stdbool.h>

struct wb__agent;
struct wb_object_id;
struct wb__plans;

struct wb__plans_cb {
	void *cookie;
	/* The plan can run here (@err NULL), or cannot (@err says why). */
	void (*on_installed)(void *cookie, const struct wb_p_epoch *epoch, struct wb_digest digest,
		const struct wb_err *err);
};

/** wb__plans_create - plans of object @object_index; @cb is copied.  0 or -ENOMEM. */
int wb__plans_create(struct wb__agent *a, uint32_t object_index, const struct wb__plans_cb *cb,
	struct wb__plans **out);
/** wb__plans_destroy - free it; what its plan needs does not count any more.  NULL is allowed. */
void wb__plans_destroy(struct wb__plans *p);
/** wb__plans_object - what WELCOME said of the object; later plans go by it.  @patience_ns: an
 * agent that says nothing to another one for this long is gone. */
void wb__plans_object(struct wb__plans *p, const struct wb_object_id *id,
	const struct wb_p_object *o, uint64_t patience_ns);
/** wb__plans_reset - the connection is lost: forget what has come and is not installed. */
void wb__plans_reset(struct wb__plans *p);

/** wb__plans_content - take in a piece of a plan.  0; -EBADMSG, -ENOMEM: close the connection. */
int wb__plans_content(struct wb__plans *p, const struct wb_msg_content *m, struct wb_err *err);
/** wb__plans_plan - PLAN came; @m is borrowed.  on_installed tells the result: before this returns,
 * or later if a transfer must end first or pages are taken. */
void wb__plans_plan(struct wb__plans *p, const struct wb_msg_plan *m);
/** wb__plans_activate - ACTIVATE came: activate the plan, and begin its feeds.  A plan that is not
 * here is logged, and is no failure. */
void wb__plans_activate(struct wb__plans *p, const struct wb_msg_activate *m);
/** wb__plans_is_suspended - has the operator said that no new transfers begin? */
bool wb__plans_is_suspended(const struct wb__plans *p);

#endif
