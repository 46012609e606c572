/* SPDX-License-Identifier: Apache-2.0 */
/* Budgets of the operator's endpoint: tenants who take too much, and others who are to notice
 * nothing. */
#include "operator-shim/serve/metrics.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_tenants.h"

START_TEST(agent_above_the_budget_is_refused_and_comes_in_when_there_is_room)
{
	start_tenants("agents=100/2/2", 0);
	must_put("evil/a");
	hello_of(&wires[0], "x0", "evil/a");
	hello_of(&wires[1], "x1", "evil/a");
	hello_of(&wires[2], "x2", "evil/a");
	welcomed(&wires[0]);
	welcomed(&wires[1]);
	refused(&wires[2], "WeightTransfer evil/a has 2 connected agents, 1 more would be above "
			   "the budget of 2: use less, or raise the operator's memory limit");
	condition_says("evil/a", "MembersConnected", "BudgetExceeded",
		"(resources.limits.memory) or --budget agents (chart value budgets.agents)");
	ck_assert_ptr_nonnull(strstr(events, "evil/a BudgetExceeded"));
	end_wire(&wires[2]);
	victim_gets_its_plan();
	end_wire(&wires[0]);
	ck_assert_uint_eq(budget_used(WB_BUDGET_AGENTS), 1);
	hello_of(&wires[2], "x2", "evil/a");
	welcomed(&wires[2]);
	end_wire(&wires[1]);
	end_wire(&wires[2]);
	ck_assert_uint_eq(budget_used(WB_BUDGET_AGENTS), 0);
	finish_tenants();
}
END_TEST

START_TEST(workers_above_the_budget_are_refused_with_their_agent)
{
	start_tenants("workers=100/8/8", 0);
	must_put("evil/a");
	hello_of(&wires[0], "x0", "evil/a");
	workers_of(&wires[0], "evil/a", 2, manifest_digest, map_digest, 8);
	workers_of(&wires[0], "evil/a", 2, manifest_digest, map_digest, 3);
	ck_assert_uint_eq(budget_used(WB_BUDGET_WORKERS), 3);
	workers_of(&wires[0], "evil/a", 2, manifest_digest, map_digest, 9);
	refused(&wires[0], "WeightTransfer evil/a has 3 workers of connected agents, 6 more");
	victim_gets_its_plan();
	end_wire(&wires[0]);
	ck_assert_uint_eq(budget_used(WB_BUDGET_WORKERS), 0);
	finish_tenants();
}
END_TEST

/* The sender's word is enough to refuse, never to take memory. */
START_TEST(map_above_the_budget_is_refused_before_it_comes)
{
	static uint8_t part[4096];

	start_tenants("maps=8Mi/2Mi/1Mi", 0);
	must_put("evil/a");
	join_pair(&wires[0], &wires[1], "evil/a");
	content_of(&wires[0], "evil/a", 2, map_digest, UINT64_C(1) << 30, 0, part, sizeof(part));
	refused(&wires[0], "WeightTransfer evil/a has 0 KiB of manifests and source maps, 1024 MiB "
			   "more would be above the budget of 1024 KiB");
	end_wire(&wires[0]);
	condition_says("evil/a", "MembersConnected", "BudgetExceeded", "budgets.maps");
	victim_gets_its_plan();
	end_wire(&wires[1]);
	ck_assert_uint_eq(budget_used(WB_BUDGET_MAPS), manifest_bytes.len + map_bytes.len);
	finish_tenants();
}
END_TEST

START_TEST(uploads_that_are_given_up_make_room)
{
	static uint8_t part[4096];

	start_tenants("maps=8Mi/2Mi/1Mi", 0);
	must_put("evil/a");
	join_pair(&wires[0], &wires[1], "evil/a");
	content_of(&wires[0], "evil/a", 2, map_digest, 1 << 20, 0, part, sizeof(part));
	ck_assert_uint_eq(budget_used(WB_BUDGET_MAPS), 1 << 20);
	/* The next one, of the same object, waits for room and is refused. */
	content_of(&wires[0], "evil/a", 1, manifest_digest, 1 << 20, 0, part, sizeof(part));
	refused(&wires[0], "has 1024 KiB");
	end_wire(&wires[0]);
	ck_assert_uint_eq(budget_used(WB_BUDGET_MAPS), 0);
	end_wire(&wires[1]);
	finish_tenants();
}
END_TEST

