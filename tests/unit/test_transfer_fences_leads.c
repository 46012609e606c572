/* SPDX-License-Identifier: Apache-2.0 */
/* What the lead of an engine must not believe.  Each check is reached by the very message that it
 * is for. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_two_engines.h"

enum { JUDGES = 3 };

static const struct world_opts shape = {.seed = 21, TWO_ENGINES};

static struct world_opts joint(void)
{
	struct world_opts o = shape;

	o.rollout_staged = o.all_engines = true;
	return o;
}

static void prepare(uint32_t to, uint32_t from, uint32_t engine, uint64_t transfer, bool feed)
{
	say(to, from,
		(struct wb_msg_peer){.kind = WBP_PEER_PREPARE,
			.transfer = transfer,
			.version = (int64_t)transfer * 10,
			.engine = engine,
			.feed = feed,
			.feeder = 1});
}

static struct wb_msg_peer of_lead(uint32_t kind, uint64_t transfer)
{
	return (struct wb_msg_peer){.kind = kind, .transfer = transfer};
}

static struct wb_msg_peer progress(uint64_t transfer, enum progress what, uint32_t losses)
{
	struct wb_msg_peer m = of_lead(WBP_PEER_PROGRESS, transfer);

	m.progress = what;
	m.losses = losses;
	m.code = what == PROGRESS_FAILED ? -EIO : 0;
	return m;
}

START_TEST(a_lead_hears_of_its_own_transfer_only)
{
	struct lead *l;
	struct wb_msg_peer stopped = of_lead(WBP_PEER_STOPPED, 4);

	stopped.code = -EIO;
	begin(&shape);
	l = lead_of(LEAD);
	prepare(LEAD, COORDINATOR, 0, 5, false);
	ck_assert_int_eq(l->state, LEAD_PROMISES);
	say(LEAD, PARTY, of_lead(WBP_PEER_PROMISE, 4));
	ck_assert(!l->agent[PARTY].promised);
	say(LEAD, PARTY, stopped);
	say(LEAD, PARTY, progress(4, PROGRESS_FAILED, 0));
	say(LEAD, COORDINATOR, of_lead(WBP_PEER_CANCEL, 4));
	ck_assert_int_eq(l->state, LEAD_PROMISES);
	say(LEAD, PARTY, progress(5, PROGRESS_FAILED, 0));
	ck_assert_int_eq(l->state, LEAD_DONE);
	ck_assert_int_eq(l->result, WB_ENGINE_ABORTED);
	end();
}
END_TEST

/* Engine e0 is whole in its areas and waits for the joint decision. */
static struct lead *run_until_staged(void)
{
	struct world_opts o = joint();

	begin(&o);
	world_send(&w, 1);
	RUN_UNTIL(lead_of(LEAD)->state == LEAD_STAGED);
	forget_said();
	return lead_of(LEAD);
}

/* Whoever feeds a transfer holds it: it was committed. */
START_TEST(a_feed_of_what_is_in_doubt_proves_that_it_was_committed)
{
	struct lead *l = run_until_staged();

	prepare(LEAD, LEAD1, 0, l->transfer, true);
	ck_assert(l->is_decided);
	ck_assert_int_eq(l->state, LEAD_PROMISES);
	ck_assert_uint_eq(last(LEAD, "e0-1", WBP_PEER_STOP)->m.is_decided, true);
	end();
}
END_TEST

/* Not at the deadline only: the other engines wait as well. */
START_TEST(judges_are_asked_when_the_coordinator_dies)
{
	struct lead *l = run_until_staged();

	is_gone(LEAD, COORDINATOR);
	ck_assert_int_eq(l->ballot.state, BALLOT_ASKING);
	ck_assert_uint_eq(n_times(LEAD, NULL, WBP_PEER_BALLOT), JUDGES);
	end();
}
END_TEST

START_TEST(a_number_that_an_engine_has_seen_is_refused)
{
	struct world_opts o = shape;

	o.rollout_staged = _i;
	begin(&o);
	commits(1);
	forget_said();
	prepare(LEAD, COORDINATOR, 0, 1, false);
	ck_assert_ptr_nonnull(last(LEAD, "trainer-0", WBP_PEER_REFUSED));
	ck_assert_int_eq(lead_of(LEAD)->state, LEAD_DONE);
	ck_assert_uint_eq(n_times(LEAD, NULL, WBP_PEER_STOP), 0);
	ck_assert_uint_eq(n_times(LEAD, NULL, WBP_PEER_STAGE), 0);
	prepare(LEAD, COORDINATOR, 0, 2, false);
	ck_assert_int_eq(lead_of(LEAD)->state, _i ? LEAD_STAGING : LEAD_PROMISES);
	end();
}
END_TEST

