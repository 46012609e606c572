/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Megatron-core trainers.  Layers are numbered within the pipeline stage, experts within the rank;
 * query, key and value rows lie group by group; experts are whole (expert tensor parallelism 1).
 */
#include "base/base.h"
#include "planner/deploy/internal.h"

#include <inttypes.h>
#include <stdio.h>

#define VOCAB_MULTIPLE 128 /* times tp */

struct rank {
	uint32_t tp, tps, ep, eps; /* rank tp of tps, rank ep of eps */
};

static void gate_up(struct wb__maker *k, const char *name, uint32_t mlp, uint64_t i, uint64_t n)
{
	const struct wb_tensor *t = wb__tensor(k, mlp);

	wb__gate_up(k, wb__matrix(k, name, 2 * (t->rows / n), t->cols), mlp, i, n);
}

/* For each KV group: its query heads, its key head, its value head.  Where there are more ranks
 * than groups, each rank holds a part of the query heads of one group, and a copy of its key and
 * value heads. */
static void gqa(struct wb__maker *k, const struct rank *r)
{
	const struct wb_model *m = k->model;
	uint64_t d = m->head_dim, queries = m->heads / m->kv_heads; /* of a group */
	uint64_t groups = WB_MAX(m->kv_heads / r->tps, 1);
	uint64_t parts = WB_MAX(r->tps / m->kv_heads, 1); /* ranks of a group */
	uint64_t local = queries / parts * d, first = r->tp / parts * groups;
	struct wb__part p;

	p = wb__matrix(k, "self_attention.linear_qkv.weight", groups * (local + 2 * d), m->hidden);
	for (uint64_t g = first; g < first + groups; g++) {
		uint64_t q = g * queries * d + r->tp % parts * local;

		wb__copy(k, p, wb__slot(k, WB__Q), (struct wb__box){q, local, 0, m->hidden});
		p = wb__rows_at(p, local);
		wb__copy(k, p, wb__slot(k, WB__K), (struct wb__box){g * d, d, 0, m->hidden});
		p = wb__rows_at(p, d);
		wb__copy(k, p, wb__slot(k, WB__V), (struct wb__box){g * d, d, 0, m->hidden});
		p = wb__rows_at(p, d);
	}
	wb__whole(k, "self_attention.q_layernorm.weight", wb__slot(k, WB__Q_NORM));
	wb__whole(k, "self_attention.k_layernorm.weight", wb__slot(k, WB__K_NORM));
}

static void mla(struct wb__maker *k, const struct rank *r)
{
	if (k->model->q_lora_rank) {
		wb__whole(k, "self_attention.linear_q_down_proj.weight", wb__slot(k, WB__Q_A));
		wb__whole(k, "self_attention.linear_q_up_proj.layer_norm_weight",
			wb__slot(k, WB__Q_A_NORM));
		wb__row_shard(k, "self_attention.linear_q_up_proj.weight", wb__slot(k, WB__Q_B),
			r->tp, r->tps);
	} else {
		wb__row_shard(k, "self_attention.linear_q_proj.weight", wb__slot(k, WB__Q), r->tp,
			r->tps);
	}
	wb__whole(k, "self_attention.linear_kv_down_proj.weight", wb__slot(k, WB__KV_A));
	wb__whole(k, "self_attention.linear_kv_up_proj.layer_norm_weight",
		wb__slot(k, WB__KV_A_NORM));
	wb__row_shard(
		k, "self_attention.linear_kv_up_proj.weight", wb__slot(k, WB__KV_B), r->tp, r->tps);
}

static void moe(struct wb__maker *k, const struct rank *r)
{
	const struct wb_model *m = k->model;
	uint32_t local = m->experts / r->eps;
	char name[64];

	wb__whole(k, "pre_mlp_layernorm.weight", wb__slot(k, WB__POST_NORM));
	wb__whole(k, "mlp.router.weight", wb__slot(k, WB__ROUTER));
	if (m->arch == WB_ARCH_DEEPSEEK_V3)
		wb__whole(k, "mlp.router.expert_bias", wb__slot(k, WB__ROUTER_BIAS));
	for (uint32_t e = 0; e < local && !k->rc; e++) {
		uint32_t expert = wb__slot(k, WB__EXPERTS) + 3 * (r->ep * local + e);

		snprintf(name, sizeof(name), "mlp.experts.linear_fc1.weight%" PRIu32, e);
		gate_up(k, name, expert, 0, 1);
		snprintf(name, sizeof(name), "mlp.experts.linear_fc2.weight%" PRIu32, e);
		wb__whole(k, name, expert + 2);
	}
	if (!m->shared_experts)
		return;
	gate_up(k, "mlp.shared_experts.linear_fc1.weight", wb__slot(k, WB__SHARED), r->tp, r->tps);
	wb__column_shard(k, "mlp.shared_experts.linear_fc2.weight", wb__slot(k, WB__SHARED + 2),
		r->tp, r->tps);
}

