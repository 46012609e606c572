/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deployments of real models from geometry alone: their counts as publishers and an independent
 * generator give them, bounds, balance and peers of their plans; and what is refused.  That the
 * maps are those of the loaders is tests/py/test_deploy_maps.py's claim.
 */
#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/deploy/deploy.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RAIL UINT64_C(50000000000) /* 400 GB/s a node of 8 */

struct deployment {
	const char *title, *model, *trainer, *rollout;
	uint32_t engines, per_node;
};

static const struct deployment deployments[] = {
	{"a", "Moonlight-16B-A3B", "megatron:tp2,ep8", "sglang:tp8,ep8", 1, 8},
	{"b", "Qwen3-30B-A3B", "megatron:tp4,ep8,dp4", "sglang:tp8,ep8", 2, 8},
	{"c", "Qwen3-235B-A22B", "megatron:tp4,pp4,cp2,ep16,last22", "sglang:tp32,ep32", 2, 8},
	{"d", "Kimi-K2-Instruct", "megatron:tp8,pp8,cp4,ep32,last5",
		"sglang:tp32,dp8,ep32,dense_tp1", 8, 8},
	{"e", "Qwen3-32B", "megatron:tp8,pp2", "sglang:tp8", 2, 8},
	{"fsdp4", "Qwen3-0.6B", "fsdp2:4", "vllm:tp1", 1, 4},
	{"fsdp8", "Qwen3-0.6B", "fsdp2:8", "vllm:tp2", 2, 2},
	{"demo", "Qwen3-0.6B", "megatron:tp2,pp2", "vllm:tp2", 2, 2},
	{"whole", "Qwen3-0.6B", "transformers:2", "vllm:tp2,pp2", 2, 4},
	{"tiny-moe", "tiny-qwen3-moe", "megatron:tp2,pp2,ep2", "sglang:tp4,ep4", 2, 4},
	{"tiny-mla", "tiny-mla-moe", "megatron:tp2,ep4", "sglang:tp4,dp2,ep4,dense_tp1", 2, 4},
	{"tiny-dp", "tiny-mla-moe", "fsdp2:4,stacked", "vllm:tp2,dp2,ep4", 2, 4},
	{"tiny-casts", "tiny-qwen3-moe", "fsdp2:3,masters", "vllm:tp2", 2, 4},
};

static const struct wb_model tiny[] = {
	{.name = "tiny-qwen3-moe",
		.arch = WB_ARCH_QWEN3_MOE,
		.dtype = WB_BF16,
		.layers = 4,
		.hidden = 128,
		.vocab = 1000,
		.heads = 8,
		.kv_heads = 2,
		.head_dim = 32,
		.intermediate = 256,
		.experts = 8,
		.moe_intermediate = 96},
	{.name = "tiny-mla-moe",
		.arch = WB_ARCH_DEEPSEEK_V3,
		.dtype = WB_BF16,
		.layers = 4,
		.hidden = 128,
		.vocab = 1000,
		.heads = 8,
		.kv_heads = 8,
		.intermediate = 256,
		.experts = 8,
		.moe_intermediate = 48,
		.shared_experts = 1,
		.first_dense_layers = 1,
		.q_lora_rank = 64,
		.kv_lora_rank = 32,
		.qk_nope_head_dim = 16,
		.qk_rope_head_dim = 8,
		.v_head_dim = 16,
		.mtp_layers = 1},
};

static const struct wb_model *model(const char *name)
{
	for (size_t i = 0; i < WB_ARRAY_SIZE(tiny); i++)
		if (!strcmp(tiny[i].name, name))
			return &tiny[i];
	return wb_model_find(name);
}

/* @pods: of an engine on a node, which share memory; 0 = one, and those of engines share none. */
static int make_pods(
	const struct deployment *x, uint32_t pods, struct wb_deploy **out, struct wb_err *err)
{
	struct wb_deploy_spec s = {.model = *model(x->model),
		.engines = x->engines,
		.gpus_per_node = x->per_node,
		.rail_bytes_per_s = RAIL,
		.pods = pods,
		.shares_memory = pods > 0};
	int rc = wb_parallel_parse(x->trainer, &s.trainer, err);

	if (rc == 0)
		rc = wb_parallel_parse(x->rollout, &s.rollout, err);
	return rc < 0 ? rc : wb_deploy_create(&s, out, err);
}

