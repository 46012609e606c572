/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds that meet a loss, another feed or the next transfer: cases that the simulation has found.
 */
#include "tests/common/fx_check.h"
#include "tests/common/world_check.h"

#include "base/log.h"

#include <check.h>
#include <errno.h>
#include <string.h>

#define SOON (20 * WB_NS_PER_S)

static struct world w;

/* It is committed, and the next transfer begins while its after_update_hook runs. */
START_TEST(who_leads_a_feed_hears_of_its_end_when_it_is_overtaken)
{
	struct world_opts o = world_small;
	struct world_epoch *e;
	struct wb_err err = {0};

	o.rollout_staged = _i;
	world_check_begin(&w, &o);
	world_check_commits(&w, 1);
	world_kill_agent(&w, 2);
	world_run_for(&w, 2 * WB_NS_PER_S);
	world_restart(&w, 2);
	w.worker[2].hook_ns = 5 * WB_NS_PER_S;
	world_plan(&w);
	e = w.epochs;
	ck_assert_int_eq(wb_transfer_feed(w.agent[1].core, &e->id, 1, 0, &err), 0);
	world_after(&w.agent[1]);
	world_check_phase(&w, 2, WORLD_AFTER);
	world_check_send(&w, 2, SOON);
	ck_assert_str_eq(w.last_result, "Succeeded");
	world_plan(&w);
	world_check_commits(&w, 3);
	world_check_take(&w, world_epoch_make(&w));
	world_finish(&w);
}
END_TEST

/* The only engine that holds the version leaves while it feeds another, which gets the rest from
 * trainers when all of them keep the version (_i 2, 3), and is Torn when none does (0, 1), or one
 * has let go and changed it (4, 5).  _i & 1: with staging; from 6 on the same where trainers send
 * from snapshots, which nobody has any more then. */
START_TEST(who_is_fed_gets_from_trainers_that_keep_it_what_its_source_does_not_give)
{
	bool keeps = _i % 6 >> 1 == 1, has_one_let_go = _i % 6 >> 1 == 2;
	struct world_opts o = world_small;
	uint32_t source;
	struct wb_err err = {0};

	o.trainers_per_agent = 2;
	o.rollout_staged = _i & 1;
	o.trainer_staged = _i >= 6;
	o.scale = 256;
	o.hold = true;
	o.keep = keeps || has_one_let_go;
	world_check_begin(&w, &o);
	world_check_commits(&w, 1);
	ck_assert_int_eq(w.worker[0].held, o.keep);
	if (has_one_let_go) {
		w.worker[0].held = false;
		world_release(&w);
		w.worker[0].held = true;
		world_run_for(&w, WB_NS_PER_S);
		ck_assert(!w.worker[1].held);
		memset(w.worker[1].memory, 0xee, w.worker[1].bytes);
	}
	world_kill_worker(&w, 3);
	world_run_for(&w, WB_NS_PER_S);
	world_start_worker(&w, 3);
	world_run_for(&w, 100 * WB_NS_PER_MS);
	world_plan(&w);
	for (uint32_t i = 0; i < w.n_agent; i++) /* as the operator says to all */
		wb_transfer_seen(w.agent[i].core, &world_object, 1);
	source = world_agent_of_engine(&w, 0);
	ck_assert_int_eq(wb_transfer_feed(w.agent[source].core, &w.epochs->id, 1, 0, &err), 0);
	world_after(&w.agent[source]);
	world_check_phase(&w, 3, WORLD_BEGUN);
	world_kill_worker(&w, 2);
	world_run_for(&w, 10 * WB_NS_PER_S);
	ck_assert_uint_eq(w.worker[3].n_torn, !keeps);
	ck_assert(!keeps || (w.worker[3].phase == WORLD_RUN && w.worker[3].version == 1));
	world_release(&w);
	world_run_for(&w, 100 * WB_NS_PER_MS);
	ck_assert(!w.worker[0].held && !w.worker[1].held);
	world_finish(&w);
}
END_TEST

