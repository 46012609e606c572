/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer workers of this agent: ask the coordinator, serve their parameters, let them go. */
#include "transfer/trainers.h"

#include "proto/peers.h"
#include "transfer/doubt.h"
#include "transfer/epoch.h"
#include "transfer/flows.h"
#include "transfer/hears.h"
#include "transfer/object.h"
#include "transfer/states.h"
#include "transfer/wire.h"
#include "transfer/worker.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define for_trainer(e, i)                                                                          \
	for (uint32_t i = 0; i < (e)->local->n; i++)                                               \
		if ((e)->plan->worker[(e)->local->member[i].plan_worker].role == WB_ROLE_TRAINER)

static void tell_one(struct trainers *t, struct worker *w, struct wb_msg_app_send_state *m)
{
	struct wb_transfer_core *c = t->e->obj->core;

	m->transfer = m->transfer ? m->transfer : t->transfer;
	m->version = t->version;
	m->seconds_x1e6 = (now_ns(c) - t->begin_ns) / WB_NS_PER_US;
	m->held = m->state >= WB_APP_SEND_RELEASED && (w->holds || w->letting_go);
	if (!w->gone)
		c->env->to_worker(c->env->ctx, w->w.id, WBP_APP_SEND_STATE, m);
}

static void tell(struct trainers *t, struct wb_msg_app_send_state *m)
{
	for_trainer (t->e, i)
		if (t->e->member[i])
			tell_one(t, t->e->member[i], m);
}

/* False: not all trainer workers here have called. */
static bool make_trigger(const struct epoch *e, struct wb_peer_TRIGGER *m, char *text, size_t cap)
{
	const struct worker *first = NULL;

	*m = (struct wb_peer_TRIGGER)WB_PEER_FIELDS(TRIGGER);
	for_trainer (e, i) {
		const struct worker *w = e->member[i];

		if (!w || w->gone || !w->has_sent)
			return false;
		if (!first)
			first = w;
		if (w->sent_version != first->sent_version) {
			snprintf(text, cap,
				"different versions were passed to send_weights: %lld by %s, %lld "
				"by %s",
				(long long)first->sent_version, first->w.name,
				(long long)w->sent_version, w->w.name);
			m->code = -EINVAL;
			m->sentence = text;
		}
	}
	m->version = first ? first->sent_version : -1;
	return first != NULL;
}

static void send_trigger(struct trainers *t, const struct wb_peer_TRIGGER *m)
{
	wb__transfer_send(t->e, t->e->r->coordinator, WB_PEER_OF(TRIGGER, m));
	t->asked_seq = t->e->wire[t->e->r->coordinator].tx_seq;
	t->again_ns = now_ns(t->e->obj->core) + TRANSFER_ASK_AGAIN_NS;
	t->is_dropped = false;
}

/* All trainer workers here have called: ask the coordinator. */
static void ask(struct object *o)
{
	struct trainers *t = &o->trainers;
	struct epoch *e = wb__transfer_usable(o);
	struct wb_peer_TRIGGER m;
	char text[512];

	if (!e || t->state != TRAINERS_IDLE || !make_trigger(e, &m, text, sizeof(text)))
		return;
	wb__transfer_trainers_set(t, TRAINERS_ASKED);
	t->e = e;
	t->flow = NULL;
	t->transfer = 0;
	t->version = m.version;
	m.call = ++t->call;
	t->asked_highest = m.highest = o->issued;
	t->asked_refused = m.refusals = e->refused_seen;
	t->begin_ns = now_ns(o->core);
	t->is_told = t->has_next = false;
	t->hold_ns = 0;
	for_trainer (e, i)
		e->member[i]->stop_ns = t->begin_ns;
	send_trigger(t, &m);
}

void wb__transfer_trainers_ask_again(struct epoch *e, uint32_t agent)
{
	struct trainers *t = &e->obj->trainers;
	struct wb_peer_TRIGGER m;
	char text[512];

	if (t->state != TRAINERS_ASKED || t->e != e || e->r->coordinator != agent ||
		!make_trigger(e, &m, text, sizeof(text)))
		return;
	m.call = t->call;
	m.highest = t->asked_highest;
	m.refusals = t->asked_refused;
	send_trigger(t, &m);
}

