/* SPDX-License-Identifier: Apache-2.0 */
/* A new operator finds a plan at the agents, and keeps it. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_reconcile.h"

#include "proto/beat.h"

#define RETURN wb_beat_return_ns(15 * S)

static void back(uint32_t id, const char *name, struct wb_reconcile_worker *w, size_t n,
	uint32_t index, uint64_t heard)
{
	struct wb_reconcile_agent a = agent(id, name, w, n);

	a.heard_term = heard;
	a.heard_operator = 77;
	a.running = (struct wb_reconcile_known){{3, 5}, dig(99), 4};
	for (size_t i = 0; i < n; i++) {
		w[i].plan_index = index + (uint32_t)i;
		w[i].held = (struct wb_reconcile_held){6, 60, false};
	}
	up(a);
}

/* One that was READY for 3.5 and has not heard ACTIVATE: it runs the plan before, or none. */
static void back_half(uint32_t id, const char *name, struct wb_reconcile_worker *w, size_t n,
	uint32_t index, bool ran)
{
	struct wb_reconcile_agent a = agent(id, name, w, n);

	a.heard_term = 3;
	a.heard_operator = 77;
	if (ran)
		a.running = (struct wb_reconcile_known){{3, 4}, dig(98), 3};
	a.waiting = (struct wb_reconcile_known){{3, 5}, dig(99), 4};
	for (size_t i = 0; i < n; i++) {
		w[i].plan_index = ran ? index : WB_RECONCILE_NONE;
		w[i].waiting_index = index + (uint32_t)i;
		w[i].held = (struct wb_reconcile_held){6, 60, false};
	}
	up(a);
}

START_TEST(new_operator_adopts_the_running_plan)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12), e2 = rollout(1, "e2", 12);
	struct wb_reconcile_epoch e;
	struct wb_spec s = spec_of(2, 1);

	make(&s, 78);
	back(21, "train", t, 2, 0, 3);
	back(22, "roll-a", &e1, 1, 2, 4);
	/* One engine would be enough, but the running plan has four workers. */
	ck_assert_str_eq(did(false), "");
	ck_assert_uint_eq(wb_reconcile_due_ns(r), now.ns + RETURN);
	back(23, "roll-b", &e2, 1, 3, 3);
	ck_assert_str_eq(did(false), "event(PlanAdopted) need(M1@21) need(m10@21) need(m11@21) "
				     "need(m12@22) activate(21:3.5) activate(22:3.5) "
				     "activate(23:3.5)");
	e = wb_reconcile_active(r, NULL);
	ck_assert_uint_eq(e.term, 3);
	ck_assert_uint_eq(e.number, 5);
	ck_assert_uint_gt(wb_reconcile_term(r), 4);
	ck_assert_int_eq(field("transfer", NULL), 6);
	ck_assert_str_eq(cond("Ready", NULL, NULL), "True");
	ck_assert_str_eq(cond("UpToDate", NULL, NULL), "True");
	blobs(1, 1);
	blobs(10, 12);
	ck_assert_str_eq(did(false), "plan(1)");
	planned(1, 99);
	ck_assert_str_eq(did(false), "");
	ck_assert_int_eq(field("plan", "rounds"), 3);
}
END_TEST

START_TEST(plan_that_half_of_the_agents_heard_activate_of_is_adopted)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12), e2 = rollout(1, "e2", 12);
	struct wb_spec s = spec_of(2, 1);

	make(&s, 78);
	/* Whoever comes first, and whatever it runs: 0 all wait, 1 .. 3 some run it. */
	back_half(21, "train", t, 2, 0, _i & 1);
	if (_i & 2)
		back(22, "roll-a", &e1, 1, 2, 3);
	else
		back_half(22, "roll-a", &e1, 1, 2, true);
	ck_assert_str_eq(did(false), "");
	back_half(23, "roll-b", &e2, 1, 3, false); /* it joined with 3.5 */
	ck_assert_str_eq(did(false), "event(PlanAdopted) need(M1@21) need(m10@21) need(m11@21) "
				     "need(m12@22) activate(21:3.5) activate(22:3.5) "
				     "activate(23:3.5)");
	ck_assert_uint_eq(wb_reconcile_active(r, NULL).number, 5);
}
END_TEST

START_TEST(plan_that_one_agent_is_not_ready_for_is_not_adopted)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12), e2 = rollout(1, "e2", 12);
	struct wb_spec s = spec_of(2, 1);

	make(&s, 78);
	back_half(21, "train", t, 2, 0, true);
	back_half(22, "roll-a", &e1, 1, 2, true);
	up(agent(23, "roll-b", &e2, 1));
	ck_assert_str_eq(did(false), "");
	/* Nor will it be, whoever comes: that is waited for no longer than any agent. */
	ck_assert_uint_eq(wb_reconcile_due_ns(r), now.ns + 15 * S);
}
END_TEST

