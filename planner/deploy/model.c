/* SPDX-License-Identifier: Apache-2.0 */
/* Check a model's hyperparameters, and list the tensors of its checkpoint. */
#include "planner/deploy/model.h"

#include "base/base.h"
#include "base/mem.h"
#include "planner/deploy/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Names of a layer's tensors in a Hugging Face checkpoint, after "model.layers.N.". */
static const char *const names[WB__SLOTS] = {
	[WB__MTP_EMBED] = "embed_tokens.weight",
	[WB__ENORM] = "enorm.weight",
	[WB__HNORM] = "hnorm.weight",
	[WB__EH_PROJ] = "eh_proj.weight",
	[WB__INPUT_NORM] = "input_layernorm.weight",
	[WB__Q_A] = "self_attn.q_a_proj.weight",
	[WB__Q_A_NORM] = "self_attn.q_a_layernorm.weight",
	[WB__Q_B] = "self_attn.q_b_proj.weight",
	[WB__Q] = "self_attn.q_proj.weight",
	[WB__KV_A] = "self_attn.kv_a_proj_with_mqa.weight",
	[WB__KV_A_NORM] = "self_attn.kv_a_layernorm.weight",
	[WB__KV_B] = "self_attn.kv_b_proj.weight",
	[WB__K] = "self_attn.k_proj.weight",
	[WB__V] = "self_attn.v_proj.weight",
	[WB__O] = "self_attn.o_proj.weight",
	[WB__Q_NORM] = "self_attn.q_norm.weight",
	[WB__K_NORM] = "self_attn.k_norm.weight",
	[WB__POST_NORM] = "post_attention_layernorm.weight",
	[WB__MLP] = "mlp.gate_proj.weight",
	[WB__MLP + 1] = "mlp.up_proj.weight",
	[WB__MLP + 2] = "mlp.down_proj.weight",
	[WB__ROUTER] = "mlp.gate.weight",
	[WB__ROUTER_BIAS] = "mlp.gate.e_score_correction_bias",
	[WB__SHARED] = "mlp.shared_experts.gate_proj.weight",
	[WB__SHARED + 1] = "mlp.shared_experts.up_proj.weight",
	[WB__SHARED + 2] = "mlp.shared_experts.down_proj.weight",
	[WB__SHARED_HEAD_NORM] = "shared_head.norm.weight",
	[WB__MTP_HEAD] = "shared_head.head.weight",
};

bool wb_model_is_moe(const struct wb_model *m, uint32_t layer)
{
	return m->experts && layer >= m->first_dense_layers;
}

/* ---- hyperparameters ---- */

struct field {
	const char *name; /* as config.json has it */
	uint64_t value, min, max;
};

static int check_fields(const struct field *f, size_t n, struct wb_err *err)
{
	for (size_t i = 0; i < n; i++)
		if (f[i].value < f[i].min || f[i].value > f[i].max)
			return wb_err_set(err, -EINVAL,
				"%s is %" PRIu64 ": expected %" PRIu64 " to %" PRIu64, f[i].name,
				f[i].value, f[i].min, f[i].max);
	return 0;
}

static int check_gqa(const struct wb_model *m, struct wb_err *err)
{
	const struct field f[] = {
		{"head_dim", m->head_dim, 1, WB_MODEL_LENGTH_MAX / m->heads},
		{"num_key_value_heads", m->kv_heads, 1, m->heads},
	};

	if (check_fields(f, WB_ARRAY_SIZE(f), err) < 0)
		return -EINVAL;
	if (m->heads % m->kv_heads)
		return wb_err_set(err, -EINVAL,
			"num_key_value_heads %" PRIu32
			" does not divide num_attention_heads %" PRIu32,
			m->kv_heads, m->heads);
	return 0;
}

static int check_mla(const struct wb_model *m, struct wb_err *err)
{
	uint64_t max = WB_MODEL_LENGTH_MAX / 2, a_head = max / m->heads;
	const struct field f[] = {
		{"q_lora_rank", m->q_lora_rank, 0, max},
		{"kv_lora_rank", m->kv_lora_rank, 1, max},
		{"qk_nope_head_dim", m->qk_nope_head_dim, 1, a_head},
		{"qk_rope_head_dim", m->qk_rope_head_dim, 1, a_head},
		{"v_head_dim", m->v_head_dim, 1, a_head},
	};

	return check_fields(f, WB_ARRAY_SIZE(f), err);
}

