/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/wants.h"

#include "flow/pairs.h"

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
	if (q->head == FLOW_NONE) {
		assert(q->tail == i);
		q->tail = FLOW_NONE;
	}
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

/* Put the want into the queue where it waits for its turn, which it can now have. */
static void queue(struct wb_flow *f, uint32_t i, bool is_again)
{
	uint32_t src = f->want[i].src;
	struct want_list *mine =
		f->local->index_of[src] < 0 ? NULL : &f->mine[f->local->index_of[src]];

	f->want[i].state = WANT_QUEUED;
	f->receive_pending += wb__want_from_trainer(f, i);
	if (mine)
		wb__want_push(f, mine, i);
	else
		(is_again ? wb__pair_push_again : wb__pair_push)(f, i);
}

/* ---- sources ------------------------------------------------------------------------------ */

/* May @w be asked?  @named: it is one that the feed names; without a feed all count as named. */
static bool usable(const struct wb_flow *f, uint32_t i, uint32_t w, bool named)
{
	const struct sink *s = &f->sink[f->local->want[i].worker];

	return !f->lost[w] && w != f->local->member[f->local->want[i].worker].plan_worker &&
	       (!s->feed || s->feed[w]) == named;
}

struct members {
	uint32_t begin, end, first; /* begin, end: of plan->member; first: where to start */
	bool named;
};

/* The *k-th usable member, counted from 0; *k is less by those that were passed. */
static uint32_t nth_member(
	const struct wb_flow *f, uint32_t i, const struct members *m, uint32_t *k)
{
	uint32_t n = m->end - m->begin;

	for (uint32_t j = 0; j < n; j++) {
		uint32_t w = f->plan->member[m->begin + (m->first + j) % n];

		if (usable(f, i, w, m->named) && (*k)-- == 0)
			return w;
	}
	return FLOW_NONE;
}

/*
 * The receiver of a chunk is gone: its share is spread over the needers that are left, each chunk
 * to one of them, which gets it from a trainer; all others get it from that needer.  All agents
 * compute the same from the same losses.
 */
static uint32_t remap_lost(const struct wb_flow *f, uint32_t i)
{
	const struct wb_want *w = &f->local->want[i];
	const struct wb_class *k = &f->plan->cls[w->cls];
	const struct members holders = {k->holder_begin, k->holder_end, w->chunk, true};
	uint32_t n_alive = 0, pick, t = FLOW_NONE;

	for (uint32_t j = k->needer_begin; j < k->needer_end; j++)
		n_alive += !(f->lost[f->plan->member[j]] & FLOW_LOST);
	pick = n_alive ? w->chunk % n_alive : 0;
	for (uint32_t j = k->needer_begin; j < k->needer_end && t == FLOW_NONE; j++)
		if (!(f->lost[f->plan->member[j]] & FLOW_LOST) && pick-- == 0)
			t = f->plan->member[j];
	if (t != FLOW_NONE && !f->lost[t] && f->plan->worker[t].node != f->local->node)
		return t;
	pick = 0;
	return nth_member(f, i, &holders, &pick);
}

/* Sources that a feed does not name: engines that may hold the version, and trainers that still
 * hold it. */
static uint32_t choose_other(const struct wb_flow *f, uint32_t i, uint32_t nth)
{
	const struct wb_want *w = &f->local->want[i];
	const struct wb_class *k = &f->plan->cls[w->cls];
	const struct members needers = {k->needer_begin, k->needer_end, w->chunk, false};
	const struct members holders = {k->holder_begin, k->holder_end, w->chunk, false};
	uint32_t got = k->is_direct ? FLOW_NONE : nth_member(f, i, &needers, &nth);

	return got != FLOW_NONE ? got : nth_member(f, i, &holders, &nth);
}

/* Whom to ask, FLOW_NONE when nobody is left; @is_last: it is one that may have the chunk, but is
 * not the one that the plan says. */
