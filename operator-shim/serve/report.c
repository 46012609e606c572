/* SPDX-License-Identifier: Apache-2.0 */
/* Handles REPORT: what engines hold, how transfers ended, and the times of all workers, which are
 * put together here. */
#include "base/mem.h"
#include "operator-shim/serve/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const stage_names[WB_STAGES] = {"receive", "external", "internal"};

static void free_times(struct object *o, struct xfer *x)
{
	for (size_t i = 0; i < x->n_worker; i++)
		wb_free(x->worker[i].phase);
	wb_free(x->worker);
	wb_free(x->place);
	wb_budget_release(o->s->budget, WB_BUDGET_REPORTS, o->key, x->charged);
	x->worker = NULL;
	x->place = NULL;
	x->n_worker = x->cap = x->n_place = 0;
	x->charged = 0;
}

void wb__serve_free_xfer(struct object *o, struct xfer *x)
{
	free_times(o, x);
	memset(x, 0, sizeof(*x));
}

static struct xfer *find_xfer(struct object *o, uint64_t transfer)
{
	for (unsigned i = 0; i < XFERS_MAX; i++)
		if (o->xfer[i].transfer == transfer)
			return &o->xfer[i];
	return NULL;
}

static struct xfer *get_xfer(struct object *o, const struct wb_msg_report *m)
{
	struct xfer *x = find_xfer(o, m->transfer);

	if (x)
		return x;
	x = &o->xfer[o->xfer_at++ % XFERS_MAX];
	wb__serve_free_xfer(o, x);
	x->transfer = m->transfer;
	x->version = m->version;
	return x;
}

/* A state that we do not know, from a newer agent, and one that is no end count as unknown. */
static enum wb_engine_state state_of(const struct wb_p_engine_state *e)
{
	bool is_end = e->state >= WB_ENGINE_COMMITTED && e->state < wb_engine_state_words.n;

	return is_end ? (enum wb_engine_state)e->state : WB_ENGINE_UNKNOWN;
}

/* The result of a transfer that has ended; -1: it has not ended, or we do not know this result. */
static int result_of(const struct wb_msg_report *m)
{
	bool is_result = m->state >= WB_REPORT_FINAL && m->state <= WB_REPORT_FINAL_UNKNOWN;

	return m->is_final && !m->is_feed && is_result ? (int)(m->state - WB_REPORT_FINAL) : -1;
}

static void engines(struct peer *p, struct object *o, const struct wb_msg_report *m)
{
	for (uint32_t i = 0; i < m->n_engines; i++) {
		const struct wb_p_engine_state *e = &m->engines[i];
		enum wb_engine_state state = state_of(e);
		bool is_done = state == WB_ENGINE_COMMITTED;
		struct wb_reconcile_engine_report r = {.engine = e->engine,
			.state = state,
			.transfer = is_done && e->transfer ? e->transfer : m->transfer,
			.version = is_done && e->transfer ? e->version : m->version,
			.is_feed = m->is_feed,
			.epoch = {m->epoch.term, m->epoch.number},
			.transport = m->transport && *m->transport ? m->transport : NULL,
			.fallback = m->fallback,
			.memory_path = m->memory_path && *m->memory_path ? m->memory_path : NULL,
			.reason = e->code ? "TransferFailed" : NULL,
			.message = e->sentence};

		wb_reconcile_engine(wb__serve_touch(o), wb__serve_now(p->s), &r);
	}
}

static void keep_phases(struct worker_times *t, const struct wb_p_worker_report *w, int64_t shift)
{
	t->phase = wb_zalloc(w->n_phases + 1, sizeof(*t->phase));
	for (uint32_t i = 0; t->phase && i < w->n_phases; i++) {
		struct phase *ph = &t->phase[t->n_phase++];

		snprintf(ph->name, sizeof(ph->name), "%s", w->phases[i].name);
		ph->start_ns = (int64_t)w->phases[i].start_ns - shift;
		ph->end_ns = (int64_t)w->phases[i].end_ns - shift;
	}
}

/* The place of a worker in the hash table, or the free place where it would go.  There always is a
 * free one. */
