/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ballots: the coordinator of a joint transfer proposes COMMIT once every engine is staged; an
 * engine in doubt proposes ABORT, and so learns what was chosen.  The coordinator's first ballot
 * has number 1 and needs no round of questions, since no other ballot can be lower.
 */
#include "transfer/ballot.h"

#include "proto/peers.h"
#include "transfer/coordinator.h"
#include "transfer/epoch.h"
#include "transfer/hears.h"
#include "transfer/lead.h"
#include "transfer/object.h"
#include "transfer/states.h"

#include <string.h>

#define RETRY_MIN_NS (100 * WB_NS_PER_MS)

/* What an agent is called as a judge. */
static uint64_t judge_hash(const char *agent)
{
	return wb_hash64(agent, strlen(agent), 0);
}

/* Judges by name, so that they are found again under another plan. */
uint32_t wb__transfer_judges(const struct epoch *e, uint64_t judge[WB_AREA_JUDGES_MAX])
{
	uint32_t n = 0;

	for (uint32_t a = 0; a < e->r->n_agent && n < WB_AREA_JUDGES_MAX; a++)
		if (wb__transfer_has_trainer(e, a))
			judge[n++] = judge_hash(e->r->agent[a].name);
	return n;
}

/* The newest plan in use: judges that restarted are found there. */
static struct epoch *epoch_of(const struct ballot *b)
{
	struct object *o = b->obj;

	return o->cur && (o->cur->is_active || !o->prev) ? o->cur : o->prev;
}

static void send(struct ballot *b, uint32_t kind)
{
	struct epoch *e = epoch_of(b);
	const struct wb_msg_peer *m =
		kind == WBP_PEER_ACCEPT
			? WB_PEER(ACCEPT, .transfer = b->transfer, .ballot = b->number,
				  .decision = b->value)
			: WB_PEER(BALLOT, .transfer = b->transfer, .ballot = b->number);

	b->n_yes = 0;
	memset(b->answered, 0, sizeof(b->answered));
	b->retry_ns = now_ns(b->obj->core) + b->backoff_ns;
	for (uint32_t a = 0; e && a < e->r->n_agent; a++)
		for (uint32_t j = 0; j < b->n_judge; j++)
			if (b->judge[j] == judge_hash(e->r->agent[a].name))
				wb__transfer_send(e, a, m);
}

/* A number belongs to one proposer alone, also among the proposers of this agent (its engines and
 * its coordinator): judges and their answers tell ballots apart by it. */
static void ask(struct ballot *b)
{
	uint64_t round = (WB_MAX(b->seen, b->obj->asked) >> 32) + 1;

	b->number = round << 32 | (judge_hash(b->obj->core->agent) & UINT32_MAX);
	b->seen = b->obj->asked = b->number;
	b->accepted = 0;
	b->value = b->want;
	wb__transfer_ballot_set(b, BALLOT_ASKING);
	send(b, WBP_PEER_BALLOT);
}

void wb__transfer_ballot_first(struct ballot *b, struct epoch *e, uint64_t transfer)
{
	assert(b->state == BALLOT_NONE);
	*b = (struct ballot){.obj = e->obj,
		.transfer = transfer,
		.number = 1,
		.seen = 1,
		.want = DECIDE_COMMIT, /* the coordinator knows that every engine is staged */
		.value = DECIDE_COMMIT,
		.backoff_ns = RETRY_MIN_NS};
	b->n_judge = wb__transfer_judges(e, b->judge);
	wb__transfer_ballot_set(b, BALLOT_ACCEPTING);
	send(b, WBP_PEER_ACCEPT);
}

void wb__transfer_ballot_ask(struct ballot *b, struct object *o, uint64_t transfer,
	const uint64_t *judge, uint32_t n_judge)
{
	assert(b->state == BALLOT_NONE);
	*b = (struct ballot){.obj = o,
		.transfer = transfer,
		.want = DECIDE_ABORT,
		/* Read from an area, which its worker may have written to since it was checked. */
		.n_judge = WB_MIN(n_judge, WB_AREA_JUDGES_MAX),
		.backoff_ns = RETRY_MIN_NS};
	memcpy(b->judge, judge, b->n_judge * sizeof(*judge));
	ask(b);
}

