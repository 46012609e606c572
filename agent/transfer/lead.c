/* SPDX-License-Identifier: Apache-2.0 */
/* The lead of an engine: brings its parties to one poll, opens them, and decides their end. */
#include "transfer/lead.h"

#include "proto/peers.h"
#include "transfer/ballot.h"
#include "transfer/doubt.h"
#include "transfer/epoch.h"
#include "transfer/hears.h"
#include "transfer/object.h"
#include "transfer/party.h"
#include "transfer/resume.h"
#include "transfer/states.h"
#include "transfer/wire.h"
#include "transfer/worker.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The fields that each order of a lead has, and each message to its coordinator. */
#define ORDER(l)                                                                                   \
	.transfer = (l)->transfer, .version = (l)->version, .engine = (l)->engine,                 \
	.feed = (l)->is_feed, .feeder = (l)->source_engine, .coordinator = (l)->coordinator

static void send_all(struct lead *l, const struct wb_msg_peer *m)
{
	for (uint32_t a = 0; a < l->e->r->n_agent; a++)
		if (l->agent[a].takes_part && !l->agent[a].down)
			wb__transfer_send(l->e, a, m);
}

static bool all(const struct lead *l, size_t field)
{
	for (uint32_t a = 0; a < l->e->r->n_agent; a++)
		if (l->agent[a].takes_part && !*((const bool *)&l->agent[a] + field))
			return false;
	return true;
}
#define FIELD(f) (offsetof(struct lead_agent, f) / sizeof(bool))
#define ALL(l, f) all(l, FIELD(f))

static void tell_coordinator(struct lead *l, enum wb_engine_state state)
{
	wb__transfer_send(l->e, l->coordinator,
		WB_PEER(ENGINE, ORDER(l), .how = state, .losses = l->losses, .code = l->code,
			.sentence = l->sentence[0] ? l->sentence : NULL, .bytes = l->bytes,
			.n_bytes = WB_STAGES, .stall_ns = l->stall_ns,
			.n_stall = (uint32_t)l->n_stall, .sum0 = l->sum.lane[0],
			.sum1 = l->sum.lane[1], .is_superseded = l->is_superseded));
}

static void report(struct lead *l)
{
	const struct wb_transfer_core *c = l->e->obj->core;
	const char *engine = l->e->r->engine[l->engine].name;
	enum wb_engine_state state = l->is_superseded ? WB_ENGINE_SUPERSEDED : l->told;
	const char *sentence = l->sentence;
	struct wb_transfer_report r = {
		.kind = WB_REPORT_ENGINE,
		.epoch = &l->e->r->id,
		.object = l->e->obj->name,
		.transfer = l->transfer,
		.version = l->version,
		.is_feed = l->is_feed,
		.n_engine = 1,
		.engine = &engine,
		.state = &state,
		.sentence = &sentence,
		.culprit = l->sentence,
		.begin_wall_ns = l->begin_wall_ns,
		.end_wall_ns = wb_wall_ns(),
		.stall_ns = l->n_stall ? l->stall_ns / l->n_stall : 0,
	};

	memcpy(r.bytes, l->bytes, sizeof(r.bytes));
	c->env->report(c->env->ctx, &r);
}

/* The result as the parties hear it.  An engine that cannot follow a decision is Torn for the
 * coordinator.  But before INSTALL none of its workers has changed, and some may not have been
 * stopped: all go on, with areas that are whole for the next plan or transfer. */
static enum wb_engine_state for_parties(const struct lead *l, enum wb_engine_state result)
{
	return result == WB_ENGINE_TORN && l->is_staged && l->state != LEAD_INSTALLING
		       ? WB_ENGINE_UNKNOWN
		       : result;
}

/* The end: tell the parties, then the coordinator.  Before the first byte the old weights are
 * intact. */
