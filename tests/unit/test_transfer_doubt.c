/* SPDX-License-Identifier: Apache-2.0 */
/* Who lost its lead or its agent in the middle of a run and does not know how that ended: cases
 * that the simulation has found. */
#include "tests/common/fx_check.h"
#include "tests/common/world_check.h"

#include "base/log.h"
#include "proto/peers.h"

#include <check.h>
#include <string.h>

#define SOON (20 * WB_NS_PER_S)

static struct world w;

/* A world of this shape, but that an engine is of two agents, and that its workers wait for each
 * other in every step; version 1 is in all of them. */
static void begin_in_step(struct world_opts *o)
{
	o->agents_per_engine = 2;
	o->drift = 1;
	world_check_begin(&w, o);
	world_check_commits(&w, 1);
}

/* By its own clock an agent of an engine has waited too long for the lead, who is at it still. What
 * the lead makes of its workers, which stand still for it, is the lead's to say. */
START_TEST(a_party_that_gives_up_its_lead_asks_what_became_of_it)
{
	struct world_opts o = world_small;

	begin_in_step(&o);
	w.worker[1].hook_ns = 8 * WB_NS_PER_S;
	world_check_call(&w, 0, 2);
	world_check_phase(&w, 2, WORLD_BEGUN);
	world_run_for(&w, WB_NS_PER_MS);
	ck_assert_int_eq(w.worker[1].phase, WORLD_BEFORE);
	world_set_clock(&w, 2, 3600 * WB_NS_PER_S, 1000000);
	world_run_for(&w, SOON);
	ck_assert_int_eq(w.worker[1].version, w.worker[2].version);
	w.worker[1].hook_ns = 0;
	world_check_commits(&w, 3);
	world_finish(&w);
}
END_TEST

/* An engine of two agents whose workers wait for each other in every step has version 1, and 2 is
 * sent.  What the other engine reads from its second agent stays under way for @ns. */
static void begin_with_a_slow_reader(uint64_t ns)
{
	struct world_opts o = world_small;
	struct wb_sim_fault slow = {
		.kind = WB_SIM_PARTITION, .items = WB_SIM_DATA, .from = "e0-1", .to = "e1-*"};

	o.xport_caps = WB_XPORT_CAP_LOCAL;
	o.transfer_deadline_ns = WB_NS_PER_S;
	begin_in_step(&o);
	slow.until_ns = world_now(&w) + ns;
	wb_sim_fault_add(w.net, &slow);
	world_check_send(&w, 2, SOON);
}

/*
 * One agent of an engine is writing parameters, the other still waits for those who read what is
 * to change, when the time is over.  The engine's workers wait for each other in every step, so all
 * of them have to be torn, whatever was written to whom: one that ran on would stand in its step,
 * and no common poll would be reached any more.
 */
START_TEST(an_engine_of_which_one_agent_had_not_begun_to_write_is_torn_as_one)
{
	begin_with_a_slow_reader(20 * WB_NS_PER_S);
	ck_assert_str_eq(w.last_result, "PartlyTorn");
	world_check_send(&w, 3, SOON);
	world_run_for(&w, WB_NS_PER_S);
	ck_assert_int_eq(w.worker[1].phase, w.worker[2].phase);
	wb_sim_faults_clear(w.net);
	world_run_for(&w, 20 * WB_NS_PER_S);
	world_check_commits(&w, 4);
	world_finish(&w);
}
END_TEST

/* Its bytes had begun to come when it was stopped.  Its agent ended that run, began another, and
 * died before the worker had heard of either. */