static int make(const struct deployment *x, struct wb_deploy **out, struct wb_err *err)
{
	return make_pods(x, 0, out, err);
}

static struct wb_deploy *made(const char *title)
{
	struct wb_deploy *d = NULL;
	struct wb_err err = {0};

	for (size_t i = 0; i < WB_ARRAY_SIZE(deployments); i++)
		if (!strcmp(deployments[i].title, title))
			ck_assert_msg(!make(&deployments[i], &d, &err), "%s", err.msg);
	ck_assert(d);
	return d;
}

/* ---- models ---- */

/*
 * Elements of the checkpoint, as Hugging Face counts them from the headers of its safetensors files
 * (the model's page, "Model size"; twice as many bytes are total_size of its
 * model.safetensors.index.json).  Moonlight's hold 64 more a layer, rotary inv_freq, that nobody
 * loads.  Kimi-K2's are FP8 with scales; the count is of its weights.
 */
static const struct {
	const char *model;
	uint64_t published, not_loaded;
} totals[] = {
	{"Qwen3-0.6B", 751632384, 0},
	{"Qwen3-32B", 32762123264, 0},
	{"Qwen3-30B-A3B", 30532122624, 0},
	{"Qwen3-235B-A22B", 235093634560, 0},
	{"Moonlight-16B-A3B", 15960111936, 27 * 64},
	{"Kimi-K2-Instruct", 1026408232448, 0},
};

START_TEST(models_have_as_many_parameters_as_are_published)
{
	struct wb_manifest *m = NULL;
	uint64_t n = 0;

	ck_assert_uint_eq(WB_ARRAY_SIZE(totals), wb_n_model);
	ck_assert(!wb_model_check(model(totals[_i].model), NULL));
	ck_assert(!wb_model_manifest(model(totals[_i].model), &m, NULL));
	for (uint32_t t = 0; t < m->n; t++)
		n += m->tensor[t].rows * m->tensor[t].cols;
	ck_assert_uint_eq(n, totals[_i].published - totals[_i].not_loaded);
	wb_manifest_destroy(m);
}
END_TEST

static void number_is(const json_t *o, const char *key, uint64_t value)
{
	ck_assert_msg((uint64_t)json_integer_value(json_object_get(o, key)) == value, "%s", key);
}

START_TEST(built_in_models_are_those_that_the_reference_loaders_use)
{
	const struct wb_model *m = &wb_models[_i];
	const char *top = getenv("WB_TOP");
	json_error_t e;
	json_t *all, *o;
	char path[512];

	snprintf(path, sizeof(path), "%s/tests/models.json", top ? top : ".");
	all = json_load_file(path, 0, &e);
	o = json_object_get(all, m->name);
	ck_assert_msg(o, "%s", m->name);
	number_is(o, "layers", m->layers);
	number_is(o, "hidden", m->hidden);
	number_is(o, "vocab", m->vocab);
	number_is(o, "heads", m->heads);
	number_is(o, "kv_heads", m->kv_heads);
	number_is(o, "head_dim", m->head_dim);
	number_is(o, "intermediate", m->intermediate);
	number_is(o, "experts", m->experts);
	number_is(o, "moe_intermediate", m->moe_intermediate);
	number_is(o, "shared_experts", m->shared_experts);
	number_is(o, "first_dense_layers", m->first_dense_layers);
	number_is(o, "q_lora_rank", m->q_lora_rank);
	number_is(o, "kv_lora_rank", m->kv_lora_rank);
	number_is(o, "qk_nope_head_dim", m->qk_nope_head_dim);
	number_is(o, "qk_rope_head_dim", m->qk_rope_head_dim);
	number_is(o, "v_head_dim", m->v_head_dim);
	number_is(o, "mtp_layers", m->mtp_layers);
	ck_assert_str_eq(json_string_value(json_object_get(o, "dtype")), wb_dtype_name(m->dtype));
	ck_assert(
		json_is_true(json_object_get(o, "tie_word_embeddings")) == m->tie_word_embeddings);
	ck_assert(json_is_true(json_object_get(o, "ckpt_stores_tied_lm_head")) ==
		  m->stores_tied_lm_head);
	json_decref(all);
}
END_TEST

