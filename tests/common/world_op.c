/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/world_op.h"

#include "base/base.h"
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_NS (10 * WB_NS_PER_MS)
#define SETTLE_NS (50 * WB_NS_PER_MS)
#define ORDER_NS (2 * WB_NS_PER_MS)
#define BUSY_RETRY_NS (50 * WB_NS_PER_MS)
#define ATTEMPTS_MAX 5
#define ALONE_NS (5 * WB_NS_PER_S)

/* ---- orders and answers -------------------------------------------------------------------- */

enum order_kind { INSTALL, ACTIVATE, READY, REFUSED };

struct order {
	struct world_op *op;
	enum order_kind kind;
	uint32_t op_life, agent, agent_life;
	struct world_epoch *e;
	uint64_t seen;
	struct world_feed feed[]; /* of each engine */
};

static void on_order(void *ctx);

static void send_order(
	struct world_op *op, enum order_kind kind, uint32_t agent, struct world_epoch *e)
{
	struct world *w = op->w;
	size_t feeds = w->o.engines * sizeof(op->feed[0]);
	struct order *o = calloc(1, sizeof(*o) + feeds);
	uint64_t *last = &op->pipe_ns[agent][kind >= READY];
	struct wb_rng *rng = wb_sim_rng(w->net);

	*o = (struct order){op, kind, op->life, agent, w->agent[agent].life, e, op->seen};
	memcpy(o->feed, op->feed, feeds);
	*last = WB_MAX(*last, world_now(w) + 1 + wb_rng_below(rng, ORDER_NS));
	wb_sim_timer(w->net, *last, on_order, o);
}

static void try_install(struct world_op *op, uint32_t agent, struct world_epoch *e);

struct retry {
	struct world_op *op;
	uint32_t agent, life;
	struct world_epoch *e;
};

static void on_retry(void *ctx)
{
	struct retry r = *(struct retry *)ctx;
	struct world_agent *a = &r.op->w->agent[r.agent];

	free(ctx);
	if (a->alive && a->life == r.life && r.op->waiting[r.agent] == r.e)
		try_install(r.op, r.agent, r.e);
}

/* Orders that found their agent stopped go on when it does, a later one perhaps first. */
static bool is_overtaken(const struct world_op *op, uint32_t agent, const struct world_epoch *e)
{
	const struct world_epoch *x = op->waiting[agent];

	return x && wb_epoch_id_is_newer(&x->id, &e->id);
}

static void try_install(struct world_op *op, uint32_t agent, struct world_epoch *e)
{
	struct world *w = op->w;
	struct wb_err err = {0};
	int rc;

	if (is_overtaken(op, agent, e))
		return;
	rc = world_epoch_install(w, e, agent, &err);
	wb_transfer_seen(w->agent[agent].core, &world_object, e->seen);
	world_after(&w->agent[agent]);
	if (w->is_tracing)
		fprintf(stderr, "%14.6f %s: plan %llu.%llu: %d %s\n", (double)world_now(w) / 1e6,
			w->agent[agent].name, (unsigned long long)e->id.term,
			(unsigned long long)e->id.number, rc, err.msg);
	op->waiting[agent] = rc == -EBUSY ? e : NULL;
	if (rc == -EBUSY) {
		struct retry *r = calloc(1, sizeof(*r));

		*r = (struct retry){op, agent, w->agent[agent].life, e};
		wb_sim_timer(w->net, world_now(w) + BUSY_RETRY_NS, on_retry, r);
		return;
	}
	if (rc == 0) {
		op->known[agent] = e;
		op->known_life[agent] = w->agent[agent].life;
		memset(op->attempt[agent], 0, sizeof(op->attempt[agent]));
	}
	send_order(op, rc ? REFUSED : READY, agent, e);
}

static void do_activate(struct world_op *op, const struct order *o)
{
	struct world *w = op->w;
	struct world_agent *a = &w->agent[o->agent];
	bool fresh[WORLD_OP_ENGINES] = {false};

	if (o->e == op->active)
		op->activated[o->agent] = true;
	for (uint32_t en = 0; en < w->o.engines; en++) {
		int i = world_epoch_engine(o->e, en);

		if (i < 0 || !o->feed[en].until_ns ||
			op->attempt[o->agent][en] == o->feed[en].serial)
			continue;
		op->attempt[o->agent][en] = o->feed[en].serial;
		fresh[en] = true;
		for (uint32_t k = 0; k < w->n_worker; k++)
			if (w->worker[k].role == WB_ROLE_ROLLOUT && w->worker[k].engine == en &&
				w->worker[k].agent == o->agent) {
				wb_transfer_expect_feed(a->core, &world_object, (uint32_t)i);
				break;
			}
	}
	wb_transfer_seen(a->core, &world_object, o->seen);
	if (wb_transfer_activate(a->core, &o->e->id) == 0)
		for (uint32_t en = 0; en < w->o.engines; en++) {
			struct wb_err err = {0};
			int to = world_epoch_engine(o->e, en);
			int from = world_epoch_engine(o->e, o->feed[en].source);

			if (fresh[en] && from >= 0 &&
				world_agent_of_engine(w, o->feed[en].source) == o->agent)
				(void)wb_transfer_feed(
					a->core, &o->e->id, (uint32_t)to, (uint32_t)from, &err);
		}
	world_after(a);
}

