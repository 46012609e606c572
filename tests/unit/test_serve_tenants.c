/* SPDX-License-Identifier: Apache-2.0 */
/* What one tenant sends the operator's endpoint is nothing to another: messages that do not come
 * whole, reports, maps, heartbeats. */
#include "operator-shim/serve/metrics.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_tenants.h"

/* ---- messages that do not come whole ---- */

static int begins(struct wire *w, size_t bytes)
{
	return w->ch.cb.on_head(w->ch.cb.cookie, &w->ch, bytes);
}

START_TEST(messages_that_do_not_end_are_charged_and_others_notice_nothing)
{
	start_tenants("frames=64Mi/8Mi/8Mi", 0);
	must_put("evil/a");
	for (int i = 0; i < 4; i++)
		hello_of(&wires[i], i ? i == 1 ? "x1" : i == 2 ? "x2" : "x3" : "x0", "evil/a");
	ck_assert_int_eq(begins(&wires[0], 4 << 20), 0);
	ck_assert_int_eq(begins(&wires[1], 4 << 20), 0);
	ck_assert_int_eq(begins(&wires[2], 4 << 20), -EAGAIN); /* it is not read */
	ck_assert_int_eq(begins(&wires[3], 1000), 0); /* what is small costs nothing */
	ck_assert_uint_eq(budget_used(WB_BUDGET_FRAMES), 8 << 20);
	victim_gets_its_plan();
	ck_assert_int_eq(wires[2].n_resumed, 0);
	end_wire(&wires[0]);
	ck_assert_int_eq(wires[2].n_resumed, 1);
	ck_assert_int_eq(begins(&wires[2], 4 << 20), 0); /* as it was promised */
	ck_assert_uint_eq(budget_used(WB_BUDGET_FRAMES), 8 << 20);
	agent_says(&wires[2], WBP_HEARTBEAT, &(struct wb_msg_heartbeat){0}); /* it has come whole */
	ck_assert_uint_eq(budget_used(WB_BUDGET_FRAMES), 4 << 20);
	for (int i = 1; i < 4; i++)
		end_wire(&wires[i]);
	ck_assert_uint_eq(budget_used(WB_BUDGET_FRAMES), 0);
	finish_tenants();
}
END_TEST

/* It is not silent: nobody listens to it. */
START_TEST(agent_whose_message_waits_for_room_is_kept_and_told_in_the_end)
{
	struct wb_err err = {0};
	union wb_msg m;

	start_tenants("frames=64Mi/4Mi/4Mi", 0);
	ck_assert_int_eq(put_object("evil/a", ", heartbeatTimeoutSeconds: 5", &err), 0);
	hello_of(&wires[0], "x0", "evil/a");
	hello_of(&wires[1], "x1", "evil/a");
	welcomed(&wires[1]);
	ck_assert_int_eq(begins(&wires[0], 4 << 20), 0);
	ck_assert_int_eq(begins(&wires[1], 1 << 20), -EAGAIN);
	for (int n = 0; n < 59; n++) {
		clk.now += 1 * S;
		if (clk.now >= due)
			wb_serve_tick(s);
		ck_assert_msg(!wires[1].is_closed, "after %d s", n);
		ck_assert_msg(wires[0].is_closed == (n >= 4), "after %d s", n);
	}
	expect(&wires[1], WBP_HEARTBEAT, &m); /* the operator lives */
	wb_msg_free(WBP_HEARTBEAT, &m);
	clk.now += 2 * S;
	wb_serve_tick(s);
	refused(&wires[1], "WeightTransfer evil/a has 4096 KiB of messages that have not come "
			   "whole, 1024 KiB more");
	end_wire(&wires[1]);
	end_wire(&wires[0]);
	ck_assert_uint_eq(budget_used(WB_BUDGET_FRAMES), 0);
	finish_tenants();
}
END_TEST

START_TEST(message_that_never_has_room_is_refused_at_once)
{
	start_tenants("frames=64Mi/1Mi/1Mi", 0);
	must_put("evil/a");
	hello_of(&wires[0], "x0", "evil/a");
	ck_assert_int_eq(begins(&wires[0], 2 << 20), -EDQUOT);
	refused(&wires[0], "budgets.frames");
	end_wire(&wires[0]);
	finish_tenants();
}
END_TEST

