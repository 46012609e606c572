/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ends a run, and what does not: deadlines, agents that are gone, gaps in what they said,
 * memory that goes away.  Each end is reached by hand.
 */
#include "tests/common/fx_check.h"
#include "tests/common/fx_two_engines.h"

static const struct world_opts shape = {.seed = 41, TWO_ENGINES, .peers_reconnect = true};

static struct wb_msg_peer progress(uint64_t transfer, enum progress what)
{
	struct wb_msg_peer m = about(WBP_PEER_PROGRESS, transfer);

	m.progress = what;
	return m;
}

static struct wb_msg_peer engine_is(uint32_t engine, enum wb_engine_state state)
{
	struct wb_msg_peer m = about(WBP_PEER_ENGINE, 1);

	m.engine = engine;
	m.how = state;
	return m;
}

static void calls(uint32_t worker, int64_t version)
{
	struct wb_msg_app_send m = {.version = version};

	worker_says(worker, WBP_APP_SEND, &m);
}

/* Transfer 1, of which only the coordinator knows. */
static struct coordinator *lead_a_transfer(const struct world_opts *o)
{
	struct wb_msg_peer asks = {.kind = WBP_PEER_TRIGGER, .version = 10};

	begin(o);
	calls(0, 10);
	for (uint32_t a = 1; a < 3; a++)
		say(COORDINATOR, a, asks);
	ck_assert_int_eq(object_of(COORDINATOR)->coordinator.state, COORDINATOR_RUNNING);
	return &object_of(COORDINATOR)->coordinator;
}

static void tick(uint32_t agent)
{
	(void)wb_transfer_tick(w.agent[agent].core);
}

/* ---- deadlines ------------------------------------------------------------------------------ */

/* Leads have deadlines of their own; this one is for those that are silent. */
START_TEST(the_coordinator_does_not_wait_for_ever_for_a_lead)
{
	bool is_joint = _i;
	struct world_opts o = shape;
	struct coordinator *l;

	o.rollout_staged = o.all_engines = is_joint;
	l = lead_a_transfer(&o);
	say(COORDINATOR, LEAD, engine_is(0, is_joint ? WB_ENGINE_STAGED : WB_ENGINE_COMMITTED));
	tick(COORDINATOR);
	ck_assert_int_eq(l->state, COORDINATOR_RUNNING);
	l->deadline_ns = world_now(&w);
	tick(COORDINATOR);
	if (is_joint) { /* nothing is decided: who is ready is told that it will not be */
		ck_assert_uint_eq(n_times(COORDINATOR, NULL, WBP_PEER_CANCEL), 2);
		ck_assert(!l->is_proposed);
		say(COORDINATOR, LEAD, engine_is(0, WB_ENGINE_ABORTED));
		l->deadline_ns = world_now(&w);
		tick(COORDINATOR);
	}
	ck_assert(told.is_final);
	ck_assert_int_eq(l->engine[1].state, WB_ENGINE_UNKNOWN);
	ck_assert_int_eq(l->state, COORDINATOR_IDLE);
	end();
}
END_TEST

/* Where a lead stands at its deadline, and what comes of it. */
static const struct {
	enum lead_state at, then;
	bool is_staged, is_joint;
	enum wb_engine_state result;
} expired[] = {
	{LEAD_PROMISES, LEAD_DONE, false, false, WB_ENGINE_ABORTED},
	{LEAD_STOPS, LEAD_DONE, false, false, WB_ENGINE_ABORTED},
	{LEAD_TELLING, LEAD_DONE, false, false, WB_ENGINE_ABORTED},
	{LEAD_TELLING, LEAD_DONE, true, false, WB_ENGINE_ABORTED},
	{LEAD_MOVING, LEAD_DONE, false, false, WB_ENGINE_TORN},
	{LEAD_ENDING, LEAD_DONE, false, false, WB_ENGINE_COMMITTED},
	{LEAD_STAGING, LEAD_DONE, true, false, WB_ENGINE_ABORTED},
	{LEAD_STAGED, LEAD_STAGED, true, true, WB_ENGINE_IDLE}, /* it asks the judges */
	{LEAD_INSTALLING, LEAD_DONE, true, false, WB_ENGINE_TORN},
};

