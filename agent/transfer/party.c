/* SPDX-License-Identifier: Apache-2.0 */
/* A party: the workers of one engine that live in this agent, on their way through a transfer. */
#include "transfer/party.h"

#include "proto/peers.h"
#include "transfer/doubt.h"
#include "transfer/epoch.h"
#include "transfer/flows.h"
#include "transfer/hears.h"
#include "transfer/object.h"
#include "transfer/states.h"
#include "transfer/worker.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The fields that each answer to the lead has. */
#define REPLY(p)                                                                                   \
	.transfer = (p)->transfer, .engine = (p)->engine, .version = (p)->version,                 \
	.is_torn = wb__transfer_engine_is_torn((p)->e, (p)->engine)

void wb__transfer_party_fail(struct party *p, int code, const char *sentence)
{
	char text[WB_ERR_MSG_MAX];

	snprintf(text, sizeof(text), "%s", sentence);
	wb__transfer_send(p->e, p->lead,
		WB_PEER(PROGRESS, REPLY(p), .progress = PROGRESS_FAILED, .code = code,
			.sentence = text));
}

void wb__transfer_to_worker(struct worker *w, uint16_t type, const void *msg)
{
	struct wb_transfer_core *c = w->obj->core;

	if (!w->gone)
		c->env->to_worker(c->env->ctx, w->w.id, type, msg);
}

/* ---- same step ---------------------------------------------------------------------------- */

/* Promise for each worker that it stops at its next poll; the greatest promise is this party's
 * answer. */
static uint32_t promise_all(struct party *p)
{
	struct wb_msg_app_wake wake = {0};
	uint32_t greatest = 0;
	bool any = false;

	for_party_worker (p->e, p->engine, i) {
		struct worker *w = p->e->member[i];
		uint32_t stop;

		if (!w)
			continue;
		w->begun = false;
		w->guess = 0; /* it polls up to the stop, and is not where it was any more */
		stop = wb_poll_promise(&page_of(w)->word);
		if (!any || wb_poll_later(stop, greatest))
			greatest = stop;
		any = true;
		wb__transfer_to_worker(w, WBP_APP_WAKE, &wake);
	}
	return greatest;
}

/* The worker goes on to the target with the others of its engine. */
static void end_hold(struct worker *w)
{
	static char why[] = "the feed that this worker had begun came to nothing";
	struct wb_msg_app_end end = {.transfer = w->hold_transfer,
		.version = w->hold_version,
		.result = WB_APP_END_ABORTED,
		.code = WB_EABORTED,
		.sentence = why};

	w->hold_transfer = 0;
	wb__transfer_to_worker(w, WBP_APP_END, &end);
}

static void set_target(struct party *p, uint32_t target)
{
	wb__transfer_doubt_over(p->e, p->engine);
	for_party_worker (p->e, p->engine, i)
		if (p->e->member[i] && p->e->member[i]->hold_transfer)
			end_hold(p->e->member[i]);
	p->has_target = true;
	p->target = target;
	for_party_worker (p->e, p->engine, i) {
		struct worker *w = p->e->member[i];
		struct wb_msg_app_go go = {.stop = target};

		if (!w)
			continue;
		if (wb_poll_stop(wb_poll_load(&page_of(w)->word)) == target)
			continue;
		wb_poll_set_stop(&page_of(w)->word, target);
		w->is_parked = false;
		wb__transfer_to_worker(w, WBP_APP_GO, &go);
	}
}

static bool all_at_target(const struct party *p)
{
	for_party_worker (p->e, p->engine, i) {
		const struct worker *w = p->e->member[i];

		if (!w || !w->is_parked || w->parked_at != p->target)
			return false;
	}
	return p->has_target;
}

static void begin_hooks(struct party *p)
{
	struct wb_msg_app_begin m = {
		.transfer = p->transfer, .version = p->version, .staged = p->is_staged};

	wb__transfer_party_set(p, PARTY_HOOKS);
	p->begin_ns = now_ns(p->e->obj->core);
	for_party_worker (p->e, p->engine, i) {
		p->e->member[i]->begun_ns = p->e->member[i]->resume_ns = 0;
		wb__transfer_to_worker(p->e->member[i], WBP_APP_BEGIN, &m);
	}
}