static uint32_t choose(const struct wb_flow *f, uint32_t i, bool *is_last)
{
	const struct wb_want *w = &f->local->want[i];
	const struct wb_class *k = &f->plan->cls[w->cls];
	const struct members holders = {k->holder_begin, k->holder_end, w->chunk, true};
	const struct members needers = {k->needer_begin, k->needer_end, w->chunk, true};
	uint32_t nth = f->want[i].sources_tried, got = FLOW_NONE;

	*is_last = false;
	if (usable(f, i, w->src, true))
		got = w->src;
	else if (!f->sink[w->worker].feed && w->stage == WB_STAGE_EXTERNAL &&
		 f->lost[w->src] != FLOW_FOREIGN)
		got = remap_lost(f, i);
	if (got != FLOW_NONE && nth-- == 0)
		return got;
	got = nth_member(f, i, &holders, &nth);
	if (got != FLOW_NONE)
		return got;
	*is_last = true;
	if (!k->is_direct) /* else its needers hold rounded values, and are nobody's source */
		got = nth_member(f, i, &needers, &nth);
	return got == FLOW_NONE && f->sink[w->worker].feed ? choose_other(f, i, nth) : got;
}

uint32_t wb__want_of(const struct wb_flow *f, uint32_t worker, uint32_t cls, uint32_t chunk)
{
	uint32_t i = wb_local_want(f->local, worker, cls, chunk);

	return i == FLOW_NONE || f->want[i].state == WANT_DONE ? FLOW_NONE : i;
}

bool wb__want_asks_around(const struct wb_flow *f, uint32_t worker, uint32_t cls, uint32_t chunk)
{
	uint32_t i = f->has_last ? wb__want_of(f, worker, cls, chunk) : FLOW_NONE;

	return i != FLOW_NONE && f->sink[worker].open && f->want[i].is_last;
}

int wb__want_slot_rc(const struct wb_flow *f, enum wb_pool pool)
{
	return f->o.slots->n_pool[pool] ? -EAGAIN : -ENOBUFS;
}

static void say_why(const struct wb_flow *f, uint32_t i, int code, struct wb_err *err)
{
	const struct wb_want *w = &f->local->want[i];
	const char *stage = w->stage == WB_STAGE_RECEIVE ? "receive" : "exchange";

	if (code == -ENOBUFS)
		wb_err_set(err, code,
			"chunk %u of class %u (%s stage) has nowhere to land: the agent of this "
			"worker has set aside no slot of its buffer for such chunks",
			w->chunk, w->cls, stage);
	else if (f->plan->cls[w->cls].is_direct && f->sink[w->worker].feed)
		wb_err_set(err, -EHOSTUNREACH,
			"engines hold chunk %u of class %u rounded, so only trainers can send it",
			w->chunk, w->cls);
	else
		/* A refusal as stale is about the source: this transfer is not overtaken. */
		wb_err_set(err, code && code != WB_ESTALE ? code : -EHOSTUNREACH,
			"chunk %u of class %u (%s stage) has no source left after %u of them: the "
			"last was "
			"worker %u: %s",
			w->chunk, w->cls, stage, f->want[i].sources_tried, f->want[i].src,
			wb_strerror(code ? code : -EHOSTUNREACH));
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
	wb__flow_review(f); /* others waited for what this sink does not have */
	say_why(f, i, code, &err);
	f->o.env->on_failed(f->o.env->ctx, f, w->worker, &err);
}

/* Trainers may leave when no sink waits for one of them, whatever the plan's stage was. */
void wb__want_count_trainer(struct wb_flow *f, uint32_t i, bool needed)
{
	struct sink *s = &f->sink[f->local->want[i].worker];

	if (f->want[i].counted == needed)
		return;
	assert(needed || s->left_receive);
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
	wb__want_count_trainer(f, i, wb__want_from_trainer(f, i));
	queue(f, i, false);
	/* Those who asked here for the chunk must not wait. */
	if (is_last || (f->has_lost && !wb__want_from_trainer(f, i))) {
		wb__flow_wake(f, f->local->want[i].worker,
			chunk_id(f, f->local->want[i].cls, f->local->want[i].chunk));
		f->due |= DUE_SERVE;
	}
}

void wb__want_postpone(struct wb_flow *f, uint32_t i)
{
	queue(f, i, true);
}