/* ---- counts ---- */

/* Numbers of trainers are least and greatest over workers, as stages differ. */
struct expected {
	const char *title;
	uint32_t tensors, layouts, t_params[2], t_ops[2], r_params, r_ops;
	double t_gb[2], r_gb, model_gb;
	uint32_t segments, set_pairs;
	double node_ms;
	uint32_t r_segs; /* least segments that a rollout worker takes part in; 0: not compared */
};

static const struct expected rows[] = {
	/* 648 segments more than shards meet: w_kc and w_vc cut kv_b_proj by head. */
	{"a", 5317, 16, {714, 714}, {949, 949}, 404, 1057, {5.20, 5.20}, 4.07, 31.92, 6465 + 648,
		17, 79.8, 0},
	{"b", 18867, 16, {1875, 1875}, {2739, 2739}, 435, 2739, {8.04, 8.04}, 7.68, 61.06, 19847,
		24, 152.7, 2739},
	{"e", 707, 24, {257, 258}, {353, 354}, 515, 707, {4.10, 4.10}, 8.19, 65.52, 3871, 32, 163.8,
		707},
	{"c", 36945, 96, {0, 0}, {0, 0}, 849, 0, {0, 0}, 0, 470.19, 0, 282, 294.1, 0},
	{"d", 69975, 288, {0, 0}, {0, 0}, 975, 4967, {0, 0}, 70.6, 2052.82, 0, 592, 1317.1, 0},
};

static double gb(const struct wb_map *map)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < map->n_param; i++)
		n += map->param[i].span * wb_dtype_bytes(map->param[i].dtype);
	return (double)n / 1e9;
}

static void check_trainers(const struct wb_deploy *d, const struct expected *x)
{
	uint32_t params[2] = {UINT32_MAX, 0}, ops[2] = {UINT32_MAX, 0};
	double size[2] = {1e9, 0};

	for (uint32_t r = 0; r < d->n_trainer; r++) {
		const struct wb_map *map = wb_deploy_map(d, WB_ROLE_TRAINER, r);

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
}

static void check_rollouts(const struct wb_deploy *d, const struct expected *x)
{
	for (uint32_t r = 0; r < d->spec.rollout.world; r++) {
		const struct wb_map *map = wb_deploy_map(d, WB_ROLE_ROLLOUT, r);

		ck_assert(!x->r_params || map->n_param == x->r_params);
		ck_assert(!x->r_ops || map->n_op == x->r_ops);
		ck_assert_msg(
			x->r_gb == 0 || (gb(map) > x->r_gb - 0.06 && gb(map) < x->r_gb + 0.06),
			"%f GB", gb(map));
	}
}

/* Classes without regard to the type. */
static uint32_t set_pairs(const struct wb_plan *p)
{
	uint32_t n = 0;

	for (uint32_t c = 0; c < p->n_class; c++) {
		bool is_new = true;

		for (uint32_t k = 0; k < c && is_new; k++)
			is_new = p->cls[k].holder_begin != p->cls[c].holder_begin ||
				 p->cls[k].needer_begin != p->cls[c].needer_begin;
		n += is_new;
	}
	return n;
}

/* Bytes over each network rail and the peers of each worker, counted apart from the summary. */
static void check_rails(const struct wb_plan *p)
{
	uint32_t n = p->n_worker, peers_max = 0;
	uint64_t *out = calloc(n, sizeof(*out)), *in = calloc(n, sizeof(*in)), most = 0, chunks = 0;
	uint8_t *pair = calloc((size_t)n * n, 1);
	struct wb_plan_summary sum;

	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];

		chunks += r->chunk_end - r->chunk_begin;
		for (uint32_t c = r->chunk_begin; r->stage != WB_STAGE_INTERNAL && c < r->chunk_end;
			c++) {
			uint64_t bytes = wb_chunk_len(p, &p->cls[r->class_id], c);

			out[r->src_rail] += bytes;
			in[r->dst_rail] += bytes;
			pair[(size_t)r->src_rail * n + r->dst_rail] = 1;
			pair[(size_t)r->dst_rail * n + r->src_rail] = 1;
		}
	}
	for (uint32_t w = 0; w < n; w++) {
		uint32_t peers = 0;

		most = WB_MAX(most, WB_MAX(out[w], in[w]));
		for (uint32_t v = 0; v < n; v++)
			peers += pair[(size_t)w * n + v];
		peers_max = WB_MAX(peers_max, peers);
	}
	ck_assert_double_le((double)most / RAIL * 1e9, 1.02 * (double)p->worker_bound_ns);
	ck_assert_uint_le(peers_max, 64);
	ck_assert(!wb_plan_summarize(p, &sum));
	ck_assert_uint_eq(sum.messages, chunks);
	ck_assert_uint_eq(sum.peers_max, peers_max);
	ck_assert_double_eq_tol((double)sum.busiest_ns, (double)most / RAIL * 1e9, 1.0);
	free(out);
	free(in);
	free(pair);
}

