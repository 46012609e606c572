/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What parties, with their workers and staging areas, must not believe, nor do too early.  Each
 * check is reached by the very message or moment that it is for.
 */
#include "tests/common/fx_check.h"
#include "tests/common/fx_two_engines.h"

#define CHUNK 16384 /* large ones go from and into parameters themselves */
#define SLOW 2000000 /* bytes a second of a slow network */
#define CHUNK_NS (CHUNK * WB_NS_PER_S / SLOW)

static const struct world_opts shape = {.seed = 31, TWO_ENGINES, .peers_reconnect = true};

/* @how, @poll: or what that kind has in their place. */
static struct wb_msg_peer says(uint32_t kind, uint64_t transfer, uint32_t how, uint32_t poll)
{
	struct wb_msg_peer m = about(kind, transfer);

	m.how = how;
	m.poll = poll;
	return m;
}

static struct wb_msg_peer failed(uint64_t transfer)
{
	struct wb_msg_peer m = says(WBP_PEER_PROGRESS, transfer, PROGRESS_FAILED, 0);

	m.code = -EIO;
	return m;
}

static uint32_t n_trace_resume, n_trace_decided;

static void count_traces(void *ctx, struct world_agent *a, const char *what, const char *who,
	uint64_t transfer, uint64_t value)
{
	(void)ctx;
	(void)a;
	(void)who;
	(void)transfer;
	(void)value;
	n_trace_resume += !strcmp(what, "resume");
	n_trace_decided += !strcmp(what, "decided");
}

/* ---- same step ----------------------------------------------------------------------------- */

/* Its agent remembers another stop of it, and this one comes to the target later than the message
 * does: the workers of an engine run on from one poll. */
START_TEST(a_worker_that_was_parked_before_has_to_come_to_the_target)
{
	struct wb_msg_app_parked parked = {0};
	struct worker *k;
	const struct party *p;

	begin(&shape);
	k = worker_of(PARTY);
	p = party_of(PARTY);
	for (int i = 0; i < 4; i++)
		wb_poll_add(&w.worker[PARTY].page->word);
	k->is_parked = true;
	k->parked_at = 3;
	say(PARTY, LEAD, about(WBP_PEER_STOP, 5));
	say(PARTY, LEAD, says(WBP_PEER_TARGET, 5, 0, 5));
	ck_assert_int_eq(p->state, PARTY_STOPPING);
	wb_poll_add(&w.worker[PARTY].page->word);
	parked.count = 5;
	worker_says(PARTY, WBP_APP_PARKED, &parked);
	ck_assert_int_eq(p->state, PARTY_HOOKS);
	end();
}
END_TEST

/* That it has run in the transfer before does not count; nor does an install of one worker for
 * that of another. */
START_TEST(each_worker_of_an_agent_is_waited_for)
{
	bool is_staged = _i;
	struct world_opts o = shape;
	const struct lead *l;

	o.engines = o.agents_per_engine = 1;
	o.workers_per_agent = 2;
	o.rollout_staged = is_staged;
	begin(&o);
	l = lead_of(LEAD);
	commits(1);
	w.worker[4].hook_ns = 4 * WB_NS_PER_S;
	world_send(&w, 2);
	RUN_UNTIL(l->transfer == 2 && l->state == (is_staged ? LEAD_INSTALLING : LEAD_MOVING));
	for (uint32_t i = w.n_trainer; i < w.n_worker; i++)
		ck_assert_int_eq(w.worker[i].phase, WORLD_BEGUN);
	RUN_UNTIL(l->state == LEAD_ENDING);
	for (uint32_t i = w.n_trainer; i < w.n_worker; i++)
		ck_assert_int_eq(w.worker[i].phase, is_staged ? WORLD_INSTALLED : WORLD_BEGUN);
	end();
}
END_TEST

/* It confirms what it hears, and has forgotten the transfer. */
START_TEST(a_party_does_not_wait_for_ever_for_a_lead_that_says_nothing)
{
	struct world_opts o = shape;

	o.rollout_staged = _i;
	o.step_deadline_ns = o.transfer_deadline_ns = WB_NS_PER_S;
	begin(&o);
	commits(1);
	world_send(&w, 2);
	RUN_UNTIL(party_of(PARTY)->state == PARTY_STOPPING);
	lead_of(LEAD)->state = LEAD_DONE;
	lead_of(LEAD)->deadline_ns = 0;
	world_run_for(&w, 5 * o.step_deadline_ns + 12 * WB_NS_PER_S);
	for (uint32_t i = LEAD; i <= PARTY; i++) {
		ck_assert_int_eq(party_of(i)->state, PARTY_NONE);
		ck_assert_int_eq(w.worker[i].phase, WORLD_RUN);
		ck_assert(world_holds(&w, &w.worker[i], 1));
	}
	end();
}
END_TEST

