/* SPDX-License-Identifier: Apache-2.0 */
/* The flows of an object: made on first need, kept while somebody may read from them. */
#include "transfer/flows.h"

#include "transfer/epoch.h"
#include "transfer/link.h"
#include "transfer/object.h"
#include "transfer/party.h"
#include "transfer/trainers.h"
#include "transfer/worker.h"

#include <string.h>

static struct epoch *epoch_of_flow(struct epoch *e, const struct wb_flow *f)
{
	for_flow (e->obj, x)
		if (x->flow == f)
			return x->e;
	return e;
}

static wb_conn_t env_conn(void *ctx, uint32_t dst, uint32_t src, bool may_miss)
{
	return wb__transfer_link_conn(ctx, dst, src, may_miss);
}

static bool env_is_foreign(void *ctx, uint32_t domain)
{
	const struct epoch *e = ctx;

	return e->r->agent[domain].is_foreign;
}

static void env_received(void *ctx, struct wb_flow *f, uint32_t local)
{
	wb__transfer_party_received(epoch_of_flow(ctx, f), f, local);
}

static void env_complete(void *ctx, struct wb_flow *f, uint32_t local)
{
	wb__transfer_party_complete(epoch_of_flow(ctx, f), f, local);
}

static void env_few(void *ctx, struct wb_flow *f)
{
	wb__transfer_leave_ask(epoch_of_flow(ctx, f), f);
}

static void env_snapped(void *ctx, struct wb_flow *f, uint32_t local, int rc)
{
	wb__transfer_trainers_snapped(epoch_of_flow(ctx, f), f, local, rc);
}

/* Report the mismatch with names; the environment, which is told, counts it. */
static void env_mismatch(void *ctx, struct wb_flow *f, const struct wb_flow_mismatch *m)
{
	struct epoch *e = epoch_of_flow(ctx, f);
	const struct wb_transfer_env *env = e->obj->core->env;
	struct wb_transfer_mismatch out = {.place = wb_flow_place_name(m->place),
		.object = e->obj->name,
		.id = &e->obj->id,
		.src = wb__transfer_worker_name(e, m->src),
		.dst = wb__transfer_worker_name(e, m->dst),
		.param = m->param,
		.transfer = wb_flow_transfer(f),
		.cls = m->cls,
		.chunk = m->chunk,
		.rail = m->rail,
		.n = 1};

	wb__transfer_trace(e->obj, "mismatch", out.src, out.transfer, m->chunk);
	if (env->mismatch)
		env->mismatch(env->ctx, &out);
}

static void env_failed(void *ctx, struct wb_flow *f, uint32_t local, const struct wb_err *err)
{
	wb__transfer_party_failed(epoch_of_flow(ctx, f), f, local, err);
}

void wb__transfer_flow_env_init(struct epoch *e)
{
	e->fenv = (struct wb_flow_env){
		.ctx = e,
		.xport = e->obj->core->env->xport,
		.clock = e->obj->core->env->clock,
		.fault = e->obj->core->env->fault,
		.conn = env_conn,
		.is_foreign = env_is_foreign,
		.on_received = env_received,
		.on_complete = env_complete,
		.on_mismatch = env_mismatch,
		.on_failed = env_failed,
		.on_snapped = env_snapped,
		.on_few = env_few,
	};
}

uint64_t wb__transfer_seed(const struct object *o, uint64_t transfer)
{
	return wb_hash64(o->id.text, strlen(o->id.text), transfer) | 1;
}

static void adopt_orphans(struct wb_transfer_core *c, struct wb_flow *f, struct epoch *e)
{
	uint32_t kept = 0, n = c->n_orphan;

	for (uint32_t i = 0; i < n; i++) {
		struct orphan *x = &c->orphan[i];

		if (x->e == e && x->ev.chunk.transfer == wb_flow_transfer(f))
			wb_flow_on_grant(f, &x->ev);
		else
			c->orphan[kept++] = *x;
	}
	c->n_orphan = kept;
}

/* Does the area still have what the worker committed? */
static bool area_holds(const struct worker *w, uint64_t transfer)
{
	const struct wb_area_head *h = w->area.head;

	return h && h->transfer == transfer && wb_area_state(h) >= WB_AREA_WHOLE;
}

/* If a trainer worker here keeps the version, it is the only one of them that can be read from. */
static void mark_keepers(struct epoch *e, struct wb_flow *f)
{
	bool has_keeper = false;

	for (uint32_t i = 0; i < e->local->n; i++)
		has_keeper |= e->member[i] && wb__transfer_keeps(e->member[i], wb_flow_transfer(f));
	for (uint32_t i = 0; has_keeper && i < e->local->n; i++) {
		if (!e->member[i] || e->member[i]->w.role != WB_ROLE_TRAINER)
			continue;
		if (wb__transfer_keeps(e->member[i], wb_flow_transfer(f)))
			wb_flow_open_source(f, i);
		else
			wb_flow_close_source(f, i);
	}
}