START_TEST(a_worker_that_was_stopped_knows_that_it_was_written_to)
{
	struct world_opts o = world_small;
	struct world_worker *k;
	uint64_t end;

	o.engines = 1;
	o.scale = 512;
	o.step_deadline_ns = WB_NS_PER_S;
	o.transfer_deadline_ns = 2 * WB_NS_PER_S;
	world_check_begin(&w, &o);
	k = &w.worker[1];
	world_check_commits(&w, 1);
	world_send(&w, 2);
	world_check_phase(&w, 1, WORLD_BEGUN);
	while (k->page->touched != 2)
		ck_assert(wb_sim_step(w.net));
	world_run_for(&w, WB_NS_PER_MS / 10);
	k->stall_until_ns = world_now(&w) + 30 * WB_NS_PER_S;
	world_kill_agent(&w, 0);
	world_run_for(&w, 8 * WB_NS_PER_S);
	world_restart(&w, 0);
	world_plan(&w);
	world_send(&w, 3);
	world_run_for(&w, WB_NS_PER_S / 2);
	ck_assert_int_eq(k->phase, WORLD_BEGUN);
	ck_assert(!world_holds(&w, k, 1));
	world_kill_agent_only(&w, 1);
	world_start_agent(&w, 1);
	end = k->stall_until_ns + WB_NS_PER_S;
	while (world_now(&w) < end)
		ck_assert(wb_sim_step(w.net));
	world_plan(&w);
	world_run_for(&w, 5 * WB_NS_PER_S);
	ck_assert_int_eq(k->phase, WORLD_TORN);
	world_check_commits(&w, 4);
	world_finish(&w);
}
END_TEST

/* Staged, and each worker waits for the others in every step.  One has stopped, and its agent dies
 * before it has read INSTALL, which the other has followed: it cannot go on alone with what it
 * holds.  _i 0: its own agent; 1: that of the lead. */
START_TEST(who_was_stopped_does_not_leave_those_behind_who_install)
{
	struct world_opts o = world_small;
	uint32_t late = _i ? 1 : 2, agent = _i ? 1 : 2;

	o.engines = 1;
	o.rollout_staged = true;
	begin_in_step(&o);
	world_send(&w, 2);
	world_check_phase(&w, late, WORLD_BEGUN);
	w.worker[late].stall_until_ns = world_now(&w) + WB_NS_PER_S;
	world_check_phase(&w, 3 - late, WORLD_INSTALLED);
	ck_assert_int_eq(w.worker[late].phase, WORLD_BEGUN);
	world_kill_agent_only(&w, agent);
	world_run_for(&w, 2 * WB_NS_PER_S);
	world_start_agent(&w, agent);
	world_run_for(&w, WB_NS_PER_S);
	world_plan(&w);
	world_run_for(&w, 5 * WB_NS_PER_S);
	ck_assert_int_eq(w.worker[1].phase, w.worker[2].phase);
	ck_assert_int_eq(w.worker[1].version, w.worker[2].version);
	world_check_commits(&w, 3);
	world_finish(&w);
}
END_TEST

/* Workers wait for each other in every step.  One has been told to change and waits for who still
 * reads from it, the other changes, when their lead dies, and the plan that brings the answer comes
 * late.  The first does not go on by itself, to a step in which it would wait for one that is torn,
 * where no stop reaches it. */
START_TEST(who_was_told_to_change_does_not_go_on_before_the_answer)
{
	begin_with_a_slow_reader(60 * WB_NS_PER_S);
	world_send(&w, 3);
	while (w.worker[1].page->touched != 3 || w.worker[2].phase != WORLD_BEGUN)
		ck_assert(wb_sim_step(w.net));
	world_run_for(&w, WB_NS_PER_MS);
	ck_assert_int_eq(w.worker[2].phase, WORLD_BEGUN);
	world_kill_agent_only(&w, 1);
	world_run_for(&w, 2 * WB_NS_PER_S);
	wb_sim_faults_clear(w.net);
	world_start_agent(&w, 1);
	world_run_for(&w, 40 * WB_NS_PER_S);
	ck_assert_int_ne(w.worker[2].phase, WORLD_RUN);
	world_plan(&w);
	world_run_for(&w, 5 * WB_NS_PER_S);
	ck_assert_int_eq(w.worker[1].phase, w.worker[2].phase);
	world_check_commits(&w, 4);
	world_finish(&w);
}
END_TEST

static bool is_lost; /* the order to change, to the engine's other agent */

