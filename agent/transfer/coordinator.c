/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator of a transfer: starts it when all trainers have asked, lets them go when the
 * receive stage is verified, and knows the outcome of each engine.  Feeds have a coordinator of
 * their own. */
#include "transfer/coordinator.h"

#include "proto/peers.h"
#include "transfer/ballot.h"
#include "transfer/epoch.h"
#include "transfer/hears.h"
#include "transfer/judge.h"
#include "transfer/object.h"
#include "transfer/outcome.h"
#include "transfer/states.h"
#include "transfer/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The fields that each order to the lead of an engine has. */
#define RUN(l)                                                                                     \
	.transfer = (l)->transfer, .version = (l)->version, .feed = (l)->is_feed,                  \
	.feeder = (l)->source_engine

#define for_training_agent(e, a)                                                                   \
	for (uint32_t a = 0; a < (e)->r->n_agent; a++)                                             \
		if (wb__transfer_has_trainer(e, a))

bool wb__transfer_is_end(enum wb_engine_state s)
{
	return s == WB_ENGINE_COMMITTED || s == WB_ENGINE_ABORTED || s == WB_ENGINE_TORN ||
	       s == WB_ENGINE_UNKNOWN;
}

/* ---- the end ------------------------------------------------------------------------------ */

/* Each agent with trainers is told which of its own calls this FINAL answers. */
static void send_final(struct epoch *e, uint32_t agent, struct wb_peer_FINAL *m)
{
	m->call = e->trigger[agent].served;
	wb__transfer_send(e, agent, WB_PEER_OF(FINAL, m));
}

static void finish(struct coordinator *l)
{
	struct epoch *e = l->e;
	const struct wb_transfer_core *c = e->obj->core;
	struct wb_peer_FINAL m;
	struct outcome f;

	wb__transfer_outcome(l, &f, &m);
	for_training_agent (e, a)
		if (!l->is_feed)
			send_final(e, a, &m);
	struct wb_transfer_report r = {
		.kind = WB_REPORT_FINAL,
		.epoch = &e->r->id,
		.object = e->obj->name,
		.transfer = l->transfer,
		.version = l->version,
		.is_feed = l->is_feed,
		.result = f.result,
		.n_engine = f.n,
		.engine = f.name,
		.state = f.state,
		.sentence = f.why,
		.culprit = f.text,
		.begin_wall_ns = l->begin_wall_ns,
		.end_wall_ns = wb_wall_ns(),
		.stall_ns = l->n_stall ? l->stall_ns / l->n_stall : 0,
	};
	memcpy(r.bytes, l->bytes, sizeof(r.bytes));
	c->env->report(c->env->ctx, &r);
	wb__transfer_trace(e->obj, "final", wb_word(&wb_result_words, r.result), l->transfer, 0);
	wb__transfer_outcome_free(&f);
}

/* An agent whose call the transfer answers has asked again: FINAL was on its way meanwhile, or was
 * given up.  It is sent once more, and taken in only once, as it names the call. */
static void final_again(struct epoch *e, uint32_t agent)
{
	const struct coordinator *l = &e->obj->coordinator;
	struct wb_peer_FINAL m;
	struct outcome f;

	if (l->state != COORDINATOR_IDLE || l->e != e)
		return; /* FINAL will come */
	wb__transfer_outcome(l, &f, &m);
	send_final(e, agent, &m);
	wb__transfer_outcome_free(&f);
}

static void start_next(struct object *o);

static void end_run(struct coordinator *l)
{
	struct object *o = l->e->obj;

	l->idle_ns = now_ns(o->core);
	finish(l);
	/* An older agent, which does not number its calls, has asked again without knowing this
	 * transfer: FINAL is the answer. */
	for (uint32_t a = 0; !l->is_feed && a < l->e->r->n_agent; a++)
		if (!l->e->trigger[a].call && l->e->trigger[a].highest < l->transfer)
			l->e->trigger[a].asked = false;
	wb__transfer_ballot_stop(&l->ballot);
	if (!l->is_feed) {
		wb__transfer_coordinator_set(l, COORDINATOR_IDLE);
		start_next(o);
		return;
	}
	for (struct coordinator **at = &o->feeds; *at; at = &(*at)->next)
		if (*at == l) {
			*at = l->next;
			wb_free(l->engine);
			wb_free(l);
			break;
		}
}

