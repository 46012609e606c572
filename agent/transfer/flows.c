/* SPDX-License-Identifier: Apache-2.0 */
/* The flows of an object: made on first need, kept while somebody may read from them. */
#include "transfer/internal.h"

#include <errno.h>
#include <string.h>

static struct epoch *epoch_of_flow(struct epoch *e, const struct wb_flow *f)
{
	for (int i = 0; i < CORE_FLOWS_MAX; i++)
		if (e->obj->flow[i] == f)
			return e->obj->flow_epoch[i];
	return e;
}

static wb_conn_t env_conn(void *ctx, uint32_t domain)
{
	struct epoch *e = ctx;
	struct wb_core *c = e->obj->core;
	struct link *l = &e->link[domain];
	const struct wb_roster_agent *to = &e->r.agent[domain];
	struct wb_xport_peer peer;

	if (l->up)
		return l->conn;
	l->is_wanted = true;
	if (l->conn || now_ns(c) < l->retry_ns || to->is_absent || to->is_foreign)
		return 0;
	peer = (struct wb_xport_peer){
		.name = to->name,
		.endpoint = l->at && to->n_addr ? to->more_bulk[l->at - 1] : to->bulk,
		.epoch = e->xp,
	};
	l->backoff_ns =
		l->backoff_ns ? WB_MIN(l->backoff_ns * 2, CORE_RETRY_MAX_NS) : CORE_RETRY_MIN_NS;
	/* A trainer that is gone was everybody's source. */
	l->retry_ns = now_ns(c) + wb_apart_ns(l->backoff_ns, wb_rng_u64(&c->dials));
	if (wb_xport_connect(c->env->xport, &peer, &l->conn, NULL) < 0) {
		l->conn = 0;
		wb__core_link_failed(e, domain);
	}
	return 0;
}

void wb__core_link_failed(struct epoch *e, uint32_t agent)
{
	struct link *l = &e->link[agent];
	uint32_t n = e->r.agent[agent].n_addr;

	if (l->up || n < 2)
		return;
	l->at = (l->at + 1) % n;
	if (l->at) /* the other address has not been asked yet: no reason to wait */
		l->retry_ns = 0;
}

/* What an agent that is not there would have sent comes from others, or not at all: nobody waits
 * for the deadline of the whole transfer. */
static void lose_agent(struct epoch *e, uint32_t agent)
{
	struct object *o = e->obj;

	wb__core_trace(o, "cannot be reached", e->r.agent[agent].name, o->highest, 0);
	for (int i = 0; i < CORE_FLOWS_MAX; i++)
		for (uint32_t w = 0; o->flow[i] && o->flow_epoch[i] == e && !o->flow_stopped[i] &&
				     w < e->plan->n_worker;
			w++)
			if (e->plan->worker[w].domain == agent)
				wb_flow_lose_worker(o->flow[i], w);
}

static uint64_t link_tick(struct epoch *e, uint32_t agent, uint64_t now)
{
	struct link *l = &e->link[agent];
	/* It began anew: nobody is told of a plan when a newer one is active. */
	bool in_vain = l->is_unknown && e == e->obj->prev && e->obj->cur->is_active;

	if (!l->is_wanted) {
		l->wanted_ns = 0;
		return 0;
	}
	l->is_wanted = false;
	if (!l->wanted_ns)
		l->wanted_ns = now;
	if (in_vain || now >= l->wanted_ns + CORE_LINK_NS) {
		l->wanted_ns = 0;
		lose_agent(e, agent);
		return now + WB_NS_PER_MS;
	}
	/* While it is dialled, an event says how that ends. */
	return l->conn ? l->wanted_ns + CORE_LINK_NS
		       : WB_MIN(l->wanted_ns + CORE_LINK_NS, WB_MAX(l->retry_ns, now + 1));
}

uint64_t wb__core_links_tick(struct object *o, uint64_t now)
{
	uint64_t next = 0;

	for (int k = 0; k < 2; k++) {
		struct epoch *e = k ? o->prev : o->cur;

		for (uint32_t a = 0; e && a < e->r.n_agent; a++)
			next = sooner(next, link_tick(e, a, now));
	}
	return next;
}

static bool env_is_foreign(void *ctx, uint32_t domain)
{
	const struct epoch *e = ctx;

	return e->r.agent[domain].is_foreign;
}

static void env_received(void *ctx, struct wb_flow *f, uint32_t local)
{
	wb__core_party_received(epoch_of_flow(ctx, f), f, local);
}

static void env_complete(void *ctx, struct wb_flow *f, uint32_t local)
{
	wb__core_party_complete(epoch_of_flow(ctx, f), f, local);
}

static void env_snapped(void *ctx, struct wb_flow *f, uint32_t local, int rc)
{
	wb__core_trainers_snapped(epoch_of_flow(ctx, f), f, local, rc);
}

