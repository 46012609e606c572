/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's decisions: reports in, actions out, as text so that a test reads like a log. */
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

START_TEST(members_maps_plan_ready_then_active)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e = rollout(1, "e1", 12);

	up(agent(1, "train", t, 2));
	ck_assert_str_eq(did(false), "");
	up(agent(2, "roll", &e, 1));
	ck_assert_str_eq(did(false), "need(M1@1) need(m10@1) need(m11@1) need(m12@2)");
	blobs(1, 1);
	blobs(10, 11);
	ck_assert_str_eq(did(false), "");
	blobs(12, 12);
	ck_assert_str_eq(did(false), "plan(1)");
	planned(1, 99);
	ck_assert_str_eq(did(false), "send(1:1.1) send(2:1.1)");
	ready(2, 1, 1);
	ck_assert_str_eq(did(false), "");
	ready(1, 1, 1);
	ck_assert_str_eq(did(false), "event(PlanActivated) activate(1:1.1) activate(2:1.1)");
	ck_assert_str_eq(cond("Ready", NULL, NULL), "True");
}
END_TEST

START_TEST(trainer_rank_0_comes_first_in_the_plan)
{
	struct wb_reconcile_worker t0 = trainer(1, 1, 10), t1 = trainer(1, 0, 11);
	struct wb_reconcile_worker e = rollout(1, "e1", 12);
	const struct wb_reconcile_member *m;
	size_t n;

	up(agent(1, "a", &t0, 1));
	up(agent(2, "b", &t1, 1));
	up(agent(3, "c", &e, 1));
	blobs(1, 1);
	blobs(10, 12);
	m = wb_reconcile_members(r, &n);
	ck_assert_uint_eq(n, 3);
	ck_assert_uint_eq(m[0].agent, 2);
	ck_assert_uint_eq(m[1].agent, 1);
	ck_assert_uint_eq(m[2].agent, 3);
	ck_assert_uint_eq(m[0].plan.domain, 0);
	ck_assert_uint_eq(m[2].plan.domain, 2);
	ck_assert_uint_eq(m[2].plan.layout, 2);
}
END_TEST

START_TEST(membership_settles_before_it_is_planned)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12), e2 = rollout(1, "e2", 12);
	struct wb_spec s = spec_of(2, 1);

	wb_reconcile_destroy(r);
	ck_assert_int_eq(
		wb_reconcile_create(
			&(struct wb_reconcile_opts){.operator_id = 7, .settle_ns = S}, &s, &r),
		0);
	up(agent(1, "train", t, 2));
	up(agent(2, "roll-a", &e1, 1));
	ck_assert_str_eq(did(false), "");
	ck_assert_uint_eq(wb_reconcile_due_ns(r), now.ns + S);
	now.ns += S / 2;
	up(agent(3, "roll-b", &e2, 1));
	ck_assert_uint_eq(wb_reconcile_due_ns(r), now.ns + S);
	later(S);
	ck_assert_str_eq(did(false), "need(M1@1) need(m10@1) need(m11@1) need(m12@2)");
}
END_TEST

START_TEST(two_workers_claiming_one_rank_are_both_named)
{
	struct wb_reconcile_worker t0 = trainer(1, 0, 10), t1 = trainer(4, 0, 11);

	up(agent(1, "pod-a", &t0, 1));
	up(agent(2, "pod-b", &t1, 1));
	ck_assert_str_eq(did(false),
		"reject(2/4: rank 0 of the trainer is claimed by two workers, pod-a/worker 1 and "
		"pod-b/worker 4: give each its own rank, or none)");
}
END_TEST

START_TEST(rank_beyond_the_count_is_refused)
{
	struct wb_reconcile_worker t = trainer(1, 2, 10);

	up(agent(1, "pod-a", &t, 1));
	ck_assert_str_eq(did(false),
		"reject(1/1: pod-a/worker 1: the trainer has 2 workers by the spec "
		"(trainer.workers), so ranks are 0 to 1)");
}
END_TEST

START_TEST(worker_too_many_is_refused)
{
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12), e2 = rollout(1, "e1", 12);

	up(agent(1, "pod-a", &e1, 1));
	up(agent(2, "pod-b", &e2, 1));
	ck_assert_str_eq(did(false), "reject(2/1: pod-b/worker 1: engine e1 already has its 1 "
				     "workers (rollout.workersPerEngine))");
}
END_TEST