/* Trainers are gone: engines that still need them cannot go on. */
static void cancel(struct coordinator *l, int64_t code, const char *why, bool supersede)
{
	char text[WB_ERR_MSG_MAX];

	if (l->is_proposed || (l->is_cancelled && !supersede))
		return;
	l->is_cancelled = true;
	snprintf(text, sizeof(text), "%s", why);
	for (uint32_t en = 0; en < l->e->r->n_engine; en++) {
		if (!l->engine[en].takes_part || wb__transfer_is_end(l->engine[en].state))
			continue;
		wb__transfer_send(l->e, l->e->r->engine[en].lead,
			WB_PEER(CANCEL, RUN(l), .engine = en, .code = code, .sentence = text,
				.is_superseded = supersede));
	}
}

/* After each news of an engine: may the trainers go, is everything over? */
static void look(struct coordinator *l)
{
	bool received = true, over = true, any = false, staged = true, lost = false;

	for (uint32_t en = 0; en < l->e->r->n_engine; en++) {
		const struct coordinator_engine *x = &l->engine[en];

		if (!x->takes_part)
			continue;
		over &= wb__transfer_is_end(x->state);
		received &= wb__transfer_is_end(x->state) || x->state > WB_ENGINE_RECEIVED ||
			    (x->state == WB_ENGINE_RECEIVED && x->losses == l->losses);
		any |= x->state >= WB_ENGINE_RECEIVED && x->state <= WB_ENGINE_COMMITTED;
		staged &= x->state == WB_ENGINE_STAGED;
		lost |= wb__transfer_is_end(x->state) && x->state != WB_ENGINE_COMMITTED;
	}
	if (wb__transfer_is_joint(l) && staged && !l->is_proposed && !l->is_cancelled) {
		l->is_proposed = true;
		l->proposed_ns = now_ns(l->e->obj->core);
		wb__transfer_trace(l->e->obj, "proposed", "commit", l->transfer, 0);
		wb__transfer_ballot_first(&l->ballot, l->e, l->transfer);
	}
	if (wb__transfer_is_joint(l) && lost && !over)
		cancel(l, WB_EABORTED, "another engine cannot: all or none", false);
	if (l->state == COORDINATOR_RUNNING && received && any) {
		wb__transfer_coordinator_set(l, COORDINATOR_RELEASED);
		wb__transfer_trace(l->e->obj, "released", "trainers", l->transfer, 0);
		for_training_agent (l->e, a)
			if (!l->is_feed)
				wb__transfer_send(l->e, a,
					WB_PEER(RELEASE, .transfer = l->transfer,
						.version = l->version,
						.call = l->e->trigger[a].served));
	}
	if (over)
		end_run(l);
}

static void engine_ended(
	struct coordinator *l, uint32_t engine, enum wb_engine_state state, const char *why)
{
	struct coordinator_engine *x = &l->engine[engine];

	x->state = state;
	snprintf(x->sentence, sizeof(x->sentence), "%.511s", why ? why : "");
	if (state == WB_ENGINE_COMMITTED || l->is_feed)
		return;
	/* The other engines take its share over; the trainers stay until those say so. */
	l->losses++;
	for (uint32_t en = 0; en < l->e->r->n_engine; en++) {
		if (!l->engine[en].takes_part || wb__transfer_is_end(l->engine[en].state))
			continue;
		wb__transfer_send(l->e, l->e->r->engine[en].lead,
			WB_PEER(LOST, .transfer = l->transfer, .version = l->version, .engine = en,
				.lost = engine, .losses = l->losses));
	}
}

/* ---- the beginning ------------------------------------------------------------------------ */

