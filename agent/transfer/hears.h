/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_HEARS_H
#define WB_TRANSFER_HEARS_H
/*
 * What each message of another agent does here: one handler a row of WB_PEERS (proto/peers.h),
 * called wb__transfer_on_NAME and defined in the file of the role that hears it.  A row without a
 * handler does not link.
 *
 * A handler is called only for messages that its row allows (wb__transfer_may_say()): the fields
 * that the row requires are there, and `engine` is one of the plan's.  Whether the message fits
 * what is under way, the handler has to find out.
 */
#include "proto/peers.h"

struct epoch;

/* @from: the sender, by its number in the epoch's roster.  @m is borrowed for the call. */
#define WB__HEARS(number, NAME, sender, receiver, fields, text)                                    \
	void wb__transfer_on_##NAME(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
WB_PEERS(WB__HEARS, WB_PEER_SKIP, WB_PEER_SKIP, WB_PEER_SKIP)

/** wb__transfer_hear - handle a message of agent @from (which may be this one) about the epoch;
 * called in order, once for each. */
void wb__transfer_hear(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);

#endif
