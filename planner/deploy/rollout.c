/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the workers of a vLLM or SGLang engine hold.  Query, key and value are one parameter, gate
 * and up another; the experts of a worker are two.  SGLang also keeps kv_b_proj head by head, in
 * w_kc and w_vc.
 */
#include "base/base.h"
#include "planner/deploy/internal.h"

#include <inttypes.h>
#include <stdio.h>

#define VOCAB_MULTIPLE 64

/* Rank i of n, for each kind of module. */
struct cut {
	uint64_t i, n;
};

struct rank {
	struct cut attention, dense, shared, block,
		part; /* block: of experts; part: of each expert */
	bool is_sglang;
};

static void gqa(struct wb__maker *k, struct cut c)
{
	const struct wb_model *m = k->model;
	uint64_t d = m->head_dim, h = m->hidden, q = m->heads / c.n * d;
	uint64_t kv = WB_MAX(m->kv_heads / c.n, 1) * d;
	/* If there are more ranks than KV heads, each head is on several neighbouring ranks. */
	uint64_t at = c.n <= m->kv_heads ? c.i * kv : c.i / (c.n / m->kv_heads) * kv;
	struct wb__part p = wb__matrix(k, "self_attn.qkv_proj.weight", q + 2 * kv, h);

	wb__copy(k, p, wb__slot(k, WB__Q), (struct wb__box){c.i * q, q, 0, h});
	wb__copy(k, wb__rows_at(p, q), wb__slot(k, WB__K), (struct wb__box){at, kv, 0, h});
	wb__copy(k, wb__rows_at(p, q + kv), wb__slot(k, WB__V), (struct wb__box){at, kv, 0, h});
	wb__whole(k, "self_attn.q_norm.weight", wb__slot(k, WB__Q_NORM));
	wb__whole(k, "self_attn.k_norm.weight", wb__slot(k, WB__K_NORM));
}

/* Add w_kc [heads, lora, nope], transposed, and w_vc [heads, v, lora]: both hold rows of kv_b_proj
 * by head. */
static void derived(struct wb__maker *k, struct cut c)
{
	const struct wb_model *m = k->model;
	uint64_t heads = m->heads / c.n, nope = m->qk_nope_head_dim, v = m->v_head_dim;
	uint64_t lora = m->kv_lora_rank;
	struct wb__part kc, vc;

	kc = wb__param(k, "self_attn.w_kc", m->dtype, 3, (uint64_t[3]){heads, lora, nope});
	vc = wb__param(k, "self_attn.w_vc", m->dtype, 3, (uint64_t[3]){heads, v, lora});
	kc.is_transposed = true;
	for (uint64_t h = 0; h < heads; h++) {
		uint64_t row = (c.i * heads + h) * (nope + v);

		wb__copy(k, wb__rows_at(kc, h * lora), wb__slot(k, WB__KV_B),
			(struct wb__box){row, nope, 0, lora});
		wb__copy(k, wb__rows_at(vc, h * v), wb__slot(k, WB__KV_B),
			(struct wb__box){row + nope, v, 0, lora});
	}
}

static void mla(struct wb__maker *k, const struct rank *r)
{
	const struct wb_model *m = k->model;
	uint64_t kv = (uint64_t)m->kv_lora_rank + m->qk_rope_head_dim;
	struct cut c = r->attention;

	if (m->q_lora_rank) {
		struct wb__part p = wb__matrix(k,
			r->is_sglang ? "self_attn.fused_qkv_a_proj_with_mqa.weight"
				     : "self_attn.fused_qkv_a_proj.weight",
			m->q_lora_rank + kv, m->hidden);

		wb__rows(k, p, wb__slot(k, WB__Q_A), 0, 1);
		wb__rows(k, wb__rows_at(p, m->q_lora_rank), wb__slot(k, WB__KV_A), 0, 1);
		wb__whole(k, "self_attn.q_a_layernorm.weight", wb__slot(k, WB__Q_A_NORM));
		wb__row_shard(k, "self_attn.q_b_proj.weight", wb__slot(k, WB__Q_B), c.i, c.n);
	} else {
		wb__row_shard(k, "self_attn.q_proj.weight", wb__slot(k, WB__Q), c.i, c.n);
		wb__whole(k, "self_attn.kv_a_proj_with_mqa.weight", wb__slot(k, WB__KV_A));
	}
	wb__whole(k, "self_attn.kv_a_layernorm.weight", wb__slot(k, WB__KV_A_NORM));
	wb__row_shard(k, "self_attn.kv_b_proj.weight", wb__slot(k, WB__KV_B), c.i, c.n);
	if (r->is_sglang)
		derived(k, c);
}