static void send_prepare(struct coordinator *l, uint32_t engine)
{
	l->engine[engine].takes_part = true;
	l->engine[engine].state = WB_ENGINE_PREPARING;
	l->engine[engine].since = l->e->wire[l->e->r->engine[engine].lead].tx_seq + 1;
	wb__transfer_send(l->e, l->e->r->engine[engine].lead,
		WB_PEER(PREPARE, RUN(l), .engine = engine, .coordinator = l->e->me));
}

static int begin(struct coordinator *l, struct epoch *e)
{
	const struct wb_transfer_core *c = e->obj->core;

	wb_free(l->engine);
	l->engine = wb_zalloc(e->r->n_engine, sizeof(*l->engine));
	if (!l->engine)
		return -ENOMEM;
	l->e = e;
	wb__transfer_coordinator_set(l, COORDINATOR_RUNNING);
	l->losses = 0;
	l->is_proposed = l->is_cancelled = l->is_superseded = false;
	wb__transfer_ballot_stop(&l->ballot);
	l->begin_ns = now_ns(c);
	l->begin_wall_ns = wb_wall_ns();
	l->stall_ns = l->n_stall = 0;
	memset(l->bytes, 0, sizeof(l->bytes));
	/* The leads have deadlines of their own; this one is for leads that are silent. */
	l->deadline_ns = l->begin_ns + 2 * e->r->engine_step_deadline_ns +
			 (e->r->rollout_staged ? 2 : 1) * e->r->transfer_deadline_ns +
			 5 * WB_NS_PER_S;
	return 0;
}

/* FINAL of no transfer.  It names the version: a call for a later version is of the next round, and
 * may be made before this FINAL comes. */
static void refuse(struct epoch *e, uint32_t agent, int64_t version, int64_t code, const char *why)
{
	char text[WB_ERR_MSG_MAX];

	snprintf(text, sizeof(text), "%s", why);
	wb__transfer_send(e, agent,
		WB_PEER(FINAL, .code = code, .sentence = text, .version = version,
			.refusals = e->n_refused));
}

/* Refuse all trainers.  Those that have not asked yet are refused the version that the others asked
 * for. */
static void refuse_trainers(struct epoch *e, int64_t code, const char *why)
{
	const struct trigger *first = NULL;

	for (uint32_t a = 0; a < e->r->n_agent && !first; a++)
		if (e->trigger[a].asked)
			first = &e->trigger[a];
	e->n_refused++;
	for (uint32_t a = 0; a < e->r->n_agent; a++) {
		struct trigger *t = &e->trigger[a];

		if (!wb__transfer_has_trainer(e, a))
			continue;
		t->refused_version = t->asked || !first ? t->version : first->version;
		refuse(e, a, t->refused_version, code, why);
		t->refused_seq = e->wire[a].tx_seq;
	}
	for (uint32_t a = 0; a < e->r->n_agent; a++)
		e->trigger[a].asked = false;
}

/* 1: all asked for the same version; 0: not all have asked yet; < 0: they disagree. */
static int triggers_agree(struct epoch *e, int64_t *version, char *why, size_t cap)
{
	uint32_t first = UINT32_MAX;

	for (uint32_t a = 0; a < e->r->n_agent; a++)
		if (wb__transfer_has_trainer(e, a) && !e->trigger[a].asked)
			return 0;
	for (uint32_t a = 0; a < e->r->n_agent; a++) {
		const struct trigger *t = &e->trigger[a];

		if (!wb__transfer_has_trainer(e, a))
			continue;
		if (t->code < 0) {
			snprintf(why, cap, "%s", t->sentence);
			return (int)t->code;
		}
		if (first == UINT32_MAX)
			first = a;
		if (t->version != e->trigger[first].version) {
			snprintf(why, cap,
				"the trainers passed different versions to send_weights: %lld at "
				"%s, "
				"%lld at %s",
				(long long)e->trigger[first].version, e->r->agent[first].name,
				(long long)t->version, e->r->agent[a].name);
			return -EINVAL;
		}
		*version = t->version;
	}
	return 1;
}

