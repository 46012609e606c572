/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's endpoint against scripted agents, over channels in memory and a fake clock. */
#include "operator-shim/serve/budget.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_serve.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(hello_to_activate)
{
	struct wb_lent plan, manifest, none;

	run_job_to_active();
	ck_assert_str_eq(ready_reason(), "True Idle");
	ck_assert(wb_serve_plan(s, NULL, &plan));
	ck_assert_uint_gt(plan.bytes, 100);
	ck_assert(wb_serve_manifest(s, "default/a", &manifest));
	ck_assert_mem_eq(manifest.data, manifest_bytes.data, manifest_bytes.len);
	ck_assert(!wb_serve_plan(s, "other", &none));
	/* A reader may be slower than the operator lives. */
	tear_down_serve();
	ck_assert_mem_eq(manifest.data, manifest_bytes.data, manifest.bytes);
	end_both();
	plan.put(plan.cookie);
	manifest.put(manifest.cookie);
}
END_TEST

static int lend_page(const char *name, size_t bytes, struct wb_lent *out)
{
	struct wb_err err = {0};
	struct wb_buf b;

	wb_buf_init(&b, bytes);
	for (size_t i = 0; i < bytes; i++)
		wb_buf_u8(&b, 'x');
	return wb_serve_lend_page(s, name, &b, out, &err);
}

START_TEST(pages_that_are_read_slowly_are_charged_until_they_are_taken)
{
	struct wb_lent page[2], more;
	struct wb_budget_limits l;

	tear_down_serve();
	wb_budget_size(0, &l);
	ck_assert_int_eq(wb_budget_override(&l, "pages=4000/2000"), 0);
	set_up_limited_serve(&l);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(lend_page("default/a", 1000, &page[i]), 0);
	ck_assert_int_eq(lend_page("default/a", 1, &more), -EDQUOT);
	page[0].put(page[0].cookie);
	ck_assert_int_eq(lend_page("default/a", 1000, &page[0]), 0);
	ck_assert_int_eq(lend_page("default/gone", 1, &more), -ENOENT);
	tear_down_serve();
	for (int i = 0; i < 2; i++)
		page[i].put(page[i].cookie);
}
END_TEST

static struct wb_p_worker_report times(uint32_t worker, uint64_t stop, uint64_t resume)
{
	static struct wb_p_phase ph;

	ph = (struct wb_p_phase){"wire", stop + 10, resume - 10};
	return (struct wb_p_worker_report){.worker = worker,
		.stop_ns = stop,
		.resume_ns = resume,
		.phases = &ph,
		.n_phases = 1};
}