static int check_moe(const struct wb_model *m, struct wb_err *err)
{
	uint64_t max = WB_MODEL_LENGTH_MAX / 2;
	const struct field f[] = {
		{"moe_intermediate_size", m->moe_intermediate, 1, max},
		{"number of routed experts", m->experts, 1, WB_TENSORS_MAX},
		{"n_shared_experts", m->shared_experts, 0, max / WB_MAX(m->moe_intermediate, 1)},
		{"first_k_dense_replace", m->first_dense_layers, 0, m->layers},
	};

	return check_fields(f, WB_ARRAY_SIZE(f), err);
}

int wb_model_check(const struct wb_model *m, struct wb_err *err)
{
	uint64_t max = WB_MODEL_LENGTH_MAX;
	const struct field f[] = {
		{"num_hidden_layers", m->layers, 1, WB_MODEL_LAYERS_MAX},
		{"hidden_size", m->hidden, 1, max / 2},
		{"vocab_size", m->vocab, 1, max},
		{"num_attention_heads", m->heads, 1, max / 2},
		{"intermediate_size", m->intermediate, 1, max / 2},
		{"num_nextn_predict_layers", m->mtp_layers, 0, 1},
	};

	if (m->dtype != WB_BF16 && m->dtype != WB_F16 && m->dtype != WB_F32)
		return wb_err_set(err, -EINVAL,
			"weights of %s are not supported: BF16, F16 and F32 are",
			wb_dtype_name(m->dtype));
	if (check_fields(f, WB_ARRAY_SIZE(f), err) < 0)
		return -EINVAL;
	if ((m->arch == WB_ARCH_DEEPSEEK_V3 ? check_mla(m, err) : check_gqa(m, err)) < 0)
		return -EINVAL;
	return m->arch == WB_ARCH_QWEN3 ? 0 : check_moe(m, err);
}

/* ---- tensors ---- */

struct lister {
	const struct wb_model *m;
	struct wb__tensors *slots;
	int (*add)(void *ctx, const struct wb__new_tensor *t);
	void *ctx;
	uint32_t n, layer;
	int rc;
};

static uint32_t add(
	struct lister *l, const char *name, enum wb_dtype dtype, uint64_t rows, uint64_t cols)
{
	struct wb__new_tensor t = {name, dtype, rows, cols};

	if (!l->rc)
		l->rc = l->add(l->ctx, &t);
	return l->n++;
}

static void in_layer(struct lister *l, uint32_t slot, uint64_t rows, uint64_t cols)
{
	char name[96];
	uint32_t at;

	snprintf(name, sizeof(name), "model.layers.%" PRIu32 ".%s", l->layer, names[slot]);
	at = add(l, name, slot == WB__ROUTER_BIAS ? WB_F32 : l->m->dtype, rows, cols);
	if (l->slots)
		l->slots->layer[l->layer][slot] = at;
}

static void list_gqa(struct lister *l)
{
	const struct wb_model *m = l->m;
	uint64_t q = (uint64_t)m->heads * m->head_dim, kv = (uint64_t)m->kv_heads * m->head_dim;

	in_layer(l, WB__Q, q, m->hidden);
	in_layer(l, WB__K, kv, m->hidden);
	in_layer(l, WB__V, kv, m->hidden);
	in_layer(l, WB__O, m->hidden, q);
	in_layer(l, WB__Q_NORM, 0, m->head_dim);
	in_layer(l, WB__K_NORM, 0, m->head_dim);
}

static void list_mla(struct lister *l)
{
	const struct wb_model *m = l->m;
	uint64_t heads = m->heads, qk = heads * (m->qk_nope_head_dim + m->qk_rope_head_dim);

	if (m->q_lora_rank) {
		in_layer(l, WB__Q_A, m->q_lora_rank, m->hidden);
		in_layer(l, WB__Q_A_NORM, 0, m->q_lora_rank);
		in_layer(l, WB__Q_B, qk, m->q_lora_rank);
	} else {
		in_layer(l, WB__Q, qk, m->hidden);
	}
	in_layer(l, WB__KV_A, m->kv_lora_rank + (uint64_t)m->qk_rope_head_dim, m->hidden);
	in_layer(l, WB__KV_A_NORM, 0, m->kv_lora_rank);
	in_layer(l, WB__KV_B, heads * (m->qk_nope_head_dim + m->v_head_dim), m->kv_lora_rank);
	in_layer(l, WB__O, m->hidden, heads * m->v_head_dim);
}

static void list_mlp(struct lister *l, uint32_t slot, uint64_t width)
{
	in_layer(l, slot, width, l->m->hidden);
	in_layer(l, slot + 1, width, l->m->hidden);
	in_layer(l, slot + 2, l->m->hidden, width);
}

