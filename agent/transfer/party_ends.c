/* SPDX-License-Identifier: Apache-2.0 */
/* What ends the run of a party from outside: a lead that is gone, a newer plan, a deadline. */
#include "transfer/party.h"

#include "proto/peers.h"
#include "transfer/doubt.h"
#include "transfer/epoch.h"
#include "transfer/flows.h"
#include "transfer/link.h"
#include "transfer/object.h"
#include "transfer/states.h"
#include "transfer/worker.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Stop moving: nothing may land after the workers are told, and nobody waits for what they never
 * got. */
void wb__transfer_party_stop_flow(struct party *p)
{
	/* What is whole in the areas is still read by others, who take it from here. */
	if (p->is_staged && p->state != PARTY_MOVING && p->state != PARTY_CLEARING)
		return;
	if (!p->flow && !p->is_feed) /* not opened: there for others of this agent */
		p->flow = wb__transfer_flow_get(p->e, p->transfer, false);
	for_party_worker (p->e, p->engine, i)
		if (p->flow)
			wb_flow_drop_sink(p->flow, i);
}

/* A worker of an agent that began anew goes on serving with what it has, which nobody else
 * knows. */
static bool holds_something(const struct party *p)
{
	for_party_worker (p->e, p->engine, i) {
		const struct worker *w = p->e->member[i];

		if (w && !w->held_transfer && (!w->past.done || w->past.is_torn))
			return false;
	}
	return true;
}

/* The worker is new, was to be fed, and must not serve what it has; but if it were torn it could
 * not take the step that others of the engine may wait for.  It stays in its update until the next
 * stop is known, which is a poll after the one in which it stands.  If the run began anew where it
 * stands it would have to be told Torn, and others, who were not in that feed, would not. */
static void hold(struct worker *w, const struct party *p)
{
	w->hold_transfer = p->transfer;
	w->hold_version = p->version;
	wb_poll_set_stop(&page_of(w)->word, 0);
	w->is_parked = false;
}

void wb__transfer_party_failed_end(struct party *p, const struct wb_msg_peer *m)
{
	/* Torn if bytes may have come, here or to others of the engine, who wait for the workers
	 * here in each step; but a new worker that waits to be fed has taken no step with them
	 * yet. */
	bool is_new = p->is_feed && !holds_something(p);
	bool torn = p->is_opened || (m->how == WB_ENGINE_TORN && !is_new);
	bool joins = !torn && is_new;
	bool runs = p->is_staged && (p->state < PARTY_STOPPING || p->state == PARTY_MOVING);
	struct wb_msg_app_end end = {
		.transfer = p->transfer,
		.version = p->version,
		.code = m->code,
		.sentence = m->sentence,
	};

	wb__transfer_party_stop_flow(p);
	if (p->is_staged && m->how == WB_ENGINE_ABORTED)
		wb__transfer_party_forget(p->e, p->engine, p->transfer);
	for_party_worker (p->e, p->engine, i) {
		struct worker *w = p->e->member[i];

		if (!w || (runs && !torn))
			continue;
		/* Take back the mark of STOPPED, which a feed of this number would take for its
		 * own.  A mark of an earlier transfer stays: the worker may not have heard how that
		 * ended. */
		if (!torn && p->is_staged && page_of(w)->touched == p->transfer)
			__atomic_store_n(&page_of(w)->touched, 0, __ATOMIC_RELAXED);
		/* A worker that is not in this run yet stays where it was, torn, or parked until it
		 * is fed. */
		w->expects_feed |= torn || joins;
		if (p->state == PARTY_STOPPING && (w->past.is_torn || w->expects_feed))
			continue;
		if (joins && !w->past.is_torn) {
			hold(w, p);
			continue;
		}
		w->past.is_torn |= torn;
		end.result = w->past.is_torn ? WB_APP_END_TORN : WB_APP_END_ABORTED;
		if (!w->past.is_torn) {
			bool was_begun = w->is_parked || p->state != PARTY_STOPPING;

			wb_poll_set_stop(&page_of(w)->word, 0);
			w->is_parked = false;
			if (!was_begun) {
				/* Never parked: the promise alone is released. */
				struct wb_msg_app_go go = {0};

				w->resume_ns = 0; /* its times are of another transfer */
				wb__transfer_to_worker(w, WBP_APP_GO, &go);
				continue;
			}
		}
		w->resume_ns = w->past.is_torn ? 0 : now_ns(p->e->obj->core);
		wb__transfer_to_worker(w, WBP_APP_END, &end);
	}
	if (!torn && !runs)
		wb__transfer_times_party(p);
	for_party_worker (p->e, p->engine, i)
		if (p->e->member[i])
			wb__transfer_repair_await(p->e->member[i], p->e, p->transfer);
	wb__transfer_party_set(p, PARTY_NONE);
	wb__transfer_orphans_refuse(p->e);
}

/* Its workers have said that they stand still, or are whole, and the lead alone knows what it made
 * of that. */
static bool is_in_doubt(const struct party *p)
{
	return p->state == PARTY_STOPPED || p->state == PARTY_OPENING || p->state == PARTY_COMPLETE;
}

void wb__transfer_party_lead_down(struct epoch *e, uint32_t agent, uint64_t upto, const char *why)
{
	for (uint32_t en = 0; en < e->r->n_engine; en++) {
		struct party *p = &e->party[en];
		char text[WB_ERR_MSG_MAX];

		if (p->state == PARTY_NONE || p->state == PARTY_ENDING || p->lead != agent ||
			p->transfer > upto)
			continue;
		if (is_in_doubt(p)) {
			wb__transfer_doubt_begin(p);
			continue;
		}
		snprintf(text, sizeof(text), "the engine's lead, agent %s, is gone: %.800s",
			e->r->agent[agent].name, why);
		wb__transfer_party_failed_end(
			p, WB_PEER(END, .code = -EHOSTDOWN, .sentence = text));
	}
}

