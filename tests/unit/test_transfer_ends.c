/* SPDX-License-Identifier: Apache-2.0 */
/* Every run ends, and who waits for it hears how: cases that the simulation has found, each written
 * out so that it stays what it is when seeds make other worlds. */
#include "tests/common/fx_check.h"
#include "tests/common/world_check.h"

#include "base/log.h"

#include <check.h>
#include <string.h>

#define SOON (20 * WB_NS_PER_S)

static struct world w;

/* Both sides staged, and every trainer process ends as soon as it is told that it may: before any
 * chunk was asked for, where engines are slow to begin. */
START_TEST(images_of_trainers_that_are_gone_are_read_to_the_end)
{
	struct world_opts o = world_small;

	o.trainer_staged = o.rollout_staged = true;
	world_check_begin(&w, &o);
	world_check_commits(&w, 1);
	world_stall_agent(&w, w.worker[w.n_trainer].agent, 200 * WB_NS_PER_MS);
	world_send(&w, 2);
	while (w.worker[0].send_state < WB_APP_SEND_RELEASED)
		ck_assert_msg(wb_sim_step(w.net), "the trainer is not let go");
	for (uint32_t i = 0; i < w.n_trainer; i++)
		world_kill_worker(&w, i);
	world_run_for(&w, SOON);
	ck_assert_str_eq(w.last_result, "Succeeded");
	for (uint32_t i = w.n_trainer; i < w.n_worker; i++)
		ck_assert_int_eq(w.worker[i].version, 2);
	world_finish(&w);
}
END_TEST

/* SERVE is lost, and the coordinator gives that agent up.  It asks again when it hears so, and then
 * hears FINAL; what it asked comes after that. */
START_TEST(a_call_that_is_asked_again_is_not_taken_for_the_next)
{
	struct world_opts o = world_small;
	struct wb_sim_fault loss = {
		.kind = WB_SIM_DROP, .items = WB_SIM_MSG, .from = "trainer-0", .to = "trainer-1"};
	struct wb_sim_fault mute = {.kind = WB_SIM_PARTITION,
		.items = WB_SIM_MSG,
		.from = "trainer-1",
		.to = "trainer-0"};

	o.trainer_agents = 2;
	world_check_begin(&w, &o);
	world_check_commits(&w, 1);
	loss.until_ns = world_now(&w) + 100 * WB_NS_PER_MS;
	ck_assert_int_eq(wb_sim_fault_add(w.net, &loss), 0);
	world_check_call(&w, 1, 2);
	world_check_call(&w, 0, 2);
	world_run_for(&w, 100 * WB_NS_PER_MS);
	mute.until_ns = world_now(&w) + WB_NS_PER_S;
	ck_assert_int_eq(wb_sim_fault_add(w.net, &mute), 0);
	wb_transfer_peer_down(w.agent[0].core, &w.epochs->id, 1, "connection reset");
	world_after(&w.agent[0]);
	ck_assert(world_run(&w, SOON));
	ck_assert_int_ne(w.worker[0].send_code, 0);
	ck_assert_int_ne(w.worker[1].send_code, 0);
	world_run_for(&w, 3 * WB_NS_PER_S);
	world_check_call(&w, 0, 3);
	world_run_for(&w, 100 * WB_NS_PER_MS);
	world_check_call(&w, 1, 3);
	ck_assert(world_run(&w, SOON));
	ck_assert_msg(!w.worker[0].send_code, "%s", w.worker[0].why);
	world_run_for(&w, WB_NS_PER_S);
	world_check_hold(&w, 3);
	world_finish(&w);
}
END_TEST

/* A plan that never became active: its coordinator goes by the one before a second later, and its
 * own workers cannot have been heard sooner. */
START_TEST(the_time_to_call_begins_when_the_plan_before_may_be_used)
{
	struct world_opts o = world_small;

	o.trainer_agents = 2;
	o.step_deadline_ns = WB_NS_PER_S;
	world_check_begin(&w, &o);
	world_check_commits(&w, 1);
	world_check_call(&w, 1, 2);
	world_run_for(&w, WB_NS_PER_S / 5);
	ck_assert_int_eq(world_epoch_install(&w, world_epoch_make(&w), 0, NULL), 0);
	world_after(&w.agent[0]);
	world_check_call(&w, 0, 2);
	ck_assert(world_run(&w, SOON));
	ck_assert_msg(!w.worker[0].send_code, "%s", w.worker[0].why);
	ck_assert_int_eq(w.worker[1].send_code, 0);
	world_run_for(&w, WB_NS_PER_S);
	world_check_hold(&w, 2);
	world_finish(&w);
}
END_TEST

/* Its coordinator was asked by all before it went by the plan before, and hears nothing more. */
START_TEST(what_was_asked_before_the_plan_before_may_be_used_is_begun_then)
{
	struct world_opts o = world_small;

	o.trainer_agents = 2;
	world_check_begin(&w, &o);
	world_check_commits(&w, 1);
	world_check_call(&w, 0, 2);
	world_run_for(&w, WB_NS_PER_S / 5);
	ck_assert_int_eq(world_epoch_install(&w, world_epoch_make(&w), 0, NULL), 0);
	world_after(&w.agent[0]);
	world_check_call(&w, 1, 2);
	ck_assert(world_run(&w, 3 * WB_NS_PER_S));
	ck_assert_msg(!w.worker[0].send_code, "%s", w.worker[0].why);
	ck_assert_int_eq(w.worker[1].send_code, 0);
	world_run_for(&w, WB_NS_PER_S);
	world_check_hold(&w, 2);
	world_finish(&w);
}
END_TEST

