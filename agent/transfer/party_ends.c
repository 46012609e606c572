/* SPDX-License-Identifier: Apache-2.0 */
/* What ends the run of a party from outside: a lead that is gone, a newer plan, a deadline. */
#include "transfer/party.h"

#include "transfer/doubt.h"
#include "transfer/epoch.h"
#include "transfer/flows.h"
#include "transfer/link.h"
#include "transfer/object.h"
#include "transfer/states.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Its workers have said that they stand still, or are whole, and the lead alone knows what it made
 * of that. */
static bool is_in_doubt(const struct party *p)
{
	return p->state == PARTY_STOPPED || p->state == PARTY_OPENING || p->state == PARTY_COMPLETE;
}

void wb__core_party_lead_down(struct epoch *e, uint32_t agent, uint64_t upto, const char *why)
{
	for (uint32_t en = 0; en < e->r.n_engine; en++) {
		struct party *p = &e->party[en];
		char text[WB_ERR_MSG_MAX];
		struct wb_msg_peer m = {.code = -EHOSTDOWN, .sentence = text};

		if (p->state == PARTY_NONE || p->state == PARTY_ENDING || p->lead != agent ||
			p->transfer > upto)
			continue;
		if (is_in_doubt(p)) {
			wb__core_doubt_begin(p);
			continue;
		}
		snprintf(text, sizeof(text), "the engine's lead, agent %s, is gone: %.800s",
			e->r.agent[agent].name, why);
		wb__core_party_failed_end(p, &m);
	}
}

void wb__core_party_broken(struct party *p, const char *why)
{
	char text[WB_ERR_MSG_MAX];
	struct wb_msg_peer m = {.code = -EHOSTDOWN, .sentence = text, .state = WB_ENGINE_UNKNOWN};

	if (p->state == PARTY_NONE || p->state == PARTY_ENDING)
		return;
	if (is_in_doubt(p)) {
		wb__core_doubt_begin(p);
		return;
	}
	snprintf(text, sizeof(text), "engine %s: %.800s", p->e->r.engine[p->engine].name, why);
	wb__core_party_failed_end(p, &m);
}

void wb__core_party_overtaken(struct epoch *e, uint32_t engine)
{
	struct epoch *prev = e == e->obj->cur ? e->obj->prev : NULL;

	for (uint32_t en = 0; prev && en < prev->r.n_engine; en++)
		if (!strcmp(prev->r.engine[en].name, e->r.engine[engine].name))
			wb__core_party_broken(&prev->party[en], "overtaken under a newer plan");
}

/* Connections that were lost in this transfer, and on which rail; "" = none. */
static const char *lost_links(const struct party *p, char *out, size_t cap)
{
	const struct epoch *e = p->e;

	out[0] = '\0';
	for (uint32_t d = 0; d < e->r.n_agent; d++) {
		const struct link *l = &e->link[d];

		if (!l->n_lost || l->lost_transfer != p->transfer)
			continue;
		snprintf(out, cap, "; the connection with agent %s was lost %u time%s, last %s",
			e->r.agent[d].name, l->n_lost, l->n_lost == 1 ? "" : "s", l->lost);
		break;
	}
	return out;
}

/* The deadline of all movement: which worker waits, and for what. */
static void too_late(struct party *p)
{
	char text[WB_ERR_MSG_MAX], what[256], lost[512];

	p->deadline_ns = 0;
	if (!p->flow) /* it ended with the last worker here: the lead knows */
		return;
	for_party_worker (p->e, p->engine, i) {
		if (wb_flow_sink_complete(p->flow, i))
			continue;
		wb_flow_waiting_for(p->flow, i, what, sizeof(what));
		snprintf(text, sizeof(text),
			"%s did not receive everything within spec.transferDeadlineSeconds (%.0f "
			"s), waiting for %s%s",
			wb__core_worker_name(p->e, p->e->local->member[i].plan_worker),
			(double)p->e->r.transfer_deadline_ns / 1e9, what,
			lost_links(p, lost, sizeof(lost)));
		wb__core_party_fail(p, -ETIMEDOUT, text);
		return;
	}
}

/* Old readers finish, then the party goes on. */
static uint64_t drain(struct party *p, uint64_t now)
{
	bool opens = p->state == PARTY_OPENING;

	if (!wb__core_flows_quiet(p->e, p->engine, p->transfer, opens ? QUIET_PARAMS : QUIET_AREAS,
		    now >= p->drain_ns))
		return now + WB_NS_PER_MS;
	if (opens && p->is_staged)
		wb__core_party_copy(p);
	else
		wb__core_party_open(p);
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
		due = p->end_ns + 2 * p->e->r.engine_step_deadline_ns;
		if (now < due)
			return due;
		wb__core_party_set(p, PARTY_NONE);
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

/* A lead says how it ends within both waits for user code, movement and install. */
void wb__core_party_expect_end(struct party *p)
{
	const struct wb_roster *r = &p->e->r;

	p->lead_ns = now_ns(p->e->obj->core) + 3 * r->engine_step_deadline_ns +
		     2 * r->transfer_deadline_ns + 10 * WB_NS_PER_S;
}

static void without_lead(struct party *p)
{
	char text[WB_ERR_MSG_MAX];
	struct wb_msg_peer m = {.code = -ETIMEDOUT, .sentence = text, .state = WB_ENGINE_UNKNOWN};

	if (is_in_doubt(p)) {
		wb__core_doubt_begin(p);
		return;
	}
	snprintf(text, sizeof(text),
		"the lead of engine %.200s, agent %.200s, did not say how it ended",
		p->e->r.engine[p->engine].name, p->e->r.agent[p->lead].name);
	wb__core_party_failed_end(p, &m);
}

static uint64_t tick_one(struct party *p, uint64_t now)
{
	/* What is staged waits for a decision, which has no deadline; its workers run. */
	if (p->state == PARTY_NONE || p->state == PARTY_STAGED || p->state == PARTY_ENDING)
		p->lead_ns = 0;
	if (p->lead_ns && now >= p->lead_ns)
		without_lead(p);
	return sooner(tick_state(p, now), p->lead_ns);
}

uint64_t wb__core_party_tick(struct object *o, uint64_t now)
{
	uint64_t next = 0;

	for (int k = 0; k < 2; k++) {
		struct epoch *e = k ? o->prev : o->cur;

		for (uint32_t en = 0; e && en < e->r.n_engine; en++)
			next = sooner(next, tick_one(&e->party[en], now));
	}
	return next;
}
