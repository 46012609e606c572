/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer/internal.h"

#include "base/log.h"
#include "lane/lane.h"
#include "proto/peers.h"
#include "transfer/ballot.h"
#include "transfer/coordinator.h"
#include "transfer/doubt.h"
#include "transfer/epoch.h"
#include "transfer/flows.h"
#include "transfer/hears.h"
#include "transfer/lead.h"
#include "transfer/link.h"
#include "transfer/object.h"
#include "transfer/party.h"
#include "transfer/resume.h"
#include "transfer/trainers.h"
#include "transfer/wire.h"
#include "transfer/worker.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int wb_transfer_create(const struct wb_transfer_opts *o, const struct wb_transfer_env *env,
	struct wb_transfer_core **out, struct wb_err *err)
{
	struct wb_transfer_core *c = wb_zalloc(1, sizeof(*c));

	if (!c)
		return wb_err_set(err, -ENOMEM, "no memory for the agent's core");
	c->o = *o;
	c->env = env;
	c->self_tail = &c->self_head;
	c->agent = wb_strdup(o->agent);
	c->dials.state = wb_hash64(o->agent, strlen(o->agent), 0);
	c->orphan = wb_zalloc(TRANSFER_ORPHANS_MAX, sizeof(*c->orphan));
	if (!c->agent || !c->orphan) {
		wb_transfer_destroy(c);
		return wb_err_set(err, -ENOMEM, "no memory for the agent's core");
	}
	*out = c;
	return 0;
}

int wb_transfer_set_arena(
	struct wb_transfer_core *c, const struct wb_object_id *object, void *arena, size_t bytes)
{
	uint32_t i = 0;

	/* The object's arena, or another object's whose memory goes on to this object. */
	while (i < c->n_arena && !wb_object_id_eq(&c->arena[i].object, object) &&
		c->arena[i].base != arena)
		i++;
	if (i == TRANSFER_ARENAS_MAX)
		return -ENOSPC;
	c->arena[i].object = *object;
	c->arena[i].base = arena;
	c->arena[i].bytes = bytes;
	c->n_arena = WB_MAX(c->n_arena, i + 1);
	return 0;
}

void wb_transfer_destroy(struct wb_transfer_core *c)
{
	if (!c)
		return;
	while (c->objects) {
		struct object *next = c->objects->next;

		wb__transfer_object_destroy(c->objects);
		c->objects = next;
	}
	for (uint32_t i = 0; i < c->n_worker; i++)
		wb_free(c->worker[i]);
	while (c->self_head) {
		struct loop_msg *next = c->self_head->next;

		wb_free(c->self_head->bytes);
		wb_free(c->self_head);
		c->self_head = next;
	}
	wb_free(c->conn);
	wb_buf_finish(&c->digest.page);
	wb_free(c->orphan);
	wb_free(c->agent);
	wb_free(c);
}

/* ---- workers ------------------------------------------------------------------------------ */

struct worker *wb__transfer_worker(const struct wb_transfer_core *c, uint32_t id)
{
	for (uint32_t i = 0; i < c->n_worker; i++)
		if (c->worker[i]->w.id == id)
			return c->worker[i];
	return NULL;
}

int wb_transfer_attach(
	struct wb_transfer_core *c, const struct wb_transfer_worker *w, struct wb_err *err)
{
	struct worker *n;

	if (c->n_worker == TRANSFER_WORKERS_MAX)
		return wb_err_set(
			err, -ENOSPC, "this agent has %d workers already", TRANSFER_WORKERS_MAX);
	n = wb_zalloc(1, sizeof(*n));
	if (!n)
		return wb_err_set(err, -ENOMEM, "no memory for a worker");
	n->w = *w;
	n->held_version = -1;
	n->past = w->past;
	c->worker[c->n_worker++] = n;
	return 0;
}

/* A flow reads or writes the memory of a worker as long as one of its flights uses the lane or the
 * wire; flows of the worker's object are stopped or lose the worker, whose memory is free when they
 * are idle. */