static void report_start(const struct coordinator *l)
{
	const struct wb_transfer_core *c = l->e->obj->core;
	const char *fed = l->e->r->engine[l->feed_engine].name;
	struct wb_transfer_report r = {
		.kind = WB_REPORT_STARTED,
		.epoch = &l->e->r->id,
		.object = l->e->obj->name,
		.transfer = l->transfer,
		.version = l->version,
		.is_feed = l->is_feed,
		.n_engine = l->is_feed,
		.engine = &fed,
		.begin_wall_ns = l->begin_wall_ns,
	};

	c->env->report(c->env->ctx, &r);
}

static void start_transfer(struct epoch *e, int64_t version)
{
	struct object *o = e->obj;
	struct coordinator *l = &o->coordinator;

	if (begin(l, e) < 0) {
		refuse_trainers(e, -ENOMEM, "no memory for the transfer");
		return;
	}
	l->transfer = WB_MAX(o->highest, o->issued) + 1;
	o->issued = l->transfer;
	wb__transfer_judge_number(o, l->transfer);
	l->version = version < 0 ? (int64_t)l->transfer : version;
	for (uint32_t a = 0; a < e->r->n_agent; a++) {
		e->trigger[a].asked = false;
		e->trigger[a].served = e->trigger[a].call;
	}
	wb__transfer_trace(o, "transfer", o->name, l->transfer, (uint64_t)l->version);
	report_start(l);
	for_training_agent (e, a)
		wb__transfer_send(e, a,
			WB_PEER(SERVE, .transfer = l->transfer, .version = l->version,
				.call = e->trigger[a].served));
	for (uint32_t en = 0; en < e->r->n_engine; en++)
		send_prepare(l, en);
}

static void start_next(struct object *o)
{
	struct epoch *e = wb__transfer_usable(o);
	int64_t version = -1;
	char why[512];
	int rc;

	if (!e || o->coordinator.state != COORDINATOR_IDLE || o->feeds)
		return;
	rc = triggers_agree(e, &version, why, sizeof(why));
	if (rc < 0)
		refuse_trainers(e, rc, why);
	else if (rc > 0)
		start_transfer(e, version);
}

/* Nothing that this agent says would reach the engine. */
static bool is_out_of_reach(const struct epoch *e, uint32_t engine)
{
	for (uint32_t w = 0; w < e->plan->n_worker; w++) {
		const struct wb_plan_worker *p = &e->plan->worker[w];

		if (p->role == WB_ROLE_ROLLOUT && p->engine == engine &&
			e->r->agent[p->domain].is_foreign)
			return true;
	}
	return false;
}

int wb__transfer_coordinator_feed(
	struct epoch *e, uint32_t engine, uint32_t source, struct wb_err *err)
{
	struct coordinator *l;
	uint64_t held = 0;
	int64_t version = -1;

	if (is_out_of_reach(e, engine))
		return wb_err_set(err, -EAFNOSUPPORT,
			"engine %s cannot get a version from engine %s: their agents have no "
			"address family in common",
			e->r->engine[engine].name, e->r->engine[source].name);
	for_party_worker (e, source, i)
		if (e->member[i]) {
			held = e->member[i]->held_transfer;
			version = e->member[i]->held_version;
		}
	if (!held)
		return wb_err_set(
			err, -ENOENT, "engine %s holds no version", e->r->engine[source].name);
	for (l = e->obj->feeds; l; l = l->next) {
		if (l->e != e || l->feed_engine != engine)
			continue;
		if (l->transfer == held)
			return 0; /* this feed is under way */
		return wb_err_set(err, -EBUSY,
			"engine %s is still being brought to transfer %llu, not %llu",
			e->r->engine[engine].name, (unsigned long long)l->transfer,
			(unsigned long long)held);
	}
	l = wb_zalloc(1, sizeof(*l));
	if (!l || begin(l, e) < 0) {
		wb_free(l);
		return wb_err_set(err, -ENOMEM, "no memory for a feed");
	}
	l->is_feed = true;
	l->feed_engine = engine;
	l->source_engine = source;
	l->transfer = held;
	l->version = version;
	l->next = e->obj->feeds;
	e->obj->feeds = l;
	wb__transfer_trace(e->obj, "feed", e->r->engine[engine].name, held, (uint64_t)version);
	report_start(l);
	send_prepare(l, engine);
	return 0;
}

