/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent died between BEGUN and END: its workers stand in an update and cannot know how it ended,
 * while those of the engine's other agents may have gone on, and wait for them in a collective.
 * Under the new plan the party says so (DOUBT).  The lead knows how the update ended, or asks all
 * parties of the engine (RECALL), and answers with the end (OUTCOME).
 *
 * Committed: the lead ended the run so, or a worker has seen it committed; only a run that was
 * whole and verified in every worker is.  Torn: a parameter of the engine may have changed.
 * Aborted: none has.
 *
 * A run is named by its transfer and the poll count of its stop, since a feed has the number of the
 * transfer that it repeats.
 */
#include "transfer/doubt.h"

#include "proto/peers.h"
#include "transfer/epoch.h"
#include "transfer/hears.h"
#include "transfer/lead.h"
#include "transfer/object.h"
#include "transfer/party.h"
#include "transfer/resume.h"
#include "transfer/states.h"
#include "transfer/worker.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SAYS_TOUCHED 1u /* parameters of a worker in doubt may have changed */
#define SAYS_TORN 2u /* another worker of the engine is torn */
#define SAYS_DONE 4u /* a worker has seen it committed */
#define SAYS_DOUBT 8u /* answer: workers here are in doubt, too */

/* ---- parties ------------------------------------------------------------------------------- */

static struct worker *here(const struct epoch *e, uint32_t local)
{
	struct worker *w = e->member[local];

	return w && !w->gone ? w : NULL;
}

/* The plan that brings the answer may have to wait for a transfer that must first give up dead
 * agents of its own.  Workers in doubt stand still meanwhile, as they may in user code. */
static uint64_t patience_ns(const struct epoch *e)
{
	return WB_MAX(
		TRANSFER_DOUBT_NS, WB_MIN(e->r->engine_step_deadline_ns, TRANSFER_DOUBT_MAX_NS));
}

/* The answer takes two round trips.  The lead, which waits for a promise meanwhile, does so for the
 * step's deadline. */
static uint64_t late_patience_ns(const struct epoch *e)
{
	return WB_MIN(TRANSFER_ASK_AGAIN_NS, e->r->engine_step_deadline_ns / 4);
}

bool wb__transfer_doubt_asks_late(const struct epoch *e, uint32_t engine)
{
	for_party_worker (e, engine, i)
		if (here(e, i) && e->member[i]->guess && e->member[i]->late_ns)
			return true;
	return false;
}

/* No worker is in doubt any more, but one has been told what this agent guessed: ask all the
 * same. */
static void ask_late(const struct epoch *e, uint32_t engine, struct wb_peer_DOUBT *m)
{
	for_party_worker (e, engine, i) {
		const struct worker *w = here(e, i);

		if (!w || !w->guess || w->guess < m->transfer)
			continue;
		m->transfer = w->guess;
		m->version = w->guess_version;
		m->poll = w->guess_at;
		m->says = SAYS_TOUCHED;
	}
	for_party_worker (e, engine, i)
		if (here(e, i) && m->transfer && e->member[i]->guess == m->transfer)
			e->member[i]->late_ns = now_ns(e->obj->core) + late_patience_ns(e);
}

static void ask(struct epoch *e)
{
	e->obj->ask_ns = now_ns(e->obj->core) + TRANSFER_ASK_AGAIN_NS;
	for (uint32_t en = 0; en < e->r->n_engine; en++) {
		struct wb_peer_DOUBT m = WB_PEER_FIELDS(DOUBT, .engine = en);

		for_party_worker (e, en, i) {
			const struct worker *w = here(e, i);

			if (!w || !w->past.begun || w->past.begun < m.transfer)
				continue;
			m.transfer = w->past.begun;
			m.version = w->past.begun_version;
			m.poll = w->past.begun_at;
		}
		if (!m.transfer)
			ask_late(e, en, &m);
		if (!m.transfer)
			continue;
		for_party_worker (e, en, i)
			if (here(e, i) && e->member[i]->past.begun && e->member[i]->past.is_touched)
				m.says |= SAYS_TOUCHED;
		wb__transfer_trace(
			e->obj, "update in doubt", e->r->engine[en].name, m.transfer, m.says);
		wb__transfer_send(e, e->r->engine[en].lead, WB_PEER_OF(DOUBT, &m));
	}
}

