/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the status object of the CRD. */
#include "operator-shim/reconcile/internal.h"
#include "operator-shim/spec/json.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *const cond_names[CONDS] = {
	[COND_READY] = "Ready",
	[COND_MEMBERS] = "MembersConnected",
	[COND_PLANNED] = "Planned",
	[COND_UP_TO_DATE] = "UpToDate",
	[COND_DEGRADED] = "Degraded",
};
static const char *const status_names[] = {
	[COND_UNKNOWN] = "Unknown", [COND_TRUE] = "True", [COND_FALSE] = "False"};

static json_t *number(uint64_t v)
{
	return json_integer((json_int_t)WB_MIN(v, (uint64_t)WB_RECONCILE_NUMBER_MAX));
}

static json_t *ms(uint64_t ns)
{
	return number((ns + WB_NS_PER_MS / 2) / WB_NS_PER_MS);
}

/* NULL for a time that is not known; then the field is left out. */
static json_t *wall(uint64_t ns)
{
	time_t s = (time_t)(ns / WB_NS_PER_S);
	char text[32];
	struct tm tm;

	if (!ns || !gmtime_r(&s, &tm))
		return NULL;
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	return json_string(text);
}

static void put(json_t *o, const char *key, json_t *v)
{
	if (v)
		json_object_set_new(o, key, v);
}

static void put_text(json_t *o, const char *key, const char *s)
{
	if (*s)
		json_object_set_new(o, key, wb_json_text(s));
}

static void put_version(json_t *o, int64_t version)
{
	if (version >= 0)
		put(o, "version", number((uint64_t)version));
}

