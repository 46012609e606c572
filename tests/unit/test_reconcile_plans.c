/* SPDX-License-Identifier: Apache-2.0 */
/* What changes a plan that is in force, and feeds under it. */
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_reconcile.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(lost_engine_leaves_the_plan_after_the_running_transfer)
{
	run_two_engines();
	transfer(6, false, 0);
	/* Two engines are wanted by the spec: with one, the plan stays as it is. */
	workers(2, NULL, 0);
	ck_assert_str_eq(did(false), "");
	ck_assert_str_eq(cond("MembersConnected", NULL, NULL), "False");
}
END_TEST

/* As run_two_engines(), but one engine is enough. */
static void run_one_needed(void)
{
	struct wb_spec s = spec_of(2, 1);

	run_two_engines();
	s.engines = 0;
	ck_assert_int_eq(wb_reconcile_spec(r, now, &s), 0);
	ck_assert_str_eq(did(false), "");
}

START_TEST(membership_change_gives_a_new_epoch_after_the_transfer)
{
	run_one_needed();
	transfer(6, false, 0);
	workers(2, NULL, 0);
	ck_assert_str_eq(did(false), "plan(2)");
	planned(2, 98);
	ck_assert_str_eq(did(false), ""); /* the transfer runs */
	engine("e2", WB_ENGINE_COMMITTED, 6, false);
	transfer(6, true, WB_RESULT_SUCCEEDED);
	ck_assert_str_eq(did(false), "event(TransferCompleted) send(1:1.2) send(3:1.2)");
	ready(1, 1, 2);
	ready(3, 1, 2);
	ck_assert_str_eq(did(false), "event(PlanActivated) activate(1:1.2) activate(3:1.2)");
}
END_TEST

START_TEST(a_transfer_whose_coordinator_is_gone_ends_with_what_its_engines_say)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_agent a = agent(4, "train", t, 2);

	a.instance = 44; /* another process */
	run_two_engines();
	transfer(6, false, 0);
	engine("e1", WB_ENGINE_TORN, 6, false);
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 1, false), 0);
	ck_assert_str_eq(did(false), ""); /* it may come back */
	up(a);
	ck_assert_str_eq(did(false), "plan(2)");
	planned(2, 98);
	ck_assert_str_eq(did(false), ""); /* e2 has not said how it ended */
	engine("e2", _i ? WB_ENGINE_COMMITTED : WB_ENGINE_ABORTED, 6, false);
	ck_assert_str_eq(
		did(false), _i ? "event(EngineTorn) send(2:1.2) send(3:1.2) send(4:1.2)"
			       : "event(TransferFailed) send(2:1.2) send(3:1.2) send(4:1.2)");
}
END_TEST

START_TEST(restarted_engine_is_fed_by_one_that_holds_the_version)
{
	struct wb_reconcile_worker e1 = rollout(2, "e1", 12);

	run_one_needed();
	transfer(6, false, 0);
	workers(2, NULL, 0);
	engine("e2", WB_ENGINE_COMMITTED, 6, false);
	transfer(6, true, WB_RESULT_SUCCEEDED);
	workers(2, &e1, 1);
	ck_assert_str_eq(did(false), "plan(2) event(TransferCompleted) plan(3)");
	planned(2, 97); /* of a membership that is over */
	ck_assert_str_eq(did(false), "");
	planned(3, 99);
	ck_assert_str_eq(did(false), "send(1:1.2) send(2:1.2) send(3:1.2)");
	ready(1, 1, 2);
	ready(2, 1, 2);
	ready(3, 1, 2);
	ck_assert_str_eq(did(false), "event(PlanActivated) event(EngineFed) "
				     "activate(1:1.2)<-e1:e2/6#1 activate(2:1.2)<-e1:e2/6#1 "
				     "activate(3:1.2)<-e1:e2/6#1");
	ck_assert_int_eq(field("updatedEngines", NULL), 1);
	engine("e1", WB_ENGINE_COMMITTED, 6, true);
	ck_assert_str_eq(did(false), "");
	ck_assert_int_eq(field("updatedEngines", NULL), 2);
	ck_assert_str_eq(cond("UpToDate", NULL, NULL), "True");
	ck_assert_int_eq(field("version", NULL), 60);
}
END_TEST

