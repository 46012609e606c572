/* SPDX-License-Identifier: Apache-2.0 */
/* How long an operator believes that a transfer runs, and how long a plan waits for that. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_reconcile.h"

/* An engine that joins wants another plan; up to where only the running transfer is in its way. */
static void join_up_to_sending(void)
{
	struct wb_reconcile_worker e3 = rollout(1, "e3", 12);

	up(agent(4, "roll-c", &e3, 1));
	ck_assert_str_eq(did(false), "plan(2)");
	planned(2, 98);
}

static const char sent[] = "send(1:1.2) send(2:1.2) send(3:1.2) send(4:1.2)";

static void begins(uint64_t t, uint64_t term, uint64_t number)
{
	struct wb_reconcile_transfer_report rep = {.agent = "train",
		.instance = 1,
		.epoch = {term, number},
		.transfer = t,
		.version = (int64_t)t,
		.culprit.worker = WB_RECONCILE_NONE};

	ck_assert_int_eq(wb_reconcile_transfer(r, now, &rep), 0);
}

/* Agents of an object that was made again go on by the plan of the one before. */
START_TEST(transfer_by_a_plan_of_another_object_is_not_this_ones)
{
	static const struct wb_reconcile_epoch of[] = {{0, 0}, {7, 3}};

	run_two_engines();
	begins(5, of[_i].term, of[_i].number);
	ck_assert_int_eq(field("currentTransfer", "transfer"), -1);
	ck_assert_uint_eq(
		wb_reconcile_transfer_seen(r), 5); /* no number is used twice all the same */
	join_up_to_sending();
	ck_assert_str_eq(did(false), sent);
}
END_TEST

START_TEST(plan_waits_for_transfers_no_longer_than_their_deadlines)
{
	struct wb_spec spec = spec_of(2, 1);
	uint64_t bound = ((uint64_t)spec.transfer_deadline_s + spec.engine_step_deadline_s) * S;
	uint64_t from;

	run_two_engines();
	transfer(5, false, 0);
	join_up_to_sending();
	ck_assert_str_eq(did(false), "");
	from = now.ns;
	/* The end of none is told, and each is the last one's successor. */
	for (uint64_t t = 6; now.ns + 60 * S < from + bound; t++) {
		later(60 * S);
		transfer(t, false, 0);
		ck_assert_str_eq(did(false), "");
	}
	later(from + bound - now.ns - 1);
	ck_assert_str_eq(did(false), "");
	later(1);
	ck_assert_str_eq(did(false), sent);
}
END_TEST

START_TEST(transfer_that_all_engines_have_ended_does_not_run_for_long)
{
	const char *message;

	run_two_engines();
	transfer(5, false, 0);
	engine("e1", WB_ENGINE_COMMITTED, 5, false);
	later(60 * S);
	ck_assert_int_eq(field("currentTransfer", "transfer"), 5); /* e2 has not said so */
	engine("e2", WB_ENGINE_ABORTED, 5, false);
	join_up_to_sending();
	later(5 * S - 1);
	ck_assert_int_eq(field("currentTransfer", "transfer"), 5);
	ck_assert_str_eq(did(false), "");
	later(1);
	ck_assert_int_eq(field("currentTransfer", "transfer"), -1);
	ck_assert_int_eq(field("lastTransfer", "transfer"), 5);
	ck_assert_str_eq(did(false), "event(TransferCompleted) send(1:1.2) send(2:1.2) send(3:1.2) "
				     "send(4:1.2)");
	ck_assert_str_eq(cond("UpToDate", NULL, &message), "False");
	/* The coordinator's own word counts when it comes, once. */
	transfer(5, true, WB_RESULT_TORN);
	ck_assert_str_eq(did(false), "event(TransferFailed)");
	transfer(5, true, WB_RESULT_ABORTED);
	ck_assert_str_eq(did(false), "");
}
END_TEST

