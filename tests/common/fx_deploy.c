/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_deploy.h"
#include "tests/common/fx_check.h"

#include "base/base.h"
#include "base/mem.h"
#include "tests/common/fx_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A piece of a tensor. */
struct piece {
	uint32_t tensor;
	uint64_t row, col;
	uint32_t n_row, n_col, row_step, col_step;
};

/* A layout while it is made. */
struct tray {
	struct fx_map f;
	struct piece wait; /* is_mixed: for another of its size, to share a parameter with */
	bool is_waiting;
};

struct gen {
	struct wb_rng *rng;
	const struct fx_deploy_opts *o;
	const struct wb_manifest *m;
	struct tray *tray; /* of the role at hand */
	uint32_t n_layout;
	bool is_rollout;
};

static uint32_t below(struct gen *g, uint64_t n)
{
	return (uint32_t)wb_rng_below(g->rng, n);
}

static bool chance(struct gen *g, uint32_t one_in)
{
	return !below(g, one_in);
}

static enum wb_dtype param_type(struct gen *g, enum wb_dtype wire)
{
	if (g->o->is_plain || !chance(g, 4))
		return wire;
	if (wire == WB_BF16)
		return WB_F32;
	return wire == WB_F32 && (g->is_rollout || g->o->is_mixed) ? WB_BF16 : wire;
}

static struct wb_op op_of(const struct piece *p, uint32_t param)
{
	return (struct wb_op){.param = param,
		.tensor = p->tensor,
		.row = p->row,
		.col = p->col,
		.n_row = p->n_row,
		.n_col = p->n_col,
		.row_step = p->row_step,
		.col_step = p->col_step,
		.repeat = 1,
		.dst_row_stride = p->n_col,
		.dst_col_stride = 1};
}

/* Under the last parameter of the layout, when it has the same width and type. */
static bool stack(struct fx_map *f, const struct piece *p, enum wb_dtype t)
{
	struct wb_param *last = f->map.n_param ? &f->map.param[f->map.n_param - 1] : NULL;
	struct wb_op op;

	if (!last || last->dtype != t || last->ndim != 2 || last->shape[1] != p->n_col ||
		last->stride[0] != p->n_col)
		return false;
	op = op_of(p, f->map.n_param - 1);
	op.dst = last->span;
	last->shape[0] += p->n_row;
	last->span += (uint64_t)p->n_row * p->n_col;
	fx_op(f, op);
	return true;
}

/* A parameter of its own: plain, transposed, with rows reversed, twice, or with padded rows. */
static void place(struct gen *g, struct fx_map *f, const struct piece *p)
{
	enum wb_dtype t = param_type(g, g->m->tensor[p->tensor].dtype);
	uint64_t n_row = p->n_row, n_col = p->n_col, pad = 1 + below(g, 3);
	uint32_t kind = below(g, g->o->is_plain ? 3 : 7), id;
	struct wb_op op;
	char name[64];

	if (kind == 0 && stack(f, p, t))
		return;
	snprintf(name, sizeof(name), "p%u", f->map.n_param);
	op = op_of(p, f->map.n_param);
	if (kind == 3) {
		id = fx_param(f, name, t, n_col, n_row);
		op.dst_row_stride = 1;
		op.dst_col_stride = (int64_t)n_row;
	} else if (kind == 4) {
		id = fx_param(f, name, t, n_row, n_col);
		op.dst = (n_row - 1) * n_col;
		op.dst_row_stride = -(int64_t)n_col;
	} else if (kind == 5) {
		id = fx_param(f, name, t, 2 * n_row, n_col);
		op.repeat = 2;
		op.dst_repeat_stride = (int64_t)(n_row * n_col);
	} else if (kind == 6) {
		id = fx_param(f, name, t, n_row, n_col + pad);
		op.dst_row_stride = (int64_t)(n_col + pad);
		fx_region(f, (struct wb_region){id, WB_REGION_CONSTANT, n_col, n_col + pad,
				     (uint32_t)n_row, (uint32_t)pad, 0});
	} else {
		id = fx_param(f, name, t, n_row, n_col);
	}
	op.param = id;
	fx_op(f, op);
}

/*
 * One parameter of @n pieces of equal size: one after the other or interleaved, along its rows or
 * columns; transposed, upside down, twice, with padding below and a gap behind each row.
 */