/* Who has not stopped does not know it of all: what it hears is of a run before. */
START_TEST(who_has_stopped_hears_that_all_have)
{
	const struct party *p;

	begin(&shape);
	commits(1);
	w.worker[PARTY].hook_ns = WB_NS_PER_S;
	world_send(&w, 2);
	p = party_of(PARTY);
	RUN_UNTIL(p->state == PARTY_HOOKS);
	forget_said();
	say(PARTY, LEAD, about(WBP_PEER_ALL_STOPPED, 2));
	ck_assert(!p->knows_all_stopped);
	RUN_UNTIL(p->state == PARTY_STOPPED);
	ck_assert(last(PARTY, "e0-0", WBP_PEER_STOPPED)->m.asks);
	say(PARTY, LEAD, about(WBP_PEER_ALL_STOPPED, 1));
	ck_assert(!p->knows_all_stopped);
	ck_assert_uint_eq(n_times(PARTY, "e0-0", WBP_PEER_HEARD), 0);
	say(PARTY, LEAD, about(WBP_PEER_ALL_STOPPED, 2));
	ck_assert(p->knows_all_stopped);
	ck_assert_ptr_nonnull(last(PARTY, "e0-0", WBP_PEER_HEARD));
	end();
}
END_TEST

START_TEST(a_party_hears_of_its_own_transfer_only)
{
	struct wb_msg_peer stop = about(WBP_PEER_STOP, 5);
	struct party *p;

	begin(&shape);
	commits(1);
	p = party_of(PARTY);
	say(PARTY, LEAD, stop);
	ck_assert_int_eq(p->state, PARTY_STOPPING);
	say(PARTY, LEAD, says(WBP_PEER_TARGET, 4, 0, 99));
	ck_assert(!p->has_target);
	say(PARTY, LEAD, says(WBP_PEER_END, 4, WB_ENGINE_ABORTED, 0));
	say(PARTY, LEAD, says(WBP_PEER_END, 4, WB_ENGINE_COMMITTED, 0));
	ck_assert_int_eq(p->state, PARTY_STOPPING);
	ck_assert_uint_eq(worker_of(PARTY)->held_transfer, 1);
	say(PARTY, LEAD, says(WBP_PEER_END, 5, WB_ENGINE_ABORTED, 0));
	ck_assert_int_eq(p->state, PARTY_NONE);
	end();
}
END_TEST

/* ---- torn ---------------------------------------------------------------------------------- */

/* e0 is Torn by version @version, e1 has it. */
static void tear(int64_t version)
{
	struct lead *l = lead_of(LEAD);

	world_send(&w, version);
	RUN_UNTIL(l->state == LEAD_MOVING);
	say(LEAD, PARTY, failed(l->transfer));
	ck_assert(world_run(&w, 20 * WB_NS_PER_S));
	RUN_UNTIL(w.worker[LEAD].phase == WORLD_TORN && w.worker[PARTY].phase == WORLD_TORN);
	world_run_for(&w, 100 * WB_NS_PER_MS);
	ck_assert_int_eq(party_of(LEAD)->state, PARTY_NONE);
	ck_assert(worker_of(LEAD)->past.is_torn && worker_of(LEAD)->repair_ns);
}

/* A repair that does not come to its first byte leaves the mix, under whichever plan: it is
 * waited for on. */
START_TEST(what_is_torn_stays_so_when_its_repair_is_aborted)
{
	bool is_replanned = _i & 1;
	struct world_opts o = shape;

	begin(&o);
	commits(1);
	tear(2);
	if (is_replanned)
		world_plan(&w);
	w.worker[PARTY].hook_raises = true;
	world_send(&w, 3);
	ck_assert(world_run(&w, 20 * WB_NS_PER_S));
	world_run_for(&w, 100 * WB_NS_PER_MS);
	for (uint32_t i = LEAD; i <= PARTY; i++) {
		ck_assert_int_eq(w.worker[i].phase, WORLD_TORN);
		ck_assert(worker_of(i)->past.is_torn && worker_of(i)->repair_ns > world_now(&w));
		ck_assert_str_eq(wb_transfer_torn(w.agent[i].core), "e0");
	}
	commits(4);
	end();
}
END_TEST

