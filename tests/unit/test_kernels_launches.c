/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many kernels a GPU is given for a chunk: of plans of real models, every chunk that their
 * first trainer sends and that the first worker of their engine gets.
 */
#include "base/err.h"
#include "base/mem.h"
#include "kernels/gpu.h"
#include "planner/binding.h"
#include "planner/deploy/deploy.h"
#include "tests/common/fx_check.h"

#include <stdio.h>

#define BOXES_MAX 8192u
#define LAUNCHES_MAX 2u

struct deployment {
	const char *model, *trainer, *rollout;
};

/* As they are, fused, by experts, stacked and transposed, latent attention, and cast from f32. */
static const struct deployment deployments[] = {
	{"Qwen3-30B-A3B", "megatron:tp4,ep8", "sglang:tp8,ep8"},
	{"Qwen3-30B-A3B", "megatron:tp2,pp2,ep4", "vllm:tp4"},
	{"Qwen3-30B-A3B", "fsdp2:8", "vllm:tp8"},
	{"Qwen3-30B-A3B", "fsdp2:8,stacked", "sglang:tp4,ep4"},
	{"Qwen3-30B-A3B", "fsdp2:8,masters", "vllm:tp4"},
	{"Qwen3-32B", "megatron:tp8,pp2", "sglang:tp8"},
	{"Moonlight-16B-A3B", "megatron:tp2,ep8", "sglang:tp8,ep8"},
	{"Kimi-K2-Instruct", "megatron:tp8,pp8,cp4,ep32,last5", "sglang:tp32,dp8,ep32,dense_tp1"},
};

struct plan {
	struct wb_deploy *d;
	struct wb_plan *p;
};

static struct plan plan_of(const struct deployment *x)
{
	struct wb_deploy_spec spec = {.model = *wb_model_find(x->model),
		.engines = 1,
		.gpus_per_node = 8,
		.rail_bytes_per_s = UINT64_C(50000000000)};
	struct wb_plan_input in;
	struct wb_err err = {0};
	struct plan out;

	ck_assert_msg(wb_parallel_parse(x->trainer, &spec.trainer, &err) == 0, "%s", err.msg);
	ck_assert_msg(wb_parallel_parse(x->rollout, &spec.rollout, &err) == 0, "%s", err.msg);
	ck_assert_msg(wb_deploy_create(&spec, &out.d, &err) == 0, "%s", err.msg);
	in = wb_deploy_input(out.d);
	ck_assert_msg(wb_plan_create(&in, &out.p, &err) == 0, "%s", err.msg);
	return out;
}

/* Kernels that have tiles of the chunk's boxes, as a lane queues them. */
static unsigned launches(const struct wb_binding *b, uint32_t cls, uint32_t chunk, enum wbk_way way)
{
	static struct wbk_box box[BOXES_MAX];
	static struct wbk_op op[BOXES_MAX];
	static uint32_t param[BOXES_MAX], first[WBK_MOVES * (BOXES_MAX + 1)];
	int n = wb_binding_boxes(b, cls, chunk, way == WBK_WAY_ASSEMBLE, box, param, BOXES_MAX);
	unsigned found = 0;
	uint32_t bad;

	ck_assert(n > 0);
	for (int i = 0; i < n; i++)
		op[i] = wbk_op_of_box(&box[i], 0);
	ck_assert(wbk_move_prepare(op, (uint32_t)n, way, first, &bad) == 0);
	for (unsigned i = 0; i < WBK_MOVES; i++)
		found += wbk_move_tiles(first, (uint32_t)n, i) > 0;
	return found;
}

/* @n: chunks of worker @who by how many launches they take. */
static void count(const struct plan *x, uint32_t who, uint64_t n[WBK_MOVES + 1])
{
	const struct wb_plan *p = x->p;
	bool is_trainer = who < x->d->n_trainer;
	const struct wb_map *map =
		wb_deploy_map(x->d, p->worker[who].role, is_trainer ? who : who - x->d->n_trainer);
	struct wb_binding *b;
	struct wb_err err = {0};

	ck_assert_msg(wb_binding_create(p, x->d->manifest, map, who, &b, &err) == 0, "%s", err.msg);
	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];
		bool is_its =
			is_trainer ? r->src == who && r->stage == WB_STAGE_RECEIVE : r->dst == who;

		for (uint32_t c = r->chunk_begin; is_its && c < r->chunk_end; c++)
			n[launches(
				b, r->class_id, c, is_trainer ? WBK_WAY_PACK : WBK_WAY_ASSEMBLE)]++;
	}
	wb_binding_destroy(b);
}

START_TEST(an_op_without_elements_has_no_tiles_whatever_its_kernel_was)
{
	uint32_t first[WBK_MOVES * 2], bad;
	struct wbk_op op;

	memset(&op, 0xee, sizeof(op));
	op = (struct wbk_op){.n = {4, 0, 2, 8}, .mem_elem = 2, .wire_elem = 2};
	op.kernel = 0xee; /* as memory had it */
	ck_assert_int_eq(wbk_move_prepare(&op, 1, WBK_WAY_PACK, first, &bad), 0);
	ck_assert_uint_lt(op.kernel, WBK_MOVES);
	for (unsigned i = 0; i < WBK_MOVES; i++)
		ck_assert_uint_eq(wbk_move_tiles(first, 1, i), 0);
}
END_TEST

START_TEST(a_chunk_is_one_launch_or_two)
{
	const struct deployment *d = &deployments[_i];
	struct plan x = plan_of(d);

	for (int is_trainer = 0; is_trainer < 2; is_trainer++) {
		uint64_t n[WBK_MOVES + 1] = {0}, all = 0;

		count(&x, is_trainer ? 0 : x.d->n_trainer, n);
		count(&x, is_trainer ? x.d->n_trainer - 1 : x.p->n_worker - 1, n);
		for (unsigned i = 0; i <= WBK_MOVES; i++)
			all += n[i];
		printf("%s, %s to %s, %s: of %llu chunks %llu take one launch, %llu two\n",
			d->model, d->trainer, d->rollout, is_trainer ? "packed" : "assembled",
			(unsigned long long)all, (unsigned long long)n[1],
			(unsigned long long)n[2]);
		ck_assert_uint_gt(all, 0);
		for (unsigned i = LAUNCHES_MAX + 1; i <= WBK_MOVES; i++)
			ck_assert_uint_eq(n[i], 0);
	}
	wb_plan_destroy(x.p);
	wb_deploy_destroy(x.d);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kernels_launches");
	TCase *t = tcase_create("deployments");

	fx_add_points(t, a_chunk_is_one_launch_or_two, 0,
		(int)(sizeof(deployments) / sizeof(*deployments)));
	tcase_add_test(t, an_op_without_elements_has_no_tiles_whatever_its_kernel_was);
	suite_add_tcase(s, t);
	return fx_run(s);
}