static void at_agent(struct world_op *op, struct order *o)
{
	if (o->kind == ACTIVATE) {
		do_activate(op, o);
		return;
	}
	if (op->known[o->agent] == o->e && op->known_life[o->agent] == o->agent_life)
		send_order(op, READY, o->agent, o->e); /* it had reconnected */
	else
		try_install(op, o->agent, o->e);
}

static void on_order(void *ctx)
{
	struct order *o = ctx;
	struct world_op *op = o->op;
	struct world *w = op->w;
	struct world_agent *a = &w->agent[o->agent];

	if (a->alive && a->life == o->agent_life && op->alive && op->life == o->op_life) {
		if (o->kind <= ACTIVATE && a->stall_until_ns > world_now(w)) {
			wb_sim_timer(w->net, a->stall_until_ns, on_order, o);
			return;
		}
		if (o->kind <= ACTIVATE)
			at_agent(op, o);
		else if (o->kind == READY && o->e == op->next)
			op->ready_life[o->agent] = o->agent_life;
		else if (o->kind == REFUSED && o->e == op->next) {
			op->next = NULL; /* planned again at the next tick */
			op->stage = WORLD_OP_NONE;
		}
	}
	free(o);
}

/* ---- what is wanted -------------------------------------------------------------------------- */

static uint32_t group(const struct world_worker *k)
{
	return k->role == WB_ROLE_TRAINER ? 0 : 1 + k->engine;
}

/* Attachments of trainers and complete engines; 0: no plan is possible. */
static uint64_t signature(const struct world *w)
{
	bool part[WORLD_OP_ENGINES + 1] = {false}, any = false; /* not all of it; the trainers */
	uint64_t h = 1;

	for (uint32_t i = 0; i < w->n_worker; i++)
		part[group(&w->worker[i])] |= !world_is_seen(w, &w->worker[i]);
	for (uint32_t i = 0; i < w->n_worker; i++) {
		const struct world_worker *k = &w->worker[i];
		bool whole = !part[group(k)];

		if (k->role == WB_ROLE_TRAINER && !whole)
			return 0;
		any |= whole && k->role == WB_ROLE_ROLLOUT;
		h = wb_mix64(h ^ (whole ? k->id : 0));
	}
	return any ? h : 0;
}

static uint64_t signature_of(const struct world *w, const struct world_epoch *e)
{
	uint64_t h = 1;

	for (uint32_t i = 0, j = 0; i < w->n_worker; i++) { /* a plan's are in the same order */
		bool is_in = e && j < e->n_worker && e->worker[j] == i;

		h = wb_mix64(h ^ (is_in ? e->worker_id[j] : 0));
		j += is_in;
	}
	return h;
}

/* ---- feeds ----------------------------------------------------------------------------------- */

/* What all workers of an engine hold; 0 when they differ, nothing, or it is not all there. */
static uint64_t held(const struct world_op *op, uint32_t engine, bool *is_up)
{
	const struct world *w = op->w;
	uint64_t all = 0;
	bool first = true;

	*is_up = world_epoch_engine(op->active, engine) >= 0;
	for (uint32_t j = 0; j < op->active->n_worker; j++) {
		const struct world_worker *k = &w->worker[op->active->worker[j]];
		int64_t version;
		uint64_t t;

		if (k->role != WB_ROLE_ROLLOUT || k->engine != engine)
			continue;
		if (k->id != op->active->worker_id[j] || !world_is_seen(w, k)) {
			*is_up = false;
			return 0;
		}
		t = wb_transfer_held(w->agent[k->agent].core, k->id, &version);
		all = first || t == all ? t : 0;
		first = false;
	}
	return all;
}