START_TEST(reports_are_summed_up_over_clock_offsets)
{
	struct wb_p_engine_state e = {
		.engine = "e1", .state = WB_ENGINE_COMMITTED, .version = 60, .transfer = 6};
	struct wb_p_worker_report w;
	uint64_t bytes[3] = {262144, 0, 0};
	struct wb_msg_report m = {.object = "default/a",
		.epoch = {1, 1},
		.transfer = 6,
		.version = 60,
		.state = WB_REPORT_STARTED,
		.begin_wall_ns = 1700001000 * S};
	json_t *st, *last, *trace;
	struct wb_buf b;

	run_job_to_active();
	agent_says(&train, WBP_REPORT, &m);
	ck_assert_str_eq(ready_reason(), "True TransferInProgress");
	/* The trainer's clock is 5 s ahead of the operator's, the rollout's 2 s behind. */
	w = times(0, 105 * S, 106 * S);
	m.state = WB_REPORT_FINAL;
	m.is_final = true;
	m.end_wall_ns = m.begin_wall_ns + 9 * S;
	m.engines = &e;
	m.n_engines = 1;
	m.workers = &w;
	m.n_workers = 1;
	m.clock_offset_ns = (int64_t)(5 * S);
	m.clock_error_ns = 1000000;
	agent_says(&train, WBP_REPORT, &m);
	st = status();
	last = json_object_get(st, "lastTransfer");
	ck_assert_int_eq(json_integer_value(json_object_get(last, "endToEndMilliseconds")), 1000);
	json_decref(st);
	w = times(1, 98 * S + S / 2, 100 * S + S / 2);
	m.state = WB_REPORT_WORKERS;
	m.is_final = false;
	m.n_engines = 0;
	m.clock_offset_ns = -(int64_t)(2 * S);
	m.clock_error_ns = 2000000;
	m.bytes = bytes;
	m.n_bytes = 3;
	agent_says(&roll, WBP_REPORT, &m);
	st = status();
	last = json_object_get(st, "lastTransfer");
	/* Trainer 100..101, rollout 100.5..102.5 on the operator's clock. */
	ck_assert_int_eq(json_integer_value(json_object_get(last, "endToEndMilliseconds")), 2500);
	ck_assert_int_eq(
		json_integer_value(json_object_get(last, "averageStallMilliseconds")), 1500);
	ck_assert_int_eq(json_integer_value(json_object_get(last, "networkBytes")), 262144);
	ck_assert_int_eq(json_integer_value(json_object_get(st, "version")), 60);
	ck_assert_int_eq(json_integer_value(json_object_get(st, "updatedEngines")), 1);
	json_decref(st);
	st = wb_serve_object(s, NULL);
	last = json_array_get(json_object_get(json_object_get(st, "detail"), "transfers"), 0);
	ck_assert(json_real_value(json_object_get(last, "endToEndUncertaintyMilliseconds")) == 3.0);
	json_decref(st);
	wb_buf_init(&b, 1 << 20);
	ck_assert(wb_serve_trace(s, NULL, &b));
	trace = json_loads(wb_buf_cstr(&b), 0, NULL);
	ck_assert_msg(trace != NULL, "%s", wb_buf_cstr(&b));
	ck_assert_uint_eq(json_array_size(json_object_get(trace, "traceEvents")), 8);
	json_decref(trace);
	wb_buf_reset(&b);
	wb_serve_metrics(s, &b);
	ck_assert_ptr_nonnull(
		strstr(wb_buf_cstr(&b), "wb_transfers_total{result=\"Succeeded\"} 1\n"));
	ck_assert_ptr_nonnull(
		strstr(wb_buf_cstr(&b), "wb_bytes_total{stage=\"receive\"} 262144\n"));
	ck_assert_ptr_nonnull(strstr(wb_buf_cstr(&b), "wb_agents 2\n"));
	wb_buf_finish(&b);
	end_both();
}
END_TEST

static const struct {
	enum wb_report said;
	enum wb_engine_state engines[2];
	const char *result;
} ends[] = {
	{WB_REPORT_FINAL_ABORTED, {WB_ENGINE_ABORTED, WB_ENGINE_ABORTED}, "Aborted"},
	{WB_REPORT_FINAL_UNKNOWN, {WB_ENGINE_ABORTED, WB_ENGINE_UNKNOWN}, "Unknown"},
	{WB_REPORT_FINAL, {WB_ENGINE_COMMITTED, WB_ENGINE_ABORTED}, "Succeeded"},
	{WB_REPORT_FINAL_PARTLY_TORN, {WB_ENGINE_COMMITTED, WB_ENGINE_TORN}, "PartlyTorn"},
	{WB_REPORT_FINAL_TORN, {WB_ENGINE_TORN, WB_ENGINE_TORN}, "Torn"},
	/* What agents of version 1 can say. */
	{WB_REPORT_FINAL_ABORTED, {WB_ENGINE_ABORTED, WB_ENGINE_UNKNOWN}, "Unknown"},
	{WB_REPORT_FINAL, {WB_ENGINE_COMMITTED, WB_ENGINE_TORN}, "PartlyTorn"},
	{WB_REPORT_FINAL, {WB_ENGINE_TORN, WB_ENGINE_COMMITTED}, "PartlyTorn"},
	/* A word of a newer agent. */
	{WB_REPORT_FINAL_ABORTED, {WB_ENGINE_ABORTED, (enum wb_engine_state)99}, "Unknown"},
};

/* Of weights that did not arrive there is no time that they took. */
static bool has_time(const json_t *transfer)
{
	return json_object_get(transfer, "endToEndMilliseconds") != NULL;
}