/* Workers here that hold the flow's transfer are sources from the start; those that are gone never
 * are. */
static void mark_sources(struct epoch *e, struct wb_flow *f, bool staged)
{
	const struct wb_flow *sums = NULL;

	for_flow (e->obj, x)
		if (x->flow != f && wb_flow_transfer(x->flow) == wb_flow_transfer(f))
			sums = x->flow;
	for (uint32_t i = 0; i < e->local->n; i++)
		if (e->member[i] && e->member[i]->w.role == WB_ROLE_ROLLOUT &&
			e->member[i]->held_transfer == wb_flow_transfer(f) &&
			(!staged || area_holds(e->member[i], wb_flow_transfer(f))))
			wb_flow_mark_installed(f, i, sums);
	mark_keepers(e, f);
	for (uint32_t i = 0; i < e->local->n; i++)
		if (!e->member[i] || e->member[i]->gone)
			wb_flow_close_source(f, i);
}

static struct flow_slot *free_slot(struct object *o)
{
	for (size_t i = 0; i < TRANSFER_FLOWS_MAX; i++)
		if (!o->flows[i].flow)
			return &o->flows[i];
	return NULL;
}

static struct wb_flow *flow_get(struct epoch *e, uint64_t transfer, bool staged, bool make)
{
	struct object *o = e->obj;
	struct wb_flow_opts opts;
	struct flow_slot *at;

	for_flow (o, x)
		if (x->e == e && !x->is_stopped && x->is_staged == staged &&
			wb_flow_transfer(x->flow) == transfer)
			return x->flow;
	at = free_slot(o);
	/* Were the slots cut for a newer plan, with smaller chunks? */
	if (!make || !at || e->plan->chunk_bytes > o->slot_bytes)
		return NULL;
	opts = (struct wb_flow_opts){
		.local = staged ? e->staged : e->local,
		.slots = &o->slots,
		.env = &e->fenv,
		.transfer = transfer,
		.sum_seed = wb__transfer_seed(o, transfer),
		.sums = e->r->sums,
		.read_back = e->r->read_back,
		.window = wb__transfer_links_window(e),
		.stall_ns = WB_MAX(5 * WB_NS_PER_S, e->r->transfer_deadline_ns / 2),
	};
	if (wb_flow_create(&opts, &at->flow, NULL) < 0)
		return NULL;
	at->e = e;
	at->is_stopped = false;
	at->is_staged = staged;
	mark_sources(e, at->flow, staged);
	adopt_orphans(o->core, at->flow, e);
	return at->flow;
}

const char *wb__transfer_no_flow(const struct epoch *e)
{
	return e->plan->chunk_bytes > e->obj->slot_bytes
		       ? "its agent has cut its slots for a newer plan, with smaller chunks"
		       : "no memory for the transfer";
}

struct wb_flow *wb__transfer_flow_get(struct epoch *e, uint64_t transfer, bool make)
{
	return flow_get(e, transfer, e->staged != NULL, make);
}

struct wb_flow *wb__transfer_flow_direct(struct epoch *e, uint64_t transfer, bool make)
{
	return flow_get(e, transfer, false, make);
}

/* A feed writes parameters, even where other transfers fill areas. */
static bool is_fed(const struct epoch *e, uint32_t plan_worker, uint64_t transfer)
{
	const struct wb_plan_worker *w = &e->plan->worker[plan_worker];
	const struct party *p = w->role == WB_ROLE_ROLLOUT ? &e->party[w->engine] : NULL;

	return p && p->state != PARTY_NONE && p->is_feed && p->transfer == transfer;
}

/* What a worker committed may still be in its area, or only in its parameters; what it has not
 * committed, it receives where its party does. */
struct wb_flow *wb__transfer_flow_source(struct epoch *e, uint32_t plan_worker, uint64_t transfer)
{
	const struct worker *w = wb__transfer_worker_of(e, plan_worker);
	bool holds = wb__transfer_holds(e, plan_worker, transfer);
	/* A trainer that is gone has left its image, in the flow of the areas. */
	bool staged = e->staged &&
		      (holds ? w && area_holds(w, transfer) : !is_fed(e, plan_worker, transfer));

	return flow_get(e, transfer, staged, holds);
}

static void stop(struct flow_slot *x)
{
	wb_flow_stop(x->flow);
	x->is_stopped = true;
}

void wb__transfer_flows_retire(struct object *o, uint64_t below)
{
	for_flow (o, x)
		if (!x->is_stopped && wb_flow_transfer(x->flow) < below)
			stop(x);
}