START_TEST(a_lead_ends_at_its_deadline)
{
	struct world_opts o = shape;
	struct lead *l;

	o.rollout_staged = expired[_i].is_staged;
	o.all_engines = expired[_i].is_joint;
	begin(&o);
	l = lead_of(LEAD);
	world_send(&w, 1);
	RUN_UNTIL(l->state == expired[_i].at);
	tick(LEAD);
	ck_assert_int_eq(l->state, expired[_i].at);
	ck_assert_uint_gt(l->deadline_ns, world_now(&w));
	l->deadline_ns = world_now(&w);
	tick(LEAD);
	ck_assert_int_eq(l->state, expired[_i].then);
	if (l->state == LEAD_DONE)
		ck_assert_int_eq(l->result, expired[_i].result);
	else
		ck_assert_int_eq(l->ballot.state, BALLOT_ASKING);
	end();
}
END_TEST

START_TEST(a_party_that_does_not_receive_says_so_at_its_deadline)
{
	struct party *p;
	const struct said *no;

	begin(&shape);
	p = party_of(PARTY);
	world_send(&w, 1);
	RUN_UNTIL(p->state == PARTY_MOVING);
	forget_said();
	tick(PARTY);
	ck_assert_uint_gt(p->deadline_ns, world_now(&w));
	p->deadline_ns = world_now(&w);
	tick(PARTY);
	no = last(PARTY, "e0-0", WBP_PEER_PROGRESS);
	ck_assert_ptr_nonnull(no);
	ck_assert_uint_eq(no->m.progress, PROGRESS_FAILED);
	ck_assert_int_eq(no->m.code, -ETIMEDOUT);
	end();
}
END_TEST

/* Of the agents one calls, or of an agent's workers. */
START_TEST(trainers_that_call_are_not_kept_waiting_for_ever_for_those_that_do_not)
{
	bool is_one_agent = _i;
	struct world_opts o = shape;

	o.step_deadline_ns = WB_NS_PER_S;
	if (is_one_agent) {
		o.trainer_agents = 1;
		o.trainers_per_agent = 2;
	}
	begin(&o);
	world_fill(&w.worker[0], 1);
	world_send_one(&w.worker[0], 1);
	world_run_for(&w, o.step_deadline_ns - 10 * WB_NS_PER_MS);
	ck_assert_int_ne(w.worker[0].send_state, WB_APP_SEND_FINAL);
	world_run_for(&w, 20 * WB_NS_PER_MS);
	ck_assert_int_eq(w.worker[0].send_state, WB_APP_SEND_FINAL);
	ck_assert_int_eq(w.worker[0].send_code, -ETIMEDOUT);
	commits(2);
	end();
}
END_TEST

/* ---- agents that are gone ------------------------------------------------------------------- */

START_TEST(a_trainer_agent_that_is_gone_cancels_until_the_trainers_are_let_go)
{
	bool is_released = _i;
	struct coordinator *l = lead_a_transfer(&shape);

	for (uint32_t en = 0; is_released && en < 2; en++)
		say(COORDINATOR, LEAD + 2 * en, engine_is(en, WB_ENGINE_RECEIVED));
	is_gone(COORDINATOR, TRAINER);
	ck_assert_uint_eq(n_times(COORDINATOR, NULL, WBP_PEER_CANCEL), is_released ? 0 : 2);
	ck_assert(!wb__transfer_is_end(l->engine[0].state));
	end();
}
END_TEST