static void lose_order(void *ctx, const struct world_agent *from, const char *to,
	const struct wb_msg_peer *m, const void *data, size_t bytes)
{
	struct wb_sim_fault f = {.kind = WB_SIM_DROP,
		.items = WB_SIM_MSG,
		.from = from->name,
		.to = to,
		.until_ns = world_now(&w) + WB_NS_PER_S};

	(void)ctx;
	(void)data;
	(void)bytes;
	if (is_lost || strcmp(to, "e0-1") != 0 ||
		(m->kind != WBP_PEER_OPEN && m->kind != WBP_PEER_INSTALL))
		return;
	is_lost = true;
	ck_assert_int_eq(wb_sim_fault_add(w.net, &f), 0);
}

/* Workers wait for each other in each step.  Their lead dies when its own worker has begun to
 * change and the order to do so was lost on its way to the other, and the plan that brings the
 * answer comes late.  The other does not go on by itself, to a step in which it would wait for one
 * that is torn, or has installed, where no stop reaches it.  _i: with staging. */
START_TEST(who_has_stopped_with_all_others_does_not_go_on_before_the_answer)
{
	struct world_opts o = world_small;

	o.engines = 1;
	o.rollout_staged = _i;
	o.deaf = true;
	begin_in_step(&o);
	is_lost = false;
	w.watch.message = lose_order;
	world_send(&w, 2);
	if (_i)
		world_check_phase(&w, 1, WORLD_INSTALLED);
	else
		while (w.worker[1].page->touched != 2)
			ck_assert(wb_sim_step(w.net));
	ck_assert(is_lost);
	ck_assert_int_eq(w.worker[2].phase, WORLD_BEGUN);
	world_kill_agent_only(&w, 1);
	world_run_for(&w, 2 * WB_NS_PER_S);
	world_start_agent(&w, 1);
	world_run_for(&w, 40 * WB_NS_PER_S);
	ck_assert_int_eq(w.worker[2].phase, WORLD_BEGUN);
	world_plan(&w);
	world_run_for(&w, 5 * WB_NS_PER_S);
	ck_assert_int_eq(w.worker[1].phase, w.worker[2].phase);
	ck_assert_int_eq(w.worker[1].version, w.worker[2].version);
	world_check_commits(&w, 3);
	w.watch.message = NULL;
	world_finish(&w);
}
END_TEST

/* Its lead dies before it has said that all have stopped.  The lead's worker was not told to begin,
 * and is let go by that, to a step in which it waits for the other and cannot come back: so this
 * one goes on, too, and no longer than an agent needs to come back. */
START_TEST(who_does_not_know_that_all_have_stopped_goes_on_in_time)
{
	struct world_opts o = world_small;

	o.engines = 1;
	o.deaf = true;
	begin_in_step(&o);
	w.worker[1].hook_ns = 5 * WB_NS_PER_S;
	world_send(&w, 2);
	world_check_phase(&w, 2, WORLD_BEGUN);
	world_run_for(&w, WB_NS_PER_MS);
	ck_assert_int_eq(w.worker[1].phase, WORLD_BEFORE);
	w.worker[1].hook_ns = 0;
	world_kill_agent_only(&w, 1);
	world_check_phase(&w, 1, WORLD_RUN);
	world_start_agent(&w, 1);
	world_run_for(&w, 40 * WB_NS_PER_S);
	ck_assert_int_eq(w.worker[2].phase, WORLD_RUN);
	world_plan(&w);
	world_run_for(&w, WB_NS_PER_S);
	world_check_hold(&w, 1);
	world_check_commits(&w, 3);
	world_finish(&w);
}
END_TEST

/* An engine was torn, and all its workers are new processes since.  In the next transfer one of
 * them stands in its update when its lead dies, with nothing written, and the other has not begun:
 * it is not torn by what its forerunner was, and goes on with the other, who waits for it in each
 * step. _i: with staging. */