/* An engine of this pod has not seen the number, another one here has seen a greater. */
START_TEST(a_number_below_one_that_the_agent_has_seen_is_refused)
{
	struct world_opts o = shape;
	const struct said *no;

	o.one_pod = true;
	o.agents_per_engine = 1;
	begin(&o);
	prepare(LEAD, COORDINATOR, 0, 9, false);
	prepare(LEAD, COORDINATOR, 1, 5, false);
	no = last(LEAD, "trainer-0", WBP_PEER_REFUSED);
	ck_assert_ptr_nonnull(no);
	ck_assert_uint_eq(no->m.engine, 1);
	ck_assert_uint_eq(no->m.highest, 9);
	ck_assert_int_eq(epoch_of(LEAD)->lead[1].state, LEAD_NONE);
	end();
}
END_TEST

START_TEST(a_feed_brings_no_engine_back)
{
	struct world_opts o = shape;

	o.rollout_staged = _i;
	begin(&o);
	commits(1);
	commits(2);
	for (uint64_t t = 1; t <= 2; t++) {
		forget_said();
		prepare(LEAD, LEAD1, 0, t, true);
		ck_assert_ptr_nonnull(last(LEAD, "e1-0", WBP_PEER_REFUSED));
		ck_assert_int_eq(lead_of(LEAD)->state, LEAD_DONE);
	}
	end();
}
END_TEST

/* Transfer 1, up to where all have stopped; @hook_ns: of the other agent's worker, which stops
 * last. */
static struct lead *run_until(enum lead_state state, bool is_staged, uint64_t hook_ns)
{
	struct world_opts o = shape;

	o.rollout_staged = is_staged;
	begin(&o);
	w.worker[PARTY].hook_ns = hook_ns;
	world_send(&w, 1);
	RUN_UNTIL(lead_of(LEAD)->state == state && lead_of(LEAD)->agent[LEAD].stopped);
	return lead_of(LEAD);
}

/* If it died now, who does not know that might let its workers go on without those that change. */
START_TEST(nobody_changes_before_all_know_that_all_have_stopped)
{
	uint32_t order = _i ? WBP_PEER_INSTALL : WBP_PEER_OPEN;
	struct lead *l = run_until(LEAD_TELLING, _i, 0);

	ck_assert_ptr_nonnull(last(LEAD, "e0-1", WBP_PEER_ALL_STOPPED));
	ck_assert(l->agent[LEAD].heard && !l->agent[PARTY].heard);
	say(LEAD, PARTY, of_lead(WBP_PEER_HEARD, 9));
	ck_assert_int_eq(l->state, LEAD_TELLING);
	ck_assert_uint_eq(n_times(LEAD, "e0-1", order), 0);
	for (int k = 0; k < 2; k++) { /* once is enough */
		say(LEAD, PARTY, of_lead(WBP_PEER_HEARD, 1));
		ck_assert_int_eq(l->state, _i ? LEAD_INSTALLING : LEAD_MOVING);
		ck_assert_uint_eq(n_times(LEAD, "e0-1", order), 1);
	}
	end();
}
END_TEST

/* One of an older version does not ask, and would not answer. */
START_TEST(who_does_not_ask_whether_all_have_stopped_is_not_waited_for)
{
	struct lead *l = run_until(LEAD_STOPS, _i, 60 * WB_NS_PER_S);

	ck_assert(!l->agent[PARTY].stopped);
	say(LEAD, PARTY, of_lead(WBP_PEER_STOPPED, 1));
	ck_assert_int_eq(l->state, _i ? LEAD_INSTALLING : LEAD_MOVING);
	ck_assert_uint_eq(n_times(LEAD, "e0-1", WBP_PEER_ALL_STOPPED), 0);
	end();
}
END_TEST

/* Hooks that took nearly all of a step's time leave the answers theirs. */
START_TEST(telling_that_all_have_stopped_has_time_of_its_own)
{
	struct lead *l = run_until(LEAD_TELLING, _i, 4900 * WB_NS_PER_MS);

	ck_assert_uint_gt(l->deadline_ns, world_now(&w) + 4 * WB_NS_PER_S);
	end();
}
END_TEST