/* Once all is received nobody needs the coordinator, nor can it take that back. */
START_TEST(an_engine_that_has_received_ends_without_the_coordinator)
{
	bool has_received = _i & 1, is_cancelled = _i & 2;
	struct lead *l;

	begin(&shape);
	l = lead_of(LEAD);
	world_send(&w, 1);
	RUN_UNTIL(l->state == LEAD_MOVING);
	for (uint32_t a = LEAD; has_received && a <= PARTY; a++)
		say(LEAD, a, progress(1, PROGRESS_RECEIVED));
	if (is_cancelled)
		say(LEAD, COORDINATOR, about(WBP_PEER_CANCEL, 1));
	else
		is_gone(LEAD, COORDINATOR);
	ck_assert_int_eq(l->state, has_received ? LEAD_MOVING : LEAD_DONE);
	end();
}
END_TEST

/* Its workers run already: only their times are lost. */
START_TEST(what_is_committed_stays_so_whatever_comes_before_its_end)
{
	struct world_epoch *e;
	struct lead *l;

	begin(&shape);
	l = lead_of(LEAD);
	w.worker[PARTY].hook_ns = 4 * WB_NS_PER_S;
	world_send(&w, 1);
	RUN_UNTIL(l->state == LEAD_ENDING);
	if (_i) {
		is_gone(LEAD, PARTY);
	} else {
		e = world_epoch_make(&w);
		world_must(world_epoch_install(&w, e, LEAD, NULL), NULL);
		wb__transfer_lead_broken(l, "a test says so");
	}
	ck_assert_int_eq(l->result, WB_ENGINE_COMMITTED);
	world_run_for(&w, 5 * WB_NS_PER_S);
	ck_assert_int_eq(l->state, LEAD_DONE);
	ck_assert_str_eq(told.state, "Committed");
	end();
}
END_TEST

/* Messages that a peer gave up can have been about transfers up to this one: a younger one has lost
 * nothing. */
START_TEST(a_gap_ends_what_it_can_have_been_about)
{
	uint64_t upto = _i & 1 ? 5 : 4;
	uint32_t to = _i & 2 ? LEAD : PARTY, from = _i & 2 ? PARTY : LEAD;
	struct wb_msg_peer m = about(WBP_PEER_CONFIRM, 0);
	bool ends = upto == 5;

	begin(&shape);
	if (to == LEAD)
		say(LEAD, COORDINATOR, about(WBP_PEER_PREPARE, 5));
	else
		say(PARTY, LEAD, about(WBP_PEER_STOP, 5));
	m.base = epoch_of(to)->wire[epoch_of(from)->me].rx_seq + 3;
	m.skipped = upto;
	say(to, from, m);
	if (to == LEAD)
		ck_assert_int_eq(lead_of(LEAD)->state, ends ? LEAD_DONE : LEAD_PROMISES);
	else
		ck_assert_int_eq(party_of(PARTY)->state, ends ? PARTY_NONE : PARTY_STOPPING);
	end();
}
END_TEST

/* The lead of the engine was not heard of, and the feed given up; the next one has the same number.
 * What the lead said of the first comes then. */
START_TEST(the_end_of_a_feed_is_not_that_of_the_next)
{
	struct wb_msg_peer m = engine_is(0, WB_ENGINE_ABORTED);
	const struct wire *wire;
	const struct object *o;

	begin(&shape);
	commits(1);
	restart_e0();
	feed_e0();
	o = object_of(LEAD1);
	wire = &epoch_of(LEAD1)->wire[epoch_of(LEAD1)->r->engine[0].lead];
	m.feed = true;
	m.ack = wire->tx_seq; /* PREPARE of the first is heard */
	is_gone(LEAD1, LEAD);
	ck_assert_ptr_null(o->feeds);
	feed_e0();
	ck_assert_ptr_nonnull(o->feeds);
	m.seq = wire->rx_seq + 1;
	m.base = 1;
	say(LEAD1, LEAD, m);
	ck_assert_ptr_nonnull(o->feeds);
	m.seq = wire->rx_seq + 1;
	m.ack = wire->tx_seq;
	say(LEAD1, LEAD, m);
	ck_assert_ptr_null(o->feeds);
	end();
}
END_TEST