/* ---- events ------------------------------------------------------------------------------- */

static struct coordinator *about(struct epoch *e, const struct wb_msg_peer *m)
{
	for (struct coordinator *f = e->obj->feeds; m->feed && f; f = f->next)
		if (f->e == e && f->transfer == m->transfer && f->feed_engine == m->engine)
			return f;
	return !m->feed && e->obj->coordinator.state != COORDINATOR_IDLE &&
			       e->obj->coordinator.e == e &&
			       e->obj->coordinator.transfer == m->transfer
		       ? &e->obj->coordinator
		       : NULL;
}

/* The coordinator that a lead's message is for.  Feeds of one engine may have the same number: what
 * the lead said before it heard of this feed is about another one. */
static struct coordinator *find(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct coordinator *l = about(e, m);

	return l && (from == e->me || !m->seq || m->ack >= l->engine[m->engine].since) ? l : NULL;
}

/* ACTIVATE has come to one agent with trainers, but perhaps not to all: tell them, so that all ask
 * under this plan. */
static void announce(struct epoch *e)
{
	if (e->is_announced)
		return;
	e->is_announced = true;
	for_training_agent (e, a)
		wb__transfer_send(e, a, WB_PEER(ACTIVE));
}

/* Did the agent ask before it heard of the last refusal?  Then that refusal answers this call, too.
 * It does not if it was lost on its way, as the agent has heard since, or if it was of an earlier
 * version. */
static bool is_refused_already(
	const struct epoch *e, const struct trigger *t, const struct wb_msg_peer *m)
{
	return m->refusals != e->n_refused && m->version <= t->refused_version &&
	       !(m->seq && m->ack >= t->refused_seq);
}

void wb__transfer_on_TRIGGER(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct trigger *t = &e->trigger[from];
	struct epoch *newest = wb__transfer_usable(e->obj);

	if (newest)
		announce(newest);
	if (m->call && m->call <= t->served) {
		final_again(e, from);
		return;
	}
	if (is_refused_already(e, t, m)) {
		refuse(e, from, m->version, -EAGAIN,
			"the call of other trainer workers was refused meanwhile");
		return;
	}
	if (!t->asked)
		t->asked_ns = now_ns(e->obj->core);
	t->asked = true;
	t->call = m->call;
	t->highest = m->highest;
	t->version = m->version;
	t->code = m->code;
	snprintf(t->sentence, sizeof(t->sentence), "%s", m->sentence ? m->sentence : "");
	start_next(e->obj);
}

/* The next version is ready everywhere: engines that have not begun to install this one drop it. */
void wb__transfer_on_NEXT(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct coordinator *l = &e->obj->coordinator;

	e->trigger[from].next_after = m->transfer;
	if (l->state == COORDINATOR_IDLE || l->e != e || l->transfer != m->transfer ||
		l->is_proposed || !e->r->supersede || !e->r->rollout_staged)
		return;
	for (uint32_t a = 0; a < e->r->n_agent; a++)
		if (wb__transfer_has_trainer(e, a) && e->trigger[a].next_after != l->transfer)
			return;
	l->is_superseded = true;
	wb__transfer_trace(e->obj, "superseded", e->obj->name, l->transfer, 0);
	cancel(l, WB_EABORTED, "superseded: the trainers have sent a newer version", true);
}

void wb__transfer_on_REFUSED(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct coordinator *l = find(e, from, m);
	struct object *o = e->obj;

	if (!l)
		return;
	o->issued = WB_MAX(o->issued, m->highest);
	wb__transfer_trace(o, "refused", e->r->engine[m->engine].name, m->transfer, m->highest);
	engine_ended(l, m->engine, WB_ENGINE_ABORTED, m->sentence);
	look(l);
}