/* The next version is ready here while the last is on its way: engines may drop the last. */
static void offer_next(struct object *o)
{
	struct trainers *t = &o->trainers;

	if (t->state < TRAINERS_SERVING || t->has_next || !t->e->r->supersede)
		return;
	for_trainer (t->e, i) {
		const struct worker *w = t->e->member[i];

		if (!w || w->gone || !w->has_sent)
			return;
	}
	t->has_next = true;
	wb__transfer_send(t->e, t->e->r->coordinator, WB_PEER(NEXT, .transfer = t->transfer));
}

void wb__transfer_trainers_send(struct worker *w, int64_t version, uint32_t flags)
{
	w->has_sent = true;
	w->sent_ns = w->obj ? now_ns(w->obj->core) : 0;
	w->sent_version = version;
	w->sent_hold = flags & WB_APP_SEND_HOLD;
	w->sent_keep = flags & WB_APP_SEND_KEEP;
	if (!w->obj)
		return;
	wb__transfer_keep_forget(w);
	ask(w->obj);
	offer_next(w->obj);
}

void wb__transfer_trainers_forget(struct trainers *t)
{
	wb__transfer_trainers_set(t, TRAINERS_IDLE);
	t->e = NULL;
}

/* A new plan: a question that was not answered is asked again under it. */
void wb__transfer_trainers_replanned(struct epoch *e)
{
	struct trainers *t = &e->obj->trainers;

	if (t->state == TRAINERS_ASKED && t->e != e)
		wb__transfer_trainers_forget(t);
	if (e == e->obj->cur)
		ask(e->obj);
}

static void trainer_failed(struct trainers *t, int code, const char *sentence)
{
	char text[WB_ERR_MSG_MAX];

	snprintf(text, sizeof(text), "%s", sentence);
	wb__transfer_send(t->e, t->e->r->coordinator,
		WB_PEER(TRAINER_LOST, .transfer = t->transfer, .code = code, .sentence = text));
}

/* The worker goes on; those who need its chunks get them from the snapshot. */
void wb__transfer_trainers_snapped(struct epoch *e, struct wb_flow *f, uint32_t local, int rc)
{
	struct trainers *t = &e->obj->trainers;
	struct wb_msg_app_send_state s = {.state = WB_APP_SEND_RELEASED};
	struct worker *w = e->member[local];
	char text[512];

	if (t->flow != f || t->e != e || !w)
		return;
	if (rc < 0) {
		snprintf(text, sizeof(text), "no snapshot of %s: %s", w->w.name, wb_strerror(rc));
		if (t->state == TRAINERS_SERVING)
			trainer_failed(t, rc, text);
		return;
	}
	wb__transfer_trace(e->obj, e->r->trainer_staged ? "snapshot" : "left early", w->w.name,
		t->transfer, e->r->trainer_staged ? e->image[local]->bytes : 0);
	w->resume_ns = now_ns(e->obj->core);
	if (t->state == TRAINERS_SERVING)
		tell_one(t, w, &s);
}

static void open_sources(struct trainers *t)
{
	struct epoch *e = t->e;

	t->is_told = e->r->trainer_staged; /* each worker is told when its own snapshot is made */
	for_trainer (e, i) {
		if (!e->r->trainer_staged)
			wb_flow_open_source(t->flow, i);
		else if (wb_flow_open_image(t->flow, i, e->image[i], e->member[i]->image) < 0)
			trainer_failed(t, -ENOMEM, "no memory for a snapshot");
	}
}

