/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_ROLL_H
#define WB_DAEMON_ROLL_H
/*
 * From the operator's PLAN message and the plan itself: the roster for the core, and what the
 * daemon keeps of it.  Pure.  Layer: daemon (L4).
 */
#include "daemon/addr.h"
#include "planner/plan.h"
#include "proto/messages.h"
#include "transfer/roster.h"

#define WB__ROLL_NOT_MINE UINT32_MAX

/* By plan numbers.  All arrays are owned. */
struct wb__roll {
	uint32_t me; /* this agent */
	uint32_t n_worker, n_engine;
	uint32_t *local; /* by worker: its number at this agent, or WB__ROLL_NOT_MINE */
	uint32_t *lead; /* by engine: agent */
	bool *is_mine; /* by engine: has it a worker here? */
	uint32_t *attempt; /* by engine: last feed begun or seen; 0 = none */
	char **engine; /* names */
};

/* What is put together; all borrowed. */
struct wb__roll_in {
	const char *me; /* this agent's name */
	const struct wb_p_object *object;
	const char *uid; /* the object's, 16 hex digits */
	const struct wb_msg_plan *m;
	const struct wb_plan *plan;
	const struct wb__addrs *mine; /* this agent's addresses */
};

/**
 * wb__roll_create - check PLAN against the plan and fill both
 * Agent i of the message must be domain i of the plan, and name each of its workers once.  Returns
 * 0; WB_EPLAN or -EBADMSG with what does not fit; -ENOENT: no part in it for this agent;
 * -EAFNOSUPPORT: one that it has to speak with has no address of a family it has (both named);
 * -EPROTONOSUPPORT: another one has another transport (both named);
 * -ENOMEM.
 * On failure both are empty.
 */
int wb__roll_create(const struct wb__roll_in *in, struct wb_roster *roster, struct wb__roll *roll,
	struct wb_err *err);
/** wb__roll_finish - free what it owns; the struct is zeroed. */
void wb__roll_finish(struct wb__roll *r);
/** wb__roll_feed_is_new - @engine exists, and this attempt to feed it is not the one known. */
bool wb__roll_feed_is_new(const struct wb__roll *r, uint32_t engine, uint32_t attempt);

#endif
