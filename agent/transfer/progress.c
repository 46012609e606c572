/* SPDX-License-Identifier: Apache-2.0 */
/* What one worker is at: phase, bytes, and whom it waits for. */
#include "transfer/coordinator.h"
#include "transfer/epoch.h"
#include "transfer/object.h"
#include "transfer/party.h"
#include "transfer/states.h"
#include "transfer/trainers.h"

#include "base/buf.h"

#include <stdio.h>

/* A worker, and the run in which it takes part, or did last. */
struct at {
	const struct worker *w;
	const struct epoch *e;
	uint32_t local; /* index in e->local */
	const struct party *p; /* NULL = a trainer, or at rest */
	bool is_torn; /* at rest, and its engine is torn */
	struct wb_flow *f; /* NULL = none (any more) */
	uint64_t transfer;
	char whom[320], why[160];
};

static bool find_local(const struct epoch *e, struct at *x)
{
	for (uint32_t i = 0; e && i < e->local->n; i++)
		if (e->member[i] == x->w) {
			x->e = e;
			x->local = i;
			return true;
		}
	return false;
}

/* Find the worker's run: its party's, or that of the trainers. */
static bool find_run(struct at *x)
{
	const struct object *o = x->w->obj;
	const struct trainers *t = &o->trainers;

	if (x->w->w.role == WB_ROLE_TRAINER) {
		if (t->state == TRAINERS_IDLE)
			return x->w->has_sent && find_local(active_epoch(o), x);
		if (!find_local(t->e, x))
			return false;
		x->f = t->flow;
		x->transfer = t->transfer;
		return true;
	}
	for (int k = 0; k < 2; k++) {
		const struct epoch *e = k ? o->prev : o->cur;
		uint32_t engine;

		if (!find_local(e, x))
			continue;
		engine = e->plan->worker[e->local->member[x->local].plan_worker].engine;
		x->is_torn |= wb__transfer_engine_is_torn(e, engine);
		if (e->party[engine].state == PARTY_NONE)
			continue;
		x->p = &e->party[engine];
		x->f = x->p->flow;
		x->transfer = x->p->transfer;
		return true;
	}
	return false;
}

/* The worker is at rest: find the newest flow that it was in, from which others may still read. */
static void find_flow(struct at *x)
{
	struct object *o = x->w->obj;
	struct at y = *x;

	if (!x->e)
		find_local(active_epoch(o), x);
	x->transfer = 0;
	for_flow (o, s)
		if (!s->is_stopped && wb_flow_transfer(s->flow) > x->transfer &&
			find_local(s->e, &y)) {
			x->e = y.e;
			x->local = y.local;
			x->f = s->flow;
			x->transfer = wb_flow_transfer(s->flow);
		}
}

static void waits_for(struct at *x, const char *whom, const char *why)
{
	snprintf(x->whom, sizeof(x->whom), "%.300s", whom);
	snprintf(x->why, sizeof(x->why), "%.150s", why);
}

static const char *name_of(const struct at *x, uint32_t local)
{
	return wb__transfer_worker_name(x->e, x->e->local->member[local].plan_worker);
}

static void wait_for_bytes(struct at *x)
{
	struct wb_flow_lack lack;

	if (!x->f || !wb_flow_lacks(x->f, x->local, &lack))
		return;
	if (lack.src == x->e->local->member[x->local].plan_worker) {
		snprintf(x->why, sizeof(x->why), "its own lane, for %u chunks", lack.chunks);
	} else {
		snprintf(x->why, sizeof(x->why), "%u chunks of the %s stage%s", lack.chunks,
			x->e->plan->worker[lack.src].role == WB_ROLE_TRAINER ? "receive"
									     : "exchange",
			lack.is_held ? ", and cannot ask now" : "");
	}
	snprintf(x->whom, sizeof(x->whom), "%.300s", wb__transfer_worker_name(x->e, lack.src));
}

/* The worker itself has nothing left to do: it waits for another worker of the engine here, or else
 * for its lead. */
static void wait_for_party(struct at *x)
{
	const struct party *p = x->p;
	const char *owes;
	char text[300];

	for_party_worker (p->e, p->engine, i) {
		owes = wb__transfer_owes(p, p->e->member[i]);
		if (p->state == PARTY_MOVING && p->flow && !wb_flow_sink_complete(p->flow, i))
			owes = "to have all of it";
		if (owes) {
			waits_for(x, name_of(x, i), owes);
			return;
		}
	}
	snprintf(text, sizeof(text), "agent %.250s", p->e->r->agent[p->lead].name);
	waits_for(x, text, "which leads the engine");
}