void wb__transfer_on_SERVE(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct trainers *t = &e->obj->trainers;
	struct wb_msg_app_send_state s = {.state = WB_APP_SEND_STARTED};
	char text[512];
	bool fits;

	if (from != e->r->coordinator || t->state != TRAINERS_ASKED || t->e != e ||
		(m->call && m->call != t->call))
		return;
	e->obj->issued = WB_MAX(e->obj->issued, m->transfer);
	t->transfer = m->transfer;
	t->version = m->version;
	wb__transfer_fault(e->obj, WB_FAULT_PREPARE, t->transfer, t->version);
	e->served = WB_MAX(e->served, t->transfer);
	fits = wb__transfer_images_fit(e);
	t->flow = fits ? wb__transfer_flow_get(e, m->transfer, true) : NULL;
	if (!t->flow) {
		snprintf(text, sizeof(text), "trainer agent %s cannot send: %.300s",
			e->r->agent[e->me].name,
			fits ? wb__transfer_no_flow(e)
			     : "its agent has shared out the room for snapshots for a newer plan");
		trainer_failed(t, -ENOMEM, text);
		return;
	}
	wb_flow_set_version(t->flow, t->version);
	wb__transfer_trainers_set(t, TRAINERS_SERVING);
	/* The coordinator has a deadline (begin() in coordinator.c), after which it may wait once
	 * more for engines to end; this one is for a coordinator whose last word was lost. */
	t->deadline_ns = now_ns(e->obj->core) + 3 * e->r->engine_step_deadline_ns +
			 (e->r->rollout_staged ? 2 : 1) * e->r->transfer_deadline_ns +
			 10 * WB_NS_PER_S;
	for_trainer (e, i) {
		e->member[i]->has_sent = e->member[i]->letting_go = false;
		/* A snapshot by itself holds the version, until the end. */
		e->member[i]->holds = e->member[i]->sent_hold &&
				      (!e->r->trainer_staged || e->member[i]->sent_keep);
	}
	tell(t, &s);
	open_sources(t);
}

bool wb__transfer_has_left(const struct trainers *t, uint32_t local)
{
	return t->flow && wb_flow_image_is_whole(t->flow, local);
}

/* A hold keeps open what is read; a snapshot is read until the end, whether its worker holds or
 * not. */
static bool is_held_open(const struct trainers *t, uint32_t local)
{
	const struct worker *w = t->e->member[local];

	return w && w->holds && !t->e->r->trainer_staged;
}

/* Does anybody still read parameters that this agent has closed? */
static bool sources_busy(const struct trainers *t)
{
	for_trainer (t->e, i)
		if (t->flow && !is_held_open(t, i) && wb_flow_source_busy(t->flow, i))
			return true;
	return false;
}

static void close_sources(struct trainers *t)
{
	for_trainer (t->e, i)
		if (t->flow && !is_held_open(t, i))
			wb_flow_close_source(t->flow, i);
}

static void tell_final(struct trainers *t, const struct wb_msg_peer *m)
{
	struct object *o = t->e->obj;
	const struct wb_flow *image;
	struct wb_msg_app_send_state s = {
		.transfer = m->transfer,
		.state = WB_APP_SEND_FINAL,
		.code = m->code,
		.sentence = m->sentence,
		.engine = m->engines,
		.n_engine = m->n_engines,
		.engine_state = m->states,
		.n_engine_state = m->n_states,
	};

	for_trainer (t->e, i)
		if (t->e->member[i])
			t->e->member[i]->has_sent &= t->state == TRAINERS_RELEASED;
	tell(t, &s);
	/* Workers of a transfer that failed stood still until now. */
	for_trainer (t->e, i) {
		struct worker *w = t->e->member[i];

		if (w && w->resume_ns < w->stop_ns)
			w->resume_ns = now_ns(t->e->obj->core);
		if (w && w->holds)
			wb__transfer_keep(w, t->transfer, t->version);
		if (w)
			w->holds = false;
	}
	if (t->state >= TRAINERS_SERVING)
		wb__transfer_times_trainers(t);
	/* Engines that are fed with what is kept read parameters, by a flow that has no
	 * snapshot. */
	image = t->e->r->trainer_staged ? t->flow : NULL;
	wb__transfer_flows_prune(o, t->transfer + 1);
	wb__transfer_trainers_set(t, TRAINERS_IDLE);
	t->idle_ns = now_ns(o->core);
	t->flow = NULL;
	wb__transfer_flow_stop(o, image);
	t->e = NULL;
	ask(o);
}