static void end_engine(struct lead *l, enum wb_engine_state result, int64_t code, const char *why)
{
	if (l->state == LEAD_NONE || l->state == LEAD_DONE || l->state == LEAD_ENDING)
		return;
	wb__transfer_ballot_stop(&l->ballot);
	l->result = l->told = result;
	if (result == WB_ENGINE_ABORTED &&
		(l->has_torn || wb__transfer_engine_is_torn(l->e, l->engine)))
		l->told = WB_ENGINE_TORN;
	l->has_torn = result != WB_ENGINE_COMMITTED && (l->has_torn || result == WB_ENGINE_TORN);
	l->code = code;
	snprintf(l->sentence, sizeof(l->sentence), "%s", why ? why : "");
	l->ended = for_parties(l, result);
	send_all(l, WB_PEER(END, ORDER(l), .how = l->ended, .code = code,
			    .sentence = l->sentence[0] ? l->sentence : NULL, .sum0 = l->sum.lane[0],
			    .sum1 = l->sum.lane[1]));
	wb__transfer_trace(l->e->obj, wb_word(&wb_engine_state_words, result),
		l->e->r->engine[l->engine].name, l->transfer, 0);
	if (result == WB_ENGINE_COMMITTED) {
		wb__transfer_lead_set(l, LEAD_ENDING); /* ENDED brings times; the decision stands */
		l->deadline_ns = now_ns(l->e->obj->core) + l->e->r->engine_step_deadline_ns;
	} else {
		wb__transfer_lead_set(l, LEAD_DONE);
		l->deadline_ns = 0;
		report(l);
	}
	if (result != WB_ENGINE_COMMITTED)
		tell_coordinator(l, l->told);
}

/* Committed: the decision stands whether all have said how long they stood still or not. */
static void close_ending(struct lead *l)
{
	wb__transfer_lead_set(l, LEAD_DONE);
	l->deadline_ns = 0;
	report(l);
	tell_coordinator(l, WB_ENGINE_COMMITTED);
}

/* May this engine give the transfer up by itself? */
static bool is_free(const struct lead *l)
{
	return !l->is_staged || l->state == LEAD_STAGING ||
	       (!l->e->r->all_engines && l->state != LEAD_INSTALLING);
}

/* Before the first byte the old weights are intact.  A decision stands: the next plan, transfer or
 * feed brings it to those who cannot follow it now. */
static void fail(struct lead *l, int64_t code, const char *why)
{
	bool torn = l->state == LEAD_INSTALLING || l->state == LEAD_MOVING || l->is_decided;

	end_engine(l,
		torn         ? WB_ENGINE_TORN
		: is_free(l) ? WB_ENGINE_ABORTED
			     : WB_ENGINE_UNKNOWN,
		code, why);
}

static void set_parties(struct lead *l)
{
	const struct wb_plan *plan = l->e->plan;

	for (uint32_t w = 0; w < plan->n_worker; w++)
		if (plan->worker[w].role == WB_ROLE_ROLLOUT && plan->worker[w].engine == l->engine)
			l->agent[plan->worker[w].domain].takes_part = true;
}

/* Nothing is left of the run before, which has ended, except what outlasts runs.  l->e, l->engine
 * and l->agent are set already. */
static void begin_run(struct lead *l, uint32_t coordinator, uint64_t transfer, int64_t version)
{
	memset(l->agent, 0, l->e->r->n_agent * sizeof(*l->agent));
	*l = (struct lead){
		.state = l->state,
		.e = l->e,
		.engine = l->engine,
		.agent = l->agent,
		.has_torn = l->has_torn,
		.resume = l->resume,
		.doubt = l->doubt,
		.coordinator = coordinator,
		.transfer = transfer,
		.version = version,
		.begin_wall_ns = wb_wall_ns(),
	};
	set_parties(l);
}