bool wb_transfer_is_detached(struct wb_transfer_core *c, uint32_t worker)
{
	struct worker *w = wb__transfer_worker(c, worker);

	if (!w)
		return true;
	if (wb__transfer_flows_use(w))
		return false;
	for (struct object *o = c->objects; o; o = o->next) {
		wb__transfer_epoch_forget(o->cur, w);
		wb__transfer_epoch_forget(o->prev, w);
	}
	for (uint32_t i = 0; i < c->n_worker; i++)
		if (c->worker[i] == w)
			c->worker[i] = c->worker[--c->n_worker];
	wb_free(w);
	return true;
}

bool wb_transfer_detach(struct wb_transfer_core *c, uint32_t worker, const char *why)
{
	struct worker *w = wb__transfer_worker(c, worker);
	struct object *o = w ? w->obj : NULL;

	if (!w)
		return true;
	w->gone = true;
	if (o) {
		if (w->w.role == WB_ROLE_TRAINER)
			wb__transfer_trainers_worker_lost(w, why ? why : "left");
		else
			wb__transfer_party_worker_lost(w, why ? why : "left");
		/* Nobody can read any more what the worker held: end flows that know its memory. */
		wb__transfer_flows_drop_worker(o, w);
		wb__transfer_flows_reap(o);
		for (int k = 0; k < 2; k++)
			if (k ? o->prev : o->cur)
				wb__transfer_orphans_refuse(k ? o->prev : o->cur);
	}
	wb__transfer_drain_self(c);
	return wb_transfer_is_detached(c, worker);
}

void wb_transfer_set_image(struct wb_transfer_core *c, uint32_t worker, void *base, uint64_t bytes)
{
	struct worker *w = wb__transfer_worker(c, worker);

	if (!w)
		return;
	w->image = base;
	w->image_bytes = bytes;
}

void wb_transfer_set_area(
	struct wb_transfer_core *c, uint32_t worker, const struct wb_transfer_area *a)
{
	struct worker *w = wb__transfer_worker(c, worker);

	if (!w)
		return;
	w->area = *a;
	if (wb_area_state(a->head) == WB_AREA_FILLING)
		wb_area_set(a->head, WB_AREA_EMPTY); /* by an agent that is gone */
	/* Numbers of transfers that were used: everybody else who knew them may be dead. */
	w->seen_transfer = WB_MAX(w->seen_transfer, a->head->transfer);
	w->seen_transfer = WB_MAX(w->seen_transfer, a->head->held_transfer);
	/* If the worker was installing a later transfer, it says itself that it is torn, and its
	 * area does not say so yet. */
	if (!w->held_transfer && !w->past.is_torn) {
		w->held_transfer = a->head->held_transfer;
		w->held_version = a->head->held_version;
	}
}

uint64_t wb_transfer_held(const struct wb_transfer_core *c, uint32_t worker, int64_t *version)
{
	const struct worker *w = wb__transfer_worker(c, worker);

	*version = w && w->held_transfer ? w->held_version : -1; /* a mix is no version */
	return w ? w->held_transfer : 0;
}

struct worker *wb__transfer_worker_of(struct epoch *e, uint32_t plan_worker)
{
	int32_t i = plan_worker < e->plan->n_worker ? e->local->index_of[plan_worker] : -1;

	return i < 0 ? NULL : e->member[i];
}

const char *wb__transfer_worker_name(const struct epoch *e, uint32_t plan_worker)
{
	return plan_worker < e->r->n_worker ? e->r->worker[plan_worker].name : "?";
}

/* ---- messages ----------------------------------------------------------------------------- */

void wb__transfer_trace(
	struct object *o, const char *what, const char *who, uint64_t transfer, uint64_t v)
{
	if (o->core->env->trace)
		o->core->env->trace(o->core->env->ctx, what, who, transfer, v);
}

