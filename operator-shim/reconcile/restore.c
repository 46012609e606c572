/* SPDX-License-Identifier: Apache-2.0 */
/* Lets a new leader continue from the status that the last one wrote. */
#include "base/err.h"
#include "operator-shim/reconcile/internal.h"
#include "proto/beat.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Until this time is over it means nothing if an agent has not connected: the agent may not know
 * yet that its operator is gone. */
uint64_t wb__reconcile_return_ns(const struct wb_reconcile *r)
{
	return wb_beat_return_ns(r->spec.heartbeat_timeout_s * WB_NS_PER_S);
}

static uint64_t number(const json_t *o, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(o, key));

	return v > 0 && v <= WB_RECONCILE_NUMBER_MAX ? (uint64_t)v : 0;
}

static int64_t version(const json_t *o)
{
	const json_t *v = json_object_get(o, "version");

	return json_is_integer(v) && json_integer_value(v) <= WB_RECONCILE_NUMBER_MAX
		       ? json_integer_value(v)
		       : -1;
}

static const char *text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

/* 0 when the field is no time. */
static uint64_t wall(const json_t *o, const char *key)
{
	struct tm tm = {0};
	const char *end = strptime(text(o, key), "%Y-%m-%dT%H:%M:%S", &tm);
	time_t t;

	if (!end)
		return 0;
	t = timegm(&tm);
	return t > 0 ? (uint64_t)t * WB_NS_PER_S : 0;
}

static void restore_culprit(struct transfer *t, const json_t *c)
{
	const json_t *worker = json_object_get(c, "worker");

	snprintf(t->engine, sizeof(t->engine), "%s", text(c, "engine"));
	snprintf(t->pod, sizeof(t->pod), "%s", text(c, "pod"));
	snprintf(t->rail, sizeof(t->rail), "%s", text(c, "rail"));
	snprintf(t->phase, sizeof(t->phase), "%s", text(c, "phase"));
	t->t.culprit.worker =
		json_is_integer(worker) ? (uint32_t)number(c, "worker") : WB_RECONCILE_NONE;
}

/* The rate in Mbit/s; older operators wrote whole Gbit/s. */
static uint64_t megabits(const json_t *o)
{
	uint64_t v = number(o, "throughputMegabitsPerSecond");

	return v ? v : 1000 * number(o, "throughputGigabitsPerSecond");
}

static bool restore_transfer(struct transfer *t, const json_t *o)
{
	int result = wb_word_number(&wb_result_words, text(o, "result"));

	if (result < 0 || !number(o, "transfer"))
		return false;
	memset(t, 0, sizeof(*t));
	t->t = (struct wb_reconcile_transfer_report){.transfer = number(o, "transfer"),
		.version = version(o),
		.is_end = true,
		.result = (enum wb_result)result,
		.start_wall_ns = wall(o, "startTime"),
		.end_wall_ns = wall(o, "completionTime"),
		.ewtt_ns = number(o, "endToEndMilliseconds") * WB_NS_PER_MS,
		.stall_ns = number(o, "averageStallMilliseconds") * WB_NS_PER_MS,
		.network_bytes = number(o, "networkBytes")};
	/* The status has only the rate: compute bytes that give the same rate. */
	t->t.delivered_bytes = (uint64_t)((double)megabits(o) * (double)t->t.ewtt_ns / 8e3);
	restore_culprit(t, json_object_get(o, "culprit"));
	return true;
}

static void restore_conditions(struct wb_reconcile *r, const json_t *list)
{
	static const char *const names[CONDS] = {[COND_READY] = "Ready",
		[COND_MEMBERS] = "MembersConnected",
		[COND_PLANNED] = "Planned",
		[COND_UP_TO_DATE] = "UpToDate",
		[COND_DEGRADED] = "Degraded"};
	const json_t *c;
	size_t i;

	json_array_foreach(list, i, c)
	{
		for (size_t k = 0; k < CONDS; k++) {
			const char *status = text(c, "status");

			if (strcmp(text(c, "type"), names[k]) != 0)
				continue;
			r->cond[k].status = !strcmp(status, "True")    ? COND_TRUE
					    : !strcmp(status, "False") ? COND_FALSE
								       : COND_UNKNOWN;
			r->cond[k].since_wall_ns = wall(c, "lastTransitionTime");
			r->cond[k].reason = "ControllerRestarted";
		}
	}
}