/* Begin what the coordinator, or an engine that feeds this one, has asked for. */
static void begin(struct lead *l, uint32_t from, const struct wb_msg_peer *m)
{
	struct epoch *e = l->e;

	begin_run(l, from, m->transfer, m->version);
	l->is_staged = e->staged && !m->feed;
	l->is_feed = m->feed;
	l->source_engine = m->feeder;
	l->deadline_ns =
		now_ns(e->obj->core) + (l->is_staged ? e->r->transfer_deadline_ns + TRANSFER_LATE_NS
						     : e->r->engine_step_deadline_ns);
	wb__transfer_lead_set(l, l->is_staged ? LEAD_STAGING : LEAD_PROMISES);
	for (uint32_t a = 0; a < e->r->n_agent; a++)
		l->agent[a].since = e->wire[a].tx_seq + 1;
	e->obj->highest = WB_MAX(e->obj->highest, m->transfer);
	for_party_worker (e, m->engine, i)
		if (e->member[i])
			e->member[i]->seen_transfer = m->transfer;
}

void wb__transfer_on_PREPARE(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct lead *l = &e->lead[m->engine];

	/* An engine that feeds holds a committed transfer: if this engine was in doubt of it, that
	 * decides. */
	if (m->feed && l->state == LEAD_STAGED && l->transfer == m->transfer)
		wb__transfer_lead_chosen(l, DECIDE_COMMIT);
	if (!wb__transfer_lead_may_begin(e, from, m))
		return;
	/* after_update_hook may still run: the coordinator of that run, perhaps of a feed, hears
	 * that the run is over. */
	if (l->state == LEAD_ENDING)
		close_ending(l);
	else if (wb__transfer_leads_run(l))
		fail(l, WB_ESTALE, "a newer transfer began");
	wb__transfer_lead_overtake(e, m);
	if (!l->agent)
		l->agent = wb_zalloc(e->r->n_agent, sizeof(*l->agent));
	if (!l->agent) {
		wb__transfer_lead_refuse(e, from, m, -ENOMEM, "no memory");
		return;
	}
	l->e = e;
	l->engine = m->engine;
	begin(l, from, m);
	wb__transfer_trace(e->obj, "prepare", e->r->engine[m->engine].name, m->transfer, m->feed);
	send_all(l, l->is_staged ? WB_PEER(STAGE, ORDER(l)) : WB_PEER(STOP, ORDER(l)));
	if (l->is_staged)
		tell_coordinator(l, WB_ENGINE_RECEIVING);
}

/* All is whole in the areas, beside the parameters, and is to be installed. */
static void begin_stop(struct lead *l)
{
	for (uint32_t a = 0; a < l->e->r->n_agent; a++)
		l->agent[a].promised = l->agent[a].stopped = l->agent[a].installed = false;
	wb__transfer_lead_set(l, LEAD_PROMISES);
	l->sum = (struct wbk_sum){{0, 0}};
	l->deadline_ns = now_ns(l->e->obj->core) + l->e->r->engine_step_deadline_ns;
	send_all(l, WB_PEER(STOP, ORDER(l), .is_decided = l->is_decided));
}

/* In doubt: ask the judges, who keep the decision, and have them decide if there is none. */
static void ask_judges(struct lead *l)
{
	l->deadline_ns = 0;
	if (l->ballot.state != BALLOT_NONE)
		return;
	wb__transfer_trace(l->e->obj, "in doubt", l->e->r->engine[l->engine].name, l->transfer, 0);
	for_party_worker (l->e, l->engine, i) {
		const struct wb_area_head *h = l->e->member[i] ? l->e->member[i]->area.head : NULL;

		if (!h || h->transfer != l->transfer)
			continue;
		wb__transfer_ballot_ask(&l->ballot, l->e->obj, l->transfer, h->judge,
			__atomic_load_n(&h->n_judge, __ATOMIC_RELAXED));
		return;
	}
}

void wb__transfer_lead_chosen(struct lead *l, enum decision d)
{
	wb__transfer_ballot_stop(&l->ballot);
	if (l->state != LEAD_STAGED)
		return;
	wb__transfer_trace(l->e->obj, d == DECIDE_COMMIT ? "decided" : "decided against",
		l->e->r->engine[l->engine].name, l->transfer, 0);
	if (d == DECIDE_COMMIT) {
		l->is_decided = true;
		tell_coordinator(l, WB_ENGINE_DECIDED);
		begin_stop(l);
	} else {
		end_engine(l, WB_ENGINE_ABORTED, WB_EABORTED,
			"the transfer was decided against: not every engine was ready");
	}
}

