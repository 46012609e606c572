/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predictions: what can be worked out by hand comes out, each part of the model takes its time, and
 * nothing depends on anything but the input.  That real agents take as long is measured in
 * tests/bench.
 */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/deploy/deploy.h"
#include "predict/predict.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_predict.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static struct fx_planned plan_of(
	const char *trainer, const char *rollout, uint32_t engines, uint64_t rail)
{
	struct fx_planned p = fx_planned_make(trainer, rollout, engines, rail);

	p.in.params.loop_us = 0;
	return p;
}

static struct wb_predict_result predicted(const struct wb_predict_input *in)
{
	struct wb_predict_result r;
	struct wb_err err = {0};
	int rc = wb_predict(in, &r, &err);

	ck_assert_msg(!rc, "%s", err.msg);
	wb_predict_finish(&r);
	return r;
}

/* A rail as slow as 1 GB/s hides everything else: bytes over payload rate, and what is fixed. */
START_TEST(one_pair_takes_its_bytes_over_its_rail)
{
	struct fx_planned p = plan_of("transformers:1", "vllm:tp1", 1, 1000000000);
	struct wb_predict_result r = predicted(&p.in);
	double by_hand = (double)p.plan->model_bytes / (1e9 * p.in.params.goodput) + 0.003;

	ck_assert_double_eq_tol(r.bound_s, (double)p.plan->model_bytes / 1e9, 1e-6);
	ck_assert_double_ge(r.ewtt_s, by_hand);
	ck_assert_double_le(r.ewtt_s, 1.01 * by_hand);
	ck_assert_double_ge(r.busiest[WB_PREDICT_OUT].s, by_hand - 0.004);
	ck_assert_uint_eq(r.refused + r.resent, 0);
	ck_assert_double_le(r.trainer_s, r.ewtt_s);
	ck_assert_double_le(r.agst_s, r.ewtt_s);
	fx_planned_forget(&p);
}
END_TEST

START_TEST(twice_the_rate_is_half_the_time)
{
	struct fx_planned slow = plan_of("megatron:tp2,pp2", "vllm:tp2", 2, 500000000);
	struct fx_planned fast = plan_of("megatron:tp2,pp2", "vllm:tp2", 2, 1000000000);
	double a = predicted(&slow.in).moved_s, b = predicted(&fast.in).moved_s;

	ck_assert_double_eq_tol(a / b, 2, 0.05);
	fx_planned_forget(&slow);
	fx_planned_forget(&fast);
}
END_TEST

/* A loop takes one event at a time. */
START_TEST(a_slow_loop_is_what_holds_it_up)
{
	struct fx_planned p = plan_of("megatron:tp2,pp2", "vllm:tp2", 2, 50000000000);
	struct wb_predict_result free = predicted(&p.in), slow;

	p.in.params.loop_us = 500;
	slow = predicted(&p.in);
	ck_assert_double_ge(slow.ewtt_s, (double)slow.loop_events_max * 500e-6);
	ck_assert_double_gt(slow.ewtt_s, free.ewtt_s);
	ck_assert_double_eq_tol(
		slow.busiest[WB_PREDICT_LOOP].s, (double)slow.loop_events_max * 500e-6, 1e-6);
	ck_assert_double_eq(free.busiest[WB_PREDICT_LOOP].s, 0);
	fx_planned_forget(&p);
}
END_TEST

/* Packing at 1 GB/s is slower than a rail of 50; a fabric that slow, over which each of two copies
 * of the model gives the other its half, takes that of half the bytes. */
START_TEST(lanes_and_the_fabric_take_their_time)
{
	struct fx_planned p = plan_of("transformers:1", "vllm:tp1,dp2", 1, 50000000000);
	double quick = predicted(&p.in).ewtt_s, bytes = (double)p.plan->model_bytes;

	ck_assert_double_le(quick, bytes / 5e9);
	p.in.params.lane_gbs = 1;
	ck_assert_double_ge(predicted(&p.in).ewtt_s, bytes / 1e9);
	p.in.params.lane_gbs = wb_predict_defaults().lane_gbs;
	p.in.params.fabric_gbs = 1;
	ck_assert_double_ge(predicted(&p.in).ewtt_s, bytes / 2 / 1e9);
	fx_planned_forget(&p);
}
END_TEST

/* Trainers go on when their part is in host memory, engines stop only to copy theirs. */
START_TEST(staging_stalls_for_the_copies_alone)
{
	struct fx_planned p = plan_of("megatron:tp2", "vllm:tp2", 1, 1000000000);
	struct wb_predict_result plain = predicted(&p.in), staged;
	double copy = (double)p.plan->model_bytes / 2 / 50e9;

	p.in.trainer_staged = p.in.rollout_staged = true;
	staged = predicted(&p.in);
	ck_assert_double_ge(staged.agst_s, copy);
	ck_assert_double_le(staged.agst_s, copy * 1.3 + 0.003);
	ck_assert_double_le(staged.agst_s, plain.agst_s / 4);
	ck_assert_double_ge(staged.ewtt_s, plain.ewtt_s);
	fx_planned_forget(&p);
}
END_TEST