START_TEST(missing_worker_is_named_at_the_deadline)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 3, 11), trainer(3, 1, 11)};
	struct wb_reconcile_worker e = rollout(1, "e1", 12);
	struct wb_spec s = spec_of(4, 2);
	const char *reason, *message;

	make(&s, 77);
	up(agent(1, "train", t, 3));
	up(agent(2, "roll", &e, 1));
	did(true);
	ck_assert_uint_eq(wb_reconcile_due_ns(r), now.ns + 600 * S);
	later(600 * S);
	ck_assert_str_eq(cond("Planned", &reason, &message), "False");
	ck_assert_str_eq(reason, "PlanDeadlineExceeded");
	ck_assert_str_eq(message,
		"no plan within spec.planDeadlineSeconds (600 s): waiting for 1 of 4 trainer "
		"workers, missing rank 2; "
		"attached: train/worker 1, train/worker 2, train/worker 3; waiting for 1 of "
		"1 engines of 2 workers; engine e1 has 1 of 2 (roll/worker 1)");
	ck_assert_ptr_nonnull(strstr(did(true), "notice(1 -110 waiting for 1 of 4 trainer"));
	ck_assert_str_eq(cond("Ready", &reason, NULL), "False");
	ck_assert_str_eq(reason, "WaitingForAgents");
}
END_TEST

START_TEST(latecomer_after_the_deadline_is_still_planned)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e = rollout(1, "e1", 12);

	up(agent(1, "train", t, 2));
	later(601 * S);
	did(false);
	up(agent(2, "roll", &e, 1));
	ck_assert_str_eq(did(false), "need(M1@1) need(m10@1) need(m11@1) need(m12@2)");
}
END_TEST

START_TEST(different_manifests_are_fetched_for_the_planner_to_compare)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e = rollout(1, "e1", 12);
	struct wb_reconcile_planned p = {.job = 1,
		.rc = WB_EPLAN,
		.sentence = "workers describe different checkpoints: kv_buffer_cast: only rollout"};
	const char *reason, *message;

	e.manifest = dig(2);
	up(agent(1, "train", t, 2));
	up(agent(2, "roll", &e, 1));
	ck_assert_str_eq(did(false), "need(M1@1) need(m10@1) need(m11@1) need(M2@2) need(m12@2)");
	blobs(1, 2);
	blobs(10, 12);
	ck_assert_str_eq(did(false), "plan(1)");
	ck_assert_int_eq(wb_reconcile_planned(r, now, &p), 0);
	ck_assert_str_eq(did(false), "event(PlanFailed)");
	ck_assert_str_eq(cond("Planned", &reason, &message), "False");
	ck_assert_str_eq(reason, "TensorMismatch");
	ck_assert_ptr_nonnull(strstr(message, "kv_buffer_cast: only rollout"));
}
END_TEST

START_TEST(planner_refusal_reaches_everybody_and_is_not_repeated)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e = rollout(1, "e1", 12);
	struct wb_reconcile_planned p = {
		.job = 1, .rc = WB_EPLAN, .sentence = "tensor x is needed and nobody has it"};

	up(agent(1, "train", t, 2));
	up(agent(2, "roll", &e, 1));
	blobs(1, 1);
	blobs(10, 12);
	did(true);
	ck_assert_int_eq(wb_reconcile_planned(r, now, &p), 0);
	ck_assert_str_eq(did(true), "event(PlanFailed) "
				    "notice(1 -4002 tensor x is needed and nobody has it) "
				    "notice(2 -4002 tensor x is needed and nobody has it)");
	later(10 * S);
	ck_assert_str_eq(did(true), "");
	/* Another layout on the rollout side: try again. */
	workers(2, NULL, 0);
	e.id = 2;
	e.map = dig(13);
	workers(2, &e, 1);
	ck_assert_str_eq(did(false), "need(m13@2)");
}
END_TEST

START_TEST(agent_that_cannot_take_the_plan_is_named)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e = rollout(1, "e1", 12);
	const char *reason, *message;

	up(agent(1, "train", t, 2));
	up(agent(2, "roll", &e, 1));
	blobs(1, 1);
	blobs(10, 12);
	planned(1, 99);
	ck_assert_int_eq(wb_reconcile_ready(r, now, 2, (struct wb_reconcile_epoch){1, 1}, -ENOMEM,
				 "needs 9 GiB, the limit is 8 GiB"),
		0);
	ck_assert_str_eq(cond("Planned", &reason, &message), "False");
	ck_assert_str_eq(reason, "MemoryLimitTooSmall");
	ck_assert_str_eq(
		message, "agent roll cannot take the plan: needs 9 GiB, the limit is 8 GiB");
	/* Workers end when they hear it, and come again: the reason is still told. */
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 2, true), 0);
	ck_assert_str_eq(cond("Planned", &reason, &message), "False");
	ck_assert_str_eq(reason, "MemoryLimitTooSmall");
	ck_assert_str_eq(message,
		"agent roll cannot take the plan: needs 9 GiB, the limit is 8 GiB; now: waiting "
		"for members");
}
END_TEST