void wb__transfer_doubt(struct epoch *e)
{
	uint64_t until = now_ns(e->obj->core) + patience_ns(e);

	for (uint32_t i = 0; i < e->local->n; i++)
		if (here(e, i) && e->member[i]->past.begun)
			e->member[i]->doubt_ns = WB_MAX(e->member[i]->doubt_ns, until);
	ask(e);
}

void wb__transfer_doubt_begin(struct party *p)
{
	/* The lead may begin the next run under the plan that is in use, before a newer plan is. */
	struct epoch *e = active_epoch(p->e->obj);
	/* All workers of the engine have stopped, and other parties may have been told to change.
	 * Those are torn, or in doubt like this one, so that none of their workers runs on and
	 * waits for the workers here, as a worker that had not begun may. */
	bool knows =
		p->state == PARTY_OPENING || (p->state == PARTY_STOPPED && p->knows_all_stopped);
	uint64_t ns = knows ? TRANSFER_DOUBT_TOLD_NS : patience_ns(p->e);

	wb__transfer_party_stop_flow(p);
	for_party_worker (p->e, p->engine, i) {
		struct worker *w = here(p->e, i);

		if (!w)
			continue;
		w->past.begun = p->transfer;
		w->past.begun_version = p->version;
		w->past.begun_at = p->target;
		w->past.is_touched = p->is_opened;
		w->doubt_ns = now_ns(p->e->obj->core) + ns;
		/* The worker stands in its update.  The stop that is promised next is a poll after
		 * this one. */
		wb_poll_set_stop(&w->w.page->word, 0);
		w->is_parked = false;
	}
	wb__transfer_party_set(p, PARTY_NONE);
	wb__transfer_orphans_refuse(p->e);
	if (e)
		ask(e);
}

/* The run that @m is about ends here, if it has not: with one of its agents gone it cannot commit
 * any more. */
static void end_run(const struct epoch *e, const struct wb_msg_peer *m)
{
	const struct epoch *prev = wb__transfer_before(e);
	uint32_t en = wb__transfer_engine_in(prev, e, m->engine);
	struct party *p = en != UINT32_MAX ? &prev->party[en] : NULL;

	if (p && !p->is_staged && p->transfer == m->transfer && p->has_target &&
		p->target == m->poll)
		wb__transfer_party_broken(p, "its lead was restarted");
}

/* Does the worker install what was staged, or has it done so, and that is not committed? */
static bool is_changing(const struct worker *w, uint64_t transfer)
{
	const struct wb_area_head *h = w->area.head;

	return h && h->transfer == transfer && h->held_transfer != transfer &&
	       wb_area_state(h) >= WB_AREA_INSTALLING;
}

/* Was this worker told Torn, by a guess, of the run that @m is about?  The run committed, and the
 * worker stands where it stood then, whole. */
static bool is_guess_of(const struct worker *w, const struct wb_msg_peer *m)
{
	return w->guess && w->guess == m->transfer && w->guess_at == m->poll;
}

/* Is the worker in doubt of that very run? */
static bool is_in(const struct worker *w, const struct wb_msg_peer *m)
{
	return w->past.begun == m->transfer && w->past.begun_at == m->poll;
}

void wb__transfer_on_RECALL(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	uint32_t says = 0;

	end_run(e, m);
	/* Workers may have come to be in doubt just now. */
	for_party_worker (e, m->engine, i)
		if (here(e, i) && e->member[i]->past.begun)
			says |= (is_in(e->member[i], m) ? SAYS_DOUBT : 0) |
				(e->member[i]->past.is_touched ? SAYS_TOUCHED : 0);
	for_party_worker (e, m->engine, i) {
		const struct worker *w = here(e, i);

		if (w && w->past.done == m->transfer && w->past.done_at == m->poll)
			says |= SAYS_DONE;
		if (w && (w->past.is_torn || is_changing(w, m->transfer)))
			says |= SAYS_TORN;
	}
	wb__transfer_send(e, from,
		WB_PEER(RECALLED, .transfer = m->transfer, .engine = m->engine, .poll = m->poll,
			.says = says));
}

