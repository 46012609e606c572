/* SPDX-License-Identifier: Apache-2.0 */
/* What is refused, who is missing or not ready: named in a sentence, in the status and to the
 * agents. */
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

/* In another script, cut at each place of a character: what the status must have is there. */
START_TEST(a_reason_that_is_cut_in_a_character_is_told)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e = rollout(1, "e1", 12);
	char why[900];
	json_t *status, *c;
	size_t i;

	memset(why, 'x', (size_t)_i);
	for (i = (size_t)_i; i + 3 < sizeof(why); i += 3)
		memcpy(why + i, "\xe6\xa8\xa1", 3);
	why[i] = '\0';
	up(agent(1, "train", t, 2));
	up(agent(2, "roll", &e, 1));
	blobs(1, 1);
	blobs(10, 12);
	planned(1, 99);
	ck_assert_int_eq(
		wb_reconcile_ready(r, now, 2, (struct wb_reconcile_epoch){1, 1}, -EINVAL, why), 0);
	status = wb_reconcile_status(r);
	json_array_foreach(json_object_get(status, "conditions"), i, c)
		ck_assert_ptr_nonnull(json_object_get(c, "message"));
	json_decref(status);
}
END_TEST

START_TEST(more_trainers_than_the_spec_has_are_counted_and_named)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e = rollout(1, "e1", 12);
	struct wb_spec s = spec_of(1, 1);
	const char *message;

	up(agent(1, "train", t, 2));
	up(agent(2, "roll", &e, 1));
	did(true);
	ck_assert_int_eq(wb_reconcile_spec(r, now, &s), 0);
	did(true);
	ck_assert_str_eq(cond("MembersConnected", NULL, &message), "False");
	ck_assert_str_eq(message,
		"2 trainer workers are attached, and spec.trainer.workers is 1: end those that are "
		"too many, or raise it; attached: train/worker 1, train/worker 2");
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

static Suite *suite(void)
{
	Suite *s = suite_create("reconcile_refusals");
	TCase *tc = tcase_create("decisions");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, two_workers_claiming_one_rank_are_both_named);
	tcase_add_test(tc, rank_beyond_the_count_is_refused);
	tcase_add_test(tc, worker_too_many_is_refused);
	tcase_add_test(tc, missing_worker_is_named_at_the_deadline);
	tcase_add_test(tc, latecomer_after_the_deadline_is_still_planned);
	tcase_add_test(tc, planner_refusal_reaches_everybody_and_is_not_repeated);
	tcase_add_test(tc, agent_that_cannot_take_the_plan_is_named);
	tcase_add_loop_test(tc, a_reason_that_is_cut_in_a_character_is_told, 0, 3);
	tcase_add_test(tc, more_trainers_than_the_spec_has_are_counted_and_named);
	tcase_add_loop_test(tc, a_refusal_of_an_agent_has_a_word, 0, (int)WB_ARRAY_SIZE(refusals));
	tcase_add_test(tc, agents_not_ready_are_named_at_the_deadline);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return fx_run(suite());
}
