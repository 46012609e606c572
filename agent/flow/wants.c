/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/wants.h"

#include <errno.h>
#include <string.h>

/* ---- queues ------------------------------------------------------------------------------- */

void wb__want_push(struct wb_flow *f, struct want_list *q, uint32_t i)
{
	f->want[i].next = FLOW_NONE;
	if (q->tail == FLOW_NONE)
		q->head = i;
	else
		f->want[q->tail].next = i;
	q->tail = i;
}

uint32_t wb__want_pop(struct wb_flow *f, struct want_list *q)
{
	uint32_t i = q->head;

	if (i == FLOW_NONE)
		return i;
	q->head = f->want[i].next;
	if (q->head == FLOW_NONE)
		q->tail = FLOW_NONE;
	return i;
}

void wb__want_push_front(struct wb_flow *f, struct want_list *q, uint32_t i)
{
	f->want[i].next = q->head;
	q->head = i;
	if (q->tail == FLOW_NONE)
		q->tail = i;
}

bool wb__want_from_trainer(const struct wb_flow *f, uint32_t i)
{
	return f->plan->worker[f->want[i].src].role == WB_ROLE_TRAINER;
}

static struct want_list *queue_of(struct wb_flow *f, uint32_t i)
{
	struct edge *e = &f->edge[f->plan->worker[f->want[i].src].domain];

	return wb__want_from_trainer(f, i) ? &e->receive : &e->exchange;
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
		n_alive += !(f->lost[f->plan->member[j]] & FLOW_LOST);
	pick = n_alive ? w->chunk % n_alive : 0;
	for (uint32_t j = k->needer_begin; j < k->needer_end && t == FLOW_NONE; j++)
		if (!(f->lost[f->plan->member[j]] & FLOW_LOST) && pick-- == 0)
			t = f->plan->member[j];
	if (t != FLOW_NONE && !f->lost[t] && f->plan->worker[t].domain != f->local->domain)
		return t;
	pick = 0;
	return nth_member(f, i, k->holder_begin, k->holder_end, zero, &pick);
}

/* Whom to ask, FLOW_NONE when nobody is left; @is_last: one that may have it, but is not who the
 * plan says. */
static uint32_t choose(const struct wb_flow *f, uint32_t i, bool *is_last)
{
	const struct wb_want *w = &f->local->want[i];
	const struct wb_class *k = &f->plan->cls[w->cls];
	uint32_t nth = f->want[i].sources_tried, got = FLOW_NONE;

	*is_last = false;
	if (usable(f, i, w->src))
		got = w->src;
	else if (!f->sink[w->worker].feed && w->stage == WB_STAGE_EXTERNAL &&
		 f->lost[w->src] != FLOW_FOREIGN)
		got = remap_lost(f, i);
	if (got != FLOW_NONE && nth-- == 0)
		return got;
	got = nth_member(f, i, k->holder_begin, k->holder_end, w->chunk, &nth);
	if (got != FLOW_NONE || k->is_direct) /* its needers hold rounded values: nobody's source */
		return got;
	*is_last = true;
	return nth_member(f, i, k->needer_begin, k->needer_end, w->chunk, &nth);
}

void wb__want_failed(struct wb_flow *f, uint32_t i, int code)
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
void wb__want_count_trainer(struct wb_flow *f, uint32_t i, bool needed)
{
	struct sink *s = &f->sink[f->local->want[i].worker];

	if (f->want[i].counted == needed)
		return;
	f->want[i].counted = needed;
	s->left_receive += needed ? 1 : -1;
	s->received = s->received && !needed;
}

void wb__want_enqueue(struct wb_flow *f, uint32_t i, int code)
{
	bool is_last;
	uint32_t src = choose(f, i, &is_last);

	if (src == FLOW_NONE) {
		wb__want_failed(f, i, code);
		return;
	}
	if (src != f->want[i].src)
		f->want[i].tries = 0;
	f->want[i].src = src;
	f->want[i].is_last = is_last;
	f->has_last |= is_last;
	f->want[i].state = WANT_QUEUED;
	wb__want_count_trainer(f, i, wb__want_from_trainer(f, i));
	wb__want_push(f, queue_of(f, i), i);
	f->receive_pending += wb__want_from_trainer(f, i);
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
		wb__want_enqueue(f, i, WB_ECKSUM);
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
			/* A flight of a dropped sink that is still out ends as nobody's. */
			f->want[i] = (struct want_run){.gen = f->want[i].gen + 1};
			wb__want_enqueue(f, i, 0);
		}
	wb__flow_announce(f, worker);
	wb__flow_fetch_pump(f);
}

static void drop_list(struct wb_flow *f, struct want_list *q, uint32_t worker)
{
	struct want_list old = *q;
	uint32_t i;

	*q = (struct want_list){FLOW_NONE, FLOW_NONE};
	while ((i = wb__want_pop(f, &old)) != FLOW_NONE)
		if (f->local->want[i].worker == worker) {
			f->receive_pending -= wb__want_from_trainer(f, i);
			f->want[i].state = WANT_CLOSED;
		} else {
			wb__want_push(f, q, i);
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
	wb__flow_fetch_unpark(f);
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
	while ((i = wb__want_pop(f, &old)) != FLOW_NONE) {
		f->receive_pending -= wb__want_from_trainer(f, i);
		f->want[i].state = WANT_CLOSED;
		wb__want_enqueue(f, i, -EHOSTDOWN);
	}
}

void wb_flow_lose_worker(struct wb_flow *f, uint32_t w)
{
	struct edge *e = &f->edge[f->plan->worker[w].domain];

	if (f->lost[w] & FLOW_LOST)
		return;
	f->lost[w] |= FLOW_LOST;
	f->has_lost = true;
	/* What was tried is counted along the usable sources, which are others now. */
	for (uint32_t i = 0; i < f->local->n_want; i++)
		f->want[i].sources_tried = 0;
	requeue_list(f, &e->receive);
	requeue_list(f, &e->exchange);
	for (uint32_t i = 0; i < f->fetch.n; i++) {
		struct wb_flight *fl = &f->fetch.all[i];

		if (fl->in_use && fl->kind == FLIGHT_FETCH && fl->step == STEP_WIRE &&
			f->want[fl->want].src == w) {
			/* It may end at a trainer: do not let them go before that is known. */
			wb__want_count_trainer(f, fl->want, true);
			(void)wb_xport_cancel(f->o.env->xport, fl->conn, (uint64_t)(uintptr_t)fl);
		}
	}
	wb__flow_serve_pump(f);
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
			!wb__want_from_trainer(f, fl->want))
			continue;
		if (now_ns >= due) {
			f->want[fl->want].tries = FLOW_TRIES_MAX;
			(void)wb_xport_cancel(f->o.env->xport, fl->conn, (uint64_t)(uintptr_t)fl);
		} else if (!next || due < next) {
			next = due;
		}
	}
	/* Another flow may have had the lanes when a snapshot began. */
	wb__flow_snap_pump(f);
	wb__flow_serve_pump(f);
	wb__flow_fetch_pump(f);
	wb__flow_check_pump(f);
	return next;
}