static void fuse(struct gen *g, struct fx_map *f, const struct piece *p, uint32_t n)
{
	bool is_turned = chance(g, 3), is_interleaved = chance(g, 2), is_wide = chance(g, 2);
	uint32_t h = is_turned ? p->n_col : p->n_row, w = is_turned ? p->n_row : p->n_col;
	uint32_t rows = is_wide ? h : n * h, cols = is_wide ? n * w : w;
	uint32_t times = chance(g, 4) ? 2 : 1, pad = chance(g, 4) ? 1 + below(g, 3) : 0, id;
	int64_t pitch = cols + (chance(g, 4) ? 1 + below(g, 5) : 0);
	struct wb_param *x;
	char name[16];

	snprintf(name, sizeof(name), "p%u", f->map.n_param);
	id = fx_param(
		f, name, param_type(g, g->m->tensor[p->tensor].dtype), times * rows + pad, cols);
	x = &f->map.param[id];
	x->stride[0] = pitch;
	x->span = (x->shape[0] - 1) * (uint64_t)pitch + cols;
	if (pad)
		fx_region(
			f, (struct wb_region){id,
				   chance(g, 2) ? WB_REGION_CONSTANT : WB_REGION_UNWRITTEN,
				   times * rows * (uint64_t)pitch, (uint64_t)pitch, pad, cols, 0});
	for (uint32_t i = 0; i < n; i++) {
		int64_t down = is_interleaved && !is_wide ? n * pitch : pitch, right = 1;
		int64_t at = is_interleaved ? i * pitch : i * h * pitch;
		struct wb_op op = op_of(&p[i], id);

		if (is_wide) {
			right = is_interleaved ? n : 1;
			at = is_interleaved ? i : i * w;
		}
		if (chance(g, 5)) {
			at += (h - 1) * down;
			down = -down;
		}
		op.dst = (uint64_t)at;
		op.dst_row_stride = is_turned ? right : down;
		op.dst_col_stride = is_turned ? down : right;
		op.dst_repeat_stride = rows * pitch;
		op.repeat = times;
		fx_op(f, op);
	}
}

/* With the one before, where that waits and has the same size. */
static void give_mixed(struct gen *g, struct tray *t, const struct piece *p)
{
	struct piece two[2] = {t->wait, *p};
	bool is_same = t->is_waiting && t->wait.n_row == p->n_row && t->wait.n_col == p->n_col &&
		       g->m->tensor[t->wait.tensor].dtype == g->m->tensor[p->tensor].dtype;

	if (is_same) {
		fuse(g, &t->f, two, 2);
		t->is_waiting = false;
		return;
	}
	if (t->is_waiting)
		fuse(g, &t->f, &t->wait, 1);
	t->wait = *p;
	t->is_waiting = true;
}

static void give(struct gen *g, uint32_t layout, const struct piece *p)
{
	if (g->o->is_mixed) {
		give_mixed(g, &g->tray[layout], p);
		return;
	}
	place(g, &g->tray[layout].f, p);
	if (!g->o->is_plain && chance(g, 12))
		place(g, &g->tray[layout].f, p); /* a second copy, elsewhere */
}

/* A piece to one layout, sometimes to a second one too. */
static void deal(struct gen *g, uint32_t turn, const struct piece *p)
{
	uint32_t layout = turn % g->n_layout;

	give(g, layout, p);
	if (g->n_layout > 1 && chance(g, 4))
		give(g, (layout + 1 + below(g, g->n_layout - 1)) % g->n_layout, p);
}

/* Cut @n into up to 4 parts; bound[0] = 0, returns their number. */
static uint32_t cuts(struct gen *g, uint64_t n, uint64_t bound[5])
{
	uint32_t k = 1 + below(g, WB_MIN(n, 4));

	bound[0] = 0;
	for (uint32_t i = 1; i < k; i++)
		bound[i] =
			bound[i - 1] + 1 + below(g, (n - bound[i - 1] - (k - i)) / (k - i + 1) + 1);
	bound[k] = n;
	return k;
}