/* The coordinator may have given up, or wait for judges that only the plan to come reaches. */
void wb__transfer_lead_hand_over(struct lead *l)
{
	if (l->state == LEAD_STAGED && l->e->r->all_engines &&
		now_ns(l->e->obj->core) >= l->staged_ns + TRANSFER_JOINT_NS)
		ask_judges(l);
}

static void on_staged(struct lead *l)
{
	wb__transfer_lead_set(l, LEAD_STAGED);
	l->staged_ns = now_ns(l->e->obj->core);
	tell_coordinator(l, WB_ENGINE_STAGED);
	if (!l->e->r->all_engines) {
		begin_stop(l);
		return;
	}
	/* The coordinator has its own deadlines; this one is for a coordinator that is silent. */
	l->deadline_ns = now_ns(l->e->obj->core) + l->e->r->transfer_deadline_ns;
}

/* Under a new plan: all parties have whole areas of one transfer that has not been committed. */
void wb__transfer_lead_resume(struct lead *l, const struct resume *r)
{
	struct epoch *e = l->e;

	begin_run(l, e->r->coordinator, r->transfer, r->version);
	l->is_staged = true;
	l->staged_ns = now_ns(e->obj->core);
	wb__transfer_lead_set(l, LEAD_STAGED);
	wb__transfer_trace(e->obj, "resume", e->r->engine[l->engine].name, l->transfer, 0);
	if (e->r->all_engines)
		ask_judges(l);
	else
		wb__transfer_lead_chosen(l, r->is_installing ? DECIDE_COMMIT : DECIDE_ABORT);
}

static void on_promise(struct lead *l, uint32_t from, const struct wb_msg_peer *m)
{
	bool first = true;

	for (uint32_t a = 0; a < l->e->r->n_agent; a++)
		first &= !l->agent[a].promised;
	if (first || wb_poll_later(m->poll, l->target))
		l->target = m->poll;
	l->agent[from].promised = true;
	wb__transfer_lead_go_on(l);
}

/* A worker in doubt may be let go, and then be needed at the common poll: it hears first how its
 * update ended. */
void wb__transfer_lead_go_on(struct lead *l)
{
	if (l->state != LEAD_PROMISES || l->doubt.transfer || !ALL(l, promised))
		return;
	wb__transfer_lead_set(l, LEAD_STOPS);
	send_all(l, WB_PEER(TARGET, ORDER(l), .poll = l->target));
}

/* Parameters may change. */
static void open_all(struct lead *l)
{
	if (l->is_staged) {
		wb__transfer_lead_set(l, LEAD_INSTALLING);
		l->deadline_ns = now_ns(l->e->obj->core) + l->e->r->transfer_deadline_ns;
		send_all(l, WB_PEER(INSTALL, ORDER(l)));
		tell_coordinator(l, WB_ENGINE_INSTALLING);
		return;
	}
	wb__transfer_lead_set(l, LEAD_MOVING);
	l->deadline_ns = now_ns(l->e->obj->core) + l->e->r->transfer_deadline_ns + TRANSFER_LATE_NS;
	wb__transfer_trace(l->e->obj, "receive", l->e->r->engine[l->engine].name, l->transfer, 0);
	send_all(l, WB_PEER(OPEN, ORDER(l)));
	tell_coordinator(l, WB_ENGINE_RECEIVING);
}

/* Nobody's parameters change before each party knows that all have stopped.  Otherwise, if this
 * agent died now, a party could not tell whether another's parameters have begun to change, and
 * might let its workers go on to a step in which they wait for a torn one. */
static void on_stopped(struct lead *l, uint32_t from, const struct wb_msg_peer *m)
{
	l->agent[from].stopped = true;
	l->agent[from].heard = !m->asks;
	if (m->code < 0) {
		fail(l, m->code, m->sentence);
		return;
	}
	if (!ALL(l, stopped))
		return;
	wb__transfer_lead_set(l, LEAD_TELLING);
	/* Hooks may have taken all the time of the steps before. */
	l->deadline_ns = now_ns(l->e->obj->core) + l->e->r->engine_step_deadline_ns;
	for (uint32_t a = 0; a < l->e->r->n_agent; a++)
		if (l->agent[a].takes_part && !l->agent[a].heard)
			wb__transfer_send(l->e, a, WB_PEER(ALL_STOPPED, ORDER(l)));
	if (ALL(l, heard))
		open_all(l);
}

