/* SPDX-License-Identifier: Apache-2.0 */
/* Fetches: ask the chosen sources for chunks, install and verify what comes. */
#include "flow/pairs.h"
#include "flow/wants.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BUSY_MIN_NS WB_NS_PER_MS
#define BUSY_MAX_NS (100 * WB_NS_PER_MS)

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

/* FLOW_DIRECT: the chunk lands in the parameters themselves, if each element is there once, in long
 * runs. */
static int lands_direct(struct wb_flight *fl, const uint8_t *known)
{
	struct wb_flow *f = fl->flow;
	int n_all = 0, shape;

	if (!(*known & WB_LANDS_ONCE))
		n_all = wb_local_boxes(
			f->local, fl->worker, fl->cls, fl->chunk, true, fl->box, fl->scratch);
	shape = wb__flow_flight_shape(fl, false);
	if (n_all < 0 || shape < 0)
		return n_all < 0 ? n_all : shape;
	return *known & WB_LANDS_ONCE || n_all == (int)fl->n_box ? shape : FLOW_BY_SLOT;
}

static enum wb_pool pool_of(enum fetch_kind kind)
{
	return kind == FETCH_RECEIVE    ? WB_POOL_RECEIVE
	       : kind == FETCH_EXCHANGE ? WB_POOL_EXCHANGE
					: WB_POOL_DOMAIN;
}

/* Is there a slot to land in?  Half of the slots that copies inside the agent need are left to
 * those copies, which hold a slot for no longer than they copy. */
static bool has_slot(const struct wb_flow *f, enum fetch_kind kind)
{
	const struct wb_slots *s = f->o.slots;
	enum wb_pool pool = pool_of(kind);

	return s->n_free[pool] > (kind == FETCH_NEAR ? s->n_pool[pool] / 2 : 0);
}

static int landing(struct wb_flight *fl, enum fetch_kind kind)
{
	struct wb_flow *f = fl->flow;
	uint8_t *shape = wb_local_shape(f->local, fl->worker, chunk_id(f, fl->cls, fl->chunk));
	int rc = *shape & WB_LANDS_IN_SLOT ? FLOW_BY_SLOT : lands_direct(fl, shape);

	if (rc < 0)
		return rc;
	*shape |= rc == FLOW_BY_SLOT ? WB_LANDS_IN_SLOT : WB_LANDS_ONCE;
	if (rc == FLOW_DIRECT) {
		wb_walk_start(&fl->walk, fl->box, fl->n_box, f->o.sums ? &f->keys : NULL);
		wb__flow_misplace(fl);
		return 0;
	}
	fl->slot = has_slot(f, kind) ? wb_slots_get(f->o.slots, pool_of(kind)) : WB_SLOT_NONE;
	if (fl->slot == WB_SLOT_NONE)
		return wb__want_slot_rc(f, pool_of(kind));
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
			.src = fl->src,
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

struct wb_flight *wb__flow_fetch_flight(struct wb_flow *f, uint32_t i, enum fetch_kind kind)
{
	const struct wb_want *w = &f->local->want[i];
	struct wb_flight *fl = wb__flow_flight_get(&f->fetch[kind]);

	if (!fl)
		return NULL;
	fl->want = i;
	fl->worker = w->worker;
	fl->cls = w->cls;
	fl->chunk = w->chunk;
	fl->gen = ++f->want[i].gen; /* generation of this try */
	fl->bytes = wb_chunk_len(f->plan, &f->plan->cls[w->cls], w->chunk);
	fl->src = f->want[i].src;
	fl->domain = f->plan->worker[fl->src].domain;
	if (fl->kind == FLIGHT_FETCH)
		wb__pair_flight_get(f, fl->worker, kind);
	return fl;
}

/* Does the want need a slot, as its shape says, or as its last try found out on the connection that
 * it has? */
static bool wants_slot(struct wb_flow *f, uint32_t i)
{
	const struct wb_want *w = &f->local->want[i];
	uint8_t shape = *wb_local_shape(f->local, w->worker, chunk_id(f, w->cls, w->chunk));

	return f->want[i].waits_slot || (shape & WB_LANDS_IN_SLOT) != 0;
}

int wb__flow_fetch_start(struct wb_flow *f, uint32_t i, enum fetch_kind kind, wb_conn_t conn)
{
	struct wb_flight *fl;
	struct asking *a;
	int rc;

	if (!has_slot(f, kind) && wants_slot(f, i))
		return wb__want_slot_rc(f, pool_of(kind));
	fl = wb__flow_fetch_flight(f, i, kind);
	if (!fl)
		return -EAGAIN;
	fl->conn = conn;
	a = &f->edge[fl->domain].ask[kind];
	rc = landing(fl, kind);
	f->want[i].waits_slot = rc == -EAGAIN;
	if (rc == 0)
		rc = send_grant(fl);
	if (rc < 0) {
		wb__flow_flight_put(fl);
		f->want[i].gen--; /* nobody has heard of this try */
		return rc;
	}
	if (fl->slot == WB_SLOT_NONE && !f->stats.first_write_ns)
		f->stats.first_write_ns = wb_now_ns(f->o.env->clock);
	if (!a->outstanding++)
		a->progress_ns = wb_now_ns(f->o.env->clock);
	return 0;
}

int wb__flow_fetch_assemble(struct wb_flight *fl)
{
	struct wb_flow *f = fl->flow;
	int rc = wb__flow_flight_boxes(fl, false);

	if (!f->stats.first_write_ns)
		f->stats.first_write_ns = wb_now_ns(f->o.env->clock);
	fl->step = STEP_LANE;
	fl->n_iov = 0;
	if (rc < 0)
		return rc;
	wb__flow_misplace(fl);
	return wb__flow_flight_lane(fl, WB_LANE_ASSEMBLE, true);
}

void wb__flow_fetch_started(struct wb_flow *f, uint32_t i)
{
	assert(f->want[i].state == WANT_QUEUED);
	assert(f->receive_pending || !wb__want_from_trainer(f, i));
	f->want[i].state = WANT_FLYING;
	f->receive_pending -= wb__want_from_trainer(f, i);
}

bool wb__flow_fetch_is_busy(const struct wb_flow *f, uint32_t domain, enum fetch_kind kind)
{
	const struct asking *a = &f->edge[domain].ask[kind];

	return a->busy_until_ns && wb_now_ns(f->o.env->clock) < a->busy_until_ns;
}

/* 1: the worker has each of these elements once, and that one is written; 0: it has copies, and all
 * of them are being written. */
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
	return wb__flow_flight_lane(fl, WB_LANE_ASSEMBLE, f->copies != NULL);
}

