/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_WIRE_H
#define WB_TRANSFER_WIRE_H
/*
 * A wire: control messages to and from one agent of an epoch, each once and in order, or the agent
 * is called down.  Owned by the epoch, one an agent.  (Bytes go by a link.)
 *
 * Invariant: there is a time to send again while something is kept, and only then.
 */
#include "proto/session.h"
#include "transfer/internal.h"

struct wire {
	uint64_t tx_seq, rx_seq; /* last sent, last taken in */
	struct wb_keep kept; /* not confirmed yet; marked with their numbers */
	/* It was waited so long for a confirmation since the peer was heard, by turns: a process
	 * that was stopped meanwhile did not wait. */
	uint64_t tried_ns;
	uint64_t resend_ns, backoff_ns, confirm_ns; /* 0 = nothing due */
	bool is_down; /* nothing was heard of it since it was called down */
	uint64_t gap_backoff_ns;
	uint64_t gap_ns; /* some were given up: the peer is told until it says that it knows */
	uint64_t sent_transfer; /* highest that a message to it was about */
	uint64_t skipped; /* highest that those given up were about */
};

/** wb__transfer_wire_send - number a PEER, keep it until it is confirmed, send it. */
void wb__transfer_wire_send(struct epoch *e, uint32_t agent, union wb_msg *m);
/** wb__transfer_wire_take - a message came: is it the next one?  Else it is not to be looked at.
 *  @has_gap: the peer has given some up, and us. */
bool wb__transfer_wire_take(
	struct epoch *e, uint32_t from, const struct wb_msg_peer *m, bool *has_gap);
/** wb__transfer_wire_down - until it is heard again.  Transfers above @highest are not known here,
 * so nothing about them was under way. */
void wb__transfer_wire_down(struct wire *w, uint64_t highest, uint64_t now);
/** wb__transfer_wire_flush - confirm now what is not confirmed. */
void wb__transfer_wire_flush(struct epoch *e);
/** wb__transfer_wire_keeps - the peer has not confirmed message @seq or one before it. */
bool wb__transfer_wire_keeps(const struct wire *w, uint64_t seq);
/** wb__transfer_wire_is_busy - does an agent that is not down owe a confirmation? */
bool wb__transfer_wire_is_busy(const struct epoch *e);
/** wb__transfer_wire_tick - send again, confirm; when to call again, 0 = never. */
uint64_t wb__transfer_wire_tick(struct object *o, uint64_t now);

#endif