static void on_heard(struct lead *l, uint32_t from)
{
	l->agent[from].heard = true;
	if (ALL(l, heard))
		open_all(l);
}

static bool received_all(const struct lead *l)
{
	for (uint32_t a = 0; a < l->e->r->n_agent; a++)
		if (l->agent[a].takes_part &&
			!(l->agent[a].received && l->agent[a].losses == l->losses))
			return false;
	return true;
}

static void on_progress(struct lead *l, uint32_t from, const struct wb_msg_peer *m)
{
	struct lead_agent *a = &l->agent[from];

	if (m->progress == PROGRESS_FAILED) {
		fail(l, m->code, m->sentence);
		return;
	}
	if (m->progress == PROGRESS_INSTALLED && l->state == LEAD_INSTALLING && !a->installed) {
		l->sum.lane[0] += m->sum0;
		l->sum.lane[1] += m->sum1;
		a->installed = true;
		if (ALL(l, installed))
			end_engine(l, WB_ENGINE_COMMITTED, 0, NULL);
		return;
	}
	if (l->state != LEAD_MOVING && l->state != LEAD_STAGING)
		return;
	if (m->progress == PROGRESS_RECEIVED) {
		a->received = true;
		a->losses = m->losses;
		if (received_all(l)) {
			wb__transfer_trace(l->e->obj, "received", l->e->r->engine[l->engine].name,
				l->transfer, 0);
			tell_coordinator(l, WB_ENGINE_RECEIVED);
		}
		return;
	}
	if (!a->complete) {
		l->sum.lane[0] += m->sum0;
		l->sum.lane[1] += m->sum1;
	}
	a->complete = true;
	if (!ALL(l, complete))
		return;
	if (l->is_staged)
		on_staged(l);
	else
		end_engine(l, WB_ENGINE_COMMITTED, 0, NULL);
}

static void on_ended(struct lead *l, uint32_t from, const struct wb_msg_peer *m)
{
	if (l->state != LEAD_ENDING || l->agent[from].ended)
		return;
	l->agent[from].ended = true;
	for (uint32_t s = 0; s < WB_STAGES && s < m->n_bytes; s++)
		l->bytes[s] += m->bytes[s];
	l->stall_ns += m->stall_ns;
	l->n_stall += m->n_stall;
	for (uint32_t a = 0; a < l->e->r->n_agent; a++)
		if (l->agent[a].takes_part && !l->agent[a].ended && !l->agent[a].down)
			return;
	close_ending(l);
}

/* Another engine is lost, the @losses-th: the parties take its share over. */
static void lose(struct lead *l, uint32_t engine, uint32_t losses)
{
	l->losses = losses;
	send_all(l, WB_PEER(LOST, .transfer = l->transfer, .version = l->version,
			    .engine = l->engine, .feed = l->is_feed, .coordinator = l->coordinator,
			    .losses = losses, .lost = engine));
}

static void on_lost(struct lead *l, const struct wb_msg_peer *m)
{
	if (l->losses >= m->losses || l->state == LEAD_DONE)
		return;
	lose(l, m->lost, m->losses);
}

/* The coordinator gives up: it has not asked for a decision, so there is none. */
static void on_cancel(struct lead *l, const struct wb_msg_peer *m)
{
	bool late = l->is_decided || l->state == LEAD_INSTALLING || l->state == LEAD_ENDING ||
		    l->state == LEAD_DONE;

	if (late || (!m->is_superseded && !l->e->r->all_engines && received_all(l)))
		return;
	l->is_superseded = l->is_staged && m->is_superseded;
	if (l->is_staged)
		end_engine(l, WB_ENGINE_ABORTED, m->code, m->sentence);
	else if (!m->is_superseded)
		fail(l, m->code, m->sentence);
}

