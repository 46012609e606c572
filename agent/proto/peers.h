/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PROTO_PEERS_H
#define WB_PROTO_PEERS_H
/*
 * The kinds of PEER message, which agents send each other in a transfer: one row for each.
 *
 * A row says who may send the message to whom and which fields it has; the numbers are those on the
 * wire.  DESIGN.md explains the roles: an engine has a lead and parties (the agents with its
 * workers), a transfer has a coordinator and the agents of the trainers.  Pure; any thread.
 * Layer: proto.
 *
 *	P(number, NAME, from, to, fields, text)
 *	fields: of struct wb_msg_peer, by the name that they have in this kind
 *		R(field)	required: not 0
 *		O(field)	may be 0
 *		L(field)	a list with its count, may be empty
 *
 * All other fields are 0, except those that every kind has: the epoch (uid, term, number), and the
 * numbers that order and confirm messages (seq, base, ack, skipped).  Encoder and decoder refuse a
 * message that breaks this.  Programs make a message by WB_PEER(), which knows only the fields of
 * the row.
 */
#include "proto/messages.h"

struct wb_err;

enum wbp_role {
	/* of the transfer: that of the plan; for a feed the lead of the engine that gives */
	WBP_ROLE_COORDINATOR = 1,
	WBP_ROLE_LEAD = 2, /* of the engine */
	WBP_ROLE_PARTY = 4, /* has workers of the engine */
	WBP_ROLE_TRAINERS = 8, /* has trainer workers */
	/* Judges, and the agents that ask them, are those of the plan under which a transfer began:
	 * they may have other roles, or none, in this plan. */
	WBP_ROLE_ANY = 16,
	WBP_ROLE_COORDINATOR_OR_LEAD = WBP_ROLE_COORDINATOR | WBP_ROLE_LEAD,
	WBP_ROLE_LEAD_OR_PARTY = WBP_ROLE_LEAD | WBP_ROLE_PARTY,
};

/* clang-format off */
/* Fields by which a coordinator says which run it means. */
#define WB__PEER_RUN(R, O) R(transfer) O(version) O(feeder) O(feed)
/* The same for a lead, in each of its orders. */
#define WB__PEER_ORDER(R, O) WB__PEER_RUN(R, O) O(engine) O(coordinator)
/* And for a party, in each of its replies. */
#define WB__PEER_REPLY(R, O) R(transfer) O(version) O(engine) O(is_torn)

