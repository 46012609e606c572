/* SPDX-License-Identifier: Apache-2.0 */
/* Bulk connections to the other agents of an epoch: dialled on first need, given up by name. */
#include "transfer/link.h"

#include "transfer/epoch.h"
#include "transfer/object.h"

#include <errno.h>
#include <stdio.h>

#define RAILS_NARROW 2 /* so many rails the common window of grants keeps busy */

/* ---- life ------------------------------------------------------------------------------------ */

/* Workers that have the same rails as an earlier one of their agent belong to its set. */
static void find_sets(struct epoch *e)
{
	const struct wb_plan_worker *w = e->plan->worker;
	struct links *l = &e->links;

	for (uint32_t i = 0; i < e->plan->n_worker; i++) {
		uint32_t k = 0;

		while (k < i && (w[k].domain != w[i].domain ||
					e->r->worker[k].rails != e->r->worker[i].rails))
			k++;
		l->set[i] = k < i ? l->set[k] : l->n_set[w[i].domain]++;
	}
}

static struct link *link_of(const struct epoch *e, uint32_t dst, uint32_t src)
{
	const struct links *l = &e->links;
	uint32_t a = e->plan->worker[src].domain;

	return &l->link[l->first[a] + l->set[dst] * l->n_set[a] + l->set[src]];
}

static void name_ends(struct epoch *e)
{
	for (uint32_t i = 0; i < e->local->n; i++)
		for (uint32_t src = 0; src < e->plan->n_worker; src++) {
			uint32_t dst = e->local->member[i].plan_worker;
			struct link *l = link_of(e, dst, src);

			l->agent = e->plan->worker[src].domain;
			l->here = e->r->worker[dst].rails;
			l->there = e->r->worker[src].rails;
		}
}

/* Does the plan lend rails of one worker of this agent for what another one gets? */
static bool lends(const struct epoch *e)
{
	for (uint32_t i = 0; i < e->plan->n_route; i++) {
		const struct wb_route *r = &e->plan->route[i];

		if (r->dst_rail != r->dst && e->plan->worker[r->dst].domain == e->me)
			return true;
	}
	return false;
}

int wb__transfer_links_create(struct epoch *e)
{
	struct links *l = &e->links;

	l->first = wb_zalloc(e->r->n_agent, sizeof(*l->first));
	l->n_set = wb_zalloc(e->r->n_agent, sizeof(*l->n_set));
	l->set = wb_zalloc(e->plan->n_worker, sizeof(*l->set));
	if (!l->first || !l->n_set || !l->set)
		return -ENOMEM;
	find_sets(e);
	l->lends = lends(e);
	for (uint32_t a = 0; a < e->r->n_agent; a++) {
		l->first[a] = l->n;
		l->n += l->n_set[e->me] * l->n_set[a];
	}
	l->link = wb_zalloc(l->n, sizeof(*l->link));
	l->listed = wb_zalloc(l->n, sizeof(*l->listed));
	if (!l->link || !l->listed)
		return -ENOMEM;
	name_ends(e);
	return 0;
}

void wb__transfer_links_finish(struct epoch *e)
{
	struct links *l = &e->links;

	wb_free(l->link);
	wb_free(l->first);
	wb_free(l->n_set);
	wb_free(l->set);
	wb_free(l->listed);
	*l = (struct links){0};
}

uint32_t wb__transfer_links_window(const struct epoch *e)
{
	uint32_t most = 0;

	if (e->obj->core->o.window)
		return e->obj->core->o.window;
	for (uint32_t i = 0; i < e->local->n; i++) {
		uint32_t rails = e->r->worker[e->local->member[i].plan_worker].rails;

		most = WB_MAX(
			most, rails ? (uint32_t)__builtin_popcount(rails) : e->obj->core->o.n_rail);
	}
	return most > RAILS_NARROW ? 2 * most : 0; /* the window is refilled by halves */
}

/* ---- dialling -------------------------------------------------------------------------------- */

/* A link that was never up tries the peer's next address.  "Nobody listens there" is an answer,
 * silence is none. */
static void failed(struct epoch *e, struct link *l, int code)
{
	uint32_t n = e->r->agent[l->agent].n_addr;

	if (code != -ECONNREFUSED)
		l->nobody_ns = 0;
	else if (!l->nobody_ns)
		l->nobody_ns = now_ns(e->obj->core);
	if (l->up || n < 2)
		return;
	l->at = (l->at + 1) % n;
	if (l->at) /* the other address has not been asked yet: no reason to wait */
		l->retry_ns = 0;
}

/* How many grants the workers that share the link have out at most, of both kinds: exchanges leave
 * as many to receives (flow/internal.h).  Rails that are lent may be used by any worker. */
static uint32_t depth_of(const struct epoch *e, const struct link *l)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < e->local->n; i++)
		n += e->links.lends ||
		     e->r->worker[e->local->member[i].plan_worker].rails == l->here;
	return WB_MIN(
		WB_XPORT_DEPTH, n * WB_MAX(WB_FLOW_GRANTS_MAX, 2 * wb__transfer_links_window(e)));
}

