/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's decisions while trainers are gone: engines that join are fed all the same. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_reconcile.h"

/* Engine e1 holds transfer 6 under epoch 1.1; the agent of the trainers is 1. */
static void run_one_engine(void)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12);

	up(agent(1, "train", t, 2));
	up(agent(2, "roll-a", &e1, 1));
	blobs(1, 1);
	blobs(10, 12);
	planned(1, 99);
	ready(1, 1, 1);
	ready(2, 1, 1);
	engine("e1", WB_ENGINE_COMMITTED, 6, false);
	did(false);
	ck_assert_uint_eq(wb_reconcile_active(r, NULL).number, 1);
}

static void join(unsigned map)
{
	struct wb_reconcile_worker e2 = rollout(1, "e2", map);

	up(agent(3, "roll-b", &e2, 1));
}

static void trainers_go(void)
{
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 1, true), 0);
}

START_TEST(a_joiner_is_planned_with_absent_trainers_and_fed)
{
	const struct wb_reconcile_member *m;
	const char *message;
	size_t n;

	run_one_engine();
	trainers_go();
	ck_assert_str_eq(did(false), "");
	join(13);
	ck_assert_str_eq(did(false), "need(m13@3)");
	blobs(13, 13);
	ck_assert_str_eq(did(false), "plan(2)");
	m = wb_reconcile_members(r, &n);
	ck_assert_uint_eq(n, 4);
	for (size_t i = 0; i < 4; i++) {
		ck_assert_int_eq(m[i].is_absent, i < 2);
		ck_assert_int_eq(m[i].plan.role, i < 2 ? WB_ROLE_TRAINER : WB_ROLE_ROLLOUT);
		ck_assert_uint_eq(m[i].agent, i < 2 ? WB_RECONCILE_NONE : i);
		ck_assert_uint_eq(m[i].plan.domain, i < 2 ? 2 : i - 2);
		ck_assert_uint_eq(m[i].map.lo, 10 + i);
	}
	ck_assert_str_eq(m[0].agent_name, "train");
	planned(2, 98);
	ck_assert_str_eq(did(false), "send(2:1.2) send(3:1.2)");
	ready(2, 1, 2);
	ready(3, 1, 2);
	ck_assert_str_eq(did(false), "event(PlanActivated) event(EngineFed) "
				     "activate(2:1.2)<-e2:e1/6#1 activate(3:1.2)<-e2:e1/6#1");
	ck_assert_str_eq(cond("MembersConnected", NULL, &message), "False");
	ck_assert_ptr_nonnull(strstr(message, "waiting for 2 of 2 trainer workers"));
	ck_assert_str_eq(cond("Planned", NULL, &message), "True");
	ck_assert_ptr_nonnull(strstr(message, "2 trainer workers that are absent"));
	ck_assert_str_eq(cond("Ready", NULL, NULL), "False");
	engine("e2", WB_ENGINE_COMMITTED, 6, true);
	ck_assert_str_eq(did(false), "");
	ck_assert_int_eq(field("updatedEngines", NULL), 2);
	ck_assert_str_eq(cond("UpToDate", NULL, NULL), "True");
}
END_TEST

START_TEST(an_agent_of_the_version_before_is_given_no_such_plan)
{
	struct wb_reconcile_worker e2 = rollout(1, "e2", 12);
	struct wb_reconcile_agent old = agent(3, "roll-b", &e2, 1),
				  new = agent(4, "roll-b", &e2, 1);

	run_one_engine();
	trainers_go();
	old.needs_all = true;
	up(old);
	ck_assert_str_eq(did(false), "");
	ck_assert_str_eq(cond("MembersConnected", NULL, NULL), "False");
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 3, true), 0);
	up(new);
	ck_assert_str_eq(did(false), "plan(2)");
}
END_TEST

/* The trainers are gone, and engine e2 got what e1 holds. */
static void feed_without_trainers(void)
{
	run_one_engine();
	trainers_go();
	join(12);
	planned(2, 98);
	ready(2, 1, 2);
	ready(3, 1, 2);
	engine("e2", WB_ENGINE_COMMITTED, 6, true);
	did(false);
}