START_TEST(flood_of_what_nobody_asked_for_is_ended)
{
	static uint8_t part[1 << 20];
	union wb_msg m;
	int n = 0;

	start_tenants("", 0);
	must_put("evil/a");
	hello_of(&wires[0], "x0", "evil/a");
	welcomed(&wires[0]);
	while (!wires[0].is_closed && n++ < 100)
		content_of(&wires[0], "evil/a", 2, map_digest, UINT64_C(1) << 30, 0, part,
			sizeof(part));
	ck_assert_int_le(n, 20);
	expect(&wires[0], WBP_REJECT, &m);
	wb_msg_free(WBP_REJECT, &m);
	end_wire(&wires[0]);
	finish_tenants();
}
END_TEST

/* An engine that is started again and again brings another map each time. */
START_TEST(maps_of_workers_that_left_make_room_for_others)
{
	start_tenants("maps=1Mi/64Ki/64Ki", 0);
	must_put("a/a");
	hello_of(&wires[0], "train", "a/a");
	workers_of(&wires[0], "a/a", 1, manifest_digest, map_digest, 1);
	for (unsigned i = 0; i < 40; i++) {
		static uint8_t map[8192];
		struct wb_digest d;

		memset(map, (int)i, sizeof(map));
		d = wb_digest_of(map, sizeof(map));
		hello_of(&wires[1], "roll", "a/a");
		workers_of(&wires[1], "a/a", 2, manifest_digest, d, 1);
		if (!i)
			upload(&wires[0], "a/a");
		content_of(&wires[1], "a/a", 2, d, sizeof(map), 0, map, sizeof(map));
		ck_assert_msg(!wires[1].is_closed, "map %u", i);
		workers_of(&wires[1], "a/a", 2, manifest_digest, d, 0);
		end_wire(&wires[1]);
		if (job_work)
			run_job(); /* it is no map */
	}
	ck_assert_uint_le(budget_used(WB_BUDGET_MAPS), 64 << 10);
	end_wire(&wires[0]);
	finish_tenants();
}
END_TEST

START_TEST(objects_of_a_namespace_are_bounded_and_the_sentence_says_by_what)
{
	struct wb_err err = {0};

	start_tenants("objects=8/2/1", 0);
	must_put("evil/a");
	must_put("evil/b");
	ck_assert_int_eq(put_object("evil/c", "", &err), -EDQUOT);
	ck_assert_msg(strstr(err.msg, "namespace evil has 2 WeightTransfers, 1 more would be above "
				      "the budget of 2") &&
			      strstr(err.msg, "budgets.objects"),
		"%s", err.msg);
	ck_assert_ptr_null(wb_serve_status(s, "evil/c"));
	must_put("evil/a"); /* one that is there may change */
	victim_gets_its_plan();
	wb_serve_remove(s, "evil/b", "it was deleted");
	must_put("evil/c");
	finish_tenants();
}
END_TEST