static void dial(struct epoch *e, struct link *l)
{
	struct wb_transfer_core *c = e->obj->core;
	const struct wb_roster_agent *to = &e->r->agent[l->agent];
	const char *all = l->at && to->n_addr ? to->more_bulk[l->at - 1] : to->bulk;
	char endpoint[WB_XPORT_ENDPOINT_MAX];
	struct wb_xport_peer peer = {.name = to->name,
		.endpoint = endpoint,
		.epoch = &e->r->id,
		.rails = l->here,
		.depth = l->here ? depth_of(e, l) : 0};
	int rc;

	l->backoff_ns = l->backoff_ns ? WB_MIN(l->backoff_ns * 2, TRANSFER_RETRY_MAX_NS)
				      : TRANSFER_RETRY_MIN_NS;
	/* A trainer that is gone was everybody's source: they must not all dial at once. */
	l->retry_ns = now_ns(c) + wb_apart_ns(l->backoff_ns, wb_rng_u64(&c->dials));
	rc = wb_xport_endpoint_of(all, l->there, endpoint, sizeof(endpoint));
	if (rc == 0)
		rc = wb_xport_connect(c->env->xport, &peer, &l->conn, NULL);
	if (rc < 0) {
		l->conn = 0;
		failed(e, l, rc);
	}
}

static void list(struct epoch *e, struct link *l)
{
	l->is_wanted = true;
	if (!l->is_listed)
		e->links.listed[e->links.n_listed++] = (uint32_t)(l - e->links.link);
	l->is_listed = true;
}

wb_conn_t wb__transfer_link_conn(struct epoch *e, uint32_t dst, uint32_t src, bool may_miss)
{
	struct link *l = link_of(e, dst, src);
	const struct wb_roster_agent *to = &e->r->agent[l->agent];

	if (l->up)
		return l->conn;
	if (!may_miss)
		list(e, l);
	if (!l->conn && now_ns(e->obj->core) >= l->retry_ns && !to->is_absent && !to->is_foreign)
		dial(e, l);
	return 0;
}

void wb__transfer_link_up(struct epoch *e, wb_conn_t conn)
{
	for (uint32_t i = 0; i < e->links.n; i++) {
		struct link *l = &e->links.link[i];

		if (l->conn != conn)
			continue;
		l->up = true;
		l->is_unknown = false;
		l->wanted_ns = l->nobody_ns = 0;
		l->backoff_ns = 0;
		for_flow (e->obj, x)
			if (x->e == e && !x->is_stopped)
				wb_flow_conn_up(x->flow, l->agent);
	}
}

/* A worker that later waits in vain says what became of the connection. */
static void note_loss(const struct object *o, struct link *l, const struct wb_xport_event *ev)
{
	if (l->lost_transfer != o->highest)
		l->n_lost = 0;
	l->lost_transfer = o->highest;
	l->n_lost++;
	snprintf(l->lost, sizeof(l->lost), "%s", ev->reason ? ev->reason : wb_strerror(ev->code));
}

void wb__transfer_link_down(struct epoch *e, const struct wb_xport_event *ev)
{
	for (uint32_t i = 0; i < e->links.n; i++) {
		struct link *l = &e->links.link[i];

		if (l->conn != ev->conn)
			continue;
		l->conn = 0;
		if (ev->has_other)
			l->retry_ns = 0;
		else
			failed(e, l, ev->code);
		l->up = false;
		l->is_unknown = ev->code == WB_ESTALE && !ev->has_other;
		note_loss(e->obj, l, ev);
		wb__transfer_trace(e->obj, "connection lost", e->r->agent[l->agent].name, 0,
			(uint64_t)-ev->code);
	}
}

/* ---- in vain --------------------------------------------------------------------------------- */

/* What workers whose rails cannot be reached would have sent comes from others, or not at all:
 * nobody waits for the deadline of the whole transfer. */
static void lose_workers(struct epoch *e, const struct link *l)
{
	struct object *o = e->obj;

	wb__transfer_trace(o, "cannot be reached", e->r->agent[l->agent].name, o->highest, 0);
	for_flow (o, x)
		for (uint32_t w = 0; x->e == e && !x->is_stopped && w < e->plan->n_worker; w++)
			if (e->plan->worker[w].domain == l->agent &&
				e->r->worker[w].rails == l->there)
				wb_flow_lose_worker(x->flow, w);
}

static uint64_t link_tick(struct epoch *e, struct link *l, uint64_t now)
{
	/* The peer began anew: nobody is told of a plan when a newer one is active. */
	bool in_vain = l->is_unknown && e == e->obj->prev && e->obj->cur->is_active;
	uint64_t patience = e->r->patience_ns;

	if (!l->is_wanted) {
		l->wanted_ns = 0;
		l->is_listed = false;
		return 0;
	}
	l->is_wanted = false;
	if (!l->wanted_ns)
		l->wanted_ns = now;
	in_vain |= l->nobody_ns && now >= l->nobody_ns + TRANSFER_NOBODY_NS;
	if (in_vain || now >= l->wanted_ns + patience) {
		l->wanted_ns = l->nobody_ns = 0;
		lose_workers(e, l);
		return now + WB_NS_PER_MS;
	}
	/* While it is dialled, an event says how that ends. */
	return l->conn ? l->wanted_ns + patience
		       : WB_MIN(l->wanted_ns + patience, WB_MAX(l->retry_ns, now + 1));
}

/* Look at the links that are listed, which may become more meanwhile. */
static uint64_t epoch_tick(struct epoch *e, uint64_t now)
{
	struct links *l = &e->links;
	uint64_t next = 0;

	for (uint32_t i = 0; i < l->n_listed;) {
		struct link *x = &l->link[l->listed[i]];

		next = sooner(next, link_tick(e, x, now));
		if (x->is_listed)
			i++;
		else
			l->listed[i] = l->listed[--l->n_listed];
	}
	return next;
}

uint64_t wb__transfer_links_tick(struct object *o, uint64_t now)
{
	uint64_t next = o->cur ? epoch_tick(o->cur, now) : 0;

	return o->prev ? sooner(next, epoch_tick(o->prev, now)) : next;
}