/* A hold ends: the worker may change its parameters once nobody reads them any more. */
static void let_go(struct trainers *t)
{
	struct wb_msg_app_send_state s = {.state = WB_APP_SEND_RELEASED};

	for_trainer (t->e, i) {
		struct worker *w = t->e->member[i];

		if (!w || !w->letting_go || (t->flow && wb_flow_source_busy(t->flow, i)))
			continue;
		w->letting_go = false;
		tell_one(t, w, &s);
	}
}

static void released(struct trainers *t)
{
	struct wb_msg_app_send_state s = {.state = WB_APP_SEND_RELEASED};
	struct wb_frame f;
	union wb_msg m;
	uint8_t *final = t->final_body;
	const uint8_t *body;

	wb__transfer_trainers_set(t, TRAINERS_RELEASED);
	for_trainer (t->e, i) {
		struct worker *w = t->e->member[i];

		if (!w || wb__transfer_has_left(t, i))
			continue; /* it went on when it was told so */
		w->resume_ns = now_ns(t->e->obj->core);
		if (!t->is_told)
			tell_one(t, w, &s);
	}
	t->is_told = true;
	if (!final)
		return;
	t->final_body = NULL;
	if (wb_frame_check(final, t->final_len, &f, &body, NULL) == 0 &&
		wb_msg_decode_bin(&f, body, &m, NULL) == 0) {
		tell_final(t, &m.peer);
		wb_msg_free(WBP_PEER, &m);
	}
	wb_free(final);
}

/* Parameters may change once nobody reads them any more. */
static void release(struct trainers *t)
{
	wb__transfer_fault(t->e->obj, WB_FAULT_RELEASE, t->transfer, t->version);
	wb__transfer_leave_reset(t);
	close_sources(t);
	if (t->state != TRAINERS_RELEASING)
		wb__transfer_trainers_set(t, TRAINERS_RELEASING);
	t->drain_ns = now_ns(t->e->obj->core) + TRANSFER_DRAIN_NS;
	if (!sources_busy(t))
		released(t);
}

static void keep_final(struct trainers *t, const struct wb_msg_peer *m)
{
	struct wb_frame f = {.version = WBP_VERSION_MAX, .type = WBP_PEER};
	struct wb_buf b;

	wb_buf_init(&b, 1u << 20);
	wb_free(t->final_body);
	t->final_body = NULL;
	if (wb_msg_encode_bin(&f, m, &b, NULL) < 0 ||
		wb_buf_take(&b, &t->final_body, &t->final_len) < 0)
		wb_buf_finish(&b);
}

/* Every engine has its outcome.  If an engine has the version, a hold goes on for those that are
 * fed with it later, provided that the library knows of such holds. */
static void on_final(struct trainers *t, const struct wb_msg_peer *m)
{
	if (t->state == TRAINERS_ASKED) {
		tell_final(t, m);
		return;
	}
	wb__transfer_fault(t->e->obj, WB_FAULT_COMMIT, t->transfer, t->version);
	keep_final(t, m);
	for_trainer (t->e, i)
		if (t->e->member[i]) {
			t->e->member[i]->holds &= t->e->member[i]->sent_keep && m->code >= 0;
			t->e->member[i]->letting_go = false;
		}
	release(t);
}

/* The worker itself says that its parameters are to change. */
void wb__transfer_trainers_release(struct worker *w, uint64_t transfer)
{
	struct trainers *t = &w->obj->trainers;
	struct wb_msg_app_send_state s = {.state = WB_APP_SEND_RELEASED};

	if (t->state == TRAINERS_IDLE || t->transfer != transfer) {
		wb__transfer_keep_end(w, transfer);
		return;
	}
	if (!w->holds)
		return;
	w->holds = false;
	if (t->e->r->trainer_staged && w->resume_ns >= w->stop_ns)
		tell_one(t, w, &s); /* it was told that it may go on: the snapshot is read */
	if (t->e->r->trainer_staged || t->state != TRAINERS_RELEASED)
		return; /* no hold beyond the receive stage then */
	w->letting_go = true;
	t->drain_ns = now_ns(w->obj->core) + TRANSFER_DRAIN_NS;
	close_sources(t);
	let_go(t);
}