/* Version 1 moves while one agent of the second engine cannot be heard: that engine misses it. */
static void begin_with_one_that_misses(struct world_opts *o)
{
	struct wb_sim_fault mute = {
		.kind = WB_SIM_PARTITION, .items = WB_SIM_MSG, .from = "e1-1", .to = "e1-0"};

	o->agents_per_engine = 2;
	o->step_deadline_ns = WB_NS_PER_S;
	world_check_begin(&w, o);
	mute.until_ns = world_now(&w) + 1500 * WB_NS_PER_MS;
	ck_assert_int_eq(wb_sim_fault_add(w.net, &mute), 0);
	world_check_send(&w, 1, SOON);
	ck_assert_int_eq(w.worker[1].version, 1);
	ck_assert_int_ne(w.worker[3].version, 1);
}

/* The same under the plan of the transfer itself, whose snapshot is over. */
START_TEST(who_is_fed_under_the_same_plan_reads_parameters_and_no_snapshot)
{
	struct world_opts o = world_small;
	struct wb_err err = {0};

	o.scale = 256;
	o.trainer_staged = o.hold = o.keep = true;
	begin_with_one_that_misses(&o);
	world_run_for(&w, 2 * WB_NS_PER_S);
	ck_assert_int_eq(wb_transfer_feed(w.agent[1].core, &w.epochs->id, 1, 0, &err), 0);
	world_after(&w.agent[1]);
	world_check_phase(&w, 3, WORLD_BEGUN);
	world_kill_worker(&w, 1);
	world_kill_worker(&w, 2);
	world_run_for(&w, 10 * WB_NS_PER_S);
	for (uint32_t i = 3; i <= 4; i++)
		ck_assert_msg(!w.worker[i].n_torn && w.worker[i].version == 1, "worker %u: %s", i,
			w.last_culprit);
	world_finish(&w);
}
END_TEST

/* The promise of one agent of a new engine comes after the run that it was for, and after the feed
 * of the same number has begun.  Taken for an answer to that, the others would stop at a poll which
 * its worker has passed, and never meet it again. */
START_TEST(a_promise_for_a_transfer_is_none_for_the_feed_of_its_number)
{
	struct world_opts o = world_small;
	struct wb_err err = {0};

	begin_with_one_that_misses(&o);
	w.worker[3].stall_until_ns = world_now(&w) + 300 * WB_NS_PER_MS;
	ck_assert_int_eq(wb_transfer_feed(w.agent[1].core, &w.epochs->id, 1, 0, &err), 0);
	world_after(&w.agent[1]);
	world_run_for(&w, 3 * WB_NS_PER_S);
	world_check_hold(&w, 1);
	world_check_commits(&w, 2);
	world_finish(&w);
}
END_TEST

/* The source has got a newer version meanwhile: what was asked for is not what is under way. */
START_TEST(a_feed_of_a_newer_version_is_not_taken_for_the_one_before)
{
	struct world_opts o = world_small;
	struct wb_sim_fault deaf = {.kind = WB_SIM_PARTITION,
		.items = WB_SIM_MSG,
		.from = "trainer-0",
		.to = "e1-0",
		.until_ns = UINT64_MAX};
	struct world_epoch *e;
	struct wb_err err = {0};
	uint64_t end;

	world_check_begin(&w, &o);
	world_check_commits(&w, 1);
	world_kill_agent(&w, 2);
	world_run_for(&w, 2 * WB_NS_PER_S);
	world_restart(&w, 2);
	w.worker[2].hook_ns = 60 * WB_NS_PER_S;
	world_plan(&w);
	e = w.epochs;
	ck_assert_int_eq(wb_transfer_feed(w.agent[1].core, &e->id, 1, 0, &err), 0);
	world_after(&w.agent[1]);
	end = world_now(&w) + 120 * WB_NS_PER_S;
	while (w.worker[2].phase != WORLD_AFTER && world_now(&w) < end)
		ck_assert(wb_sim_step(w.net));
	ck_assert_int_eq(wb_sim_fault_add(w.net, &deaf), 0);
	world_send(&w, 2);
	while (w.worker[1].version != 2 && world_now(&w) < end)
		ck_assert(wb_sim_step(w.net));
	ck_assert_int_eq(w.worker[2].phase, WORLD_AFTER);
	ck_assert_int_eq(wb_transfer_feed(w.agent[1].core, &e->id, 1, 0, &err), -EBUSY);
	ck_assert_msg(strstr(err.msg, "e1") != NULL, "%s", err.msg);
	world_finish(&w);
}
END_TEST

/* An engine that is new, whose workers wait for each other in every step: half of it loses its
 * agent while it is fed, and goes on.  The other half must not be left in that feed. */