int wb_reconcile_restore(struct wb_reconcile *r, struct wb_reconcile_now now, const json_t *status)
{
	const json_t *recent = json_object_get(status, "recentTransfers"), *o;
	uint64_t term = number(json_object_get(status, "plan"), "term");
	size_t i;

	if (!json_is_object(status) || !json_object_size(status))
		return 0;
	r->stored = json_deep_copy(status);
	if (!r->stored)
		return -ENOMEM;
	r->term = WB_MAX(r->term, term ? term + 1 : 0);
	r->top.transfer = number(status, "transfer");
	r->top.version = r->top.transfer ? version(status) : 0;
	r->transfer_seen = WB_MAX(r->transfer_seen, r->top.transfer);
	json_array_foreach(recent, i, o)
	{
		if (r->n_recent == RECENT_MAX)
			break;
		if (!restore_transfer(&r->recent[r->n_recent], o))
			continue;
		r->transfer_seen = WB_MAX(r->transfer_seen, r->recent[r->n_recent].t.transfer);
		r->n_recent++;
	}
	r->transfer_seen = WB_MAX(
		r->transfer_seen, number(json_object_get(status, "currentTransfer"), "transfer"));
	restore_conditions(r, json_object_get(status, "conditions"));
	r->is_stored = true;
	r->stored_until_ns = now.ns + wb__reconcile_return_ns(r);
	return 0;
}

void wb__reconcile_restore_engine(const struct wb_reconcile *r, struct engine *e)
{
	const json_t *o;
	size_t i;

	json_array_foreach(json_object_get(r->stored, "engines"), i, o)
	{
		int state = wb_word_number(&wb_engine_state_words, text(o, "state"));

		if (strcmp(text(o, "name"), e->name) != 0)
			continue;
		snprintf(e->transport, sizeof(e->transport), "%s", text(o, "transport"));
		snprintf(e->memory_path, sizeof(e->memory_path), "%s", text(o, "memoryPath"));
		/* What was under way then has ended since, and it is not known how. */
		if (state == WB_ENGINE_COMMITTED || state == WB_ENGINE_ABORTED)
			e->state = (enum wb_engine_state)state;
	}
}

void wb__reconcile_restore_plan(struct wb_reconcile *r)
{
	const json_t *o = json_object_get(r->stored, "plan");
	struct routing *p = &r->active;
	char digest[WB_DIGEST_TEXT];

	if (strcmp(text(o, "digest"), wb_digest_text(p->digest, digest)) != 0 ||
		!number(o, "modelBytes"))
		return;
	p->info = (struct wb_reconcile_planned){.plan = p->digest,
		.n_tensor = (uint32_t)number(o, "tensors"),
		.rounds = (uint32_t)number(o, "rounds"),
		.model_bytes = number(o, "modelBytes"),
		.delivered_bytes = number(o, "deliveredBytes"),
		.node_bound_ns = number(o, "lowerBoundMilliseconds") * WB_NS_PER_MS,
		.planning_ns = number(o, "planningMilliseconds") * WB_NS_PER_MS};
	snprintf(p->bound, sizeof(p->bound), "%s", text(o, "bound"));
	p->computed_wall_ns = wall(o, "computedTime");
	p->has_info = true;
}

void wb__reconcile_restored_end(struct wb_reconcile *r, uint64_t transfer)
{
	if (number(json_object_get(r->stored, "currentTransfer"), "transfer") <= transfer)
		json_object_del(r->stored, "currentTransfer");
}

void wb__reconcile_settle_stored(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	if (!r->is_stored)
		return;
	if (r->active.epoch.term || now.ns >= r->stored_until_ns)
		r->is_stored = false;
	else
		wb__reconcile_due(r, r->stored_until_ns);
}