/* Unknown is the end of a decision that no worker of the engine has followed: Aborted for the
 * workers. */
static enum wb_engine_state for_worker(uint32_t state)
{
	return state == WB_ENGINE_UNKNOWN ? WB_ENGINE_ABORTED : (enum wb_engine_state)state;
}

static void tell(struct worker *w, enum wb_engine_state how, const char *why)
{
	struct wb_transfer_past past = w->past;
	char text[WB_ERR_MSG_MAX];
	struct wb_msg_app_end end = {.transfer = past.begun,
		.version = past.begun_version,
		.result = how == WB_ENGINE_COMMITTED ? WB_APP_END_COMMITTED
			  : how == WB_ENGINE_ABORTED ? WB_APP_END_ABORTED
						     : WB_APP_END_TORN};

	if (how != WB_ENGINE_COMMITTED) {
		snprintf(text, sizeof(text), "%s", why);
		end.code = -EHOSTDOWN;
		end.sentence = text;
	}
	w->past.begun = w->doubt_ns = 0;
	w->past.is_torn |= end.result == WB_APP_END_TORN;
	if (how == WB_ENGINE_COMMITTED) {
		wb__transfer_holds_now(w, past.begun, past.begun_version, past.begun_at);
		/* The promise was for the feed, which the worker does not need any more; one that
		 * was made in a run is for what comes next. */
		if (w->expects_feed && !wb__transfer_is_in_run(w))
			wb_poll_set_stop(&w->w.page->word, 0);
		w->expects_feed = false;
	}
	if (w->obj->cur)
		wb__transfer_repair_await(w, w->obj->cur, past.begun);
	wb__transfer_trace(
		w->obj, wb_word(&wb_engine_state_words, how), w->w.name, past.begun, past.begun_at);
	wb__transfer_to_worker(w, WBP_APP_END, &end);
}

/* Nobody has said how the update ended, and others may wait for this worker: tell it what is known
 * of it here. */
static void tell_own(struct worker *w)
{
	struct wb_transfer_past past = w->past;

	tell(w, past.is_touched ? WB_ENGINE_TORN : WB_ENGINE_ABORTED,
		"this worker's agent, or that of its engine's lead, went away during the update, "
		"and nobody said how that ended");
	if (!past.is_touched)
		return;
	w->guess = past.begun;
	w->late_ns = 0;
	w->guess_version = past.begun_version;
	w->guess_at = past.begun_at;
}

/* The answer came late.  Other workers of the engine have gone on with the weights that this one
 * has, whole, and wait for it in their next step.  If it stayed torn it would keep them there,
 * where no stop reaches them. */
static void tell_late(struct worker *w)
{
	w->past.begun = w->guess;
	w->past.begun_version = w->guess_version;
	w->past.begun_at = w->guess_at;
	tell(w, WB_ENGINE_COMMITTED, "");
}

bool wb__transfer_doubt_end(struct epoch *e, const struct wb_msg_peer *m)
{
	/* Two runs may have this number, the second a feed, and END does not say which of them it
	 * ends.  A feed that came to nothing proves nothing about the run before it, which may have
	 * been torn. */
	bool is_sure = m->how == WB_ENGINE_COMMITTED || m->how == WB_ENGINE_TORN;
	struct epoch *active = active_epoch(e->obj);
	bool any = false;

	for_party_worker (e, m->engine, i) {
		if (!here(e, i) || e->member[i]->past.begun != m->transfer)
			continue;
		if (is_sure)
			tell(e->member[i], m->how, m->sentence ? m->sentence : "");
		any = true;
	}
	if (any && !is_sure && active)
		ask(active);
	return any;
}

void wb__transfer_on_OUTCOME(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	(void)from;
	for_party_worker (e, m->engine, i) {
		struct worker *w = here(e, i);

		if (w && is_in(w, m))
			tell(w, m->how,
				"this worker's agent went away during the update, which did not "
				"commit");
		else if (w && is_guess_of(w, m)) {
			w->late_ns = 0;
			if (m->how == WB_ENGINE_COMMITTED)
				tell_late(w);
		}
	}
	wb__transfer_party_promise(&e->party[m->engine]);
}