static void check_parked(struct party *p)
{
	if (p->state == PARTY_STOPPING && all_at_target(p))
		begin_hooks(p);
}

/* ---- orders of the lead ------------------------------------------------------------------- */

static void promise(struct party *p)
{
	uint32_t poll;

	p->has_target = false;
	wb__transfer_party_expect_end(p);
	p->owes_promise = wb__transfer_doubt_asks_late(p->e, p->engine);
	if (p->owes_promise)
		return;
	poll = promise_all(p);
	wb__transfer_send(p->e, p->lead, WB_PEER(PROMISE, REPLY(p), .poll = poll));
}

void wb__transfer_party_promise(struct party *p)
{
	if (p->state == PARTY_STOPPING && p->owes_promise)
		promise(p);
}

struct party *wb__transfer_party_begin(
	struct epoch *e, uint32_t from, const struct wb_msg_peer *m, bool is_staged)
{
	struct party *p = &e->party[m->engine];

	if (p->state != PARTY_NONE)
		wb__transfer_party_set(p, PARTY_NONE);
	*p = (struct party){
		.e = e,
		.engine = m->engine,
		.lead = from,
		.transfer = m->transfer,
		.version = m->version,
		.is_feed = m->feed,
		.is_staged = is_staged,
		.source_engine = m->feeder,
		.feed = p->feed,
	};
	return p;
}

static void on_stop(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct party *p = &e->party[m->engine];

	if (e->staged && !m->feed) {
		if (!wb__transfer_party_restage(e, from, m))
			return;
		wb__transfer_party_set(p, PARTY_STOPPING);
		promise(p);
		return;
	}
	wb__transfer_party_overtaken(e, m->engine);
	p = wb__transfer_party_begin(e, from, m, false);
	wb__transfer_party_set(p, PARTY_STOPPING);
	e->obj->highest = WB_MAX(e->obj->highest, m->transfer);
	wb__transfer_fault(e->obj, WB_FAULT_PREPARE, p->transfer, p->version);
	wb__transfer_flows_prune(e->obj, m->transfer);
	p->deadline_ns = 0; /* the lead watches the time of user code */
	wb__transfer_party_expect_end(p);
	for_party_worker (e, m->engine, i) {
		char text[512];

		if (wb__transfer_can_take_part(e, i, text, sizeof(text)))
			continue;
		wb__transfer_party_fail(p, -ENOTCONN, text);
		return;
	}
	promise(p);
}

static void report_stopped(struct party *p, int64_t code, const char *sentence)
{
	char text[WB_ERR_MSG_MAX];

	snprintf(text, sizeof(text), "%s", sentence ? sentence : "");
	wb__transfer_party_set(p, PARTY_STOPPED);
	/* If it is staged, the lead may now have the engine's other parties install, whatever
	 * becomes of this one. */
	for_party_worker (p->e, p->engine, i)
		if (p->is_staged && !code && p->e->member[i])
			__atomic_store_n(
				&page_of(p->e->member[i])->touched, p->transfer, __ATOMIC_RELEASE);
	wb__transfer_send(p->e, p->lead,
		WB_PEER(STOPPED, REPLY(p), .asks = true, .code = code,
			.sentence = code ? text : NULL));
}

static const uint8_t *feed_sources(struct party *p)
{
	const struct wb_plan *plan = p->e->plan;

	if (!p->is_feed)
		return NULL;
	if (!p->feed)
		p->feed = wb_zalloc(plan->n_worker, 1);
	for (uint32_t w = 0; p->feed && w < plan->n_worker; w++)
		p->feed[w] = plan->worker[w].role == WB_ROLE_ROLLOUT &&
			     plan->worker[w].engine == p->source_engine;
	return p->feed;
}

