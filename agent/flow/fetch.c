/* SPDX-License-Identifier: Apache-2.0 */
/* Fetches: ask the chosen sources for chunks, install and verify what comes. */
#include "flow/wants.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- starting ----------------------------------------------------------------------------- */

static void observe(void *ctx, const void *data, size_t bytes, uint64_t wire_off)
{
	struct wb_flight *fl = ctx;

	(void)wire_off;
	wb_walk_feed(&fl->walk, data, bytes);
}

static void copy(void *ctx, void *to, const void *from, size_t bytes, uint64_t wire_off)
{
	struct wb_flight *fl = ctx;

	(void)wire_off;
	if (bytes)
		wb_walk_copy(&fl->walk, to, from, bytes);
	else
		wb_walk_copy_end();
}

static int landing(struct wb_flight *fl, enum wb_pool pool)
{
	struct wb_flow *f = fl->flow;
	int n_all, shape;

	n_all = wb_local_boxes(
		f->local, fl->worker, fl->cls, fl->chunk, true, fl->box, fl->scratch);
	shape = wb__flow_flight_shape(fl, false);
	if (n_all < 0 || shape < 0)
		return n_all < 0 ? n_all : shape;
	if (shape == 1 && n_all == (int)fl->n_box && pool != WB_POOL_DOMAIN) {
		wb_walk_start(&fl->walk, fl->box, fl->n_box, f->o.sums ? &f->keys : NULL);
		wb__flow_misplace(fl);
		return 0;
	}
	fl->slot = wb_slots_get(f->o.slots, pool);
	if (fl->slot == WB_SLOT_NONE)
		return -EAGAIN;
	fl->iov[0] = (struct iovec){wb_slots_at(f->o.slots, fl->slot), fl->bytes};
	fl->n_iov = 1;
	return 0;
}

static int send_grant(struct wb_flight *fl)
{
	struct wb_flow *f = fl->flow;
	bool direct = fl->slot == WB_SLOT_NONE;
	struct wb_xport_grant g = {
		.cookie = (uint64_t)(uintptr_t)fl,
		.chunk = {.transfer = f->o.transfer,
			.bytes = fl->bytes,
			.cls = fl->cls,
			.chunk = fl->chunk,
			.gen = fl->gen,
			.src = f->want[fl->want].src,
			.dst = f->local->member[fl->worker].plan_worker},
		.iov = fl->iov,
		.n_iov = fl->n_iov,
		.observe = direct && f->o.sums ? observe : NULL,
		.copy = direct ? copy
			       : NULL, /* a slot is read again at once: not past the caches */
		.ctx = fl,
	};

	fl->step = STEP_WIRE;
	return wb_xport_grant(f->o.env->xport, fl->conn, &g);
}

static struct wb_flight *flight_for(struct wb_flow *f, uint32_t i)
{
	const struct wb_want *w = &f->local->want[i];
	struct wb_flight *fl = wb__flow_flight_get(&f->fetch);

	if (!fl)
		return NULL;
	fl->want = i;
	fl->worker = w->worker;
	fl->cls = w->cls;
	fl->chunk = w->chunk;
	fl->gen = ++f->want[i].gen;
	fl->bytes = wb_chunk_len(f->plan, &f->plan->cls[w->cls], w->chunk);
	fl->domain = f->plan->worker[f->want[i].src].domain;
	return fl;
}