/* From its first byte on an engine has no version, and feeds nobody. */
START_TEST(what_is_being_written_is_no_version)
{
	struct wb_err err = {0};

	begin(&shape);
	commits(1);
	ck_assert_uint_eq(worker_of(LEAD1)->held_transfer, 1);
	world_send(&w, 2);
	RUN_UNTIL(party_of(LEAD1)->state == PARTY_MOVING);
	ck_assert_uint_eq(worker_of(LEAD1)->held_transfer, 0);
	ck_assert_int_eq(wb_transfer_feed(w.agent[LEAD1].core, &epoch_of(LEAD1)->r->id, 0, 1, &err),
		-ENOENT);
	end();
}
END_TEST

/* An order that was lost under the plan before comes when a transfer has begun under this one. */
START_TEST(nothing_begins_under_the_plan_before)
{
	struct world_opts o = shape;
	struct wb_msg_peer m = about(_i & 1 ? WBP_PEER_STAGE : WBP_PEER_STOP, 5);
	struct object *x;

	o.rollout_staged = true;
	begin(&o);
	commits(1);
	world_plan(&w);
	world_run_for(&w, 10 * WB_NS_PER_MS);
	x = object_of(PARTY);
	ck_assert_ptr_nonnull(x->prev);
	ck_assert(x->cur->is_active);
	x->cur->has_begun = true;
	m.feed = !(_i & 1);
	wb_transfer_peer_msg(w.agent[PARTY].core, &x->prev->r->id, x->prev->r->engine[0].lead, &m);
	ck_assert_int_eq(x->prev->party[0].state, PARTY_NONE);
	ck_assert_uint_eq(worker_of(PARTY)->area.head->transfer, 1);
	ck_assert_int_eq(w.worker[PARTY].phase, WORLD_RUN);
	world_finish(&w);
}
END_TEST

/* Nor while the engine is fed under this one: its workers stand in that update, and what has come
 * is in their parameters.  Orders of a feed (_i 0) and of a transfer (1). */
START_TEST(nothing_begins_under_the_plan_before_in_an_engine_that_is_fed)
{
	struct world_opts o = shape;
	struct wb_msg_peer m = about(WBP_PEER_PREPARE, 2);
	const struct said *no;
	struct object *x;
	uint32_t asks;

	o.rollout_staged = true;
	begin(&o);
	commits(1);
	world_plan(&w);
	world_run_for(&w, 10 * WB_NS_PER_MS);
	m.feed = true;
	say(LEAD, LEAD1, m);
	m.kind = WBP_PEER_STOP;
	say(PARTY, LEAD, m);
	asks = _i ? COORDINATOR : LEAD1;
	x = object_of(LEAD);
	ck_assert(x->prev && x->cur->is_active && !x->cur->has_begun);
	forget_said();
	m = about(WBP_PEER_PREPARE, 3);
	m.feed = !_i;
	wb_transfer_peer_msg(w.agent[LEAD].core, &x->prev->r->id, asks, &m);
	ck_assert_uint_eq(x->prev->lead[0].transfer, 1);
	no = last(LEAD, w.agent[asks].name, WBP_PEER_REFUSED);
	ck_assert_ptr_nonnull(no);
	ck_assert_int_eq(no->m.code, -EBUSY);
	ck_assert_str_eq(no->sentence, "engine e0 is still in transfer 2");
	x = object_of(PARTY);
	ck_assert(x->prev && x->cur->is_active && !x->cur->has_begun);
	m.kind = _i ? WBP_PEER_STAGE : WBP_PEER_STOP;
	wb_transfer_peer_msg(w.agent[PARTY].core, &x->prev->r->id, LEAD, &m);
	ck_assert_int_eq(x->prev->party[0].state, PARTY_NONE);
	no = last(PARTY, "e0-0", WBP_PEER_PROGRESS); /* the lead would wait for a promise */
	ck_assert_ptr_nonnull(no);
	ck_assert_uint_eq(no->m.progress, PROGRESS_FAILED);
	ck_assert_int_eq(no->m.code, -EBUSY);
	ck_assert_str_eq(no->sentence, "engine e0 is still in transfer 2");
	world_finish(&w);
}
END_TEST