/* Is the message about what these trainers are in, or have asked for? */
static bool is_ours(const struct trainers *t, const struct epoch *e, const struct wb_msg_peer *m)
{
	if (t->state == TRAINERS_IDLE || t->e != e)
		return false;
	if (!m->transfer || m->transfer == t->transfer)
		return true;
	/* A transfer that began with what was asked here answers it, whatever became of SERVE.  An
	 * older coordinator does not say which call the transfer answers. */
	return t->state == TRAINERS_ASKED &&
	       (m->call ? m->call == t->call : m->transfer > t->asked_highest);
}

void wb__transfer_on_RELEASE(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct trainers *t = &e->obj->trainers;

	if (from == e->r->coordinator && is_ours(t, e, m) && t->state == TRAINERS_SERVING &&
		!e->r->trainer_staged)
		release(t);
}

/* FINAL of no transfer: does it refuse what was asked here?  The coordinator may not have heard of
 * that call yet: FINAL is about it all the same if it names the call's version, or a later one.
 * Older agents name no version. */
static bool is_refusal(struct epoch *e, const struct wb_msg_peer *m)
{
	const struct trainers *t = &e->obj->trainers;
	bool is_asked = t->state == TRAINERS_ASKED && t->e == e;
	bool is_old = m->refusals <= (is_asked ? t->asked_refused : e->refused_seen);
	bool is_this = !m->version || t->version <= m->version;

	e->refused_seen = WB_MAX(e->refused_seen, m->refusals);
	/* Trainers that are in a transfer hear how that ended, and not the answer to others' next
	 * call. */
	return !is_old && is_asked && is_this;
}

void wb__transfer_on_FINAL(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct trainers *t = &e->obj->trainers;

	if (from != e->r->coordinator || (!m->transfer && !is_refusal(e, m)))
		return;
	if (is_ours(t, e, m))
		on_final(t, m);
}

void wb__transfer_trainers_worker_lost(struct worker *w, const char *why)
{
	struct trainers *t = &w->obj->trainers;
	char text[512];

	w->has_sent = false;
	if (t->state == TRAINERS_IDLE || t->state == TRAINERS_RELEASED)
		return;
	for_trainer (t->e, i)
		if (t->e->member[i] == w && wb__transfer_has_left(t, i))
			return;
	snprintf(text, sizeof(text), "%s %.400s", w->w.name, why);
	trainer_failed(t, -EPIPE, text);
	if (t->state == TRAINERS_ASKED)
		wb__transfer_trainers_forget(t);
}

/* No word of the coordinator is to be expected any more. */
static void end_without_coordinator(struct trainers *t, const char *what, const char *why)
{
	struct epoch *e = t->e;
	char text[WB_ERR_MSG_MAX];

	snprintf(text, sizeof(text), "the transfer's coordinator, agent %s, %s%.800s",
		e->r->agent[e->r->coordinator].name, what, why);
	on_final(t, WB_PEER(FINAL, .transfer = t->transfer, .code = WB_EUNKNOWN, .sentence = text));
}

bool wb__transfer_trainers_unheard(const struct epoch *e, uint32_t agent)
{
	const struct trainers *t = &e->obj->trainers;

	return t->state == TRAINERS_ASKED && t->e == e && e->r->coordinator == agent &&
	       (t->hold_ns || wb__transfer_wire_keeps(&e->wire[agent], t->asked_seq));
}

/* Trainers that ask when the coordinator is gone already ask for what comes next, together with the
 * trainers that come back to its next agent: the plan that follows answers them.  What the
 * coordinator had heard of failed with it, everywhere. */
void wb__transfer_trainers_coordinator_down(
	struct epoch *e, uint32_t agent, bool unheard, const char *why)
{
	struct trainers *t = &e->obj->trainers;

	if (t->state == TRAINERS_IDLE || t->e != e || e->r->coordinator != agent)
		return;
	if (!unheard) {
		end_without_coordinator(t, "is gone: ", why);
		return;
	}
	if (!t->hold_ns)
		t->hold_ns = now_ns(e->obj->core) + TRANSFER_ASK_NS;
	t->is_dropped = true;
	snprintf(t->lost, sizeof(t->lost), "%s", why);
}