START_TEST(a_gap_ends_the_send_that_it_can_have_been_about)
{
	struct wb_msg_peer m = about(WBP_PEER_CONFIRM, 0);
	const struct trainers *t;

	begin(&shape);
	t = &object_of(TRAINER)->trainers;
	calls(TRAINER, 10);
	say(TRAINER, COORDINATOR, about(WBP_PEER_SERVE, 5));
	ck_assert_int_eq(t->state, TRAINERS_SERVING);
	for (uint64_t upto = 4; upto <= 5; upto++) {
		m.base = epoch_of(TRAINER)->wire[epoch_of(COORDINATOR)->me].rx_seq + 3;
		m.skipped = upto;
		say(TRAINER, COORDINATOR, m);
		ck_assert_int_eq(t->state, upto == 5 ? TRAINERS_IDLE : TRAINERS_SERVING);
	}
	end();
}
END_TEST

/* 0 stands for any transfer, with peers that do not say it: an agent that knows of none, since it
 * was just started, must not end the one that its peer is in. */
START_TEST(what_is_given_up_before_a_transfer_is_about_the_first_at_most)
{
	const struct epoch *e;

	begin(&shape);
	e = epoch_of(LEAD);
	ck_assert_uint_eq(e->obj->highest, 0);
	wb_transfer_peer_down(
		w.agent[LEAD].core, &e->r->id, epoch_of(COORDINATOR)->me, "a test says so");
	ck_assert_uint_eq(e->wire[epoch_of(COORDINATOR)->me].skipped, 1);
	end();
}
END_TEST

/* ---- parameters of trainers ----------------------------------------------------------------- */

#define CHUNK 16384
#define SLOW 2000000 /* bytes a second */
#define CHUNK_NS (CHUNK * WB_NS_PER_S / SLOW)

/* After RELEASE nobody begins to read, and who does not come to an end is cut off. */
START_TEST(parameters_that_are_released_are_not_read)
{
	struct world_opts o = shape;
	struct wb_xport_event ev = {.kind = WB_XP_GRANT, .conn = 99999, .grant = 1};
	struct wb_flow_stats before, after;
	struct trainers *t;
	uint64_t since;

	o.scale = 768;
	o.chunk_bytes = CHUNK;
	o.bytes_per_s = SLOW;
	o.transfer_deadline_ns = 60 * WB_NS_PER_S;
	begin(&o);
	t = &object_of(TRAINER)->trainers;
	world_send(&w, 1);
	RUN_UNTIL(t->state == TRAINERS_SERVING && wb_flow_source_busy(t->flow, 0));
	world_run_for(&w, WB_NS_PER_MS); /* the first has left; the next one waits for the wire */
	ck_assert(wb_flow_source_busy(t->flow, 0));
	say(TRAINER, COORDINATOR, about(WBP_PEER_RELEASE, t->transfer));
	ck_assert_int_eq(t->state, TRAINERS_RELEASING);
	ev.chunk = (struct wb_xport_chunk){.transfer = t->transfer, .gen = 1};
	while (epoch_of(TRAINER)->plan->worker[ev.chunk.src].domain != epoch_of(TRAINER)->me)
		ev.chunk.src++;
	ev.chunk.dst = ev.chunk.src + 1;
	while (!wb_local_is_member(epoch_of(TRAINER)->local, 0, ev.chunk.cls))
		ev.chunk.cls++;
	ev.chunk.bytes = wb_chunk_len(
		epoch_of(TRAINER)->plan, &epoch_of(TRAINER)->plan->cls[ev.chunk.cls], 0);
	wb_flow_get_stats(t->flow, &before);
	wb_flow_on_grant(t->flow, &ev);
	wb_flow_get_stats(t->flow, &after);
	ck_assert_uint_eq(after.refused, before.refused + 1);
	t->drain_ns = since = world_now(&w);
	world_after(&w.agent[TRAINER]);
	RUN_UNTIL(t->is_told);
	ck_assert_uint_lt(world_now(&w) - since, CHUNK_NS);
	end();
}
END_TEST