START_TEST(a_process_is_not_torn_by_the_one_before_it)
{
	struct world_opts o = world_small;

	o.rollout_staged = _i;
	o.scale = 256;
	begin_in_step(&o);
	world_send(&w, 2);
	world_check_phase(&w, 4, _i ? WORLD_INSTALL : WORLD_BEGUN);
	while (w.worker[4].page->touched != 2)
		ck_assert(wb_sim_step(w.net));
	for (uint32_t i = 3; i <= 4; i++)
		world_kill_worker(&w, i);
	world_run_for(&w, WB_NS_PER_S);
	for (uint32_t i = 3; i <= 4; i++)
		world_start_worker(&w, i);
	world_plan(&w);
	w.worker[3].hook_ns = 10 * WB_NS_PER_S;
	world_send(&w, 3);
	world_check_phase(&w, 3, WORLD_BEFORE);
	world_check_phase(&w, 4, WORLD_BEGUN);
	world_kill_agent_only(&w, 3);
	world_run_for(&w, 2 * WB_NS_PER_S);
	world_start_agent(&w, 3);
	w.worker[3].hook_ns = 0;
	world_check_phase(&w, 3, WORLD_RUN);
	world_run_for(&w, WB_NS_PER_S);
	world_plan(&w);
	world_run_for(&w, WB_NS_PER_S);
	ck_assert_int_eq(w.worker[4].phase, WORLD_RUN);
	world_check_commits(&w, 4);
	world_finish(&w);
}
END_TEST

/* An agent is stopped while its worker waits in an update, until the engine's lead has given both
 * up.  It has a newer plan, too, which is not active: the next transfer begins under the one in
 * use, and there the lead is asked how the last one ended. */
START_TEST(who_is_in_doubt_asks_under_the_plan_in_use)
{
	struct world_opts o = world_small;

	o.engines = 1;
	o.rollout_staged = true;
	o.step_deadline_ns = WB_NS_PER_S;
	begin_in_step(&o);
	w.worker[1].hook_ns = 60 * WB_NS_PER_S;
	world_send(&w, 2);
	world_check_phase(&w, 2, WORLD_BEGUN);
	ck_assert_int_eq(world_epoch_install(&w, world_epoch_make(&w), 2, NULL), 0);
	world_after(&w.agent[2]);
	world_run_for(&w, WB_NS_PER_MS);
	world_stall_agent(&w, 2, 15 * WB_NS_PER_S);
	world_run_for(&w, 15 * WB_NS_PER_S);
	ck_assert_int_eq(w.worker[1].phase, WORLD_RUN);
	ck_assert_int_eq(w.worker[2].phase, WORLD_BEGUN);
	w.worker[1].hook_ns = 0;
	world_send(&w, 3);
	world_run_for(&w, 3 * WB_NS_PER_S);
	ck_assert_int_ne(w.worker[2].phase, WORLD_TORN);
	world_check_commits(&w, 4);
	world_finish(&w);
}
END_TEST

/* A run ended before a worker of it had begun, after one of that number in which it was written to
 * by nobody either: when its agent dies it does not take the mark of that for its own. */
START_TEST(the_mark_of_a_run_does_not_outlive_it)
{
	struct world_opts o = world_small;
	struct world_worker *k;

	o.rollout_staged = true;
	o.step_deadline_ns = WB_NS_PER_S;
	o.agents_per_engine = 2;
	world_check_begin(&w, &o);
	k = &w.worker[3];
	world_check_commits(&w, 1);
	w.worker[4].hook_ns = 60 * WB_NS_PER_S;
	world_send(&w, 2);
	world_check_phase(&w, 3, WORLD_BEGUN);
	world_run_for(&w, 100 * WB_NS_PER_MS);
	ck_assert_uint_eq(k->page->touched, 2);
	world_check_phase(&w, 3, WORLD_RUN);
	ck_assert_uint_eq(k->page->touched, 0);
	world_finish(&w);
}
END_TEST

/* The agent of a torn worker dies while that runs its hook for the repair: the next one hears that
 * it is torn. */
