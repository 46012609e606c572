/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_ROSTER_H
#define WB_DAEMON_ROSTER_H
/*
 * Makes a roster from the operator's PLAN message and the plan itself.  Pure.  Layer: daemon (L4).
 */
#include "daemon/addr.h"
#include "planner/plan.h"
#include "proto/messages.h"
#include "transfer/roster.h"

/* What the roster is made from; all borrowed. */
struct wb__roster_in {
	const char *me; /* this agent's name */
	const struct wb_p_object *object;
	const struct wb_object_id *id; /* the object's */
	const struct wb_msg_plan *m;
	const struct wb__addrs *mine; /* this agent's addresses */
	uint64_t patience_ns; /* goes into the roster */
};

/**
 * wb__roster_create - check PLAN against the plan, and make a roster of both
 * @plan_take: taken, also on failure
 * @out:	the caller's reference; NULL on failure
 * Agent i of the message must be domain i of the plan, and name each of its workers once.  Returns
 * 0; WB_EPLAN or -EBADMSG with what does not fit; -ENOENT: this agent has no part in the plan;
 * -EAFNOSUPPORT: an agent that it has to speak with has no address of a family that it has itself
 * (both are named); -EPROTONOSUPPORT: it has no transport in common with such an agent (both are
 * named); -ENOMEM.
 */
int wb__roster_create(const struct wb__roster_in *in, struct wb_plan *plan_take,
	struct wb_roster **out, struct wb_err *err);

#endif