/* A decision stands: that a hook raises is noted, before it the engine goes on with what it has. */
START_TEST(a_hook_that_raises_stops_what_is_not_decided)
{
	bool is_decided = _i;
	struct world_opts o = shape;
	struct wb_msg_app_begun begun = {.transfer = 1, .code = -EPERM};
	struct wb_msg_peer stop = about(WBP_PEER_STOP, 1), target = about(WBP_PEER_TARGET, 1);
	struct wb_msg_app_parked parked;
	const struct party *p;

	o.rollout_staged = o.all_engines = true;
	begin(&o);
	p = party_of(PARTY);
	world_send(&w, 1);
	RUN_UNTIL(lead_of(LEAD)->state == LEAD_STAGED);
	forget_said();
	stop.is_decided = is_decided;
	say(PARTY, LEAD, stop);
	target.poll = last(PARTY, "e0-0", WBP_PEER_PROMISE)->m.poll;
	say(PARTY, LEAD, target);
	wb_poll_add(&w.worker[PARTY].page->word);
	parked.count = target.poll;
	worker_says(PARTY, WBP_APP_PARKED, &parked);
	ck_assert_int_eq(p->state, PARTY_HOOKS);
	worker_says(PARTY, WBP_APP_BEGUN, &begun);
	ck_assert_ptr_nonnull(last(PARTY, "e0-0", WBP_PEER_STOPPED));
	ck_assert_int_eq(last(PARTY, "e0-0", WBP_PEER_STOPPED)->m.code, is_decided ? 0 : -EPERM);
	end();
}
END_TEST

/* ---- memory that goes away ------------------------------------------------------------------ */

static int sleeps(uint32_t worker)
{
	struct wb_err err = {0};

	return wb_transfer_sleep(w.agent[w.worker[worker].agent].core, w.worker[worker].id, &err);
}

START_TEST(memory_that_a_transfer_needs_is_not_released)
{
	begin(&shape);
	commits(1);
	calls(TRAINER, 20);
	ck_assert_int_eq(sleeps(TRAINER), -EBUSY); /* called */
	say(TRAINER, COORDINATOR, about(WBP_PEER_SERVE, 2));
	ck_assert_int_eq(sleeps(TRAINER), -EBUSY); /* read */
	say(PARTY, LEAD, about(WBP_PEER_STOP, 2));
	ck_assert_int_eq(sleeps(PARTY), -EBUSY); /* stopped */
	say(PARTY, LEAD, about(WBP_PEER_END, 2));
	worker_of(PARTY)->past.is_torn = true;
	ck_assert_int_eq(sleeps(PARTY), -EBUSY); /* a mix */
	worker_of(PARTY)->past.is_torn = false;
	worker_of(PARTY)->expects_feed = true;
	ck_assert_int_eq(sleeps(PARTY), -EBUSY); /* to be fed */
	worker_of(PARTY)->expects_feed = false;
	ck_assert_int_eq(sleeps(PARTY), 0);
	ck_assert(wb_transfer_is_asleep(w.agent[PARTY].core, w.worker[PARTY].id));
	end();
}
END_TEST

/* Before the coordinator is asked, too: the other worker of this agent has not called yet. */
START_TEST(memory_of_a_call_is_not_released)
{
	struct world_opts o = shape;

	o.trainer_agents = 1;
	o.trainers_per_agent = 2;
	begin(&o);
	calls(0, 10);
	ck_assert_int_eq(object_of(0)->trainers.state, TRAINERS_IDLE);
	ck_assert_int_eq(sleeps(0), -EBUSY);
	ck_assert_int_eq(sleeps(1), 0);
	end();
}
END_TEST

