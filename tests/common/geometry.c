/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/geometry.h"

#include "base/base.h"
#include "base/mem.h"
#include "tests/common/fx_plan.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GBPS50 UINT64_C(50000000000) /* 400 GB/s a node of 8 */

const struct geo_setting geo_settings[] = {
	{"a", "Moonlight-16B-A3B", 0, 2, 1, 1, 8, 4, 0, 8, 8, 1, false, 8, GBPS50},
	{"b", "Qwen3-30B-A3B", 0, 4, 1, 1, 8, 4, 0, 8, 8, 2, false, 8, GBPS50},
	{"c", "Qwen3-235B-A22B", 0, 4, 4, 2, 16, 2, 22, 32, 32, 2, false, 8, GBPS50},
	{"d", "Kimi-K2-Instruct", 0, 8, 8, 4, 32, 1, 5, 32, 4, 8, true, 8, GBPS50},
	{"e", "Qwen3-32B", 0, 8, 2, 1, 1, 1, 0, 8, 8, 2, false, 8, GBPS50},
	{"fsdp4", "Qwen3-0.6B", 4, 0, 0, 0, 0, 0, 0, 1, 1, 1, false, 4, GBPS50},
	{"fsdp8", "Qwen3-0.6B", 8, 0, 0, 0, 0, 0, 0, 2, 2, 2, false, 2, GBPS50},
	{"demo", "Qwen3-0.6B", 0, 2, 2, 1, 1, 1, 0, 2, 2, 2, false, 2, GBPS50},
	{"tiny-moe", "tiny-qwen3-moe", 0, 2, 2, 1, 2, 1, 0, 4, 4, 2, false, 4, GBPS50},
	{"tiny-mla", "tiny-mla-moe", 0, 2, 1, 1, 4, 2, 0, 4, 2, 2, true, 4, GBPS50},
};
const uint32_t geo_n_setting = WB_ARRAY_SIZE(geo_settings);

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "geometry: %s\n", what);
	abort();
}

const struct geo_setting *geo_setting(const char *title)
{
	for (uint32_t i = 0; i < geo_n_setting; i++)
		if (!strcmp(geo_settings[i].title, title))
			return &geo_settings[i];
	return NULL;
}

/* ---- the model ---- */

static uint64_t number(const json_t *o, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(o, key));
}

static void load_model(struct geo_model *g, const char *path, const char *name)
{
	json_error_t e;
	json_t *all = json_load_file(path, 0, &e), *o = json_object_get(all, name);

	must(o, "no such model in models.json");
	snprintf(g->arch, sizeof(g->arch), "%s", json_string_value(json_object_get(o, "arch")));
	g->layers = number(o, "layers");
	g->hidden = number(o, "hidden");
	g->heads = number(o, "heads");
	g->kv_heads = number(o, "kv_heads");
	g->head_dim = number(o, "head_dim");
	g->q_lora = number(o, "q_lora_rank");
	g->kv_lora = number(o, "kv_lora_rank");
	g->nope = number(o, "qk_nope_head_dim");
	g->rope = number(o, "qk_rope_head_dim");
	g->v_dim = number(o, "v_head_dim");
	g->inter = number(o, "intermediate");
	g->moe_inter = number(o, "moe_intermediate");
	g->experts = number(o, "experts");
	g->shared = number(o, "shared_experts");
	g->dense_layers = number(o, "first_dense_layers");
	g->vocab = number(o, "vocab");
	g->is_tied = json_is_true(json_object_get(o, "tie_word_embeddings"));
	json_decref(all);
}

static bool is_mla(const struct geo_model *g)
{
	return g->kv_lora != 0;
}

static bool is_moe(const struct geo_model *g, uint64_t layer)
{
	return g->experts && layer >= g->dense_layers;
}

/* ---- the manifest ---- */

struct list {
	struct wb_tensor *t;
	size_t cap;
	uint32_t n;
};

