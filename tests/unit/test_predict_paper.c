/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds in lock-step: what can be worked out by hand comes out. */
#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/deploy/deploy.h"
#include "predict/paper.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_predict.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <string.h>

/* Everything but the rails takes no time unless a test says so, and there is room for all of it in
 * one round. */
static struct fx_planned plan_of(
	const char *trainer, const char *rollout, uint32_t engines, uint64_t rail)
{
	struct fx_planned p = fx_planned_make(trainer, rollout, engines, rail);
	struct wb_err err = {0};

	ck_assert(!wb_predict_set(&p.in.params,
		"goodput=1,prepareMs=0,commitMs=0,laneUs=0,laneGBs=1000000,roundMs=0,peerMs=0,"
		"rolloutMiB=100000,roundTrainerMiB=100000",
		&err));
	return p;
}

static struct wb_predict_paper predicted(const struct fx_planned *p)
{
	struct wb_predict_paper r;
	struct wb_err err = {0};

	ck_assert_msg(!wb_predict_paper(&p->in, &r, &err), "%s", err.msg);
	return r;
}

/* However many rounds there are: one waits for the rail while another is on it. */
START_TEST(one_pair_takes_its_bytes_over_its_rail)
{
	struct fx_planned p = plan_of("transformers:1", "vllm:tp1", 1, 1000000000);
	double s = (double)p.plan->model_bytes / 1e9;
	struct wb_predict_paper r;

	p.in.params.rollout_mib = 2.0 * (double)p.plan->model_bytes / 1048576 / (_i + 0.5);
	r = predicted(&p);
	ck_assert_uint_eq(r.rounds, (uint32_t)_i + 1);
	ck_assert_double_eq_tol(r.ewtt_s, s, 0.001 * s);
	ck_assert_double_eq_tol(r.busiest.s, s, 0.001 * s);
	ck_assert_uint_eq(r.peers[WB_STAGE_RECEIVE], 1);
	ck_assert_uint_eq(r.peers[WB_STAGE_EXTERNAL], 0);
	fx_planned_forget(&p);
}
END_TEST

/* Three alike engines of one worker give each other what each has received: two thirds of the way
 * in are exchange, and the rails into engines are what all of it waits for. */
START_TEST(engines_exchange_what_each_has_received)
{
	struct fx_planned p = plan_of("transformers:3", "vllm:tp1", 3, 1000000000);
	double s = (double)p.plan->model_bytes / 1e9;
	struct wb_predict_paper r = predicted(&p);

	ck_assert_uint_eq(r.rounds, 1);
	ck_assert_uint_eq(r.peers[WB_STAGE_EXTERNAL], 2);
	ck_assert_double_eq_tol(r.ewtt_s, s, 0.02 * s);
	ck_assert_double_eq_tol(r.engine_s, s / 3, 0.02 * s);
	fx_planned_forget(&p);
}
END_TEST

/* Of one round nothing is hidden: half of what a round costs, and so many peers, before each stage.
 */
START_TEST(what_a_round_costs_stands_before_its_stages)
{
	struct fx_planned p = plan_of("transformers:3", "vllm:tp1", 3, 1000000000);
	struct wb_predict_paper before = predicted(&p), r;

	p.in.params.round_ms = 10;
	r = predicted(&p);
	ck_assert_double_eq_tol(r.ewtt_s - before.ewtt_s, 0.010, 1e-6);
	ck_assert_double_eq_tol(r.engine_s - before.engine_s, 0.005, 1e-6);
	ck_assert_double_eq_tol(r.control_s, 0.010, 1e-9);
	p.in.params.round_ms = 0;
	p.in.params.peer_ms = 1;
	r = predicted(&p);
	ck_assert_double_eq_tol(r.ewtt_s - before.ewtt_s,
		0.001 * (r.peers[WB_STAGE_RECEIVE] + r.peers[WB_STAGE_EXTERNAL]), 1e-6);
	fx_planned_forget(&p);
}
END_TEST