START_TEST(failed_feed_is_tried_again_later)
{
	run_two_engines();
	engine("e2", WB_ENGINE_COMMITTED, 6, false);
	ck_assert_str_eq(did(false), "event(EngineFed) activate(1:1.1)<-e1:e2/6#1 "
				     "activate(2:1.1)<-e1:e2/6#1 activate(3:1.1)<-e1:e2/6#1");
	engine("e1", WB_ENGINE_ABORTED, 6, true);
	ck_assert_str_eq(did(false), "");
	ck_assert_uint_eq(wb_reconcile_due_ns(r), now.ns + 2 * S);
	later(2 * S);
	ck_assert_str_eq(did(false), "event(EngineFed) activate(1:1.1)<-e1:e2/6#2 "
				     "activate(2:1.1)<-e1:e2/6#2 activate(3:1.1)<-e1:e2/6#2");
}
END_TEST

/* It does not say so any more, and plans wait for feeds. */
START_TEST(a_feed_ends_with_its_source)
{
	size_t n;

	run_two_engines();
	engine("e2", WB_ENGINE_COMMITTED, 6, false);
	wb_reconcile_feeds(r, &n);
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 3, false), 0);
	wb_reconcile_feeds(r, &n);
	ck_assert_uint_eq(n, 0);
}
END_TEST

/* The coordinator waits for a judge, and that for a plan. */
START_TEST(a_restarted_judge_is_planned_again_while_the_transfer_runs)
{
	struct wb_reconcile_worker t0 = trainer(1, 0, 10), t1 = trainer(1, 1, 11);
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12);
	struct wb_spec s = spec_of(2, 1);

	s.commit_policy = _i ? WB_COMMIT_ALL_ENGINES : WB_COMMIT_EACH_ENGINE;
	make(&s, 77);
	up(agent(1, "train-a", &t0, 1));
	up(agent(2, "train-b", &t1, 1));
	up(agent(3, "roll", &e1, 1));
	blobs(1, 1);
	blobs(10, 12);
	planned(1, 99);
	ready(1, 1, 1);
	ready(2, 1, 1);
	ready(3, 1, 1);
	transfer(6, false, 0);
	did(false);
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 2, false), 0);
	up(agent(4, "train-b", &t1, 1));
	ck_assert_str_eq(did(false), "plan(2)");
	planned(2, 98);
	ck_assert_str_eq(did(false), "");
	later(5 * S);
	ck_assert_str_eq(did(false), _i ? "send(1:1.2) send(3:1.2) send(4:1.2)" : "");
}
END_TEST

START_TEST(newer_transfer_overtakes_a_feed)
{
	size_t n;

	run_two_engines();
	engine("e2", WB_ENGINE_COMMITTED, 6, false);
	wb_reconcile_feeds(r, &n);
	ck_assert_uint_eq(n, 1);
	transfer(7, false, 0);
	wb_reconcile_feeds(r, &n);
	ck_assert_uint_eq(n, 0);
	ck_assert_str_eq(cond("Ready", NULL, NULL), "True");
	engine("e1", WB_ENGINE_COMMITTED, 7, false);
	engine("e2", WB_ENGINE_COMMITTED, 7, false);
	transfer(7, true, WB_RESULT_SUCCEEDED);
	ck_assert_int_eq(field("transfer", NULL), 7);
	ck_assert_int_eq(field("lastTransfer", "endToEndMilliseconds"), 188);
	ck_assert_int_eq(field("lastTransfer", "throughputMegabitsPerSecond"), 10000);
}
END_TEST

START_TEST(agent_back_within_the_timeout_changes_nothing)
{
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12);
	struct wb_reconcile_agent a;

	run_one_needed();
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 2, false), 0);
	ck_assert_str_eq(did(false), "");
	ck_assert_uint_eq(wb_reconcile_due_ns(r), now.ns + 15 * S);
	now.ns += 14 * S;
	a = agent(12, "roll-a", &e1, 1);
	a.instance = 2;
	a.heard_term = 1;
	a.heard_operator = 77;
	up(a);
	ck_assert_str_eq(did(false), "activate(12:1.1)");
	ck_assert_uint_eq(wb_reconcile_term(r), 1);
}
END_TEST

START_TEST(agent_gone_for_longer_is_lost)
{
	run_one_needed();
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 2, false), 0);
	later(15 * S);
	ck_assert_str_eq(did(false), "event(AgentLost) plan(2)");
}
END_TEST

START_TEST(restarted_agent_replaces_itself_at_once)
{
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12);
	struct wb_reconcile_agent a;

	run_one_needed();
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 2, false), 0);
	a = agent(12, "roll-a", &e1, 1);
	up(a);
	ck_assert_str_eq(did(false), "plan(2)");
	planned(2, 99);
	ck_assert_str_eq(did(false), "send(1:1.2) send(3:1.2) send(12:1.2)");
}
END_TEST

START_TEST(another_run_of_an_agent_takes_over)
{
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12);

	run_one_needed();
	up(agent(12, "roll-a", &e1, 1));
	ck_assert_str_eq(did(false), "plan(2)");
}
END_TEST

