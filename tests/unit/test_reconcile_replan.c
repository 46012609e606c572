/* SPDX-License-Identifier: Apache-2.0 */
/* When what stood in the way of a plan is over there is a plan. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_reconcile.h"

/* Trainers on agent 1, engines e1 on 2 and e2 on 3, one is enough; active.  e3 on 4 joins while
 * transfer 6 runs: its plan is there and waits for the end. */
static void join_while_a_transfer_runs(void)
{
	struct wb_reconcile_worker e3 = rollout(1, "e3", 12);
	struct wb_spec s = spec_of(2, 1);

	run_two_engines();
	ck_assert_int_eq(wb_reconcile_spec(r, now, &s), 0);
	transfer(6, false, 0);
	up(agent(4, "roll-c", &e3, 1));
	ck_assert_str_eq(did(false), "plan(2)");
	planned(2, 98);
	ck_assert_str_eq(did(false), "");
}

static void back(uint32_t id, const char *name, const char *engine, uint64_t instance)
{
	struct wb_reconcile_worker w = rollout(1, engine, 12);
	struct wb_reconcile_agent a = agent(id, name, &w, 1);

	a.instance = instance;
	up(a);
}

/* A plan says where everybody is: without one of them it cannot be told to anybody. */
START_TEST(plan_waits_for_a_member_that_is_away_and_then_all_get_it)
{
	join_while_a_transfer_runs();
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 3, false), 0);
	transfer(6, true, WB_RESULT_SUCCEEDED);
	ck_assert_str_eq(did(false), "event(TransferCompleted)");
	back(13, "roll-b", "e2", 3);
	ck_assert_str_eq(
		did(false), "send(1:1.2) send(2:1.2) send(13:1.2) send(4:1.2) activate(13:1.1)");
}
END_TEST

/* It went while the plan was sent: what others were to get may not have left. */
START_TEST(plan_is_sent_again_after_a_member_was_away)
{
	join_while_a_transfer_runs();
	transfer(6, true, WB_RESULT_SUCCEEDED);
	ck_assert_str_eq(did(false),
		"event(TransferCompleted) send(1:1.2) send(2:1.2) send(3:1.2) send(4:1.2)");
	ready(1, 1, 2);
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 3, false), 0);
	ck_assert_str_eq(did(false), "");
	back(13, "roll-b", "e2", 3);
	ck_assert_str_eq(did(false), "send(2:1.2) send(13:1.2) send(4:1.2) activate(13:1.1)");
}
END_TEST

START_TEST(transfer_that_runs_is_not_time_for_the_plan)
{
	join_while_a_transfer_runs();
	later(600 * S);
	transfer(6, true, WB_RESULT_SUCCEEDED);
	ck_assert_str_eq(did(false),
		"event(TransferCompleted) send(1:1.2) send(2:1.2) send(3:1.2) send(4:1.2)");
	ck_assert_str_eq(cond("Planned", NULL, NULL), "True");
	for (uint32_t i = 1; i <= 4; i++)
		ready(i, 1, 2);
	ck_assert_str_eq(did(false), "event(PlanActivated) activate(1:1.2) activate(2:1.2) "
				     "activate(3:1.2) activate(4:1.2)");
}
END_TEST

START_TEST(agents_that_are_ready_after_the_deadline_are_not_late_for_ever)
{
	const char *reason;

	join_while_a_transfer_runs();
	transfer(6, true, WB_RESULT_SUCCEEDED);
	ready(1, 1, 2);
	ready(2, 1, 2);
	later(600 * S);
	ck_assert_str_eq(cond("Planned", &reason, NULL), "False");
	ck_assert_str_eq(reason, "PlanDeadlineExceeded");
	did(false);
	ready(3, 1, 2);
	ck_assert_str_eq(did(false), "");
	ready(4, 1, 2);
	ck_assert_str_eq(did(false), "event(PlanActivated) activate(1:1.2) activate(2:1.2) "
				     "activate(3:1.2) activate(4:1.2)");
	ck_assert_str_eq(cond("Planned", NULL, NULL), "True");
}
END_TEST

/* The API server refuses a status with a condition that has no reason. */
START_TEST(another_spec_tries_a_refused_plan_again)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e = rollout(1, "e1", 12);
	struct wb_spec s = spec_of(2, 1);
	json_t *status, *c;
	size_t i;

	up(agent(1, "train", t, 2));
	up(agent(2, "roll", &e, 1));
	blobs(1, 1);
	blobs(10, 12);
	planned(1, 99);
	ck_assert_int_eq(wb_reconcile_ready(
				 r, now, 2, (struct wb_reconcile_epoch){1, 1}, -ENOMEM, "no room"),
		0);
	ck_assert_str_eq(cond("Planned", NULL, NULL), "False");
	did(false);
	s.plan_deadline_s = 700;
	ck_assert_int_eq(wb_reconcile_spec(r, now, &s), 0);
	ck_assert_str_eq(did(false), "plan(2)");
	status = wb_reconcile_status(r);
	json_array_foreach(json_object_get(status, "conditions"), i, c)
	{
		ck_assert(json_is_string(json_object_get(c, "reason")));
	}
	json_decref(status);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("replan");
	TCase *tc = tcase_create("obstacles");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, plan_waits_for_a_member_that_is_away_and_then_all_get_it);
	tcase_add_test(tc, plan_is_sent_again_after_a_member_was_away);
	tcase_add_test(tc, transfer_that_runs_is_not_time_for_the_plan);
	tcase_add_test(tc, agents_that_are_ready_after_the_deadline_are_not_late_for_ever);
	tcase_add_test(tc, another_spec_tries_a_refused_plan_again);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return fx_run(suite());
}
