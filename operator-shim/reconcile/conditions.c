/* SPDX-License-Identifier: Apache-2.0 */
/* Conditions of the status, and what waiting workers are told. */
#include "base/err.h"
#include "operator-shim/reconcile/internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 6, 7))) static void set(struct wb_reconcile *r,
	struct wb_reconcile_now now, enum cond_type type, enum cond_status status,
	const char *reason, const char *fmt, ...)
{
	struct cond *c = &r->cond[type];
	va_list ap;

	/* The time is that of the last change of the status; reason and message do not count. */
	if (c->status != status || !c->since_wall_ns)
		c->since_wall_ns = now.wall_ns;
	c->status = status;
	c->reason = reason;
	va_start(ap, fmt);
	vsnprintf(c->message, sizeof(c->message), fmt, ap);
	va_end(ap);
}

static size_t count_agents(const struct wb_reconcile *r, const char **lost)
{
	size_t n = 0;

	*lost = NULL;
	for (size_t i = 0; i < r->n_agent; i++) {
		n += r->agent[i].is_up;
		if (!r->agent[i].is_up)
			*lost = r->agent[i].name;
	}
	return n;
}

static void members(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	const char *lost, *sep = *r->refused ? "; refused: " : "";
	const char *turned = r->refusal.until_ns ? r->refusal.text : "";
	char bare[WB_RECONCILE_SENTENCE_MAX], no_node[WB_RECONCILE_SENTENCE_MAX];
	size_t n = count_agents(r, &lost);

	wb__reconcile_without_sidecar(r, bare, sizeof(bare));
	wb__reconcile_unscheduled(r, no_node, sizeof(no_node));

	if (r->is_complete)
		set(r, now, COND_MEMBERS, COND_TRUE, "AllAgentsConnected",
			"%u trainer workers and %u engines of %u workers, %zu "
			"agents%s%.190s%s%.190s%s%.190s%s%.290s",
			r->n_trainer_up, r->n_engine_up, r->spec.workers_per_engine, n,
			*r->aside ? "; " : "", r->aside, sep, r->refused, *bare ? "; " : "", bare,
			*no_node ? "; " : "", no_node);
	else
		set(r, now, COND_MEMBERS, COND_FALSE,
			wb__reconcile_members_reason(r, lost, bare, no_node),
			"%.190s%s%.190s%s%.130s%s%.480s%s%.130s", r->waiting, *no_node ? "; " : "",
			no_node, sep, r->refused, *turned ? "; " : "", turned, *bare ? "; " : "",
			bare);
}

static void say_plan(const struct wb_reconcile *r, char *out, size_t bytes)
{
	const struct routing *p = &r->active;
	uint64_t bound = WB_MAX(p->info.node_bound_ns, p->info.worker_bound_ns);
	size_t used = (size_t)snprintf(out, bytes, "epoch %llu.%llu, %zu workers",
		(unsigned long long)p->epoch.term, (unsigned long long)p->epoch.number, p->who.n);

	if (p->who.n_absent && used < bytes)
		used += (size_t)snprintf(out + used, bytes - used,
			", of them %u trainer workers that are absent: until they are back engines "
			"bring others what they hold",
			p->who.n_absent);
	if (p->has_info && used < bytes)
		used += (size_t)snprintf(out + used, bytes - used, ": %.2f GB, %u rounds",
			(double)p->info.model_bytes / 1e9, p->info.rounds);
	if (p->has_info && bound && used < bytes)
		snprintf(out + used, bytes - used, ", lower bound %.1f ms (%s)",
			(double)bound / 1e6, *p->bound ? p->bound : "rails");
}

static void planned(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	char text[512], wait[WB_RECONCILE_SENTENCE_MAX];

	wb__reconcile_say_wait(r, wait, sizeof(wait));
	if (r->stage == STAGE_FAILED) {
		set(r, now, COND_PLANNED, COND_FALSE, r->fail_reason, "%s", r->fail);
	} else if (r->active.epoch.term) {
		say_plan(r, text, sizeof(text));
		set(r, now, COND_PLANNED, COND_TRUE, "PlanDistributed", "%s%s%s", text,
			r->stage == STAGE_NONE || r->is_checking ? "" : "; next: ",
			r->stage == STAGE_NONE || r->is_checking ? "" : wait);
	} else if (r->fail_reason) {
		/* The workers were told of the failure, and ended: that they are missing now is not
		 * the reason. */
		set(r, now, COND_PLANNED, COND_FALSE, r->fail_reason, "%.600s; now: %.400s",
			r->fail, wait);
	} else if (r->is_late) {
		set(r, now, COND_PLANNED, COND_FALSE, "PlanDeadlineExceeded",
			"no plan within spec.planDeadlineSeconds (%u s): %.900s",
			r->spec.plan_deadline_s, *r->waiting ? r->waiting : wait);
	} else if (r->is_complete && r->adopt_since_ns && r->stage == STAGE_NONE) {
		set(r, now, COND_PLANNED, COND_UNKNOWN, "PlanOutdated",
			"agents run a plan; waiting for all its members to come back");
	} else {
		set(r, now, COND_PLANNED, COND_FALSE, "WaitingForSourceMaps", "%s", wait);
	}
}