START_TEST(who_has_not_heard_that_all_have_stopped_is_named)
{
	struct lead *l = run_until(LEAD_TELLING, false, 0);

	l->deadline_ns = world_now(&w);
	(void)wb_transfer_tick(w.agent[LEAD].core);
	ck_assert_int_eq(l->state, LEAD_DONE);
	ck_assert_msg(strstr(l->sentence, "that all have stopped was not answered by e0-1 within"),
		"%s", l->sentence);
	end();
}
END_TEST

static bool has_said_received(void)
{
	const struct said *s = last(LEAD, NULL, WBP_PEER_ENGINE);

	return s && s->m.how == WB_ENGINE_RECEIVED;
}

/* What was received before the loss says nothing of the lost engine's share. */
START_TEST(received_counts_when_the_loss_was_taken_in)
{
	struct wb_msg_peer lost = of_lead(WBP_PEER_LOST, 1);
	struct lead *l;

	begin(&shape);
	l = lead_of(LEAD);
	world_send(&w, 1);
	RUN_UNTIL(l->state == LEAD_MOVING);
	lost.lost = 1;
	lost.losses = 1;
	say(LEAD, COORDINATOR, lost);
	for (uint32_t a = LEAD; a <= PARTY; a++)
		say(LEAD, a, progress(1, PROGRESS_RECEIVED, 0));
	ck_assert(!has_said_received());
	say(LEAD, PARTY, progress(1, PROGRESS_RECEIVED, 1));
	ck_assert(!has_said_received());
	say(LEAD, LEAD, progress(1, PROGRESS_RECEIVED, 1));
	ck_assert(has_said_received());
	end();
}
END_TEST

/* One that cannot follow the decision must not serve; one that does not know it cannot say. */
START_TEST(an_engine_that_loses_an_agent_after_the_decision_is_torn)
{
	bool is_decided = _i;
	struct lead *l = run_until_staged();

	if (is_decided)
		say(LEAD, COORDINATOR, of_lead(WBP_PEER_DECIDED, 1));
	is_gone(LEAD, PARTY);
	ck_assert_int_eq(l->state, LEAD_DONE);
	ck_assert_int_eq(l->result, is_decided ? WB_ENGINE_TORN : WB_ENGINE_UNKNOWN);
	end();
}
END_TEST

START_TEST(an_engine_that_loses_an_agent_while_bytes_move_is_torn)
{
	struct lead *l;

	begin(&shape);
	l = lead_of(LEAD);
	world_send(&w, 1);
	RUN_UNTIL(l->state == (_i ? LEAD_MOVING : LEAD_STOPS));
	is_gone(LEAD, PARTY);
	ck_assert_int_eq(l->result, _i ? WB_ENGINE_TORN : WB_ENGINE_ABORTED);
	end();
}
END_TEST

START_TEST(what_is_decided_against_is_not_installed)
{
	struct lead *l = run_until_staged();
	struct wb_msg_peer m = {.transfer = 1};

	is_gone(LEAD, COORDINATOR);
	for (int k = 0; k < 2; k++)
		for (uint32_t j = 1; j < JUDGES; j++) {
			ck_assert_int_eq(l->state, LEAD_STAGED);
			m.kind = k ? WBP_PEER_ACCEPTED : WBP_PEER_BALLOTED;
			m.ballot = l->ballot.number;
			say(LEAD, j, m);
		}
	ck_assert_int_eq(l->state, LEAD_DONE);
	ck_assert_int_eq(l->result, WB_ENGINE_ABORTED);
	ck_assert_uint_eq(n_times(LEAD, NULL, WBP_PEER_STOP), 0);
	end();
}
END_TEST

/* One that may be let go, and be needed at the common poll, hears first how its update ended. */
START_TEST(the_target_is_said_when_nobody_is_in_doubt)
{
	struct wb_msg_peer m = {.kind = WBP_PEER_DOUBT, .transfer = 5, .poll = 9};
	struct lead *l;

	begin(&shape);
	l = lead_of(LEAD);
	say(LEAD, PARTY, m);
	prepare(LEAD, COORDINATOR, 0, 6, false);
	say(LEAD, PARTY, of_lead(WBP_PEER_PROMISE, 6));
	ck_assert(l->agent[LEAD].promised && l->agent[PARTY].promised);
	ck_assert_int_eq(l->state, LEAD_PROMISES);
	m.kind = WBP_PEER_RECALLED;
	say(LEAD, PARTY, m);
	ck_assert_ptr_nonnull(last(LEAD, "e0-1", WBP_PEER_OUTCOME));
	ck_assert_int_eq(l->state, LEAD_STOPS);
	end();
}
END_TEST

