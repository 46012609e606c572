/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_WIRE_H
#define WB_TRANSFER_WIRE_H
/*
 * A wire carries control messages to and from one agent of an epoch, each once and in order; when
 * it cannot, the agent is declared down.  Owned by the epoch, one for each agent.  (Weights go by a
 * link.)
 *
 * Invariant: `resend_ns` is set exactly while a message is kept.
 */
#include "proto/session.h"
#include "transfer/internal.h"

struct wire {
	uint64_t tx_seq, rx_seq; /* numbers of the last message sent, and of the last taken in */
	struct wb_keep kept; /* messages not confirmed yet, marked with their numbers */
	/* How long a confirmation has been awaited since the peer was last heard.  Each resend adds
	 * its back-off, so time in which this process was stopped does not count. */
	uint64_t tried_ns;
	uint64_t resend_ns, backoff_ns, confirm_ns; /* 0 = nothing due */
	bool is_down; /* declared down, and not heard since */
	uint64_t gap_backoff_ns;
	/* Messages were given up: when to tell the peer again, until it confirms that it knows; 0 =
	 * none. */
	uint64_t gap_ns;
	uint64_t sent_transfer; /* highest transfer that a message to it was about */
	uint64_t skipped; /* highest transfer that messages given up were about */
};

/** wb__transfer_wire_send - number the PEER message @m, keep it until it is confirmed, and send
 * it. */
void wb__transfer_wire_send(struct epoch *e, uint32_t agent, union wb_msg *m);
/** wb__transfer_wire_take - a message came.  True: it is the next one; false: do not handle it.
 * @has_gap: the peer has given up messages to this agent, and declared it down. */
bool wb__transfer_wire_take(
	struct epoch *e, uint32_t from, const struct wb_msg_peer *m, bool *has_gap);
/** wb__transfer_wire_down - declare the agent down until it is heard again, and give up what is
 * kept for it.  Transfers above @highest are not known here, so nothing about them was under
 * way. */
void wb__transfer_wire_down(struct wire *w, uint64_t highest, uint64_t now);
/** wb__transfer_wire_flush - send the confirmations that are still to be sent, now. */
void wb__transfer_wire_flush(struct epoch *e);
/** wb__transfer_wire_keeps - the peer has not confirmed message @seq or one before it. */
bool wb__transfer_wire_keeps(const struct wire *w, uint64_t seq);
/** wb__transfer_wire_is_busy - does an agent that is not down owe a confirmation? */
bool wb__transfer_wire_is_busy(const struct epoch *e);
/** wb__transfer_wire_tick - send again, and confirm, what is due; when to call again, 0 = never. */
uint64_t wb__transfer_wire_tick(struct object *o, uint64_t now);

#endif