/* Least number of segments that a rollout worker takes part in. */
static uint32_t least_segments(const struct wb_plan *p, uint32_t first)
{
	uint32_t least = UINT32_MAX;

	for (uint32_t w = first; w < p->n_worker; w++) {
		uint32_t n = 0;

		for (uint32_t c = 0; c < p->n_class; c++)
			if (wb_class_has_member(p, &p->cls[c], w))
				n += p->cls[c].seg_end - p->cls[c].seg_begin;
		least = WB_MIN(least, n);
	}
	return least;
}

START_TEST(deployments_count_as_the_independent_table)
{
	const struct expected *x = &rows[_i];
	struct wb_deploy *d = made(x->title);
	struct wb_plan_input in = wb_deploy_input(d);
	struct wb_plan *p = NULL;
	struct wb_err err = {0};

	ck_assert_uint_eq(d->manifest->n, x->tensors);
	ck_assert_uint_eq(d->n_layout, x->layouts);
	check_trainers(d, x);
	check_rollouts(d, x);
	ck_assert_msg(!wb_plan_create(&in, &p, &err), "%s", err.msg);
	ck_assert_double_eq_tol((double)p->model_bytes / 1e9, x->model_gb, 0.01);
	if (x->segments)
		ck_assert_uint_eq(p->n_segment, x->segments);
	ck_assert_uint_eq(set_pairs(p), x->set_pairs);
	ck_assert_double_eq_tol((double)p->node_bound_ns / 1e6, x->node_ms, 0.06);
	ck_assert_msg(!wb_plan_check(p, d->manifest, in.layout, &err), "%s", err.msg);
	check_rails(p);
	if (x->r_segs)
		ck_assert_uint_ge(least_segments(p, d->n_trainer), x->r_segs);
	wb_plan_destroy(p);
	wb_deploy_destroy(d);
}
END_TEST

static const char *const small[] = {
	"fsdp4", "fsdp8", "demo", "whole", "tiny-moe", "tiny-mla", "tiny-dp", "tiny-casts"};

/* What no rollout loads: the head of a tied model, the layer that only trainers have. */
static uint64_t not_needed(const struct wb_deploy *d)
{
	const struct wb_model *m = &d->spec.model;
	uint64_t n = 0;
	char mtp[32];

	snprintf(mtp, sizeof(mtp), "model.layers.%u.", m->layers);
	for (uint32_t t = 0; t < d->manifest->n; t++) {
		const struct wb_tensor *x = &d->manifest->tensor[t];

		if (!strncmp(x->name, mtp, strlen(mtp)) ||
			(m->tie_word_embeddings && !strcmp(x->name, "lm_head.weight")))
			n += x->rows * x->cols * wb_dtype_bytes(x->dtype);
	}
	return n;
}

START_TEST(small_deployments_plan_and_check)
{
	struct wb_deploy *d = made(small[_i]);
	struct wb_plan_input in = wb_deploy_input(d);
	struct wb_plan *p = NULL;
	struct wb_err err = {0};

	ck_assert_msg(!wb_plan_create(&in, &p, &err), "%s", err.msg);
	ck_assert_msg(!wb_plan_check(p, d->manifest, in.layout, &err), "%s", err.msg);
	ck_assert_uint_eq(p->model_bytes, d->manifest->bytes - not_needed(d));
	wb_plan_destroy(p);
	wb_deploy_destroy(d);
}
END_TEST

