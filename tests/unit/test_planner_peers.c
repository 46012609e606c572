/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many others a worker talks to in large deployments, and what that costs: trainers send what
 * very many domains need more often than once, where they have time for it.
 */
#include "base/base.h"
#include "base/err.h"
#include "planner/deploy/deploy.h"
#include "planner/internal.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RAIL UINT64_C(50000000000)

struct deployment {
	const char *model, *trainer, *rollout;
	uint32_t engines, peers_max;
};

static const struct deployment large[] = {
	{"Kimi-K2-Instruct", "megatron:tp8,pp8,cp4,ep32,last5", "sglang:tp32,dp8,ep32,dense_tp1", 8,
		64},
	{"Kimi-K2-Instruct", "megatron:tp8,pp8,cp4,ep32,last5,dp4",
		"sglang:tp32,dp8,ep32,dense_tp1", 32, 96},
	{"Qwen3-235B-A22B", "megatron:tp4,pp4,cp2,ep16,last22,dp32", "sglang:tp32,ep32", 32, 96},
	{"Kimi-K2-Instruct", "fsdp2:256,stacked", "sglang:tp32,dp8,ep32,dense_tp1", 8, 96},
	{"Qwen3-235B-A22B", "fsdp2:256,stacked", "sglang:tp32,ep32", 8, 96},
	{"Qwen3-32B", "fsdp2:256", "sglang:tp8", 32, 96},
};

static struct wb_deploy *deploy(const struct deployment *x)
{
	struct wb_deploy_spec s = {
		.engines = x->engines, .gpus_per_node = 8, .rail_bytes_per_s = RAIL};
	struct wb_deploy *d = NULL;
	struct wb_err err = {0};

	ck_assert_ptr_nonnull(wb_model_find(x->model));
	s.model = *wb_model_find(x->model);
	ck_assert_msg(!wb_parallel_parse(x->trainer, &s.trainer, &err), "%s", err.msg);
	ck_assert_msg(!wb_parallel_parse(x->rollout, &s.rollout, &err), "%s", err.msg);
	ck_assert_msg(!wb_deploy_create(&s, &d, &err), "%s", err.msg);
	return d;
}

/* @slower: trainers' rails are so many times slower. */
static struct wb_plan *plan_of(struct wb_deploy *d, uint32_t slower)
{
	struct wb_plan_input in = wb_deploy_input(d);
	struct wb_plan *p = NULL;
	struct wb_err err = {0};

	for (uint32_t i = 0; i < d->n_trainer; i++)
		d->worker[i].rail_bytes_per_s = RAIL / slower;
	ck_assert_msg(!wb_plan_create(&in, &p, &err), "%s", err.msg);
	return p;
}

static uint64_t most(const uint64_t *v, uint32_t n)
{
	uint64_t best = 0;

	for (uint32_t i = 0; i < n; i++)
		best = WB_MAX(best, v[i]);
	return best;
}

START_TEST(a_worker_talks_to_few_others_and_rails_stay_balanced)
{
	const struct deployment *x = &large[_i];
	struct wb_deploy *d = deploy(x);
	struct wb_plan *p = plan_of(d, 1);
	uint32_t n = p->n_worker, peers_max = 0;
	uint64_t *out = calloc(2 * n, sizeof(*out)), *in = out + n;
	uint8_t *pair = calloc((size_t)n * n, 1);
	double load;

	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];
		uint64_t all = p->cls[r->class_id].bytes;
		uint64_t bytes = WB_MIN((uint64_t)r->chunk_end * p->chunk_bytes, all) -
				 (uint64_t)r->chunk_begin * p->chunk_bytes;

		if (r->stage == WB_STAGE_INTERNAL)
			continue;
		out[r->src_rail] += bytes;
		in[r->dst_rail] += bytes;
		pair[(size_t)r->src_rail * n + r->dst_rail] = 1;
		pair[(size_t)r->dst_rail * n + r->src_rail] = 1;
	}
	for (uint32_t w = 0; w < n; w++) {
		uint32_t peers = 0;

		for (uint32_t v = 0; v < n; v++)
			peers += pair[(size_t)w * n + v];
		peers_max = WB_MAX(peers_max, peers);
	}
	load = (double)WB_MAX(most(out, n), most(in, n)) / (double)RAIL * 1e9;
	printf("%s, %s, %u x %s: %u peers, load %.4f of the bound\n", x->model, x->trainer,
		x->engines, x->rollout, peers_max, load / (double)p->worker_bound_ns);
	ck_assert_uint_le(peers_max, x->peers_max);
	ck_assert_double_le(load, 1.02 * (double)p->worker_bound_ns);
	free(out);
	free(pair);
	wb_plan_destroy(p);
	wb_deploy_destroy(d);
}
END_TEST