/* -EAGAIN: no flight, slot or credit; the want stays where it is. */
static int start_fetch(struct wb_flow *f, uint32_t i, wb_conn_t conn)
{
	struct wb_flight *fl = flight_for(f, i);
	struct edge *e;
	int rc;

	if (!fl)
		return -EAGAIN;
	fl->kind = FLIGHT_FETCH;
	fl->conn = conn;
	e = &f->edge[fl->domain];
	rc = landing(fl, wb__want_from_trainer(f, i) ? WB_POOL_RECEIVE : WB_POOL_EXCHANGE);
	if (rc == 0)
		rc = send_grant(fl);
	if (rc < 0) {
		wb__flow_flight_put(fl);
		return rc == -ENOTCONN ? -EAGAIN : rc;
	}
	if (fl->slot == WB_SLOT_NONE && !f->stats.first_write_ns)
		f->stats.first_write_ns = wb_now_ns(f->o.env->clock);
	if (!e->outstanding++)
		e->progress_ns = wb_now_ns(f->o.env->clock);
	return 0;
}

static bool local_ready(const struct wb_flow *f, uint32_t i)
{
	uint32_t src = (uint32_t)f->local->index_of[f->want[i].src];

	if (wb__want_from_trainer(f, i) && !(f->snap && f->snap[src].image))
		return f->source_open[src] == 1;
	return f->have[src][chunk_id(f, f->local->want[i].cls, f->local->want[i].chunk)];
}

/* From the slot, or the image, into the parameters. */
static int assemble(struct wb_flight *fl)
{
	struct wb_flow *f = fl->flow;
	int rc = wb__flow_flight_shape(fl, false);

	if (!f->stats.first_write_ns)
		f->stats.first_write_ns = wb_now_ns(f->o.env->clock);
	fl->step = STEP_LANE;
	fl->n_iov = 0;
	if (rc < 0)
		return rc;
	wb__flow_misplace(fl);
	return wb__flow_flight_lane(fl, false, true);
}

/* The source has a snapshot: packed already. */
static int start_local_image(struct wb_flight *fl)
{
	uint32_t id = chunk_id(fl->flow, fl->cls, fl->chunk);
	int rc;

	wb__flow_trailer_write(fl->flow, fl->flow->sum[id], fl->gen, fl->trailer);
	rc = assemble(fl);
	if (rc < 0)
		wb__flow_flight_put(fl);
	return rc < 0 ? rc : 0;
}

/* As serve.c refuses others: the source will never have it for us, another holder may.  0: it has
 * it, or will. */
static int refusal(const struct wb_flow *f, uint32_t i)
{
	uint32_t src = (uint32_t)f->local->index_of[f->want[i].src];
	uint32_t id = chunk_id(f, f->local->want[i].cls, f->local->want[i].chunk);
	bool trainer = wb__want_from_trainer(f, i);

	/* A snapshot holds only what the plan gives its worker to send, but stays. */
	if (trainer && f->snap && f->snap[src].image)
		return !wb__flow_image_at(f, src, id) ? -ENOENT
		       : f->have[src][id]             ? 0
						      : f->snap[src].rc;
	return f->source_open[src] == 2 || (!trainer && f->sink[src].failed) ? -ECANCELED : 0;
}

/* Inside the agent: pack from one worker into a slot, assemble into the other. */
static int start_local(struct wb_flow *f, uint32_t i)
{
	struct wb_flight *fl = flight_for(f, i);
	uint32_t dst;
	int rc;

	if (!fl)
		return -EAGAIN;
	fl->kind = FLIGHT_LOCAL;
	fl->wire = wb__flow_image_at(
		f, (uint32_t)f->local->index_of[f->want[i].src], chunk_id(f, fl->cls, fl->chunk));
	if (fl->wire)
		return start_local_image(fl);
	fl->slot = wb_slots_get(f->o.slots, WB_POOL_DOMAIN);
	if (fl->slot == WB_SLOT_NONE) {
		wb__flow_flight_put(fl);
		return -EAGAIN;
	}
	dst = fl->worker;
	fl->worker = (uint32_t)f->local->index_of[f->want[i].src];
	rc = wb__flow_flight_shape(fl, false);
	fl->step = STEP_WIRE;
	if (rc >= 0)
		rc = wb__flow_flight_lane(fl, true, true);
	fl->worker = dst;
	if (rc < 0)
		wb__flow_flight_put(fl);
	return rc < 0 ? rc : 0;
}