/* The action that tells a transfer's end: its result for metrics, and the sentence of its event. */
static const char *end_told(void)
{
	static char text[1200];
	struct wb_reconcile_action a;

	text[0] = '\0';
	while (wb_reconcile_take(r, &a)) {
		if (a.what == WB_DO_EVENT && a.result)
			snprintf(text, sizeof(text), "%s: %s", a.result, a.sentence);
		wb_free(a.sentence);
	}
	return text;
}

#define MIX " holds a mix of two versions until the next transfer: "

/* What engines hold since says nothing of an earlier transfer. */
static const struct {
	enum wb_engine_state e1, e2;
	bool is_later; /* and then both had another one */
	const char *result;
	const char *torn; /* what the message says of it */
} ends[] = {
	{WB_ENGINE_COMMITTED, WB_ENGINE_COMMITTED, false, "Succeeded", ""},
	{WB_ENGINE_COMMITTED, WB_ENGINE_ABORTED, false, "Succeeded", ""},
	{WB_ENGINE_ABORTED, WB_ENGINE_ABORTED, false, "Aborted", ""},
	{WB_ENGINE_ABORTED, WB_ENGINE_ABORTED, true, "Aborted", ""},
	{WB_ENGINE_IDLE, WB_ENGINE_ABORTED, false, "Unknown", ""},
	{WB_ENGINE_IDLE, WB_ENGINE_IDLE, true, "Unknown", ""},
	{WB_ENGINE_COMMITTED, WB_ENGINE_TORN, false, "PartlyTorn", "1 of 2 Torn: engine e2" MIX},
	{WB_ENGINE_ABORTED, WB_ENGINE_TORN, false, "Torn", "1 of 2 Torn: engine e2" MIX},
	{WB_ENGINE_TORN, WB_ENGINE_TORN, false, "Torn", "2 of 2 Torn: engine e1" MIX},
};

START_TEST(transfer_whose_coordinator_is_gone_ended_as_each_engine_said_of_it)
{
	char told[256];
	json_t *o;

	run_two_engines();
	transfer(5, false, 0);
	if (ends[_i].e1 != WB_ENGINE_IDLE)
		engine("e1", ends[_i].e1, 5, false);
	if (ends[_i].e2 != WB_ENGINE_IDLE)
		engine("e2", ends[_i].e2, 5, false);
	for (int i = 1; ends[_i].is_later && i <= 2; i++)
		engine(i == 1 ? "e1" : "e2", WB_ENGINE_COMMITTED, 6, false);
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 1, true), 0);
	later(5 * S);
	o = wb_reconcile_status(r);
	ck_assert_str_eq(
		json_string_value(json_object_get(json_object_get(o, "lastTransfer"), "result")),
		ends[_i].result);
	json_decref(o);
	snprintf(told, sizeof(told),
		"%s: transfer 5, version 50: %s: %sits coordinator, agent train, is gone",
		ends[_i].result, ends[_i].result, ends[_i].torn);
	ck_assert_str_eq(end_told(), told);
}
END_TEST

START_TEST(transfer_of_which_nobody_speaks_ends_with_its_deadline)
{
	struct wb_spec spec = spec_of(2, 1);

	run_two_engines();
	transfer(5, false, 0);
	later(((uint64_t)spec.transfer_deadline_s + spec.engine_step_deadline_s) * S - 1);
	ck_assert_int_eq(field("currentTransfer", "transfer"), 5);
	later(1);
	ck_assert_int_eq(field("currentTransfer", "transfer"), -1);
	ck_assert_str_eq(did(false), "event(TransferFailed)"); /* Unknown; it is not forgotten */
	ck_assert_int_eq(field("lastTransfer", "transfer"), 5);
}
END_TEST