static uint32_t *place_of(const struct xfer *x, uint64_t instance, uint32_t worker)
{
	size_t at = wb_hash64(&worker, sizeof(worker), instance);

	for (;; at++) {
		uint32_t *slot = &x->place[at & (x->n_place - 1)];

		if (!*slot || (x->worker[*slot - 1].worker == worker &&
				      x->worker[*slot - 1].agent_instance == instance))
			return slot;
	}
}

/* Make room for one more worker in the hash table, which stays at most half full. */
static bool make_place(struct xfer *x)
{
	struct xfer next = *x;

	if (2 * (x->n_worker + 1) <= x->n_place)
		return true;
	next.n_place = WB_MAX(2 * x->n_place, 16);
	next.place = wb_zalloc(next.n_place, sizeof(*next.place));
	if (!next.place)
		return false;
	for (uint32_t i = 0; i < x->n_worker; i++)
		*place_of(&next, x->worker[i].agent_instance, x->worker[i].worker) = i + 1;
	wb_free(x->place);
	x->place = next.place;
	x->n_place = next.n_place;
	return true;
}

static bool has_worker(const struct xfer *x, const struct peer *p, uint32_t worker)
{
	return x->n_place && *place_of(x, p->hello.instance, worker);
}

static void add_up(struct xfer *x, const struct worker_times *t)
{
	if (t->resume_ns <= t->stop_ns)
		return;
	if (!x->sum.n || t->stop_ns < x->sum.first_ns) {
		x->sum.first_ns = t->stop_ns;
		x->sum.first_error_ns = t->error_ns;
	}
	if (!x->sum.n || t->resume_ns > x->sum.last_ns) {
		x->sum.last_ns = t->resume_ns;
		x->sum.last_error_ns = t->error_ns;
	}
	x->sum.stall_ns += (uint64_t)(t->resume_ns - t->stop_ns);
	x->sum.n++;
}

/* Give the worker the name that all tools show.  Of a worker of an older plan only the number is
 * known. */
static void keep_name(struct worker_times *t, const struct peer *p, const struct object *o)
{
	size_t n;
	const struct wb_reconcile_member *w = wb_reconcile_active_members(o->r, &n);
	const struct joined *j = wb__serve_joined(p, o);
	const char *name = "";

	if (j && t->worker < n && w[t->worker].agent == p->id)
		name = wb__serve_worker_name(&j->workers, w[t->worker].worker);
	if (*name)
		snprintf(t->name, sizeof(t->name), "%.*s", WB_RECONCILE_WORKER_MAX, name);
	else
		snprintf(t->name, sizeof(t->name), "worker %u of the plan", t->worker);
}

/* The oldest transfer except @but whose times are still kept, or NULL. */
static struct xfer *oldest_with_times(struct object *o, const struct xfer *but)
{
	for (unsigned i = 0; i < XFERS_MAX; i++) {
		struct xfer *x = &o->xfer[(o->xfer_at + i) % XFERS_MAX];

		if (x != but && x->n_worker)
			return x;
	}
	return NULL;
}

/* Charge for the times of one more worker.  Times of the object's older transfers are freed to make
 * room.  If there is no room even then, the times of this and all later workers of the transfer are
 * not kept. */
static bool charge_times(
	const struct peer *p, struct object *o, struct xfer *x, const struct wb_p_worker_report *w)
{
	uint64_t bytes = sizeof(struct worker_times) + 4 * sizeof(*x->place) +
			 (w->n_phases + 1) * sizeof(struct phase);
	struct wb_err err = {0};
	struct xfer *old;

	if (x->is_cut)
		return false;
	while (!wb_budget_has_room(o->s->budget, WB_BUDGET_REPORTS, o->key, bytes) &&
		(old = oldest_with_times(o, x)))
		free_times(o, old);
	if (wb_budget_charge(o->s->budget, WB_BUDGET_REPORTS, o->key, bytes, &err) < 0) {
		wb__serve_tell(o, p, "BudgetExceeded", err.msg);
		x->is_cut = true;
		return false;
	}
	x->charged += bytes;
	return true;
}

/* Counted as reports come, since they may come after the end of the transfer. */
static void count_chunks(struct wb_serve *s, struct xfer *x, const struct wb_p_worker_report *w)
{
	x->resent += w->resent_chunks;
	x->mismatched += w->mismatched_chunks;
	wb_metric_add(s->metrics, WB_SM_RESENT, NULL, (double)w->resent_chunks);
	wb_metric_add(s->metrics, WB_SM_MISMATCHED, NULL, (double)w->mismatched_chunks);
}