/* Said by name; counted by whoever is told. */
static void env_mismatch(void *ctx, struct wb_flow *f, const struct wb_flow_mismatch *m)
{
	struct epoch *e = epoch_of_flow(ctx, f);
	const struct wb_core_env *env = e->obj->core->env;
	struct wb_core_mismatch out = {.place = wb_flow_place_name(m->place),
		.object = e->obj->name,
		.src = wb__core_worker_name(e, m->src),
		.dst = wb__core_worker_name(e, m->dst),
		.param = m->param,
		.transfer = wb_flow_transfer(f),
		.cls = m->cls,
		.chunk = m->chunk,
		.rail = m->rail,
		.n = 1};

	wb__core_trace(e->obj, "mismatch", out.src, out.transfer, m->chunk);
	if (env->mismatch)
		env->mismatch(env->ctx, &out);
}

static void env_failed(void *ctx, struct wb_flow *f, uint32_t local, const struct wb_err *err)
{
	wb__core_party_failed(epoch_of_flow(ctx, f), f, local, err);
}

int wb__core_flow_env_init(struct epoch *e)
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
	};
	return 0;
}

uint64_t wb__core_seed(const struct object *o, uint64_t transfer)
{
	/* Both sides compute it: an old slot's data fails by its seed. */
	return wb_hash64(o->uid, strlen(o->uid), transfer) | 1;
}

static void adopt_orphans(struct wb_core *c, struct wb_flow *f, struct epoch *e)
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

/* Workers here that hold @transfer are sources from the start; those that are gone never are. */
static void mark_sources(struct epoch *e, struct wb_flow *f, bool staged)
{
	const struct wb_flow *sums = NULL;

	for (int i = 0; i < CORE_FLOWS_MAX; i++)
		if (e->obj->flow[i] && e->obj->flow[i] != f &&
			wb_flow_transfer(e->obj->flow[i]) == wb_flow_transfer(f))
			sums = e->obj->flow[i];
	for (uint32_t i = 0; i < e->local->n; i++)
		if (e->member[i] && e->member[i]->w.role == WB_ROLE_ROLLOUT &&
			e->member[i]->held_transfer == wb_flow_transfer(f) &&
			(!staged || area_holds(e->member[i], wb_flow_transfer(f))))
			wb_flow_mark_installed(f, i, sums);
	for (uint32_t i = 0; i < e->local->n; i++)
		if (!e->member[i] || e->member[i]->gone)
			wb_flow_close_source(f, i);
}

static struct wb_flow *flow_get(struct epoch *e, uint64_t transfer, bool staged, bool make)
{
	struct object *o = e->obj;
	struct wb_flow_opts opts;
	int at = -1;

	for (int i = 0; i < CORE_FLOWS_MAX; i++) {
		if (o->flow[i] && o->flow_epoch[i] == e && !o->flow_stopped[i] &&
			o->flow_staged[i] == staged && wb_flow_transfer(o->flow[i]) == transfer)
			return o->flow[i];
		if (!o->flow[i] && at < 0)
			at = i;
	}
	/* Cut for a newer plan, with smaller chunks? */
	if (!make || at < 0 || e->plan->chunk_bytes > o->slot_bytes)
		return NULL;
	opts = (struct wb_flow_opts){
		.local = staged ? e->staged : e->local,
		.slots = &o->slots,
		.env = &e->fenv,
		.transfer = transfer,
		.sum_seed = wb__core_seed(o, transfer),
		.sums = e->r.sums,
		.read_back = e->r.read_back,
		.window = o->core->o.window,
		.stall_ns = WB_MAX(5 * WB_NS_PER_S, e->r.transfer_deadline_ns / 2),
	};
	if (wb_flow_create(&opts, &o->flow[at], NULL) < 0)
		return NULL;
	o->flow_epoch[at] = e;
	o->flow_stopped[at] = false;
	o->flow_staged[at] = staged;
	mark_sources(e, o->flow[at], staged);
	adopt_orphans(o->core, o->flow[at], e);
	return o->flow[at];
}

const char *wb__core_no_flow(const struct epoch *e)
{
	return e->plan->chunk_bytes > e->obj->slot_bytes
		       ? "its agent has cut its slots for a newer plan, with smaller chunks"
		       : "no memory for the transfer";
}

struct wb_flow *wb__core_flow_get(struct epoch *e, uint64_t transfer, bool make)
{
	return flow_get(e, transfer, e->staged != NULL, make);
}

struct wb_flow *wb__core_flow_direct(struct epoch *e, uint64_t transfer, bool make)
{
	return flow_get(e, transfer, false, make);
}