START_TEST(a_new_engine_whose_feed_came_to_nothing_is_fed_by_the_next)
{
	struct world_opts o = world_small;
	struct world_epoch *e;
	struct wb_err err = {0};

	o.agents_per_engine = 2;
	o.drift = 1;
	world_check_begin(&w, &o);
	world_check_commits(&w, 1);
	for (uint32_t i = 3; i <= 4; i++)
		world_kill_worker(&w, i);
	for (uint32_t i = 3; i <= 4; i++)
		world_start_worker(&w, i);
	world_plan(&w);
	e = w.epochs;
	for (uint32_t a = 3; a <= 4; a++) {
		wb_transfer_expect_feed(w.agent[a].core, &world_object, 1);
		world_after(&w.agent[a]);
	}
	w.worker[4].hook_ns = 10 * WB_NS_PER_S;
	ck_assert_int_eq(wb_transfer_feed(w.agent[1].core, &e->id, 1, 0, &err), 0);
	world_after(&w.agent[1]);
	world_check_phase(&w, 4, WORLD_BEFORE);
	world_check_phase(&w, 3, WORLD_BEGUN);
	world_kill_agent_only(&w, 4);
	world_start_agent(&w, 4);
	w.worker[4].hook_ns = 0;
	world_check_phase(&w, 4, WORLD_RUN);
	world_plan(&w);
	world_check_commits(&w, 2);
	world_finish(&w);
}
END_TEST

/* As before, but the hook of one worker raises in that feed while the other is on its way to its
 * stop, and in the next transfer that of the other.  The one that was in the feed is not torn: it
 * goes on with the other, at once (_i 0) or when the time for a repair is over (1). */
START_TEST(a_new_engine_whose_feed_came_to_nothing_goes_on_as_one)
{
	struct world_opts o = world_small;
	struct world_epoch *e;
	struct wb_err err = {0};

	o.agents_per_engine = 2;
	o.drift = 1;
	o.transfer_deadline_ns = 2 * WB_NS_PER_S;
	world_check_begin(&w, &o);
	world_check_commits(&w, 1);
	for (uint32_t i = 3; i <= 4; i++)
		world_kill_worker(&w, i);
	for (uint32_t i = 3; i <= 4; i++)
		world_start_worker(&w, i);
	world_plan(&w);
	e = w.epochs;
	for (uint32_t a = 3; a <= 4; a++) {
		wb_transfer_expect_feed(w.agent[a].core, &world_object, 1);
		world_after(&w.agent[a]);
	}
	w.worker[3].stall_until_ns = world_now(&w) + WB_NS_PER_S;
	w.worker[4].hook_raises = true;
	ck_assert_int_eq(wb_transfer_feed(w.agent[1].core, &e->id, 1, 0, &err), 0);
	world_after(&w.agent[1]);
	world_check_phase(&w, 4, WORLD_BEGUN);
	world_run_for(&w, (_i ? 5 : 1) * WB_NS_PER_S);
	ck_assert_int_eq(w.worker[4].phase, WORLD_BEGUN);
	w.worker[3].hook_raises = true;
	world_send(&w, 2);
	world_run_for(&w, WB_NS_PER_S);
	ck_assert(!w.worker[3].hook_raises);
	world_check_commits(&w, 3);
	world_finish(&w);
}
END_TEST

/* Transfers fill areas and feeds parameters.  Two engines are fed when their source dies, and each
 * asks the other for what that had: neither has it, and both hear so at once. */
START_TEST(engines_that_are_fed_do_not_wait_for_each_other)
{
	struct world_opts o = world_small;
	const struct world_epoch *e;

	o.engines = 3;
	o.rollout_staged = _i;
	o.bytes_per_s = 1000000;
	world_check_begin(&w, &o);
	world_check_commits(&w, 1);
	for (uint32_t a = 1; a <= 2; a++) {
		world_kill_agent(&w, a);
		world_run_for(&w, 2 * WB_NS_PER_S);
		world_restart(&w, a);
	}
	world_plan(&w);
	e = w.epochs;
	for (uint32_t a = 0; a < w.n_agent; a++) /* trainers have nothing of it any more */
		wb_transfer_seen(w.agent[a].core, &world_object, 1);
	for (uint32_t en = 0; en < 2; en++) {
		struct wb_err err = {0};

		ck_assert_int_eq(wb_transfer_feed(w.agent[3].core, &e->id, en, 2, &err), 0);
		world_after(&w.agent[3]);
	}
	for (uint32_t i = 1; i <= 2; i++)
		while (w.worker[i].page->touched != 1) /* each has asked the source */
			ck_assert(wb_sim_step(w.net));
	world_kill_agent(&w, 3);
	world_check_phase(&w, 1, WORLD_TORN);
	world_check_phase(&w, 2, WORLD_TORN);
	world_restart(&w, 3);
	world_run_for(&w, WB_NS_PER_S);
	world_plan(&w);
	world_check_commits(&w, 2);
	world_finish(&w);
}
END_TEST