/* Keep the times of one worker, for the trace. */
static void keep_times(const struct peer *p, struct object *o, struct xfer *x,
	const struct wb_p_worker_report *w, const struct worker_times *times, int64_t shift)
{
	struct worker_times *t;

	if (!charge_times(p, o, x, w) || !make_place(x) ||
		wb_grow(&x->worker, &x->cap, x->n_worker + 1, WB_WORKERS_MAX, sizeof(*x->worker)) <
			0)
		return;
	*place_of(x, p->hello.instance, w->worker) = (uint32_t)x->n_worker + 1;
	t = &x->worker[x->n_worker++];
	*t = *times;
	snprintf(t->agent, sizeof(t->agent), "%.63s", p->hello.agent);
	keep_name(t, p, o);
	keep_phases(t, w, shift);
}

/* Count what each worker reports, and keep its times as far as there is room.  Counting takes no
 * memory, so it does not depend on that; but only by the times that are kept do we notice that a
 * worker is reported again after a reconnection.
 * clock_offset_ns is the agent's clock minus ours; the error of this is at most clock_error_ns. */
static void workers(
	const struct peer *p, struct object *o, struct xfer *x, const struct wb_msg_report *m)
{
	int64_t shift = m->clock_offset_ns;

	for (uint32_t i = 0; i < m->n_workers; i++) {
		const struct wb_p_worker_report *w = &m->workers[i];
		struct worker_times t = {.worker = w->worker,
			.agent_instance = p->hello.instance,
			.stop_ns = (int64_t)w->stop_ns - shift,
			.resume_ns = (int64_t)w->resume_ns - shift,
			.error_ns = m->clock_error_ns};

		if (has_worker(x, p, w->worker))
			continue;
		add_up(x, &t);
		count_chunks(p->s, x, w);
		if (w->mismatch && *w->mismatch)
			snprintf(x->mismatch, sizeof(x->mismatch), "%s", w->mismatch);
		keep_times(p, o, x, w, &t, shift);
	}
}

/* Set the end-to-end time (EWTT) and the mean stall (AGST): from the times of all workers where
 * there are any, else from what the coordinator and the agents measured. */
static void sum_up(struct xfer *x)
{
	if (x->sum.n) {
		x->end.ewtt_ns = (uint64_t)(x->sum.last_ns - x->sum.first_ns);
		x->end.stall_ns = x->sum.stall_ns / x->sum.n;
		x->error_ns = x->sum.first_error_ns + x->sum.last_error_ns;
		return;
	}
	if (x->end.end_wall_ns > x->end.start_wall_ns)
		x->end.ewtt_ns = x->end.end_wall_ns - x->end.start_wall_ns;
	if (x->n_stall)
		x->end.stall_ns = x->stall_sum_ns / x->n_stall;
}

static void measure(struct wb_serve *s, const struct object *o, const struct xfer *x)
{
	json_t *status = wb_reconcile_status(o->r);
	json_t *ms = json_object_get(json_object_get(status, "plan"), "lowerBoundMilliseconds");

	if (x->end.result == WB_RESULT_SUCCEEDED) {
		wb__serve_show_seconds(s, o, (double)x->end.ewtt_ns / 1e9);
		wb_metric_observe(
			s->metrics, WB_SM_TRANSFER_SECONDS, NULL, (double)x->end.ewtt_ns / 1e9);
		wb_metric_observe(
			s->metrics, WB_SM_STALL_SECONDS, NULL, (double)x->end.stall_ns / 1e9);
		if (json_integer_value(ms) > 0)
			wb_metric_set(s->metrics, WB_SM_BOUND_RATIO, NULL,
				(double)x->end.ewtt_ns / 1e6 / (double)json_integer_value(ms));
	}
	json_decref(status);
}

static void add_bytes(
	struct wb_serve *s, const struct object *o, struct xfer *x, const struct wb_msg_report *m)
{
	for (uint32_t i = 0; i < m->n_bytes && i < WB_STAGES; i++) {
		x->bytes[i] += m->bytes[i];
		wb__serve_count_bytes(s, o, stage_names[i], m->bytes[i]);
	}
}

