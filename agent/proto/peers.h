/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PROTO_PEERS_H
#define WB_PROTO_PEERS_H
/*
 * What agents say to each other in a transfer: one row a kind of PEER message.
 *
 * A row says who may say it to whom and what has to be in it; the numbers are those on the wire.
 * The roles are DESIGN.md's: of one engine's messages its lead and its parties (the agents with its
 * workers), of a transfer its coordinator and the trainers' agents.  Pure; any thread.
 * Layer: proto.
 *
 *	P(number, NAME, from, to, needs, text)
 */
#include "proto/messages.h"

struct wb_err;

enum wbp_role {
	WBP_ROLE_COORDINATOR =
		1, /* of the transfer: the plan's, or of a feed the lead of its source */
	WBP_ROLE_LEAD = 2, /* of the engine */
	WBP_ROLE_PARTY = 4, /* has workers of the engine */
	WBP_ROLE_TRAINERS = 8, /* has trainer workers */
	/* Judges and who asks them are those of the plan under which a transfer began: they may
	 * have other roles, or none, in this one. */
	WBP_ROLE_ANY = 16,
	WBP_ROLE_COORDINATOR_OR_LEAD = WBP_ROLE_COORDINATOR | WBP_ROLE_LEAD,
	WBP_ROLE_LEAD_OR_PARTY = WBP_ROLE_LEAD | WBP_ROLE_PARTY,
};

enum wbp_needs {
	WBP_NEEDS_NOTHING = 0,
	WBP_NEEDS_ENGINE = 1, /* `engine` is one of the plan's */
	WBP_NEEDS_TRANSFER = 2, /* `transfer` is not 0 */
	WBP_NEEDS_BOTH = WBP_NEEDS_ENGINE | WBP_NEEDS_TRANSFER,
};

/* clang-format off */
#define WB_PEERS(P) \
	P(1, PREPARE, COORDINATOR, LEAD, BOTH, "bring the engine to this version") \
	P(2, REFUSED, LEAD, COORDINATOR, BOTH, "it does not, and why") \
	P(3, STOP, LEAD, PARTY, BOTH, "promise a poll at which your workers can stop") \
	P(4, PROMISE, PARTY, LEAD, BOTH, "the earliest such poll") \
	P(5, TARGET, LEAD, PARTY, BOTH, "the poll at which all of the engine stop") \
	P(6, STOPPED, PARTY, LEAD, BOTH, "they stand there, before_update_hook has run") \
	P(7, OPEN, LEAD, PARTY, BOTH, "all stand: parameters may be written") \
	P(8, PROGRESS, PARTY, LEAD, BOTH, "how far it came: staged, received, complete, failed") \
	P(9, END, LEAD, PARTY, BOTH, "how it ended for the engine") \
	P(10, ENDED, PARTY, LEAD, BOTH, "workers have heard that; their sums and times") \
	P(11, ENGINE, LEAD, COORDINATOR, BOTH, "how far the engine came, and how it ended") \
	P(12, LOST, COORDINATOR_OR_LEAD, LEAD_OR_PARTY, BOTH, "an engine is lost: do without what it would have relayed") \
	P(13, CANCEL, COORDINATOR, LEAD, BOTH, "give it up where nothing was decided") \
	P(14, TRIGGER, TRAINERS, COORDINATOR, NOTHING, "all trainer workers here have called send_weights") \
	P(15, SERVE, COORDINATOR, TRAINERS, TRANSFER, "a transfer begins: let your parameters be read") \
	P(16, RELEASE, COORDINATOR, TRAINERS, TRANSFER, "every engine has its receive stage: let the workers go") \
	P(17, FINAL, COORDINATOR, TRAINERS, NOTHING, "how it ended; transfer 0: what was asked for does not begin") \
	P(18, TRAINER_LOST, TRAINERS, COORDINATOR, NOTHING, "a trainer worker here left in it") \
	P(19, CONFIRM, ANY, ANY, NOTHING, "nothing but its ack") \
	P(20, STAGE, LEAD, PARTY, BOTH, "receive into staging areas, beside the running workers") \
	P(21, INSTALL, LEAD, PARTY, BOTH, "copy from there into the parameters") \
	P(22, DECIDED, COORDINATOR, LEAD, BOTH, "COMMIT was chosen") \
	P(23, RESUME, PARTY, LEAD, ENGINE, "under a new plan: what the areas here hold") \
	P(24, BALLOT, ANY, ANY, TRANSFER, "promise not to take part in older ballots, and tell what was accepted") \
	P(25, BALLOTED, ANY, ANY, TRANSFER, "the answer") \
	P(26, ACCEPT, ANY, ANY, TRANSFER, "accept this value") \
	P(27, ACCEPTED, ANY, ANY, TRANSFER, "the answer") \
	P(28, NEXT, TRAINERS, COORDINATOR, TRANSFER, "the next version is ready: drop this where it can be") \
	P(29, ACTIVE, COORDINATOR, TRAINERS, NOTHING, "transfers begin under this epoch") \
	P(30, DOUBT, PARTY, LEAD, ENGINE, "workers here have not heard the end of an update") \
	P(31, RECALL, LEAD, PARTY, BOTH, "what became of that update there?") \
	P(32, RECALLED, PARTY, LEAD, BOTH, "the answer") \
	P(33, OUTCOME, LEAD, PARTY, BOTH, "the END that those workers missed") \
	P(34, LACK, TRAINERS, ANY, TRANSFER, "which chunks do your workers lack of trainer workers here? (only to agents that know it)") \
	P(35, LACKED, ANY, TRAINERS, TRANSFER, "the answer") \
	P(36, ALL_STOPPED, LEAD, PARTY, BOTH, "all of the engine have: no worker goes on before it knows how that ended (only to parties whose STOPPED asks for it)") \
	P(37, HEARD, PARTY, LEAD, BOTH, "the answer; OPEN and INSTALL come after it")
/* clang-format on */

#define WB__PEER_ENUM(number, name, from, to, needs, text) WBP_PEER_##name = (number),
/* PEER.kind */
enum wbp_peer { WB_PEERS(WB__PEER_ENUM) };

struct wb_peer_rule {
	const char *name, *text;
	uint32_t from, to; /* enum wbp_role, several at once */
	uint32_t needs; /* enum wbp_needs */
};

/** wb_peer_rule - the row of a kind; NULL when there is none.  Static. */
const struct wb_peer_rule *wb_peer_rule(uint32_t kind);

/**
 * wb_peer_check - is a message one that its row allows?
 * @m:		decoded
 * @n_engine:	engines of its plan
 * @from, @to:	roles that sender and receiver have in its plan, for its engine where it has one
 * Returns 0; -EBADMSG with a sentence.
 */
int wb_peer_check(const struct wb_msg_peer *m, uint32_t n_engine, uint32_t from, uint32_t to,
	struct wb_err *err);

#endif