/* Only while nobody repairs it: a hook takes longer than the rest of that time. */
START_TEST(the_wait_for_repair_stands_still_while_one_is_under_way)
{
	struct world_opts o = shape;

	o.transfer_deadline_ns = 2 * WB_NS_PER_S;
	o.step_deadline_ns = 60 * WB_NS_PER_S;
	begin(&o);
	commits(1);
	tear(2);
	world_run_for(&w, WB_NS_PER_S);
	w.worker[PARTY].hook_ns = 20 * WB_NS_PER_S;
	world_send(&w, 3);
	RUN_UNTIL(party_of(PARTY)->state == PARTY_HOOKS);
	world_run_for(&w, 4 * WB_NS_PER_S);
	ck_assert_int_eq(party_of(PARTY)->state, PARTY_HOOKS);
	ck_assert(!w.worker[PARTY].is_torn_final && worker_of(PARTY)->repair_ns);
	world_finish(&w);
}
END_TEST

/* Its lead's worker is another process now, which is not torn, and the repair comes to nothing:
 * the others are, still, and it is not said that old weights are what they were. */
START_TEST(the_lead_hears_from_the_others_that_its_engine_is_torn)
{
	bool is_late = _i & 1; /* the repair ends before they have answered */
	struct world_opts o = shape;

	o.rollout_staged = _i & 2;
	begin(&o);
	commits(1);
	if (o.rollout_staged)
		worker_of(PARTY)->past.is_torn = true;
	else
		tear(2);
	world_kill_agent(&w, LEAD);
	world_run_for(&w, WB_NS_PER_S);
	world_restart(&w, LEAD);
	world_run_for(&w, 100 * WB_NS_PER_MS);
	world_plan(&w);
	ck_assert(!worker_of(LEAD)->past.is_torn);
	ck_assert(worker_of(PARTY)->past.is_torn);
	world_send(&w, 3);
	RUN_UNTIL(lead_of(LEAD)->state >= (o.rollout_staged ? is_late ? LEAD_STAGING : LEAD_STAGED
						  : is_late ? LEAD_PROMISES
							    : LEAD_STOPS));
	say(LEAD, is_late ? LEAD : PARTY, failed(lead_of(LEAD)->transfer));
	ck_assert_int_eq(lead_of(LEAD)->result, WB_ENGINE_ABORTED);
	ck_assert_int_eq(lead_of(LEAD)->told,
		is_late && !o.rollout_staged ? WB_ENGINE_ABORTED : WB_ENGINE_TORN);
	world_finish(&w);
}
END_TEST

/* Before its feed comes, and when that does not: it has nothing to serve with. */
START_TEST(an_engine_that_is_to_be_fed_does_not_serve_what_it_has)
{
	struct world_opts o = shape;

	begin(&o);
	commits(1);
	restart_e0();
	for (uint32_t i = LEAD; i <= PARTY; i++)
		wb_transfer_expect_feed(w.agent[i].core, &world_object, 0);
	world_run_for(&w, WB_NS_PER_S);
	for (uint32_t i = LEAD; i <= PARTY; i++)
		ck_assert_int_eq(w.worker[i].phase, WORLD_PARKED);
	feed_e0();
	RUN_UNTIL(party_of(PARTY)->state == PARTY_STOPPING || lead_of(LEAD)->state == LEAD_STOPS);
	say(LEAD, PARTY, failed(1));
	world_after(&w.agent[LEAD]);
	world_run_for(&w, 100 * WB_NS_PER_MS);
	for (uint32_t i = LEAD; i <= PARTY; i++) {
		ck_assert(worker_of(i)->expects_feed && !worker_of(i)->past.is_torn);
		ck_assert_int_ne(w.worker[i].phase, WORLD_RUN);
	}
	end();
}
END_TEST

/* ---- readers of the version before ---------------------------------------------------------- */

/* Flows of older transfers that touch what agent @a's engine holds. */
static bool is_read(uint32_t a, uint64_t transfer, bool areas)
{
	struct object *o = object_of(a);

	for_flow (o, x) {
		if (wb_flow_transfer(x->flow) >= transfer || x->is_staged != areas)
			continue;
		for (uint32_t i = 0; i < x->e->local->n; i++)
			if (wb_flow_uses(x->flow, i))
				return true;
	}
	return false;
}

