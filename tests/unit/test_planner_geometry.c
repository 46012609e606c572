/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole deployments of real models, planned without weights: their counts as an independent
 * generator found them, bounds, balance and peers.  WB_SLOW=1 adds the two large ones.
 */
#include "base/base.h"
#include "base/err.h"
#include "tests/common/fx_check.h"
#include "tests/common/geometry.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of trainers are least and greatest over workers, as stages differ. */
struct expected {
	const char *title;
	uint32_t tensors, layouts, t_params[2], t_ops[2], r_params, r_ops;
	double t_gb[2], r_gb, model_gb;
	uint32_t segments, set_pairs;
	double node_ms;
	const char *set_by;
	uint32_t t_segs[2], r_segs[2]; /* segments a worker takes part in; 0: not compared */
};

static const struct expected rows[] = {
	/* 648 segments more than shards meet: w_kc and w_vc cut kv_b_proj by head. */
	{"a", 5317, 16, {714, 714}, {949, 949}, 404, 1057, {5.20, 5.20}, 4.07, 31.92, 6465 + 648,
		17, 79.8, "trainers", {0, 0}, {0, 0}},
	{"b", 18867, 16, {1875, 1875}, {2739, 2739}, 435, 2739, {8.04, 8.04}, 7.68, 61.06, 19847,
		24, 152.7, "rollouts", {2837, 2839}, {2739, 2741}},
	{"e", 707, 24, {257, 258}, {353, 354}, 515, 707, {4.10, 4.10}, 8.19, 65.52, 3871, 32, 163.8,
		"rollouts", {353, 355}, {707, 709}},
	{"c", 36945, 96, {0, 0}, {0, 0}, 849, 0, {0, 0}, 0, 470.19, 0, 282, 294.1, "rollouts",
		{0, 0}, {0, 0}},
	{"d", 69975, 288, {0, 0}, {0, 0}, 0, 4967, {0, 0}, 70.6, 2052.82, 0, 592, 1317.1,
		"rollouts", {0, 0}, {0, 0}},
};

static void make(struct geometry *g, const char *title)
{
	const char *top = getenv("WB_TOP");
	char path[512];

	snprintf(path, sizeof(path), "%s/tests/models.json", top ? top : ".");
	geo_make(g, geo_setting(title), path);
}

static double gb(const struct wb_map *map)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < map->n_param; i++)
		n += map->param[i].span * wb_dtype_bytes(map->param[i].dtype);
	return (double)n / 1e9;
}

static void check_layouts(const struct geometry *g, const struct expected *x)
{
	uint32_t params[2] = {UINT32_MAX, 0}, ops[2] = {UINT32_MAX, 0};
	double size[2] = {1e9, 0};

	ck_assert_uint_eq(g->m->n, x->tensors);
	ck_assert_uint_eq(g->in.n_layout, x->layouts);
	for (uint32_t l = 0; l < g->n_trainer_layout; l++) {
		const struct wb_map *map = g->layout[l];

		params[0] = WB_MIN(params[0], map->n_param);
		params[1] = WB_MAX(params[1], map->n_param);
		ops[0] = WB_MIN(ops[0], map->n_op);
		ops[1] = WB_MAX(ops[1], map->n_op);
		size[0] = WB_MIN(size[0], gb(map));
		size[1] = WB_MAX(size[1], gb(map));
	}
	for (int i = 0; i < 2 && x->t_params[0]; i++) {
		ck_assert_uint_eq(params[i], x->t_params[i]);
		ck_assert_uint_eq(ops[i], x->t_ops[i]);
		ck_assert_double_eq_tol(size[i], x->t_gb[i], 0.006);
	}
	for (uint32_t l = g->n_trainer_layout; l < g->in.n_layout; l++) {
		ck_assert(!x->r_params || g->layout[l]->n_param == x->r_params);
		ck_assert(!x->r_ops || g->layout[l]->n_op == x->r_ops);
		ck_assert_msg(x->r_gb == 0 || (gb(g->layout[l]) > x->r_gb - 0.06 &&
						      gb(g->layout[l]) < x->r_gb + 0.06),
			"%f GB", gb(g->layout[l]));
	}
}