static void up_to_date(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	const struct transfer *last = r->n_recent ? &r->recent[0] : NULL;
	const struct engine *behind = NULL;
	unsigned n = 0, n_behind = 0;

	for (size_t i = 0; i < r->n_engine; i++) {
		const struct engine *e = &r->engine[i];

		if (!e->n_worker && !wb__reconcile_has_engine(&r->active.who, e->name))
			continue;
		n++;
		if (e->held.transfer == r->top.transfer && !e->held.is_torn && !e->is_mixed &&
			e->n_worker)
			continue;
		n_behind++;
		behind = behind ? behind : e;
	}
	if (last && last->t.result != WB_RESULT_SUCCEEDED && last->t.transfer > r->top.transfer)
		set(r, now, COND_UP_TO_DATE, COND_FALSE, "TransferFailed",
			"transfer %llu: %s%s%.700s", (unsigned long long)last->t.transfer,
			wb_word(&wb_result_words, last->t.result), *last->message ? ": " : "",
			last->message);
	else if (!r->top.transfer)
		set(r, now, COND_UP_TO_DATE, COND_FALSE, "NoTransferYet",
			"no transfer has been committed yet");
	else if (behind)
		set(r, now, COND_UP_TO_DATE, COND_FALSE, "EnginesBehind",
			"%u of %u engines do not run version %lld: engine %s %s%s%.600s", n_behind,
			n, (long long)r->top.version, behind->name,
			!behind->n_worker      ? "has no workers"
			: behind->held.is_torn ? "is torn"
					       : "is behind",
			*behind->message ? ": " : "", behind->message);
	else if (!n)
		set(r, now, COND_UP_TO_DATE, COND_FALSE, "EnginesBehind",
			"no engine is attached: none runs version %lld", (long long)r->top.version);
	else
		set(r, now, COND_UP_TO_DATE, COND_TRUE, "AllEnginesAtVersion",
			"all %u engines run version %lld, transfer %llu", n,
			(long long)r->top.version, (unsigned long long)r->top.transfer);
}

/* Set Degraded if an engine is torn; false: no engine is. */
static bool torn(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	const struct engine *first = NULL;
	unsigned n = 0, n_torn = 0;

	for (size_t i = 0; i < r->n_engine; i++) {
		const struct engine *e = &r->engine[i];

		n += e->n_worker > 0;
		n_torn += e->held.is_torn;
		if (e->held.is_torn && !first)
			first = e;
	}
	if (n_torn > 1)
		set(r, now, COND_DEGRADED, COND_TRUE, "EngineTorn",
			"%u of %u engines, %s among them, hold a mix of two versions and do not "
			"serve; the next send_weights repairs them",
			n_torn, n, first->name);
	else if (first)
		set(r, now, COND_DEGRADED, COND_TRUE, "EngineTorn",
			"engine %s holds a mix of two versions and does not serve; the next "
			"send_weights repairs it",
			first->name);
	return first;
}

static void degraded(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	const struct refusal *f = &r->refusal;
	const char *reason;
	char text[600];

	if (torn(r, now))
		return;
	/* Other refused agents count as missing, and MembersConnected tells of them.  An agent
	 * whose name is taken does not count as missing, so only this condition can show it. */
	if (f->until_ns && f->what == WB_REFUSED_NAME) {
		set(r, now, COND_DEGRADED, COND_TRUE, "AgentNameTaken", "%.900s", f->text);
		return;
	}
	reason = wb__reconcile_worse_transport(r, text, sizeof(text));
	if (reason) {
		set(r, now, COND_DEGRADED, COND_TRUE, reason, "%s", text);
		return;
	}
	set(r, now, COND_DEGRADED, COND_FALSE, "AsExpected", "%s", "");
}

static void ready(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	const struct cond *m = &r->cond[COND_MEMBERS], *p = &r->cond[COND_PLANNED];

	if (r->spec.suspend)
		set(r, now, COND_READY, COND_FALSE, "Suspended", "spec.suspend is true");
	else if (m->status != COND_TRUE)
		set(r, now, COND_READY, m->status, m->reason, "%s", m->message);
	else if (p->status != COND_TRUE)
		set(r, now, COND_READY, p->status, p->reason, "%s", p->message);
	else if (r->current.t.transfer)
		set(r, now, COND_READY, COND_TRUE, "TransferInProgress",
			"transfer %llu, version %lld is running",
			(unsigned long long)r->current.t.transfer, (long long)r->current.t.version);
	else
		set(r, now, COND_READY, COND_TRUE, "Idle", "%s", "");
}

static void notice(struct wb_reconcile *r)
{
	char text[WB_RECONCILE_SENTENCE_MAX] = "", wait[WB_RECONCILE_SENTENCE_MAX];
	int code = 0;

	wb__reconcile_say_wait(r, wait, sizeof(wait));
	if (r->stage == STAGE_FAILED) {
		code = WB_EPLAN;
		snprintf(text, sizeof(text), "%s", r->fail);
	} else if (!r->active.epoch.term || *r->waiting) {
		code = r->is_late ? -ETIMEDOUT : 0;
		snprintf(text, sizeof(text), "%.900s%s", *r->waiting ? r->waiting : wait,
			r->is_late ? ", and spec.planDeadlineSeconds are over" : "");
	} else if (*r->aside) {
		snprintf(text, sizeof(text), "%s", r->aside);
	} else if (r->stage != STAGE_NONE && !r->is_checking) {
		snprintf(text, sizeof(text), "%s", wait);
	}
	if (r->notice_gen && code == r->notice_code && !strcmp(text, r->notice))
		return;
	r->notice_code = code;
	memcpy(r->notice, text, sizeof(text));
	r->notice_gen++;
}

void wb__reconcile_conditions(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	if (r->is_stored) { /* the stored status is still shown */
		notice(r);
		return;
	}
	members(r, now);
	planned(r, now);
	up_to_date(r, now);
	degraded(r, now);
	ready(r, now);
	notice(r);
}