static void split(struct gen *g, uint32_t tensor, bool is_rows, bool is_cols)
{
	const struct wb_tensor *t = &g->m->tensor[tensor];
	uint64_t r[5] = {0, t->rows}, c[5] = {0, t->cols};
	uint32_t n_r = is_rows ? cuts(g, t->rows, r) : 1, n_c = is_cols ? cuts(g, t->cols, c) : 1;
	uint32_t turn = below(g, 8);

	for (uint32_t i = 0; i < n_r; i++)
		for (uint32_t k = 0; k < n_c; k++)
			deal(g, turn++,
				&(struct piece){tensor, r[i], c[k], (uint32_t)(r[i + 1] - r[i]),
					(uint32_t)(c[k + 1] - c[k]), 1, 1});
}

static void stride(struct gen *g, uint32_t tensor, bool is_rows)
{
	const struct wb_tensor *t = &g->m->tensor[tensor];
	uint64_t n = is_rows ? t->rows : t->cols;
	uint32_t step = 2 + below(g, chance(g, 8) ? 30 : 3);

	step = (uint32_t)WB_MIN(step, n);
	for (uint32_t i = 0; i < step; i++) {
		uint32_t count = (uint32_t)((n - i + step - 1) / step);
		struct piece p = {tensor, 0, 0, (uint32_t)t->rows, (uint32_t)t->cols, 1, 1};

		if (is_rows) {
			p.row = i;
			p.n_row = count;
			p.row_step = step;
		} else {
			p.col = i;
			p.n_col = count;
			p.col_step = step;
		}
		deal(g, i, &p);
	}
}

static void spread(struct gen *g, uint32_t tensor)
{
	const struct wb_tensor *t = &g->m->tensor[tensor];
	struct piece whole = {tensor, 0, 0, (uint32_t)t->rows, (uint32_t)t->cols, 1, 1};

	switch (below(g, g->o->is_plain ? 6 : 8)) {
	case 0:
		for (uint32_t l = 0; l < g->n_layout; l++)
			give(g, l, &whole);
		return;
	case 1:
		deal(g, below(g, 64), &whole);
		return;
	case 2:
	case 3:
		split(g, tensor, true, false);
		return;
	case 4:
		split(g, tensor, false, true);
		return;
	case 5:
		split(g, tensor, true, true);
		return;
	case 6:
		stride(g, tensor, true);
		return;
	default:
		stride(g, tensor, false);
	}
}

/* Mixed ones are of all sizes. */
static uint32_t side_of(struct gen *g)
{
	return g->o->is_mixed ? WB_MAX(g->o->side_max >> 2 * below(g, 3), 1) : g->o->side_max;
}

/* Where they are mixed, every second one has the size of the one before. */
static void make_manifest(struct gen *g, struct fx_deploy *d)
{
	static const enum wb_dtype types[] = {WB_BF16, WB_BF16, WB_F32, WB_I8};
	struct wb_tensor *t = calloc(g->o->n_tensor, sizeof(*t));
	char(*name)[16] = calloc(g->o->n_tensor, sizeof(*name));
	uint64_t rows = 0, cols = 0;

	for (uint32_t i = 0; i < g->o->n_tensor; i++) {
		if (!g->o->is_mixed || !i || chance(g, 2)) {
			cols = 1 + below(g, side_of(g));
			rows = chance(g, 6) ? 0 : 1 + below(g, side_of(g)); /* 0: one axis */
		}
		snprintf(name[i], sizeof(name[i]), "t%u", i);
		t[i] = fx_tensor(name[i], types[below(g, WB_ARRAY_SIZE(types))], rows, cols);
	}
	if (wb_manifest_create(t, g->o->n_tensor, &d->m, NULL) < 0)
		abort();
	d->base = calloc(d->m->n, sizeof(*d->base));
	for (uint32_t i = 0; i < d->m->n; i++) {
		d->base[i] = d->n_elem;
		d->n_elem += d->m->tensor[i].rows * d->m->tensor[i].cols;
	}
	free(t);
	free(name);
}

static void make_layouts(struct gen *g, struct wb_map **out, uint32_t n)
{
	g->n_layout = n;
	g->tray = calloc(n, sizeof(*g->tray));
	for (uint32_t l = 0; l < n; l++)
		g->tray[l].f.m = g->m;
	for (uint32_t t = 0; t < g->m->n; t++)
		if (!g->is_rollout || !chance(g, 8))
			spread(g, t);
	for (uint32_t l = 0; l < n; l++) {
		if (g->tray[l].is_waiting)
			fuse(g, &g->tray[l].f, &g->tray[l].wait, 1);
		out[l] = fx_map_done(&g->tray[l].f);
	}
	free(g->tray);
}