static void list_experts(struct lister *l)
{
	static const char *const parts[] = {"gate_proj", "up_proj", "down_proj"};
	const struct wb_model *m = l->m;
	char name[96];

	if (l->slots)
		l->slots->layer[l->layer][WB__EXPERTS] = l->n;
	for (uint32_t e = 0; e < m->experts && !l->rc; e++)
		for (int i = 0; i < 3; i++) {
			snprintf(name, sizeof(name),
				"model.layers.%" PRIu32 ".mlp.experts.%" PRIu32 ".%s.weight",
				l->layer, e, parts[i]);
			add(l, name, m->dtype, i == 2 ? m->hidden : m->moe_intermediate,
				i == 2 ? m->moe_intermediate : m->hidden);
		}
}

static void list_moe(struct lister *l)
{
	const struct wb_model *m = l->m;

	in_layer(l, WB__ROUTER, m->experts, m->hidden);
	if (m->arch == WB_ARCH_DEEPSEEK_V3)
		in_layer(l, WB__ROUTER_BIAS, 0, m->experts);
	if (m->shared_experts)
		list_mlp(l, WB__SHARED, (uint64_t)m->shared_experts * m->moe_intermediate);
	list_experts(l);
}

static void list_layer(struct lister *l)
{
	const struct wb_model *m = l->m;

	in_layer(l, WB__INPUT_NORM, 0, m->hidden);
	if (m->arch == WB_ARCH_DEEPSEEK_V3)
		list_mla(l);
	else
		list_gqa(l);
	in_layer(l, WB__POST_NORM, 0, m->hidden);
	if (wb_model_is_moe(m, l->layer))
		list_moe(l);
	else
		list_mlp(l, WB__MLP, m->intermediate);
}

static void list_mtp(struct lister *l)
{
	const struct wb_model *m = l->m;

	in_layer(l, WB__MTP_EMBED, m->vocab, m->hidden);
	in_layer(l, WB__ENORM, 0, m->hidden);
	in_layer(l, WB__HNORM, 0, m->hidden);
	in_layer(l, WB__EH_PROJ, m->hidden, 2 * (uint64_t)m->hidden);
	list_layer(l);
	in_layer(l, WB__SHARED_HEAD_NORM, 0, m->hidden);
	in_layer(l, WB__MTP_HEAD, m->vocab, m->hidden);
}

int wb__tensors_list(const struct wb_model *m, struct wb__tensors *slots,
	int (*add_one)(void *ctx, const struct wb__new_tensor *t), void *ctx)
{
	struct lister l = {.m = m, .slots = slots, .add = add_one, .ctx = ctx};
	struct wb__tensors none = {0}, *s = slots ? slots : &none;

	s->embed = add(&l, "model.embed_tokens.weight", m->dtype, m->vocab, m->hidden);
	for (; l.layer < m->layers && !l.rc; l.layer++)
		list_layer(&l);
	s->norm = add(&l, "model.norm.weight", m->dtype, 0, m->hidden);
	s->head = UINT32_MAX;
	if (!m->tie_word_embeddings || m->stores_tied_lm_head)
		s->head = add(&l, "lm_head.weight", m->dtype, m->vocab, m->hidden);
	for (; l.layer < m->layers + m->mtp_layers && !l.rc; l.layer++)
		list_mtp(&l);
	return l.rc;
}

struct list {
	struct wb_tensor *t;
	size_t cap;
	uint32_t n;
};

static int append(void *ctx, const struct wb__new_tensor *t)
{
	struct list *l = ctx;
	struct wb_tensor *x;
	int rc = wb_grow(&l->t, &l->cap, l->n + 1, WB_TENSORS_MAX, sizeof(*l->t));

	if (rc < 0)
		return rc;
	x = &l->t[l->n];
	memset(x, 0, sizeof(*x));
	x->name = wb_strdup(t->name);
	x->dtype = t->dtype;
	x->ndim = t->rows ? 2 : 1;
	x->shape[0] = t->rows ? t->rows : t->cols;
	x->shape[1] = t->rows ? t->cols : 0;
	l->n++;
	return x->name ? 0 : -ENOMEM;
}

int wb_model_manifest(const struct wb_model *m, struct wb_manifest **out, struct wb_err *err)
{
	struct list l = {0};
	int rc = wb__tensors_list(m, NULL, append, &l);

	if (rc == -E2BIG)
		rc = wb_err_set(err, -EINVAL, "%s: more than %u tensors", m->name, WB_TENSORS_MAX);
	else if (rc < 0)
		wb_err_set(err, rc, "%s: %s", m->name, wb_strerror(rc));
	else
		rc = wb_manifest_create(l.t, l.n, out, err);
	for (uint32_t i = 0; i < l.n; i++)
		wb_free(l.t[i].name);
	wb_free(l.t);
	return rc;
}