void wb__transfer_party_broken(struct party *p, const char *why)
{
	char text[WB_ERR_MSG_MAX];

	if (p->state == PARTY_NONE || p->state == PARTY_ENDING)
		return;
	if (is_in_doubt(p)) {
		wb__transfer_doubt_begin(p);
		return;
	}
	snprintf(text, sizeof(text), "engine %s: %.800s", p->e->r->engine[p->engine].name, why);
	wb__transfer_party_failed_end(
		p, WB_PEER(END, .how = WB_ENGINE_UNKNOWN, .code = -EHOSTDOWN, .sentence = text));
}

void wb__transfer_party_overtaken(struct epoch *e, uint32_t engine)
{
	struct epoch *prev = wb__transfer_before(e);
	uint32_t en = wb__transfer_engine_in(prev, e, engine);

	if (en != UINT32_MAX)
		wb__transfer_party_broken(&prev->party[en], "overtaken under a newer plan");
}

/* Connections that were lost in this transfer, and on which rail; "" = none. */
static const char *lost_links(const struct party *p, char *out, size_t cap)
{
	const struct epoch *e = p->e;

	out[0] = '\0';
	for (uint32_t i = 0; i < e->links.n; i++) {
		const struct link *l = &e->links.link[i];

		if (!l->n_lost || l->lost_transfer != p->transfer)
			continue;
		snprintf(out, cap, "; the connection with agent %s was lost %u time%s, last %s",
			e->r->agent[l->agent].name, l->n_lost, l->n_lost == 1 ? "" : "s", l->lost);
		break;
	}
	return out;
}

/* The deadline of all movement: which worker waits, and for what. */
static void too_late(struct party *p)
{
	char text[WB_ERR_MSG_MAX], what[256], lost[512];

	p->deadline_ns = 0;
	if (!p->flow) /* the flow ended with the last worker here: the lead knows */
		return;
	for_party_worker (p->e, p->engine, i) {
		if (wb_flow_sink_complete(p->flow, i))
			continue;
		wb_flow_waiting_for(p->flow, i, what, sizeof(what));
		snprintf(text, sizeof(text),
			"%s did not receive everything within spec.transferDeadlineSeconds (%.0f "
			"s), waiting for %s%s",
			wb__transfer_worker_name(p->e, p->e->local->member[i].plan_worker),
			(double)p->e->r->transfer_deadline_ns / 1e9, what,
			lost_links(p, lost, sizeof(lost)));
		wb__transfer_party_fail(p, -ETIMEDOUT, text);
		return;
	}
}

/* Old readers finish, then the party goes on. */
static uint64_t drain(struct party *p, uint64_t now)
{
	bool opens = p->state == PARTY_OPENING;

	if (!wb__transfer_flows_quiet(p->e, p->engine, p->transfer,
		    opens ? QUIET_PARAMS : QUIET_AREAS, now >= p->drain_ns))
		return now + WB_NS_PER_MS;
	if (opens && p->is_staged)
		wb__transfer_party_copy(p);
	else
		wb__transfer_party_open(p);
	return 0;
}

static uint64_t tick_state(struct party *p, uint64_t now)
{
	uint64_t due = p->deadline_ns;

	switch (p->state) {
	case PARTY_OPENING:
	case PARTY_CLEARING:
		return drain(p, now);
	case PARTY_ENDING: /* the lead has long given up waiting; the version stands */
		due = p->end_ns + 2 * p->e->r->engine_step_deadline_ns;
		if (now < due)
			return due;
		wb__transfer_party_set(p, PARTY_NONE);
		p->flow = NULL;
		return 0;
	case PARTY_MOVING:
		if (!due || now < due)
			return due;
		too_late(p);
		return 0;
	default:
		return 0;
	}
}

/* A lead says how the run ends within both waits for user code, the movement and the install. */
void wb__transfer_party_expect_end(struct party *p)
{
	const struct wb_roster *r = p->e->r;

	p->lead_ns = now_ns(p->e->obj->core) + 3 * r->engine_step_deadline_ns +
		     2 * r->transfer_deadline_ns + 10 * WB_NS_PER_S;
}

static void without_lead(struct party *p)
{
	char text[WB_ERR_MSG_MAX];

	if (is_in_doubt(p)) {
		wb__transfer_doubt_begin(p);
		return;
	}
	snprintf(text, sizeof(text),
		"the lead of engine %.200s, agent %.200s, did not say how it ended",
		p->e->r->engine[p->engine].name, p->e->r->agent[p->lead].name);
	wb__transfer_party_failed_end(
		p, WB_PEER(END, .how = WB_ENGINE_UNKNOWN, .code = -ETIMEDOUT, .sentence = text));
}

static uint64_t tick_one(struct party *p, uint64_t now)
{
	/* A run that is staged waits for a decision, which has no deadline; its workers run. */
	if (p->state == PARTY_NONE || p->state == PARTY_STAGED || p->state == PARTY_ENDING)
		p->lead_ns = 0;
	if (p->lead_ns && now >= p->lead_ns)
		without_lead(p);
	return sooner(tick_state(p, now), p->lead_ns);
}

uint64_t wb__transfer_party_tick(struct object *o, uint64_t now)
{
	uint64_t next = 0;

	for (int k = 0; k < 2; k++) {
		struct epoch *e = k ? o->prev : o->cur;

		for (uint32_t en = 0; e && en < e->r->n_engine; en++)
			next = sooner(next, tick_one(&e->party[en], now));
	}
	return next;
}
