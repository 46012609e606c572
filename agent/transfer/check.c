/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All invariants that the headers of this folder state, as they hold between two events.  They are
 * checked after each event of a simulated agent, and of a debug or sanitizer build.
 */
#include "transfer/epoch.h"
#include "transfer/link.h"
#include "transfer/wire.h"

static void check_worker(const struct worker *w)
{
	bool rolls = w->w.role == WB_ROLE_ROLLOUT;

	assert(!w->asleep || !w->held_transfer);
	assert(!w->resuming || rolls);
	assert(!w->hold_transfer || (rolls && !w->is_parked));
	assert(!w->repair_ns || w->past.is_torn);
	assert(!w->doubt_ns || w->past.begun);
	assert(!w->guess || (w->past.is_torn && !w->past.begun));
	assert(rolls || !(w->is_parked || w->begun || w->expects_feed || w->installed));
	assert(!rolls || !(w->has_sent || w->holds || w->letting_go));
	assert(!w->holds || !w->letting_go);
}

static void check_party(const struct epoch *e, uint32_t engine)
{
	const struct party *p = &e->party[engine];

	assert(!p->opening);
	if (p->state == PARTY_NONE)
		return;
	assert(p->e == e && p->engine == engine && p->transfer);
	assert(p->lead == e->r->engine[engine].lead);
	assert(!p->is_staged || (e->staged && !p->is_feed));
	assert(p->is_staged || (p->state != PARTY_CLEARING && p->state != PARTY_STAGED &&
				       p->state != PARTY_COPYING));
	/* Parameters change from MOVING on or, if they come out of the areas, from COPYING on. */
	assert(!p->is_opened || p->state >= PARTY_MOVING);
	assert(p->is_opened || p->is_staged || p->state < PARTY_MOVING);
	assert(p->is_opened || p->state != PARTY_COPYING);
	assert(p->has_target || (p->state != PARTY_HOOKS && p->state != PARTY_STOPPED));
	assert(!p->knows_all_stopped || p->state >= PARTY_STOPPED);
}

static void check_doubt(const struct doubt *d)
{
	assert(!d->next.transfer || d->transfer);
	assert(!d->transfer || (d->agent && d->e));
}

static void check_lead(const struct epoch *e, uint32_t engine)
{
	const struct lead *l = &e->lead[engine];

	check_doubt(&l->doubt);
	if (l->state == LEAD_NONE)
		return;
	assert(l->e == e && l->engine == engine && l->agent && l->transfer);
	assert(e->me == e->r->engine[engine].lead && l->coordinator < e->r->n_agent);
	assert(!l->is_staged || (e->staged && !l->is_feed));
	assert(l->is_staged || (l->state != LEAD_STAGING && l->state != LEAD_STAGED &&
				       l->state != LEAD_INSTALLING));
	assert(!l->is_staged || l->state != LEAD_MOVING);
	assert(!l->is_decided || l->is_staged);
	assert(!l->is_superseded || l->state == LEAD_DONE);
	assert(l->ballot.state == BALLOT_NONE || (l->state == LEAD_STAGED && e->r->all_engines));
	assert(l->state != LEAD_ENDING || l->result == WB_ENGINE_COMMITTED);
	/* A lead waits for nothing without a deadline, except for a decision. */
	assert(l->deadline_ns || l->state == LEAD_STAGED || l->state == LEAD_DONE);
}

static void check_agents(const struct epoch *e)
{
	uint32_t n_listed = 0;

	for (uint32_t a = 0; a < e->r->n_agent; a++) {
		const struct wire *w = &e->wire[a];

		assert(!w->kept.n == !w->resend_ns);
	}
	for (uint32_t i = 0; i < e->links.n; i++) {
		const struct link *l = &e->links.link[i];

		n_listed += l->is_listed;
		assert(!l->up || l->conn);
		assert(!l->is_wanted || l->is_listed);
		assert(!l->at || l->at < e->r->agent[l->agent].n_addr);
	}
	assert(n_listed == e->links.n_listed);
}