/* A report may come before the list of workers by which an agent is known here. */
START_TEST(coordinator_that_is_not_known_yet_is_not_gone)
{
	struct wb_reconcile_transfer_report rep = {.agent = "train",
		.instance = 9,
		.transfer = 5,
		.version = 5,
		.culprit.worker = WB_RECONCILE_NONE};
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_agent a = agent(9, "train", t, 2);

	run_two_engines();
	rep.epoch = wb_reconcile_active(r, NULL);
	ck_assert_int_eq(wb_reconcile_transfer(r, now, &rep), 0);
	later(S);
	up(a);
	later(10 * S);
	ck_assert_int_eq(field("currentTransfer", "transfer"), 5);
}
END_TEST

START_TEST(transfer_of_the_stored_status_is_over_when_its_end_is_told)
{
	json_t *stored =
		json_pack("{s:i, s:{s:i}}", "transfer", 4, "currentTransfer", "transfer", 5);

	ck_assert_int_eq(wb_reconcile_restore(r, now, stored), 0);
	json_decref(stored);
	later(S);
	ck_assert_int_eq(field("currentTransfer", "transfer"), 5);
	transfer(4, true, WB_RESULT_SUCCEEDED);
	ck_assert_int_eq(field("currentTransfer", "transfer"), 5);
	transfer(5, true, WB_RESULT_SUCCEEDED);
	ck_assert_int_eq(field("currentTransfer", "transfer"), -1);
}
END_TEST

/* In the condition, and to workers that wait. */
static void holds_up(const char *who)
{
	const char *message, *all;

	cond("Planned", NULL, &message);
	ck_assert_msg(strstr(message, who) != NULL, "%s, not %s", message, who);
	all = did(true);
	ck_assert_msg(strstr(all, who) != NULL, "%s, not %s", all, who);
}

START_TEST(who_holds_a_plan_up_is_named)
{
	struct wb_reconcile_worker e3 = rollout(1, "e3", 13), e4 = rollout(1, "e4", 13);

	run_two_engines();
	up(agent(4, "roll-c", &e3, 1));
	holds_up("reading source maps of agent roll-c");
	transfer(5, false, 0);
	blobs(13, 13);
	planned(2, 98);
	holds_up("the plan waits for transfer 5 to end: not ended on engines e1, e2");
	engine("e1", WB_ENGINE_COMMITTED, 5, false);
	holds_up("the plan waits for transfer 5 to end: not ended on engine e2");
	engine("e2", WB_ENGINE_COMMITTED, 5, false);
	holds_up("the plan waits for transfer 5 to end: its coordinator, agent train, has not said "
		 "that "
		 "it has");
	transfer(5, true, WB_RESULT_SUCCEEDED);
	ready(1, 1, 2);
	holds_up("the plan is sent; READY missing from agents roll-a, roll-b, roll-c");
	ready(2, 1, 2);
	ready(3, 1, 2);
	holds_up("the plan is sent; READY missing from agent roll-c");
	ready(4, 1, 2);
	did(true);
	/* e3 is fed while another engine joins. */
	up(agent(5, "roll-d", &e4, 1));
	planned(3, 97);
	holds_up("the plan waits until engine e3 has version 50 from engine e1");
	engine("e3", WB_ENGINE_COMMITTED, 5, true);
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 5, false), 0);
	holds_up("roll-d");
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("current");
	TCase *tc = tcase_create("current");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_loop_test(tc, transfer_by_a_plan_of_another_object_is_not_this_ones, 0, 2);
	tcase_add_test(tc, plan_waits_for_transfers_no_longer_than_their_deadlines);
	tcase_add_test(tc, transfer_that_all_engines_have_ended_does_not_run_for_long);
	tcase_add_loop_test(tc, transfer_whose_coordinator_is_gone_ended_as_each_engine_said_of_it,
		0, WB_ARRAY_SIZE(ends));
	tcase_add_test(tc, transfer_of_which_nobody_speaks_ends_with_its_deadline);
	tcase_add_test(tc, coordinator_that_is_not_known_yet_is_not_gone);
	tcase_add_test(tc, transfer_of_the_stored_status_is_over_when_its_end_is_told);
	tcase_add_test(tc, who_holds_a_plan_up_is_named);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return fx_run(suite());
}
