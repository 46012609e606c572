/* SPDX-License-Identifier: Apache-2.0 */
/* Collects work in tables, and launches kernels over them. */
#include "extract/table.h"

#include "base/base.h"
#include "base/mem.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define SIDE_MAX (UINT64_C(1) << 30) /* most elements of an op's side */
#define SEED 0x7762726f6f74u /* of sums of content */

static void *there(const struct wb__dev *d, size_t member)
{
	return (void *)(uintptr_t)(d->dev + member);
}

/* Copy a part of the desk to the device. */
static int send(struct wb__dev *d, size_t member, size_t bytes)
{
	return d->gpu->cu->copy_in(d->dev + member, (uint8_t *)d->desk + member, bytes, d->stream);
}

static int launch(struct wb__dev *d, enum wbk_gpu which, void *args, uint32_t n_tile)
{
	const struct wbk_gpu_kernel *k = wbk_gpu_kernel(which);
	void *list[] = {args};

	return d->gpu->cu->launch(d->fn[which], wbk_gpu_grid(which, n_tile, (uint32_t)d->gpu->n_sm),
		1, 1, k->threads, 1, 1, 0, d->stream, list, NULL);
}

/* Wait also after a failure: what went into the stream before may still read the desk. */
static int end(struct wb__dev *d, int rc, const char *what)
{
	int last = wb__dev_wait(d);

	return wb__dev_fails(d, rc ? rc : last, what);
}

/* ---- moving ---------------------------------------------------------------------------------- */

static int run_moves(struct wb__moves *m)
{
	struct wb__dev *d = m->d;
	struct wb__desk *k = d->desk;
	bool is_sum = m->way == WBK_WAY_SUM;
	struct wbk_move_args a = {.op = there(d, offsetof(struct wb__desk, item)),
		.first = there(d, offsetof(struct wb__desk, first)),
		.bases = there(d, offsetof(struct wb__desk, base)),
		.wire = is_sum ? NULL : (void *)(uintptr_t)m->wire,
		.n_op = m->n,
		.way = m->way};
	int rc = send(
		d, offsetof(struct wb__desk, first), WBK_MOVES * (m->n + 1) * sizeof(*k->first));

	if (!rc)
		rc = send(d, offsetof(struct wb__desk, base), m->n * sizeof(*k->base));
	if (!rc)
		rc = send(d, offsetof(struct wb__desk, item), m->n * sizeof(struct wbk_op));
	if (!rc && is_sum) {
		a.keys = there(d, offsetof(struct wb__desk, keys));
		a.sum = there(d, offsetof(struct wb__desk, out));
		wbk_sum_keys_init(&k->keys, SEED);
		memset(k->out.sum, 0, m->n * sizeof(*k->out.sum));
		rc = send(d, offsetof(struct wb__desk, keys), sizeof(k->keys));
		if (!rc)
			rc = send(d, offsetof(struct wb__desk, out), m->n * sizeof(*k->out.sum));
	}
	for (unsigned i = 0; i < WBK_MOVES && !rc; i++, a.first += m->n + 1) {
		uint32_t tiles = wbk_move_tiles(k->first, m->n, i);

		rc = tiles ? launch(d, (enum wbk_gpu)i, &a, tiles) : 0;
	}
	rc = end(d, rc, "wbk_gpu_rows, wbk_gpu_turns or wbk_gpu_image");
	if (!rc && is_sum)
		rc = wb__dev_out(d, k->out.sum, d->dev + offsetof(struct wb__desk, out),
			m->n * sizeof(*k->out.sum));
	return rc;
}

int wb__moves_flush(struct wb__moves *m)
{
	struct wb__dev *d = m->d;
	uint32_t bad = 0, n = m->n;
	int rc = wbk_move_prepare(
		(struct wbk_op *)(void *)d->desk->item, n, m->way, d->desk->first, &bad);

	m->n = 0;
	if (rc)
		return wb__dev_says(d, rc, "a table of moves that cannot be");
	m->n = n; /* run_moves() reads it */
	rc = n ? run_moves(m) : 0;
	for (uint32_t i = 0; i < n && !rc && m->way == WBK_WAY_SUM; i++) {
		struct wb__param *a = &d->p->param[d->owner[i]];

		a->kept.sum.lane[0] += d->desk->out.sum[i].lane[0];
		a->kept.sum.lane[1] += d->desk->out.sum[i].lane[1];
	}
	m->n = 0;
	return rc;
}