static uint32_t first_local(const struct party *p)
{
	for_party_worker (p->e, p->engine, i)
		return i;
	return 0;
}

static bool all_here(const struct party *p)
{
	for_party_worker (p->e, p->engine, i)
		if (!p->e->member[i] || p->e->member[i]->gone || p->e->member[i]->asleep)
			return false;
	return true;
}

void wb__transfer_party_open(struct party *p)
{
	struct epoch *e = p->e;
	const uint8_t *feed = feed_sources(p);
	char text[512];

	if (!all_here(p)) { /* the lead knows; END is on its way */
		wb__transfer_party_set(p, p->is_staged ? PARTY_MOVING : PARTY_STOPPED);
		return;
	}
	p->flow = p->is_feed ? wb__transfer_flow_direct(e, p->transfer, true)
			     : wb__transfer_flow_get(e, p->transfer, true);
	if (!p->flow || (p->is_feed && !feed)) {
		snprintf(text, sizeof(text), "%s: %s",
			wb__transfer_worker_name(e, e->local->member[first_local(p)].plan_worker),
			wb__transfer_no_flow(e));
		wb__transfer_party_set(p, p->is_staged ? PARTY_MOVING : PARTY_STOPPED);
		wb__transfer_party_fail(p, -ENOMEM, text);
		return;
	}
	wb_flow_set_version(p->flow, p->version);
	wb__transfer_party_set(p, PARTY_MOVING);
	p->is_opened = !p->is_staged;
	p->open_ns = now_ns(e->obj->core);
	p->deadline_ns = p->open_ns + e->r->transfer_deadline_ns;
	for_party_worker (e, p->engine, i) {
		struct worker *w = e->member[i];

		if (!p->is_staged) {
			w->held_transfer = 0; /* from here on a mix */
			__atomic_store_n(&page_of(w)->touched, p->transfer, __ATOMIC_RELEASE);
		}
		if (w->area.head && !p->is_staged) {
			w->area.head->held_transfer = 0;
			wb_area_set(w->area.head, WB_AREA_EMPTY); /* not what is coming */
		}
	}
	for (uint32_t w = 0; p->is_feed && w < e->plan->n_worker; w++)
		if (e->r->agent[e->plan->worker[w].domain].is_absent)
			wb_flow_lose_worker(p->flow, w);
	p->opening = true;
	for_party_worker (e, p->engine, i)
		wb_flow_open_sink(p->flow, i, feed);
	p->opening = false;
	wb__transfer_party_received(e, p->flow, 0);
	wb__transfer_party_complete(e, p->flow, first_local(p));
}

static void on_open(struct party *p)
{
	wb__transfer_party_set(p, PARTY_OPENING);
	p->drain_ns = now_ns(p->e->obj->core) + TRANSFER_DRAIN_NS;
	if (wb__transfer_flows_quiet(p->e, p->engine, p->transfer, QUIET_PARAMS, false))
		wb__transfer_party_open(p);
}

static void content_sum(const struct party *p, struct wbk_sum *sum)
{
	*sum = (struct wbk_sum){{0, 0}};
	for_party_worker (p->e, p->engine, i) {
		const struct worker *w = p->e->member[i];
		const struct wb_area_head *h = p->is_staged && w ? w->area.head : NULL;
		struct wbk_sum s = h         ? (struct wbk_sum){{h->sum[0], h->sum[1]}}
				   : p->flow ? wb_flow_worker_sum(p->flow, i)
					     : (struct wbk_sum){{0, 0}};

		sum->lane[0] += s.lane[0];
		sum->lane[1] += s.lane[1];
	}
}

static void look_ended(struct party *p);

void wb__transfer_holds_now(struct worker *w, uint64_t transfer, int64_t version, uint32_t count)
{
	w->held_transfer = transfer;
	w->held_version = version;
	w->past.begun = 0;
	w->past.done = transfer;
	w->past.done_at = count;
	w->past.is_torn = false;
	w->guess = 0;
	w->repair_ns = 0;
	if (w->area.head) {
		w->area.head->held_version = version;
		w->area.head->held_transfer = transfer;
	}
	__atomic_store_n(&page_of(w)->transfer, transfer, __ATOMIC_RELAXED);
	__atomic_store_n(&page_of(w)->version, (uint64_t)version, __ATOMIC_RELAXED);
}