static void started(struct wb_flow *f, uint32_t i)
{
	f->want[i].state = WANT_FLYING;
	f->receive_pending -= wb__want_from_trainer(f, i);
}

/* Start what the head of @q allows; false when nothing could be started. */
static bool start_one(struct wb_flow *f, struct want_list *q, wb_conn_t conn)
{
	uint32_t i = wb__want_pop(f, q);
	int rc;

	if (i == FLOW_NONE)
		return false;
	rc = start_fetch(f, i, conn);
	if (rc == 0) {
		started(f, i);
		return true;
	}
	if (rc == -EAGAIN) {
		wb__want_push_front(f, q, i);
		return false;
	}
	started(f, i);
	wb__want_failed(f, i, rc);
	return true;
}

static void pump_local(struct wb_flow *f, struct want_list *q)
{
	struct want_list later = {FLOW_NONE, FLOW_NONE};
	uint32_t i;
	bool full = false;

	while ((i = wb__want_pop(f, q)) != FLOW_NONE) {
		int rc = refusal(f, i);

		if (rc < 0) {
			f->receive_pending -= wb__want_from_trainer(f, i);
			f->want[i].state = WANT_CLOSED;
			f->want[i].sources_tried++;
			wb__want_enqueue(f, i, rc);
			continue;
		}
		rc = full || !local_ready(f, i) ? -EAGAIN : start_local(f, i);

		if (rc == 0)
			started(f, i);
		else if (rc == -EAGAIN)
			wb__want_push(f, &later, i);
		else {
			started(f, i);
			wb__want_failed(f, i, rc);
		}
		full = full || f->fetch.n_free == 0;
	}
	*q = later;
}

/* A wide window is refilled by halves: the grants of one wake-up go together. */
static bool is_full(const struct wb_flow *f, struct edge *e)
{
	if (e->outstanding >= f->o.window)
		e->is_full = true;
	else if (f->o.window <= FLOW_WINDOW || e->outstanding <= f->o.window / 2)
		e->is_full = false;
	return e->is_full;
}

static bool pump_edge(struct wb_flow *f, uint32_t d)
{
	struct edge *e = &f->edge[d];
	wb_conn_t conn;

	if (e->receive.head == FLOW_NONE && e->exchange.head == FLOW_NONE)
		return false;
	if (d == f->local->domain) {
		pump_local(f, &e->receive);
		pump_local(f, &e->exchange);
		return false;
	}
	if (is_full(f, e))
		return false;
	conn = f->o.env->conn(f->o.env->ctx, d);
	if (!conn)
		return false;
	if (start_one(f, &e->receive, conn))
		return true;
	/* Receive first: exchange fills what ingress is left. */
	if (f->receive_pending && !f->exchange_early)
		return false;
	return start_one(f, &e->exchange, conn);
}

/* 1: the worker has each of these elements once, and that is written; 0: it has copies, and all are
 * being written. */
static int write_copies(struct wb_flight *fl)
{
	struct wb_flow *f = fl->flow;
	int n = wb_local_boxes(
		f->local, fl->worker, fl->cls, fl->chunk, true, fl->box, fl->scratch);

	if (n < 0)
		return n;
	if (fl->step == STEP_LANE && (uint32_t)n == fl->n_box)
		return 1;
	fl->n_box = (uint32_t)n;
	fl->step = STEP_LANE_EXTRA;
	return wb__flow_flight_lane(fl, false, f->copies != NULL);
}

void wb__flow_fetch_park(struct wb_flight *fl, int code)
{
	if (code == -EAGAIN)
		fl->is_parked = true;
	else
		wb__flow_fetch_retry(fl, code, false);
}

/* Nobody wants what it brings: the flow ends, or its sink was dropped, and perhaps opened anew. */
static bool is_void(const struct wb_flight *fl)
{
	const struct wb_flow *f = fl->flow;

	return f->stopping || f->sink[fl->worker].failed || fl->gen != f->want[fl->want].gen;
}