#define WB_PEERS(P, R, O, L) \
	P(1, PREPARE, COORDINATOR, LEAD, WB__PEER_ORDER(R, O), "bring the engine to this version") \
	P(2, REFUSED, LEAD, COORDINATOR, R(transfer) O(engine) O(feed) R(code) O(sentence) O(highest), "it does not, and why") \
	P(3, STOP, LEAD, PARTY, WB__PEER_ORDER(R, O) O(is_decided), "promise a poll at which your workers can stop") \
	P(4, PROMISE, PARTY, LEAD, WB__PEER_REPLY(R, O) O(poll), "the earliest such poll") \
	P(5, TARGET, LEAD, PARTY, WB__PEER_ORDER(R, O) O(poll), "the poll at which all of the engine stop") \
	P(6, STOPPED, PARTY, LEAD, WB__PEER_REPLY(R, O) O(asks) O(code) O(sentence), "they stand there, before_update_hook has run") \
	P(7, OPEN, LEAD, PARTY, WB__PEER_ORDER(R, O), "all stand: parameters may be written") \
	P(8, PROGRESS, PARTY, LEAD, WB__PEER_REPLY(R, O) R(progress) O(losses) O(code) O(sentence) O(sum0) O(sum1), "how far it came: staged, received, complete, failed") \
	P(9, END, LEAD, PARTY, WB__PEER_ORDER(R, O) R(how) O(code) O(sentence) O(sum0) O(sum1), "how it ended for the engine") \
	P(10, ENDED, PARTY, LEAD, WB__PEER_REPLY(R, O) L(bytes) O(stall_ns) O(n_stall), "workers have heard that; their sums and times") \
	P(11, ENGINE, LEAD, COORDINATOR, WB__PEER_ORDER(R, O) R(how) O(losses) O(code) O(sentence) O(sum0) O(sum1) L(bytes) O(stall_ns) O(n_stall) O(is_superseded), "how far the engine came, and how it ended") \
	P(12, LOST, COORDINATOR_OR_LEAD, LEAD_OR_PARTY, R(transfer) O(version) O(engine) O(lost) O(coordinator) R(losses) O(feed), "an engine is lost: do without what it would have relayed") \
	P(13, CANCEL, COORDINATOR, LEAD, WB__PEER_RUN(R, O) O(engine) R(code) O(sentence) O(is_superseded), "give it up where nothing was decided") \
	P(14, TRIGGER, TRAINERS, COORDINATOR, O(version) O(refusals) O(call) O(code) O(sentence) O(highest), "all trainer workers here have called send_weights") \
	P(15, SERVE, COORDINATOR, TRAINERS, R(transfer) O(version) O(call), "a transfer begins: let your parameters be read") \
	P(16, RELEASE, COORDINATOR, TRAINERS, R(transfer) O(version) O(call), "every engine has its receive stage: let the workers go") \
	P(17, FINAL, COORDINATOR, TRAINERS, O(transfer) O(version) O(refusals) O(call) O(code) O(sentence) O(elapsed_ns) L(engines) L(states), "how it ended; transfer 0: what was asked for does not begin") \
	P(18, TRAINER_LOST, TRAINERS, COORDINATOR, O(transfer) R(code) O(sentence), "a trainer worker here left in it") \
	P(19, CONFIRM, ANY, ANY, , "nothing but its ack") \
	P(20, STAGE, LEAD, PARTY, WB__PEER_ORDER(R, O), "receive into staging areas, beside the running workers") \
	P(21, INSTALL, LEAD, PARTY, WB__PEER_ORDER(R, O), "copy from there into the parameters") \
	P(22, DECIDED, COORDINATOR, LEAD, WB__PEER_RUN(R, O) O(engine), "COMMIT was chosen") \
	P(23, RESUME, PARTY, LEAD, O(transfer) O(version) O(engine) O(says) O(is_torn), "under a new plan: what the areas here hold") \
	P(24, BALLOT, ANY, ANY, R(transfer) R(ballot), "promise not to take part in older ballots, and tell what was accepted") \
	P(25, BALLOTED, ANY, ANY, R(transfer) O(code) O(ballot) O(accepted) O(decision), "the answer") \
	P(26, ACCEPT, ANY, ANY, R(transfer) R(ballot) R(decision), "accept this value") \
	P(27, ACCEPTED, ANY, ANY, R(transfer) O(code) O(ballot) O(accepted) O(decision), "the answer") \
	P(28, NEXT, TRAINERS, COORDINATOR, R(transfer), "the next version is ready: drop this where it can be") \
	P(29, ACTIVE, COORDINATOR, TRAINERS, , "transfers begin under this epoch") \
	P(30, DOUBT, PARTY, LEAD, R(transfer) O(version) O(engine) O(poll) O(says), "workers here have not heard the end of an update") \
	P(31, RECALL, LEAD, PARTY, R(transfer) O(engine) O(poll), "what became of that update there?") \
	P(32, RECALLED, PARTY, LEAD, R(transfer) O(engine) O(poll) O(says), "the answer") \
	P(33, OUTCOME, LEAD, PARTY, R(transfer) O(engine) O(poll) R(how), "the END that those workers missed") \
	P(34, LACK, TRAINERS, ANY, R(transfer) R(question), "which chunks do your workers lack of trainer workers here? (only to agents that know it)") \
	P(35, LACKED, ANY, TRAINERS, R(transfer) R(question) O(code) L(lacked), "the answer") \
	P(36, ALL_STOPPED, LEAD, PARTY, WB__PEER_ORDER(R, O), "all of the engine have: no worker goes on before it knows how that ended (only to parties whose STOPPED asks for it)") \
	P(37, HEARD, PARTY, LEAD, WB__PEER_REPLY(R, O), "the answer; OPEN and INSTALL come after it")

