/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Refuses agents and workers, and decides who hears of it.
 *
 * Anybody can connect and claim any name.  A claim that nothing proves may cause a count and a few
 * lines of the log, but no event and no status, since these belong to a tenant.  Objects report
 * only agents that have proved to be of their namespace.  Where there are no tokens, the key that
 * all agents share is the proof.
 */
#include "operator-shim/serve/internal.h"

#include <stdio.h>
#include <string.h>

#define TOLD_NS (60 * WB_NS_PER_S)

/* A refused agent comes again every few seconds: the same sentence about it is logged once a
 * minute. */
static bool is_news(struct wb_serve *s, const char *agent, const char *sentence)
{
	uint64_t now = wb_now_ns(s->env.clock);
	uint64_t hash = wb_hash64(sentence, strlen(sentence), wb_hash64(agent, strlen(agent), 0));
	struct told *oldest = &s->told[0];

	for (size_t i = 0; i < WB_ARRAY_SIZE(s->told); i++) {
		struct told *t = &s->told[i];

		if (t->hash == hash && now < t->at_ns + TOLD_NS)
			return false;
		if (t->at_ns < oldest->at_ns)
			oldest = t;
	}
	*oldest = (struct told){hash, now};
	return true;
}

static bool is_proved(const struct peer *p)
{
	return !p->s->env.authenticate || p->ns[0];
}

static enum log_of whose(const struct peer *p)
{
	return is_proved(p) ? LOG_OF_KNOWN : LOG_OF_CLAIMS;
}

bool wb__serve_may_log(struct wb_serve *s, enum log_of whose)
{
	return wb_log_may(&s->log_bound[whose], MOD, wb_now_ns(s->env.clock));
}

void wb__serve_reject(struct peer *p, int code, bool retry, const char *sentence)
{
	const char *agent = p->hello.agent ? p->hello.agent : "?";

	if (wb_session_is_over(&p->session))
		return;
	if (is_news(p->s, agent, sentence) && wb__serve_may_log(p->s, whose(p)))
		WB_LOG_WRN(MOD, "agent refused", WB_S("agent", agent),
			WB_S("peer", wb_chan_peer(p->ch)), WB_S("reason", sentence));
	wb_session_reject(&p->session, code, retry, sentence);
}

void wb__serve_log_worker(struct wb_serve *s, const struct object *o, const char *sentence)
{
	if (is_news(s, o->key, sentence) && wb__serve_may_log(s, LOG_OF_KNOWN))
		WB_LOG_WRN(MOD, "worker refused", WB_S("object", o->key), WB_S("why", sentence));
}

void wb__serve_report_refused(
	struct object *o, struct peer *p, enum wb_reconcile_refusal what, const char *sentence)
{
	(void)wb_reconcile_refused(
		wb__serve_touch(o), wb__serve_now(p->s), what, p->hello.agent, sentence);
}

/* Whether @o may report about @p.  A token proves only the namespace of the agent; HELLO may name
 * objects of other namespaces too. */
static bool may_speak_of(const struct object *o, const struct peer *p)
{
	if (!p->s->env.authenticate)
		return true;
	return p->ns[0] && !strcmp(o->spec.namespace_, p->ns);
}

void wb__serve_tell(
	const struct object *o, const struct peer *p, const char *reason, const char *sentence)
{
	struct wb_serve *s = p->s;
	struct wb_serve_event e = {.object = o->key,
		.reason = reason,
		.text = sentence,
		.about = p->pod ? p->pod : p->hello.agent,
		.pod = p->pod,
		.pod_uid = p->pod_uid};

	if (s->env.event && may_speak_of(o, p))
		s->env.event(s->env.ctx, &e);
}

void wb__serve_turn_away(struct peer *p, enum wb_reconcile_refusal what, int rc,
	const char *sentence, const char *unproved)
{
	struct wb_serve *s = p->s;
	const char *reason = what == WB_REFUSED_NAME     ? "AgentNameTaken"
			     : what == WB_REFUSED_BUDGET ? "BudgetExceeded"
							 : "AuthenticationRejected";
	const char *label = what == WB_REFUSED_NAME     ? "name"
			    : what == WB_REFUSED_BUDGET ? "budget"
							: "token";
	bool is_heard = false;

	wb_metric_add(s->metrics, WB_SM_REFUSED, WB_LABELS(label), 1);
	for (size_t i = 0; i < wb__serve_n_of(p); i++) {
		struct object *o = wb__serve_nth_of(p, i);

		if (!o || !may_speak_of(o, p))
			continue;
		is_heard = true;
		wb__serve_tell(o, p, reason, sentence);
		wb__serve_report_refused(o, p, what, sentence);
	}
	if (!is_heard)
		wb_metric_add(s->metrics, WB_SM_UNPROVED, WB_LABELS(unproved), 1);
	wb__serve_reject(p, rc, true, sentence);
}