void wb__transfer_doubt_over(struct epoch *e, uint32_t engine)
{
	for_party_worker (e, engine, i)
		if (here(e, i) && e->member[i]->past.begun) {
			e->member[i]->past.is_touched = true; /* perhaps elsewhere */
			tell_own(e->member[i]);
			e->member[i]->guess = 0; /* its promise is set: it polls up to that */
		}
}

/* Give up late answers that do not come any more. */
static uint64_t late_tick(struct object *o, struct epoch *e, uint64_t now)
{
	uint64_t next = 0;
	bool is_over = false;

	for (uint32_t i = 0; i < o->core->n_worker; i++) {
		struct worker *w = o->core->worker[i];

		if (w->obj != o || w->gone || !w->late_ns)
			continue;
		if (now < w->late_ns) {
			next = sooner(next, w->late_ns);
			continue;
		}
		w->late_ns = 0;
		is_over = true;
	}
	for (uint32_t en = 0; is_over && e && en < e->r->n_engine; en++)
		wb__transfer_party_promise(&e->party[en]);
	return next;
}

uint64_t wb__transfer_doubt_tick(struct object *o, uint64_t now)
{
	struct epoch *e = active_epoch(o);
	/* Was this process stopped for a while?  Then the answer may be among what it has not read
	 * yet. */
	bool was_stopped = e && now > o->ask_ns + TRANSFER_ASK_AGAIN_NS;
	uint64_t late = late_tick(o, e, now), next = 0;

	for (uint32_t i = 0; i < o->core->n_worker; i++) {
		struct worker *w = o->core->worker[i];

		if (w->obj != o || w->gone || !w->doubt_ns)
			continue;
		if (was_stopped)
			w->doubt_ns = WB_MAX(w->doubt_ns, now + 2 * TRANSFER_ASK_AGAIN_NS);
		if (now >= w->doubt_ns)
			tell_own(w);
		else
			next = sooner(next, w->doubt_ns);
	}
	if (!next || !e)
		return sooner(next, late);
	/* The question is lost, too, when the lead is called down and comes back. */
	if (now >= o->ask_ns)
		ask(e);
	return sooner(sooner(next, late), o->ask_ns);
}

/* ---- the lead ------------------------------------------------------------------------------ */

static struct lead *led(struct epoch *e, const char *engine, const struct doubt *d)
{
	for (uint32_t en = 0; en < e->r->n_engine; en++) {
		struct lead *l = &e->lead[en];

		if (!strcmp(e->r->engine[en].name, engine) && l->state != LEAD_NONE &&
			l->transfer == d->transfer && l->target == d->poll)
			return l;
	}
	return NULL;
}

/* How the run ended, if it was led from here; WB_ENGINE_IDLE: not known. */
static enum wb_engine_state as_led(struct epoch *e, uint32_t engine, const struct doubt *d)
{
	struct epoch *of[] = {e, e == e->obj->cur ? e->obj->prev : NULL};

	for (uint32_t k = 0; k < WB_ARRAY_SIZE(of); k++) {
		struct lead *l = of[k] ? led(of[k], e->r->engine[engine].name, d) : NULL;

		if (!l)
			continue;
		/* The lead may not have heard that the agent is gone, or has given the run up. */
		if (l->state != LEAD_ENDING)
			wb__transfer_lead_broken(l, "an agent of the engine has lost its lead");
		return for_worker(l->ended);
	}
	return WB_ENGINE_IDLE;
}

static void look_into(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);

static void ask_next(struct lead *l)
{
	struct doubt_next next = l->doubt.next;

	l->doubt.next = (struct doubt_next){0};
	if (next.transfer)
		look_into(l->doubt.e, next.from,
			WB_PEER(DOUBT, .engine = l->doubt.engine, .transfer = next.transfer,
				.poll = next.poll, .says = next.says));
}

