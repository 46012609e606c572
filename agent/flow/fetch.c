/* SPDX-License-Identifier: Apache-2.0 */
/* Sinks: ask for the chunks that local rollout workers want, install and verify them. */
#include "flow/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- queues ------------------------------------------------------------------------------- */

static void push(struct wb_flow *f, struct want_list *q, uint32_t i)
{
	f->want[i].next = FLOW_NONE;
	if (q->tail == FLOW_NONE)
		q->head = i;
	else
		f->want[q->tail].next = i;
	q->tail = i;
}

static uint32_t pop(struct wb_flow *f, struct want_list *q)
{
	uint32_t i = q->head;

	if (i == FLOW_NONE)
		return i;
	q->head = f->want[i].next;
	if (q->head == FLOW_NONE)
		q->tail = FLOW_NONE;
	return i;
}

static void push_front(struct wb_flow *f, struct want_list *q, uint32_t i)
{
	f->want[i].next = q->head;
	q->head = i;
	if (q->tail == FLOW_NONE)
		q->tail = i;
}

static bool from_trainer(const struct wb_flow *f, uint32_t i)
{
	return f->plan->worker[f->want[i].src].role == WB_ROLE_TRAINER;
}

static struct want_list *queue_of(struct wb_flow *f, uint32_t i)
{
	struct edge *e = &f->edge[f->plan->worker[f->want[i].src].domain];

	return from_trainer(f, i) ? &e->receive : &e->exchange;
}

/* ---- sources ------------------------------------------------------------------------------ */

static bool usable(const struct wb_flow *f, uint32_t i, uint32_t w)
{
	const struct sink *s = &f->sink[f->local->want[i].worker];

	return !f->lost[w] && w != f->local->member[f->local->want[i].worker].plan_worker &&
	       (!s->feed || s->feed[w]);
}

/* The @k-th usable member of [begin, end), starting at @first; counts down *k past the others. */
static uint32_t nth_member(const struct wb_flow *f, uint32_t i, uint32_t begin, uint32_t end,
	uint32_t first, uint32_t *k)
{
	uint32_t n = end - begin;

	for (uint32_t j = 0; j < n; j++) {
		uint32_t w = f->plan->member[begin + (first + j) % n];

		if (usable(f, i, w) && (*k)-- == 0)
			return w;
	}
	return FLOW_NONE;
}

/*
 * The receiver of a chunk is gone: its share is spread over the needers that are left, each chunk
 * to one of them, which gets it from a trainer; all others from that one.  Every agent computes the
 * same from the same losses.
 */
static uint32_t remap_lost(const struct wb_flow *f, uint32_t i)
{
	const struct wb_want *w = &f->local->want[i];
	const struct wb_class *k = &f->plan->cls[w->cls];
	uint32_t n_alive = 0, pick, t = FLOW_NONE, zero = w->chunk;

	for (uint32_t j = k->needer_begin; j < k->needer_end; j++)
		n_alive += !f->lost[f->plan->member[j]];
	pick = n_alive ? w->chunk % n_alive : 0;
	for (uint32_t j = k->needer_begin; j < k->needer_end && t == FLOW_NONE; j++)
		if (!f->lost[f->plan->member[j]] && pick-- == 0)
			t = f->plan->member[j];
	if (t != FLOW_NONE && f->plan->worker[t].domain != f->local->domain)
		return t;
	pick = 0;
	return nth_member(f, i, k->holder_begin, k->holder_end, zero, &pick);
}

/* Choose whom to ask; FLOW_NONE when nobody is left. */
static uint32_t choose(const struct wb_flow *f, uint32_t i)
{
	const struct wb_want *w = &f->local->want[i];
	const struct wb_class *k = &f->plan->cls[w->cls];
	uint32_t nth = f->want[i].sources_tried, got;

	if (nth == 0 && usable(f, i, w->src))
		return w->src;
	if (nth == 0 && !f->sink[w->worker].feed && w->stage == WB_STAGE_EXTERNAL) {
		got = remap_lost(f, i);
		if (got != FLOW_NONE)
			return got;
	}
	if (nth > 0 && usable(f, i, w->src))
		nth--; /* the planned source was the first try */
	got = nth_member(f, i, k->holder_begin, k->holder_end, w->chunk, &nth);
	if (got != FLOW_NONE || k->is_direct) /* its needers hold rounded values: nobody's source */
		return got;
	return nth_member(f, i, k->needer_begin, k->needer_end, w->chunk, &nth);
}