/* ---- nodes ---- */

/* Node and domain of each worker, a letter each: trainers, then engines after a bar. */
static const struct {
	const char *trainer, *rollout;
	uint32_t engines, per_node, pods;
	const char *nodes, *domains;
} places[] = {
	{"fsdp2:4", "vllm:tp2", 2, 8, 1, "aaaa|bb|bb", "aaaa|bb|cc"},
	{"fsdp2:4", "vllm:tp2", 3, 4, 1, "aaaa|bb|bb|cc", "aaaa|bb|cc|dd"},
	{"fsdp2:3", "vllm:tp4", 2, 2, 1, "aab|ccdd|eeff", "aab|ccdd|eeff"},
	/* An engine of two does not lie on two nodes of three. */
	{"fsdp2:3", "vllm:tp2", 2, 3, 1, "aaa|bb|cc", "aaa|bb|cc"},
	{"fsdp2:1", "vllm:tp1", 3, 2, 1, "a|b|b|c", "a|b|c|d"},
	/* One of four begins on a node of its own. */
	{"fsdp2:2", "vllm:tp4", 2, 3, 1, "aa|bbbc|ddde", "aa|bbbc|ddde"},
	/* Without memory in common each is a node to the planner. */
	{"fsdp2:4", "vllm:tp2", 2, 8, 0, "aaaa|bb|cc", "aaaa|bb|cc"},
	/* Two pods a side on each node, and three, of which the last has what is left. */
	{"fsdp2:4", "vllm:tp4", 2, 8, 2, "aaaa|bbbb|bbbb", "aabb|ccdd|eeff"},
	{"fsdp2:6", "vllm:tp4", 1, 4, 2, "aaaabb|cccc", "aabbcd|eeff"},
	{"fsdp2:2", "vllm:tp8", 1, 8, 3, "aa|bbbbbbbb", "ab|cccdddee"},
};

START_TEST(engines_lie_on_as_few_nodes_as_hold_them)
{
	struct deployment x = {"", "Qwen3-0.6B", places[_i].trainer, places[_i].rollout,
		places[_i].engines, places[_i].per_node};
	struct wb_deploy *d = NULL;
	struct wb_err err = {0};
	char nodes[64] = "", domains[64] = "";
	size_t at = 0;

	ck_assert_msg(!make_pods(&x, places[_i].pods, &d, &err), "%s", err.msg);
	for (uint32_t w = 0; w < d->n_worker; w++) {
		if (w >= d->n_trainer && (w - d->n_trainer) % d->spec.rollout.world == 0) {
			nodes[at] = domains[at] = '|';
			at++;
		}
		nodes[at] = (char)('a' + d->worker[w].node);
		domains[at++] = (char)('a' + d->worker[w].domain);
	}
	ck_assert_str_eq(nodes, places[_i].nodes);
	ck_assert_str_eq(domains, places[_i].domains);
	ck_assert(!places[_i].pods || d->n_node == (uint32_t)(nodes[at - 1] - 'a' + 1));
	wb_deploy_destroy(d);
}
END_TEST

/* ---- refusals ---- */