void wb__flow_fetch_again(
	struct wb_flow *f, uint32_t worker, uint32_t cls, uint32_t chunk, enum wb_flow_place place)
{
	struct wb_flight note;
	uint32_t i;

	if (sink_is_over(f, worker))
		return;
	i = wb_local_want(f->local, worker, cls, chunk);
	if (i == FLOW_NONE || f->want[i].state != WANT_DONE)
		return;
	note = (struct wb_flight){.cls = cls, .chunk = chunk, .rail = WB_FLOW_NO_RAIL};
	wb__flow_mismatch(f, place, f->want[i].src, worker, &note);
	if (++f->want[i].tries >= FLOW_TRIES_MAX) {
		f->want[i].tries = 0;
		f->want[i].sources_tried++;
	}
	f->have[worker][chunk_id(f, cls, chunk)] = 0;
	f->moved[worker].in -= wb_chunk_len(f->plan, &f->plan->cls[cls], chunk);
	f->sink[worker].left++;
	wb__want_enqueue(f, i, WB_ECKSUM);
}

/* ---- opening and losing ------------------------------------------------------------------- */

void wb_flow_open_sink(struct wb_flow *f, uint32_t worker, const uint8_t *feed)
{
	struct sink *s = &f->sink[worker];

	assert(!s->open);
	*s = (struct sink){.open = true, .feed = feed};
	f->source_open[worker] = SOURCE_NOT_YET;
	f->moved[worker].in = 0;
	memset(f->have[worker], 0, f->plan->n_chunk);
	for_wants (f, worker, i)
		s->left++;
	wb__pairs_fill(f, true);
	for_wants (f, worker, i) {
		/* A flight of a dropped sink that is still out ends as nobody's. */
		f->want[i] = (struct want_run){.gen = f->want[i].gen + 1};
		wb__want_enqueue(f, i, 0);
	}
	wb__pairs_fill(f, false);
	wb__flow_announce(f, worker);
	wb__flow_pump(f, DUE_FETCH);
}

/* Of the wants in @all, which are in no queue, those of @worker are not wanted any more; others go
 * to @rest. */
static void drop_list(
	struct wb_flow *f, struct want_list all, uint32_t worker, struct want_list *rest)
{
	uint32_t i;

	while ((i = wb__want_pop(f, &all)) != FLOW_NONE)
		if (f->local->want[i].worker == worker) {
			f->receive_pending -= wb__want_from_trainer(f, i);
			f->want[i].state = WANT_CLOSED;
		} else {
			wb__want_push(f, rest, i);
		}
}

void wb__want_drop_worker(struct wb_flow *f, uint32_t worker)
{
	const struct want_list none = {FLOW_NONE, FLOW_NONE};
	struct want_list all;

	for (uint32_t src = 0; worker < f->n_asker && src < f->plan->n_worker; src++)
		drop_list(f, wb__pair_take_all(f, worker, src), worker, NULL);
	wb__flow_mine_review(f); /* what waits goes into the queues */
	for (uint32_t src = 0; src < f->local->n; src++) {
		all = f->mine[src];
		f->mine[src] = none;
		drop_list(f, all, worker, &f->mine[src]);
	}
}

void wb_flow_drop_sink(struct wb_flow *f, uint32_t worker)
{
	f->sink[worker].open = false;
	f->sink[worker].failed = true;
	wb__want_drop_worker(f, worker);
	for_fetches (f, fl)
		if (fl->in_use && fl->kind == FLIGHT_FETCH && fl->step == STEP_WIRE &&
			fl->worker == worker)
			(void)wb_xport_cancel(f->o.env->xport, fl->conn, (uint64_t)(uintptr_t)fl);
	wb__flow_fetch_unpark(f);
	wb__flow_review(f);
	wb__flow_pump(f, DUE_SERVE);
}

bool wb_flow_sink_received(const struct wb_flow *f, uint32_t worker)
{
	return f->sink[worker].left_receive == 0 && !f->sink[worker].failed;
}

bool wb_flow_sink_complete(const struct wb_flow *f, uint32_t worker)
{
	return f->sink[worker].left == 0 && !f->sink[worker].failed;
}