START_TEST(trainers_that_are_back_are_planned_as_ever)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	const struct wb_reconcile_member *m;
	size_t n;

	feed_without_trainers();
	up(agent(4, "train", t, 1)); /* one of two is not enough */
	ck_assert_str_eq(did(false), "");
	workers(4, t, 2);
	ck_assert_str_eq(did(false), "plan(3)");
	m = wb_reconcile_members(r, &n);
	ck_assert_uint_eq(n, 4);
	for (size_t i = 0; i < n; i++)
		ck_assert(!m[i].is_absent);
	planned(3, 99);
	ck_assert_str_eq(did(false), "send(2:1.3) send(3:1.3) send(4:1.3)");
}
END_TEST

/* As run_one_engine(), with agent 4 for the second trainer worker. */
static void run_with_two_trainer_pods(void)
{
	struct wb_reconcile_worker t0 = trainer(1, 0, 10), t1 = trainer(1, 1, 11);
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12);

	up(agent(1, "train-0", &t0, 1));
	up(agent(4, "train-1", &t1, 1));
	up(agent(2, "roll-a", &e1, 1));
	blobs(1, 1);
	blobs(10, 12);
	planned(1, 99);
	ready(1, 1, 1);
	ready(2, 1, 1);
	ready(4, 1, 1);
	engine("e1", WB_ENGINE_COMMITTED, 6, false);
	did(false);
}

START_TEST(one_trainer_pod_of_two_is_gone)
{
	struct wb_reconcile_worker t0 = trainer(2, 0, 10);
	const struct wb_reconcile_member *m;
	size_t n;

	run_with_two_trainer_pods();
	trainers_go();
	join(12);
	m = wb_reconcile_members(r, &n);
	ck_assert_uint_eq(n, 4);
	ck_assert_uint_eq(m[0].agent, 4); /* one that is here leads, and names the other */
	ck_assert(!m[0].is_absent);
	ck_assert_str_eq(m[1].agent_name, "train-0");
	ck_assert(m[1].is_absent);
	did(false);
	planned(2, 98);
	ck_assert_str_eq(did(false), "send(4:1.2) send(2:1.2) send(3:1.2)");
	/* A new one has to wait for its like. */
	up(agent(5, "train-0", &t0, 1));
	ck_assert_str_eq(did(false), "plan(3)");
	wb_reconcile_members(r, &n);
	ck_assert_uint_eq(n, 4);
}
END_TEST

/* The memory of two trainer pods and of two engines, of one worker each, and the nodes once the
 * trainers are absent.  The planner refuses numbers with gaps. */
static const struct {
	const char *memory[4];
	uint32_t node[4];
} apart[] = {
	{{NULL, NULL, NULL, NULL}, {2, 3, 0, 1}},
	{{"a", "a", "b", "b"}, {1, 2, 0, 0}},
	{{"a", "b", "a", "b"}, {2, 3, 0, 1}},
};

START_TEST(each_pod_of_absent_trainers_is_the_next_node)
{
	static const char *const name[] = {"train-0", "train-1", "e1", "e2"};
	const struct wb_reconcile_member *m;
	size_t n;

	for (uint32_t i = 0; i < 4; i++) {
		struct wb_reconcile_worker w =
			i < 2 ? trainer(1, i, 10 + i) : rollout(1, name[i], 12);
		struct wb_reconcile_agent a = agent(i + 1, name[i], &w, 1);

		a.memory = apart[_i].memory[i];
		if (i == 3) { /* it joins once the others have a version, and trainers are gone */
			trainers_go();
			ck_assert_int_eq(wb_reconcile_agent_down(r, now, 2, true), 0);
		}
		up(a);
		if (i == 2) {
			blobs(1, 1);
			blobs(10, 12);
			planned(1, 99);
			for (uint32_t k = 1; k <= 3; k++)
				ready(k, 1, 1);
			engine("e1", WB_ENGINE_COMMITTED, 6, false);
		}
	}
	m = wb_reconcile_members(r, &n);
	ck_assert_uint_eq(n, 4);
	for (size_t i = 0; i < n; i++) {
		ck_assert_int_eq(m[i].is_absent, i < 2);
		ck_assert_uint_eq(m[i].plan.domain, i < 2 ? i + 2 : i - 2);
		ck_assert_uint_eq(m[i].plan.node, apart[_i].node[i]);
	}
}
END_TEST