static void on_committed(struct party *p, const struct wb_msg_peer *m)
{
	struct wb_msg_app_end end = {
		.transfer = p->transfer, .version = p->version, .result = WB_APP_END_COMMITTED};
	char digest[40];

	wb__transfer_fault(p->e->obj, WB_FAULT_COMMIT, p->transfer, p->version);
	snprintf(digest, sizeof(digest), "sum128:%016llx%016llx", (unsigned long long)m->sum0,
		(unsigned long long)m->sum1);
	end.digest = digest;
	wb__transfer_party_set(p, PARTY_ENDING);
	p->end_ns = now_ns(p->e->obj->core);
	wb__transfer_flows_retire(p->e->obj, p->transfer);
	for_party_worker (p->e, p->engine, i) {
		struct worker *w = p->e->member[i];

		if (!w)
			continue;
		wb__transfer_holds_now(w, p->transfer, p->version, p->target);
		w->resuming = w->gone ? 0 : p->transfer; /* it will not say RESUMED */
		w->expects_feed = false;
		w->is_parked = false;
		wb_poll_set_stop(&page_of(w)->word, 0);
		wb__transfer_to_worker(w, WBP_APP_END, &end);
	}
	look_ended(p); /* the last one may have left before it heard of the end */
}

void wb__transfer_party_engine_lost(struct epoch *e, const struct wb_msg_peer *m)
{
	/* m->lost is the engine that is lost, m->engine the one told. */
	struct party *p = &e->party[m->engine];

	if (p->state == PARTY_NONE || p->transfer != m->transfer)
		return;
	p->losses = m->losses;
	if (!p->flow) /* not opened yet: the flow must know all the same */
		p->flow = p->is_feed ? wb__transfer_flow_direct(e, p->transfer, true)
				     : wb__transfer_flow_get(e, p->transfer, true);
	for (uint32_t w = 0; p->flow && w < e->plan->n_worker; w++)
		if (e->plan->worker[w].role == WB_ROLE_ROLLOUT &&
			e->plan->worker[w].engine == m->lost)
			wb_flow_lose_worker(p->flow, w);
	wb__transfer_party_received(e, p->flow, 0); /* say again where we stand */
}

/* The same engine's party under the plan in use, for what was said under the plan before; NULL: @e
 * is not that plan, or the party is in no run. */
static const struct party *party_since(const struct epoch *e, uint32_t engine)
{
	const struct epoch *cur = e == e->obj->prev ? e->obj->cur : NULL;
	uint32_t en = wb__transfer_engine_in(cur, e, engine);

	return en == UINT32_MAX || cur->party[en].state == PARTY_NONE ? NULL : &cur->party[en];
}

void wb__transfer_party_refuse(
	struct epoch *e, uint32_t from, const struct wb_msg_peer *m, int code, char *sentence)
{
	wb__transfer_send(e, from,
		WB_PEER(PROGRESS, .transfer = m->transfer, .engine = m->engine,
			.version = m->version, .progress = PROGRESS_FAILED, .code = code,
			.sentence = sentence));
}

/* What was said under the plan before may come late.  Nothing begins under that plan any more when
 * something has begun under its successor: it would take the successor's areas and stops for its
 * own.  A transfer under the successor ends what that lead is about; but a feed is of one engine,
 * keeps that engine's workers, and ends nothing, so the lead has to hear of it. */
static bool refuse_late(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	const struct epoch *cur = e == e->obj->prev ? e->obj->cur : NULL;
	const struct party *p = party_since(e, m->engine);
	char text[256];

	if (p) {
		snprintf(text, sizeof(text), "engine %.100s is still in transfer %llu",
			e->r->engine[m->engine].name, (unsigned long long)p->transfer);
		wb__transfer_party_refuse(e, from, m, -EBUSY, text);
	}
	return p || (cur && cur->is_active && cur->has_begun);
}