void wb__transfer_on_ENGINE(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct coordinator *l = find(e, from, m);
	struct coordinator_engine *x;

	if (!l)
		return;
	x = &l->engine[m->engine];
	if (wb__transfer_is_end(x->state))
		return;
	if (!wb__transfer_is_end(m->how)) {
		x->state = m->how;
		x->losses = m->losses;
		look(l);
		return;
	}
	x->is_superseded = m->is_superseded && m->how == WB_ENGINE_ABORTED;
	for (uint32_t s = 0; s < WB_STAGES && s < m->n_bytes; s++)
		l->bytes[s] += m->bytes[s];
	l->stall_ns += m->stall_ns;
	l->n_stall += m->n_stall;
	l->is_superseded |= l->is_feed && m->code == WB_ESTALE;
	engine_ended(l, m->engine, m->how, m->sentence);
	look(l);
}

void wb__transfer_coordinator_chosen(struct coordinator *l, enum decision d)
{
	wb__transfer_trace(l->e->obj, d == DECIDE_COMMIT ? "decided" : "decided against",
		"coordinator", l->transfer, 0);
	wb__transfer_ballot_stop(&l->ballot);
	if (d == DECIDE_ABORT) {
		l->is_proposed = false; /* the decision will never be COMMIT */
		cancel(l, WB_EABORTED, "an engine in doubt had the transfer decided against",
			false);
		return;
	}
	for (uint32_t en = 0; en < l->e->r->n_engine; en++) {
		if (!l->engine[en].takes_part || wb__transfer_is_end(l->engine[en].state))
			continue;
		wb__transfer_send(
			l->e, l->e->r->engine[en].lead, WB_PEER(DECIDED, RUN(l), .engine = en));
	}
}

/* Judges that were restarted once more are reached only under the plan to come, under which each
 * engine learns what was decided (resume.c). */
void wb__transfer_coordinator_hand_over(struct epoch *e)
{
	struct coordinator *l = &e->obj->coordinator;

	if (l->state == COORDINATOR_IDLE || l->e != e || l->ballot.state == BALLOT_NONE ||
		now_ns(e->obj->core) < l->proposed_ns + TRANSFER_JOINT_NS)
		return;
	wb__transfer_ballot_stop(&l->ballot);
	for (uint32_t en = 0; en < e->r->n_engine; en++)
		if (l->engine[en].takes_part && !wb__transfer_is_end(l->engine[en].state))
			engine_ended(l, en, WB_ENGINE_UNKNOWN,
				"too few of the trainer agents, whose majority decides, have kept "
				"that it shall be installed");
	look(l);
}

void wb__transfer_on_TRAINER_LOST(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct coordinator *l = &e->obj->coordinator;

	e->trigger[from].asked = false;
	if (l->state == COORDINATOR_RUNNING && l->e == e)
		cancel(l, m->code, m->sentence ? m->sentence : "", false);
}

static void lead_down(struct coordinator *l, uint32_t agent, const char *why)
{
	char text[512];
	bool any = false;

	snprintf(text, sizeof(text), "agent %s is gone: %.400s", l->e->r->agent[agent].name, why);
	for (uint32_t en = 0; en < l->e->r->n_engine; en++)
		if (l->engine[en].takes_part && !wb__transfer_is_end(l->engine[en].state) &&
			l->e->r->engine[en].lead == agent) {
			engine_ended(l, en, WB_ENGINE_UNKNOWN, text);
			any = true;
		}
	if (any)
		look(l);
}

void wb__transfer_coordinator_agent_down(
	struct epoch *e, uint32_t agent, uint64_t upto, const char *why)
{
	struct coordinator *l = &e->obj->coordinator, *next;
	char text[512];

	if (e->trigger)
		e->trigger[agent].asked = false;
	for (struct coordinator *f = e->obj->feeds; f; f = next) {
		next = f->next;
		if (f->e == e && f->transfer <= upto)
			lead_down(f, agent, why);
	}
	if (l->state == COORDINATOR_IDLE || l->e != e || l->transfer > upto)
		return;
	if (l->state == COORDINATOR_RUNNING && wb__transfer_has_trainer(e, agent)) {
		snprintf(text, sizeof(text), "trainer agent %s is gone: %.400s",
			e->r->agent[agent].name, why);
		cancel(l, -EHOSTDOWN, text, false);
	}
	lead_down(l, agent, why);
}