void wb__flow_fetch_park(struct wb_flight *fl, int code)
{
	struct wb_flow *f = fl->flow;

	if (code != -EAGAIN) {
		wb__flow_fetch_retry(fl, code, false);
		return;
	}
	fl->is_parked = true;
	wb__flow_wait(&f->waiting, fl);
}

/* Does nobody want what the flight brings?  The flow ends, or its sink was dropped, and perhaps
 * opened anew. */
static bool is_void(const struct wb_flight *fl)
{
	const struct wb_flow *f = fl->flow;

	return sink_is_over(f, f->local->want[fl->want].worker) || fl->gen != f->want[fl->want].gen;
}

static void unpark(struct wb_flight *fl)
{
	int rc;

	assert(fl->in_use && fl->is_parked);
	fl->is_parked = false;
	if (is_void(fl)) {
		wb__flow_flight_put(fl);
		return;
	}
	rc = fl->step == STEP_LANE         ? wb__flow_fetch_assemble(fl)
	     : fl->step == STEP_LANE_EXTRA ? write_copies(fl)
					   : wb__flow_read(fl);
	if (rc < 0)
		wb__flow_fetch_park(fl, rc);
}

void wb__flow_fetch_unpark(struct wb_flow *f)
{
	struct wb_flight *fl = f->waiting.head, *next;

	f->waiting = (struct flight_list){0};
	for (; fl; fl = next) {
		next = fl->next;
		unpark(fl);
	}
}