START_TEST(peer_that_does_not_get_on_is_told_so)
{
	struct wb_err why = {.code = -ETIMEDOUT, .msg = "it has begun a frame"};
	union wb_msg m;

	start_tenants("", 0);
	must_put("evil/a");
	hello_of(&wires[0], "x0", "evil/a");
	welcomed(&wires[0]);
	wires[0].ch.cb.on_stuck(wires[0].ch.cb.cookie, &wires[0].ch, &why);
	expect(&wires[0], WBP_REJECT, &m);
	ck_assert_str_eq(m.reject.sentence, "it has begun a frame");
	ck_assert(m.reject.retry && wires[0].is_closed);
	wb_msg_free(WBP_REJECT, &m);
	end_wire(&wires[0]);
	finish_tenants();
}
END_TEST

/* ---- reports ---- */

static void reports(
	struct wire *w, const char *object, uint64_t transfer, uint32_t first, uint32_t n)
{
	struct wb_p_worker_report *r = wb_zalloc(n, sizeof(*r));
	struct wb_p_phase phase = {.name = "wire", .start_ns = 1, .end_ns = 2};
	struct wb_msg_report m = {.object = object,
		.transfer = transfer,
		.version = (int64_t)transfer,
		.state = WB_REPORT_WORKERS,
		.workers = r,
		.n_workers = n};

	for (uint32_t i = 0; i < n; i++)
		r[i] = (struct wb_p_worker_report){.worker = first + i,
			.stop_ns = 1,
			.resume_ns = 2,
			.phases = &phase,
			.n_phases = 1};
	agent_says(w, WBP_REPORT, &m);
	wb_free(r);
}

/* Workers and transfers that there never were. */
START_TEST(reports_are_kept_as_far_as_the_budget_goes_the_newest_first)
{
	uint64_t one;

	start_tenants("reports=64Mi/256Ki/256Ki", 0);
	must_put("evil/a");
	hello_of(&wires[0], "x0", "evil/a");
	welcomed(&wires[0]);
	reports(&wires[0], "evil/a", 1, 0, 100);
	one = budget_used(WB_BUDGET_REPORTS);
	ck_assert_uint_gt(one, 100 * 100);
	for (uint64_t t = 2; t < 40; t++)
		reports(&wires[0], "evil/a", t, 0, 100);
	ck_assert_uint_le(budget_used(WB_BUDGET_REPORTS), 256 << 10);
	ck_assert_uint_ge(budget_used(WB_BUDGET_REPORTS), one);
	ck_assert(!strstr(events, "BudgetExceeded")); /* the oldest just go */
	for (uint32_t i = 0; i < 20; i++)
		reports(&wires[0], "evil/a", 40, 1000 * i, 1000);
	ck_assert_uint_le(budget_used(WB_BUDGET_REPORTS), 256 << 10);
	ck_assert_ptr_nonnull(strstr(events, "evil/a BudgetExceeded"));
	ck_assert(!wires[0].is_closed);
	victim_gets_its_plan();
	wb_serve_remove(s, "evil/a", "it was deleted");
	ck_assert_uint_eq(budget_used(WB_BUDGET_REPORTS), 0);
	end_wire(&wires[0]);
	finish_tenants();
}
END_TEST

static double metric(enum wb_serve_metric what)
{
	return wb_metric_get(wb_serve_own_metrics(s), what, NULL);
}

/* In how much memory the times of workers are kept. */
static const char *const rooms[] = {"", "reports=64Mi/64Ki/16Ki", "reports=64Mi/1/1"};

