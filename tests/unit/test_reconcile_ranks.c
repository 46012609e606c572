/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that comes for the place of one whose agent is not connected any more: a pod that died,
 * and its successor, which has another name. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_reconcile.h"

static struct wb_reconcile_worker mine[2];

/* The trainer's agent is lost, and another one is there with the same ranks, or with none. */
static void successor_comes(bool has_ranks)
{
	struct wb_reconcile_pod p = {.name = "train", .role = "trainer", .has_sidecar = true};

	run_two_engines();
	ck_assert_int_eq(wb_reconcile_pod(r, now, &p), 0);
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 1, false), 0);
	for (uint32_t i = 0; i < 2; i++)
		mine[i] = trainer(1 + i, has_ranks ? (int64_t)i : -1, 10 + i);
	up(agent(7, "train-b", mine, 2));
}

static const char *waits(void)
{
	const char *message;

	ck_assert_str_eq(cond("MembersConnected", NULL, &message), "False");
	return message;
}

START_TEST(it_waits_and_gets_the_place_with_the_time_of_the_other)
{
	successor_comes(_i);
	ck_assert_str_eq(did(false), "");
	ck_assert_msg(strstr(waits(), "agent train is not connected; train-b/worker 1 waits for a "
				      "place that is given up with it") != NULL,
		"%s", waits());
	later(15 * S - 1);
	ck_assert_str_eq(did(false), "");
	later(1);
	ck_assert_str_eq(did(false), "event(AgentLost) plan(2)");
	ck_assert_str_eq(cond("MembersConnected", NULL, NULL), "True");
}
END_TEST

START_TEST(it_is_refused_when_the_other_comes_back)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_agent a = agent(8, "train", t, 2);

	successor_comes(true);
	did(false);
	a.instance = 1;
	up(a);
	ck_assert_str_eq(did(false),
		"reject(7/1: rank 0 of the trainer is claimed by two workers, train/worker 1 and "
		"train-b/worker 1: give each its own rank, or none) "
		"reject(7/2: rank 1 of the trainer is claimed by two workers, train/worker 2 and "
		"train-b/worker 2: give each its own rank, or none) activate(8:1.1)");
	later(60 * S);
	ck_assert_str_eq(did(false), "");
}
END_TEST

START_TEST(it_gets_the_place_at_once_when_the_pod_of_the_other_is_gone)
{
	successor_comes(true);
	did(false);
	ck_assert_int_eq(wb_reconcile_pod_gone(r, now, "train"), 0);
	ck_assert_str_eq(did(false), "event(AgentLost) plan(2)");
}
END_TEST

/* The pod goes first, its connection ends a moment later. */
START_TEST(agent_without_a_pod_is_not_waited_for)
{
	struct wb_reconcile_pod p = {.name = "train", .role = "trainer", .has_sidecar = true};

	run_two_engines();
	ck_assert_int_eq(wb_reconcile_pod(r, now, &p), 0);
	ck_assert_int_eq(wb_reconcile_pod_gone(r, now, "train"), 0);
	if (_i)
		ck_assert_int_eq(wb_reconcile_pod(r, now, &p), 0); /* it is there again */
	ck_assert_str_eq(did(false), "");
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 1, false), 0);
	ck_assert_str_eq(did(false), _i ? "" : "event(AgentLost)");
}
END_TEST

START_TEST(beside_one_that_is_connected_it_is_refused)
{
	run_two_engines();
	mine[0] = trainer(1, 0, 10);
	up(agent(7, "train-b", mine, 1));
	ck_assert_str_eq(did(false),
		"reject(7/1: rank 0 of the trainer is claimed by two workers, train/worker 1 and "
		"train-b/worker 1: give each its own rank, or none)");
}
END_TEST

START_TEST(one_that_waited_and_left_holds_no_place)
{
	successor_comes(true);
	did(false);
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 7, true), 0);
	later(15 * S);
	ck_assert_str_eq(did(false), "event(AgentLost)");
	up(agent(9, "train-c", mine, 2));
	ck_assert_str_eq(did(false), "plan(2)");
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("ranks");
	TCase *tc = tcase_create("ranks");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_loop_test(tc, it_waits_and_gets_the_place_with_the_time_of_the_other, 0, 2);
	tcase_add_test(tc, it_is_refused_when_the_other_comes_back);
	tcase_add_test(tc, it_gets_the_place_at_once_when_the_pod_of_the_other_is_gone);
	tcase_add_loop_test(tc, agent_without_a_pod_is_not_waited_for, 0, 2);
	tcase_add_test(tc, beside_one_that_is_connected_it_is_refused);
	tcase_add_test(tc, one_that_waited_and_left_holds_no_place);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return fx_run(suite());
}