static void unpark(struct wb_flight *fl)
{
	int rc;

	fl->is_parked = false;
	if (is_void(fl)) {
		wb__flow_flight_put(fl);
		return;
	}
	rc = fl->step == STEP_LANE         ? assemble(fl)
	     : fl->step == STEP_LANE_EXTRA ? write_copies(fl)
					   : wb__flow_read(fl);
	if (rc < 0)
		wb__flow_fetch_park(fl, rc);
}

void wb__flow_fetch_unpark(struct wb_flow *f)
{
	for (uint32_t i = 0; i < f->fetch.n; i++)
		if (f->fetch.all[i].in_use && f->fetch.all[i].is_parked)
			unpark(&f->fetch.all[i]);
}

void wb__flow_fetch_pump(struct wb_flow *f)
{
	bool any = !f->stopping;

	wb__flow_fetch_unpark(f);
	while (any) {
		any = false;
		for (uint32_t n = 0; n < f->n_domain; n++)
			any |= pump_edge(f, (f->next_edge + n) % f->n_domain);
		f->next_edge = (f->next_edge + 1) % f->n_domain;
	}
}

/* ---- ending ------------------------------------------------------------------------------- */

void wb__flow_announce(struct wb_flow *f, uint32_t worker)
{
	struct sink *s = &f->sink[worker];

	if (s->failed || !s->open || (s->left == 0 && !wb__flow_check_is_clean(f, worker)))
		return;
	if (!s->received && s->left_receive == 0) {
		s->received = true;
		f->o.env->on_received(f->o.env->ctx, f, worker);
	}
	if (s->left == 0 && s->open) {
		s->open = false;
		f->o.env->on_complete(f->o.env->ctx, f, worker);
	}
}

void wb__flow_fetch_ok(struct wb_flight *fl, bool has_sum)
{
	struct wb_flow *f = fl->flow;
	const struct wb_want *w = &f->local->want[fl->want];
	uint32_t id = chunk_id(f, fl->cls, fl->chunk), worker = fl->worker;
	struct sink *s = &f->sink[worker];

	f->want[fl->want].state = WANT_DONE;
	f->have[worker][id] = 1;
	f->sum_known[id] |= has_sum;
	f->stats.bytes[w->stage] += fl->bytes;
	f->stats.chunks++;
	s->left--;
	s->clean = false;
	wb__want_count_trainer(f, fl->want, false);
	wb__flow_flight_put(fl);
	wb__flow_announce(f, worker);
	wb__flow_serve_pump(f);
	wb__flow_fetch_pump(f);
}

/* Ask again: the same source a few times, then another. */
void wb__flow_fetch_retry(struct wb_flight *fl, int code, bool next_source)
{
	struct wb_flow *f = fl->flow;
	uint32_t i = fl->want;
	struct want_run *r = &f->want[i];

	f->stats.resent++;
	if (next_source || ++r->tries >= FLOW_TRIES_MAX) {
		r->tries = 0;
		if (!f->lost[r->src]) /* it counts no more */
			r->sources_tried++;
	}
	r->state = WANT_CLOSED;
	wb__flow_flight_put(fl);
	if (!f->stopping && !f->sink[f->local->want[i].worker].failed)
		wb__want_enqueue(f, i, code);
	if (f->has_last)
		wb__flow_serve_pump(f);
	wb__flow_fetch_pump(f);
}