static void tensor(
	struct list *l, enum wb_dtype type, uint64_t rows, uint64_t cols, const char *fmt, ...)
{
	char name[128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	must(!wb_grow(&l->t, &l->cap, l->n + 1, WB_TENSORS_MAX, sizeof(*l->t)), "memory");
	l->t[l->n++] = fx_tensor(wb_strdup(name), type, rows, cols);
}

static void attention_tensors(struct list *l, const struct geo_model *g, int i)
{
	uint64_t h = g->hidden;

	if (!is_mla(g)) {
		tensor(l, WB_BF16, g->heads * g->head_dim, h,
			"model.layers.%d.self_attn.q_proj.weight", i);
		tensor(l, WB_BF16, g->kv_heads * g->head_dim, h,
			"model.layers.%d.self_attn.k_proj.weight", i);
		tensor(l, WB_BF16, g->kv_heads * g->head_dim, h,
			"model.layers.%d.self_attn.v_proj.weight", i);
		tensor(l, WB_BF16, h, g->heads * g->head_dim,
			"model.layers.%d.self_attn.o_proj.weight", i);
		tensor(l, WB_BF16, 0, g->head_dim, "model.layers.%d.self_attn.q_norm.weight", i);
		tensor(l, WB_BF16, 0, g->head_dim, "model.layers.%d.self_attn.k_norm.weight", i);
		return;
	}
	if (g->q_lora) {
		tensor(l, WB_BF16, g->q_lora, h, "model.layers.%d.self_attn.q_a_proj.weight", i);
		tensor(l, WB_BF16, 0, g->q_lora, "model.layers.%d.self_attn.q_a_layernorm.weight",
			i);
		tensor(l, WB_BF16, g->heads * (g->nope + g->rope), g->q_lora,
			"model.layers.%d.self_attn.q_b_proj.weight", i);
	} else {
		tensor(l, WB_BF16, g->heads * (g->nope + g->rope), h,
			"model.layers.%d.self_attn.q_proj.weight", i);
	}
	tensor(l, WB_BF16, g->kv_lora + g->rope, h,
		"model.layers.%d.self_attn.kv_a_proj_with_mqa.weight", i);
	tensor(l, WB_BF16, 0, g->kv_lora, "model.layers.%d.self_attn.kv_a_layernorm.weight", i);
	tensor(l, WB_BF16, g->heads * (g->nope + g->v_dim), g->kv_lora,
		"model.layers.%d.self_attn.kv_b_proj.weight", i);
	tensor(l, WB_BF16, h, g->heads * g->v_dim, "model.layers.%d.self_attn.o_proj.weight", i);
}

static void mlp_tensors(struct list *l, uint64_t h, uint64_t inter, const char *prefix)
{
	tensor(l, WB_BF16, inter, h, "%s.gate_proj.weight", prefix);
	tensor(l, WB_BF16, inter, h, "%s.up_proj.weight", prefix);
	tensor(l, WB_BF16, h, inter, "%s.down_proj.weight", prefix);
}

static void layer_tensors(struct list *l, const struct geo_model *g, int i)
{
	char prefix[96];

	tensor(l, WB_BF16, 0, g->hidden, "model.layers.%d.input_layernorm.weight", i);
	attention_tensors(l, g, i);
	tensor(l, WB_BF16, 0, g->hidden, "model.layers.%d.post_attention_layernorm.weight", i);
	snprintf(prefix, sizeof(prefix), "model.layers.%d.mlp", i);
	if (!is_moe(g, i)) {
		mlp_tensors(l, g->hidden, g->inter, prefix);
		return;
	}
	tensor(l, WB_BF16, g->experts, g->hidden, "model.layers.%d.mlp.gate.weight", i);
	if (is_mla(g))
		tensor(l, WB_F32, 0, g->experts, "model.layers.%d.mlp.gate.e_score_correction_bias",
			i);
	for (uint64_t e = 0; e < g->experts; e++) {
		snprintf(prefix, sizeof(prefix), "model.layers.%d.mlp.experts.%d", i, (int)e);
		mlp_tensors(l, g->hidden, g->moe_inter, prefix);
	}
	snprintf(prefix, sizeof(prefix), "model.layers.%d.mlp.shared_experts", i);
	if (g->shared)
		mlp_tensors(l, g->hidden, g->shared * g->moe_inter, prefix);
}

static struct wb_manifest *make_manifest(const struct geo_model *g)
{
	struct wb_manifest *m = NULL;
	struct list l = {0};

