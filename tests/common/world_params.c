/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of the simulated world's workers: which elements, and what each version holds. */
#include "tests/common/world.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint16_t word_at(uint64_t pos, int64_t version)
{
	return version < 0 ? 0
			   : (uint16_t)wb_mix64(pos * 31 + (uint64_t)version * 0x9e3779b97f4a7c15u);
}

/* Trainers: rows of each matrix; rollouts: columns, odd tensors transposed; the vector: whole; a
 * twin: the first tensor once more. */
void world_make_map(struct world_worker *k)
{
	const struct wb_manifest *m = k->world->manifest;
	struct wb_map map;
	struct wb_err err = {0};
	size_t at = 0;

	memset(&map, 0, sizeof(map));
	map.n_param = WORLD_TENSORS + (k->world->o.twins && k->role == WB_ROLE_ROLLOUT);
	map.n_op = map.n_param;
	map.param = wb_zalloc(map.n_param, sizeof(*map.param));
	map.op = wb_zalloc(map.n_op, sizeof(*map.op));
	k->place = wb_zalloc(map.n_param, sizeof(*k->place));
	for (uint32_t i = 0; i < map.n_param; i++) {
		const struct wb_tensor *t = &m->tensor[i % WORLD_TENSORS];
		struct wb_param *p = &map.param[i];
		struct wb_op *op = &map.op[i];
		bool rows = k->role == WB_ROLE_TRAINER, whole = t->ndim == 1;
		uint64_t r = whole || !rows ? t->rows : t->rows / k->tp;
		uint64_t c = whole || rows ? t->cols : t->cols / k->tp;
		bool turned = !rows && !whole && i % 2;

		p->name = wb_strdup(i < WORLD_TENSORS ? t->name : "twin");
		p->dtype = WB_BF16;
		p->ndim = 2;
		p->shape[0] = turned ? c : r;
		p->shape[1] = turned ? r : c;
		p->stride[0] = (int64_t)p->shape[1];
		p->stride[1] = 1;
		p->span = r * c;
		*op = (struct wb_op){
			.param = i,
			.tensor = i % WORLD_TENSORS,
			.row = rows && !whole ? r * k->tp_rank : 0,
			.col = rows || whole ? 0 : c * k->tp_rank,
			.n_row = (uint32_t)r,
			.n_col = (uint32_t)c,
			.row_step = 1,
			.col_step = 1,
			.dst_row_stride = turned ? 1 : (int64_t)c,
			.dst_col_stride = turned ? (int64_t)r : 1,
			.repeat = 1,
		};
		k->place[i] = (struct wb_place){0, at};
		at += p->span * 2;
	}
	k->bytes = at;
	world_must(wb_map_create(m, &map, &k->map, &err), &err);
}

/* The whole checkpoint at a version.  The last few are kept: they are compared with all the time.
 */
static const uint16_t *truth(struct world *w, int64_t version)
{
	const struct wb_tensor *last = &w->manifest->tensor[w->manifest->n - 1];
	uint64_t n = last->byte_base / 2 + last->rows * last->cols;
	uint32_t at = w->next_truth;

	for (uint32_t i = 0; i < WORLD_TRUTHS; i++)
		if (w->truth[i].words && w->truth[i].version == version)
			return w->truth[i].words;
	w->next_truth = (at + 1) % WORLD_TRUTHS;
	if (!w->truth[at].words)
		w->truth[at].words = wb_zalloc(n, sizeof(*w->truth[at].words));
	w->truth[at].version = version;
	for (uint64_t i = 0; i < n; i++)
		w->truth[at].words[i] = word_at(2 * i, version);
	return w->truth[at].words;
}

/* Each row of each parameter: where it lies, how far its elements are apart, and what is there in
 * the checkpoint. */
struct row {
	uint16_t *at;
	int64_t step;
	const uint16_t *want;
	uint32_t n;
};

static bool each_row(
	const struct world_worker *k, int64_t version, bool (*visit)(const struct row *r))
{
	const uint16_t *all = truth(k->world, version);

	for (uint32_t i = 0; i < k->map->n_op; i++) {
		const struct wb_op *op = &k->map->op[i];
		const struct wb_tensor *t = &k->world->manifest->tensor[op->tensor];
		uint16_t *param = (uint16_t *)(void *)(k->memory + k->place[op->param].off_bytes);

		for (uint64_t r = 0; r < op->n_row; r++) {
			struct row row = {.at = param + op->dst + (int64_t)r * op->dst_row_stride,
				.step = op->dst_col_stride,
				.want = all + t->byte_base / 2 + (op->row + r) * t->cols + op->col,
				.n = op->n_col};

			if (!visit(&row))
				return false;
		}
	}
	return true;
}

static bool fill(const struct row *r)
{
	for (uint32_t c = 0; c < r->n; c++)
		r->at[c * r->step] = r->want[c];
	return true;
}

static bool compare(const struct row *r)
{
	if (r->step == 1)
		return !memcmp(r->at, r->want, r->n * sizeof(*r->at));
	for (uint32_t c = 0; c < r->n; c++)
		if (r->at[c * r->step] != r->want[c])
			return false;
	return true;
}

void world_fill(struct world_worker *k, int64_t version)
{
	each_row(k, version, fill);
}

bool world_holds(const struct world *w, const struct world_worker *k, int64_t version)
{
	(void)w;
	return each_row(k, version, compare);
}