/* Engine e0 is fed by e1 over a slow network: chunks of version 1 are on their way. */
static void begin_with_slow_reader(bool is_staged, bool areas)
{
	struct world_opts o = shape;

	o.rollout_staged = is_staged;
	o.scale = 768;
	o.chunk_bytes = CHUNK;
	o.bytes_per_s = SLOW;
	o.transfer_deadline_ns = o.step_deadline_ns = 60 * WB_NS_PER_S;
	begin(&o);
	commits(1);
	restart_e0();
	for (uint32_t i = LEAD1; is_staged && !areas && i <= PARTY1; i++)
		wb_area_set(worker_of(i)->area.head, WB_AREA_EMPTY); /* as after one that aborted */
	feed_e0();
	RUN_UNTIL(lead_of(LEAD)->state == LEAD_MOVING);
	RUN_UNTIL(is_read(LEAD1, 2, areas));
	world_run_for(&w, WB_NS_PER_MS); /* the first has left; the next one waits for the wire */
	ck_assert(is_read(LEAD1, 2, areas));
}

/* Into parameters, or areas, that somebody reads nothing is received: who reads gets what it asked
 * for, or is cut off. */
START_TEST(nothing_is_received_where_somebody_reads)
{
	const struct party *p;
	bool waits = false;

	begin_with_slow_reader(_i, _i);
	world_send(&w, 2);
	p = party_of(LEAD1);
	while (p->transfer != 2 || p->state != PARTY_MOVING) {
		waits |= p->transfer == 2 &&
			 (p->state == PARTY_OPENING || p->state == PARTY_CLEARING);
		ck_assert(wb_sim_step(w.net));
		ck_assert_uint_lt(world_now(&w), 60 * WB_NS_PER_S);
	}
	ck_assert(waits);
	ck_assert(!is_read(LEAD1, 2, _i));
	end();
}
END_TEST

/* It has been written to, and not all of it: whatever its lead says, that is no version. */
START_TEST(what_is_not_whole_is_not_committed)
{
	begin(&shape);
	commits(1);
	world_send(&w, 2);
	RUN_UNTIL(party_of(PARTY)->state == PARTY_MOVING);
	say(PARTY, LEAD, says(WBP_PEER_END, 2, WB_ENGINE_COMMITTED, 0));
	ck_assert_int_eq(party_of(PARTY)->state, PARTY_NONE);
	for_party_worker (epoch_of(PARTY), 0, i) {
		ck_assert(epoch_of(PARTY)->member[i]->past.is_torn);
		ck_assert_uint_eq(epoch_of(PARTY)->member[i]->held_transfer, 0);
	}
	end();
}
END_TEST

/* Nor is it installed there; who does not come to an end is cut off. */
START_TEST(nothing_is_installed_where_somebody_reads)
{
	bool is_over = _i; /* the time for readers */
	struct party *p;
	uint64_t since;

	begin_with_slow_reader(true, false);
	p = party_of(LEAD1);
	*p = (struct party){.state = PARTY_STOPPED,
		.e = epoch_of(LEAD1),
		.engine = 1,
		.lead = epoch_of(LEAD1)->me,
		.transfer = 2,
		.is_staged = true};
	say(LEAD1, LEAD1,
		(struct wb_msg_peer){.kind = WBP_PEER_INSTALL, .transfer = 2, .engine = 1});
	ck_assert_int_eq(p->state, PARTY_OPENING);
	p->drain_ns = is_over ? world_now(&w) : p->drain_ns;
	since = world_now(&w);
	world_after(&w.agent[LEAD1]);
	RUN_UNTIL(p->state != PARTY_OPENING);
	ck_assert_int_eq(p->state, PARTY_COPYING);
	ck_assert(!is_read(LEAD1, 2, false));
	ck_assert_int_eq(world_now(&w) - since < CHUNK_NS, is_over);
	end();
}
END_TEST

/* ---- staging areas -------------------------------------------------------------------------- */

static struct world_opts staged(bool all_engines)
{
	struct world_opts o = shape;

	o.rollout_staged = true;
	o.all_engines = all_engines;
	return o;
}

static struct wb_area_head *area_of(uint32_t worker)
{
	return (struct wb_area_head *)(void *)w.worker[worker].area;
}