/* Eight of one agent, each with its own way to host memory, which is what takes the time. */
START_TEST(workers_of_an_agent_take_their_snapshots_side_by_side)
{
	struct fx_planned p = plan_of("megatron:tp8", "vllm:tp8", 1, 50000000000);
	double copy = (double)p.plan->model_bytes / 8 / 1e9;
	struct wb_predict_result r;

	p.in.trainer_staged = true;
	p.in.params.host_gbs = 1;
	r = predicted(&p.in);
	ck_assert_double_ge(r.early_s, copy);
	ck_assert_double_le(r.early_s, 1.1 * copy + 0.003);
	fx_planned_forget(&p);
}
END_TEST

START_TEST(the_same_input_gives_the_same_times)
{
	struct fx_planned p = plan_of("fsdp2:4", "vllm:tp2", 2, 50000000000);
	struct wb_predict_result a, b;

	p.in.params.loop_us = 5;
	a = predicted(&p.in);
	b = predicted(&p.in);
	ck_assert_double_eq(a.ewtt_s, b.ewtt_s);
	ck_assert_double_eq(a.agst_s, b.agst_s);
	ck_assert_uint_eq(a.events, b.events);
	fx_planned_forget(&p);
}
END_TEST

START_TEST(parameters_are_named_and_bounded)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{"goodputt=1", "there is no parameter goodputt"},
		{"goodput", "expected WORD=NUMBER"},
		{"goodput=2", "parameter goodput=2: expected 0.01 to 1"},
		{"latencyUs=nan", "expected 0 to 1e+06"},
		{"pieces=4x", "parameter pieces=4x: expected 1 to 64"},
		{"latencyUs=1,loopUs=-1", "parameter loopUs=-1"},
	};
	struct wb_predict_params p = wb_predict_defaults();
	struct wb_err err = {0};
	struct wb_buf b;

	ck_assert(!wb_predict_set(&p, "loopUs=4.5,goodput=0.5", &err));
	ck_assert_double_eq(p.loop_us, 4.5);
	ck_assert_double_eq(p.goodput, 0.5);
	ck_assert(!wb_predict_set(&p, "", &err));
	for (size_t i = 0; i < WB_ARRAY_SIZE(bad); i++) {
		ck_assert_int_eq(wb_predict_set(&p, bad[i].text, &err), -EINVAL);
		ck_assert_msg(strstr(err.msg, bad[i].says), "%s: %s", bad[i].text, err.msg);
	}
	wb_buf_init(&b, 1u << 16);
	wb_predict_list(&b);
	ck_assert(strstr(wb_buf_cstr(&b), "\nlatencyUs "));
	wb_buf_finish(&b);
}
END_TEST

START_TEST(what_cannot_be_predicted_is_said)
{
	struct fx_planned p = plan_of("transformers:1", "vllm:tp1", 1, 1000000000);
	struct wb_predict_result r;
	struct wb_err err = {0};

	p.in.params.rollout_mib = 1; /* no slot fits */
	ck_assert_int_eq(wb_predict(&p.in, &r, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, "slot"), "%s", err.msg);
	wb_predict_finish(&r);
	p.in.params = wb_predict_defaults();
	p.plan->worker[1].rail_bytes_per_s = 0;
	ck_assert_int_eq(wb_predict(&p.in, &r, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, "the rate of worker 1's rail is not known"), "%s", err.msg);
	wb_predict_finish(&r);
	fx_planned_forget(&p);
}
END_TEST

START_TEST(memory_that_runs_out_is_an_error)
{
	struct fx_planned p = plan_of("megatron:tp2", "vllm:tp2", 1, 50000000000);
	struct wb_predict_result r;
	struct wb_err err = {0};
	int rc;

	p.in.params.loop_us = 5;
	p.in.trainer_staged = _i;
	for (uint64_t n = 1;; n = n * 5 / 4 + 1) {
		wb_mem_fail_at(n);
		rc = wb_predict(&p.in, &r, &err);
		if (!wb_mem_failed())
			break;
		ck_assert_int_eq(rc, -ENOMEM);
		wb_predict_finish(&r);
	}
	wb_mem_fail_at(0);
	ck_assert_int_eq(rc, 0);
	wb_predict_finish(&r);
	fx_planned_forget(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("predict");
	TCase *tc = tcase_create("predict");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, one_pair_takes_its_bytes_over_its_rail);
	tcase_add_test(tc, twice_the_rate_is_half_the_time);
	tcase_add_test(tc, a_slow_loop_is_what_holds_it_up);
	tcase_add_test(tc, lanes_and_the_fabric_take_their_time);
	tcase_add_test(tc, staging_stalls_for_the_copies_alone);
	tcase_add_test(tc, workers_of_an_agent_take_their_snapshots_side_by_side);
	tcase_add_test(tc, the_same_input_gives_the_same_times);
	tcase_add_test(tc, parameters_are_named_and_bounded);
	tcase_add_test(tc, what_cannot_be_predicted_is_said);
	tcase_add_loop_test(tc, memory_that_runs_out_is_an_error, 0, 2);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
