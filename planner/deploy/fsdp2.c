/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FSDP2 trainers: every parameter of the Hugging Face module tree is cut on dimension 0 as
 * torch.chunk does; the last shards may be shorter, or empty.  A Transformers trainer is the same
 * with one rank.  Buffers (the router's correction bias) are whole on every rank.  The module tree
 * has no MTP layer.
 */
#include "base/base.h"
#include "planner/deploy/internal.h"

#include <inttypes.h>
#include <string.h>

struct chunk {
	uint64_t from, n;
};

static struct chunk chunk_of(uint64_t size, uint64_t i, uint64_t n)
{
	uint64_t step = wb_ceil_div(size, n), from = WB_MIN(i * step, size);

	return (struct chunk){from, WB_MIN(step, size - from)};
}

struct side {
	uint64_t rank, n;
	enum wb_dtype dtype;
	bool is_stacked;
};

static void shard(struct wb__maker *k, const struct side *s, uint32_t tensor)
{
	const struct wb_tensor *t = wb__tensor(k, tensor);
	struct chunk c = chunk_of(t->shape[0], s->rank, s->n);
	uint64_t shape[3] = {c.n, t->shape[1], 0};
	struct wb__part p = wb__param(k, t->name, s->dtype, t->ndim, shape);

	if (t->ndim == 1)
		wb__copy(k, p, tensor, (struct wb__box){0, 1, c.from, c.n});
	else
		wb__copy(k, p, tensor, (struct wb__box){c.from, c.n, 0, t->cols});
}

/* Add the experts of a layer as [E, 2I, H] and [E, H, I], cut on E. */
static void stacked(struct wb__maker *k, const struct side *s)
{
	const struct wb_model *m = k->model;
	struct chunk c = chunk_of(m->experts, s->rank, s->n);
	uint64_t wide = m->moe_intermediate, h = m->hidden;
	struct wb__part fused, down;

	wb__in(k, "model.layers.%" PRIu32 ".mlp.experts.", k->layer);
	fused = wb__param(k, "gate_up_proj", s->dtype, 3, (uint64_t[3]){c.n, 2 * wide, h});
	down = wb__param(k, "down_proj", s->dtype, 3, (uint64_t[3]){c.n, h, wide});
	for (uint64_t e = 0; e < c.n; e++) {
		uint32_t expert = wb__slot(k, WB__EXPERTS) + 3 * (uint32_t)(c.from + e);

		wb__gate_up(k, wb__rows_at(fused, e * 2 * wide), expert, 0, 1);
		wb__rows(k, wb__rows_at(down, e * h), expert + 2, 0, 1);
	}
	wb__in(k, "%s", "");
}

static void layer(struct wb__maker *k, const struct side *s)
{
	bool is_moe = wb_model_is_moe(k->model, k->layer);
	uint32_t begin = wb__slot(k, WB__INPUT_NORM), end;

	/* The tensors of a layer follow each other, its experts last. */
	end = is_moe ? wb__slot(k, WB__EXPERTS) : wb__slot(k, WB__MLP) + 3;
	if (is_moe && !s->is_stacked)
		end += 3 * k->model->experts;
	for (uint32_t t = begin; t < end && !k->rc; t++) {
		if (is_moe && k->model->arch == WB_ARCH_DEEPSEEK_V3 &&
			t == wb__slot(k, WB__ROUTER_BIAS))
			wb__whole(k, wb__tensor(k, t)->name, t);
		else
			shard(k, s, t);
	}
	if (is_moe && s->is_stacked)
		stacked(k, s);
}

void wb__fsdp2(struct wb__maker *k, const struct wb_parallel *p, uint32_t rank)
{
	const struct wb_model *m = k->model;
	bool is_whole = p->framework == WB_TRANSFORMERS;
	struct side s = {is_whole ? 0 : rank, is_whole ? 1 : p->world,
		p->has_masters ? WB_F32 : m->dtype, p->is_stacked};

	shard(k, &s, k->t->embed);
	for (k->layer = 0; k->layer < m->layers; k->layer++)
		layer(k, &s);
	shard(k, &s, k->t->norm);
	if (!m->tie_word_embeddings)
		shard(k, &s, k->t->head);
}