static void send_self(struct epoch *e, const struct wb_msg_peer *m)
{
	struct wb_transfer_core *c = e->obj->core;
	struct wb_frame frame = {.version = WBP_VERSION_MAX, .type = WBP_PEER};
	struct loop_msg *msg = wb_zalloc(1, sizeof(*msg));
	struct wb_buf b;

	wb_buf_init(&b, 1u << 20);
	if (!msg || wb_msg_encode_bin(&frame, m, &b, NULL) < 0 ||
		wb_buf_take(&b, &msg->bytes, &msg->len) < 0) {
		wb_buf_finish(&b);
		wb_free(msg);
		return;
	}
	msg->epoch = e->r->id;
	*c->self_tail = msg;
	c->self_tail = &msg->next;
}

void wb__transfer_fault(
	const struct object *o, enum wb_fault_place place, uint64_t transfer, int64_t version)
{
	struct wb_fault_at at = {(uint64_t)version, transfer, WB_FAULT_ANY};
	struct wb_fault_hit hit;

	(void)wb_fault_hit(o->core->env->fault, place, &at, &hit);
}

void wb__transfer_send(struct epoch *e, uint32_t agent, const struct wb_msg_peer *m)
{
	union wb_msg out = {.peer = *m};

	assert(wb_peer_check_fields(m, NULL) == 0);
	out.peer.uid = e->r->id.object.text;
	out.peer.term = e->r->id.term;
	out.peer.number = e->r->id.number;
	if (agent == e->me)
		send_self(e, &out.peer);
	else
		wb__transfer_wire_send(e, agent, &out);
}

struct object *wb__transfer_object(const struct wb_transfer_core *c, const struct wb_object_id *id)
{
	struct object *o = c->objects;

	while (o && !wb_object_id_eq(&o->id, id))
		o = o->next;
	return o;
}

struct epoch *wb__transfer_epoch(const struct wb_transfer_core *c, const struct wb_epoch_id *id)
{
	const struct object *o = wb__transfer_object(c, &id->object);

	return o ? wb__transfer_epoch_find(o, id) : NULL;
}

void wb__transfer_drain_self(struct wb_transfer_core *c)
{
	if (c->draining_self)
		return;
	c->draining_self = true;
	while (c->self_head) {
		struct loop_msg *msg = c->self_head;
		struct wb_frame f;
		union wb_msg m;
		const uint8_t *body;
		struct epoch *e;

		c->self_head = msg->next;
		if (!c->self_head)
			c->self_tail = &c->self_head;
		if (wb_frame_check(msg->bytes, msg->len, &f, &body, NULL) == 0 &&
			wb_msg_decode_bin(&f, body, &m, NULL) == 0) {
			e = wb__transfer_epoch(c, &msg->epoch);
			if (e)
				wb__transfer_hear(e, e->me, &m.peer);
			wb_msg_free(WBP_PEER, &m);
		}
		wb_free(msg->bytes);
		wb_free(msg);
	}
	c->draining_self = false;
#ifdef WB_DEBUG
	wb__transfer_check(c);
#else
	if (c->o.is_checked)
		wb__transfer_check(c);
#endif
}

/* @agent is lost for transfers up to @upto. */
static void peer_lost(struct epoch *e, uint32_t agent, uint64_t upto, const char *why)
{
	wb__transfer_coordinator_agent_down(e, agent, upto, why);
	wb__transfer_lead_agent_down(e, agent, upto, why);
	wb__transfer_party_lead_down(e, agent, upto, why);
}

/* The peer has called us down, maybe long ago, and what it said meanwhile is lost.  What was asked
 * of it since then is asked again. */
static void on_gap(struct epoch *e, uint32_t agent, uint64_t upto)
{
	static const char why[] = "messages of it were lost";
	const struct trainers *t = &e->obj->trainers;

	peer_lost(e, agent, upto, why);
	if (t->state != TRAINERS_ASKED && t->transfer <= upto)
		wb__transfer_trainers_coordinator_down(e, agent, false, why);
}

void wb_transfer_peer_msg(struct wb_transfer_core *c, const struct wb_epoch_id *id, uint32_t from,
	const struct wb_msg_peer *m)
{
	struct epoch *e = wb__transfer_epoch(c, id);
	bool has_gap, is_next;

	if (!e || from >= e->r->n_agent)
		return;
	is_next = wb__transfer_wire_take(e, from, m, &has_gap);
	if (has_gap)
		on_gap(e, from, m->skipped ? m->skipped : UINT64_MAX);
	if (is_next)
		wb__transfer_hear(e, from, m);
	if (has_gap)
		wb__transfer_trainers_ask_again(e, from);
	wb__transfer_drain_self(c);
}

