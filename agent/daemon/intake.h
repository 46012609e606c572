/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_INTAKE_H
#define WB_DAEMON_INTAKE_H
/*
 * A plan as it comes from the operator, piece by piece: its head and this agent's part, or, from an
 * operator of protocol version 1, all of it.  It is kept as far as this agent's memory allows: what
 * is too large is only counted, and refused by name once PLAN has come.  Pure.  Layer: daemon (L4).
 */
#include "proto/messages.h"

struct wb_err;
struct wb_plan;

#define WB__PLAN_BYTES_MAX (1u << 30) /* of what comes */

/* As much of one content as has come. */
struct wb__incoming {
	struct wb_digest digest;
	uint8_t *data; /* owned; NULL: too large, or nothing has come */
	uint64_t total, got;
	size_t cap;
};

struct wb__intake {
	struct wb__incoming list, head, part;
};

/**
 * wb__intake_add - take in one piece
 * @memory_max:	bytes that a plan may take; its encoded form may take as much again while it is read
 * Returns 0; -EBADMSG (it is not part of a plan, or does not follow the piece before), -ENOMEM:
 * after either close the connection.
 */
int wb__intake_add(struct wb__intake *x, const struct wb_msg_content *m, uint64_t memory_max,
	struct wb_err *err);
/** wb__intake_plan - the plan that PLAN names, from what has come.  0; -EBADMSG: it has not come
 * whole, or is damaged; WB_EPLAN: it is another plan; -EFBIG with figures; -ENOMEM.  @out is the
 * caller's. */
int wb__intake_plan(const struct wb__intake *x, const struct wb_msg_plan *m, uint64_t memory_max,
	struct wb_plan **out, struct wb_err *err);
/** wb__intake_clear - forget what has come. */
void wb__intake_clear(struct wb__intake *x);

#endif