START_TEST(one_namespace_plans_one_at_a_time_and_keeps_nobody_waiting)
{
	static const char *const scopes[WB_BUDGET_SCOPES] = {"all", "namespace", "object"};
	void (*work_of)(void *), (*done_of)(void *);
	void *cookie;

	start_tenants("", 0);
	must_put("evil/a");
	must_put("evil/b");
	join_pair(&wires[0], &wires[1], "evil/a");
	upload(&wires[0], "evil/a");
	work_of = job_work;
	done_of = job_done;
	cookie = job_cookie;
	ck_assert_ptr_nonnull(work_of);
	join_pair(&wires[2], &wires[3], "evil/b");
	upload(&wires[2], "evil/b");
	ck_assert_ptr_eq(job_cookie, cookie); /* it waits */
	ck_assert_uint_eq(budget_used(WB_BUDGET_PLANNING), 1);
	victim_gets_its_plan();
	job_work = NULL;
	work_of(cookie);
	done_of(cookie);
	gets_plan_of(&wires[1]);
	ck_assert_ptr_nonnull(job_work); /* its turn */
	run_job();
	gets_plan_of(&wires[3]);
	ck_assert_uint_eq(budget_used(WB_BUDGET_PLANNING), 0);
	for (int k = 0; k < WB_BUDGET_SCOPES; k++) /* who waits for a turn is not refused */
		ck_assert(wb_metric_get(wb_serve_own_metrics(s), WB_SM_BUDGET_REFUSED,
				  WB_LABELS("planning", scopes[k])) == 0);
	for (int i = 0; i < 4; i++)
		end_wire(&wires[i]);
	finish_tenants();
}
END_TEST

START_TEST(object_that_goes_while_its_plan_waits_or_runs_leaves_nothing)
{
	start_tenants("", 0);
	must_put("evil/a");
	must_put("evil/b");
	join_pair(&wires[0], &wires[1], "evil/a");
	upload(&wires[0], "evil/a");
	join_pair(&wires[2], &wires[3], "evil/b");
	upload(&wires[2], "evil/b");
	wb_serve_remove(s, "evil/b", "it was deleted");
	wb_serve_remove(s, "evil/a", "it was deleted");
	ck_assert_uint_eq(budget_used(WB_BUDGET_PLANNING), 1); /* a thread cannot be stopped */
	ck_assert_uint_gt(budget_used(WB_BUDGET_MAPS), 0); /* and reads what it was given */
	run_job();
	ck_assert_ptr_null(job_work);
	for (int i = 0; i < 4; i++)
		end_wire(&wires[i]);
	for (int k = 0; k < WB_BUDGET_KINDS; k++)
		ck_assert_uint_eq(budget_used((enum wb_budget_kind)k), 0);
	finish_tenants();
}
END_TEST

static const struct {
	const char *overrides;
	uint64_t planning_bytes;
	const char *says;
} plans[] = {
	{"", 4096,
		"that one plan may take: raise its memory limit (resources.limits.memory) or "
		"--planning-memory (chart value planningMemory)"},
	{"plans=10Ki/1Ki/100", 0, "WeightTransfer evil/a has 0 KiB of plans"},
};

START_TEST(plan_above_the_budget_is_refused_and_tried_again)
{
	start_tenants(plans[_i].overrides, plans[_i].planning_bytes);
	must_put("evil/a");
	join_pair(&wires[0], &wires[1], "evil/a");
	upload(&wires[0], "evil/a");
	run_job();
	condition_says("evil/a", "Planned", "BudgetExceeded", plans[_i].says);
	ck_assert(!wires[0].is_closed);
	clk.now += 29 * S;
	for (int i = 0; i < 2; i++)
		agent_says(&wires[i], WBP_HEARTBEAT, &(struct wb_msg_heartbeat){0});
	wb_serve_tick(s);
	ck_assert_ptr_null(job_work);
	clk.now += 2 * S;
	wb_serve_tick(s);
	ck_assert_ptr_nonnull(job_work);
	run_job();
	end_wire(&wires[0]);
	end_wire(&wires[1]);
	finish_tenants();
}
END_TEST

static void gets_no_plan(struct wire *w)
{
	union wb_msg m;
	uint16_t type;

	while ((type = hear(w, &m)) != WBP_NONE) {
		ck_assert_int_ne(type, WBP_PLAN);
		wb_msg_free(type, &m);
	}
}

/* What became of the pair of evil/a under that budget of plans. */
enum fate { PLAN_REFUSED, MESSAGE_REFUSED, PLAN_TOLD };

