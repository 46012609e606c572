/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/mem.h"
#include "extract/device.h"
#include "extract/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/*
 * The hash pass: compares what should have arrived according to the ops with what did arrive.  The
 * parameters are read by wbk_pack(), the code that will move the weights, so that this code is
 * verified.
 */

#define CHUNK_ELEMS (32u << 10)
#define UNIT_ELEMS (4u << 20) /* about as many in one task */

struct unit {
	uint32_t param;
	size_t op_begin, op_end; /* small ops share a task */
	uint32_t row, row_end; /* rows of the op, if it is the only one */
};

struct check {
	struct wb_probe *p;
	struct unit *unit; /* owned */
	size_t n, cap;
};

struct mem {
	uint8_t *want, *got; /* owned; CHUNK_ELEMS of 4 bytes each */
};

void wb__ledger(struct wb_probe *p, struct wb__param *a, uint64_t dst, uint64_t n)
{
	pthread_mutex_lock(&p->lock);
	if (!a->bad.n || dst < a->bad.first)
		a->bad.first = dst;
	a->bad.n += n;
	pthread_mutex_unlock(&p->lock);
}

static uint64_t count_other(const uint8_t *a, const uint8_t *b, size_t n, size_t elem)
{
	uint64_t other = 0;

	if (!memcmp(a, b, n * elem))
		return 0;
	for (size_t i = 0; i < n; i++)
		other += memcmp(a + i * elem, b + i * elem, elem) != 0;
	return other;
}

/* Rows [row, +rows), columns [col, +cols) of the op's lattice; at most CHUNK_ELEMS elements. */
struct tile {
	uint32_t row, rows, col, cols;
};

static void check_tile(
	struct wb_probe *p, const struct wb_op *o, const struct tile *t, const struct mem *m)
{
	struct wb__param *a = &p->param[o->param];
	const struct wb_tensor *k = &p->manifest->tensor[o->tensor];
	size_t elem = wb_dtype_bytes(k->dtype), n = (size_t)t->rows * t->cols;
	bool is_exact = true;
	struct wbk_box box = {
		.n_row = t->rows,
		.n_col = t->cols,
		.repeat = 1,
		.row_stride = o->dst_row_stride * (int64_t)a->elem_bytes,
		.col_stride = o->dst_col_stride * (int64_t)a->elem_bytes,
		.wire_elem = (uint8_t)elem,
		.mem_elem = (uint8_t)a->elem_bytes,
		.cast = (uint8_t)wb_cast_between(k->dtype, a->dtype, &is_exact),
	};
	uint64_t dst = o->dst + (uint64_t)(t->row * o->dst_row_stride + t->col * o->dst_col_stride);
	void *base = a->data;

	for (uint32_t r = 0; r < t->rows; r++) {
		struct wb__hash_at at = {
			p->opts.seed + p->hash_done,
			k->row_base + o->row + (uint64_t)(t->row + r) * o->row_step,
			o->col + (uint64_t)t->col * o->col_step,
			o->col_step,
		};

		wb__hash_row(p, k->dtype, &at, m->want + r * t->cols * elem, t->cols);
	}
	if (!is_exact) { /* what would arrive after a transfer */
		wbk_cast_fwd(box.cast, m->want, m->got, n);
		wbk_cast_back(box.cast, m->got, m->want, n);
	}
	for (uint32_t i = 0; i < o->repeat; i++) {
		uint64_t other;

		box.mem_off = (dst + (uint64_t)(i * o->dst_repeat_stride)) * a->elem_bytes;
		wbk_pack(&base, &box, 1, m->got, NULL, NULL);
		other = count_other(m->want, m->got, n, elem);
		if (other)
			wb__ledger(p, a, dst + (uint64_t)(i * o->dst_repeat_stride), other);
	}
}

static void check_op(
	struct wb_probe *p, const struct wb_op *o, const struct unit *u, const struct mem *m)
{
	uint32_t cols = WB_MIN(o->n_col, CHUNK_ELEMS);
	uint32_t rows = WB_MAX(CHUNK_ELEMS / cols, 1);

	for (uint32_t r = u->row; r < u->row_end; r += WB_MIN(rows, u->row_end - r))
		for (uint32_t c = 0; c < o->n_col; c += WB_MIN(cols, o->n_col - c))
			check_tile(p, o,
				&(struct tile){r, WB_MIN(rows, u->row_end - r), c,
					WB_MIN(cols, o->n_col - c)},
				m);
}

static int check_task(void *ctx, size_t task)
{
	struct check *c = ctx;
	const struct unit *u = &c->unit[task];
	const struct wb__param *a = &c->p->param[u->param];
	struct mem m = {wb_alloc(CHUNK_ELEMS * 4), wb_alloc(CHUNK_ELEMS * 4)};

	if (m.want && m.got) {
		for (size_t i = u->op_begin; i < u->op_end; i++) {
			struct unit one = *u;

			if (u->op_end - u->op_begin > 1) {
				one.row = 0;
				one.row_end = a->op[i].n_row;
			}
			check_op(c->p, &a->op[i], &one, &m);
		}
	}
	wb_free(m.want);
	wb_free(m.got);
	return m.want && m.got ? 0 : -ENOMEM;
}