static json_t *conditions(const struct wb_reconcile *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < CONDS; i++) {
		const struct cond *c = &r->cond[i];
		json_t *o = json_object();

		put(o, "type", json_string(cond_names[i]));
		put(o, "status", json_string(status_names[c->status]));
		put(o, "lastTransitionTime", wall(c->since_wall_ns ? c->since_wall_ns : 1));
		put(o, "reason", json_string(c->reason));
		put(o, "message", wb_json_text(c->message));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *plan(const struct wb_reconcile *r)
{
	const struct routing *p = &r->active;
	char digest[WB_DIGEST_TEXT];
	json_t *o = json_object();

	put(o, "term", number(p->epoch.term));
	put(o, "number", number(p->epoch.number));
	put(o, "digest", json_string(wb_digest_text(p->digest, digest)));
	if (!p->has_info)
		return o;
	put(o, "computedTime", wall(p->computed_wall_ns));
	put(o, "planningMilliseconds", ms(p->info.planning_ns));
	put(o, "tensors", number(p->info.n_tensor));
	put(o, "modelBytes", number(p->info.model_bytes));
	put(o, "deliveredBytes", number(p->info.delivered_bytes));
	put(o, "rounds", number(p->info.rounds));
	if (p->info.node_bound_ns || p->info.worker_bound_ns)
		put(o, "lowerBoundMilliseconds",
			ms(WB_MAX(p->info.node_bound_ns, p->info.worker_bound_ns)));
	put_text(o, "bound", p->bound);
	return o;
}

static json_t *culprit(const struct transfer *t)
{
	json_t *o = json_object();

	put_text(o, "engine", t->engine);
	put_text(o, "pod", t->pod);
	if (t->t.culprit.worker != WB_RECONCILE_NONE)
		put(o, "worker", number(t->t.culprit.worker));
	put_text(o, "rail", t->rail);
	put_text(o, "phase", t->phase);
	if (json_object_size(o))
		return o;
	json_decref(o);
	return NULL;
}

static json_t *result(const struct transfer *t)
{
	json_t *o = json_object();

	put(o, "transfer", number(t->t.transfer));
	put_version(o, t->t.version);
	put(o, "result", json_string(wb_word(&wb_result_words, t->t.result)));
	put(o, "startTime", wall(t->t.start_wall_ns));
	put(o, "completionTime", wall(t->t.end_wall_ns));
	/* If the weights did not arrive, there is no time that they took. */
	if (t->t.result == WB_RESULT_SUCCEEDED)
		put(o, "endToEndMilliseconds", ms(t->t.ewtt_ns));
	put(o, "averageStallMilliseconds", ms(t->t.stall_ns));
	put(o, "networkBytes", number(t->t.network_bytes));
	if (t->t.result == WB_RESULT_SUCCEEDED && t->t.ewtt_ns && t->t.delivered_bytes)
		put(o, "throughputMegabitsPerSecond",
			number((uint64_t)((double)t->t.delivered_bytes * 8e3 /
						  (double)t->t.ewtt_ns +
					  0.5)));
	put(o, "culprit", culprit(t));
	return o;
}

/* The state that was reported, unless the workers for which it was true are gone. */
static enum wb_engine_state state_of(const struct engine *e)
{
	bool holds = e->held.transfer && !e->is_mixed;

	if (e->held.is_torn)
		return WB_ENGINE_TORN;
	if (e->state == WB_ENGINE_TORN || (e->state == WB_ENGINE_COMMITTED && !holds))
		return WB_ENGINE_IDLE;
	return e->state;
}

/* Set reason and message: those that were reported, as long as they hold; else what the workers
 * show. */
static void explain(const struct wb_reconcile *r, const struct engine *e, json_t *o)
{
	bool is_over = e->state != state_of(e);
	char text[200];

	if (*e->reason && !is_over) {
		put_text(o, "reason", e->reason);
		put_text(o, "message", e->message);
	} else if (!e->n_worker) {
		put_text(o, "reason", "AgentLost");
		put_text(o, "message", "no worker is attached");
	} else if (e->n_worker < r->spec.workers_per_engine) {
		snprintf(text, sizeof(text), "%u of %u workers are attached", e->n_worker,
			r->spec.workers_per_engine);
		put_text(o, "reason", "Incomplete");
		put_text(o, "message", text);
	} else if (e->feed_until_ns) {
		snprintf(text, sizeof(text), "gets version %lld from engine %s",
			(long long)e->feed.version, e->feed.source);
		put_text(o, "reason", "Feeding");
		put_text(o, "message", text);
	} else if (!is_over) {
		put_text(o, "message", e->message);
	}
}

static json_t *engine(const struct wb_reconcile *r, const struct engine *e)
{
	json_t *o = json_object();

	put(o, "name", wb_json_text(e->name));
	put(o, "state", json_string(wb_word(&wb_engine_state_words, state_of(e))));
	put(o, "workers", number(e->n_worker));
	if (e->held.transfer && !e->is_mixed && !e->held.is_torn) {
		put_version(o, e->held.version);
		put(o, "transfer", number(e->held.transfer));
	}
	put_text(o, "transport", e->transport);
	put_text(o, "memoryPath", e->memory_path);
	explain(r, e, o);
	return o;
}

static json_t *engines(const struct wb_reconcile *r, unsigned *n_seen, unsigned *n_updated)
{
	json_t *list = json_array();

	*n_seen = *n_updated = 0;
	for (size_t i = 0; i < r->n_engine; i++) {
		const struct engine *e = &r->engine[i];

		*n_seen += e->n_worker > 0;
		*n_updated += e->n_worker && r->top.transfer && !e->is_mixed && !e->held.is_torn &&
			      e->held.transfer == r->top.transfer;
		if (i < 512)
			json_array_append_new(list, engine(r, e));
	}
	return list;
}

static void put_transfers(const struct wb_reconcile *r, json_t *o)
{
	json_t *list;

	if (r->current.t.transfer) {
		json_t *c = json_object();

		put(c, "transfer", number(r->current.t.transfer));
		put_version(c, r->current.t.version);
		put(c, "startTime", wall(r->current.t.start_wall_ns));
		put(o, "currentTransfer", c);
	}
	if (!r->n_recent)
		return;
	put(o, "lastTransfer", result(&r->recent[0]));
	list = json_array();
	for (uint32_t i = 0; i < r->n_recent; i++)
		json_array_append_new(list, result(&r->recent[i]));
	put(o, "recentTransfers", list);
}

static unsigned count_workers(const struct wb_reconcile *r)
{
	unsigned n = 0;

	for (size_t i = 0; i < r->n_worker; i++) {
		const struct agent *a = wb__reconcile_agent_by_instance(r, r->worker[i].instance);

		n += a && a->is_up && !r->worker[i].is_refused;
	}
	return n;
}

json_t *wb_reconcile_status(const struct wb_reconcile *r)
{
	unsigned n_agent = 0, n_seen, n_updated;
	json_t *o, *list;

	if (r->is_stored)
		return json_deep_copy(r->stored);
	o = json_object();
	for (size_t i = 0; i < r->n_agent; i++)
		n_agent += r->agent[i].is_up;
	list = engines(r, &n_seen, &n_updated);
	put(o, "conditions", conditions(r));
	if (r->top.transfer) {
		put_version(o, r->top.version);
		put(o, "transfer", number(r->top.transfer));
	}
	put(o, "connectedAgents", number(n_agent));
	put(o, "connectedWorkers", number(count_workers(r)));
	put(o, "engineCount", number(n_seen));
	put(o, "updatedEngines", number(n_updated));
	if (r->active.epoch.term)
		put(o, "plan", plan(r));
	else if (json_object_get(r->stored, "plan"))
		put(o, "plan", json_deep_copy(json_object_get(r->stored, "plan")));
	put_transfers(r, o);
	put(o, "engines", list);
	return o;
}