static const struct {
	const char *model, *trainer, *rollout, *says;
} refusals[] = {
	{"Qwen3-32B", "megatrn:tp8", "vllm:tp8",
		"'megatrn:tp8': unknown framework 'megatrn': megatron, fsdp2 and transformers "
		"train,"
		" vllm and sglang serve"},
	{"Qwen3-32B", "megatron:xp8", "vllm:tp8",
		"'megatron:xp8': megatron has no setting 'xp8': it has tp, pp, cp, ep, dp, last, "
		"layers"},
	{"Qwen3-32B", "fsdp2:8,flat", "vllm:tp8",
		"'fsdp2:8,flat': fsdp2 has no setting 'flat': it has the number of ranks, stacked, "
		"masters"},
	{"Qwen3-32B", "fsdp2", "vllm:tp8",
		"'fsdp2': the number of ranks is missing: fsdp2:8, for example"},
	{"Qwen3-32B", "megatron:tp8,tp4", "vllm:tp8", "'megatron:tp8,tp4': tp is given twice"},
	{"Qwen3-32B", "megatron:tp0", "vllm:tp8", "'megatron:tp0': tp '0': expected 1 to 65536"},
	{"Qwen3-32B", "megatron:tp", "vllm:tp8", "'megatron:tp': tp '': expected 1 to 65536"},
	{"Qwen3-32B", "vllm:tp8", "vllm:tp8",
		"vllm does not train: megatron, fsdp2 and transformers do"},
	{"Qwen3-32B", "fsdp2:8", "megatron:tp8", "megatron does not serve: vllm and sglang do"},
	{"Qwen3-32B", "megatron:tp3", "vllm:tp8",
		"megatron: tp 3 does not divide 64 heads; 2 and 4 do"},
	{"Qwen3-32B", "megatron:tp128", "vllm:tp8",
		"megatron: tp 128 does not divide 64 heads; 64 does"},
	{"Qwen3-32B", "megatron:tp8,pp5", "vllm:tp8",
		"megatron: pp 5 does not divide 64 layers: name those of the last stage (last22) or"
		" of each (layers24+24+22)"},
	{"Qwen3-32B", "megatron:tp8,pp3,last4", "sglang:tp7",
		"sglang: tp 7 does not divide 64 heads; 4 and 8 do"},
	{"Qwen3-32B", "megatron:tp8,pp3,last5", "vllm:tp8",
		"megatron: last 5 leaves 59 layers, which 2 stages do not share evenly: name all of"
		" them, as in layers24+24+22"},
	{"Qwen3-32B", "megatron:layers30+30", "vllm:tp8",
		"megatron: the stages have 60 layers, the model 64"},
	{"Qwen3-32B", "megatron:pp3,layers32+32", "vllm:tp8",
		"megatron: pp 3, and layers names 2 stages"},
	{"Qwen3-32B", "megatron:tp8,ep8", "vllm:tp8",
		"megatron: ep 8, but Qwen3-32B has no experts: leave ep out"},
	{"Qwen3-32B", "fsdp2:8,stacked", "vllm:tp8",
		"fsdp2: stacked, but Qwen3-32B has no experts"},
	{"Qwen3-30B-A3B", "megatron:tp4,ep6", "vllm:tp8",
		"megatron: ep 6 does not divide 128 experts; 4 and 8 do"},
	{"Qwen3-30B-A3B", "megatron:tp4,dp1,ep8", "vllm:tp8",
		"megatron: ep 8 does not divide 4 workers of a stage (tp * cp * dp); 4 does"},
	{"Qwen3-30B-A3B", "megatron:tp4", "vllm:tp4,dp2,ep4",
		"vllm: ep 4: vllm deals experts out to all tp * dp workers (ep8) or splits them "
		"(no "
		"ep)"},
	{"Qwen3-30B-A3B", "megatron:tp4", "sglang:tp8,dp3",
		"sglang: dp 3 does not divide 8 workers of a stage (tp); 2 and 4 do"},
	{"Kimi-K2-Instruct", "megatron:tp8", "sglang:tp32,dp8,dense_tp4",
		"sglang: dense_tp 4: expected 1 or tp"},
	{"Moonlight-16B-A3B", "megatron:tp2", "sglang:tp48,dp3,ep16",
		"sglang: tp 48 does not divide 11264 rows of a dense MLP; 44 and 64 do"},
	{"Moonlight-16B-A3B", "megatron:tp2", "sglang:tp48,dp3,ep16,dense_tp1",
		"sglang: tp 48 does not divide 2816 rows of the shared experts; 44 and 64 do"},
	{"Moonlight-16B-A3B", "megatron:tp2", "sglang:tp256,dp16",
		"sglang: tp / ep 256 does not divide 1408 rows of an expert; 176 and 352 do"},
	{"Kimi-K2-Instruct", "fsdp2:256", "sglang:tp32",
		"fsdp2:256 cuts 69975 tensors into 17913600 pieces, more than the planner takes "
		"(16777216): fewer ranks, or experts stacked (fsdp2:256,stacked)"},
};

START_TEST(what_does_not_fit_is_refused_with_what_would)
{
	struct deployment x = {
		"", refusals[_i].model, refusals[_i].trainer, refusals[_i].rollout, 1, 8};
	struct wb_deploy *d = NULL;
	struct wb_err err = {0};

	ck_assert_int_lt(make(&x, &d, &err), 0);
	ck_assert_ptr_null(d);
	ck_assert_str_eq(err.msg, refusals[_i].says);
}
END_TEST

