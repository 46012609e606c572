/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_random.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_plan.h"

#include "base/base.h"
#include "base/err.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

/* A lattice box of a tensor. */
struct piece {
	uint32_t tensor;
	uint64_t row, col;
	uint32_t n_row, n_col, row_step, col_step;
};

static uint32_t below(struct fx_random *d, uint64_t n)
{
	return (uint32_t)wb_rng_below(&d->rng, n);
}

static bool chance(struct fx_random *d, uint32_t one_in)
{
	return !below(d, one_in);
}

static enum wb_dtype param_type(struct fx_random *d, enum wb_dtype wire)
{
	if (wire == WB_I8 || !chance(d, 3))
		return wire;
	return wire == WB_BF16 ? WB_F32 : WB_BF16;
}

/*
 * One parameter of @n pieces of equal size: one after the other or interleaved, along its rows or
 * columns; transposed, upside down, twice, with padding below and a gap behind each row.
 */
static void place(struct fx_random *d, struct fx_map *f, const struct piece *p, uint32_t n)
{
	bool is_turned = chance(d, 3), is_mixed = chance(d, 2), is_wide = chance(d, 2);
	uint32_t h = is_turned ? p->n_col : p->n_row, w = is_turned ? p->n_row : p->n_col;
	uint32_t rows = is_wide ? h : n * h, cols = is_wide ? n * w : w;
	uint32_t times = chance(d, 4) ? 2 : 1, pad = chance(d, 4) ? 1 + below(d, 3) : 0;
	int64_t pitch = cols + (chance(d, 4) ? 1 + below(d, 5) : 0);
	struct wb_param *x;
	char name[16];
	uint32_t id;

	snprintf(name, sizeof(name), "p%u", f->map.n_param);
	id = fx_param(
		f, name, param_type(d, d->m->tensor[p->tensor].dtype), times * rows + pad, cols);
	x = &f->map.param[id];
	x->stride[0] = pitch;
	x->span = (x->shape[0] - 1) * (uint64_t)pitch + cols;
	if (pad)
		fx_region(
			f, (struct wb_region){id,
				   chance(d, 2) ? WB_REGION_CONSTANT : WB_REGION_UNWRITTEN,
				   times * rows * (uint64_t)pitch, (uint64_t)pitch, pad, cols, 0});
	for (uint32_t i = 0; i < n; i++, p++) {
		int64_t down = is_mixed && !is_wide ? n * pitch : pitch, right = 1;
		int64_t at = is_mixed ? i * pitch : i * h * pitch;

		if (is_wide) {
			right = is_mixed ? n : 1;
			at = is_mixed ? i : i * w;
		}
		if (chance(d, 5)) {
			at += (h - 1) * down;
			down = -down;
		}
		fx_op(f, (struct wb_op){.param = id,
				 .tensor = p->tensor,
				 .dst = (uint64_t)at,
				 .row = p->row,
				 .col = p->col,
				 .n_row = p->n_row,
				 .n_col = p->n_col,
				 .row_step = p->row_step,
				 .col_step = p->col_step,
				 .dst_row_stride = is_turned ? right : down,
				 .dst_col_stride = is_turned ? down : right,
				 .dst_repeat_stride = rows * pitch,
				 .repeat = times});
	}
}

/* What a layout gets: fused with the one before where that waits and has the same size. */
struct tray {
	struct fx_map f;
	struct piece wait;
	bool is_waiting;
};

static void give(struct fx_random *d, struct tray *t, const struct piece *p)
{
	struct piece two[2] = {t->wait, *p};
	bool is_same = t->is_waiting && t->wait.n_row == p->n_row && t->wait.n_col == p->n_col &&
		       d->m->tensor[t->wait.tensor].dtype == d->m->tensor[p->tensor].dtype;

	if (is_same) {
		place(d, &t->f, two, 2);
		t->is_waiting = false;
		return;
	}
	if (t->is_waiting)
		place(d, &t->f, &t->wait, 1);
	t->wait = *p;
	t->is_waiting = true;
}

/* Tensor @id over @n layouts: everything to all, blocks or every n-th line of one axis, or all of
 * it to one; and sometimes everything to one more. */