static void verify(struct wb_flight *fl)
{
	struct wb_flow *f = fl->flow;
	uint32_t id = chunk_id(f, fl->cls, fl->chunk);
	struct wbk_sum want;
	bool has_sum;
	int rc = wb__flow_trailer_read(f, fl->trailer, &want, &has_sum);

	if (rc == 0 && has_sum && f->o.sums && memcmp(&want, &fl->sum, sizeof(want))) {
		wb__flow_mismatch(f,
			fl->slot == WB_SLOT_NONE && !fl->wire ? WB_FLOW_WIRE : WB_FLOW_SLOT,
			f->want[fl->want].src, fl->worker, fl);
		rc = WB_ECKSUM;
	}
	if (rc < 0) {
		wb__flow_fetch_retry(fl, rc, false);
		return;
	}
	if (has_sum)
		f->sum[id] = want;
	wb__flow_installed(fl, has_sum);
}

static void edge_done(struct wb_flight *fl)
{
	struct edge *e = &fl->flow->edge[fl->domain];

	e->outstanding--;
	e->progress_ns = wb_now_ns(fl->flow->o.env->clock);
}

static void to_lane(struct wb_flight *fl)
{
	int rc = assemble(fl);

	if (rc < 0)
		wb__flow_fetch_park(fl, rc);
}

void wb__flow_fetch_xport(struct wb_flight *fl, const struct wb_xport_event *ev)
{
	struct wb_flow *f = fl->flow;

	edge_done(fl);
	if (is_void(fl)) {
		wb__flow_flight_put(fl);
		wb__flow_fetch_pump(f);
		return;
	}
	switch (ev->kind) {
	case WB_XP_ARRIVED:
		fl->rail = ev->rail;
		memcpy(fl->trailer, ev->trailer, sizeof(fl->trailer));
		if (wb__want_from_trainer(f, fl->want))
			wb__flow_fault(f, WB_FAULT_RECV, NULL, 0);
		if (fl->slot != WB_SLOT_NONE)
			wb__flow_fault(
				f, WB_FAULT_SLOT, wb_slots_at(f->o.slots, fl->slot), fl->bytes);
		if (fl->slot != WB_SLOT_NONE) {
			to_lane(fl);
			wb__flow_fetch_pump(f);
		} else {
			fl->sum = fl->walk.sum;
			verify(fl);
		}
		return;
	case WB_XP_REFUSED:
		f->stats.refused++;
		wb__flow_fetch_retry(fl, ev->code, ev->code != -EBUSY && ev->code != WB_ECKSUM);
		return;
	default: /* CANCELLED, LOST: ask again when there is a connection */
		f->want[fl->want].tries--;
		wb__flow_fetch_retry(fl, ev->code, false);
	}
}

static void local_packed(struct wb_flight *fl, const struct wb_lane_job *job)
{
	struct wb_flow *f = fl->flow;
	uint32_t id = chunk_id(f, fl->cls, fl->chunk);

	/* The trailer is what the source worker's bytes must sum to. */
	wb__flow_trailer_write(f, f->sum_known[id] ? f->sum[id] : job->sum, fl->gen, fl->trailer);
	if (job->rc < 0)
		wb__flow_fetch_retry(fl, job->rc, true);
	else
		to_lane(fl);
}

void wb__flow_fetch_lane(struct wb_flight *fl, const struct wb_lane_job *job)
{
	struct wb_flow *f = fl->flow;
	int rc;

	if (is_void(fl)) {
		wb__flow_flight_put(fl);
		wb__flow_fetch_pump(f);
		return;
	}
	if (fl->step == STEP_WIRE) {
		local_packed(fl, job);
		return;
	}
	if (fl->step == STEP_READ) {
		wb__flow_read_done(fl, job);
		return;
	}
	if (job->rc < 0) {
		wb__flow_fetch_retry(fl, job->rc, false);
		return;
	}
	if (fl->step == STEP_LANE)
		fl->sum = job->sum;
	else if (f->copies)
		f->copies[fl->worker][chunk_id(f, fl->cls, fl->chunk)] = job->sum;
	rc = fl->step == STEP_LANE ? write_copies(fl) : 1;
	if (rc < 0)
		wb__flow_fetch_park(fl, rc);
	else if (rc > 0)
		verify(fl);
}