static int put_unit(struct check *c, const struct unit *u)
{
	int rc = wb_grow(&c->unit, &c->cap, c->n + 1, SIZE_MAX / 64, sizeof(*u));

	if (!rc)
		c->unit[c->n++] = *u;
	return rc;
}

/* Cut the ops of a parameter into tasks: large ops by rows, small ones together. */
static int cut_param(struct check *c, uint32_t number)
{
	const struct wb__param *a = &c->p->param[number];
	size_t begin = 0;
	uint64_t elems = 0;
	int rc = 0;

	for (size_t i = 0; i < a->n_op && !rc; i++) {
		const struct wb_op *o = &a->op[i];
		uint64_t line = (uint64_t)o->n_col * o->repeat;
		uint32_t rows = (uint32_t)WB_MAX(UNIT_ELEMS / line, 1);

		if (line * o->n_row >= UNIT_ELEMS) {
			if (begin < i)
				rc = put_unit(
					c, &(struct unit){number, begin, i, 0, a->op[begin].n_row});
			for (uint32_t r = 0; r < o->n_row && !rc; r += WB_MIN(rows, o->n_row - r))
				rc = put_unit(c, &(struct unit){number, i, i + 1, r,
							 r + WB_MIN(rows, o->n_row - r)});
			begin = i + 1;
			elems = 0;
			continue;
		}
		elems += line * o->n_row;
		if (elems >= UNIT_ELEMS || i + 1 == a->n_op) {
			rc = put_unit(
				c, &(struct unit){number, begin, i + 1, 0, a->op[begin].n_row});
			begin = i + 1;
			elems = 0;
		}
	}
	if (!rc && begin < a->n_op)
		rc = put_unit(c, &(struct unit){number, begin, a->n_op, 0, a->op[begin].n_row});
	return rc;
}

/* Constants must still be there, and unwritten elements must still hold the sentinel. */
static int regions_task(void *ctx, size_t task)
{
	struct wb_probe *p = ctx;
	struct wb__param *a = &p->param[task];

	if (a->dev)
		return 0;
	if (a->state == WB__LEFT && a->geom.total && wb__content_hash(a) != a->hash)
		wb__ledger(p, a, 0, a->geom.total);
	if (a->state != WB__ACTIVE)
		return 0;
	for (size_t i = 0; i < a->n_region; i++) {
		const struct wb_region *r = &a->region[i];
		uint64_t want =
			r->kind == WB_REGION_CONSTANT ? r->value : wb__sentinel_raw(a->dtype);

		if (r->kind == WB_REGION_UNWRITTEN && a->is_merged)
			continue;
		for (uint32_t k = 0; k < r->n_row; k++) {
			const uint8_t *e = a->data + (r->dst + k * r->row_stride) * a->elem_bytes;

			for (uint32_t c = 0; c < r->n_col; c++, e += a->elem_bytes)
				if (wb__raw_at(e, a->elem_bytes) != want)
					wb__ledger(p, a, r->dst + k * r->row_stride + c, 1);
		}
	}
	return 0;
}

int wb__verify(struct wb_probe *p)
{
	struct check c = {.p = p};
	int rc = 0;

	for (uint32_t i = 0; i < p->n_param && !rc; i++)
		if (p->param[i].state == WB__ACTIVE && !p->param[i].dev)
			rc = cut_param(&c, i);
	if (!rc)
		rc = wb__parallel(p->threads, c.n, check_task, &c);
	if (!rc)
		rc = wb__parallel(p->threads, p->n_param, regions_task, p);
	wb_free(c.unit);
	return rc < 0 ? rc : wb__dev_verify(p);
}

/* May the parameter's elements have been rounded?  A transfer rounds to the nearest; a loader may
 * do otherwise. */
static bool may_round(const struct wb_probe *p, const struct wb__param *a)
{
	for (size_t i = 0; i < a->n_op; i++) {
		enum wb_dtype t = p->manifest->tensor[a->op[i].tensor].dtype;

		if (t == WB_F32 || t == WB_F16)
			return true;
	}
	return false;
}

void wb__verify_judge(struct wb_probe *p)
{
	for (uint32_t i = 0; i < p->n_param; i++) {
		struct wb__param *a = &p->param[i];

		if (a->bad.n)
			wb__fault(a,
				"from element %" PRIu64 " on, %" PRIu64
				" elements: not deterministic, or depends on the values%s (what "
				"arrives in the hash pass is not what the passes before say)",
				a->bad.first, a->bad.n,
				may_round(p, a) ? ", or loses bits of them in another way than "
						  "rounding to the nearest of its type"
						: "");
		a->bad = (struct wb__bad){0};
	}
}