static const struct {
	int rc;
	const char *reason;
} refusals[] = {
	{-ENOMEM, "MemoryLimitTooSmall"},
	{-ENOSPC, "MemoryLimitTooSmall"},
	{-ENODEV, "NoUsableDevice"},
	{-EAFNOSUPPORT, "NoCommonAddressFamily"},
	{-EPROTONOSUPPORT, "NoCommonTransport"},
	{-EMFILE, "OpenFilesLimitTooSmall"},
	{-EINVAL, "PlanRefused"},
};

START_TEST(a_refusal_of_an_agent_has_a_word)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e = rollout(1, "e1", 12);
	const char *reason, *message;

	up(agent(1, "train", t, 2));
	up(agent(2, "roll", &e, 1));
	blobs(1, 1);
	blobs(10, 12);
	planned(1, 99);
	ck_assert_int_eq(wb_reconcile_ready(r, now, 2, (struct wb_reconcile_epoch){1, 1},
				 refusals[_i].rc, "why"),
		0);
	ck_assert_str_eq(cond("Planned", &reason, &message), "False");
	ck_assert_str_eq(reason, refusals[_i].reason);
	ck_assert_str_eq(message, "agent roll cannot take the plan: why");
}
END_TEST

START_TEST(agents_not_ready_are_named_at_the_deadline)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e = rollout(1, "e1", 12);
	const char *reason, *message;

	up(agent(1, "train", t, 2));
	up(agent(2, "roll", &e, 1));
	blobs(1, 1);
	blobs(10, 12);
	planned(1, 99);
	ready(1, 1, 1);
	later(600 * S);
	ck_assert_str_eq(cond("Planned", &reason, &message), "False");
	ck_assert_str_eq(reason, "PlanDeadlineExceeded");
	ck_assert_str_eq(message, "the plan is sent; READY missing from agent roll");
}
END_TEST

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