/* May a run begin here by this order? */
static bool may_begin(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	return !refuse_late(e, from, m) && !wb__transfer_refuse_asleep(e, from, m);
}

void wb__transfer_on_STOP(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	if (may_begin(e, from, m))
		on_stop(e, from, m);
}

void wb__transfer_on_STAGE(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	if (may_begin(e, from, m))
		wb__transfer_party_stage(e, from, m);
}

/* The run that an order is about; NULL: another one, or none. */
static struct party *run_of(struct epoch *e, const struct wb_msg_peer *m)
{
	struct party *p = &e->party[m->engine];

	return p->state == PARTY_NONE || p->transfer != m->transfer ? NULL : p;
}

void wb__transfer_on_TARGET(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct party *p = run_of(e, m);

	(void)from;
	if (!p || p->state != PARTY_STOPPING)
		return;
	set_target(p, m->poll);
	check_parked(p);
}

void wb__transfer_on_ALL_STOPPED(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct party *p = run_of(e, m);

	(void)from;
	if (!p || p->state != PARTY_STOPPED)
		return;
	p->knows_all_stopped = true;
	wb__transfer_send(e, p->lead, WB_PEER(HEARD, REPLY(p)));
}

void wb__transfer_on_OPEN(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct party *p = run_of(e, m);

	(void)from;
	if (p && p->state == PARTY_STOPPED)
		on_open(p);
}

void wb__transfer_on_INSTALL(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct party *p = run_of(e, m);

	(void)from;
	if (p && p->state == PARTY_STOPPED)
		wb__transfer_party_install(p);
}

/* The run has ended here already, in another way: workers may be in doubt of it, or areas be
 * full. */
static void ended_late(struct epoch *e, const struct wb_msg_peer *m)
{
	if (!wb__transfer_doubt_end(e, m) && m->how == WB_ENGINE_ABORTED)
		wb__transfer_party_forget(e, m->engine, m->transfer);
}

void wb__transfer_on_END(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct party *p = run_of(e, m);

	(void)from;
	if (e->party[m->engine].state == PARTY_NONE)
		ended_late(e, m);
	if (!p || p->state == PARTY_ENDING)
		return;
	/* Only what is whole here can be committed. */
	if (m->how == WB_ENGINE_COMMITTED && p->state == PARTY_COMPLETE)
		on_committed(p, m);
	else
		wb__transfer_party_failed_end(p, m);
}

/* ---- workers ------------------------------------------------------------------------------ */

static struct party *party_in(struct epoch *e, const struct worker *w, uint32_t *local)
{
	for (uint32_t i = 0; e && i < e->local->n; i++) {
		const struct wb_plan_worker *pw = &e->plan->worker[e->local->member[i].plan_worker];

		if (e->member[i] == w && pw->role == WB_ROLE_ROLLOUT &&
			e->party[pw->engine].state != PARTY_NONE) {
			*local = i;
			return &e->party[pw->engine];
		}
	}
	return NULL;
}

/* The next transfer, of a newer plan, may begin while after_update_hook of this one runs.
 * @transfer 0: the party of the one that is not over. */
static struct party *party_of(struct worker *w, uint64_t transfer)
{
	uint32_t local;

	for (int k = 0; w->obj && k < 2; k++) {
		struct party *p = party_in(k ? w->obj->prev : w->obj->cur, w, &local);

		if (p && (transfer ? p->transfer == transfer : p->state != PARTY_ENDING))
			return p;
	}
	return NULL;
}

/* The party in whose run the after_update_hook has ended.  A feed of the same number may have begun
 * meanwhile, under a newer plan. */
static struct party *party_resumed(struct worker *w, uint64_t transfer)
{
	uint32_t local;

	for (int k = 0; w->obj && k < 2; k++) {
		struct party *p = party_in(k ? w->obj->cur : w->obj->prev, w, &local);

		if (p && p->transfer == transfer && p->state == PARTY_ENDING)
			return p;
	}
	return NULL;
}

