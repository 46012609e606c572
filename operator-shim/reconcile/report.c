/* SPDX-License-Identifier: Apache-2.0 */
/* Takes what agents report about engines and transfers. */
#include "operator-shim/reconcile/internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define KEEP(to, from) snprintf((to), sizeof(to), "%s", (from) ? (from) : "")

/* Note what the workers of an engine hold: Committed and Torn say that, other states change
 * nothing. */
static void hold(struct wb_reconcile *r, const struct wb_reconcile_engine_report *e)
{
	for (size_t i = 0; i < r->n_worker; i++) {
		struct worker *w = &r->worker[i];

		if (w->role != WB_ROLE_ROLLOUT || w->is_refused || strcmp(w->engine, e->engine))
			continue;
		/* The report is late: this worker came after the transfer. */
		if (e->epoch.term && (e->epoch.term < w->joined.term ||
					     (e->epoch.term == w->joined.term &&
						     e->epoch.number <= w->joined.number)))
			continue;
		if (e->state == WB_ENGINE_COMMITTED && e->transfer >= w->held.transfer)
			w->held = (struct wb_reconcile_held){e->transfer, e->version, false};
		else if (e->state == WB_ENGINE_TORN)
			w->held.is_torn = true;
	}
}

int wb_reconcile_engine(struct wb_reconcile *r, struct wb_reconcile_now now,
	const struct wb_reconcile_engine_report *in)
{
	struct engine *e = wb__reconcile_engine(r, in->engine);
	bool is_superseded = in->state == WB_ENGINE_SUPERSEDED;

	assert(in->state >= WB_ENGINE_COMMITTED);
	if (!e)
		return 0;
	e->state = is_superseded ? WB_ENGINE_ABORTED : in->state; /* its old weights are intact */
	e->ended_transfer = WB_MAX(e->ended_transfer, in->transfer);
	if (!in->is_feed && r->current.t.transfer && in->transfer == r->current.t.transfer)
		e->current_end = e->state;
	if (is_superseded && !in->is_feed) {
		e->superseded = WB_MAX(e->superseded, in->transfer);
		e->next_comes_ns = now.ns + r->spec.engine_step_deadline_s * WB_NS_PER_S;
	}
	if (in->transport) {
		KEEP(e->transport, in->transport);
		KEEP(e->fallback, in->fallback);
	}
	if (in->memory_path)
		KEEP(e->memory_path, in->memory_path);
	KEEP(e->reason, in->reason);
	KEEP(e->message, in->message);
	r->transfer_seen = WB_MAX(r->transfer_seen, in->transfer);
	hold(r, in);
	if (in->is_feed && e->feed_until_ns && e->state != WB_ENGINE_COMMITTED)
		wb__reconcile_feed_failed(r, e, now);
	return wb__reconcile_look(r, now);
}

static void keep_transfer(struct transfer *to, const struct wb_reconcile_transfer_report *t)
{
	to->t = *t;
	KEEP(to->engine, t->culprit.engine);
	KEEP(to->pod, t->culprit.pod);
	KEEP(to->rail, t->culprit.rail);
	KEEP(to->phase, t->culprit.phase);
	KEEP(to->message, t->message);
	to->t.message = NULL;
	to->t.culprit.engine = to->t.culprit.pod = NULL;
	to->t.culprit.rail = to->t.culprit.phase = NULL;
}

static struct transfer *find_recent(struct wb_reconcile *r, uint64_t transfer)
{
	for (uint32_t i = 0; i < r->n_recent; i++)
		if (r->recent[i].t.transfer == transfer)
			return &r->recent[i];
	return NULL;
}

/* A known transfer is reported again: its times and bytes may have become known in the meantime. */
static void refine(struct transfer *to, const struct wb_reconcile_transfer_report *t)
{
	to->t.ewtt_ns = t->ewtt_ns ? t->ewtt_ns : to->t.ewtt_ns;
	to->t.stall_ns = t->stall_ns ? t->stall_ns : to->t.stall_ns;
	to->t.network_bytes = WB_MAX(to->t.network_bytes, t->network_bytes);
	to->t.delivered_bytes = WB_MAX(to->t.delivered_bytes, t->delivered_bytes);
}