/* Nothing would come to it: it goes on with what it holds, and whoever asked for that is told. */
START_TEST(an_engine_without_an_address_in_common_is_not_fed)
{
	struct world_opts o = world_small;
	struct wb_err err = {0};

	o.apart = true;
	world_check_begin(&w, &o);
	world_check_commits(&w, 1);
	ck_assert_int_eq(
		wb_transfer_feed(w.agent[1].core, &w.epochs->id, 1, 0, &err), -EAFNOSUPPORT);
	world_after(&w.agent[1]);
	ck_assert_msg(
		strstr(err.msg, "engine e1 cannot get a version from engine e0"), "%s", err.msg);
	ck_assert_str_eq(w.last_result, "Aborted");
	ck_assert_msg(strstr(w.last_culprit, "no address family in common"), "%s", w.last_culprit);
	world_check_commits(&w, 2);
	world_finish(&w);
}
END_TEST

/* Staged: a worker was stopped as it was to install, until its engine was torn and a feed of the
 * same number had come to nothing, too.  It finds BEGIN and END of that behind those of the
 * transfer, and must not stand in it: nobody would say again that it is over. */
START_TEST(who_was_stopped_does_not_begin_a_feed_that_is_over)
{
	struct world_opts o = world_small;
	struct wb_err err = {0};
	struct world_worker *k;

	o.rollout_staged = true;
	o.step_deadline_ns = WB_NS_PER_S;
	o.transfer_deadline_ns = 2 * WB_NS_PER_S;
	world_check_begin(&w, &o);
	k = &w.worker[2];
	world_check_commits(&w, 1);
	world_send(&w, 2);
	world_check_phase(&w, 2, WORLD_BEGUN);
	k->stall_until_ns = world_now(&w) + 15 * WB_NS_PER_S;
	ck_assert(world_run(&w, SOON));
	ck_assert_str_eq(w.last_result, "PartlyTorn");
	ck_assert_int_eq(wb_transfer_feed(w.agent[1].core, &w.epochs->id, 1, 0, &err), 0);
	world_after(&w.agent[1]);
	world_run_for(&w, 5 * WB_NS_PER_S);
	ck_assert_str_eq(w.last_result, "Torn");
	ck_assert_int_eq(k->phase, WORLD_BEGUN);
	world_check_phase(&w, 2, WORLD_TORN);
	world_run_for(&w, WB_NS_PER_S);
	ck_assert_int_eq(k->phase, WORLD_TORN);
	world_check_commits(&w, 3);
	world_finish(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("feeds");
	TCase *tc = tcase_create("ends");

	wb_log_level_max = WB_LOG_ERROR; /* connections end here all the time */
	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, who_leads_a_feed_hears_of_its_end_when_it_is_overtaken, 0, 2);
	tcase_add_test(tc, who_is_fed_under_the_same_plan_reads_parameters_and_no_snapshot);
	tcase_add_loop_test(tc,
		who_is_fed_gets_from_trainers_that_keep_it_what_its_source_does_not_give, 0, 12);
	tcase_add_test(tc, a_feed_of_a_newer_version_is_not_taken_for_the_one_before);
	tcase_add_test(tc, who_was_stopped_does_not_begin_a_feed_that_is_over);
	tcase_add_test(tc, a_promise_for_a_transfer_is_none_for_the_feed_of_its_number);
	tcase_add_test(tc, a_new_engine_whose_feed_came_to_nothing_is_fed_by_the_next);
	tcase_add_loop_test(tc, a_new_engine_whose_feed_came_to_nothing_goes_on_as_one, 0, 2);
	tcase_add_test(tc, an_engine_without_an_address_in_common_is_not_fed);
	tcase_add_loop_test(tc, engines_that_are_fed_do_not_wait_for_each_other, 0, 2);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