/* Else a next plan would take it up. */
START_TEST(what_was_aborted_is_in_no_area)
{
	struct world_opts o = staged(true);
	bool is_over = _i; /* the party knows the end already, and hears of it again */

	begin(&o);
	world_send(&w, 1);
	RUN_UNTIL(lead_of(LEAD)->state == LEAD_STAGED);
	ck_assert_int_eq(wb_area_state(area_of(PARTY)), WB_AREA_WHOLE);
	if (is_over)
		party_of(PARTY)->state = PARTY_NONE;
	say(PARTY, LEAD, says(WBP_PEER_END, 1, WB_ENGINE_ABORTED, 0));
	ck_assert_int_eq(wb_area_state(area_of(PARTY)), WB_AREA_EMPTY);
	end();
}
END_TEST

START_TEST(an_area_that_lost_what_was_staged_is_not_installed)
{
	struct world_opts o = staged(true);
	const struct said *no;

	begin(&o);
	world_send(&w, 1);
	RUN_UNTIL(lead_of(LEAD)->state == LEAD_STAGED);
	wb_area_set(area_of(PARTY), _i ? WB_AREA_EMPTY : WB_AREA_FILLING);
	forget_said();
	say(PARTY, LEAD, about(WBP_PEER_STOP, 1));
	no = last(PARTY, "e0-0", WBP_PEER_PROGRESS);
	ck_assert_ptr_nonnull(no);
	ck_assert_int_eq(no->m.code, -ENODATA);
	ck_assert_ptr_null(last(PARTY, "e0-0", WBP_PEER_PROMISE));
	end();
}
END_TEST

/* What the areas of e0's workers hold when its agents begin anew, and what the lead makes of it. */
static const struct {
	uint64_t transfer[2];
	enum wb_area_state state[2];
	bool is_resumed, is_committed;
} left[] = {
	{{7, 7}, {WB_AREA_WHOLE, WB_AREA_WHOLE}, true, false},
	{{7, 7}, {WB_AREA_INSTALLING, WB_AREA_WHOLE}, true, true},
	{{7, 7}, {WB_AREA_WHOLE, WB_AREA_INSTALLED}, true, true},
	{{7, 8}, {WB_AREA_WHOLE, WB_AREA_WHOLE}, false, false},
	{{8, 7}, {WB_AREA_WHOLE, WB_AREA_WHOLE}, false, false},
	{{7, 7}, {WB_AREA_WHOLE, WB_AREA_FILLING}, false, false},
	{{7, 7}, {WB_AREA_EMPTY, WB_AREA_WHOLE}, false, false},
};

static void leave_areas(int i)
{
	for (uint32_t k = 0; k < 2; k++) {
		area_of(LEAD + k)->transfer = left[i].transfer[k];
		area_of(LEAD + k)->version = 70;
		wb_area_set(area_of(LEAD + k), left[i].state[k]);
	}
	n_trace_resume = n_trace_decided = 0;
	w.watch.trace = count_traces;
}

START_TEST(what_is_whole_of_one_transfer_is_taken_up_and_nothing_else)
{
	struct world_opts o = staged(false);

	begin(&o);
	world_run_for(&w, WB_NS_PER_S);
	leave_areas(_i);
	world_plan(&w);
	world_run_for(&w, WB_NS_PER_MS);
	ck_assert_uint_eq(n_trace_resume, left[_i].is_resumed);
	ck_assert_uint_eq(n_trace_decided, left[_i].is_committed);
	end();
}
END_TEST

START_TEST(nothing_is_taken_up_before_all_agents_of_the_engine_have_spoken)
{
	struct world_opts o = staged(false);
	struct world_epoch *e;

	begin(&o);
	world_run_for(&w, WB_NS_PER_S);
	leave_areas(0);
	e = world_epoch_make(&w);
	for (uint32_t i = LEAD; i <= PARTY; i++)
		world_must(world_epoch_install(&w, e, i, NULL), NULL);
	world_must(wb_transfer_activate(w.agent[LEAD].core, &e->id), NULL);
	ck_assert_uint_eq(n_trace_resume, 0);
	world_must(wb_transfer_activate(w.agent[PARTY].core, &e->id), NULL);
	world_run_for(&w, WB_NS_PER_MS);
	ck_assert_uint_eq(n_trace_resume, 1);
	end();
}
END_TEST