/* Put the deadline that begin() made of two fields of the spec into words. */
static void say_late(
	const struct coordinator *l, uint64_t now, const char *what, char *out, size_t bytes)
{
	snprintf(out, bytes,
		"%s within %.0f s, which spec.transferDeadlineSeconds (%.0f s) and "
		"spec.engineStepDeadlineSeconds (%.0f s) allow together",
		what, (double)(now - l->begin_ns) / 1e9,
		(double)l->e->r->transfer_deadline_ns / 1e9,
		(double)l->e->r->engine_step_deadline_ns / 1e9);
}

static uint64_t tick_one(struct coordinator *l, uint64_t now)
{
	char text[WB_ERR_MSG_MAX];

	if (l->state == COORDINATOR_IDLE)
		return 0;
	if (now < l->deadline_ns)
		return l->deadline_ns;
	if (wb__transfer_is_joint(l) && !l->is_proposed && !l->is_cancelled && !l->is_feed) {
		say_late(l, now, "not every engine was ready", text, sizeof(text));
		l->deadline_ns = now + l->e->r->engine_step_deadline_ns;
		cancel(l, -ETIMEDOUT, text, false);
		return l->deadline_ns;
	}
	for (uint32_t en = 0; en < l->e->r->n_engine; en++)
		if (l->engine[en].takes_part && !wb__transfer_is_end(l->engine[en].state)) {
			char who[192];

			snprintf(who, sizeof(who), "its lead, agent %.150s, did not answer",
				l->e->r->agent[l->e->r->engine[en].lead].name);
			say_late(l, now, who, text, sizeof(text));
			engine_ended(l, en, WB_ENGINE_UNKNOWN, text);
		}
	look(l);
	return now + WB_NS_PER_MS;
}

/* Some trainers have called send_weights: wait for the user code of the others, but not for ever.
 * The time does not count while they are in the transfer before, or while the plan is not here or
 * may not be used yet, since nobody asks under it then. */
static uint64_t await_trainers(struct object *o, uint64_t now)
{
	struct epoch *e = wb__transfer_usable(o);
	uint32_t first = UINT32_MAX, missing = UINT32_MAX;
	uint64_t until;
	char text[512];

	for (uint32_t a = 0; e && o->coordinator.state == COORDINATOR_IDLE && a < e->r->n_agent;
		a++) {
		if (!wb__transfer_has_trainer(e, a))
			continue;
		if (!e->trigger[a].asked)
			missing = WB_MIN(missing, a);
		else if (first == UINT32_MAX || e->trigger[a].asked_ns < e->trigger[first].asked_ns)
			first = a;
	}
	if (first == UINT32_MAX || missing == UINT32_MAX)
		return 0;
	until = WB_MAX(e->trigger[first].asked_ns, o->coordinator.idle_ns);
	until = WB_MAX(until, wb__transfer_usable_since(o)) + e->r->engine_step_deadline_ns;
	if (now < until)
		return until;
	snprintf(text, sizeof(text),
		"send_weights was called by the trainer workers of agent %.63s, but not by those "
		"of agent %.63s within spec.engineStepDeadlineSeconds (%.0f s)",
		e->r->agent[first].name, e->r->agent[missing].name,
		(double)e->r->engine_step_deadline_ns / 1e9);
	refuse_trainers(e, -ETIMEDOUT, text);
	return now + WB_NS_PER_MS;
}

uint64_t wb__transfer_coordinator_tick(struct object *o, uint64_t now)
{
	uint64_t next = tick_one(&o->coordinator, now);
	struct coordinator *after;

	for (struct coordinator *f = o->feeds; f; f = after) {
		after = f->next;
		next = sooner(next, tick_one(f, now));
	}
	start_next(o);
	return sooner(next, await_trainers(o, now));
}