/* A feed writes parameters, also where transfers fill areas. */
static bool is_fed(const struct epoch *e, uint32_t plan_worker, uint64_t transfer)
{
	const struct wb_plan_worker *w = &e->plan->worker[plan_worker];
	const struct party *p = w->role == WB_ROLE_ROLLOUT ? &e->party[w->engine] : NULL;

	return p && p->state != PARTY_NONE && p->is_feed && p->transfer == transfer;
}

/* What a worker committed may be in its area still, or only in its parameters; what it has not, it
 * receives where its party does. */
struct wb_flow *wb__core_flow_source(struct epoch *e, uint32_t plan_worker, uint64_t transfer)
{
	const struct worker *w = wb__core_worker_of(e, plan_worker);
	bool holds = wb__core_holds(e, plan_worker, transfer);
	/* A trainer that is gone has left its image, in the flow of the areas. */
	bool staged = e->staged &&
		      (holds ? w && area_holds(w, transfer) : !is_fed(e, plan_worker, transfer));

	return flow_get(e, transfer, staged, holds);
}

void wb__core_flows_retire(struct object *o, uint64_t below)
{
	for (int i = 0; i < CORE_FLOWS_MAX; i++)
		if (o->flow[i] && !o->flow_stopped[i] && wb_flow_transfer(o->flow[i]) < below) {
			wb_flow_stop(o->flow[i]);
			o->flow_stopped[i] = true;
		}
}

static bool in_use(const struct object *o, int i)
{
	const struct epoch *e = o->flow_epoch[i];

	if (o->trainers.flow == o->flow[i])
		return true;
	for (uint32_t en = 0; en < e->r.n_engine; en++)
		if (e->party[en].flow == o->flow[i] && e->party[en].state != PARTY_NONE)
			return true;
	return false;
}

static bool is_held(const struct object *o, int i)
{
	const struct epoch *e = o->flow_epoch[i];

	for (uint32_t w = 0; w < e->local->n; w++)
		if (e->member[w] && e->member[w]->held_transfer == wb_flow_transfer(o->flow[i]))
			return true;
	return false;
}

bool wb__core_flow_is_kept(const struct object *o, int flow)
{
	return !in_use(o, flow);
}

void wb__core_flows_prune(struct object *o, uint64_t below)
{
	for (int i = 0; i < CORE_FLOWS_MAX; i++)
		if (o->flow[i] && !o->flow_stopped[i] && wb_flow_transfer(o->flow[i]) < below &&
			!in_use(o, i) && !is_held(o, i)) {
			wb_flow_stop(o->flow[i]);
			o->flow_stopped[i] = true;
		}
	wb__core_flows_reap(o);
}

/* Who still has its name must not touch it: its workers are gone, or it was overtaken. */
static void forget_flow(struct object *o, const struct wb_flow *f)
{
	if (o->trainers.flow == f)
		o->trainers.flow = NULL;
	for (int k = 0; k < 2; k++) {
		struct epoch *e = k ? o->prev : o->cur;

		for (uint32_t en = 0; e && en < e->r.n_engine; en++)
			if (e->party[en].flow == f)
				e->party[en].flow = NULL;
	}
}

void wb__core_flows_reap(struct object *o)
{
	for (int i = 0; i < CORE_FLOWS_MAX; i++)
		if (o->flow[i] && o->flow_stopped[i] && wb_flow_is_idle(o->flow[i])) {
			forget_flow(o, o->flow[i]);
			wb_flow_destroy(o->flow[i]);
			o->flow[i] = NULL;
			o->flow_epoch[i] = NULL;
		}
}

/*
 * Before parameters or areas of an engine change: nobody may be reading them for an older transfer,
 * and nothing of an older one may still land there.  True when quiet; @cut drops the connections
 * (revocation).
 */
bool wb__core_flows_quiet(
	struct epoch *e, uint32_t engine, uint64_t transfer, enum quiet what, bool cut)
{
	struct object *o = e->obj;
	bool quiet = true;

	for (int f = 0; f < CORE_FLOWS_MAX; f++) {
		if (!o->flow[f] || wb_flow_transfer(o->flow[f]) >= transfer ||
			o->flow_staged[f] != (what == QUIET_AREAS))
			continue;
		for_party_worker (e, engine, i) {
			int32_t at = -1;

			for (uint32_t j = 0; j < o->flow_epoch[f]->local->n; j++)
				if (o->flow_epoch[f]->member[j] == e->member[i])
					at = (int32_t)j;
			if (at < 0)
				continue;
			wb_flow_close_source(o->flow[f], (uint32_t)at);
			if (wb_flow_uses(o->flow[f], (uint32_t)at)) {
				quiet = false;
				if (cut)
					wb_flow_cut_worker(o->flow[f], (uint32_t)at);
			}
		}
	}
	return quiet;
}