START_TEST(torn_engine_degrades_and_is_fed)
{
	const char *reason;

	run_two_engines();
	engine("e1", WB_ENGINE_COMMITTED, 6, false);
	engine("e2", WB_ENGINE_COMMITTED, 6, false);
	did(false);
	transfer(7, false, 0);
	engine("e2", WB_ENGINE_TORN, 7, false);
	ck_assert_str_eq(did(false), "");
	ck_assert_str_eq(cond("Degraded", &reason, NULL), "True");
	ck_assert_str_eq(reason, "EngineTorn");
	engine("e1", WB_ENGINE_COMMITTED, 7, false);
	transfer(7, true, WB_RESULT_SUCCEEDED);
	ck_assert_str_eq(did(false),
		"event(TransferCompleted) event(EngineFed) activate(1:1.1)<-e2:e1/7#1 "
		"activate(2:1.1)<-e2:e1/7#1 activate(3:1.1)<-e2:e1/7#1");
	engine("e2", WB_ENGINE_COMMITTED, 7, true);
	ck_assert_str_eq(cond("Degraded", NULL, NULL), "False");
}
END_TEST

static const struct {
	uint64_t rail[3]; /* of the trainers' agent; 0 = unknown */
	uint32_t n_rail, rails[2]; /* and of its two workers */
	uint64_t all; /* of all rails, as older agents say it */
	uint64_t rate[2];
} rates[] = {
	{{100, 40}, 2, {1, 2}, 0, {100, 40}}, /* one each */
	{{100, 40, 60}, 3, {5, 2}, 0, {160, 40}},
	{{100, 40}, 2, {3, 2}, 0, {120, 20}}, /* the second is shared */
	{{100, 40}, 2, {0, 0}, 0, {70, 70}}, /* all of all */
	{{100, 0}, 2, {1, 2}, 0, {100, 0}}, /* one is not known */
	{{0}, 0, {0, 0}, 90, {45, 45}},
};

START_TEST(a_worker_has_its_part_of_its_rails)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e = rollout(1, "e1", 12);
	struct wb_reconcile_agent a = agent(1, "t", t, 2);
	const struct wb_reconcile_member *m;
	size_t n;

	t[1].rails = rates[_i].rails[1]; /* of the first it is said when both are there */
	a.rail = rates[_i].rail;
	a.n_rail = rates[_i].n_rail;
	a.rail_bytes_per_s = rates[_i].all;
	up(a);
	t[0].rails = rates[_i].rails[0];
	workers(1, t, 2);
	up(agent(2, "e1", &e, 1));
	blobs(1, 1);
	blobs(10, 12);
	m = wb_reconcile_members(r, &n);
	ck_assert_uint_eq(n, 3);
	for (size_t i = 0; i < n; i++) {
		ck_assert_uint_eq(m[i].rails, m[i].agent == 1 ? t[i].rails : 0);
		ck_assert_uint_eq(
			m[i].plan.rail_bytes_per_s, m[i].agent == 1 ? rates[_i].rate[i] : 0);
	}
}
END_TEST

/* Rails of two engines' agents, the interfaces whose rates these are, and what is left for one
 * worker of the first, which has one, and of the second, which has two. */
static const struct {
	uint64_t rail, nic[2]; /* 0 = another thing sets the rate */
	uint64_t rate[2];
} shared[] = {
	{90, {1, 2}, {90, 45}}, /* each its own */
	{90, {1, 1}, {30, 30}},
	{90, {0, 0}, {90, 45}}, /* caps of agents are each one's own */
	{0, {1, 1}, {0, 0}},
};

START_TEST(an_interface_of_two_agents_counts_once)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12);
	struct wb_reconcile_worker e2[] = {rollout(1, "e2", 12), rollout(2, "e3", 12)};
	struct wb_reconcile_agent a[] = {agent(2, "r1", &e1, 1), agent(3, "r2", e2, 2)};
	const struct wb_reconcile_member *m;
	size_t n;

	up(agent(1, "t", t, 2));
	for (int i = 0; i < 2; i++) {
		a[i].rail = &shared[_i].rail;
		a[i].nic = &shared[_i].nic[i];
		a[i].n_rail = 1;
		up(a[i]);
	}
	blobs(1, 1);
	blobs(10, 12);
	m = wb_reconcile_members(r, &n);
	ck_assert_uint_eq(n, 5);
	for (size_t i = 2; i < n; i++)
		ck_assert_uint_eq(m[i].plan.rail_bytes_per_s, shared[_i].rate[m[i].agent - 2]);
}
END_TEST

/* The memory of the trainers' agent and of three engines', and the nodes that the planner is told.
 */