static void layer(struct wb__maker *k, const struct rank *r)
{
	if (k->model->arch == WB_ARCH_DEEPSEEK_V3) {
		wb__whole(k, "input_layernorm.weight", wb__slot(k, WB__INPUT_NORM));
		mla(k, r);
	} else {
		wb__whole(k, "self_attention.linear_qkv.layer_norm_weight",
			wb__slot(k, WB__INPUT_NORM));
		gqa(k, r);
	}
	wb__column_shard(k, "self_attention.linear_proj.weight", wb__slot(k, WB__O), r->tp, r->tps);
	if (wb_model_is_moe(k->model, k->layer)) {
		moe(k, r);
		return;
	}
	wb__whole(k, "mlp.linear_fc1.layer_norm_weight", wb__slot(k, WB__POST_NORM));
	gate_up(k, "mlp.linear_fc1.weight", wb__slot(k, WB__MLP), r->tp, r->tps);
	wb__column_shard(k, "mlp.linear_fc2.weight", wb__slot(k, WB__MLP + 2), r->tp, r->tps);
}

/* Add an MTP layer, which follows the last layer.  Its embedding and head are those of the
 * model. */
static void mtp(struct wb__maker *k, const struct rank *r)
{
	uint32_t i = k->layer - k->model->layers;

	wb__in(k, "mtp.layers.%" PRIu32 ".", i);
	wb__whole(k, "enorm.weight", wb__slot(k, WB__ENORM));
	wb__whole(k, "hnorm.weight", wb__slot(k, WB__HNORM));
	wb__row_shard(k, "eh_proj.weight", wb__slot(k, WB__EH_PROJ), r->tp, r->tps);
	wb__in(k, "mtp.layers.%" PRIu32 ".transformer_layer.", i);
	layer(k, r);
	wb__in(k, "mtp.layers.%" PRIu32 ".", i);
	wb__whole(k, "final_layernorm.weight", wb__slot(k, WB__SHARED_HEAD_NORM));
}

void wb__megatron(struct wb__maker *k, const struct wb_parallel *p, uint32_t rank)
{
	const struct wb_model *m = k->model;
	uint32_t per_stage = p->world / p->pp, stage = rank / per_stage,
		 in_stage = rank % per_stage;
	struct rank r = {in_stage % p->tp, p->tp, in_stage % p->ep, p->ep};
	uint32_t begin = wb__stage_begin(p, stage), end = wb__stage_begin(p, stage + 1);
	bool is_last = stage + 1 == p->pp;
	uint64_t multiple = (uint64_t)VOCAB_MULTIPLE * p->tp;

	if (stage == 0 || (is_last && m->mtp_layers))
		wb__vocab_shard(
			k, "embedding.word_embeddings.weight", k->t->embed, r.tp, r.tps, multiple);
	for (k->layer = begin; k->layer < end; k->layer++) {
		wb__in(k, "decoder.layers.%" PRIu32 ".", k->layer - begin);
		layer(k, &r);
	}
	if (!is_last)
		return;
	wb__in(k, "%s", "");
	wb__whole(k, "decoder.final_layernorm.weight", k->t->norm);
	/* A tied output layer on another stage than the embedding is a copy of the embedding. */
	if (!m->tie_word_embeddings || stage)
		wb__vocab_shard(k, "output_layer.weight",
			m->tie_word_embeddings ? k->t->embed : k->t->head, r.tp, r.tps, multiple);
	for (k->layer = m->layers; k->layer < m->layers + m->mtp_layers; k->layer++)
		mtp(k, &r);
}