	tensor(&l, WB_BF16, g->vocab, g->hidden, "model.embed_tokens.weight");
	for (uint64_t i = 0; i < g->layers; i++)
		layer_tensors(&l, g, (int)i);
	tensor(&l, WB_BF16, 0, g->hidden, "model.norm.weight");
	tensor(&l, WB_BF16, g->vocab, g->hidden, "lm_head.weight");
	must(!wb_manifest_create(l.t, l.n, &m, NULL), "manifest");
	for (uint32_t i = 0; i < l.n; i++)
		wb_free(l.t[i].name);
	wb_free(l.t);
	return m;
}

/* ---- parameters ---- */

struct maker {
	struct fx_map f;
	const struct geo_model *g;
	const struct geo_setting *s;
	char name[4][160]; /* turning */
	int turn, layer;
};

static const char *in_layer(struct maker *k, const char *rest)
{
	char *n = k->name[k->turn++ % 4];

	snprintf(n, sizeof(k->name[0]), "model.layers.%d.%s", k->layer, rest);
	return n;
}

static const char *in_expert(struct maker *k, uint64_t expert, const char *rest)
{
	char *n = k->name[k->turn++ % 4];

	snprintf(n, sizeof(k->name[0]), "model.layers.%d.mlp.experts.%d.%s", k->layer, (int)expert,
		rest);
	return n;
}

static const struct wb_tensor *find(const struct maker *k, const char *name)
{
	int64_t t = wb_manifest_find(k->f.m, name);

	must(t >= 0, name);
	return &k->f.m->tensor[t];
}

/* A parameter that is a tensor's rows or columns of part @i of @n. */
static void row_shard(struct maker *k, const char *name, uint64_t i, uint64_t n)
{
	const struct wb_tensor *t = find(k, name);
	uint64_t part = t->rows / n;
	uint32_t p = fx_param(&k->f, name, t->dtype, t->ndim == 1 ? 0 : part, t->cols);

	must(t->rows % n == 0, name);
	fx_copy(&k->f, p, name, (struct fx_box){i * part, part, 0, t->cols, 0, 0});
}

static void col_shard(struct maker *k, const char *name, uint64_t i, uint64_t n)
{
	const struct wb_tensor *t = find(k, name);
	uint64_t part = t->cols / n;
	uint32_t p = fx_param(&k->f, name, t->dtype, t->rows, part);

	must(t->cols % n == 0, name);
	fx_copy(&k->f, p, name, (struct fx_box){0, t->rows, i * part, part, 0, 0});
}

static void whole(struct maker *k, const char *name)
{
	row_shard(k, name, 0, 1);
}

/* Rows of part @i of @n of the vocabulary padded to a multiple of @pad; the padding is zero. */
static void vocab_shard(struct maker *k, const char *name, uint64_t i, uint64_t n, uint64_t pad)
{
	const struct wb_tensor *t = find(k, name);
	uint64_t part = wb_align_up(t->rows, pad) / n, from = WB_MIN(i * part, t->rows);
	uint64_t rows = WB_MIN(part, t->rows - from);
	uint32_t p = fx_param(&k->f, name, t->dtype, part, t->cols);

	if (rows)
		fx_copy(&k->f, p, name, (struct fx_box){from, rows, 0, t->cols, 0, 0});
	if (rows < part)
		fx_region(&k->f, (struct wb_region){p, WB_REGION_CONSTANT, rows * t->cols, t->cols,
					 (uint32_t)(part - rows), (uint32_t)t->cols, 0});
}

/* [gate_i; up_i] under parameter row @at. */
static void gate_up(struct maker *k, uint32_t p, uint64_t at, const char *gate, const char *up,
	const uint64_t part[2])
{
	const struct wb_tensor *t = find(k, gate);
	uint64_t rows = t->rows / part[1], from = part[0] * rows;

	fx_copy(&k->f, p, gate, (struct fx_box){from, rows, 0, t->cols, at, 0});
	fx_copy(&k->f, p, up, (struct fx_box){from, rows, 0, t->cols, at + rows, 0});
}

static void mlp(struct maker *k, const char *prefix, uint64_t i, uint64_t n)
{
	char name[3][128];
	uint64_t part[2] = {i, n}, rows;
	uint32_t p;

	snprintf(name[0], sizeof(name[0]), "%s.gate_proj.weight", prefix);
	snprintf(name[1], sizeof(name[1]), "%s.up_proj.weight", prefix);
	snprintf(name[2], sizeof(name[2]), "%s.down_proj.weight", prefix);
	rows = find(k, name[0])->rows / n;
	p = fx_param(&k->f, prefix, WB_BF16, 2 * rows, k->g->hidden);
	gate_up(k, p, 0, name[0], name[1], part);
	col_shard(k, name[2], i, n);
}

/* ---- Megatron ---- */

/* Per KV group: its q rows, its k rows, its v rows. */
static void megatron_qkv(struct maker *k, uint64_t tp)
{
	const struct geo_model *g = k->g;
	uint64_t groups = g->kv_heads / k->s->tp, d = g->head_dim;
	uint64_t q = g->heads / g->kv_heads * d, at = 0;
	uint32_t p = fx_param(&k->f, in_layer(k, "self_attention.linear_qkv.weight"), WB_BF16,
		groups * (q + 2 * d), g->hidden);

	must(g->kv_heads % k->s->tp == 0, "KV heads over TP");
	for (uint64_t i = tp * groups; i < (tp + 1) * groups; i++, at += q + 2 * d) {
		fx_copy(&k->f, p, in_layer(k, "self_attn.q_proj.weight"),
			(struct fx_box){i * q, q, 0, g->hidden, at, 0});
		fx_copy(&k->f, p, in_layer(k, "self_attn.k_proj.weight"),
			(struct fx_box){i * d, d, 0, g->hidden, at + q, 0});
		fx_copy(&k->f, p, in_layer(k, "self_attn.v_proj.weight"),
			(struct fx_box){i * d, d, 0, g->hidden, at + q + d, 0});
	}
	whole(k, in_layer(k, "self_attn.q_norm.weight"));
	whole(k, in_layer(k, "self_attn.k_norm.weight"));
}

static void megatron_mla(struct maker *k, uint64_t tp)
{
	if (k->g->q_lora) {
		whole(k, in_layer(k, "self_attn.q_a_proj.weight"));
		whole(k, in_layer(k, "self_attn.q_a_layernorm.weight"));
		row_shard(k, in_layer(k, "self_attn.q_b_proj.weight"), tp, k->s->tp);
	} else {
		row_shard(k, in_layer(k, "self_attn.q_proj.weight"), tp, k->s->tp);
	}
	whole(k, in_layer(k, "self_attn.kv_a_proj_with_mqa.weight"));
	whole(k, in_layer(k, "self_attn.kv_a_layernorm.weight"));
	row_shard(k, in_layer(k, "self_attn.kv_b_proj.weight"), tp, k->s->tp);
}

static void megatron_experts(struct maker *k, uint64_t ep)
{
	const struct geo_model *g = k->g;
	uint64_t n = g->experts / k->s->ep, part[2] = {0, 1};

	whole(k, in_layer(k, "mlp.gate.weight"));
	if (is_mla(g))
		whole(k, in_layer(k, "mlp.gate.e_score_correction_bias"));
	for (uint64_t e = ep * n; e < (ep + 1) * n; e++) {
		uint32_t p = fx_param(
			&k->f, in_expert(k, e, "linear_fc1"), WB_BF16, 2 * g->moe_inter, g->hidden);

		gate_up(k, p, 0, in_expert(k, e, "gate_proj.weight"),
			in_expert(k, e, "up_proj.weight"), part);
		whole(k, in_expert(k, e, "down_proj.weight"));
	}
}

static void megatron_layer(struct maker *k, uint64_t tp, uint64_t ep)
{
	whole(k, in_layer(k, "input_layernorm.weight"));
	if (is_mla(k->g))
		megatron_mla(k, tp);
	else
		megatron_qkv(k, tp);
	col_shard(k, in_layer(k, "self_attn.o_proj.weight"), tp, k->s->tp);
	whole(k, in_layer(k, "post_attention_layernorm.weight"));
	if (!is_moe(k->g, (uint64_t)k->layer)) {
		mlp(k, in_layer(k, "mlp"), tp, k->s->tp);
		return;
	}
	megatron_experts(k, ep);
	if (k->g->shared)
		mlp(k, in_layer(k, "mlp.shared_experts"), tp, k->s->tp);
}

static struct wb_map *megatron(
	const struct geometry *g, const struct geo_setting *s, uint32_t stage, uint32_t rank)
{
	struct maker k = {.f = {.m = g->m}, .g = &g->model, .s = s};
	uint64_t last = s->last_layers ? s->last_layers : g->model.layers / s->pp;
	uint64_t each = s->pp > 1 ? (g->model.layers - last) / (s->pp - 1) : last;
	uint64_t end = stage + 1 == s->pp ? g->model.layers : (stage + 1) * each;
	uint64_t pad = 128 * s->tp;

	if (!stage)
		vocab_shard(&k, "model.embed_tokens.weight", rank % s->tp, s->tp, pad);
	for (uint64_t i = stage * each; i < end; i++) {
		k.layer = (int)i;
		megatron_layer(&k, rank % s->tp, rank % s->ep);
	}
	if (stage + 1 == s->pp) {
		whole(&k, "model.norm.weight");
		/* Tied: the last stage has its own copy of the embedding, where that is another. */
		if (!g->model.is_tied)
			vocab_shard(&k, "lm_head.weight", rank % s->tp, s->tp, pad);
		else if (stage)
			vocab_shard(&k, "model.embed_tokens.weight", rank % s->tp, s->tp, pad);
	}
	return fx_map_done(&k.f);
}

/* ---- FSDP2 ---- */

static struct wb_map *fsdp2(const struct geometry *g, uint32_t n, uint32_t rank)
{
	struct maker k = {.f = {.m = g->m}, .g = &g->model};