void wb__flow_fetch_pump(struct wb_flow *f)
{
	wb__flow_fetch_unpark(f);
	while (!f->stopping && wb__flow_mine_pump(f))
		;
	if (f->stopping)
		return;
	wb__pairs_pump(f, FETCH_RECEIVE);
	wb__pairs_pump(f, FETCH_NEAR);
	if (!f->receive_pending || f->exchange_early)
		wb__pairs_pump(f, FETCH_EXCHANGE);
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

void wb__flow_fetch_ok(struct wb_flight *fl)
{
	struct wb_flow *f = fl->flow;
	const struct wb_want *w = &f->local->want[fl->want];
	uint32_t id = chunk_id(f, fl->cls, fl->chunk), worker = fl->worker;
	struct sink *s = &f->sink[worker];

	assert(f->want[fl->want].state == WANT_FLYING && s->left);
	f->want[fl->want].state = WANT_DONE;
	f->have[worker][id] = 1;
	wb__flow_wake(f, worker, id);
	f->sum_known[id] |= f->o.sums;
	f->stats.bytes[w->stage] += fl->bytes;
	f->stats.chunks++;
	f->moved[worker].in += fl->bytes;
	if (fl->kind == FLIGHT_LOCAL)
		f->moved[f->local->index_of[fl->src]].out += fl->bytes;
	if (fl->kind == FLIGHT_LOCAL && wb__want_from_trainer(f, fl->want))
		wb__flow_few_sent(f, (uint32_t)f->local->index_of[fl->src], false);
	s->left--;
	s->clean = false;
	wb__want_count_trainer(f, fl->want, false);
	wb__flow_flight_put(fl);
	wb__flow_announce(f, worker);
	f->due |= DUE_SERVE | DUE_FETCH;
}

/* Ask again: the same source a few times, then another. */
void wb__flow_fetch_retry(struct wb_flight *fl, int code, bool next_source)
{
	struct wb_flow *f = fl->flow;
	uint32_t i = fl->want;
	struct want_run *r = &f->want[i];

	assert(!is_void(fl));
	f->stats.resent++;
	if (next_source || ++r->tries >= FLOW_TRIES_MAX) {
		r->tries = 0;
		if (!f->lost[r->src]) /* it counts no more */
			r->sources_tried++;
	}
	r->state = WANT_CLOSED;
	wb__flow_flight_put(fl);
	wb__want_enqueue(f, i, code);
	f->due |= DUE_FETCH;
}

static void verify(struct wb_flight *fl)
{
	struct wb_flow *f = fl->flow;
	uint32_t id = chunk_id(f, fl->cls, fl->chunk);
	struct wbk_sum want;
	int rc = wb__flow_trailer_read(f, fl->trailer, &want);

	if (rc == 0 && f->o.sums && memcmp(&want, &fl->sum, sizeof(want))) {
		wb__flow_mismatch(f,
			fl->slot == WB_SLOT_NONE && !fl->wire ? WB_FLOW_WIRE : WB_FLOW_SLOT,
			f->want[fl->want].src, fl->worker, fl);
		rc = WB_ECKSUM;
	}
	if (rc < 0) {
		wb__flow_fetch_retry(fl, rc, false);
		return;
	}
	if (f->o.sums)
		f->sum[id] = want;
	wb__flow_installed(fl);
}

static struct asking *asking_of(const struct wb_flight *fl)
{
	return &fl->flow->edge[fl->domain].ask[fl->pool - fl->flow->fetch];
}

static void edge_done(struct wb_flight *fl, bool is_here)
{
	struct asking *a = asking_of(fl);

	assert(fl->step == STEP_WIRE && a->outstanding);
	a->outstanding--;
	wb__pair_ended(fl->flow, fl->worker, fl->src);
	a->progress_ns = wb_now_ns(fl->flow->o.env->clock);
	if (!is_here || !a->busy_ns)
		return;
	a->busy_until_ns = a->backoff_ns = a->busy_ns = 0;
	wb__pairs_release(fl->flow, fl->domain);
}

static void to_lane(struct wb_flight *fl)
{
	int rc = wb__flow_fetch_assemble(fl);

	if (rc < 0)
		wb__flow_fetch_park(fl, rc);
}

/* Has nobody asked that agent for so long that what it said before says nothing about the time
 * between?  Its connection was gone, or others had what was wanted. */
static bool is_new_spell(const struct wb_flow *f, const struct asking *a, uint64_t now)
{
	return f->o.stall_ns && now > a->busy_until_ns && now - a->busy_until_ns >= f->o.stall_ns;
}

/* The source has no room for more grants: this is not counted as a try.  The source is asked again
 * later, after longer and longer waits, until the time when an edge that brings nothing is given
 * up. */
static bool wait_while_busy(struct wb_flight *fl)
{
	struct wb_flow *f = fl->flow;
	struct asking *a = asking_of(fl);
	uint64_t now = wb_now_ns(f->o.env->clock);
	uint32_t i = fl->want;

	if (!a->busy_ns || is_new_spell(f, a, now)) {
		a->busy_ns = now;
		a->backoff_ns = 0;
	}
	if (f->o.stall_ns && now - a->busy_ns >= f->o.stall_ns)
		return false;
	if (now >= a->busy_until_ns) { /* grants that were out together count once */
		a->backoff_ns =
			a->backoff_ns ? WB_MIN(2 * a->backoff_ns, BUSY_MAX_NS) : BUSY_MIN_NS;
		a->busy_until_ns = now + a->backoff_ns;
	}
	wb__flow_flight_put(fl);
	wb__want_postpone(f, i);
	f->due |= DUE_FETCH;
	return true;
}

void wb__flow_fetch_xport(struct wb_flight *fl, const struct wb_xport_event *ev)
{
	struct wb_flow *f = fl->flow;

	edge_done(fl, ev->kind == WB_XP_ARRIVED);
	if (is_void(fl)) {
		wb__flow_flight_put(fl);
		f->due |= DUE_FETCH;
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
			f->due |= DUE_FETCH;
		} else {
			fl->sum = fl->walk.sum;
			verify(fl);
		}
		return;
	case WB_XP_REFUSED:
		f->stats.refused++;
		if (ev->code == -EBUSY && wait_while_busy(fl))
			return;
		wb__flow_fetch_retry(fl, ev->code, ev->code != WB_ECKSUM);
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
	bool is_trainers = f->plan->worker[fl->src].role == WB_ROLE_TRAINER;

	/* What the source worker's bytes must sum to; for a trainer's bytes, the sum of what was
	 * read now. */
	wb__flow_trailer_write(
		f, f->sum_known[id] && !is_trainers ? f->sum[id] : job->sum, fl->gen, fl->trailer);
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
		f->due |= DUE_FETCH;
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