/* Give each of the wants in @all, which are in no queue, to another source. */
static void requeue_list(struct wb_flow *f, struct want_list all)
{
	uint32_t i;

	while ((i = wb__want_pop(f, &all)) != FLOW_NONE) {
		f->receive_pending -= wb__want_from_trainer(f, i);
		f->want[i].state = WANT_CLOSED;
		wb__want_enqueue(f, i, -EHOSTDOWN);
	}
}

/* An agent whose workers are all given up reads for nobody: what it has not taken of the slots here
 * is taken back. */
static void cut_reader(struct wb_flow *f, uint32_t domain)
{
	for (uint32_t w = 0; w < f->plan->n_worker; w++)
		if (f->plan->worker[w].domain == domain && !(f->lost[w] & FLOW_LOST))
			return;
	for (uint32_t i = 0; i < f->serve.n; i++) {
		const struct wb_flight *fl = &f->serve.all[i];

		if (fl->in_use && fl->domain == domain && fl->step == STEP_WIRE)
			(void)wb_xport_disconnect(f->o.env->xport, fl->conn);
	}
}

void wb_flow_lose_worker(struct wb_flow *f, uint32_t w)
{
	struct want_list mine;

	if (f->lost[w] & FLOW_LOST)
		return;
	f->lost[w] |= FLOW_LOST;
	f->has_lost = true;
	/* Tries are counted along the usable sources, which are others now. */
	for (uint32_t i = 0; i < f->local->n_want; i++)
		f->want[i].sources_tried = 0;
	wb__pairs_fill(f, true);
	for (uint32_t to = 0; to < f->n_asker; to++)
		requeue_list(f, wb__pair_take_all(f, to, w));
	wb__flow_review(f);
	if (f->local->index_of[w] >= 0) {
		mine = f->mine[f->local->index_of[w]];
		f->mine[f->local->index_of[w]] = (struct want_list){FLOW_NONE, FLOW_NONE};
		requeue_list(f, mine);
	}
	wb__pairs_fill(f, false);
	for_fetches (f, fl)
		if (fl->in_use && fl->kind == FLIGHT_FETCH && fl->step == STEP_WIRE &&
			f->want[fl->want].src == w) {
			/* The want may end up at a trainer: do not let trainers go before that is
			 * known. */
			wb__want_count_trainer(f, fl->want, true);
			(void)wb_xport_cancel(f->o.env->xport, fl->conn, (uint64_t)(uintptr_t)fl);
		}
	cut_reader(f, f->plan->worker[w].domain);
	wb__flow_pump(f, DUE_SERVE | DUE_FETCH);
}

bool wb_flow_has_lost(const struct wb_flow *f, uint32_t w)
{
	return f->lost[w] & FLOW_LOST;
}

void wb_flow_conn_up(struct wb_flow *f, uint32_t domain)
{
	wb__pairs_release(f, domain);
	wb__flow_pump(f, DUE_FETCH);
}

uint64_t wb_flow_tick(struct wb_flow *f, uint64_t now_ns)
{
	uint64_t next = 0, at;

	/* A rollout source may rightly be waiting for its own chunks. */
	for (uint32_t i = 0; f->o.stall_ns && i < f->fetch[FETCH_RECEIVE].n; i++) {
		struct wb_flight *fl = &f->fetch[FETCH_RECEIVE].all[i];
		uint64_t due = f->edge[fl->domain].ask[FETCH_RECEIVE].progress_ns + f->o.stall_ns;

		if (!fl->in_use || fl->step != STEP_WIRE)
			continue;
		if (now_ns >= due) {
			f->want[fl->want].tries = FLOW_TRIES_MAX;
			(void)wb_xport_cancel(f->o.env->xport, fl->conn, (uint64_t)(uintptr_t)fl);
		} else if (!next || due < next) {
			next = due;
		}
	}
	wb__pairs_release_all(f);
	/* Another flow may have had the lanes when a snapshot began. */
	wb__flow_pump(f, DUE_SNAP | DUE_SERVE | DUE_FETCH | DUE_CHECK);
	at = wb__pairs_due(f, now_ns);
	return at && (!next || at < next) ? at : next;
}