/* Trainers: one or two of each layout, two to a domain.  Rollouts: engines of all layouts, domains
 * of a random size that may hold parts of two engines. */
static void make_workers(struct gen *g, struct fx_deploy *d, uint32_t n_t, uint32_t n_r)
{
	uint32_t copies = 1 + below(g, 2), engines = 1 + below(g, 3), size = 1 + below(g, n_r + 1);
	uint32_t n = n_t * copies + n_r * engines, at = 0, n_domain = (n_t * copies + 1) / 2;
	uint32_t per_node = g->o->shares_memory ? 2 : 1;

	d->worker = calloc(n, sizeof(*d->worker));
	for (; at < n_t * copies; at++)
		d->worker[at] = (struct wb_plan_worker){
			WB_ROLE_TRAINER, at % n_t, 0, at / 2, at / 4, 1000000000};
	for (uint32_t i = 0; i < n_r * engines; i++)
		d->worker[at++] = (struct wb_plan_worker){WB_ROLE_ROLLOUT, n_t + i % n_r, i / n_r,
			n_domain + i / size, n_domain + i / size / per_node, 1000000000};
	d->n_trainer = n_t * copies;
	d->in.n_worker = n;
}

/* Domains and nodes cut across roles and engines; rails are all alike, or none like another. */
static void make_mixed_workers(struct gen *g, struct fx_deploy *d, uint32_t n_t, uint32_t n_r)
{
	uint32_t trainers = n_t * (1 + below(g, 2)), n = trainers + n_r * (1 + below(g, 2));
	uint32_t size = 1 + below(g, n);
	bool is_even = chance(g, 3);

	ck_assert_uint_le(n, FX_DEPLOY_WORKERS);
	d->worker = calloc(n, sizeof(*d->worker));
	for (uint32_t i = 0; i < n; i++) {
		bool is_rollout = i >= trainers;
		uint32_t k = is_rollout ? i - trainers : i;

		d->worker[i] = (struct wb_plan_worker){
			is_rollout ? WB_ROLE_ROLLOUT : WB_ROLE_TRAINER,
			is_rollout ? n_t + k % n_r : k % n_t, is_rollout ? k / n_r : 0, i / size,
			i / size / 2, is_even ? 1000000 : 200000 + below(g, 2000000)};
	}
	d->n_trainer = trainers;
	d->in.n_worker = n;
	d->in.lends_rails = true;
	d->in.chunk_bytes = WB_CHUNK_BYTES_LEAST + 64 * below(g, 3);
}

void fx_deploy_random(struct fx_deploy *d, const struct fx_deploy_opts *o)
{
	struct gen g = {.rng = &d->rng, .o = o};
	uint32_t n_t, n_r;

	*d = (struct fx_deploy){.rng.state = o->seed};
	make_manifest(&g, d);
	g.m = d->m;
	n_t = 1 + below(&g, o->trainers_max);
	n_r = 1 + below(&g, o->rollouts_max);
	d->layout = calloc(n_t + n_r, sizeof(*d->layout));
	make_layouts(&g, d->layout, n_t);
	g.is_rollout = true;
	make_layouts(&g, d->layout + n_t, n_r);
	(o->is_mixed ? make_mixed_workers : make_workers)(&g, d, n_t, n_r);
	d->n_trainer_layout = n_t;
	d->in.manifest = d->m;
	d->in.layout = (const struct wb_map *const *)d->layout;
	d->in.n_layout = n_t + n_r;
	d->in.worker = d->worker;
}

void fx_deploy_mixed(struct fx_deploy *d, uint64_t seed)
{
	struct fx_deploy_opts o = {.seed = seed,
		.n_tensor = 2 + (uint32_t)(seed % 8),
		.side_max = 64,
		.trainers_max = FX_DEPLOY_LAYOUTS,
		.rollouts_max = FX_DEPLOY_LAYOUTS,
		.is_mixed = true};

	fx_deploy_random(d, &o);
}

const struct wb_map *fx_deploy_map(const struct fx_deploy *d, uint32_t worker)
{
	return d->layout[d->worker[worker].layout];
}

void fx_deploy_finish(struct fx_deploy *d)
{
	for (uint32_t l = 0; l < d->in.n_layout; l++)
		wb_map_destroy(d->layout[l]);
	wb_manifest_destroy(d->m);
	free(d->layout);
	free(d->worker);
	free(d->base);
}
