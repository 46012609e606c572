/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer/hears.h"

#include "transfer/epoch.h"

/* CONFIRM says nothing but its ack, which the wire has taken in already. */
void wb__transfer_on_CONFIRM(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	(void)e;
	(void)from;
	(void)m;
}

/* Any message makes the epoch active; this one says nothing else. */
void wb__transfer_on_ACTIVE(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	(void)e;
	(void)from;
	(void)m;
}

/* For the lead, who passes it on, and for parties, who hear it from the lead. */
void wb__transfer_on_LOST(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	wb__transfer_lead_engine_lost(e, from, m);
	wb__transfer_party_engine_lost(e, m);
}

#define ROW(number, NAME, sender, receiver, fields, text) [number] = wb__transfer_on_##NAME,
static void (*const heard_by[])(struct epoch *e, uint32_t from, const struct wb_msg_peer *m) = {
	WB_PEERS(ROW, WB_PEER_SKIP, WB_PEER_SKIP, WB_PEER_SKIP)};

/* Does the message begin a run that is no feed?  Parties, trainers or leads first hear of a run by
 * such a message. */
static bool begins(const struct wb_msg_peer *m)
{
	return !m->feed && (m->kind == WBP_PEER_PREPARE || m->kind == WBP_PEER_STAGE ||
				   m->kind == WBP_PEER_STOP || m->kind == WBP_PEER_SERVE);
}

void wb__transfer_hear(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	if (!wb__transfer_may_say(e, from, m))
		return;
	/* Any message of a run says that the epoch is in use: PREPARE implies ACTIVATE. */
	wb__transfer_activate(e);
	e->has_begun |= begins(m);
	heard_by[m->kind](e, from, m);
}
