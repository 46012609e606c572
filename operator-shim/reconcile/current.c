/* SPDX-License-Identifier: Apache-2.0 */
/* The transfer that is believed to run, and what ends that belief when its coordinator does not
 * report the end. */
#include "operator-shim/reconcile/internal.h"

#include <stdio.h>

uint64_t wb__reconcile_transfer_ns(const struct wb_reconcile *r)
{
	return ((uint64_t)r->spec.transfer_deadline_s + r->spec.engine_step_deadline_s) *
	       WB_NS_PER_S;
}

/* How a transfer ended at this engine, by what the engine holds and has reported. */
static enum wb_engine_state end_of(const struct engine *e, uint64_t transfer)
{
	if (e->held.is_torn)
		return WB_ENGINE_TORN;
	if (e->current_end != WB_ENGINE_IDLE)
		return e->current_end;
	if (!e->is_mixed && e->held.transfer == transfer)
		return WB_ENGINE_COMMITTED;
	return e->ended_transfer == transfer ? WB_ENGINE_ABORTED : WB_ENGINE_UNKNOWN;
}

/* How a transfer ended at the engines of the object. */
struct ends {
	unsigned n, of[WB_ENGINE_UNKNOWN + 1];
	const char *torn; /* name of the first torn engine; NULL = none */
};

static struct ends count_ends(const struct wb_reconcile *r, uint64_t transfer)
{
	struct ends x = {0};

	for (size_t i = 0; i < r->n_engine; i++) {
		const struct engine *e = &r->engine[i];
		enum wb_engine_state s = end_of(e, transfer);

		if (!e->n_worker)
			continue;
		x.n++;
		x.of[s]++;
		if (s == WB_ENGINE_TORN && !x.torn)
			x.torn = e->name;
	}
	return x;
}

static enum wb_result result_by_engines(const struct ends *x)
{
	if (x->torn)
		return x->of[WB_ENGINE_COMMITTED] ? WB_RESULT_PARTLY_TORN : WB_RESULT_TORN;
	if (x->of[WB_ENGINE_COMMITTED])
		return WB_RESULT_SUCCEEDED; /* as coordinators call it; an engine may be behind */
	return x->of[WB_ENGINE_UNKNOWN] || !x->n ? WB_RESULT_UNKNOWN : WB_RESULT_ABORTED;
}

/* Whether all connected engines of the active plan have ended the transfer.  Engines notice by
 * themselves when nobody leads it any more, and end it. */
static bool have_engines_ended(const struct wb_reconcile *r)
{
	bool has_any = false;

	for (size_t i = 0; i < r->n_engine; i++) {
		const struct engine *e = &r->engine[i];

		if (!e->n_up || !wb__reconcile_has_engine(&r->active.who, e->name))
			continue;
		if (e->ended_transfer < r->current.t.transfer)
			return false;
		has_any = true;
	}
	return has_any;
}

static int end_without_coordinator(
	struct wb_reconcile *r, struct wb_reconcile_now now, const char *why)
{
	char text[WB_RECONCILE_SENTENCE_MAX];
	struct ends ends = count_ends(r, r->current.t.transfer);
	struct wb_reconcile_transfer_report t = {.transfer = r->current.t.transfer,
		.version = r->current.t.version,
		.is_end = true,
		.result = result_by_engines(&ends),
		.start_wall_ns = r->current.t.start_wall_ns,
		.end_wall_ns = now.wall_ns,
		.culprit = {.worker = WB_RECONCILE_NONE, .pod = r->current_coordinator_name},
		.message = text};
	int n = 0;

	if (ends.torn)
		n = snprintf(text, sizeof(text),
			"%u of %u Torn: engine %.127s holds a mix of two versions until the next "
			"transfer: ",
			ends.of[WB_ENGINE_TORN], ends.n, ends.torn);
	snprintf(text + n, sizeof(text) - (size_t)n, "its coordinator, agent %.253s, %s",
		r->current_coordinator_name, why);
	return wb__reconcile_end_transfer(r, &t, true);
}

int wb__reconcile_check_current(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	bool is_gone, has_ended;

	if (!r->current.t.transfer)
		return 0;
	is_gone = !wb__reconcile_agent_by_instance(r, r->current_coordinator);
	has_ended = have_engines_ended(r);
	if (now.ns >= r->current_until_ns)
		return end_without_coordinator(r, now,
			"has not said how it ended within spec.transferDeadlineSeconds and "
			"spec.engineStepDeadlineSeconds together");
	wb__reconcile_due(r, r->current_until_ns);
	if (!is_gone && !has_ended) {
		r->current_alone_ns = 0;
		return 0;
	}
	if (!r->current_alone_ns)
		r->current_alone_ns = now.ns + ALONE_NS;
	if (now.ns < r->current_alone_ns && !(is_gone && has_ended)) {
		wb__reconcile_due(r, r->current_alone_ns);
		return 0;
	}
	return end_without_coordinator(r, now, is_gone ? "is gone" : "has not said how it ended");
}