static void find_culprit_of_rollout(struct at *x)
{
	const char *owes = wb__transfer_owes(x->p, x->w);

	if (x->p->state == PARTY_OPENING || x->p->state == PARTY_CLEARING)
		waits_for(x, "readers", "of the version before");
	else if (owes)
		waits_for(x, name_of(x, x->local), owes);
	else if (x->p->state == PARTY_MOVING)
		wait_for_bytes(x);
	if (!x->whom[0])
		wait_for_party(x);
}

/* All trainer workers call before anything begins: the worker waits for one that has not, here or,
 * if the coordinator is here, at another agent. */
static bool wait_for_calls(struct at *x)
{
	const struct epoch *e = x->e;
	const struct object *o = x->w->obj;
	char text[300];

	for (uint32_t i = 0; o->trainers.state == TRAINERS_IDLE && i < e->local->n; i++)
		if (e->member[i] && e->member[i]->w.role == WB_ROLE_TRAINER &&
			!e->member[i]->has_sent) {
			waits_for(x, name_of(x, i), "to call send_weights");
			return true;
		}
	for (uint32_t a = 0; e->me == e->r->coordinator && a < e->r->n_agent; a++)
		if (o->trainers.state == TRAINERS_ASKED && e->trains[a] && !e->trigger[a].asked &&
			a != e->me) {
			snprintf(text, sizeof(text), "agent %.250s", e->r->agent[a].name);
			waits_for(x, text, "whose trainers are to call send_weights");
			return true;
		}
	return false;
}

/* If the coordinator is here, it is known which engine has not ended. */
static void find_culprit_of_trainer(struct at *x)
{
	const struct object *o = x->w->obj;
	const struct coordinator *l = &o->coordinator;
	char text[300];

	if (o->trainers.state == TRAINERS_RELEASING) {
		waits_for(x, "readers", "of its parameters");
		return;
	}
	if (wait_for_calls(x))
		return;
	for (uint32_t en = 0; l->state != COORDINATOR_IDLE && en < l->e->r->n_engine; en++)
		if (l->engine[en].takes_part && !wb__transfer_is_end(l->engine[en].state)) {
			snprintf(text, sizeof(text), "engine %.250s", l->e->r->engine[en].name);
			waits_for(x, text, wb_word(&wb_engine_state_words, l->engine[en].state));
			return;
		}
	snprintf(text, sizeof(text), "agent %.250s", x->e->r->agent[x->e->r->coordinator].name);
	waits_for(x, text, "which coordinates");
}

static const char *phase_of(const struct at *x, bool is_running)
{
	if (!is_running)
		return x->is_torn ? "Torn" : "Idle";
	if (x->p)
		return wb__transfer_party_name(x->p->state);
	return x->w->obj->trainers.state == TRAINERS_IDLE
		       ? "Calling"
		       : wb__transfer_trainers_name(x->w->obj->trainers.state);
}

static void put(const struct at *x, bool is_running, struct wb_buf *out)
{
	struct wb_flow_progress n = {0};

	if (x->f)
		wb_flow_get_progress(x->f, x->local, &n);
	wb_buf_printf(out,
		"{\"transfer\":%llu,\"phase\":\"%s\",\"inBytes\":%llu,\"inPlannedBytes\":%llu,"
		"\"outBytes\":%llu,\"outPlannedBytes\":%llu,\"ageMs\":%llu,\"waitsFor\":",
		(unsigned long long)x->transfer, phase_of(x, is_running),
		(unsigned long long)n.in_bytes, (unsigned long long)n.in_planned,
		(unsigned long long)n.out_bytes, (unsigned long long)n.out_planned,
		(unsigned long long)(n.age_ns / WB_NS_PER_MS));
	wb_buf_json_str(out, x->whom);
	wb_buf_printf(out, ",\"waitsWhy\":");
	wb_buf_json_str(out, x->why);
	wb_buf_u8(out, '}');
}

void wb_transfer_progress_json(
	const struct wb_transfer_core *c, uint32_t worker, struct wb_buf *out)
{
	struct at x = {.w = NULL};
	bool is_running;

	x.w = wb__transfer_worker(c, worker);
	is_running = x.w && x.w->obj && find_run(&x);
	if (x.w && x.w->obj && !is_running)
		find_flow(&x);
	if (!x.e) {
		wb_buf_printf(out, "null");
		return;
	}
	if (is_running && x.p)
		find_culprit_of_rollout(&x);
	else if (is_running)
		find_culprit_of_trainer(&x);
	put(&x, is_running, out);
}