START_TEST(a_worker_without_memory_holds_nothing)
{
	bool kept = _i;
	struct wb_transfer_core *c;
	int64_t version;
	const struct world_worker *k;

	begin(&shape);
	commits(1);
	k = &w.worker[PARTY];
	c = w.agent[PARTY].core;
	ck_assert_uint_eq(wb_transfer_held(c, k->id, &version), 1);
	ck_assert_int_eq(sleeps(PARTY), 0);
	ck_assert_uint_eq(wb_transfer_held(c, k->id, &version), 0);
	wb_transfer_wake(c, k->id, k->place, k->base, kept);
	ck_assert_uint_eq(wb_transfer_held(c, k->id, &version), kept ? 1 : 0);
	ck_assert_int_eq(version, kept ? 1 : -1);
	end();
}
END_TEST

/* ---- what was left -------------------------------------------------------------------------- */

/* By an agent that died while it filled it. */
START_TEST(an_area_that_was_being_filled_is_empty)
{
	struct world_opts o = shape;
	struct wb_area_head *h;

	o.rollout_staged = true;
	begin(&o);
	h = (struct wb_area_head *)(void *)w.worker[PARTY].area;
	world_send(&w, 1);
	RUN_UNTIL(wb_area_state(h) == WB_AREA_FILLING);
	world_kill_agent_only(&w, PARTY);
	world_start_agent(&w, PARTY);
	RUN_UNTIL(w.worker[PARTY].id);
	ck_assert_int_eq(wb_area_state(h), WB_AREA_EMPTY);
	end();
}
END_TEST

/* Their parameters have changed. */
START_TEST(flows_of_older_transfers_end_with_a_commit)
{
	begin(&shape);
	commits(1);
	commits(2);
	for (uint32_t a = 0; a < w.n_agent; a++)
		for_flow (object_of(a), x)
			ck_assert(x->is_stopped || wb_flow_transfer(x->flow) == 2);
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fences_ends");
	TCase *tc = tcase_create("fences_ends");

	wb_log_level_max = WB_LOG_ERROR;
	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, the_coordinator_does_not_wait_for_ever_for_a_lead, 0, 2);
	tcase_add_loop_test(tc, a_lead_ends_at_its_deadline, 0, (int)WB_ARRAY_SIZE(expired));
	tcase_add_test(tc, a_party_that_does_not_receive_says_so_at_its_deadline);
	tcase_add_loop_test(
		tc, trainers_that_call_are_not_kept_waiting_for_ever_for_those_that_do_not, 0, 2);
	tcase_add_loop_test(
		tc, a_trainer_agent_that_is_gone_cancels_until_the_trainers_are_let_go, 0, 2);
	tcase_add_loop_test(tc, an_engine_that_has_received_ends_without_the_coordinator, 0, 4);
	tcase_add_loop_test(tc, what_is_committed_stays_so_whatever_comes_before_its_end, 0, 2);
	tcase_add_test(tc, what_is_given_up_before_a_transfer_is_about_the_first_at_most);
	tcase_add_loop_test(tc, a_gap_ends_what_it_can_have_been_about, 0, 4);
	tcase_add_test(tc, the_end_of_a_feed_is_not_that_of_the_next);
	tcase_add_test(tc, a_gap_ends_the_send_that_it_can_have_been_about);
	tcase_add_test(tc, parameters_that_are_released_are_not_read);
	tcase_add_loop_test(tc, a_hook_that_raises_stops_what_is_not_decided, 0, 2);
	tcase_add_test(tc, memory_that_a_transfer_needs_is_not_released);
	tcase_add_test(tc, memory_of_a_call_is_not_released);
	tcase_add_loop_test(tc, a_worker_without_memory_holds_nothing, 0, 2);
	tcase_add_test(tc, an_area_that_was_being_filled_is_empty);
	tcase_add_test(tc, flows_of_older_transfers_end_with_a_commit);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