/* A peer that does not answer reads nothing either, and what was to be sent to it holds slots that
 * others need.  If it is alive it dials again. */
static void hang_up(struct epoch *e, uint32_t agent)
{
	struct wb_transfer_core *c = e->obj->core;

	for (size_t i = 0; i < c->n_conn; i++)
		if (c->conn[i].e == e && c->conn[i].agent == agent)
			(void)wb_xport_disconnect(c->env->xport, c->conn[i].conn);
}

void wb_transfer_peer_down(
	struct wb_transfer_core *c, const struct wb_epoch_id *id, uint32_t agent, const char *why)
{
	struct epoch *e = wb__transfer_epoch(c, id);
	bool unheard;

	if (!e || agent >= e->r->n_agent)
		return;
	hang_up(e, agent);
	unheard = wb__transfer_trainers_unheard(e, agent);
	wb__transfer_wire_down(&e->wire[agent], e->obj->highest, now_ns(c));
	peer_lost(e, agent, UINT64_MAX, why);
	wb__transfer_trainers_coordinator_down(e, agent, unheard, why);
	wb__transfer_orphans_refuse(e);
	wb__transfer_drain_self(c);
}

void wb_transfer_worker_msg(
	struct wb_transfer_core *c, uint32_t worker, uint16_t type, const void *msg)
{
	struct worker *w = wb__transfer_worker(c, worker);

	if (!w || w->gone)
		return;
	if (type == WBP_APP_SEND && w->w.role == WB_ROLE_TRAINER) {
		const struct wb_msg_app_send *m = msg;

		wb__transfer_trainers_send(w, m->version, m->flags);
	} else if (type == WBP_APP_RELEASE && w->w.role == WB_ROLE_TRAINER && w->obj)
		wb__transfer_trainers_release(
			w, ((const struct wb_msg_app_release *)msg)->transfer);
	else if (w->w.role == WB_ROLE_ROLLOUT)
		wb__transfer_party_worker(w, type, msg);
	wb__transfer_drain_self(c);
}

/* ---- transport and lanes ------------------------------------------------------------------- */

/* The place of @conn, or where it would be: connections are in the order of their numbers. */
static size_t conn_at(const struct wb_transfer_core *c, wb_conn_t conn)
{
	size_t from = 0, to = c->n_conn;

	while (from < to) {
		size_t i = from + (to - from) / 2;

		if (c->conn[i].conn < conn)
			from = i + 1;
		else
			to = i;
	}
	return from;
}

static struct epoch *epoch_of_conn(struct wb_transfer_core *c, wb_conn_t conn)
{
	size_t i = conn_at(c, conn);

	return i < c->n_conn && c->conn[i].conn == conn ? c->conn[i].e : NULL;
}

static uint32_t agent_named(const struct epoch *e, const char *name)
{
	uint32_t i = 0;

	while (i < e->r->n_agent && strcmp(e->r->agent[i].name, name))
		i++;
	return i;
}

static void conn_up(struct wb_transfer_core *c, const struct wb_xport_event *ev)
{
	struct epoch *e = wb__transfer_epoch(c, &ev->info->epoch);
	size_t i = conn_at(c, ev->conn);

	if (!e || wb_grow(&c->conn, &c->cap_conn, c->n_conn + 1, WB_XPORT_CONNS_MAX,
			  sizeof(*c->conn)) < 0) {
		(void)wb_xport_disconnect(c->env->xport, ev->conn);
		return;
	}
	memmove(&c->conn[i + 1], &c->conn[i], (c->n_conn++ - i) * sizeof(*c->conn));
	c->conn[i].conn = ev->conn;
	c->conn[i].agent = agent_named(e, ev->info->peer);
	c->conn[i].is_dialer = ev->info->is_dialer;
	c->conn[i].via = ev->info->via ? ev->info->via : "";
	c->conn[i].e = e;
	wb__transfer_link_up(e, ev->conn);
}