START_TEST(running_plan_with_a_member_gone_is_replaced_after_a_while)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12);
	struct wb_spec s = spec_of(2, 1);

	make(&s, 78);
	back(21, "train", t, 2, 0, 3);
	back(22, "roll-a", &e1, 1, 2, 4);
	blobs(1, 1);
	later(RETURN - 1);
	ck_assert_str_eq(did(false), "");
	later(1);
	ck_assert_str_eq(did(false), "need(M1@21) need(m10@21) need(m11@21) need(m12@22)");
	blobs(1, 1);
	blobs(10, 12);
	planned(1, 98);
	ck_assert_str_eq(did(false), "plan(1) send(21:5.1) send(22:5.1)");
}
END_TEST

/* It cannot tell which agents judge the transfer, nor whether they are the ones that are here: one
 * in doubt about it waits for this plan. */
START_TEST(who_adopts_no_plan_does_not_wait_for_the_end_of_a_joint_decision)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12);
	struct wb_reconcile_transfer_report begun = {.transfer = 7,
		.version = 70,
		.agent = "train",
		.instance = 21,
		.epoch = {3, 5},
		.culprit.worker = WB_RECONCILE_NONE};
	struct wb_spec s = spec_of(2, 1);

	s.commit_policy = _i ? WB_COMMIT_ALL_ENGINES : WB_COMMIT_EACH_ENGINE;
	make(&s, 78);
	back(21, "train", t, 2, 0, 3);
	back(22, "roll-a", &e1, 1, 2, 4);
	ck_assert_int_eq(wb_reconcile_transfer(r, now, &begun), 0);
	later(RETURN);
	did(false);
	blobs(1, 1);
	blobs(10, 12);
	planned(1, 98);
	ck_assert_str_eq(did(false), "plan(1)");
	later(5 * S);
	ck_assert_str_eq(did(false), _i ? "send(21:5.1) send(22:5.1)" : "");
}
END_TEST

/* The leader's node is gone: one agent notices three heartbeats after the others, and has dialled
 * two addresses in vain when it comes. */
START_TEST(agent_that_notices_last_and_dials_dead_addresses_is_waited_for)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12), e2 = rollout(1, "e2", 12);
	uint64_t late = 3 * wb_beat_interval_ns(15 * S) + 2 * WB_DIAL_NS + WB_REDIAL_PAUSE_NS;
	struct wb_spec s = spec_of(2, 1);

	make(&s, 78);
	back(21, "train", t, 2, 0, 3);
	back(22, "roll-a", &e1, 1, 2, 4);
	for (uint64_t at = S; at <= late; at += S) {
		later(S);
		ck_assert_str_eq(did(false), "");
	}
	back(23, "roll-b", &e2, 1, 3, 3);
	ck_assert_str_eq(did(false), "event(PlanAdopted) need(M1@21) need(m10@21) need(m11@21) "
				     "need(m12@22) activate(21:3.5) activate(22:3.5) "
				     "activate(23:3.5)");
}
END_TEST

START_TEST(nobody_is_waited_for_when_the_agents_of_all_pods_are_back)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12);
	static const char *const names[] = {"train", "roll-a", "bare"};
	struct wb_spec s = spec_of(2, 1);

	make(&s, 78);
	for (int i = 0; i < 3; i++) {
		struct wb_reconcile_pod p = {.name = names[i], .has_sidecar = i < 2};

		ck_assert_int_eq(wb_reconcile_pod(r, now, &p), 0);
	}
	back(21, "train", t, 2, 0, 3);
	ck_assert_str_eq(did(false), "");
	back(22, "roll-a", &e1, 1, 2, 4);
	/* The plan had another engine: its pod was deleted. */
	ck_assert_str_eq(did(false), "need(M1@21) need(m10@21) need(m11@21) need(m12@22)");
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("adopt");
	TCase *tc = tcase_create("adopt");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, new_operator_adopts_the_running_plan);
	tcase_add_loop_test(tc, plan_that_half_of_the_agents_heard_activate_of_is_adopted, 0, 4);
	tcase_add_test(tc, plan_that_one_agent_is_not_ready_for_is_not_adopted);
	tcase_add_test(tc, running_plan_with_a_member_gone_is_replaced_after_a_while);
	tcase_add_loop_test(
		tc, who_adopts_no_plan_does_not_wait_for_the_end_of_a_joint_decision, 0, 2);
	tcase_add_test(tc, agent_that_notices_last_and_dials_dead_addresses_is_waited_for);
	tcase_add_test(tc, nobody_is_waited_for_when_the_agents_of_all_pods_are_back);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return fx_run(suite());
}