static int add_op(struct wb__moves *m, const struct wb__param *a, const struct wbk_op *op,
	const uint8_t *base)
{
	struct wbk_op *ops = (struct wbk_op *)(void *)m->d->desk->item;
	/* The failure of a flush is returned, but what comes after it is tried all the same. */
	int rc = m->n == WB__TABLE_ITEMS ? wb__moves_flush(m) : 0;

	ops[m->n] = *op;
	ops[m->n].base = ops[m->n].sum = m->n;
	m->d->desk->base[m->n] = (void *)(uintptr_t)base;
	m->d->owner[m->n++] = (uint32_t)(a - m->d->p->param);
	return rc;
}

int wb__moves_add(struct wb__moves *m, struct wb__param *a, const uint8_t *data, uint64_t wire,
	const struct wb__store *store)
{
	const struct wb__geom *g = &a->geom;
	uint64_t e = a->elem_bytes, pitch = (uint64_t)g->stride[g->n_axis - 2];
	/* If rows are cut, an op has one row, since a part of a row is a row of its own on the
	 * wire. */
	uint64_t rows = g->cols > SIDE_MAX ? 1 : SIDE_MAX;
	int rc = 0;

	if (store && m->wire != store->addr) {
		rc = wb__moves_flush(m);
		m->wire = store->addr;
	}
	for (uint64_t s = 0; s < g->slabs; s++)
		for (uint64_t r = 0; r < g->rows; r += rows)
			for (uint64_t c = 0; c < g->cols; c += SIDE_MAX) {
				uint64_t row = s * g->rows + r, at = (row * g->cols + c) * e;
				struct wbk_op op = {.wire_off = store ? wire - m->wire + at : 0,
					.pos = at,
					.mem_stride = {0, 0, (int64_t)(pitch * e), (int64_t)e},
					.pos_stride = {0, 0, g->cols * e, e},
					.n = {1, 1, (uint32_t)WB_MIN(g->rows - r, rows),
						(uint32_t)WB_MIN(g->cols - c, SIDE_MAX)},
					.repeat = 1,
					.wire_elem = (uint8_t)e,
					.mem_elem = (uint8_t)e};

				int more = add_op(m, a, &op, data + (wb__geom_row(g, row) + c) * e);

				rc = rc ? rc : more;
			}
	return rc;
}

/* ---- scans ----------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
	const struct wbk_hit *x = a, *y = b;

	if (x->item != y->item)
		return x->item < y->item ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

static int fetch_hits(struct wb__dev *d, struct wbk_hit *to, uint64_t n)
{
	int rc = 0;

	for (uint64_t i = 0; i < n && !rc; i += WB__HITS_STAGE) {
		uint64_t take = WB_MIN(n - i, WB__HITS_STAGE);

		rc = wb__dev_out(d, d->desk->stage, d->hit + i * sizeof(*to), take * sizeof(*to));
		if (!rc)
			memcpy(to + i, d->desk->stage, take * sizeof(*to));
	}
	return rc;
}

static int run_scan(struct wb__scan *s)
{
	struct wb__dev *d = s->d;
	struct wb__desk *k = d->desk;
	size_t back = offsetof(struct wb__desk, n_hit);
	size_t back_bytes = offsetof(struct wb__desk, out) - back + s->n * sizeof(*k->out.found);
	struct wbk_scan_args a = {.item = there(d, offsetof(struct wb__desk, item)),
		.first = there(d, offsetof(struct wb__desk, first)),
		.out = there(d, offsetof(struct wb__desk, out)),
		.hit = (void *)(uintptr_t)d->hit,
		.n_hit = there(d, back),
		.cap = d->cap,
		.n_item = s->n};
	int rc = send(d, offsetof(struct wb__desk, first), (s->n + 1) * sizeof(*k->first));

	k->n_hit = 0;
	for (uint32_t i = 0; i < s->n; i++)
		k->out.found[i] = wbk_found_none();
	if (!rc)
		rc = send(d, offsetof(struct wb__desk, item), s->n * s->item_bytes);
	if (!rc && s->found)
		rc = send(d, back, back_bytes);
	if (!rc)
		rc = launch(d, s->which, &a, k->first[s->n]);
	rc = end(d, rc, wbk_gpu_kernel(s->which)->name);
	return rc || !s->found ? rc : wb__dev_out(d, &k->n_hit, d->dev + back, back_bytes);
}

/* Hand out what was found in the items, each with its hits. */
static int hand_out(struct wb__scan *s, const struct wbk_hit *hit, uint64_t n_hit)
{
	struct wb__dev *d = s->d;
	uint64_t at = 0;
	int rc = 0;

	for (uint32_t i = 0; i < s->n && !rc; i++) {
		const struct wbk_found *f = &d->desk->out.found[i];
		uint64_t begin = at;

		while (at < n_hit && hit[at].item == i)
			at++;
		rc = s->found(s, d->desk->item + i * s->item_bytes, &d->p->param[d->owner[i]], f,
			hit + begin, f->is_over ? 0 : at - begin);
	}
	return rc;
}

