/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What agents must not believe of updates whose end workers have missed, nor do before they know
 * it. Each check is reached by the very message or moment that it is for.
 */
#include "tests/common/fx_check.h"
#include "tests/common/fx_two_engines.h"

static const struct world_opts shape = {.seed = 31, TWO_ENGINES, .peers_reconnect = true};

/* @how, @poll: or what that kind has in their place. */
static struct wb_msg_peer says(uint32_t kind, uint64_t transfer, uint32_t how, uint32_t poll)
{
	struct wb_msg_peer m = about(kind, transfer);

	m.how = how;
	m.poll = poll;
	return m;
}

enum { TOUCHED = 1, TORN = 2, DONE = 4 }; /* bits of DOUBT and RECALLED */

/* By what the worker in doubt says, or another one. */
START_TEST(an_update_that_touched_a_parameter_is_not_called_aborted)
{
	uint32_t here = _i & 1 ? TOUCHED : 0, elsewhere = _i & 2 ? TORN : 0;

	begin(&shape);
	say(LEAD, PARTY, says(WBP_PEER_DOUBT, 5, here, 9));
	ck_assert_ptr_null(last(LEAD, "e0-1", WBP_PEER_OUTCOME));
	ck_assert_ptr_nonnull(last(LEAD, "e0-1", WBP_PEER_RECALL));
	say(LEAD, PARTY, says(WBP_PEER_RECALLED, 5, elsewhere, 9));
	ck_assert_ptr_nonnull(last(LEAD, "e0-1", WBP_PEER_OUTCOME));
	ck_assert_uint_eq(last(LEAD, "e0-1", WBP_PEER_OUTCOME)->m.how,
		here || elsewhere ? WB_ENGINE_TORN : WB_ENGINE_ABORTED);
	end();
}
END_TEST

/* A feed has the number of the transfer that it repeats: what tells them apart is the poll. */
START_TEST(a_worker_answers_for_the_run_that_it_was_in)
{
	struct worker *k;

	begin(&shape);
	k = worker_of(PARTY);
	k->past.done = 5;
	for (uint32_t at = 4; at <= 9; at += 5) {
		k->past.done_at = at;
		say(PARTY, LEAD, says(WBP_PEER_RECALL, 5, 0, 9));
		ck_assert_uint_eq(
			last(PARTY, "e0-0", WBP_PEER_RECALLED)->m.says & DONE, at == 9 ? DONE : 0);
	}
	end();
}
END_TEST

START_TEST(an_outcome_is_that_of_its_own_run)
{
	bool is_same = _i;
	struct worker *k;

	begin(&shape);
	k = worker_of(PARTY);
	k->past.begun = 5;
	k->past.begun_at = is_same ? 9 : 4;
	say(PARTY, LEAD, says(WBP_PEER_OUTCOME, 5, WB_ENGINE_COMMITTED, 9));
	ck_assert_uint_eq(k->past.begun, is_same ? 0 : 5); /* its own answer comes */
	ck_assert(!k->past.is_torn);
	ck_assert_uint_eq(k->held_transfer, is_same ? 5 : 0);
	end();
}
END_TEST

/* A worker stands in a run that was torn meanwhile, which its agent did not hear.  What it hears is
 * that a feed of the same number came to nothing, in which it took no part: that does not let it
 * run on with what it holds.  The lead knows. */
START_TEST(the_end_of_a_feed_that_came_to_nothing_is_not_that_of_the_run_before)
{
	static const uint32_t ends[] = {
		WB_ENGINE_ABORTED, WB_ENGINE_UNKNOWN, WB_ENGINE_TORN, WB_ENGINE_COMMITTED};
	bool is_sure = _i >= 2;
	struct wb_msg_peer m = says(WBP_PEER_END, 5, ends[_i], 0);
	struct worker *k;

	m.feed = true;
	begin(&shape);
	k = worker_of(PARTY);
	k->past.begun = 5;
	k->past.begun_at = 9;
	k->past.is_touched = true;
	say(PARTY, LEAD, m);
	ck_assert_uint_eq(k->past.begun, is_sure ? 0 : 5);
	ck_assert_int_eq(k->past.is_torn, ends[_i] == WB_ENGINE_TORN);
	ck_assert_int_eq(last(PARTY, "e0-0", WBP_PEER_DOUBT) != NULL, !is_sure);
	end();
}
END_TEST