/* Domains that need a class. */
static uint32_t count_domains(const struct wb_plan *p, const struct wb_class *k)
{
	uint8_t *seen = calloc(p->n_worker, 1);
	uint32_t n = 0;

	for (uint32_t i = k->needer_begin; i < k->needer_end; i++) {
		uint32_t d = p->worker[p->member[i]].domain;

		n += !seen[d];
		seen[d] = 1;
	}
	free(seen);
	return n;
}

/* Each chunk leaves the trainers once, or with @is_spread once for every 32 domains. */
static void check_sent(const struct wb_plan *p, bool is_spread)
{
	uint32_t *sent = calloc(p->n_chunk, sizeof(*sent)), n_more = 0;

	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];

		for (uint32_t c = r->chunk_begin; r->stage == WB_STAGE_RECEIVE && c < r->chunk_end;
			c++)
			sent[p->cls[r->class_id].chunk_base + c]++;
	}
	for (uint32_t k = 0; k < p->n_class; k++) {
		uint32_t n = is_spread ? wb_ceil_div(count_domains(p, &p->cls[k]), 32) : 1;

		n_more += n > 1;
		for (uint32_t c = 0; c < p->cls[k].n_chunk; c++)
			ck_assert(sent[p->cls[k].chunk_base + c] == n);
	}
	ck_assert_int_eq(n_more > 0, is_spread);
	free(sent);
}

static const struct deployment many_engines = {
	"Qwen3-0.6B", "megatron:tp2,pp2,dp16", "sglang:tp1", 400, 0};

START_TEST(what_very_many_domains_need_is_sent_once_for_each_32)
{
	struct wb_deploy *d = deploy(&many_engines);
	struct wb_plan_input in = wb_deploy_input(d);
	struct wb_plan *p = plan_of(d, 1);
	struct wb_err err = {0};

	check_sent(p, true);
	ck_assert_msg(!wb_plan_check(p, d->manifest, in.layout, &err), "%s", err.msg);
	wb_plan_destroy(p);
	wb_deploy_destroy(d);
}
END_TEST

START_TEST(trainers_without_time_for_more_send_once)
{
	struct wb_deploy *d = deploy(&many_engines);
	struct wb_plan_input in = wb_deploy_input(d);
	struct wb_plan *p = plan_of(d, 8);
	struct wb_err err = {0};

	check_sent(p, false);
	ck_assert_msg(!wb_plan_check(p, d->manifest, in.layout, &err), "%s", err.msg);
	wb_plan_destroy(p);
	wb_deploy_destroy(d);
}
END_TEST

/* A domain that gets from a trainer what it should get from another domain. */
START_TEST(a_plan_by_which_trainers_send_too_often_fails_the_check)
{
	const struct deployment two = {"Qwen3-0.6B", "megatron:tp2", "sglang:tp1", 2, 0};
	struct wb_deploy *d = deploy(&two);
	struct wb_plan_input in = wb_deploy_input(d);
	struct wb_plan *p = plan_of(d, 1);
	struct wb_err err = {0};
	uint32_t i = 0;

	while (p->route[i].stage != WB_STAGE_EXTERNAL)
		i++;
	p->route[i].stage = WB_STAGE_RECEIVE;
	p->route[i].src = p->route[i].src_rail =
		(uint16_t)p->member[p->cls[p->route[i].class_id].holder_begin];
	qsort(p->route, p->n_route, sizeof(*p->route), wb__route_order);
	ck_assert_int_eq(wb_plan_check(p, d->manifest, in.layout, &err), WB_EPLAN);
	ck_assert_msg(strstr(err.msg, "trainers send this too often") != NULL, "%s", err.msg);
	wb_plan_destroy(p);
	wb_deploy_destroy(d);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("planner_peers");
	TCase *c = tcase_create("peers");

	suite_add_tcase(s, c);
	fx_add_points(c, a_worker_talks_to_few_others_and_rails_stay_balanced, 0,
		(int)WB_ARRAY_SIZE(large));
	tcase_add_test(c, what_very_many_domains_need_is_sent_once_for_each_32);
	tcase_add_test(c, trainers_without_time_for_more_send_once);
	tcase_add_test(c, a_plan_by_which_trainers_send_too_often_fails_the_check);
	tcase_set_timeout(c, 60);
	return fx_run(s);
}