START_TEST(a_torn_worker_says_so_while_its_hook_runs)
{
	struct world_opts o = world_small;

	o.engines = 1;
	o.scale = 256;
	world_check_begin(&w, &o);
	world_check_commits(&w, 1);
	world_send(&w, 2);
	world_check_phase(&w, 1, WORLD_BEGUN);
	world_kill_worker(&w, 0);
	world_check_phase(&w, 1, WORLD_TORN);
	world_start_worker(&w, 0);
	world_run_for(&w, WB_NS_PER_S);
	world_plan(&w);
	w.worker[1].hook_ns = 600 * WB_NS_PER_S;
	world_send(&w, 3);
	world_check_phase(&w, 1, WORLD_BEFORE);
	world_kill_agent_only(&w, 1);
	world_start_agent(&w, 1);
	world_run_for(&w, WB_NS_PER_S);
	ck_assert_int_eq(w.worker[1].phase, WORLD_BEFORE);
	world_plan(&w);
	world_run_for(&w, 10 * WB_NS_PER_MS);
	ck_assert_ptr_nonnull(wb_transfer_torn(w.agent[1].core));
	world_finish(&w);
}
END_TEST

/* Its after_update_hook takes long, and a feed of the same number begins under a newer plan: that
 * it has run belongs to the update before, which is over then. */
START_TEST(a_hook_that_has_run_ends_the_update_that_it_was_for)
{
	struct world_opts o = world_small;
	struct world_epoch *e;
	struct wb_err err = {0};

	o.agents_per_engine = 2;
	world_check_begin(&w, &o);
	world_send(&w, 1);
	world_check_phase(&w, 2, WORLD_BEGUN);
	w.worker[2].hook_ns = 10 * WB_NS_PER_S;
	world_check_phase(&w, 2, WORLD_AFTER);
	world_check_phase(&w, 1, WORLD_RUN);
	world_kill_agent_only(&w, 1);
	world_start_agent(&w, 1);
	world_run_for(&w, WB_NS_PER_S);
	world_plan(&w);
	e = w.epochs;
	ck_assert_int_eq(wb_transfer_feed(w.agent[3].core, &e->id, 0, 1, &err), 0);
	world_after(&w.agent[3]);
	world_run_for(&w, 10 * WB_NS_PER_MS);
	ck_assert_int_eq(w.worker[2].phase, WORLD_AFTER);
	world_check_phase(&w, 2, WORLD_RUN);
	w.worker[2].hook_ns = 0;
	world_run_for(&w, 2 * WB_NS_PER_S);
	world_check_hold(&w, 1);
	world_check_commits(&w, 2);
	world_check_take(&w, world_epoch_make(&w));
	world_finish(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("doubt");
	TCase *tc = tcase_create("ends");

	wb_log_level_max = WB_LOG_ERROR; /* connections end here all the time */
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, a_party_that_gives_up_its_lead_asks_what_became_of_it);
	tcase_add_test(tc, an_engine_of_which_one_agent_had_not_begun_to_write_is_torn_as_one);
	tcase_add_test(tc, a_worker_that_was_stopped_knows_that_it_was_written_to);
	tcase_add_loop_test(tc, who_was_stopped_does_not_leave_those_behind_who_install, 0, 2);
	tcase_add_test(tc, who_was_told_to_change_does_not_go_on_before_the_answer);
	tcase_add_loop_test(
		tc, who_has_stopped_with_all_others_does_not_go_on_before_the_answer, 0, 2);
	tcase_add_test(tc, who_does_not_know_that_all_have_stopped_goes_on_in_time);
	tcase_add_test(tc, a_torn_worker_says_so_while_its_hook_runs);
	tcase_add_test(tc, a_hook_that_has_run_ends_the_update_that_it_was_for);
	tcase_add_test(tc, who_is_in_doubt_asks_under_the_plan_in_use);
	tcase_add_test(tc, the_mark_of_a_run_does_not_outlive_it);
	tcase_add_loop_test(tc, a_process_is_not_torn_by_the_one_before_it, 0, 2);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