/* Set the culprit: an engine of the object, or else a pod. */
static void blame(const struct object *o, struct xfer *x, const char *culprit)
{
	size_t n;
	const struct wb_reconcile_member *w = wb_reconcile_active_members(o->r, &n);

	snprintf(x->culprit, sizeof(x->culprit), "%s", culprit ? culprit : "");
	x->end.culprit = (struct wb_reconcile_culprit){.worker = WB_RECONCILE_NONE};
	if (!*x->culprit)
		return;
	for (size_t i = 0; i < n; i++)
		if (w[i].plan.role == WB_ROLE_ROLLOUT && !strcmp(w[i].engine, x->culprit)) {
			x->end.culprit.engine = x->culprit;
			return;
		}
	x->end.culprit.pod = x->culprit;
}

/* Agents of version 1 report Aborted also for an end that they do not know (an engine may be Torn),
 * and Succeeded also when some engines are Torn: the states of the engines correct this. */
static int result_by_engines(const struct wb_msg_report *m, int result)
{
	for (uint32_t i = 0; i < m->n_engines; i++) {
		enum wb_engine_state s = state_of(&m->engines[i]);

		if (result == WB_RESULT_ABORTED && s == WB_ENGINE_UNKNOWN)
			return WB_RESULT_UNKNOWN;
		if (result == WB_RESULT_SUCCEEDED && s == WB_ENGINE_TORN)
			return WB_RESULT_PARTLY_TORN;
	}
	return result;
}

static void final(struct object *o, struct xfer *x, const struct wb_msg_report *m, int result)
{
	result = result_by_engines(m, result);
	x->is_final = true;
	snprintf(x->message, sizeof(x->message), "%s", m->sentence ? m->sentence : "");
	x->end.transfer = m->transfer;
	x->end.version = m->version;
	x->end.is_end = true;
	x->end.result = (enum wb_result)result;
	x->end.start_wall_ns = m->begin_wall_ns;
	x->end.end_wall_ns = m->end_wall_ns;
	x->end.message = x->message;
	blame(o, x, m->culprit);
}

static void tell(struct wb_serve *s, struct object *o, struct xfer *x)
{
	sum_up(x);
	x->end.network_bytes = x->bytes[WB_STAGE_RECEIVE] + x->bytes[WB_STAGE_EXTERNAL];
	x->end.delivered_bytes = x->end.network_bytes + x->bytes[WB_STAGE_INTERNAL];
	wb_reconcile_transfer(wb__serve_touch(o), wb__serve_now(s), &x->end);
}

void wb__serve_on_report(struct peer *p, const struct wb_msg_report *m)
{
	struct object *o = wb__serve_object_of(p, m->object);
	int result = result_of(m);
	struct xfer *x;
	bool is_first;

	if (!o || !m->transfer)
		return;
	engines(p, o, m);
	if (m->is_feed) {
		for (uint32_t i = 0; i < m->n_bytes && i < WB_STAGES; i++)
			wb__serve_count_bytes(p->s, o, "feed", m->bytes[i]);
		return;
	}
	x = get_xfer(o, m);
	if (m->state == WB_REPORT_STARTED) {
		struct wb_reconcile_transfer_report t = {.agent = p->hello.agent,
			.instance = p->hello.instance,
			.epoch = {m->epoch.term, m->epoch.number},
			.transfer = m->transfer,
			.version = m->version,
			.start_wall_ns = m->begin_wall_ns,
			.culprit.worker = WB_RECONCILE_NONE};

		wb_reconcile_transfer(wb__serve_touch(o), wb__serve_now(p->s), &t);
		return;
	}
	is_first = !x->is_final && result >= 0;
	if (x->is_final && result >= 0)
		return; /* said again after a reconnection */
	workers(p, o, x, m);
	add_bytes(p->s, o, x, m);
	if (m->stall_ns) {
		x->stall_sum_ns += m->stall_ns;
		x->n_stall++;
	}
	if (is_first)
		final(o, x, m, result);
	if (x->is_final)
		tell(p->s, o, x);
	if (is_first)
		measure(p->s, o, x);
}