void wb__transfer_ballot_stop(struct ballot *b)
{
	if (b->state != BALLOT_NONE)
		wb__transfer_ballot_set(b, BALLOT_NONE);
}

/* True when a majority has said yes in the present step. */
static bool count(struct ballot *b, uint64_t judge)
{
	for (uint32_t j = 0; j < b->n_judge; j++)
		if (b->judge[j] == judge && !b->answered[j]) {
			b->answered[j] = true;
			b->n_yes++;
		}
	return b->n_yes > b->n_judge / 2;
}

/* Take in a judge's answer.  DECIDE_NONE: nothing is decided yet. */
static enum decision take(struct ballot *b, const struct wb_msg_peer *m, uint64_t judge)
{
	if (m->code < 0) {
		/* Another proposer was ahead: wait a little, so that one of the two comes
		 * through. */
		if (m->ballot > b->number && b->state != BALLOT_WAITING) {
			b->seen = WB_MAX(b->seen, m->ballot);
			wb__transfer_ballot_set(b, BALLOT_WAITING);
			b->retry_ns = now_ns(b->obj->core) + b->backoff_ns / 4 +
				      judge_hash(b->obj->core->agent) % RETRY_MIN_NS;
		}
		return DECIDE_NONE;
	}
	if (m->ballot != b->number)
		return DECIDE_NONE;
	if (m->kind == WBP_PEER_BALLOTED && b->state == BALLOT_ASKING) {
		if (m->accepted > b->accepted) {
			b->accepted = m->accepted;
			b->value = m->decision == DECIDE_COMMIT ? DECIDE_COMMIT : DECIDE_ABORT;
		}
		if (count(b, judge)) {
			wb__transfer_ballot_set(b, BALLOT_ACCEPTING);
			send(b, WBP_PEER_ACCEPT);
		}
	} else if (m->kind == WBP_PEER_ACCEPTED && b->state == BALLOT_ACCEPTING) {
		if (count(b, judge))
			return b->value;
	}
	return DECIDE_NONE;
}

static void answered(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	uint64_t judge = judge_hash(e->r->agent[from].name);
	struct object *o = e->obj;
	enum decision d;

	if (o->coordinator.ballot.state != BALLOT_NONE &&
		o->coordinator.ballot.transfer == m->transfer) {
		d = take(&o->coordinator.ballot, m, judge);
		if (d != DECIDE_NONE)
			wb__transfer_coordinator_chosen(&o->coordinator, d);
	}
	for (int k = 0; k < 2; k++) {
		struct epoch *x = k ? o->prev : o->cur;

		for (uint32_t en = 0; x && en < x->r->n_engine; en++) {
			struct ballot *b = &x->lead[en].ballot;

			if (b->state == BALLOT_NONE || b->transfer != m->transfer)
				continue;
			d = take(b, m, judge);
			if (d != DECIDE_NONE)
				wb__transfer_lead_chosen(&x->lead[en], d);
		}
	}
}

void wb__transfer_on_BALLOTED(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	answered(e, from, m);
}

void wb__transfer_on_ACCEPTED(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	answered(e, from, m);
}

static uint64_t tick_one(struct ballot *b, uint64_t now)
{
	if (b->state == BALLOT_NONE)
		return 0;
	if (now >= b->retry_ns) {
		b->backoff_ns = WB_MIN(b->backoff_ns * 2, TRANSFER_RETRY_MAX_NS);
		ask(b);
	}
	return b->retry_ns;
}

uint64_t wb__transfer_ballot_tick(struct object *o, uint64_t now)
{
	uint64_t next = tick_one(&o->coordinator.ballot, now);

	for (int k = 0; k < 2; k++) {
		struct epoch *e = k ? o->prev : o->cur;

		for (uint32_t en = 0; e && en < e->r->n_engine; en++)
			next = sooner(next, tick_one(&e->lead[en].ballot, now));
	}
	return next;
}