/* Whatever @how is, what was touched and did not commit is a mix. */
static void answer(struct lead *l, enum wb_engine_state how)
{
	struct doubt *d = &l->doubt;
	/* All workers of an engine change, or none. */
	bool is_sure =
		how == WB_ENGINE_COMMITTED || (how == WB_ENGINE_ABORTED && !(d->says & ~SAYS_DONE));
	enum wb_engine_state told = is_sure ? how : WB_ENGINE_TORN;

	for (uint32_t a = 0; a < d->e->r->n_agent; a++) {
		if (!d->agent[a].is_in_doubt)
			continue;
		wb__transfer_send(d->e, a,
			WB_PEER(OUTCOME, .engine = d->engine, .transfer = d->transfer,
				.poll = d->poll, .how = told));
	}
	l->has_torn = how != WB_ENGINE_COMMITTED && (l->has_torn || told == WB_ENGINE_TORN);
	memset(d->agent, 0, d->e->r->n_agent * sizeof(*d->agent));
	if (how == WB_ENGINE_COMMITTED)
		d->committed = d->transfer;
	d->transfer = 0;
	ask_next(l);
	wb__transfer_lead_go_on(l);
	wb__transfer_resume_look(d->e, d->engine);
}

static void look(struct lead *l)
{
	struct doubt *d = &l->doubt;
	bool all = true;

	if (!d->transfer)
		return;
	for (uint32_t a = 0; a < d->e->r->n_agent; a++)
		all &= !d->agent[a].is_asked;
	if (d->says & SAYS_DONE)
		answer(l, WB_ENGINE_COMMITTED);
	else if (all)
		answer(l, WB_ENGINE_ABORTED);
}

void wb__transfer_doubt_agent_down(struct lead *l, uint32_t agent, uint64_t upto)
{
	if (!l->doubt.transfer || l->doubt.transfer > upto || !l->doubt.agent[agent].is_asked)
		return;
	l->doubt.agent[agent].is_asked = false; /* it will not answer */
	look(l);
}

bool wb__transfer_doubt_waits_for(const struct lead *l, uint32_t agent)
{
	return l->doubt.transfer && l->doubt.agent[agent].is_asked;
}

static void look_into(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct lead *l = &e->lead[m->engine];
	struct doubt *d = &l->doubt;
	enum wb_engine_state how;

	if (!d->agent)
		d->agent = wb_zalloc(e->r->n_agent, sizeof(*d->agent));
	if (!d->agent)
		return; /* workers are told at TARGET that nobody knows */
	/* Runs are looked into one after the other: nobody can have changed in a later run, in
	 * which a worker that stands in this one took no part. */
	if (d->transfer && (d->transfer != m->transfer || d->poll != m->poll)) {
		d->next = (struct doubt_next){from, m->poll, m->says, m->transfer};
		return;
	}
	d->e = e;
	d->engine = m->engine;
	d->says = d->transfer ? d->says | (m->says & SAYS_TOUCHED) : m->says & SAYS_TOUCHED;
	d->transfer = m->transfer;
	d->poll = m->poll;
	d->agent[from].is_in_doubt = true;
	how = as_led(e, m->engine, d);
	/* A feed of the same number may have been aborted at the same poll since, and the run
	 * before it may not have been: its workers know. */
	if (how == WB_ENGINE_COMMITTED || how == WB_ENGINE_TORN) {
		answer(l, how);
		return;
	}
	for (uint32_t w = 0; w < e->plan->n_worker; w++) {
		uint32_t a = e->plan->worker[w].domain;

		if (e->plan->worker[w].role != WB_ROLE_ROLLOUT ||
			e->plan->worker[w].engine != m->engine || d->agent[a].was_asked)
			continue;
		d->agent[a].is_asked = d->agent[a].was_asked = true;
		wb__transfer_send(e, a,
			WB_PEER(RECALL, .engine = m->engine, .transfer = m->transfer,
				.poll = m->poll));
	}
}

void wb__transfer_on_DOUBT(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	look_into(e, from, m);
}

void wb__transfer_on_RECALLED(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct doubt *d = &e->lead[m->engine].doubt;

	if (d->transfer != m->transfer || d->poll != m->poll || !d->agent[from].is_asked)
		return;
	d->agent[from].is_asked = false;
	d->agent[from].is_in_doubt |= m->says & SAYS_DOUBT;
	d->says |= m->says & ~SAYS_DOUBT;
	look(&e->lead[m->engine]);
}