static void feed_one(struct world_op *op, uint32_t en, uint64_t now)
{
	struct world_feed *f = &op->feed[en];
	const struct world *w = op->w;
	bool up;
	uint64_t have = held(op, en, &up);

	if (!up || have >= op->top) {
		memset(f, 0, sizeof(*f));
		return;
	}
	op->is_behind = true;
	if (f->until_ns)
		(void)held(op, f->source, &up); /* one that died does not say how it ended */
	if (f->until_ns && (now >= f->until_ns || !up)) {
		f->until_ns = 0;
		f->next_ns = now + (WB_NS_PER_S << WB_MIN(f->attempt, 4u));
	}
	if (f->transfer != op->top)
		*f = (struct world_feed){.transfer = op->top};
	if (f->until_ns || f->attempt >= ATTEMPTS_MAX || now < f->next_ns)
		return;
	for (uint32_t n = 0; n < w->o.engines; n++) {
		uint32_t s = (n + f->attempt) % w->o.engines;

		if (s == en || held(op, s, &up) != op->top || !up)
			continue;
		f->source = s;
		f->attempt++;
		f->serial = ++op->serial;
		f->until_ns = now + w->o.transfer_deadline_ns;
		op->gen++;
		return;
	}
}

static void stop_feeds(struct world_op *op)
{
	memset(op->feed, 0, sizeof(op->feed));
}

static bool is_feeding(const struct world_op *op)
{
	for (uint32_t en = 0; en < op->w->o.engines; en++)
		if (op->feed[en].until_ns)
			return true;
	return false;
}