/* The run that a message is about; NULL: another one, or none. */
static struct lead *run_of(struct epoch *e, const struct wb_msg_peer *m)
{
	struct lead *l = &e->lead[m->engine];

	return l->state == LEAD_NONE || l->transfer != m->transfer ? NULL : l;
}

/* The same for a message of the run's coordinator. */
static struct lead *led_by(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct lead *l = run_of(e, m);

	return l && from == l->coordinator ? l : NULL;
}

/* A feed has the number of a transfer, and may be tried again: what a party said before it had
 * heard of this run is about an earlier one.  An agent that does not number its messages is
 * believed, as this agent is. */
static struct lead *said_in(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct lead *l = run_of(e, m);

	return l && (from == e->me || !m->seq || m->ack >= l->agent[from].since) ? l : NULL;
}

/* Each party says whether workers of its own are torn, too. */
static struct lead *heard_of(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct lead *l = said_in(e, from, m);

	if (l)
		l->has_torn |= m->is_torn && l->state != LEAD_ENDING && l->state != LEAD_DONE;
	return l;
}

void wb__transfer_on_PROMISE(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct lead *l = heard_of(e, from, m);

	if (l && l->state == LEAD_PROMISES)
		on_promise(l, from, m);
}

void wb__transfer_on_STOPPED(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct lead *l = heard_of(e, from, m);

	if (l && (l->state == LEAD_STOPS || m->code < 0))
		on_stopped(l, from, m);
}

void wb__transfer_on_HEARD(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct lead *l = said_in(e, from, m);

	if (l && l->state == LEAD_TELLING)
		on_heard(l, from);
}

void wb__transfer_on_PROGRESS(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct lead *l = heard_of(e, from, m);

	if (l)
		on_progress(l, from, m);
}

void wb__transfer_on_ENDED(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct lead *l = said_in(e, from, m);

	if (l)
		on_ended(l, from, m);
}

void wb__transfer_lead_engine_lost(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct lead *l = led_by(e, from, m);

	if (l)
		on_lost(l, m);
}

void wb__transfer_on_DECIDED(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct lead *l = led_by(e, from, m);

	if (l)
		wb__transfer_lead_chosen(l, DECIDE_COMMIT);
}

void wb__transfer_on_CANCEL(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct lead *l = led_by(e, from, m);

	if (l)
		on_cancel(l, m);
}

/* Can the run not go on without its coordinator?  What the trainers have not sent, nobody has; and
 * no decision can come any more. */
static bool needs_coordinator(const struct lead *l)
{
	if (l->is_staged)
		return l->state == LEAD_STAGING && (l->e->r->all_engines || !received_all(l));
	return !l->is_feed && !received_all(l);
}

void wb__transfer_lead_agent_down(struct epoch *e, uint32_t agent, uint64_t upto, const char *why)
{
	for (uint32_t en = 0; en < e->r->n_engine; en++) {
		struct lead *l = &e->lead[en];
		char text[WB_ERR_MSG_MAX];

		wb__transfer_doubt_agent_down(l, agent, upto);
		if (!wb__transfer_leads_run(l) || l->transfer > upto)
			continue;
		if (l->agent[agent].takes_part) {
			l->agent[agent].down = true;
			if (l->state == LEAD_ENDING) {
				on_ended(l, agent, WB_PEER(ENDED));
				continue;
			}
			snprintf(text, sizeof(text), "agent %s is gone: %.800s",
				e->r->agent[agent].name, why);
			fail(l, -EHOSTDOWN, text);
		} else if (l->coordinator == agent && needs_coordinator(l)) {
			snprintf(text, sizeof(text),
				"the transfer's coordinator, agent %s, is gone: %.800s",
				e->r->agent[agent].name, why);
			fail(l, -EHOSTDOWN, text);
		} else if (l->coordinator == agent && l->is_feed && l->state != LEAD_ENDING) {
			/* The coordinator is the feed's source: what it has not given comes from
			 * others. */
			lose(l, l->source_engine, l->losses + 1);
		} else if (l->coordinator == agent && l->state == LEAD_STAGED &&
			   l->e->r->all_engines) {
			ask_judges(l);
		}
	}
}