static int tell_end(struct wb_reconcile *r, const struct wb_reconcile_transfer_report *t)
{
	char text[WB_RECONCILE_SENTENCE_MAX];

	snprintf(text, sizeof(text), "transfer %llu, version %lld: %s%s%.700s",
		(unsigned long long)t->transfer, (long long)t->version,
		wb_word(&wb_result_words, t->result), t->message && *t->message ? ": " : "",
		t->message ? t->message : "");
	return wb__reconcile_act(r,
		&(struct wb_reconcile_action){.what = WB_DO_EVENT,
			.reason = t->result == WB_RESULT_SUCCEEDED     ? "TransferCompleted"
				  : t->result == WB_RESULT_PARTLY_TORN ? "EngineTorn"
								       : "TransferFailed",
			.result = wb_word(&wb_result_words, t->result)},
		text);
}

/* The end of a known transfer is reported again.  If only engines had said how it ended, the
 * coordinator's report replaces theirs. */
static int end_again(struct wb_reconcile *r, struct transfer *known,
	const struct wb_reconcile_transfer_report *t, bool is_by_engines)
{
	bool is_other = known->t.result != t->result;

	if (is_by_engines || !known->is_by_engines) {
		refine(known, t);
		return 0;
	}
	keep_transfer(known, t);
	known->is_by_engines = false;
	return is_other ? tell_end(r, t) : 0;
}

/* Reports may come late, and again after a reconnection: each transfer is kept once, the newest
 * first. */
int wb__reconcile_end_transfer(
	struct wb_reconcile *r, const struct wb_reconcile_transfer_report *t, bool is_by_engines)
{
	struct transfer *known = find_recent(r, t->transfer);
	uint32_t at = 0;

	if (r->current.t.transfer && r->current.t.transfer <= t->transfer)
		r->current.t.transfer = 0;
	wb__reconcile_restored_end(r, t->transfer);
	if (known)
		return end_again(r, known, t, is_by_engines);
	while (at < r->n_recent && r->recent[at].t.transfer > t->transfer)
		at++;
	if (at == RECENT_MAX)
		return 0;
	if (r->n_recent < RECENT_MAX)
		r->n_recent++;
	memmove(&r->recent[at + 1], &r->recent[at], (r->n_recent - at - 1) * sizeof(r->recent[0]));
	keep_transfer(&r->recent[at], t);
	r->recent[at].is_by_engines = is_by_engines;
	return tell_end(r, t);
}

/* Whether this is the epoch of a plan of this object.  If the object was deleted and made again, an
 * agent continues with a plan of the old object until it gets one of the new object. */
static bool is_of_a_plan(const struct wb_reconcile *r, struct wb_reconcile_epoch e)
{
	if (!e.term)
		return false;
	if (same_epoch(e, r->active.epoch) || same_epoch(e, r->next.epoch))
		return true;
	for (size_t i = 0; i < r->n_agent; i++)
		if (same_epoch(e, r->agent[i].running.epoch) ||
			same_epoch(e, r->agent[i].waiting.epoch))
			return true;
	return false;
}

static void begin_transfer(struct wb_reconcile *r, struct wb_reconcile_now now,
	const struct wb_reconcile_transfer_report *t)
{
	wb__reconcile_stop_feeds(r); /* a newer transfer overtakes them */
	keep_transfer(&r->current, t);
	r->current.t.agent = NULL;
	r->current_alone_ns = 0;
	r->current_coordinator = t->instance;
	KEEP(r->current_coordinator_name, t->agent);
	r->current_until_ns = now.ns + wb__reconcile_transfer_ns(r);
	for (size_t i = 0; i < r->n_engine; i++)
		r->engine[i].current_end = WB_ENGINE_IDLE;
}

int wb_reconcile_transfer(struct wb_reconcile *r, struct wb_reconcile_now now,
	const struct wb_reconcile_transfer_report *t)
{
	int rc = 0, look;

	r->transfer_seen = WB_MAX(r->transfer_seen, t->transfer);
	if (t->is_end)
		rc = wb__reconcile_end_transfer(r, t, false);
	else if (!find_recent(r, t->transfer) && t->transfer > r->current.t.transfer &&
		 is_of_a_plan(r, t->epoch))
		begin_transfer(r, now, t);
	look = wb__reconcile_look(r, now);
	return rc < 0 ? rc : look;
}