	for (uint32_t i = 0; i < g->m->n; i++) {
		const struct wb_tensor *t = &g->m->tensor[i];
		uint64_t size = t->shape[0], part = wb_ceil_div(size, n);
		uint64_t from = WB_MIN(rank * part, size), len = WB_MIN(part, size - from);
		uint32_t p;

		if (g->model.is_tied && !strcmp(t->name, "lm_head.weight"))
			continue;
		p = fx_param(&k.f, t->name, t->dtype, t->ndim == 1 ? 0 : len,
			t->ndim == 1 ? len : t->cols);
		if (len && t->ndim == 1)
			fx_copy(&k.f, p, t->name, (struct fx_box){0, 1, from, len, 0, 0});
		else if (len)
			fx_copy(&k.f, p, t->name, (struct fx_box){from, len, 0, t->cols, 0, 0});
	}
	return fx_map_done(&k.f);
}

/* ---- vLLM and SGLang ---- */

static void rollout_qkv(struct maker *k, uint64_t r, uint64_t n)
{
	const struct geo_model *g = k->g;
	uint64_t d = g->head_dim, q = g->heads / n * d, kv = WB_MAX(g->kv_heads / n, 1);
	/* More ranks than KV heads: each head on n / kv_heads neighbours. */
	uint64_t head = g->kv_heads >= n ? r * kv : r / (n / g->kv_heads);
	uint32_t p = fx_param(&k->f, in_layer(k, "self_attn.qkv_proj.weight"), WB_BF16,
		q + 2 * kv * d, g->hidden);

	fx_copy(&k->f, p, in_layer(k, "self_attn.q_proj.weight"),
		(struct fx_box){r * q, q, 0, g->hidden, 0, 0});
	fx_copy(&k->f, p, in_layer(k, "self_attn.k_proj.weight"),
		(struct fx_box){head * d, kv * d, 0, g->hidden, q, 0});
	fx_copy(&k->f, p, in_layer(k, "self_attn.v_proj.weight"),
		(struct fx_box){head * d, kv * d, 0, g->hidden, q + kv * d, 0});
	whole(k, in_layer(k, "self_attn.q_norm.weight"));
	whole(k, in_layer(k, "self_attn.k_norm.weight"));
}

/* w_kc [h, lora, nope]: transposed per head; w_vc [h, v, lora]: copies.  Of kv_b_proj's rows. */
static void derived_kv(struct maker *k, uint64_t r, uint64_t n)
{
	const struct geo_model *g = k->g;
	uint64_t heads = g->heads / n, rows = g->nope + g->v_dim;
	const char *name = in_layer(k, "self_attn.kv_b_proj.weight");
	uint32_t t = (uint32_t)wb_manifest_find(k->f.m, name);
	uint32_t kc = fx_param(
		&k->f, in_layer(k, "self_attn.w_kc"), WB_BF16, heads * g->kv_lora, g->nope);
	uint32_t vc = fx_param(
		&k->f, in_layer(k, "self_attn.w_vc"), WB_BF16, heads * g->v_dim, g->kv_lora);

	for (uint64_t h = 0; h < heads; h++) {
		fx_op(&k->f, (struct wb_op){.param = kc,
				     .tensor = t,
				     .dst = h * g->kv_lora * g->nope,
				     .row = (r * heads + h) * rows,
				     .n_row = (uint32_t)g->nope,
				     .n_col = (uint32_t)g->kv_lora,
				     .row_step = 1,
				     .col_step = 1,
				     .dst_row_stride = 1,
				     .dst_col_stride = (int64_t)g->nope,
				     .repeat = 1});
		fx_copy(&k->f, vc, name,
			(struct fx_box){(r * heads + h) * rows + g->nope, g->v_dim, 0, g->kv_lora,
				h * g->v_dim, 0});
	}
}

static void rollout_mla(struct maker *k, uint64_t r, uint64_t n)
{
	const struct geo_model *g = k->g;

	if (g->q_lora) {
		uint64_t kv = g->kv_lora + g->rope;
		uint32_t p = fx_param(&k->f, in_layer(k, "self_attn.fused_qkv_a_proj_with_mqa"),
			WB_BF16, g->q_lora + kv, g->hidden);

		fx_copy(&k->f, p, in_layer(k, "self_attn.q_a_proj.weight"),
			(struct fx_box){0, g->q_lora, 0, g->hidden, 0, 0});
		fx_copy(&k->f, p, in_layer(k, "self_attn.kv_a_proj_with_mqa.weight"),
			(struct fx_box){0, kv, 0, g->hidden, g->q_lora, 0});
		whole(k, in_layer(k, "self_attn.q_a_layernorm.weight"));
		row_shard(k, in_layer(k, "self_attn.q_b_proj.weight"), r, n);
	} else {
		row_shard(k, in_layer(k, "self_attn.q_proj.weight"), r, n);
		whole(k, in_layer(k, "self_attn.kv_a_proj_with_mqa.weight"));
	}
	whole(k, in_layer(k, "self_attn.kv_a_layernorm.weight"));
	row_shard(k, in_layer(k, "self_attn.kv_b_proj.weight"), r, n);
	derived_kv(k, r, n);
}

static void rollout_experts(struct maker *k, uint64_t r)
{
	const struct geo_model *g = k->g;
	uint64_t n = g->experts / k->s->tp_r, i = g->moe_inter, part[2] = {0, 1};
	uint32_t w13 = fx_param(
		&k->f, in_layer(k, "mlp.experts.w13_weight"), WB_BF16, n * 2 * i, g->hidden);
	uint32_t w2 =
		fx_param(&k->f, in_layer(k, "mlp.experts.w2_weight"), WB_BF16, n * g->hidden, i);

	whole(k, in_layer(k, "mlp.gate.weight"));
	if (is_mla(g))
		whole(k, in_layer(k, "mlp.gate.e_score_correction_bias"));
	for (uint64_t e = 0; e < n; e++) {
		gate_up(k, w13, e * 2 * i, in_expert(k, r * n + e, "gate_proj.weight"),
			in_expert(k, r * n + e, "up_proj.weight"), part);
		fx_copy(&k->f, w2, in_expert(k, r * n + e, "down_proj.weight"),
			(struct fx_box){0, g->hidden, 0, i, e * g->hidden, 0});
	}
	if (g->shared)
		mlp(k, in_layer(k, "mlp.shared_experts"), r, k->s->tp_r);
}

static void rollout_layer(struct maker *k, uint64_t r)
{
	uint64_t n = k->s->attn_tp;

	whole(k, in_layer(k, "input_layernorm.weight"));
	if (is_mla(k->g))
		rollout_mla(k, r % n, n);
	else
		rollout_qkv(k, r % n, n);
	col_shard(k, in_layer(k, "self_attn.o_proj.weight"), r % n, n);
	whole(k, in_layer(k, "post_attention_layernorm.weight"));
	if (is_moe(k->g, (uint64_t)k->layer))
		rollout_experts(k, r);
	else if (k->s->is_dense_whole)
		mlp(k, in_layer(k, "mlp"), 0, 1);
	else
		mlp(k, in_layer(k, "mlp"), r, k->s->tp_r);
}

static struct wb_map *rollout(const struct geometry *g, const struct geo_setting *s, uint32_t r)
{
	struct maker k = {.f = {.m = g->m}, .g = &g->model, .s = s};