static void conn_down(struct wb_transfer_core *c, const struct wb_xport_event *ev)
{
	size_t at = conn_at(c, ev->conn);

	WB_LOG_INFO("bulk", "connection ended", WB_S("peer", ev->info ? ev->info->peer : "?"),
		WB_S("reason", ev->reason ? ev->reason : wb_strerror(ev->code)));
	if (at < c->n_conn && c->conn[at].conn == ev->conn)
		memmove(&c->conn[at], &c->conn[at + 1], (--c->n_conn - at) * sizeof(*c->conn));
	for (struct object *o = c->objects; o; o = o->next)
		for_flow (o, x)
			wb_flow_conn_down(x->flow, ev->conn);
	for (struct object *o = c->objects; o; o = o->next)
		for (int k = 0; k < 2; k++)
			if (k ? o->prev : o->cur)
				wb__transfer_link_down(k ? o->prev : o->cur, ev);
	for (uint32_t i = 0; i < c->n_orphan; i++)
		if (c->orphan[i].ev.conn == ev->conn)
			c->orphan[i--] = c->orphan[--c->n_orphan];
}

/* Will @plan_worker never send anything of this transfer any more?  If the transfer has not begun
 * here yet it may still, as long as the worker, its engine's lead, and the coordinator are
 * there. */
static bool is_over(struct epoch *e, uint32_t plan_worker, uint64_t transfer)
{
	const struct wb_plan_worker *w;
	const struct worker *here;
	const struct party *p;

	if (transfer < e->obj->highest || plan_worker >= e->plan->n_worker)
		return true;
	here = wb__transfer_worker_of(e, plan_worker);
	if (!here || here->gone)
		return true;
	w = &e->plan->worker[plan_worker];
	if (w->role == WB_ROLE_TRAINER)
		return transfer <= e->served || transfer <= e->seen;
	p = &e->party[w->engine];
	if (transfer == p->transfer)
		return p->state == PARTY_NONE;
	return transfer < p->transfer || transfer <= e->seen ||
	       e->wire[e->r->engine[w->engine].lead].is_down || e->wire[e->r->coordinator].is_down;
}

static void on_grant(struct wb_transfer_core *c, const struct wb_xport_event *ev)
{
	struct epoch *e = epoch_of_conn(c, ev->conn);
	struct wb_flow *f;

	/* As with messages: a peer that receives under a plan has heard that it is active. */
	if (e)
		wb__transfer_activate(e);
	f = e ? wb__transfer_flow_source(e, ev->chunk.src, ev->chunk.transfer) : NULL;

	if (f) {
		wb_flow_on_grant(f, ev);
	} else if (!e || is_over(e, ev->chunk.src, ev->chunk.transfer)) {
		(void)wb_xport_refuse(c->env->xport, ev->conn, ev->grant, e ? WB_ESTALE : -EINVAL);
	} else if (c->n_orphan == TRANSFER_ORPHANS_MAX) {
		(void)wb_xport_refuse(c->env->xport, ev->conn, ev->grant, -EBUSY);
	} else {
		c->orphan[c->n_orphan++] = (struct orphan){
			.ev = *ev, .e = e, .until_ns = now_ns(c) + e->r->transfer_deadline_ns};
	}
}

void wb__transfer_orphans_refuse(struct epoch *e)
{
	struct wb_transfer_core *c = e->obj->core;

	for (uint32_t i = 0; i < c->n_orphan; i++) {
		const struct wb_xport_event *ev = &c->orphan[i].ev;

		if (c->orphan[i].e != e || !is_over(e, ev->chunk.src, ev->chunk.transfer))
			continue;
		(void)wb_xport_refuse(c->env->xport, ev->conn, ev->grant, WB_ESTALE);
		c->orphan[i--] = c->orphan[--c->n_orphan];
	}
}