static void on_parked(struct worker *w, struct party *p, uint32_t count)
{
	struct wb_msg_app_go go = {0};
	uint32_t stop = wb_poll_stop(wb_poll_load(&page_of(w)->word));

	w->is_parked = true;
	w->parked_at = count;
	w->stop_ns = w->obj ? now_ns(w->obj->core) : 0;
	if (w->expects_feed && !p)
		return; /* the feed's STOP is on its way */
	if (!p || stop != count || (p->has_target && count != p->target)) {
		/* The stop moved while the worker was on its way to the agent. */
		w->is_parked = stop == count;
		if (stop != count)
			wb__transfer_to_worker(w, WBP_APP_GO, &go);
	}
	if (p)
		check_parked(p);
}

static void on_begun(struct worker *w, struct party *p, const struct wb_msg_app_begun *m)
{
	char text[WB_ERR_MSG_MAX];

	if (p->state != PARTY_HOOKS || m->transfer != p->transfer)
		return;
	w->begun = true;
	w->begun_ns = now_ns(p->e->obj->core);
	/* This was not done when the worker was asked to begin: it may not have heard then how the
	 * run before ended. */
	__atomic_store_n(&page_of(w)->touched, 0, __ATOMIC_RELAXED);
	if (m->code < 0) {
		snprintf(text, sizeof(text), "before_update_hook of %s raised: %s", w->w.name,
			m->sentence ? m->sentence : "?");
		wb__transfer_trace(p->e->obj, "hook raised", w->w.name, p->transfer, 0);
		if (!p->is_decided || m->code == -EAGAIN) { /* -EAGAIN: it was not parked */
			report_stopped(p, m->code, text);
			return;
		}
	}
	for_party_worker (p->e, p->engine, i)
		if (!p->e->member[i] || !p->e->member[i]->begun)
			return;
	report_stopped(p, 0, NULL);
}

/* The run is over when no worker runs its after_update_hook any more. */
static void look_ended(struct party *p)
{
	struct wb_peer_ENDED m = WB_PEER_FIELDS(ENDED, REPLY(p));
	struct wb_flow_stats st;
	uint64_t bytes[WB_STAGES];

	for_party_worker (p->e, p->engine, i) {
		if (p->e->member[i] && p->e->member[i]->resuming == p->transfer)
			return;
		if (p->e->member[i] && !p->e->member[i]->gone) {
			m.stall_ns += p->e->member[i]->resume_ns - p->e->member[i]->stop_ns;
			m.n_stall++;
		}
	}
	if (p->flow) {
		wb_flow_get_stats(p->flow, &st);
		memcpy(bytes, st.bytes, sizeof(bytes));
		m.bytes = bytes;
		m.n_bytes = WB_STAGES;
	}
	wb__transfer_times_party(p);
	wb__transfer_party_set(p, PARTY_NONE);
	p->flow = NULL; /* stays in the object, for those who read from us */
	wb__transfer_send(p->e, p->lead, WB_PEER_OF(ENDED, &m));
}

static void on_resumed(struct worker *w, struct party *p)
{
	if (p->state != PARTY_ENDING)
		return;
	if (w->resuming == p->transfer)
		w->resuming = 0;
	w->resume_ns = now_ns(p->e->obj->core);
	look_ended(p);
}

void wb__transfer_party_worker(struct worker *w, uint16_t type, const void *msg)
{
	uint64_t transfer =
		type == WBP_APP_INSTALLED ? ((const struct wb_msg_app_installed *)msg)->transfer
		: type == WBP_APP_BEGUN   ? ((const struct wb_msg_app_begun *)msg)->transfer
		: type == WBP_APP_RESUMED ? ((const struct wb_msg_app_resumed *)msg)->transfer
					  : 0;
	struct party *p =
		type == WBP_APP_RESUMED ? party_resumed(w, transfer) : party_of(w, transfer);

	if (type == WBP_APP_PARKED)
		on_parked(w, p, ((const struct wb_msg_app_parked *)msg)->count);
	else if (type == WBP_APP_INSTALLED && p)
		wb__transfer_party_installed(w, p, msg);
	else if (type == WBP_APP_BEGUN && p)
		on_begun(w, p, msg);
	else if (type == WBP_APP_RESUMED && p)
		on_resumed(w, p);
}