/* Six rounds of a pair: the last is packed when the fourth has left, of 1.19 GB at 1 GB/s. */
START_TEST(a_trainer_goes_on_when_its_last_round_is_packed)
{
	struct fx_planned p = plan_of("transformers:1", "vllm:tp1", 1, 1000000000);
	double s = (double)p.plan->model_bytes / 1e9;
	struct wb_predict_paper r;

	p.in.params.round_trainer_mib = 2.0 * (double)p.plan->model_bytes / 1048576 / 5.5;
	r = predicted(&p);
	ck_assert_uint_eq(r.rounds, 6);
	ck_assert_double_eq_tol(r.trainer_s, s * 4 / 6, 0.01 * s);
	ck_assert_double_le(r.engine_s, s * 2.01 / 6); /* it shares the rail with the second */
	ck_assert_double_eq_tol(r.agst_s, (r.trainer_s + r.ewtt_s - r.engine_s) / 2, 1e-9);
	fx_planned_forget(&p);
}
END_TEST

/* Bubbles at both ends are those of a round. */
START_TEST(more_memory_is_fewer_rounds_and_less_time)
{
	struct fx_planned p = plan_of("megatron:tp2,pp2", "vllm:tp2", 2, 50000000000);
	struct wb_predict_paper a, b;

	p.in.params.round_ms = 2;
	p.in.params.peer_ms = 0.9;
	p.in.params.rollout_mib = 200;
	a = predicted(&p);
	p.in.params.rollout_mib = 400;
	b = predicted(&p);
	ck_assert_uint_eq(b.rounds, (a.rounds + 1) / 2);
	ck_assert_double_lt(b.ewtt_s, a.ewtt_s);
	ck_assert_double_lt(b.control_s, a.control_s);
	fx_planned_forget(&p);
}
END_TEST

START_TEST(packing_assembling_and_nvlink_take_their_time)
{
	struct fx_planned p = plan_of("transformers:1", "vllm:tp1,dp2", 1, 50000000000);
	double quick = predicted(&p).ewtt_s, bytes = (double)p.plan->model_bytes;

	p.in.params.lane_gbs = 10;
	/* The trainer packs all of it, each of two engine workers assembles all of it. */
	ck_assert_double_eq_tol(predicted(&p).ewtt_s - quick, 2 * bytes / 10e9, 0.01);
	p.in.params.lane_gbs = 1e6;
	p.in.params.fabric_gbs = 10; /* over which each of them gets half */
	ck_assert_double_eq_tol(predicted(&p).ewtt_s - quick, bytes / 2 / 10e9, 0.01);
	fx_planned_forget(&p);
}
END_TEST

START_TEST(what_cannot_be_predicted_is_said)
{
	struct fx_planned p = plan_of("transformers:1", "vllm:tp1", 1, 1000000000);
	struct wb_predict_paper r;
	struct wb_err err = {0};

	p.in.params.rollout_mib = 0.001;
	ck_assert_int_eq(wb_predict_paper(&p.in, &r, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, "rolloutMiB=0.001"), "%s", err.msg);
	p.plan->worker[1].rail_bytes_per_s = 0;
	ck_assert_int_eq(wb_predict_paper(&p.in, &r, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, "the rate of worker 1's rail is not known"), "%s", err.msg);
	fx_planned_forget(&p);
}
END_TEST

START_TEST(memory_that_runs_out_is_an_error)
{
	struct fx_planned p = plan_of("megatron:tp2", "vllm:tp2", 2, 50000000000);
	struct wb_predict_paper r;
	struct wb_err err = {0};
	int rc = -ENOMEM;

	for (uint64_t n = 1; rc < 0; n++) {
		wb_mem_fail_at(n);
		rc = wb_predict_paper(&p.in, &r, &err);
		ck_assert(rc == 0 || (rc == -ENOMEM && wb_mem_failed()));
	}
	wb_mem_fail_at(0);
	fx_planned_forget(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("predict_paper");
	TCase *tc = tcase_create("predict_paper");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, one_pair_takes_its_bytes_over_its_rail, 0, 8);
	tcase_add_test(tc, engines_exchange_what_each_has_received);
	tcase_add_test(tc, what_a_round_costs_stands_before_its_stages);
	tcase_add_test(tc, a_trainer_goes_on_when_its_last_round_is_packed);
	tcase_add_test(tc, more_memory_is_fewer_rounds_and_less_time);
	tcase_add_test(tc, packing_assembling_and_nvlink_take_their_time);
	tcase_add_test(tc, what_cannot_be_predicted_is_said);
	tcase_add_test(tc, memory_that_runs_out_is_an_error);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