static enum fate fate_under(unsigned bytes)
{
	enum fate fate = PLAN_TOLD;
	char budget[64];

	snprintf(budget, sizeof(budget), "plans=%u/%u/%u", bytes, bytes, bytes);
	start_tenants(budget, 0);
	must_put("evil/a");
	join_pair(&wires[0], &wires[1], "evil/a");
	upload(&wires[0], "evil/a");
	run_job();
	if (!strncmp(condition_of("evil/a", "Planned"), "BudgetExceeded", 14)) {
		fate = PLAN_REFUSED;
	} else if (wires[0].is_closed || wires[1].is_closed) {
		fate = MESSAGE_REFUSED;
		for (int i = 0; i < 2; i++) {
			if (!wires[i].is_closed) {
				gets_no_plan(&wires[i]); /* the one refused is missing */
				continue;
			}
			refused(&wires[i], "of plans");
			end_wire(&wires[i]);
		}
		condition_says("evil/a", "MembersConnected", "BudgetExceeded", "budgets.plans");
	} else {
		for (int i = 0; i < 2; i++)
			gets_plan_of(&wires[i]);
	}
	end_wire(&wires[0]);
	end_wire(&wires[1]);
	finish_tenants();
	return fate;
}

/* The plan and the message that tells of it are charged one after the other. */
START_TEST(plan_that_fits_while_its_message_does_not_is_told_to_nobody)
{
	enum fate fate = PLAN_REFUSED;
	unsigned seen[3] = {0};

	for (unsigned bytes = 64; bytes <= 4096; bytes += 64) {
		enum fate now = fate_under(bytes);

		ck_assert_msg(now >= fate, "less for more, at %u bytes", bytes);
		fate = now;
		seen[now]++;
	}
	ck_assert(seen[PLAN_REFUSED] && seen[MESSAGE_REFUSED] && seen[PLAN_TOLD]);
}
END_TEST

START_TEST(silent_connections_make_room_for_those_that_speak)
{
	start_tenants("connections=2", 0);
	must_put("a/a");
	open_wire(&wires[0]);
	open_wire(&wires[1]);
	open_wire(&wires[2]);
	refused(&wires[2], "2 connections that have not shown yet who they are");
	end_wire(&wires[2]);
	clk.now += 3 * S;
	hello_of(&wires[3], "x", "a/a"); /* the oldest has lingered */
	welcomed(&wires[3]);
	ck_assert(wires[0].is_closed != wires[1].is_closed);
	for (int i = 0; i < 4; i++)
		if (i != 2)
			end_wire(&wires[i]);
	ck_assert_uint_eq(budget_used(WB_BUDGET_CONNECTIONS), 0);
	finish_tenants();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("serve_budget");
	TCase *tc = tcase_create("tenants");

	tcase_add_test(tc, agent_above_the_budget_is_refused_and_comes_in_when_there_is_room);
	tcase_add_test(tc, workers_above_the_budget_are_refused_with_their_agent);
	tcase_add_test(tc, map_above_the_budget_is_refused_before_it_comes);
	tcase_add_test(tc, uploads_that_are_given_up_make_room);
	tcase_add_test(tc, flood_of_what_nobody_asked_for_is_ended);
	tcase_add_test(tc, maps_of_workers_that_left_make_room_for_others);
	tcase_add_test(tc, objects_of_a_namespace_are_bounded_and_the_sentence_says_by_what);
	tcase_add_test(tc, one_namespace_plans_one_at_a_time_and_keeps_nobody_waiting);
	tcase_add_test(tc, object_that_goes_while_its_plan_waits_or_runs_leaves_nothing);
	tcase_add_loop_test(
		tc, plan_above_the_budget_is_refused_and_tried_again, 0, WB_ARRAY_SIZE(plans));
	tcase_add_test(tc, plan_that_fits_while_its_message_does_not_is_told_to_nobody);
	tcase_add_test(tc, silent_connections_make_room_for_those_that_speak);
	suite_add_tcase(suite, tc);
	return fx_run(suite);
}