/* Every network rail within 2 % of the worker-level bound; at most 64 network peers. */
static void check_rails(const struct wb_plan *p)
{
	uint32_t n = p->n_worker;
	uint64_t *out = calloc(n, sizeof(*out)), *in = calloc(n, sizeof(*in));
	uint8_t *pair = calloc((size_t)n * n, 1);

	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];
		uint64_t bytes =
			WB_MIN((uint64_t)r->chunk_end * p->chunk_bytes, p->cls[r->class_id].bytes) -
			(uint64_t)r->chunk_begin * p->chunk_bytes;

		if (r->stage == WB_STAGE_INTERNAL)
			continue;
		out[r->src] += bytes;
		in[r->dst] += bytes;
		pair[(size_t)r->src * n + r->dst] = pair[(size_t)r->dst * n + r->src] = 1;
	}
	for (uint32_t w = 0; w < n; w++) {
		double ms =
			(double)WB_MAX(out[w], in[w]) / (double)p->worker[w].rail_bytes_per_s * 1e3;
		uint32_t peers = 0;

		for (uint32_t v = 0; v < n; v++)
			peers += pair[(size_t)w * n + v];
		ck_assert_msg(
			ms <= 1.02 * (double)p->worker_bound_ns / 1e6, "worker %u: %f ms", w, ms);
		ck_assert_uint_le(peers, 64);
	}
	free(out);
	free(in);
	free(pair);
}

/* Segments that workers [begin, end) take part in: least and greatest. */
static void segments_of(const struct wb_plan *p, uint32_t begin, uint32_t end, uint32_t range[2])
{
	uint32_t *n = calloc(p->n_worker, sizeof(*n));

	for (uint32_t c = 0; c < p->n_class; c++) {
		const struct wb_class *k = &p->cls[c];

		for (uint32_t i = k->holder_begin; i < k->holder_end; i++)
			n[p->member[i]] += k->seg_end - k->seg_begin;
		for (uint32_t i = k->needer_begin; i < k->needer_end; i++)
			n[p->member[i]] += k->seg_end - k->seg_begin;
	}
	range[0] = UINT32_MAX;
	range[1] = 0;
	for (uint32_t w = begin; w < end; w++) {
		range[0] = WB_MIN(range[0], n[w]);
		range[1] = WB_MAX(range[1], n[w]);
	}
	free(n);
}

START_TEST(deployments_count_as_the_independent_table)
{
	const struct expected *x = &rows[_i];
	struct geometry g;
	struct wb_plan *p = NULL;
	struct wb_err err = {0};
	uint32_t range[2];

	make(&g, x->title);
	check_layouts(&g, x);
	ck_assert_msg(!wb_plan_create(&g.in, &p, &err), "%s", err.msg);
	ck_assert_double_eq_tol((double)p->model_bytes / 1e9, x->model_gb, 0.01);
	if (x->segments)
		ck_assert_uint_eq(p->n_segment, x->segments);
	ck_assert_uint_eq(geo_set_pairs(p), x->set_pairs);
	ck_assert_double_eq_tol((double)p->node_bound_ns / 1e6, x->node_ms, 0.06);
	ck_assert_msg(!wb_plan_check(p, g.m, g.in.layout, &err), "%s", err.msg);
	check_rails(p);
	if (x->t_segs[0]) {
		/* Holders of replicated tensors take part in them all, senders or not. */
		segments_of(p, g.n_trainer, p->n_worker, range);
		ck_assert_uint_le(range[0], range[1]);
		ck_assert_uint_ge(range[0], x->r_segs[0]);
	}
	wb_plan_destroy(p);
	geo_finish(&g);
}
END_TEST

static const char *const small[] = {"fsdp4", "fsdp8", "demo", "tiny-moe", "tiny-mla"};

START_TEST(small_deployments_plan_and_check)
{
	struct geometry g;
	struct wb_plan *p = NULL;
	struct wb_err err = {0};

	make(&g, small[_i]);
	ck_assert_msg(!wb_plan_create(&g.in, &p, &err), "%s", err.msg);
	ck_assert_msg(!wb_plan_check(p, g.m, g.in.layout, &err), "%s", err.msg);
	/* The unused lm_head of a tied model is sent to nobody. */
	if (g.model.is_tied)
		ck_assert_uint_eq(p->model_bytes, g.m->bytes - g.model.vocab * g.model.hidden * 2);
	else
		ck_assert_uint_eq(p->model_bytes, g.m->bytes);
	wb_plan_destroy(p);
	geo_finish(&g);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("planner_geometry");
	TCase *c = tcase_create("geometry");

	suite_add_tcase(s, c);
	tcase_add_loop_test(c, small_deployments_plan_and_check, 0, WB_ARRAY_SIZE(small));
	tcase_add_loop_test(c, deployments_count_as_the_independent_table, 0,
		getenv("WB_SLOW") ? (int)WB_ARRAY_SIZE(rows) : 3);
	return fx_run(s);
}