/* Where an agent says no more than operators of version 1 know, the engines say the rest. */
START_TEST(a_result_says_what_engines_have)
{
	struct wb_p_engine_state e[2] = {
		{.engine = "e1", .version = -1, .state = ends[_i].engines[0]},
		{.engine = "e2", .version = -1, .state = ends[_i].engines[1]}};
	struct wb_msg_report m = {.object = "default/a",
		.epoch = {1, 1},
		.transfer = 6,
		.version = 60,
		.state = ends[_i].said,
		.sentence = "1 of 2 of them",
		.is_final = true,
		.engines = e,
		.n_engines = 2};
	json_t *st, *last;
	char text[200];
	struct wb_buf b;

	run_job_to_active();
	agent_says(&train, WBP_REPORT, &m);
	st = status();
	last = json_object_get(st, "lastTransfer");
	ck_assert_str_eq(json_string_value(json_object_get(last, "result")), ends[_i].result);
	ck_assert(has_time(last) == !strcmp(ends[_i].result, "Succeeded"));
	json_decref(st);
	st = wb_serve_object(s, NULL);
	last = json_array_get(json_object_get(json_object_get(st, "detail"), "transfers"), 0);
	ck_assert_str_eq(json_string_value(json_object_get(last, "result")), ends[_i].result);
	ck_assert(has_time(last) == !strcmp(ends[_i].result, "Succeeded"));
	json_decref(st);
	wb_buf_init(&b, 1 << 20);
	wb_serve_metrics(s, &b);
	snprintf(text, sizeof(text), "wb_transfers_total{result=\"%s\"} 1\n", ends[_i].result);
	ck_assert_ptr_nonnull(strstr(wb_buf_cstr(&b), text));
	ck_assert(!strstr(wb_buf_cstr(&b), "wb_transfer_seconds_count 1\n") ==
		  !!strcmp(ends[_i].result, "Succeeded"));
	wb_buf_finish(&b);
	end_both();
}
END_TEST

START_TEST(planner_refusal_names_workers)
{
	union wb_msg m;
	struct wb_msg_progress last = {0};
	char text[1200] = "";
	struct wb_buf half;
	struct wb_digest half_digest = fx_model_encode(0, MODEL_ROWS / 2, &half), whole;

	make_model();
	whole = map_digest;
	/* The rollout wants all rows of a tensor of which the trainer has one half. */
	open_wire(&train);
	hello(&train, "train", 11);
	map_digest = half_digest;
	say_workers(&train, 1, NULL);
	open_wire(&roll);
	hello(&roll, "roll", 12);
	map_digest = whole;
	say_workers(&roll, 2, "e1");
	content(&train, 1, manifest_digest, &manifest_bytes);
	content(&train, 2, half_digest, &half);
	content(&roll, 2, whole, &map_bytes);
	wb_buf_finish(&half);
	run_job();
	for (;;) {
		uint16_t type = hear(&roll, &m);

		if (type == WBP_NONE)
			break;
		if (type == WBP_PROGRESS) {
			last.code = m.progress.code;
			snprintf(text, sizeof(text), "%s", m.progress.sentence);
		}
		wb_msg_free(type, &m);
	}
	ck_assert_int_eq(last.code, WB_EPLAN);
	ck_assert_msg(strstr(text, "w") != NULL && strstr(text, "worker") != NULL, "%s", text);
	ck_assert_str_eq(ready_reason(), "False TensorMismatch");
	end_both();
}
END_TEST

static void expect_reject(struct wire *w, int code, const char *part)
{
	union wb_msg m;

	expect(w, WBP_REJECT, &m);
	ck_assert_int_eq(m.reject.code, code);
	ck_assert_msg(strstr(m.reject.sentence, part) != NULL, "%s", m.reject.sentence);
	wb_msg_free(WBP_REJECT, &m);
}

START_TEST(other_protocol_version_is_refused_with_a_sentence)
{
	struct wb_msg_hello h = {.version_min = 90,
		.version_max = 91,
		.build = "t",
		.agent = "x",
		.node = "n",
		.host = "h",
		.bulk = "",
		.instance = 1};

	open_wire(&train);
	agent_says(&train, WBP_HELLO, &h);
	expect_reject(&train, WB_EVERSION, "agent x");
	ck_assert(train.is_closed);
	end_wire(&train);
}
END_TEST