static uint64_t hold_tick(struct trainers *t, uint64_t now)
{
	struct epoch *e = t->e;

	if (t->state != TRAINERS_ASKED || !t->hold_ns)
		return 0;
	if (now >= t->hold_ns) {
		end_without_coordinator(t, "is gone: ", t->lost);
		return 0;
	}
	/* The coordinator may only have been cut off. */
	if (now >= t->again_ns && t->is_dropped)
		wb__transfer_trainers_ask_again(e, e->r->coordinator);
	else if (!t->is_dropped &&
		 !wb__transfer_wire_keeps(&e->wire[e->r->coordinator], t->asked_seq))
		t->hold_ns = 0; /* the coordinator has heard the question */
	return sooner(t->hold_ns, now < t->again_ns ? t->again_ns : 0);
}

static uint64_t release_tick(struct trainers *t, uint64_t now)
{
	if (t->state != TRAINERS_RELEASING && t->state != TRAINERS_RELEASED)
		return 0;
	if (t->state == TRAINERS_RELEASED)
		let_go(t);
	if (!sources_busy(t)) {
		if (t->state == TRAINERS_RELEASING)
			released(t);
		return 0;
	}
	for_trainer (t->e, i)
		if (now >= t->drain_ns && !is_held_open(t, i))
			wb_flow_cut_source(t->flow, i);
	return now + WB_NS_PER_MS;
}

/* Some workers here have called send_weights: wait for the user code of the others, but not for
 * ever. */
static uint64_t await_callers(struct object *o, uint64_t now)
{
	struct trainers *t = &o->trainers;
	struct epoch *e = wb__transfer_usable(o);
	const struct worker *first = NULL;
	uint32_t missing = UINT32_MAX;
	uint64_t until;
	struct wb_msg_app_send_state s = {.state = WB_APP_SEND_FINAL, .code = -ETIMEDOUT};
	char text[512];

	for (uint32_t i = 0; e && i < e->local->n; i++) {
		const struct worker *w = e->member[i];

		if (e->plan->worker[e->local->member[i].plan_worker].role != WB_ROLE_TRAINER)
			continue;
		if (!w || !w->has_sent)
			missing = e->local->member[i].plan_worker;
		else if (!first || w->sent_ns < first->sent_ns)
			first = w;
	}
	if (!first || missing == UINT32_MAX || !first->sent_ns)
		return 0;
	/* User code does not run while they are in the transfer before, or not in a plan yet. */
	until = WB_MAX(first->sent_ns, WB_MAX(t->idle_ns, e->ready_ns)) +
		e->r->engine_step_deadline_ns;
	if (now < until)
		return until;
	snprintf(text, sizeof(text),
		"send_weights was called by %.100s, but not by %.100s within "
		"spec.engineStepDeadlineSeconds (%.0f s)",
		first->w.name, wb__transfer_worker_name(e, missing),
		(double)e->r->engine_step_deadline_ns / 1e9);
	s.sentence = text;
	t->e = e;
	t->transfer = 0;
	t->version = first->sent_version;
	t->begin_ns = first->sent_ns;
	for_trainer (e, i)
		if (e->member[i] && e->member[i]->has_sent) {
			e->member[i]->has_sent = false;
			tell_one(t, e->member[i], &s);
		}
	t->e = NULL;
	return 0;
}

uint64_t wb__transfer_trainers_tick(struct object *o, uint64_t now)
{
	struct trainers *t = &o->trainers;
	uint64_t next;

	if (wb__transfer_usable_at(o))
		ask(o);
	if (t->state == TRAINERS_IDLE)
		return await_callers(o, now);
	if (t->state == TRAINERS_ASKED)
		return hold_tick(t, now);
	if (t->state >= TRAINERS_SERVING && !t->final_body && now >= t->deadline_ns)
		end_without_coordinator(t, "did not say how it ended", "");
	next = release_tick(t, now);
	return t->state >= TRAINERS_SERVING && !t->final_body ? sooner(next, t->deadline_ns) : next;
}