START_TEST(torn_engines_are_counted)
{
	const char *reason, *message;

	run_two_engines();
	engine("e2", WB_ENGINE_TORN, 6, false);
	ck_assert_str_eq(cond("Degraded", &reason, &message), "True");
	ck_assert_str_eq(reason, "EngineTorn");
	ck_assert_ptr_nonnull(strstr(message, "engine e2 holds a mix of two versions"));
	engine("e1", WB_ENGINE_TORN, 6, false);
	ck_assert_str_eq(cond("Degraded", &reason, &message), "True");
	ck_assert_ptr_nonnull(strstr(message, "2 of 2 engines, e1 among them, hold a mix"));
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

START_TEST(term_is_above_every_term_heard)
{
	struct wb_reconcile_worker t = trainer(1, 0, 10);
	struct wb_reconcile_agent a = agent(1, "a", &t, 1);

	a.heard_term = 9;
	a.heard_operator = 5;
	up(a);
	ck_assert_uint_eq(wb_reconcile_term(r), 10);
	a = agent(2, "b", NULL, 0);
	a.heard_term = 10;
	a.heard_operator = 77; /* us */
	up(a);
	ck_assert_uint_eq(wb_reconcile_term(r), 10);
	a = agent(3, "c", NULL, 0);
	a.heard_term = 10;
	a.heard_operator = 5;
	up(a);
	ck_assert_uint_eq(wb_reconcile_term(r), 11);
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

static const char *state_of_e1(void)
{
	static char text[32];
	json_t *o = wb_reconcile_status(r), *e = json_array_get(json_object_get(o, "engines"), 0);

	ck_assert_str_eq(json_string_value(json_object_get(e, "name")), "e1");
	snprintf(text, sizeof(text), "%s", json_string_value(json_object_get(e, "state")));
	json_decref(o);
	return text;
}

/* Its pods were made again, as one does. */
START_TEST(state_of_an_engine_goes_with_the_workers_it_was_true_of)
{
	enum wb_engine_state said = _i ? WB_ENGINE_TORN : WB_ENGINE_COMMITTED;
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12);

	run_two_engines();
	engine("e1", said, 6, false);
	ck_assert_str_eq(state_of_e1(), wb_word(&wb_engine_state_words, said));
	up(agent(12, "roll-a", &e1, 1));
	ck_assert_str_eq(state_of_e1(), "Idle");
	ck_assert_str_eq(cond("Degraded", NULL, NULL), "False");
}
END_TEST

START_TEST(status_transfer_never_falls_and_reports_count_once)
{
	run_two_engines();
	engine("e1", WB_ENGINE_COMMITTED, 9, false);
	engine("e2", WB_ENGINE_COMMITTED, 8, false);
	transfer(9, true, WB_RESULT_SUCCEEDED);
	transfer(8, true, WB_RESULT_ABORTED);
	transfer(9, true, WB_RESULT_SUCCEEDED);
	ck_assert_int_eq(field("transfer", NULL), 9);
	ck_assert_int_eq(field("lastTransfer", "transfer"), 9);
	{
		json_t *o = wb_reconcile_status(r), *list = json_object_get(o, "recentTransfers");

		ck_assert_uint_eq(json_array_size(list), 2);
		json_decref(o);
	}
	for (uint64_t t = 10; t < 30; t++)
		transfer(t, true, WB_RESULT_ABORTED);
	{
		json_t *o = wb_reconcile_status(r), *list = json_object_get(o, "recentTransfers");

		ck_assert_uint_eq(json_array_size(list), 10);
		json_decref(o);
	}
	ck_assert_str_eq(cond("UpToDate", NULL, NULL), "False");
}
END_TEST

START_TEST(suspended_object_is_not_ready)
{
	struct wb_spec s = spec_of(2, 1);
	const char *reason;

	run_two_engines();
	s.engines = 2;
	s.suspend = true;
	ck_assert_int_eq(wb_reconcile_spec(r, now, &s), 0);
	ck_assert_str_eq(cond("Ready", &reason, NULL), "False");
	ck_assert_str_eq(reason, "Suspended");
}
END_TEST

START_TEST(transition_time_changes_with_the_status_only)
{
	json_t *a, *b, *c;

	run_two_engines();
	a = wb_reconcile_status(r);
	now.wall_ns += 100 * S;
	now.ns += S;
	transfer(6, false, 0); /* Ready stays True, the reason changes */
	b = wb_reconcile_status(r);
	c = json_array_get(json_object_get(a, "conditions"), 0);
	ck_assert(json_equal(json_object_get(c, "lastTransitionTime"),
		json_object_get(json_array_get(json_object_get(b, "conditions"), 0),
			"lastTransitionTime")));
	ck_assert(!json_equal(c, json_array_get(json_object_get(b, "conditions"), 0)));
	json_decref(a);
	json_decref(b);
}
END_TEST

static struct wb_reconcile_worker random_worker(struct wb_rng *rng, uint32_t id, const char *eng)
{
	return wb_rng_below(rng, 2) ? rollout(id, eng, 12)
				    : trainer(id, (int64_t)wb_rng_below(rng, 3) - 1, 10);
}

/* Random reports: nothing crashes, epochs rise, and status.transfer never falls. */
START_TEST(random_reports_keep_the_invariants)
{
	uint64_t seed = 1000 + (uint64_t)_i;
	struct wb_rng rng = {seed};
	struct wb_reconcile_epoch last = {0};
	uint64_t top = 0;
	uint32_t next_id = 1;

	printf("seed %llu\n", (unsigned long long)seed);
	for (unsigned step = 0; step < 400; step++) {
		char name[16], eng[16];
		uint32_t id = next_id > 1 ? 1 + (uint32_t)wb_rng_below(&rng, next_id) : 1;
		struct wb_reconcile_worker w[2];
		struct wb_reconcile_agent a;
		struct wb_reconcile_action act;
		struct wb_reconcile_epoch e;

		now.ns += wb_rng_below(&rng, 4 * S);
		snprintf(name, sizeof(name), "p%u", (unsigned)wb_rng_below(&rng, 5));
		snprintf(eng, sizeof(eng), "e%u", (unsigned)wb_rng_below(&rng, 3));
		w[0] = random_worker(&rng, 1 + (uint32_t)wb_rng_below(&rng, 2), eng);
		w[1] = random_worker(&rng, 3 - w[0].id, eng);
		switch (wb_rng_below(&rng, 8)) {
		case 0:
		case 1:
			a = agent(next_id, name, w, 1 + wb_rng_below(&rng, 2));
			a.instance = 100 + wb_rng_below(&rng, 10);
			a.heard_term = wb_rng_below(&rng, 4);
			next_id++;
			up(a);
			break;
		case 2:
			wb_reconcile_agent_down(r, now, id, wb_rng_below(&rng, 2));
			break;
		case 3:
		case 4:
			workers(id, w, wb_rng_below(&rng, 3));
			break;
		case 5:
			engine(eng, WB_ENGINE_COMMITTED + wb_rng_below(&rng, 5),
				wb_rng_below(&rng, 20), wb_rng_below(&rng, 2));
			break;
		case 6:
			transfer(1 + wb_rng_below(&rng, 20), wb_rng_below(&rng, 2),
				(enum wb_result)wb_rng_below(&rng, 5));
			break;
		default:
			wb_reconcile_tick(r, now);
		}
		while (wb_reconcile_take(r, &act)) {
			wb_free(act.sentence);
			if (act.what == WB_DO_NEED_BLOB)
				wb_reconcile_blob(r, now, act.digest, 0, NULL);
			else if (act.what == WB_DO_PLAN)
				planned(act.job, 50 + act.job);
			else if (act.what == WB_DO_SEND_PLAN)
				ready(act.agent, act.epoch.term, act.epoch.number);
		}
		e = wb_reconcile_active(r, NULL);
		ck_assert(e.term > last.term || (e.term == last.term && e.number >= last.number));
		last = e;
		ck_assert_uint_ge(wb_reconcile_term(r), e.term);
		{
			json_t *o = wb_reconcile_status(r), *t = json_object_get(o, "transfer");

			ck_assert_uint_ge(t ? (uint64_t)json_integer_value(t) : 0, top);
			top = t ? (uint64_t)json_integer_value(t) : 0;
			json_decref(o);
		}
	}
}
END_TEST

START_TEST(reports_survive_each_failed_allocation)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e = rollout(1, "e1", 12);
	struct wb_reconcile_agent a = agent(1, "train", t, 2), b = agent(2, "roll", &e, 1);
	struct wb_spec s = spec_of(2, 1);
	bool is_done = false;

	for (uint64_t at = 1; !is_done; at++) {
		make(&s, 77);
		wb_mem_fail_at(at);
		wb_reconcile_agent_up(r, now, &a);
		wb_reconcile_agent_up(r, now, &b);
		is_done = !wb_mem_failed();
		wb_mem_fail_at(0);
		/* What was not possible then is done at the next report. */
		up(a);
		up(b);
		did(false);
		blobs(1, 1);
		blobs(10, 12);
		planned(1, 99);
		ready(1, 1, 1);
		ready(2, 1, 1);
		ck_assert_uint_eq(wb_reconcile_active(r, NULL).number, 1);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("reconcile");
	TCase *tc = tcase_create("decisions");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, members_maps_plan_ready_then_active);
	tcase_add_test(tc, trainer_rank_0_comes_first_in_the_plan);
	tcase_add_test(tc, membership_settles_before_it_is_planned);
	tcase_add_test(tc, two_workers_claiming_one_rank_are_both_named);
	tcase_add_test(tc, rank_beyond_the_count_is_refused);
	tcase_add_test(tc, worker_too_many_is_refused);
	tcase_add_test(tc, missing_worker_is_named_at_the_deadline);
	tcase_add_test(tc, latecomer_after_the_deadline_is_still_planned);
	tcase_add_test(tc, different_manifests_are_fetched_for_the_planner_to_compare);
	tcase_add_test(tc, planner_refusal_reaches_everybody_and_is_not_repeated);
	tcase_add_test(tc, agent_that_cannot_take_the_plan_is_named);
	tcase_add_loop_test(tc, a_refusal_of_an_agent_has_a_word, 0, (int)WB_ARRAY_SIZE(refusals));
	tcase_add_test(tc, agents_not_ready_are_named_at_the_deadline);
	tcase_add_test(tc, lost_engine_leaves_the_plan_after_the_running_transfer);
	tcase_add_test(tc, membership_change_gives_a_new_epoch_after_the_transfer);
	tcase_add_test(tc, restarted_engine_is_fed_by_one_that_holds_the_version);
	tcase_add_test(tc, torn_engines_are_counted);
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
	tcase_add_test(tc, term_is_above_every_term_heard);
	tcase_add_test(tc, torn_engine_degrades_and_is_fed);
	tcase_add_loop_test(tc, state_of_an_engine_goes_with_the_workers_it_was_true_of, 0, 2);
	tcase_add_test(tc, status_transfer_never_falls_and_reports_count_once);
	tcase_add_test(tc, suspended_object_is_not_ready);
	tcase_add_test(tc, transition_time_changes_with_the_status_only);
	tcase_add_loop_test(tc, random_reports_keep_the_invariants, 0, 20);
	tcase_add_test(tc, reports_survive_each_failed_allocation);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return fx_run(suite());
}