START_TEST(unknown_object_is_refused_and_names_those_there_are)
{
	const char *list[] = {"default/b"};
	struct wb_msg_hello h = {.version_min = 1,
		.version_max = 1,
		.build = "t",
		.agent = "x",
		.node = "n",
		.host = "h",
		.bulk = "",
		.instance = 1,
		.objects = list,
		.n_objects = 1};

	open_wire(&train);
	agent_says(&train, WBP_HELLO, &h);
	expect_reject(&train, -ENOENT, "no object default/b; it serves default/a");
	end_wire(&train);
}
END_TEST

START_TEST(what_cannot_be_an_address_is_not_passed_on)
{
	char big[65];
	const char *hosts[] = {"10.0.0.1", big};
	struct wb_msg_hello h = {.version_min = 1,
		.version_max = WBP_VERSION_MAX,
		.build = "t",
		.agent = "x",
		.node = "n",
		.host = "10.0.0.1",
		.bulk = "",
		.instance = 1,
		.hosts = hosts,
		.n_hosts = 2};

	memset(big, '1', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	open_wire(&train);
	agent_says(&train, WBP_HELLO, &h);
	expect_reject(&train, -EINVAL, "no address");
	end_wire(&train);
}
END_TEST

START_TEST(another_message_before_hello_is_refused)
{
	struct wb_msg_heartbeat h = {.sent_ns = 1};

	open_wire(&train);
	agent_says(&train, WBP_HEARTBEAT, &h);
	expect_reject(&train, -EPROTO, "HELLO must be first");
	ck_assert(train.is_closed);
	end_wire(&train);
}
END_TEST

START_TEST(truncated_frame_is_refused)
{
	uint8_t junk[WB_FRAME_BYTES] = {1, 2, 3};

	open_wire(&train);
	train.ch.cb.on_frame(train.ch.cb.cookie, &train.ch, junk, sizeof(junk));
	ck_assert(train.is_closed);
	end_wire(&train);
}
END_TEST

START_TEST(content_under_a_wrong_digest_is_refused)
{
	join_both();
	content(&train, 2, map_digest, &manifest_bytes);
	expect_reject(&train, WB_ECKSUM, "digest");
	ck_assert(train.is_closed);
	end_both();
}
END_TEST

START_TEST(content_out_of_order_is_refused)
{
	struct wb_msg_content m = {.object = "default/a", .kind = 2, .offset = 7};

	join_both();
	m.digest = map_digest;
	m.total_bytes = map_bytes.len;
	m.data = map_bytes.data;
	m.n_data = 5;
	agent_says(&train, WBP_CONTENT, &m);
	expect_reject(&train, -EBADMSG, "follow");
	end_both();
}
END_TEST

START_TEST(adapter_staging_must_agree_with_the_spec)
{
	struct wb_p_worker p = {.id = 5,
		.name = "train/5",
		.role = 1,
		.rank = -1,
		.mem_kind = 1,
		.sender_staging = WB_STAGING_HOST_MEMORY,
		.version = -1};
	struct wb_msg_workers m = {.object = "default/a", .workers = &p, .n_workers = 1};
	union wb_msg got;

	open_wire(&train);
	hello(&train, "train", 11);
	welcome(&train, 1);
	agent_says(&train, WBP_WORKERS, &m);
	expect(&train, WBP_REJECT, &got);
	ck_assert_uint_eq(got.reject.worker, 6);
	ck_assert_str_eq(got.reject.object, "default/a");
	ck_assert_ptr_nonnull(strstr(got.reject.sentence, "spec.staging.trainer is None"));
	wb_msg_free(WBP_REJECT, &got);
	ck_assert(!train.is_closed);
	end_wire(&train);
}
END_TEST

START_TEST(silent_agent_is_closed_and_then_lost)
{
	struct wb_msg_heartbeat h = {.sent_ns = 7};
	union wb_msg m;

	run_job_to_active();
	clk.now += 10 * S;
	wb_serve_tick(s);
	ck_assert(!roll.is_closed);
	agent_says(&train, WBP_HEARTBEAT, &h);
	expect(&train, WBP_HEARTBEAT, &m);
	ck_assert_uint_eq(m.heartbeat.echo_ns, 7);
	ck_assert_uint_eq(m.heartbeat.echo_received_ns, clk.now);
	clk.now += 5 * S;
	ck_assert_uint_le(due, clk.now);
	wb_serve_tick(s);
	ck_assert(roll.is_closed);
	ck_assert(!train.is_closed);
	end_wire(&roll);
	ck_assert_str_eq(ready_reason(), "False AgentLost");
	clk.now += 15 * S;
	agent_says(&train, WBP_HEARTBEAT, &h);
	wb_serve_tick(s);
	ck_assert_str_eq(ready_reason(), "False WaitingForAgents");
	end_wire(&train);
	free_model();
}
END_TEST

START_TEST(drain_is_not_a_loss)
{
	struct wb_msg_drain d = {.sentence = "the pod ends"};
	struct wb_buf b;

	run_job_to_active();
	agent_says(&roll, WBP_DRAIN, &d);
	ck_assert_str_eq(ready_reason(), "False WaitingForAgents");
	end_wire(&roll);
	wb_buf_init(&b, 1 << 20);
	wb_serve_metrics(s, &b);
	ck_assert_ptr_nonnull(strstr(wb_buf_cstr(&b), "wb_agents_lost_total 0\n"));
	wb_buf_finish(&b);
	end_wire(&train);
	free_model();
}
END_TEST

START_TEST(operator_of_files_knows_nobody_who_may_read_metrics)
{
	union wb_msg m;

	run_job_to_active();
	agent_says(&train, WBP_READER, &(struct wb_msg_reader){.number = 3, .token = "some"});
	expect(&train, WBP_READER_ANSWER, &m);
	ck_assert_uint_eq(m.reader_answer.number, 3);
	ck_assert_int_eq(m.reader_answer.code, -ENOTSUP);
	ck_assert_ptr_nonnull(strstr(m.reader_answer.sentence, "serves files"));
	wb_msg_free(WBP_READER_ANSWER, &m);
	end_both();
}
END_TEST

START_TEST(operator_that_leaves_says_so)
{
	union wb_msg m;

	run_job_to_active();
	wb_serve_drain(s, "stopping");
	expect(&train, WBP_DRAIN, &m);
	ck_assert_str_eq(m.drain.sentence, "stopping");
	wb_msg_free(WBP_DRAIN, &m);
	ck_assert(train.is_closed && roll.is_closed);
	end_both();
}
END_TEST

START_TEST(destroy_while_a_job_runs_is_safe)
{
	join_both();
	content(&train, 1, manifest_digest, &manifest_bytes);
	content(&train, 2, map_digest, &map_bytes);
	ck_assert_ptr_nonnull(job_work);
	wb_serve_destroy(s);
	s = NULL;
	run_job();
	end_both();
}
END_TEST

static Suite *suite(void)
{
	Suite *su = suite_create("serve");
	TCase *tc = tcase_create("agents");

	tcase_add_checked_fixture(tc, set_up_serve, tear_down_serve);
	tcase_add_test(tc, hello_to_activate);
	tcase_add_test(tc, pages_that_are_read_slowly_are_charged_until_they_are_taken);
	tcase_add_test(tc, reports_are_summed_up_over_clock_offsets);
	tcase_add_loop_test(tc, a_result_says_what_engines_have, 0, (int)WB_ARRAY_SIZE(ends));
	tcase_add_test(tc, planner_refusal_names_workers);
	tcase_add_test(tc, other_protocol_version_is_refused_with_a_sentence);
	tcase_add_test(tc, unknown_object_is_refused_and_names_those_there_are);
	tcase_add_test(tc, what_cannot_be_an_address_is_not_passed_on);
	tcase_add_test(tc, another_message_before_hello_is_refused);
	tcase_add_test(tc, truncated_frame_is_refused);
	tcase_add_test(tc, content_under_a_wrong_digest_is_refused);
	tcase_add_test(tc, content_out_of_order_is_refused);
	tcase_add_test(tc, adapter_staging_must_agree_with_the_spec);
	tcase_add_test(tc, silent_agent_is_closed_and_then_lost);
	tcase_add_test(tc, drain_is_not_a_loss);
	tcase_add_test(tc, operator_of_files_knows_nobody_who_may_read_metrics);
	tcase_add_test(tc, operator_that_leaves_says_so);
	tcase_add_test(tc, destroy_while_a_job_runs_is_safe);
	suite_add_tcase(su, tc);
	return su;
}

int main(void)
{
	return fx_run(suite());
}