/* An engine's lead is gone, or has not heard of the transfer, which begins all the same; then the
 * transfer's coordinator dies, before it has called that engine lost.  The engine is asked for
 * chunks that it will never have.  _i 0: by a worker of it that is another one now, 1: one that is
 * the same, 2: under a lead that is there. */
START_TEST(chunks_of_an_engine_that_will_not_begin_are_not_waited_for)
{
	struct wb_sim_fault deaf = {.kind = WB_SIM_PARTITION,
		.items = WB_SIM_MSG,
		.from = "trainer-0",
		.to = "e1-0",
		.until_ns = UINT64_MAX};
	struct world_opts o = world_small;

	o.agents_per_engine = 2;
	o.rollout_staged = true;
	o.older_agents = true; /* else trainers ask what they lack, and find the lead gone */
	world_check_begin(&w, &o);
	world_check_commits(&w, 1);
	if (_i == 2) {
		ck_assert_int_eq(wb_sim_fault_add(w.net, &deaf), 0);
	} else {
		world_kill_agent_only(&w, 3);
		world_run_for(&w, 2 * WB_NS_PER_S); /* everybody knows */
		world_start_agent(&w, 3);
	}
	for (uint32_t i = 3; _i == 0 && i <= 4; i++)
		world_kill_worker(&w, i);
	world_send(&w, 2);
	world_run_for(&w, 5 * WB_NS_PER_MS);
	for (uint32_t i = 3; _i == 0 && i <= 4; i++)
		world_start_worker(&w, i);
	world_plan(&w);
	world_run_for(&w, WB_NS_PER_S);
	ck_assert_int_eq(w.worker[0].send_state, WB_APP_SEND_STARTED);
	world_kill_agent(&w, 0);
	world_run_for(&w, SOON);
	wb_sim_faults_clear(w.net);
	world_restart(&w, 0);
	world_run_for(&w, WB_NS_PER_S);
	world_check_take(&w, world_epoch_make(&w));
	world_plan(&w);
	world_check_commits(&w, 3);
	world_finish(&w);
}
END_TEST

/* Its agent died when it had begun to copy its area, and another is there before that ends. */
START_TEST(who_installs_does_not_hold_what_it_had)
{
	struct world_opts o = world_small;
	struct world_worker *k;
	int64_t version;

	o.rollout_staged = true;
	world_check_begin(&w, &o);
	k = &w.worker[1];
	world_check_commits(&w, 1);
	world_send(&w, 2);
	world_check_phase(&w, 1, WORLD_BEGUN);
	k->hook_ns = 10 * WB_NS_PER_S;
	world_check_phase(&w, 1, WORLD_INSTALL);
	world_kill_agent_only(&w, 1);
	world_start_agent(&w, 1);
	world_run_for(&w, 100 * WB_NS_PER_MS);
	ck_assert_int_eq(k->phase, WORLD_INSTALL);
	ck_assert(world_is_seen(&w, k));
	ck_assert_uint_eq(wb_transfer_held(w.agent[1].core, k->id, &version), 0);
	k->hook_ns = 0;
	world_check_phase(&w, 1, WORLD_TORN);
	world_plan(&w);
	world_run_for(&w, WB_NS_PER_S);
	world_check_commits(&w, 3);
	world_finish(&w);
}
END_TEST

/* Its lead committed and died before it said so here.  The next plan, under which it is answered,
 * comes late: a worker that may wait for a step so long waits for it (_i 0), any other (1) goes by
 * what it knows of itself until then.  The other one has gone on with the new version and waits for
 * it in its next step: it hears the answer all the same, and goes on with it. */
START_TEST(an_answer_is_awaited_as_long_as_a_step_may_take)
{
	struct world_opts o = world_small;
	struct wb_sim_fault deaf = {.kind = WB_SIM_PARTITION,
		.items = WB_SIM_MSG,
		.from = "e0-0",
		.to = "e0-1",
		.until_ns = UINT64_MAX};

	o.engines = 1;
	o.agents_per_engine = 2;
	o.rollout_staged = true;
	o.drift = 1;
	if (_i)
		o.step_deadline_ns = 5 * WB_NS_PER_S;
	world_check_begin(&w, &o);
	world_check_commits(&w, 1);
	world_send(&w, 2);
	world_check_phase(&w, 2, WORLD_INSTALLED);
	ck_assert_int_eq(wb_sim_fault_add(w.net, &deaf), 0);
	world_check_phase(&w, 1, WORLD_RUN);
	ck_assert_int_eq(w.worker[1].version, 2);
	world_kill_agent_only(&w, 1);
	world_run_for(&w, 20 * WB_NS_PER_S);
	ck_assert_int_eq(w.worker[2].phase, _i ? WORLD_TORN : WORLD_INSTALLED);
	wb_sim_faults_clear(w.net);
	world_start_agent(&w, 1);
	world_run_for(&w, WB_NS_PER_S);
	world_plan(&w);
	world_run_for(&w, WB_NS_PER_S);
	world_check_hold(&w, 2);
	world_check_commits(&w, 3);
	world_finish(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ends");
	TCase *tc = tcase_create("ends");

	wb_log_level_max = WB_LOG_ERROR; /* connections end here all the time */
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, images_of_trainers_that_are_gone_are_read_to_the_end);
	tcase_add_test(tc, a_call_that_is_asked_again_is_not_taken_for_the_next);
	tcase_add_test(tc, the_time_to_call_begins_when_the_plan_before_may_be_used);
	tcase_add_test(tc, what_was_asked_before_the_plan_before_may_be_used_is_begun_then);
	tcase_add_loop_test(tc, chunks_of_an_engine_that_will_not_begin_are_not_waited_for, 0, 3);
	tcase_add_test(tc, who_installs_does_not_hold_what_it_had);
	tcase_add_loop_test(tc, an_answer_is_awaited_as_long_as_a_step_may_take, 0, 2);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