START_TEST(workers_count_also_where_there_is_no_room_for_their_times)
{
	struct wb_p_worker_report w[100];
	struct wb_msg_report m = {.object = "evil/a",
		.transfer = 1,
		.version = 1,
		.state = WB_REPORT_WORKERS,
		.workers = w,
		.n_workers = WB_ARRAY_SIZE(w)};
	json_t *status;
	const json_t *last;

	start_tenants(rooms[_i], 0);
	must_put("evil/a");
	hello_of(&wires[0], "x0", "evil/a");
	welcomed(&wires[0]);
	for (uint32_t i = 0; i < WB_ARRAY_SIZE(w); i++)
		w[i] = (struct wb_p_worker_report){.worker = i,
			.stop_ns = S,
			.resume_ns = S + (1 + i % 2) * S,
			.resent_chunks = 3,
			.mismatched_chunks = 2};
	w[99].resume_ns = 10 * S;
	agent_says(&wires[0], WBP_REPORT, &m);
	ck_assert_int_eq(strstr(events, "evil/a BudgetExceeded") != NULL, _i > 0);
	ck_assert(metric(WB_SM_RESENT) == 300 && metric(WB_SM_MISMATCHED) == 200);
	m.state = WB_REPORT_FINAL;
	m.is_final = true;
	m.n_workers = 0;
	agent_says(&wires[0], WBP_REPORT, &m);
	status = wb_serve_status(s, "evil/a");
	last = json_object_get(status, "lastTransfer");
	ck_assert_int_eq(json_integer_value(json_object_get(last, "endToEndMilliseconds")), 9000);
	ck_assert_int_eq(
		json_integer_value(json_object_get(last, "averageStallMilliseconds")), 1570);
	json_decref(status);
	end_wire(&wires[0]);
	finish_tenants();
}
END_TEST

/* Digests of contents are no proof against a forger. */
START_TEST(map_of_one_object_is_never_anothers)
{
	start_tenants("", 0);
	must_put("evil/a");
	must_put("good/b");
	join_pair(&wires[0], &wires[1], "evil/a");
	upload(&wires[0], "evil/a");
	run_job();
	join_pair(&wires[2], &wires[3], "good/b");
	want(&wires[2], manifest_digest); /* though there is one with this digest */
	want(&wires[2], map_digest);
	/* Nor by naming the other object. */
	content_of(&wires[0], "good/b", 2, map_digest, map_bytes.len, 0, map_bytes.data,
		map_bytes.len);
	content_of(&wires[0], "good/b", 1, manifest_digest, manifest_bytes.len, 0,
		manifest_bytes.data, manifest_bytes.len);
	ck_assert_ptr_null(job_work);
	upload(&wires[2], "good/b");
	run_job();
	gets_plan_of(&wires[3]);
	for (int i = 0; i < 4; i++)
		end_wire(&wires[i]);
	finish_tenants();
}
END_TEST

/* ---- heartbeats ---- */

static uint64_t beat_of(struct wire *w, const char *object)
{
	union wb_msg m;
	uint64_t ns;

	hello_of(w, "x", object);
	expect(w, WBP_WELCOME, &m);
	ns = m.welcome.heartbeat_ns;
	wb_msg_free(WBP_WELCOME, &m);
	return ns;
}

START_TEST(agents_keep_the_time_of_their_own_object)
{
	struct wb_err err = {0};

	start_tenants("", 0);
	ck_assert_int_eq(put_object("evil/a", ", heartbeatTimeoutSeconds: 5", &err), 0);
	ck_assert_int_eq(put_object("good/b", ", heartbeatTimeoutSeconds: 100", &err), 0);
	ck_assert_uint_eq(beat_of(&wires[0], "evil/a"), 2 * S);
	ck_assert_uint_eq(beat_of(&wires[1], "good/b"), 40 * S);
	clk.now += 6 * S;
	wb_serve_tick(s);
	ck_assert(wires[0].is_closed && !wires[1].is_closed);
	clk.now += 95 * S;
	wb_serve_tick(s);
	ck_assert(wires[1].is_closed);
	end_wire(&wires[0]);
	end_wire(&wires[1]);
	finish_tenants();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("serve_tenants");
	TCase *tc = tcase_create("tenants");

	tcase_add_test(tc, messages_that_do_not_end_are_charged_and_others_notice_nothing);
	tcase_add_test(tc, agent_whose_message_waits_for_room_is_kept_and_told_in_the_end);
	tcase_add_test(tc, message_that_never_has_room_is_refused_at_once);
	tcase_add_test(tc, peer_that_does_not_get_on_is_told_so);
	tcase_add_test(tc, reports_are_kept_as_far_as_the_budget_goes_the_newest_first);
	tcase_add_loop_test(tc, workers_count_also_where_there_is_no_room_for_their_times, 0,
		WB_ARRAY_SIZE(rooms));
	tcase_add_test(tc, map_of_one_object_is_never_anothers);
	tcase_add_test(tc, agents_keep_the_time_of_their_own_object);
	suite_add_tcase(suite, tc);
	return fx_run(suite);
}