/* The lead has led a feed under this plan since: what it takes up is none. */
START_TEST(what_is_taken_up_has_nothing_of_the_run_before)
{
	struct world_opts o = staged(false);
	struct wb_msg_peer m = about(WBP_PEER_PREPARE, 6);
	struct world_epoch *e;
	struct lead *l;

	begin(&o);
	world_run_for(&w, WB_NS_PER_S);
	leave_areas(0);
	e = world_epoch_make(&w);
	for (uint32_t i = LEAD; i <= PARTY; i++)
		world_must(world_epoch_install(&w, e, i, NULL), NULL);
	world_must(wb_transfer_activate(w.agent[LEAD].core, &e->id), NULL);
	m.feed = true;
	m.feeder = 1;
	say(LEAD, LEAD1, m);
	l = lead_of(LEAD);
	ck_assert(l->is_feed && l->state == LEAD_PROMISES);
	m.kind = WBP_PEER_CANCEL;
	say(LEAD, LEAD1, m);
	ck_assert_int_eq(l->state, LEAD_DONE);
	world_must(wb_transfer_activate(w.agent[PARTY].core, &e->id), NULL);
	world_run_for(&w, WB_NS_PER_MS);
	ck_assert_uint_eq(n_trace_resume, 1);
	ck_assert_uint_eq(l->transfer, 7);
	ck_assert(l->is_staged && !l->is_feed);
	end();
}
END_TEST

/* An area that is filled for the next transfer is no source of the one before, which the
 * parameters still hold. */
START_TEST(what_is_held_is_read_where_it_is)
{
	struct world_opts o = staged(false);
	struct object *obj;
	const struct wb_flow *f;
	uint32_t me = 0;

	begin(&o);
	commits(1);
	obj = object_of(LEAD);
	while (epoch_of(LEAD)->plan->worker[me].domain != epoch_of(LEAD)->me)
		me++;
	area_of(LEAD)->transfer = 2;
	f = wb__transfer_flow_source(epoch_of(LEAD), me, 1);
	ck_assert_ptr_nonnull(f);
	for_flow (obj, x)
		ck_assert(x->flow != f || !x->is_staged);
	area_of(LEAD)->transfer = 1;
	f = wb__transfer_flow_source(epoch_of(LEAD), me, 1);
	for_flow (obj, x)
		ck_assert(x->flow != f || x->is_staged);
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fences_party");
	TCase *tc = tcase_create("fences_party");

	wb_log_level_max = WB_LOG_ERROR;
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, a_worker_that_was_parked_before_has_to_come_to_the_target);
	tcase_add_loop_test(tc, each_worker_of_an_agent_is_waited_for, 0, 2);
	tcase_add_loop_test(tc, a_party_does_not_wait_for_ever_for_a_lead_that_says_nothing, 0, 2);
	tcase_add_test(tc, who_has_stopped_hears_that_all_have);
	tcase_add_test(tc, a_party_hears_of_its_own_transfer_only);
	tcase_add_loop_test(tc, what_is_torn_stays_so_when_its_repair_is_aborted, 0, 2);
	tcase_add_test(tc, what_is_being_written_is_no_version);
	tcase_add_loop_test(tc, nothing_begins_under_the_plan_before, 0, 2);
	tcase_add_loop_test(
		tc, nothing_begins_under_the_plan_before_in_an_engine_that_is_fed, 0, 2);
	tcase_add_test(tc, the_wait_for_repair_stands_still_while_one_is_under_way);
	tcase_add_loop_test(tc, the_lead_hears_from_the_others_that_its_engine_is_torn, 0, 4);
	tcase_add_test(tc, an_engine_that_is_to_be_fed_does_not_serve_what_it_has);
	tcase_add_loop_test(tc, nothing_is_received_where_somebody_reads, 0, 2);
	tcase_add_test(tc, what_is_not_whole_is_not_committed);
	tcase_add_loop_test(tc, nothing_is_installed_where_somebody_reads, 0, 2);
	tcase_add_loop_test(tc, what_was_aborted_is_in_no_area, 0, 2);
	tcase_add_loop_test(tc, an_area_that_lost_what_was_staged_is_not_installed, 0, 2);
	tcase_add_loop_test(tc, what_is_whole_of_one_transfer_is_taken_up_and_nothing_else, 0,
		(int)WB_ARRAY_SIZE(left));
	tcase_add_test(tc, nothing_is_taken_up_before_all_agents_of_the_engine_have_spoken);
	tcase_add_test(tc, what_is_taken_up_has_nothing_of_the_run_before);
	tcase_add_test(tc, what_is_held_is_read_where_it_is);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