START_TEST(what_is_decided_is_not_cancelled)
{
	struct lead *l = run_until_staged();

	say(LEAD, COORDINATOR, of_lead(WBP_PEER_DECIDED, 1));
	say(LEAD, COORDINATOR, of_lead(WBP_PEER_CANCEL, 1));
	ck_assert_int_eq(l->state, LEAD_PROMISES);
	end();
}
END_TEST

START_TEST(nobody_but_the_coordinator_cancels_or_decides)
{
	struct lead *l = run_until_staged();
	struct wb_msg_peer cancel = of_lead(WBP_PEER_CANCEL, 1);
	struct wb_msg_peer decided = of_lead(WBP_PEER_DECIDED, 1);

	for (int feed = 0; feed < 2; feed++) { /* a lead leads feeds: this run is none of those */
		cancel.feed = decided.feed = feed;
		say(LEAD, LEAD1, cancel);
		say(LEAD, LEAD1, decided);
		ck_assert_int_eq(l->state, LEAD_STAGED);
	}
	say(LEAD, COORDINATOR, of_lead(WBP_PEER_CANCEL, 1));
	ck_assert_int_eq(l->state, LEAD_DONE);
	ck_assert_int_eq(l->result, WB_ENGINE_ABORTED);
	end();
}
END_TEST

/* Its workers are in one transfer at a time. */
START_TEST(a_transfer_of_a_newer_plan_ends_that_of_the_plan_before)
{
	struct lead *before;
	struct world_epoch *e;

	begin(&shape);
	before = lead_of(LEAD);
	world_send(&w, 1);
	RUN_UNTIL(before->state == LEAD_STOPS);
	e = world_epoch_make(&w);
	world_must(world_epoch_install(&w, e, LEAD, NULL), NULL);
	prepare(LEAD, COORDINATOR, 0, 2, false);
	ck_assert_int_eq(before->state, LEAD_DONE);
	ck_assert_int_eq(before->result, WB_ENGINE_ABORTED);
	ck_assert_int_eq(lead_of(LEAD)->state, LEAD_PROMISES);
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fences_leads");
	TCase *tc = tcase_create("fences");

	wb_log_level_max = WB_LOG_ERROR;
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, a_lead_hears_of_its_own_transfer_only);
	tcase_add_test(tc, a_feed_of_what_is_in_doubt_proves_that_it_was_committed);
	tcase_add_test(tc, judges_are_asked_when_the_coordinator_dies);
	tcase_add_loop_test(tc, a_number_that_an_engine_has_seen_is_refused, 0, 2);
	tcase_add_test(tc, a_number_below_one_that_the_agent_has_seen_is_refused);
	tcase_add_loop_test(tc, a_feed_brings_no_engine_back, 0, 2);
	tcase_add_loop_test(tc, nobody_changes_before_all_know_that_all_have_stopped, 0, 2);
	tcase_add_loop_test(tc, who_does_not_ask_whether_all_have_stopped_is_not_waited_for, 0, 2);
	tcase_add_loop_test(tc, telling_that_all_have_stopped_has_time_of_its_own, 0, 2);
	tcase_add_test(tc, who_has_not_heard_that_all_have_stopped_is_named);
	tcase_add_test(tc, received_counts_when_the_loss_was_taken_in);
	tcase_add_loop_test(tc, an_engine_that_loses_an_agent_after_the_decision_is_torn, 0, 2);
	tcase_add_loop_test(tc, an_engine_that_loses_an_agent_while_bytes_move_is_torn, 0, 2);
	tcase_add_test(tc, what_is_decided_against_is_not_installed);
	tcase_add_test(tc, the_target_is_said_when_nobody_is_in_doubt);
	tcase_add_test(tc, what_is_decided_is_not_cancelled);
	tcase_add_test(tc, nobody_but_the_coordinator_cancels_or_decides);
	tcase_add_test(tc, a_transfer_of_a_newer_plan_ends_that_of_the_plan_before);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