static void check_epoch(const struct object *o, const struct epoch *e)
{
	if (!e)
		return;
	assert(e->obj == o && e->me < e->r->n_agent && e->local->n);
	assert(!e->has_begun || e->is_active);
	assert(!e->staged == !e->r->rollout_staged);
	for (uint32_t en = 0; en < e->r->n_engine; en++) {
		check_party(e, en);
		check_lead(e, en);
	}
	check_agents(e);
}

static void check_coordinator(const struct object *o, const struct coordinator *l)
{
	assert(l->ballot.state == BALLOT_NONE || l->is_proposed);
	if (l->state == COORDINATOR_IDLE)
		return;
	assert(l->e && (l->e == o->cur || l->e == o->prev) && l->engine && l->transfer);
	assert(!l->is_proposed || (l->e->r->all_engines && l->e->r->rollout_staged && !l->is_feed));
	assert(l->is_feed || l->transfer <= o->issued);
	assert(l->deadline_ns);
}

static void check_trainers(const struct object *o)
{
	const struct trainers *t = &o->trainers;

	assert(!t->final_body || t->state == TRAINERS_RELEASING);
	if (t->state == TRAINERS_IDLE) {
		assert(!t->e && !t->flow);
		return;
	}
	assert(t->e && (t->e == o->cur || t->e == o->prev));
	assert(t->state == TRAINERS_ASKED ? !t->has_next : t->transfer && t->deadline_ns);
	assert(t->is_told || t->state != TRAINERS_RELEASED);
}

static void check_judge(const struct object *o)
{
	assert(o->n_verdict <= TRANSFER_VERDICTS_MAX && o->given <= o->issued);
	for (uint32_t i = 0; i < o->n_verdict; i++) {
		const struct verdict *v = &o->verdict[i];

		assert(v->accepted <= v->promised && (!v->accepted || v->value));
		assert(!i || v->transfer > o->verdict[i - 1].transfer);
		assert(v->transfer > o->forgotten);
	}
}

static void check_flows(struct object *o)
{
	for_flow (o, x) {
		assert(x->e && (x->e == o->cur || x->e == o->prev));
		assert(!x->is_staged || x->e->staged);
		for_flow (o, y)
			assert(x == y || x->is_stopped || y->is_stopped || x->e != y->e ||
				x->is_staged != y->is_staged ||
				wb_flow_transfer(x->flow) != wb_flow_transfer(y->flow));
	}
}

static void check_object(struct object *o)
{
	assert(!o->prev || o->cur);
	assert(!o->prev || wb_epoch_id_is_newer(&o->cur->r->id, &o->prev->r->id));
	check_epoch(o, o->cur);
	check_epoch(o, o->prev);
	assert(!o->coordinator.is_feed && !o->coordinator.next);
	check_coordinator(o, &o->coordinator);
	for (const struct coordinator *f = o->feeds; f; f = f->next) {
		assert(f->is_feed && f->state != COORDINATOR_IDLE);
		check_coordinator(o, f);
	}
	check_trainers(o);
	check_judge(o);
	check_flows(o);
}

void wb__transfer_check(struct wb_transfer_core *c)
{
	assert(!c->self_head && c->self_tail == &c->self_head && !c->draining_self);
	assert(c->n_worker <= TRANSFER_WORKERS_MAX && c->n_orphan <= TRANSFER_ORPHANS_MAX);
	for (uint32_t i = 0; i < c->n_worker; i++)
		check_worker(c->worker[i]);
	for (struct object *o = c->objects; o; o = o->next)
		check_object(o);
	for (uint32_t i = 0; i < c->n_orphan; i++)
		assert(c->orphan[i].e == c->orphan[i].e->obj->cur ||
			c->orphan[i].e == c->orphan[i].e->obj->prev);
}