static void spread(struct fx_random *d, struct tray *t, uint32_t n, uint32_t id)
{
	const struct wb_tensor *x = &d->m->tensor[id];
	const struct piece whole = {id, 0, 0, (uint32_t)x->rows, (uint32_t)x->cols, 1, 1};
	uint32_t kind = below(d, 6), parts = 1 + below(d, n), turn = below(d, n);
	bool is_rows = chance(d, 2);
	uint64_t side = is_rows ? x->rows : x->cols, at = 0;

	if (!kind)
		for (uint32_t i = 0; i < n; i++)
			give(d, &t[i], &whole);
	if (kind && chance(d, 5))
		give(d, &t[below(d, n)], &whole);
	for (uint32_t i = 0; kind && i < parts && at < side; i++) {
		uint64_t left = side - at, len = i + 1 == parts ? left : 1 + below(d, left);
		struct piece p = whole;

		if (kind < 3) {
			*(is_rows ? &p.row : &p.col) = at;
			*(is_rows ? &p.n_row : &p.n_col) = (uint32_t)len;
			at += len;
		} else if (parts <= side) {
			*(is_rows ? &p.row : &p.col) = i;
			*(is_rows ? &p.n_row : &p.n_col) = (uint32_t)((side - i - 1) / parts + 1);
			*(is_rows ? &p.row_step : &p.col_step) = parts;
		} else {
			at = side;
		}
		give(d, &t[(turn + i) % n], &p);
	}
}

static void make_layouts(struct fx_random *d, struct wb_map **out, uint32_t n, bool is_rollout)
{
	struct tray t[FX_RANDOM_LAYOUTS] = {0};

	for (uint32_t i = 0; i < n; i++)
		t[i].f.m = d->m;
	for (uint32_t id = 0; id < d->m->n; id++)
		if (!is_rollout || !chance(d, 8))
			spread(d, t, n, id);
	for (uint32_t i = 0; i < n; i++) {
		if (t[i].is_waiting)
			place(d, &t[i].f, &t[i].wait, 1);
		out[i] = fx_map_done(&t[i].f);
	}
}

static void make_manifest(struct fx_random *d)
{
	static const enum wb_dtype types[] = {WB_BF16, WB_BF16, WB_F32, WB_F32, WB_I8};
	static const uint32_t sides[] = {4, 16, 64};
	uint32_t n = 2 + below(d, 8), rows = 0, cols = 0;
	struct wb_tensor t[16];
	char name[16][16];

	for (uint32_t i = 0; i < n; i++) {
		/* Equal sizes are what can be fused. */
		if (!i || chance(d, 2)) {
			rows = 1 + below(d, sides[below(d, 3)]);
			cols = 1 + below(d, sides[below(d, 3)]);
		}
		snprintf(name[i], sizeof(name[i]), "t%u", i);
		t[i] = fx_tensor(name[i], types[below(d, WB_ARRAY_SIZE(types))], rows, cols);
	}
	ck_assert(!wb_manifest_create(t, n, &d->m, NULL));
	for (uint32_t i = 0; i < n; i++) {
		d->base[i] = d->n_elem;
		d->n_elem += d->m->tensor[i].rows * d->m->tensor[i].cols;
	}
}

/* Every layout has a worker or more; domains and nodes cut across roles and engines. */
static void make_workers(struct fx_random *d, uint32_t n_t, uint32_t n_r)
{
	uint32_t trainers = n_t * (1 + below(d, 2)), rollouts = n_r * (1 + below(d, 2)), size;
	bool is_even = chance(d, 3);

	d->n_trainer = trainers;
	d->in.n_worker = trainers + rollouts;
	size = 1 + below(d, d->in.n_worker);
	for (uint32_t i = 0; i < d->in.n_worker; i++) {
		bool is_rollout = i >= trainers;
		uint32_t k = is_rollout ? i - trainers : i;

		d->worker[i] = (struct wb_plan_worker){
			is_rollout ? WB_ROLE_ROLLOUT : WB_ROLE_TRAINER,
			is_rollout ? n_t + k % n_r : k % n_t, is_rollout ? k / n_r : 0, i / size,
			i / size / 2, is_even ? 1000000 : 200000 + below(d, 2000000)};
	}
}

void fx_random_init(struct fx_random *d, uint64_t seed)
{
	uint32_t n_t, n_r;

	memset(d, 0, sizeof(*d));
	d->rng.state = seed;
	make_manifest(d);
	d->n_trainer_layout = n_t = 1 + below(d, FX_RANDOM_LAYOUTS);
	n_r = 1 + below(d, FX_RANDOM_LAYOUTS);
	make_layouts(d, d->layout, n_t, false);
	make_layouts(d, d->layout + n_t, n_r, true);
	make_workers(d, n_t, n_r);
	d->in.manifest = d->m;
	d->in.layout = (const struct wb_map *const *)d->layout;
	d->in.n_layout = n_t + n_r;
	d->in.worker = d->worker;
	d->in.lends_rails = true;
	d->in.chunk_bytes = WB_CHUNK_BYTES_LEAST + 64 * below(d, 3);
}

void fx_random_finish(struct fx_random *d)
{
	for (uint32_t i = 0; i < d->in.n_layout; i++)
		wb_map_destroy(d->layout[i]);
	wb_manifest_destroy(d->m);
}

const struct wb_map *fx_random_map(const struct fx_random *d, uint32_t worker)
{
	return d->layout[d->worker[worker].layout];
}