static void sink_failed(struct wb_flow *f, uint32_t i, int code)
{
	const struct wb_want *w = &f->local->want[i];
	struct sink *s = &f->sink[w->worker];
	struct wb_err err = {0};

	f->want[i].state = WANT_CLOSED;
	if (s->failed)
		return;
	s->failed = true;
	if (f->plan->cls[w->cls].is_direct && s->feed)
		wb_err_set(&err, -EHOSTUNREACH,
			"engines hold chunk %u of class %u rounded, so only trainers can send it",
			w->chunk, w->cls);
	else
		wb_err_set(&err, code ? code : -EHOSTUNREACH,
			"chunk %u of class %u (%s stage) has no source left after %u of them: the "
			"last was "
			"worker %u: %s",
			w->chunk, w->cls, w->stage == WB_STAGE_RECEIVE ? "receive" : "exchange",
			f->want[i].sources_tried, f->want[i].src,
			wb_strerror(code ? code : -EHOSTUNREACH));
	f->o.env->on_failed(f->o.env->ctx, f, w->worker, &err);
}

/* Trainers may leave when no sink waits for one of them, whatever the plan's stage was. */
static void count_trainer(struct wb_flow *f, uint32_t i, bool needed)
{
	struct sink *s = &f->sink[f->local->want[i].worker];

	if (f->want[i].counted == needed)
		return;
	f->want[i].counted = needed;
	s->left_receive += needed ? 1 : -1;
	s->received = s->received && !needed;
}

static void enqueue(struct wb_flow *f, uint32_t i, int code)
{
	uint32_t src = choose(f, i);

	if (src == FLOW_NONE) {
		sink_failed(f, i, code);
		return;
	}
	if (src != f->want[i].src)
		f->want[i].tries = 0;
	f->want[i].src = src;
	f->want[i].state = WANT_QUEUED;
	count_trainer(f, i, from_trainer(f, i));
	push(f, queue_of(f, i), i);
	f->receive_pending += from_trainer(f, i);
}

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
	wb_walk_copy(&fl->walk, to, from, bytes);
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
	rc = landing(fl, from_trainer(f, i) ? WB_POOL_RECEIVE : WB_POOL_EXCHANGE);
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

	if (from_trainer(f, i) && !(f->snap && f->snap[src].image))
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

/* A snapshot holds only what the plan gives its worker to send: another holder has this chunk. */
static bool lacks(const struct wb_flow *f, uint32_t i)
{
	uint32_t src = (uint32_t)f->local->index_of[f->want[i].src];

	return from_trainer(f, i) && f->snap && f->snap[src].image &&
	       !wb__flow_image_at(
		       f, src, chunk_id(f, f->local->want[i].cls, f->local->want[i].chunk));
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
	f->receive_pending -= from_trainer(f, i);
}

/* Start what the head of @q allows; false when nothing could be started. */
static bool start_one(struct wb_flow *f, struct want_list *q, wb_conn_t conn)
{
	uint32_t i = pop(f, q);
	int rc;

	if (i == FLOW_NONE)
		return false;
	rc = start_fetch(f, i, conn);
	if (rc == 0) {
		started(f, i);
		return true;
	}
	if (rc == -EAGAIN) {
		push_front(f, q, i);
		return false;
	}
	started(f, i);
	sink_failed(f, i, rc);
	return true;
}

static void pump_local(struct wb_flow *f, struct want_list *q)
{
	struct want_list later = {FLOW_NONE, FLOW_NONE};
	uint32_t i;
	bool full = false;

	while ((i = pop(f, q)) != FLOW_NONE) {
		int rc;

		if (lacks(f, i)) {
			f->receive_pending--;
			f->want[i].state = WANT_CLOSED;
			f->want[i].sources_tried++;
			enqueue(f, i, -ENOENT);
			continue;
		}
		rc = full || !local_ready(f, i) ? -EAGAIN : start_local(f, i);

		if (rc == 0)
			started(f, i);
		else if (rc == -EAGAIN)
			push(f, &later, i);
		else {
			started(f, i);
			sink_failed(f, i, rc);
		}
		full = full || f->fetch.n_free == 0;
	}
	*q = later;
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
	if (e->outstanding >= f->o.window)
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

void wb__flow_fetch_pump(struct wb_flow *f)
{
	bool any = !f->stopping;

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
	count_trainer(f, fl->want, false);
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
		r->sources_tried++;
	}
	r->state = WANT_CLOSED;
	wb__flow_flight_put(fl);
	if (!f->stopping && !f->sink[f->local->want[i].worker].failed)
		enqueue(f, i, code);
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
		wb__flow_fetch_retry(fl, rc, false);
}