START_TEST(more_workers_than_a_plan_has_are_refused)
{
	struct deployment x = {"", "Qwen3-0.6B", "fsdp2:1", "vllm:tp1", WB_WORKERS_MAX, 8};
	struct wb_deploy *d = NULL;
	struct wb_err err = {0};

	ck_assert_int_eq(make(&x, &d, &err), -E2BIG);
	ck_assert_str_eq(err.msg, "16385 workers are more than 16384");
}
END_TEST

/* A model is refused by the first of its fields that is none. */
static const struct {
	size_t at;
	uint32_t value;
	const char *says;
} fields[] = {
	{offsetof(struct wb_model, layers), 0, "num_hidden_layers is 0: expected 1 to 4096"},
	{offsetof(struct wb_model, hidden), UINT32_MAX,
		"hidden_size is 4294967295: expected 1 to "
		"8388608"},
	{offsetof(struct wb_model, heads), 0, "num_attention_heads is 0: expected 1 to 8388608"},
	{offsetof(struct wb_model, kv_heads), 3,
		"num_key_value_heads 3 does not divide num_attention_heads 8"},
	{offsetof(struct wb_model, head_dim), UINT32_MAX,
		"head_dim is 4294967295: expected 1 to 2097152"},
	{offsetof(struct wb_model, experts), 0,
		"number of routed experts is 0: expected 1 to 4194304"},
	{offsetof(struct wb_model, mtp_layers), 2,
		"num_nextn_predict_layers is 2: expected 0 to 1"},
	{offsetof(struct wb_model, dtype), WB_I8,
		"weights of I8 are not supported: BF16, F16 and F32 are"},
};

START_TEST(hyperparameters_of_no_model_are_refused)
{
	struct wb_model m = tiny[0];
	struct wb_err err = {0};

	ck_assert(!wb_model_check(&m, &err));
	*(uint32_t *)(void *)((char *)&m + fields[_i].at) = fields[_i].value;
	ck_assert_int_eq(wb_model_check(&m, &err), -EINVAL);
	ck_assert_str_eq(err.msg, fields[_i].says);
}
END_TEST

START_TEST(short_memory_leaves_nothing_behind)
{
	struct deployment x = {"", "tiny-mla-moe", "megatron:tp2,ep4", "sglang:tp2", 2, 4};
	struct wb_deploy *d = NULL;
	struct wb_err err = {0};
	int rc = -ENOMEM;

	for (uint64_t n = 1; rc < 0; n += 1 + n / 16) {
		wb_mem_fail_at(n);
		rc = make(&x, &d, &err);
		ck_assert(rc == 0 ? !wb_mem_failed() : rc == -ENOMEM && !d);
	}
	wb_mem_fail_at(0);
	wb_deploy_destroy(d);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("planner_deploy");
	TCase *c = tcase_create("deploy");

	suite_add_tcase(s, c);
	tcase_add_loop_test(
		c, models_have_as_many_parameters_as_are_published, 0, WB_ARRAY_SIZE(totals));
	tcase_add_loop_test(
		c, built_in_models_are_those_that_the_reference_loaders_use, 0, (int)wb_n_model);
	tcase_add_loop_test(c, small_deployments_plan_and_check, 0, WB_ARRAY_SIZE(small));
	tcase_add_loop_test(c, engines_lie_on_as_few_nodes_as_hold_them, 0, WB_ARRAY_SIZE(places));
	tcase_add_loop_test(
		c, what_does_not_fit_is_refused_with_what_would, 0, WB_ARRAY_SIZE(refusals));
	tcase_add_test(c, more_workers_than_a_plan_has_are_refused);
	tcase_add_loop_test(c, hyperparameters_of_no_model_are_refused, 0, WB_ARRAY_SIZE(fields));
	tcase_add_test(c, short_memory_leaves_nothing_behind);
	/* The two large ones take a sanitizer minutes. */
	tcase_add_loop_test(c, deployments_count_as_the_independent_table, 0,
		fx_step() == 1 ? (int)WB_ARRAY_SIZE(rows) : 3);
	return fx_run(s);
}