static void grant_gone(struct wb_transfer_core *c, const struct wb_xport_event *ev)
{
	for (struct object *o = c->objects; o; o = o->next)
		for_flow (o, x)
			wb_flow_grant_gone(x->flow, ev->conn, ev->grant);
	for (uint32_t i = 0; i < c->n_orphan; i++)
		if (c->orphan[i].ev.conn == ev->conn && c->orphan[i].ev.grant == ev->grant)
			c->orphan[i--] = c->orphan[--c->n_orphan];
}

static void on_event(struct wb_transfer_core *c, const struct wb_xport_event *ev)
{
	switch (ev->kind) {
	case WB_XP_CONN_UP:
		conn_up(c, ev);
		break;
	case WB_XP_CONN_DOWN:
		conn_down(c, ev);
		break;
	case WB_XP_GRANT:
		on_grant(c, ev);
		break;
	case WB_XP_GRANT_GONE:
		grant_gone(c, ev);
		break;
	case WB_XP_REJECTED:
		WB_LOG_WRN("bulk", "connection refused", WB_S("reason", ev->reason));
		break;
	default:
		wb_flow_on_xport(ev);
	}
}

static bool pump_once(struct wb_transfer_core *c)
{
	struct wb_xport_event ev[64];
	struct wb_lane_job job[32];
	bool any = false;
	int n = wb_xport_poll(c->env->xport, ev, WB_ARRAY_SIZE(ev));

	any |= n > 0;
	for (int i = 0; i < n; i++)
		on_event(c, &ev[i]);
	for (uint32_t w = 0; w < c->n_worker; w++) {
		n = wb_lane_reap(c->worker[w]->w.lane, job, WB_ARRAY_SIZE(job));
		any |= n > 0;
		for (int i = 0; i < n; i++)
			wb_flow_on_lane(&job[i]);
		if (!c->worker[w]->area.lane || c->worker[w]->area.lane == c->worker[w]->w.lane)
			continue;
		n = wb_lane_reap(c->worker[w]->area.lane, job, WB_ARRAY_SIZE(job));
		any |= n > 0;
		for (int i = 0; i < n; i++)
			wb_flow_on_lane(&job[i]);
	}
	return any;
}

void wb_transfer_pump(struct wb_transfer_core *c)
{
	while (pump_once(c))
		;
	for (struct object *o = c->objects; o; o = o->next)
		wb__transfer_flows_reap(o);
	wb__transfer_drain_self(c);
}

uint64_t wb_transfer_tick(struct wb_transfer_core *c)
{
	uint64_t now = now_ns(c), next = 0;

	for (uint32_t i = 0; i < c->n_orphan; i++)
		if (now >= c->orphan[i].until_ns) {
			(void)wb_xport_refuse(c->env->xport, c->orphan[i].ev.conn,
				c->orphan[i].ev.grant, WB_ESTALE);
			c->orphan[i--] = c->orphan[--c->n_orphan];
		}
	wb__transfer_forget_deleted(c);
	/* Parties come before leads: if this process was held up past both deadlines, a party says
	 * what is missing, and its lead only that something is. */
	for (struct object *o = c->objects; o; o = o->next)
		next = sooner(next, wb__transfer_party_tick(o, now));
	wb__transfer_drain_self(c);
	for (struct object *o = c->objects; o; o = o->next) {
		next = sooner(next, wb__transfer_digest_tick(o, now));
		next = sooner(next, wb__transfer_wire_tick(o, now));
		next = sooner(next, wb__transfer_coordinator_tick(o, now));
		next = sooner(next, wb__transfer_lead_tick(o, now));
		next = sooner(next, wb__transfer_ballot_tick(o, now));
		next = sooner(next, wb__transfer_repair_tick(o, now));
		next = sooner(next, wb__transfer_doubt_tick(o, now));
		next = sooner(next, wb__transfer_trainers_tick(o, now));
		next = sooner(next, wb__transfer_keep_tick(o, now));
		for_flow (o, x)
			if (!x->is_stopped)
				next = sooner(next, wb_flow_tick(x->flow, now));
		next = sooner(next, wb__transfer_links_tick(o, now));
		wb__transfer_flows_reap(o);
		next = sooner(next, wb__transfer_epoch_tick(o, now));
	}
	wb__transfer_drain_self(c);
	return next;
}