static void mlp(struct wb__maker *k, const char *name, uint32_t slot, struct cut c)
{
	const struct wb_tensor *t = wb__tensor(k, wb__slot(k, slot));
	char full[64];

	snprintf(full, sizeof(full), "%s.gate_up_proj.weight", name);
	wb__gate_up(
		k, wb__matrix(k, full, 2 * (t->rows / c.n), t->cols), wb__slot(k, slot), c.i, c.n);
	snprintf(full, sizeof(full), "%s.down_proj.weight", name);
	wb__column_shard(k, full, wb__slot(k, slot + 2), c.i, c.n);
}

static void moe(struct wb__maker *k, const struct rank *r)
{
	const struct wb_model *m = k->model;
	uint64_t local = m->experts / r->block.n, n = m->moe_intermediate / r->part.n;
	uint64_t h = m->hidden;
	struct wb__part w13, w2;

	wb__whole(k, "mlp.gate.weight", wb__slot(k, WB__ROUTER));
	if (m->arch == WB_ARCH_DEEPSEEK_V3)
		wb__whole(k, "mlp.gate.e_score_correction_bias", wb__slot(k, WB__ROUTER_BIAS));
	w13 = wb__param(k, "mlp.experts.w13_weight", m->dtype, 3, (uint64_t[3]){local, 2 * n, h});
	w2 = wb__param(k, "mlp.experts.w2_weight", m->dtype, 3, (uint64_t[3]){local, h, n});
	for (uint64_t e = 0; e < local && !k->rc; e++) {
		uint32_t expert = wb__slot(k, WB__EXPERTS) + 3 * (uint32_t)(r->block.i * local + e);

		wb__gate_up(k, wb__rows_at(w13, e * 2 * n), expert, r->part.i, r->part.n);
		wb__columns(k, wb__rows_at(w2, e * h), expert + 2, r->part.i, r->part.n);
	}
	if (m->shared_experts)
		mlp(k, "mlp.shared_experts", WB__SHARED, r->shared);
}

static void layer(struct wb__maker *k, const struct rank *r)
{
	wb__in(k, "model.layers.%" PRIu32 ".", k->layer);
	wb__whole(k, "input_layernorm.weight", wb__slot(k, WB__INPUT_NORM));
	if (k->model->arch == WB_ARCH_DEEPSEEK_V3)
		mla(k, r);
	else
		gqa(k, r->attention);
	wb__column_shard(
		k, "self_attn.o_proj.weight", wb__slot(k, WB__O), r->attention.i, r->attention.n);
	wb__whole(k, "post_attention_layernorm.weight", wb__slot(k, WB__POST_NORM));
	if (wb_model_is_moe(k->model, k->layer))
		moe(k, r);
	else
		mlp(k, "mlp", WB__MLP, r->dense);
}

static struct rank rank_of(const struct wb_parallel *p, uint32_t in_stage)
{
	bool is_sglang = p->framework == WB_SGLANG;
	uint64_t n = p->world / p->pp, i = in_stage; /* workers of a stage */
	uint64_t attention = is_sglang ? n / p->dp : p->tp, split = n / p->ep;
	uint64_t shared = is_sglang ? n : p->tp;

	return (struct rank){
		.attention = {i % attention, attention},
		.dense = {i % p->dense_tp, p->dense_tp},
		.shared = {i % shared, shared},
		.block = {i / split, p->ep},
		.part = {i % split, split},
		.is_sglang = is_sglang,
	};
}

void wb__rollout(struct wb__maker *k, const struct wb_parallel *p, uint32_t rank)
{
	const struct wb_model *m = k->model;
	uint32_t per_stage = p->world / p->pp, stage = rank / per_stage;
	struct rank r = rank_of(p, rank % per_stage);
	bool is_last = stage + 1 == p->pp;
	uint32_t end = wb__stage_begin(p, stage + 1);

	/* With tied embeddings the last stage needs the embedding too. */
	if (stage == 0 || (is_last && m->tie_word_embeddings))
		wb__vocab_shard(k, "model.embed_tokens.weight", k->t->embed, r.attention.i,
			r.attention.n, VOCAB_MULTIPLE);
	for (k->layer = wb__stage_begin(p, stage); k->layer < end; k->layer++)
		layer(k, &r);
	if (!is_last)
		return;
	wb__in(k, "%s", "");
	wb__whole(k, "model.norm.weight", k->t->norm);
	if (!m->tie_word_embeddings)
		wb__vocab_shard(k, "lm_head.weight", k->t->head, r.attention.i, r.attention.n,
			VOCAB_MULTIPLE);
}