static bool in_use(const struct object *o, const struct flow_slot *x)
{
	if (o->trainers.flow == x->flow)
		return true;
	for (uint32_t en = 0; en < x->e->r->n_engine; en++)
		if (x->e->party[en].flow == x->flow && x->e->party[en].state != PARTY_NONE)
			return true;
	return false;
}

void wb__transfer_flow_stop(struct object *o, const struct wb_flow *f)
{
	for_flow (o, x)
		if (x->flow == f && !x->is_stopped && !in_use(o, x))
			stop(x);
}

static bool is_held(const struct flow_slot *x)
{
	for (uint32_t w = 0; w < x->e->local->n; w++)
		if (x->e->member[w] &&
			(x->e->member[w]->held_transfer == wb_flow_transfer(x->flow) ||
				wb__transfer_keeps(x->e->member[w], wb_flow_transfer(x->flow))))
			return true;
	return false;
}

void wb__transfer_flows_prune(struct object *o, uint64_t below)
{
	for_flow (o, x)
		if (!x->is_stopped && wb_flow_transfer(x->flow) < below && !in_use(o, x) &&
			!is_held(x))
			stop(x);
	wb__transfer_flows_reap(o);
}

void wb__transfer_stop_kept_flows(struct object *o, const struct epoch *e)
{
	for_flow (o, x)
		if ((!e || x->e == e) && !x->is_stopped && !in_use(o, x))
			stop(x);
	wb__transfer_flows_reap(o);
}

/* Does the flow still touch the worker's memory? */
static bool touches(const struct flow_slot *x, const struct worker *w)
{
	for (uint32_t i = 0; i < x->e->local->n; i++)
		if (x->e->member[i] == w && wb_flow_uses(x->flow, i))
			return true;
	return false;
}

bool wb__transfer_flows_use(const struct worker *w)
{
	if (!w->obj)
		return false;
	for_flow (w->obj, x)
		if (touches(x, w))
			return true;
	return false;
}

/* The others may still need the flow (another engine of this pod, a feed), so only the worker's
 * part ends; the flow forgets the worker's memory when the flow is idle. */
static void drop_worker(struct flow_slot *x, const struct worker *w)
{
	const struct epoch *e = x->e;
	bool others = false, known = false, serves = false;

	for (uint32_t i = 0; i < e->local->n; i++) {
		if (e->member[i] == w && wb_flow_image_is_whole(x->flow, i)) {
			serves = true; /* what it had to send is here */
		} else if (e->member[i] == w) {
			known = true;
			wb_flow_close_source(x->flow, i);
			wb_flow_drop_sink(x->flow, i);
		} else {
			others |= e->member[i] && !e->member[i]->gone;
		}
	}
	if (known && !others && !serves && !x->is_stopped)
		stop(x);
}

void wb__transfer_flows_drop_worker(struct object *o, const struct worker *w)
{
	for_flow (o, x)
		drop_worker(x, w);
}

/* Those that still point to the flow must not touch it: its workers are gone, or it was
 * overtaken. */
static void forget_flow(struct object *o, const struct wb_flow *f)
{
	if (o->trainers.flow == f)
		o->trainers.flow = NULL;
	for (int k = 0; k < 2; k++) {
		struct epoch *e = k ? o->prev : o->cur;

		for (uint32_t en = 0; e && en < e->r->n_engine; en++)
			if (e->party[en].flow == f)
				e->party[en].flow = NULL;
	}
}

void wb__transfer_flows_reap(struct object *o)
{
	for_flow (o, x)
		if (x->is_stopped && wb_flow_is_idle(x->flow)) {
			forget_flow(o, x->flow);
			wb_flow_destroy(x->flow);
			*x = (struct flow_slot){0};
		}
}

static bool is_quiet(const struct flow_slot *x, const struct worker *w, bool cut)
{
	int32_t at = -1;

	for (uint32_t j = 0; j < x->e->local->n; j++)
		if (x->e->member[j] == w)
			at = (int32_t)j;
	if (at < 0)
		return true;
	wb_flow_close_source(x->flow, (uint32_t)at);
	if (!wb_flow_uses(x->flow, (uint32_t)at))
		return true;
	if (cut)
		wb_flow_cut_worker(x->flow, (uint32_t)at);
	return false;
}

bool wb__transfer_flows_quiet(
	struct epoch *e, uint32_t engine, uint64_t transfer, enum quiet what, bool cut)
{
	bool quiet = true;

	for_flow (e->obj, x) {
		if (wb_flow_transfer(x->flow) >= transfer || x->is_staged != (what == QUIET_AREAS))
			continue;
		for_party_worker (e, engine, i)
			quiet &= is_quiet(x, e->member[i], cut);
	}
	return quiet;
}
