/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A new plan after an agent was lost: staging areas outlive agents, so each party says what its
 * areas hold, and the engine's lead takes up a transfer that was whole and has no end yet.
 */
#include "transfer/resume.h"

#include "proto/peers.h"
#include "transfer/epoch.h"
#include "transfer/hears.h"
#include "transfer/lead.h"
#include "transfer/object.h"
#include "transfer/party.h"

#include <string.h>

#define SAYS_PENDING 1u /* not committed here */
#define SAYS_WHOLE 2u /* in every area of this agent */
#define SAYS_INSTALLING 4u /* a parameter may have changed */

static void look(struct epoch *e, uint32_t engine, struct wb_peer_RESUME *m)
{
	const struct wb_area_head *h;

	for_party_worker (e, engine, i) {
		h = e->member[i] ? e->member[i]->area.head : NULL;
		if (!h || wb_area_state(h) < WB_AREA_WHOLE || h->transfer < m->transfer)
			continue;
		m->transfer = h->transfer;
		m->version = h->version;
	}
	if (!m->transfer)
		return;
	m->says = SAYS_WHOLE;
	for_party_worker (e, engine, i) {
		h = e->member[i] ? e->member[i]->area.head : NULL;
		if (!h || wb_area_state(h) < WB_AREA_WHOLE || h->transfer != m->transfer)
			m->says &= ~SAYS_WHOLE;
		else if (h->held_transfer != m->transfer)
			m->says |= SAYS_PENDING |
				   (wb_area_state(h) >= WB_AREA_INSTALLING ? SAYS_INSTALLING : 0);
	}
}

static bool has_worker(const struct epoch *e, const struct epoch *old, uint32_t w)
{
	const char *agent = old->r->agent[old->plan->worker[w].domain].name;

	for (uint32_t i = 0; i < e->plan->n_worker; i++)
		if (e->r->worker[i].local == old->r->worker[w].local &&
			!strcmp(e->r->agent[e->plan->worker[i].domain].name, agent))
			return true;
	return false;
}

/* Have all workers of an engine stayed attached since the plan before? */
static bool is_same(const struct epoch *e, const struct epoch *old, uint32_t engine)
{
	for (uint32_t w = 0; w < old->plan->n_worker; w++)
		if (old->plan->worker[w].role == WB_ROLE_ROLLOUT &&
			old->plan->worker[w].engine == engine && !has_worker(e, old, w))
			return false;
	return true;
}

/* What an engine was about under the plan before cannot end there when one of its agents or workers
 * has been replaced; the plan may bring that news before the connection does. */
static void end_old_runs(struct epoch *e, struct epoch *old)
{
	static const char why[] = "an agent or a worker of the engine was restarted";

	for (uint32_t en = 0; en < old->r->n_engine; en++) {
		if (is_same(e, old, en))
			continue;
		wb__transfer_lead_broken(&old->lead[en], why);
		wb__transfer_party_broken(&old->party[en], why);
	}
}

/* Does the engine's lead go on with the transfer under the plan before?  Then there is nothing to
 * take up. */
static bool is_led(const struct epoch *e, uint32_t engine)
{
	const struct epoch *prev = wb__transfer_before(e);
	uint32_t en = wb__transfer_engine_in(prev, e, engine);

	return en != UINT32_MAX && prev->party[en].state != PARTY_NONE &&
	       prev->party[en].state != PARTY_ENDING;
}

void wb__transfer_resume_end_old(struct epoch *e)
{
	if (e->staged && e == e->obj->cur && e->obj->prev)
		end_old_runs(e, e->obj->prev);
}

void wb__transfer_resume(struct epoch *e)
{
	for (uint32_t en = 0; e->staged && en < e->r->n_engine; en++) {
		struct wb_peer_RESUME m = WB_PEER_FIELDS(RESUME, .engine = en, .version = -1);
		bool here = false;

		for_party_worker (e, en, i)
			here = true;
		if (!here)
			continue;
		if (!is_led(e, en))
			look(e, en, &m);
		m.is_torn = wb__transfer_engine_is_torn(e, en);
		wb__transfer_send(e, e->r->engine[en].lead, WB_PEER_OF(RESUME, &m));
	}
}

/* Is a run under way?  One under the plan before goes on by itself. */
static bool is_running(const struct epoch *e, uint32_t engine)
{
	const struct epoch *prev = wb__transfer_before(e);
	uint32_t en = wb__transfer_engine_in(prev, e, engine);

	return wb__transfer_leads_run(&e->lead[engine]) ||
	       (en != UINT32_MAX && wb__transfer_leads_run(&prev->lead[en]));
}

static bool all_heard(const struct epoch *e, uint32_t engine, const struct resume *r)
{
	for (uint32_t w = 0; w < e->plan->n_worker; w++)
		if (e->plan->worker[w].role == WB_ROLE_ROLLOUT &&
			e->plan->worker[w].engine == engine && !r->heard[e->plan->worker[w].domain])
			return false;
	return true;
}

/* What was committed somewhere is committed in all areas that are in doubt: then there is nothing
 * to take up. */
void wb__transfer_resume_look(struct epoch *e, uint32_t engine)
{
	struct lead *l = &e->lead[engine];
	const struct resume *r = &l->resume;

	if (!r->heard || !all_heard(e, engine, r) || !r->is_pending || !r->is_whole)
		return;
	if (l->doubt.transfer || l->doubt.committed == r->transfer || is_running(e, engine))
		return;
	l->e = e;
	l->engine = engine;
	wb__transfer_lead_resume(l, r);
}

void wb__transfer_on_RESUME(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct lead *l = &e->lead[m->engine];
	struct resume *r = &l->resume;

	if (!e->staged)
		return;
	if (!r->heard) {
		r->heard = wb_zalloc(e->r->n_agent, sizeof(*r->heard));
		r->is_whole = true;
	}
	if (!l->agent)
		l->agent = wb_zalloc(e->r->n_agent, sizeof(*l->agent));
	if (!r->heard || !l->agent)
		return;
	r->heard[from] = true;
	l->has_torn |= m->is_torn;
	r->is_whole &= m->says & SAYS_WHOLE && (!r->transfer || r->transfer == m->transfer);
	r->is_pending |= m->says & SAYS_PENDING;
	r->is_installing |= m->says & SAYS_INSTALLING;
	if (m->transfer > r->transfer) {
		r->transfer = m->transfer;
		r->version = m->version;
	}
	wb__transfer_resume_look(e, m->engine);
}