void wb__flow_fetch_xport(struct wb_flight *fl, const struct wb_xport_event *ev)
{
	edge_done(fl);
	switch (ev->kind) {
	case WB_XP_ARRIVED:
		fl->rail = ev->rail;
		memcpy(fl->trailer, ev->trailer, sizeof(fl->trailer));
		if (from_trainer(fl->flow, fl->want))
			wb__flow_fault(fl->flow, WB_FAULT_RECV, NULL, 0);
		if (fl->slot != WB_SLOT_NONE)
			wb__flow_fault(fl->flow, WB_FAULT_SLOT,
				wb_slots_at(fl->flow->o.slots, fl->slot), fl->bytes);
		if (fl->flow->stopping || fl->flow->sink[fl->worker].failed) {
			wb__flow_flight_put(fl);
		} else if (fl->slot != WB_SLOT_NONE) {
			to_lane(fl);
			wb__flow_fetch_pump(fl->flow);
		} else {
			fl->sum = fl->walk.sum;
			verify(fl);
		}
		return;
	case WB_XP_REFUSED:
		fl->flow->stats.refused++;
		wb__flow_fetch_retry(fl, ev->code, ev->code != -EBUSY && ev->code != WB_ECKSUM);
		return;
	default: /* CANCELLED, LOST: ask again when there is a connection */
		fl->flow->want[fl->want].tries--;
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
	int n_all, n_one = (int)fl->n_box;

	if (f->stopping || f->sink[fl->worker].failed) {
		wb__flow_flight_put(fl);
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
	n_all = wb_local_boxes(
		f->local, fl->worker, fl->cls, fl->chunk, true, fl->box, fl->scratch);
	if (fl->step == STEP_LANE && n_all > n_one) {
		/* The worker holds copies of these elements: write them all. */
		fl->n_box = (uint32_t)n_all;
		fl->step = STEP_LANE_EXTRA;
		if (wb__flow_flight_lane(fl, false, f->copies != NULL) == 0)
			return;
	}
	verify(fl);
}

void wb__flow_fetch_again(
	struct wb_flow *f, uint32_t worker, uint32_t cls, uint32_t chunk, enum wb_flow_place place)
{
	struct wb_flight note;

	for (uint32_t i = 0; i < f->local->n_want; i++) {
		const struct wb_want *w = &f->local->want[i];

		if (w->worker != worker || w->cls != cls || w->chunk != chunk ||
			f->want[i].state != WANT_DONE)
			continue;
		note = (struct wb_flight){.cls = cls, .chunk = chunk, .rail = WB_FLOW_NO_RAIL};
		wb__flow_mismatch(f, place, f->want[i].src, worker, &note);
		if (++f->want[i].tries >= FLOW_TRIES_MAX) {
			f->want[i].tries = 0;
			f->want[i].sources_tried++;
		}
		f->have[worker][chunk_id(f, cls, chunk)] = 0;
		f->sink[worker].left++;
		enqueue(f, i, WB_ECKSUM);
	}
}

/* ---- opening and losing ------------------------------------------------------------------- */

void wb_flow_open_sink(struct wb_flow *f, uint32_t worker, const uint8_t *feed)
{
	struct sink *s = &f->sink[worker];

	assert(!s->open);
	*s = (struct sink){.open = true, .feed = feed};
	memset(f->have[worker], 0, f->plan->n_chunk);
	for (uint32_t i = 0; i < f->local->n_want; i++)
		s->left += f->local->want[i].worker == worker;
	for (uint32_t i = 0; i < f->local->n_want; i++)
		if (f->local->want[i].worker == worker) {
			f->want[i] = (struct want_run){.gen = f->want[i].gen};
			enqueue(f, i, 0);
		}
	wb__flow_announce(f, worker);
	wb__flow_fetch_pump(f);
}

static void drop_list(struct wb_flow *f, struct want_list *q, uint32_t worker)
{
	struct want_list old = *q;
	uint32_t i;

	*q = (struct want_list){FLOW_NONE, FLOW_NONE};
	while ((i = pop(f, &old)) != FLOW_NONE)
		if (f->local->want[i].worker == worker) {
			f->receive_pending -= from_trainer(f, i);
			f->want[i].state = WANT_CLOSED;
		} else {
			push(f, q, i);
		}
}

void wb_flow_drop_sink(struct wb_flow *f, uint32_t worker)
{
	f->sink[worker].open = false;
	f->sink[worker].failed = true;
	for (uint32_t d = 0; d < f->n_domain; d++) {
		drop_list(f, &f->edge[d].receive, worker);
		drop_list(f, &f->edge[d].exchange, worker);
	}
	for (uint32_t i = 0; i < f->fetch.n; i++) {
		struct wb_flight *fl = &f->fetch.all[i];

		if (fl->in_use && fl->kind == FLIGHT_FETCH && fl->step == STEP_WIRE &&
			fl->worker == worker)
			(void)wb_xport_cancel(f->o.env->xport, fl->conn, (uint64_t)(uintptr_t)fl);
	}
	wb__flow_serve_pump(f);
}

bool wb_flow_sink_received(const struct wb_flow *f, uint32_t worker)
{
	return f->sink[worker].left_receive == 0 && !f->sink[worker].failed;
}

bool wb_flow_sink_complete(const struct wb_flow *f, uint32_t worker)
{
	return f->sink[worker].left == 0 && !f->sink[worker].failed;
}

static void requeue_list(struct wb_flow *f, struct want_list *q)
{
	struct want_list old = *q;
	uint32_t i;

	*q = (struct want_list){FLOW_NONE, FLOW_NONE};
	while ((i = pop(f, &old)) != FLOW_NONE) {
		f->receive_pending -= from_trainer(f, i);
		f->want[i].state = WANT_CLOSED;
		enqueue(f, i, -EHOSTDOWN);
	}
}

void wb_flow_lose_worker(struct wb_flow *f, uint32_t w)
{
	struct edge *e = &f->edge[f->plan->worker[w].domain];

	if (f->lost[w])
		return;
	f->lost[w] = 1;
	requeue_list(f, &e->receive);
	requeue_list(f, &e->exchange);
	for (uint32_t i = 0; i < f->fetch.n; i++) {
		struct wb_flight *fl = &f->fetch.all[i];

		if (fl->in_use && fl->kind == FLIGHT_FETCH && fl->step == STEP_WIRE &&
			f->want[fl->want].src == w) {
			/* It may end at a trainer: do not let them go before that is known. */
			count_trainer(f, fl->want, true);
			(void)wb_xport_cancel(f->o.env->xport, fl->conn, (uint64_t)(uintptr_t)fl);
		}
	}
	wb__flow_fetch_pump(f);
}

void wb_flow_conn_up(struct wb_flow *f, uint32_t domain)
{
	(void)domain;
	wb__flow_fetch_pump(f);
}

uint64_t wb_flow_tick(struct wb_flow *f, uint64_t now_ns)
{
	uint64_t next = 0;

	for (uint32_t i = 0; f->o.stall_ns && i < f->fetch.n; i++) {
		struct wb_flight *fl = &f->fetch.all[i];
		struct edge *e = &f->edge[fl->domain];
		uint64_t due = e->progress_ns + f->o.stall_ns;

		/* A rollout source may rightly be waiting for its own chunks. */
		if (!fl->in_use || fl->kind != FLIGHT_FETCH || fl->step != STEP_WIRE ||
			!from_trainer(f, fl->want))
			continue;
		if (now_ns >= due) {
			f->want[fl->want].tries = FLOW_TRIES_MAX;
			(void)wb_xport_cancel(f->o.env->xport, fl->conn, (uint64_t)(uintptr_t)fl);
		} else if (!next || due < next) {
			next = due;
		}
	}
	wb__flow_serve_pump(f);
	wb__flow_fetch_pump(f);
	wb__flow_check_pump(f);
	return next;
}