static void lost_in(struct party *p, struct worker *w, uint32_t local, const char *why)
{
	char text[WB_ERR_MSG_MAX], where[128] = "";

	if (p->state == PARTY_ENDING) {
		/* committed; the others go on */
		on_resumed(w, p);
		return;
	}
	if (p->flow)
		wb_flow_waiting_for(p->flow, local, where, sizeof(where));
	snprintf(text, sizeof(text), "%s %s %s%s%s", w->w.name, why,
		p->is_opened ? "in the receive stage" : "before the first byte",
		where[0] ? ", waiting for " : "", where);
	wb__transfer_party_fail(p, -EPIPE, text);
}

void wb__transfer_party_worker_lost(struct worker *w, const char *why)
{
	for (int k = 0; w->obj && k < 2; k++) {
		uint32_t local;
		struct party *p = party_in(k ? w->obj->prev : w->obj->cur, w, &local);

		if (p)
			lost_in(p, w, local, why);
	}
}

/* ---- the flow speaks ---------------------------------------------------------------------- */

static struct party *party_of_flow(struct epoch *e, const struct wb_flow *f, uint32_t local)
{
	uint32_t en = e->plan->worker[e->local->member[local].plan_worker].engine;

	return e->party[en].flow == f && e->party[en].state == PARTY_MOVING ? &e->party[en] : NULL;
}

static bool each_sink(const struct party *p, bool (*is)(const struct wb_flow *, uint32_t))
{
	if (!p->flow) /* the flow ended with the last worker here */
		return false;
	for_party_worker (p->e, p->engine, i)
		if (!is(p->flow, i))
			return false;
	return true;
}

void wb__transfer_party_progress(struct party *p, enum progress what)
{
	struct wbk_sum sum = {{0, 0}};

	if (what == PROGRESS_COMPLETE || what == PROGRESS_INSTALLED)
		content_sum(p, &sum);
	wb__transfer_send(p->e, p->lead,
		WB_PEER(PROGRESS, REPLY(p), .progress = what, .losses = p->losses,
			.sum0 = sum.lane[0], .sum1 = sum.lane[1]));
}

void wb__transfer_party_received(struct epoch *e, struct wb_flow *f, uint32_t local)
{
	(void)local;
	for (uint32_t en = 0; f && en < e->r->n_engine; en++) {
		struct party *p = &e->party[en];

		if (p->flow == f && !p->opening &&
			(p->state == PARTY_MOVING || p->state == PARTY_COMPLETE) &&
			each_sink(p, wb_flow_sink_received))
			wb__transfer_party_progress(p, PROGRESS_RECEIVED);
	}
}

void wb__transfer_party_complete(struct epoch *e, struct wb_flow *f, uint32_t local)
{
	struct party *p = party_of_flow(e, f, local);

	if (!p || p->opening || !each_sink(p, wb_flow_sink_complete))
		return;
	wb__transfer_party_set(p, PARTY_COMPLETE);
	p->complete_ns = now_ns(e->obj->core);
	p->deadline_ns = 0;
	if (p->is_staged)
		wb__transfer_party_staged(p);
	wb__transfer_party_progress(p, PROGRESS_COMPLETE);
}

void wb__transfer_party_failed(
	struct epoch *e, struct wb_flow *f, uint32_t local, const struct wb_err *err)
{
	struct party *p = party_of_flow(e, f, local);
	char text[WB_ERR_MSG_MAX];

	if (!p)
		return;
	snprintf(text, sizeof(text), "%s: %.900s",
		wb__transfer_worker_name(e, e->local->member[local].plan_worker), err->msg);
	wb__transfer_party_fail(p, err->code, text);
}