int wb__scan_flush(struct wb__scan *s)
{
	struct wb__dev *d = s->d;
	struct wbk_hit *hit = NULL;
	uint64_t n_hit = 0;
	int rc;

	if (!s->n)
		return 0;
	assert(d->desk->first[s->n]); /* no item is empty: a launch of nothing is an error */
	rc = run_scan(s);
	if (!rc && s->found)
		n_hit = WB_MIN(d->desk->n_hit, d->cap);
	if (n_hit) {
		hit = wb_realloc_array(NULL, n_hit, sizeof(*hit));
		rc = hit ? fetch_hits(d, hit, n_hit) : -ENOMEM;
		if (!rc)
			qsort(hit, n_hit, sizeof(*hit), by_place);
	}
	if (!rc && s->found)
		rc = hand_out(s, hit, n_hit);
	wb_free(hit);
	s->n = 0;
	return rc;
}

int wb__scan_add(struct wb__scan *s, const void *item, const struct wb__extent *x,
	const struct wb__param *owner)
{
	struct wb__dev *d = s->d;
	uint32_t *first = d->desk->first;
	int rc = s->n == WB__TABLE_ITEMS ? wb__scan_flush(s) : 0;

	first[0] = 0;
	if (!rc)
		rc = wbk_tiles_add(first + s->n, x->rows, x->cols, x->times);
	if (rc == -E2BIG && s->n) {
		rc = wb__scan_flush(s);
		if (!rc)
			rc = wbk_tiles_add(first, x->rows, x->cols, x->times);
	}
	if (rc == -E2BIG)
		return wb__dev_says(d, rc, "a parameter that is too large for a launch");
	if (rc)
		return rc;
	memcpy(d->desk->item + s->n * s->item_bytes, item, s->item_bytes);
	d->owner[s->n++] = (uint32_t)(owner - d->p->param);
	return 0;
}

struct wb__scan wb__scan_of(struct wb__dev *d, enum wbk_gpu which, uint32_t item_bytes)
{
	return (struct wb__scan){.d = d, .which = which, .item_bytes = item_bytes};
}

void wb__bad_add(struct wb__bad *b, const struct wbk_range *r, uint64_t index)
{
	if (!r->n)
		return;
	if (!b->n)
		b->first = index + r->first;
	b->last = index + r->last;
	b->n += r->n;
}

struct wbk_plane wb__plane_of(const struct wb__param *a, uint64_t slab)
{
	const struct wb__geom *g = &a->geom;

	return (struct wbk_plane){.data = a->data + wb__geom_row(g, slab * g->rows) * a->elem_bytes,
		.rows = g->rows,
		.cols = g->cols,
		.row_stride = g->stride[g->n_axis - 2],
		.row_end = g->rows,
		.elem = (uint8_t)a->elem_bytes};
}

int wb__scan_planes(struct wb__scan *s, void *item, const struct wb__param *a,
	void (*at)(void *item, const struct wb__param *a, uint64_t index))
{
	const struct wb__geom *g = &a->geom;
	int rc = 0;

	for (uint64_t i = 0; i < g->slabs && !rc; i++) {
		struct wbk_plane p = wb__plane_of(a, i);

		memcpy(item, &p, sizeof(p));
		if (at)
			at(item, a, i * g->rows * g->cols);
		rc = wb__scan_add(s, item, &(struct wb__extent){g->rows, g->cols, 1}, a);
	}
	return rc;
}