/* In place of R, O or L, for a P() that does not look at fields. */
#define WB_PEER_SKIP(field)

#define WB__PEER_ENUM(number, NAME, from, to, fields, text) WBP_PEER_##NAME = (number),
/* PEER.kind */
enum wbp_peer { WB_PEERS(WB__PEER_ENUM, WB_PEER_SKIP, WB_PEER_SKIP, WB_PEER_SKIP) };

/* struct wb_peer_NAME: the fields of one kind, to be filled in. */
#define WB__PEER_TYPE(field) __typeof__(((struct wb_msg_peer *)0)->field)
#define WB__PEER_MEMBER(field) WB__PEER_TYPE(field) field;
#define WB__PEER_MEMBERS(field) WB__PEER_TYPE(field) field; uint32_t n_##field;
#define WB__PEER_STRUCT(number, NAME, from, to, fields, text) \
	struct wb_peer_##NAME { enum wbp_peer kind; fields };
WB_PEERS(WB__PEER_STRUCT, WB__PEER_MEMBER, WB__PEER_MEMBER, WB__PEER_MEMBERS)

/** wb_peer_from_NAME - the message of these fields; it borrows what @f points to. */
#define WB__PEER_COPY(field) .field = f->field,
#define WB__PEER_COPIES(field) .field = f->field, .n_##field = f->n_##field,
#define WB__PEER_FROM(number, NAME, from, to, fields, text) \
	static inline struct wb_msg_peer wb_peer_from_##NAME(const struct wb_peer_##NAME *f) \
	{ \
		return (struct wb_msg_peer){.kind = f->kind, fields}; \
	}
WB_PEERS(WB__PEER_FROM, WB__PEER_COPY, WB__PEER_COPY, WB__PEER_COPIES)

/* To fill in a struct wb_peer_NAME step by step, begin with WB_PEER_FIELDS(NAME, .field = value, ...);
 * WB_PEER_OF() makes the message of it, and WB_PEER() does both at once: a const struct wb_msg_peer *
 * that lives as long as the block. */
#define WB_PEER_FIELDS(NAME, ...) {.kind = WBP_PEER_##NAME, __VA_ARGS__}
#define WB_PEER_OF(NAME, fields) ((const struct wb_msg_peer[]){wb_peer_from_##NAME(fields)})
#define WB_PEER(NAME, ...) \
	WB_PEER_OF(NAME, &(const struct wb_peer_##NAME)WB_PEER_FIELDS(NAME, __VA_ARGS__))
/* clang-format on */

struct wb_peer_field {
	const char *name; /* in this kind of message; NULL after the last */
	uint32_t offset; /* in struct wb_msg_peer */
	bool is_required;
};

struct wb_peer_rule {
	const char *name, *text;
	uint32_t from, to; /* enum wbp_role, several at once */
	const struct wb_peer_field *field;
};

/** wb_peer_rule - the row of a kind; NULL when there is none.  Static. */
const struct wb_peer_rule *wb_peer_rule(uint32_t kind);

/**
 * wb_peer_check_fields - has a message what its row requires, and no other kind's fields?
 * A kind without a row passes here; wb_peer_check() refuses it.
 * Returns 0; -EBADMSG with a sentence that names kind and field.
 */
int wb_peer_check_fields(const struct wb_msg_peer *m, struct wb_err *err);

/**
 * wb_peer_check - may its sender say this to its receiver?
 * @m:		decoded
 * @n_engine: engines of its plan
 * @from, @to:	roles that sender and receiver have in its plan, for its engine where it has one
 * Returns 0; -EBADMSG with a sentence.
 */
int wb_peer_check(const struct wb_msg_peer *m, uint32_t n_engine, uint32_t from, uint32_t to,
	struct wb_err *err);

#endif