/* Others of its engine may have been written to: nobody has said that they were not. */
START_TEST(who_is_in_doubt_at_the_target_is_torn)
{
	struct worker *k;

	begin(&shape);
	k = worker_of(PARTY);
	k->past.begun = 5;
	say(PARTY, LEAD, about(WBP_PEER_STOP, 6));
	say(PARTY, LEAD, says(WBP_PEER_TARGET, 6, 0, 99));
	ck_assert_uint_eq(k->past.begun, 0);
	ck_assert(k->past.is_torn);
	end();
}
END_TEST

/* A stop takes a torn worker away from where it stands, and from there alone it can go on with the
 * others, who went on when that update was committed and wait for it.  So the answer comes first:
 * committed (0), torn (1), or none (2). */
START_TEST(who_was_torn_by_a_guess_hears_how_it_was_before_a_stop_is_set)
{
	static const uint32_t ends[] = {WB_ENGINE_COMMITTED, WB_ENGINE_TORN};
	uint64_t since, deadline;
	struct worker *k;

	begin(&shape);
	k = worker_of(PARTY);
	k->past.is_torn = true;
	k->guess = 5;
	k->guess_at = 9;
	if (_i == 2)
		world_stall_agent(&w, LEAD, 10 * WB_NS_PER_S);
	wb__transfer_doubt(epoch_of(PARTY));
	ck_assert_ptr_nonnull(last(PARTY, "e0-0", WBP_PEER_DOUBT));
	since = world_now(&w);
	deadline = epoch_of(PARTY)->r->engine_step_deadline_ns;
	say(PARTY, LEAD, about(WBP_PEER_STOP, 6));
	ck_assert_uint_eq(n_times(PARTY, NULL, WBP_PEER_PROMISE), 0);
	ck_assert_uint_eq(wb_poll_stop(wb_poll_load(&k->w.page->word)), 0);
	say(PARTY, LEAD, says(WBP_PEER_OUTCOME, 5, WB_ENGINE_COMMITTED, 8)); /* of another run */
	ck_assert_uint_eq(n_times(PARTY, NULL, WBP_PEER_PROMISE), 0);
	if (_i < 2)
		say(PARTY, LEAD, says(WBP_PEER_OUTCOME, 5, ends[_i], 9));
	world_after(&w.agent[PARTY]);
	if (_i == 2)
		RUN_UNTIL(n_times(PARTY, NULL, WBP_PEER_PROMISE));
	ck_assert_uint_eq(n_times(PARTY, NULL, WBP_PEER_PROMISE), 1);
	ck_assert_uint_ne(wb_poll_stop(wb_poll_load(&k->w.page->word)), 0);
	ck_assert_int_eq(k->past.is_torn, _i != 0);
	ck_assert_uint_eq(k->held_transfer, _i ? 0 : 5);
	ck_assert_uint_le(world_now(&w) - since, deadline / 2);
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fences_doubt");
	TCase *tc = tcase_create("fences_doubt");

	wb_log_level_max = WB_LOG_ERROR;
	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, an_update_that_touched_a_parameter_is_not_called_aborted, 0, 4);
	tcase_add_test(tc, a_worker_answers_for_the_run_that_it_was_in);
	tcase_add_loop_test(tc, an_outcome_is_that_of_its_own_run, 0, 2);
	tcase_add_loop_test(
		tc, the_end_of_a_feed_that_came_to_nothing_is_not_that_of_the_run_before, 0, 4);
	tcase_add_test(tc, who_is_in_doubt_at_the_target_is_torn);
	tcase_add_loop_test(
		tc, who_was_torn_by_a_guess_hears_how_it_was_before_a_stop_is_set, 0, 3);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