START_TEST(trainers_that_may_come_back_are_waited_for)
{
	run_one_engine();
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 1, false), 0);
	join(12);
	ck_assert_str_eq(did(false), "");
	later(15 * S);
	ck_assert_str_eq(did(false), "event(AgentLost) plan(2)");
}
END_TEST

/* A plan that is being made waits for who is lost, and need not be made anew. */
START_TEST(who_may_come_back_stops_no_plan)
{
	struct wb_reconcile_worker t = trainer(1, 1, 11), e9 = rollout(1, "e9", 12);
	struct wb_reconcile_agent lost =
		_i ? agent(4, "train-1", &t, 1) : agent(5, "roll-z", &e9, 1);

	run_with_two_trainer_pods();
	trainers_go();
	up(agent(5, "roll-z", &e9, 1));
	join(12);
	ck_assert_str_eq(did(false), "plan(2) plan(3)");
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, lost.id, false), 0);
	planned(3, 98);
	ck_assert_str_eq(did(false), "");
	up(lost);
	ck_assert_ptr_nonnull(
		strstr(did(false), "send(4:1.2) send(2:1.2) send(5:1.2) send(3:1.2)"));
}
END_TEST

/* It is in no plan, and would be in none if it came back. */
START_TEST(a_trainer_worker_that_was_refused_is_not_waited_for)
{
	struct wb_reconcile_worker twin = trainer(1, 0, 10);

	run_one_engine();
	up(agent(5, "twin", &twin, 1));
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 5, false), 0);
	trainers_go();
	did(false);
	join(12);
	ck_assert_str_eq(did(false), "plan(2)");
}
END_TEST

START_TEST(a_first_version_needs_trainers)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12);

	up(agent(1, "train", t, 2));
	up(agent(2, "roll-a", &e1, 1));
	blobs(1, 1);
	blobs(10, 12);
	planned(1, 99);
	ready(1, 1, 1);
	ready(2, 1, 1);
	did(false);
	trainers_go();
	join(12);
	ck_assert_str_eq(did(false), "");
	/* One that committed meanwhile is a source from then on. */
	engine("e1", WB_ENGINE_COMMITTED, 6, false);
	ck_assert_str_eq(did(false), "plan(2)");
}
END_TEST

START_TEST(engines_that_leave_need_no_plan_and_others_join_after_them)
{
	struct wb_reconcile_worker e3 = rollout(1, "e3", 12);
	const struct wb_reconcile_member *m;
	size_t n;

	feed_without_trainers();
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 2, true), 0);
	ck_assert_str_eq(did(false), "");
	up(agent(5, "roll-c", &e3, 1)); /* e2, which was fed itself, is the source now */
	m = wb_reconcile_members(r, &n);
	ck_assert_uint_eq(n, 4);
	ck_assert(m[0].is_absent && m[1].is_absent);
	ck_assert_uint_eq(m[1].plan.domain, 2);
	planned(3, 97);
	ready(3, 1, 3);
	ready(5, 1, 3);
	ck_assert_str_eq(did(false), "plan(3) send(3:1.3) send(5:1.3) event(PlanActivated) "
				     "event(EngineFed) activate(3:1.3)<-e3:e2/6#1 "
				     "activate(5:1.3)<-e3:e2/6#1");
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("absent");
	TCase *tc = tcase_create("trainers are gone");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_joiner_is_planned_with_absent_trainers_and_fed);
	tcase_add_test(tc, an_agent_of_the_version_before_is_given_no_such_plan);
	tcase_add_test(tc, trainers_that_are_back_are_planned_as_ever);
	tcase_add_test(tc, one_trainer_pod_of_two_is_gone);
	tcase_add_loop_test(
		tc, each_pod_of_absent_trainers_is_the_next_node, 0, (int)WB_ARRAY_SIZE(apart));
	tcase_add_test(tc, trainers_that_may_come_back_are_waited_for);
	tcase_add_loop_test(tc, who_may_come_back_stops_no_plan, 0, 2);
	tcase_add_test(tc, a_trainer_worker_that_was_refused_is_not_waited_for);
	tcase_add_test(tc, a_first_version_needs_trainers);
	tcase_add_test(tc, engines_that_leave_need_no_plan_and_others_join_after_them);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return fx_run(suite());
}