static void feeds(struct world_op *op, uint64_t now)
{
	op->is_behind = false;
	if (!op->active || op->running)
		return;
	for (uint32_t en = 0; en < op->w->o.engines; en++) {
		bool up;

		op->top = WB_MAX(op->top, held(op, en, &up));
	}
	for (uint32_t en = 0; op->top && en < op->w->o.engines; en++)
		if (op->stage != WORLD_OP_SENDING || op->feed[en].until_ns)
			feed_one(op, en, now);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void tell_active(struct world_op *op)
{
	struct world *w = op->w;

	for (uint32_t i = 0; op->active && i < op->active->n_agent; i++) {
		uint32_t a = op->active->agent[i];

		if (!w->agent[a].alive || w->agent[a].is_silent ||
			w->agent[a].life != op->active->life[i] ||
			(op->told_life[a] == w->agent[a].life && op->told_gen[a] == op->gen))
			continue;
		op->told_life[a] = w->agent[a].life;
		op->told_gen[a] = op->gen;
		send_order(op, ACTIVATE, a, op->active);
	}
}

/* Judges of a decision that is under way are reached again under the next plan only. */
static bool is_judge_lost(struct world_op *op, uint64_t now)
{
	const struct world *w = op->w;
	bool lost = w->o.all_engines && !op->active; /* it does not know who judges */

	for (uint32_t i = 0; w->o.all_engines && op->active && i < op->active->n_agent; i++) {
		uint32_t a = op->active->agent[i];

		lost |= a < w->o.trainer_agents &&
			(!w->agent[a].alive || w->agent[a].life != op->active->life[i]);
	}
	op->judge_lost_ns = !lost ? 0 : op->judge_lost_ns ? op->judge_lost_ns : now;
	return lost && now >= op->judge_lost_ns + ALONE_NS;
}

static void send_plan(struct world_op *op)
{
	struct world *w = op->w;
	bool ready = true;

	if (!op->next) {
		if ((op->running && !is_judge_lost(op, world_now(w))) || is_feeding(op))
			return; /* they end first */
		op->next = world_epoch_make(w);
		if (op->next)
			op->next->seen = op->seen;
		if (!op->next) {
			op->stage = WORLD_OP_NONE;
			return;
		}
		memset(op->ready_life, 0, sizeof(op->ready_life));
		for (uint32_t i = 0; i < op->next->n_agent; i++)
			send_order(op, INSTALL, op->next->agent[i], op->next);
		return;
	}
	for (uint32_t i = 0; i < op->next->n_agent; i++)
		ready &= op->ready_life[op->next->agent[i]] == op->next->life[i];
	if (!ready)
		return;
	op->active = op->next;
	memset(op->activated, 0, sizeof(op->activated));
	op->next = NULL;
	op->stage = WORLD_OP_NONE;
	op->changed_ns = world_now(w);
	op->seen_active = op->active->seen;
	memset(op->told_life, 0, sizeof(op->told_life));
	stop_feeds(op);
}

static void advance(struct world_op *op, uint64_t now)
{
	uint64_t want = signature(op->w);

	if (!want || want == signature_of(op->w, op->active)) {
		op->stage = WORLD_OP_NONE;
		op->next = NULL;
		return;
	}
	if (op->stage == WORLD_OP_NONE || want != op->wanted) {
		op->wanted = want;
		op->next = NULL;
		op->stage = WORLD_OP_SETTLING;
		op->stage_due_ns = now + wb_rng_below(wb_sim_rng(op->w->net), SETTLE_NS);
	}
	if (op->stage == WORLD_OP_SETTLING && now >= op->stage_due_ns)
		op->stage = WORLD_OP_SENDING;
	if (op->stage == WORLD_OP_SENDING)
		send_plan(op);
}

static struct world_epoch *running_at(const struct world *w, uint32_t agent)
{
	const struct wb_roster *r =
		w->agent[agent].alive ? wb_transfer_running(w->agent[agent].core, &world_object)
				      : NULL;
	struct world_epoch *e = r ? w->epochs : NULL;

	while (e && !wb_epoch_id_eq(&e->id, &r->id))
		e = e->next;
	return e;
}

static struct world_epoch *ready_at(const struct world_op *op, uint32_t agent)
{
	const struct world_agent *a = &op->w->agent[agent];

	return a->alive && op->known_life[agent] == a->life ? op->known[agent] : NULL;
}

static bool is_everywhere(const struct world_op *op, const struct world_epoch *e)
{
	for (uint32_t i = 0; i < op->w->n_agent; i++)
		if (running_at(op->w, i) != e && ready_at(op, i) != e)
			return false;
	return signature_of(op->w, e) == signature(op->w);
}

/* The plan that all run or are ready for, if it fits who is there. */
static struct world_epoch *adoptable(const struct world_op *op)
{
	struct world_epoch *e = ready_at(op, 0);

	if (e && is_everywhere(op, e))
		return e;
	e = running_at(op->w, 0);
	return e && is_everywhere(op, e) ? e : NULL;
}

static void on_tick(void *ctx)
{
	struct order *o = ctx;
	struct world_op *op = o->op;
	uint64_t now = world_now(op->w);

	if (!op->alive || op->life != o->op_life) {
		free(o);
		return;
	}
	if (op->running && !(op->w->agent[op->running_agent].alive &&
				   op->w->agent[op->running_agent].life == op->running_life))
		op->running = 0; /* its coordinator is dead */
	for (uint32_t i = 0; i < op->w->n_agent; i++)
		if (op->w->agent[i].alive && !op->w->agent[i].is_silent)
			op->seen =
				WB_MAX(op->seen, wb_transfer_highest(op->w->agent[i].core, NULL));
	advance(op, now);
	feeds(op, now);
	tell_active(op);
	wb_sim_timer(op->w->net, now + TICK_NS, on_tick, o);
}

static void start(struct world_op *op)
{
	struct order *o = calloc(1, sizeof(*o));

	op->alive = true;
	op->life++;
	*o = (struct order){.op = op, .op_life = op->life};
	wb_sim_timer(op->w->net, world_now(op->w) + 1, on_tick, o);
}

void world_op_start(struct world_op *op, struct world *w)
{
	memset(op, 0, sizeof(*op));
	op->w = w;
	start(op);
}

void world_op_kill(struct world_op *op)
{
	op->alive = false;
}

void world_op_restart(struct world_op *op)
{
	if (op->alive)
		return;
	op->w->term++;
	op->stage = WORLD_OP_NONE;
	op->next = NULL;
	op->active = adoptable(op);
	op->running = 0;
	op->top = 0; /* what it has seen is in the stored status */
	memset(op->told_life, 0, sizeof(op->told_life));
	memset(op->ready_life, 0, sizeof(op->ready_life));
	stop_feeds(op);
	start(op);
}

bool world_op_is_quiet(const struct world_op *op)
{
	if (!op->alive || op->stage != WORLD_OP_NONE || !op->active || is_feeding(op) ||
		op->running || signature(op->w) != signature_of(op->w, op->active))
		return false;
	for (uint32_t i = 0; i < op->active->n_agent; i++) {
		uint32_t a = op->active->agent[i];
		const struct wb_roster *r =
			wb_transfer_running(op->w->agent[a].core, &world_object);

		if (!r || !wb_epoch_id_eq(&r->id, &op->active->id))
			return false;
	}
	return true;
}

/* ---- what it hears ----------------------------------------------------------------------------
 */

static void hear_start(struct world_op *op, const struct world_agent *a, uint64_t transfer)
{
	op->running = transfer;
	op->running_agent = a->index;
	op->running_life = a->life;
	stop_feeds(op); /* overtaken */
}

void world_op_report(struct world_op *op, struct world_agent *a, const struct wb_transfer_report *r)
{
	if (!op->alive)
		return;
	if (r->kind == WB_REPORT_STARTED) {
		if (!r->is_feed)
			hear_start(op, a, r->transfer);
		return;
	}
	if (r->kind == WB_REPORT_FINAL && !r->is_feed && r->transfer == op->running)
		op->running = 0;
	for (uint32_t i = 0; i < r->n_engine; i++) {
		struct world_feed *f = &op->feed[strtoul(r->engine[i] + 1, NULL, 10)];

		if (r->state[i] == WB_ENGINE_COMMITTED)
			op->top = WB_MAX(op->top, r->transfer);
		else if (r->is_feed && f->until_ns)
			f->until_ns = world_now(op->w); /* another try */
	}
}