	vocab_shard(&k, "model.embed_tokens.weight", r % s->attn_tp, s->attn_tp, 64);
	for (uint64_t i = 0; i < g->model.layers; i++) {
		k.layer = (int)i;
		rollout_layer(&k, r);
	}
	whole(&k, "model.norm.weight");
	if (!g->model.is_tied)
		vocab_shard(&k, "lm_head.weight", r % s->attn_tp, s->attn_tp, 64);
	return fx_map_done(&k.f);
}

/* ---- deployment ---- */

static void add_worker(struct geometry *g, const struct geo_setting *s, enum wb_role role,
	uint32_t layout, uint32_t engine)
{
	uint32_t i = g->in.n_worker++, node = i / s->per_node;

	/* Trainers fill whole nodes before rollouts begin. */
	if (role == WB_ROLE_ROLLOUT)
		node = (uint32_t)wb_ceil_div(g->n_trainer, s->per_node) +
		       (i - g->n_trainer) / s->per_node;
	g->worker[i] =
		(struct wb_plan_worker){role, layout, engine, node, node, s->rail_bytes_per_s};
}

/* Ranks of a stage with equal (tensor, expert) ranks have one layout. */
static void add_trainers(struct geometry *g, const struct geo_setting *s)
{
	uint32_t per_stage = s->n_fsdp ? s->n_fsdp : s->tp * s->cp * s->dp;
	uint32_t distinct = s->n_fsdp ? s->n_fsdp : WB_MAX(s->tp, s->ep);
	uint32_t stages = s->n_fsdp ? 1 : s->pp;

	for (uint32_t p = 0; p < stages; p++) {
		for (uint32_t r = 0; r < distinct; r++)
			g->layout[g->n_trainer_layout++] =
				s->n_fsdp ? fsdp2(g, s->n_fsdp, r) : megatron(g, s, p, r);
		for (uint32_t r = 0; r < per_stage; r++) {
			add_worker(g, s, WB_ROLE_TRAINER, p * distinct + r % distinct, 0);
			g->n_trainer++;
		}
	}
}

void geo_make(struct geometry *g, const struct geo_setting *s, const char *models)
{
	uint32_t n_trainer = s->n_fsdp ? s->n_fsdp : s->tp * s->cp * s->dp * s->pp;
	uint32_t n = n_trainer + s->tp_r * s->engines;

	memset(g, 0, sizeof(*g));
	load_model(&g->model, models, s->model);
	g->m = make_manifest(&g->model);
	g->layout = calloc(n, sizeof(*g->layout));
	g->worker = calloc(n, sizeof(*g->worker));
	add_trainers(g, s);
	for (uint32_t r = 0; r < s->tp_r; r++)
		g->layout[g->n_trainer_layout + r] = rollout(g, s, r);
	for (uint32_t e = 0; e < s->engines; e++)
		for (uint32_t r = 0; r < s->tp_r; r++)
			add_worker(g, s, WB_ROLE_ROLLOUT, g->n_trainer_layout + r, e);
	g->in.manifest = g->m;
	g->in.layout = (const struct wb_map *const *)g->layout;
	g->in.n_layout = g->n_trainer_layout + s->tp_r;
	g->in.worker = g->worker;
}

void geo_finish(struct geometry *g)
{
	for (uint32_t i = 0; i < g->in.n_layout; i++)
		wb_map_destroy(g->layout[i]);
	wb_manifest_destroy(g->m);
	free(g->layout);
	free(g->worker);
}

uint32_t geo_set_pairs(const struct wb_plan *p)
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