void wb__transfer_lead_broken(struct lead *l, const char *why)
{
	char text[512];

	if (!wb__transfer_leads_run(l))
		return;
	if (l->state == LEAD_ENDING) { /* times are lost */
		close_ending(l);
		return;
	}
	snprintf(text, sizeof(text), "engine %s: %.400s", l->e->r->engine[l->engine].name, why);
	fail(l, -EHOSTDOWN, text);
}

/* What a lead waits for from each of its agents, by state. */
static const struct {
	size_t done; /* which of lead_agent's bools says that it came */
	bool is_step; /* within a step's deadline, else a transfer's */
	const char *undone;
} waits[] = {
	[LEAD_STAGING] = {FIELD(complete), false, "not everything was received"},
	[LEAD_STAGED] = {0}, /* the coordinator alone is waited for */
	[LEAD_PROMISES] = {FIELD(promised), true, "STOP was not answered"},
	[LEAD_STOPS] = {FIELD(stopped), true,
		"the common poll was not reached, or before_update_hook did not return,"},
	[LEAD_TELLING] = {FIELD(heard), true, "that all have stopped was not answered"},
	[LEAD_MOVING] = {FIELD(complete), false, "not everything was received"},
	[LEAD_INSTALLING] = {FIELD(installed), false, "the new weights were not installed"},
	[LEAD_ENDING] = {FIELD(ended), true, "after_update_hook did not return"},
};

bool wb__transfer_lead_is_late(const struct lead *l, uint32_t agent)
{
	const struct lead_agent *x = &l->agent[agent];

	if (l->state >= WB_ARRAY_SIZE(waits) || !waits[l->state].undone)
		return false;
	if (l->state == LEAD_PROMISES && wb__transfer_doubt_waits_for(l, agent))
		return x->takes_part;
	return x->takes_part && !((const bool *)x)[waits[l->state].done];
}

static void expired(struct lead *l)
{
	bool is_step = waits[l->state].is_step;
	uint64_t bound_ns =
		is_step ? l->e->r->engine_step_deadline_ns : l->e->r->transfer_deadline_ns;
	char text[WB_ERR_MSG_MAX], who[512] = "";

	if (l->state == LEAD_STAGED) { /* the coordinator is silent */
		ask_judges(l);
		return;
	}
	for (uint32_t a = 0; a < l->e->r->n_agent; a++) {
		if (wb__transfer_lead_is_late(l, a) && strlen(who) < 400)
			snprintf(who + strlen(who), sizeof(who) - strlen(who), "%s%s",
				who[0] ? ", " : "", l->e->r->agent[a].name);
	}
	snprintf(text, sizeof(text), "engine %s: %s by %s within spec.%s (%.0f s)",
		l->e->r->engine[l->engine].name, waits[l->state].undone, who,
		is_step ? "engineStepDeadlineSeconds" : "transferDeadlineSeconds",
		(double)bound_ns / 1e9);
	if (l->state == LEAD_ENDING) {
		for (uint32_t a = 0; a < l->e->r->n_agent; a++)
			l->agent[a].down |= !l->agent[a].ended;
		snprintf(l->sentence, sizeof(l->sentence), "%s", text);
		close_ending(l);
		return;
	}
	fail(l, -ETIMEDOUT, text);
}

uint64_t wb__transfer_lead_tick(struct object *o, uint64_t now)
{
	uint64_t next = 0;

	for (int k = 0; k < 2; k++) {
		struct epoch *e = k ? o->prev : o->cur;

		for (uint32_t en = 0; e && en < e->r->n_engine; en++) {
			struct lead *l = &e->lead[en];

			if (!l->deadline_ns || !wb__transfer_leads_run(l))
				continue;
			if (now >= l->deadline_ns)
				expired(l);
			else
				next = sooner(next, l->deadline_ns);
		}
	}
	return next;
}
