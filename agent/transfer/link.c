/* SPDX-License-Identifier: Apache-2.0 */
/* Bulk connections to the other agents of an epoch: dialled on first need, given up by name. */
#include "transfer/link.h"

#include "transfer/epoch.h"
#include "transfer/object.h"

#include <errno.h>
#include <stdio.h>

/* One that was never up: the peer's next address.  That nobody listens is an answer, and silence is
 * none. */
static void failed(struct epoch *e, uint32_t agent, int code)
{
	struct link *l = &e->link[agent];
	uint32_t n = e->r->agent[agent].n_addr;

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

wb_conn_t wb__transfer_link_conn(struct epoch *e, uint32_t agent)
{
	struct wb_transfer_core *c = e->obj->core;
	struct link *l = &e->link[agent];
	const struct wb_roster_agent *to = &e->r->agent[agent];
	struct wb_xport_peer peer;
	int rc;

	if (l->up)
		return l->conn;
	l->is_wanted = true;
	if (l->conn || now_ns(c) < l->retry_ns || to->is_absent || to->is_foreign)
		return 0;
	peer = (struct wb_xport_peer){
		.name = to->name,
		.endpoint = l->at && to->n_addr ? to->more_bulk[l->at - 1] : to->bulk,
		.epoch = &e->r->id,
	};
	l->backoff_ns = l->backoff_ns ? WB_MIN(l->backoff_ns * 2, TRANSFER_RETRY_MAX_NS)
				      : TRANSFER_RETRY_MIN_NS;
	/* A trainer that is gone was everybody's source. */
	l->retry_ns = now_ns(c) + wb_apart_ns(l->backoff_ns, wb_rng_u64(&c->dials));
	rc = wb_xport_connect(c->env->xport, &peer, &l->conn, NULL);
	if (rc < 0) {
		l->conn = 0;
		failed(e, agent, rc);
	}
	return 0;
}

void wb__transfer_link_up(struct epoch *e, wb_conn_t conn)
{
	for (uint32_t a = 0; a < e->r->n_agent; a++) {
		struct link *l = &e->link[a];

		if (l->conn != conn)
			continue;
		l->up = true;
		l->is_unknown = false;
		l->wanted_ns = l->nobody_ns = 0;
		l->backoff_ns = 0;
		for_flow (e->obj, x)
			if (x->e == e && !x->is_stopped)
				wb_flow_conn_up(x->flow, a);
	}
}

/* Who waits in vain later says what became of the connection. */
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
	for (uint32_t a = 0; a < e->r->n_agent; a++) {
		struct link *l = &e->link[a];

		if (l->conn != ev->conn)
			continue;
		l->conn = 0;
		failed(e, a, ev->code);
		l->up = false;
		l->is_unknown = ev->code == WB_ESTALE;
		note_loss(e->obj, l, ev);
		wb__transfer_trace(
			e->obj, "connection lost", e->r->agent[a].name, 0, (uint64_t)-ev->code);
	}
}

/* What an agent that is not there would have sent comes from others, or not at all: nobody waits
 * for the deadline of the whole transfer. */
static void lose_agent(struct epoch *e, uint32_t agent)
{
	struct object *o = e->obj;

	wb__transfer_trace(o, "cannot be reached", e->r->agent[agent].name, o->highest, 0);
	for_flow (o, x)
		for (uint32_t w = 0; x->e == e && !x->is_stopped && w < e->plan->n_worker; w++)
			if (e->plan->worker[w].domain == agent)
				wb_flow_lose_worker(x->flow, w);
}

static uint64_t link_tick(struct epoch *e, uint32_t agent, uint64_t now)
{
	struct link *l = &e->link[agent];
	/* It began anew: nobody is told of a plan when a newer one is active. */
	bool in_vain = l->is_unknown && e == e->obj->prev && e->obj->cur->is_active;
	uint64_t patience = e->r->patience_ns;

	if (!l->is_wanted) {
		l->wanted_ns = 0;
		return 0;
	}
	l->is_wanted = false;
	if (!l->wanted_ns)
		l->wanted_ns = now;
	in_vain |= l->nobody_ns && now >= l->nobody_ns + TRANSFER_NOBODY_NS;
	if (in_vain || now >= l->wanted_ns + patience) {
		l->wanted_ns = l->nobody_ns = 0;
		lose_agent(e, agent);
		return now + WB_NS_PER_MS;
	}
	/* While it is dialled, an event says how that ends. */
	return l->conn ? l->wanted_ns + patience
		       : WB_MIN(l->wanted_ns + patience, WB_MAX(l->retry_ns, now + 1));
}

uint64_t wb__transfer_links_tick(struct object *o, uint64_t now)
{
	uint64_t next = 0;

	for (int k = 0; k < 2; k++) {
		struct epoch *e = k ? o->prev : o->cur;

		for (uint32_t a = 0; e && a < e->r->n_agent; a++)
			next = sooner(next, link_tick(e, a, now));
	}
	return next;
}