static const struct {
	const char *memory[4];
	uint32_t encryption, node[4];
	uint64_t rails, copies; /* bytes a second of an agent's two rails, of what copies memory */
} neighbours[] = {
	{{"a", "b", "b", "a"}, WB_ENCRYPTION_NONE, {0, 1, 1, 0}, 0, 0},
	{{"a", "a", "a", "a"}, WB_ENCRYPTION_NONE, {0, 0, 0, 0}, 0, 0},
	/* One that says nothing, as earlier ones do, shares with nobody, nor with its like. */
	{{NULL, "", "b", "b"}, WB_ENCRYPTION_NONE, {0, 1, 2, 2}, 0, 0},
	{{"b", NULL, NULL, "b"}, WB_ENCRYPTION_NONE, {0, 1, 2, 0}, 0, 0},
	/* Memory is not encrypted, and so it carries nothing of this object. */
	{{"b", "b", "b", "b"}, WB_ENCRYPTION_TLS, {0, 1, 2, 3}, 0, 0},
	/* Not where rails are faster than what copies; one that is not known keeps nobody apart. */
	{{"b", "b", "b", "b"}, WB_ENCRYPTION_NONE, {0, 0, 0, 0}, 200, 100},
	{{"b", "b", "b", "b"}, WB_ENCRYPTION_NONE, {0, 1, 2, 3}, 202, 100},
	{{"b", "b", "b", "b"}, WB_ENCRYPTION_NONE, {0, 0, 0, 0}, 0, 100},
	{{"b", "b", "b", "b"}, WB_ENCRYPTION_NONE, {0, 0, 0, 0}, 202, 0},
};

START_TEST(agents_are_of_one_node_where_weights_may_go_through_memory)
{
	static const char *const name[] = {"t", "e1", "e2", "e3"};
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	const uint64_t rail[] = {neighbours[_i].rails / 2, neighbours[_i].rails / 2};
	struct wb_spec spec = spec_of(2, 1);
	const struct wb_reconcile_member *m;
	size_t n;

	spec.encryption = neighbours[_i].encryption;
	make(&spec, 1);
	for (uint32_t i = 0; i < 4; i++) {
		struct wb_reconcile_worker e = rollout(1, name[i], 12);
		struct wb_reconcile_agent a =
			i ? agent(i + 1, name[i], &e, 1) : agent(1, name[0], t, 2);

		a.memory = neighbours[_i].memory[i];
		a.memory_bytes_per_s = neighbours[_i].copies;
		a.rail_bytes_per_s = neighbours[_i].rails;
		a.rail = rail;
		a.n_rail = 2;
		up(a);
	}
	blobs(1, 1);
	blobs(10, 12);
	m = wb_reconcile_members(r, &n);
	ck_assert_uint_eq(n, 5);
	for (size_t i = 0; i < n; i++) {
		ck_assert_uint_eq(m[i].plan.domain, m[i].agent - 1);
		ck_assert_uint_eq(m[i].plan.node, neighbours[_i].node[m[i].agent - 1]);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("reconcile_plans");
	TCase *tc = tcase_create("decisions");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, lost_engine_leaves_the_plan_after_the_running_transfer);
	tcase_add_test(tc, membership_change_gives_a_new_epoch_after_the_transfer);
	tcase_add_test(tc, restarted_engine_is_fed_by_one_that_holds_the_version);
	tcase_add_loop_test(
		tc, a_transfer_whose_coordinator_is_gone_ends_with_what_its_engines_say, 0, 2);
	tcase_add_test(tc, failed_feed_is_tried_again_later);
	tcase_add_test(tc, a_feed_ends_with_its_source);
	tcase_add_loop_test(tc, a_restarted_judge_is_planned_again_while_the_transfer_runs, 0, 2);
	tcase_add_test(tc, newer_transfer_overtakes_a_feed);
	tcase_add_test(tc, agent_back_within_the_timeout_changes_nothing);
	tcase_add_test(tc, agent_gone_for_longer_is_lost);
	tcase_add_test(tc, restarted_agent_replaces_itself_at_once);
	tcase_add_test(tc, another_run_of_an_agent_takes_over);
	tcase_add_test(tc, torn_engine_degrades_and_is_fed);
	tcase_add_loop_test(tc, a_worker_has_its_part_of_its_rails, 0, (int)WB_ARRAY_SIZE(rates));
	tcase_add_loop_test(
		tc, an_interface_of_two_agents_counts_once, 0, (int)WB_ARRAY_SIZE(shared));
	tcase_add_loop_test(tc, agents_are_of_one_node_where_weights_may_go_through_memory, 0,
		(int)WB_ARRAY_SIZE(neighbours));
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return fx_run(suite());
}
