/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/mem.h"
#include "extract/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/*
 * Turns boxes of affine ids into ops.  An op has at most one axis that moves the row alone, one
 * that moves the column alone and one that moves neither (repeat), all inside one tensor.  Axes of
 * a box that are in fact one are joined, and a box that does not fit into one op is cut, at the
 * ends of tensors or along whole axes.
 */

#define SIDE_MAX (UINT32_C(1) << 31)

struct part {
	uint32_t n_axis;
	uint64_t n[WB__AXES_MAX];
	int64_t sg[WB__AXES_MAX], sj[WB__AXES_MAX]; /* row and column of the id, per step */
	int64_t ds[WB__AXES_MAX]; /* elements of the parameter per step */
	int64_t g, j; /* of the first element */
	uint64_t dst;
};

struct place {
	struct wb_probe *p;
	struct wb__param *a;
	uint32_t number;
};

static int put_part(struct place *pl, struct part part);

static void drop_axis(struct part *t, uint32_t a)
{
	t->n_axis--;
	for (; a < t->n_axis; a++) {
		t->n[a] = t->n[a + 1];
		t->sg[a] = t->sg[a + 1];
		t->sj[a] = t->sj[a + 1];
		t->ds[a] = t->ds[a + 1];
	}
}

/* Does one step of axis @a pass over exactly what axis @b walks?  Then both are one axis. */
static bool is_one(const struct part *t, uint32_t a, uint32_t b)
{
	int64_t n = (int64_t)t->n[b];

	return t->sg[a] == t->sg[b] * n && t->sj[a] == t->sj[b] * n && t->ds[a] == t->ds[b] * n;
}

static void simplify(struct part *t)
{
	for (uint32_t a = 0; a < t->n_axis;)
		if (t->n[a] == 1)
			drop_axis(t, a);
		else
			a++;
	for (uint32_t a = 0; a < t->n_axis; a++) {
		for (uint32_t b = 0; b < t->n_axis; b++) {
			if (a == b || !is_one(t, a, b))
				continue;
			t->n[b] *= t->n[a];
			drop_axis(t, a);
			a = UINT32_MAX; /* begin again */
			break;
		}
	}
}

/* Put the elements [@from, @to) of axis @a as a part of their own. */
static int put_cut(struct place *pl, const struct part *t, uint32_t a, uint64_t from, uint64_t to)
{
	struct part c = *t;

	c.g += (int64_t)from * c.sg[a];
	c.j += (int64_t)from * c.sj[a];
	c.dst += from * (uint64_t)c.ds[a];
	c.n[a] = to - from;
	return put_part(pl, c);
}

static int put_singles(struct place *pl, const struct part *t, uint32_t a)
{
	int rc = 0;

	for (uint64_t i = 0; i < t->n[a] && !rc; i++)
		rc = put_cut(pl, t, a, i, i + 1);
	return rc;
}

static uint32_t tensor_of(const struct wb_manifest *m, uint64_t g)
{
	uint32_t lo = 0, hi = m->n - 1;

	while (lo < hi) {
		uint32_t mid = hi - (hi - lo) / 2;

		if (m->tensor[mid].row_base <= g)
			lo = mid;
		else
			hi = mid - 1;
	}
	return lo;
}

/* Cut along axis @a, the only one that moves the row, where the tensor changes. */
static int put_by_tensor(struct place *pl, const struct part *t, uint32_t a)
{
	const struct wb_manifest *m = pl->p->manifest;
	uint64_t step = (uint64_t)(t->sg[a] < 0 ? -t->sg[a] : t->sg[a]);
	int rc = 0;

	for (uint64_t i = 0, end; i < t->n[a] && !rc; i = end) {
		uint64_t g = (uint64_t)(t->g + (int64_t)i * t->sg[a]);
		const struct wb_tensor *k = &m->tensor[tensor_of(m, g)];
		uint64_t left = t->sg[a] > 0 ? k->row_base + k->rows - 1 - g : g - k->row_base;

		end = WB_MIN(i + left / step + 1, t->n[a]);
		rc = put_cut(pl, t, a, i, end);
	}
	return rc;
}

static int put_op(struct place *pl, const struct part *t, const struct wb_tensor *k)
{
	struct wb__param *a = pl->a;
	struct wb_op o = {
		.param = pl->number,
		.tensor = (uint32_t)(k - pl->p->manifest->tensor),
		.n_row = 1,
		.n_col = 1,
		.row_step = 1,
		.col_step = 1,
		.repeat = 1,
		.dst = t->dst,
	};
	int64_t g = t->g, j = t->j;
	int rc = wb_grow(&a->op, &a->op_cap, a->n_op + 1, WB__OPS_MAX, sizeof(o));

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < t->n_axis; i++) {
		uint32_t n = (uint32_t)t->n[i];
		int64_t ds = t->ds[i], s = t->sg[i] ? t->sg[i] : t->sj[i];

		if (!s) {
			o.repeat = n;
			o.dst_repeat_stride = ds;
			continue;
		}
		if (s < 0) { /* reversed: begin at the other end */
			o.dst += (uint64_t)ds * (n - 1);
			ds = -ds;
			*(t->sg[i] ? &g : &j) += s * (int64_t)(n - 1);
			s = -s;
		}
		if (t->sg[i]) {
			o.n_row = n;
			o.row_step = (uint32_t)s;
			o.dst_row_stride = ds;
		} else {
			o.n_col = n;
			o.col_step = (uint32_t)s;
			o.dst_col_stride = ds;
		}
	}
	o.row = (uint64_t)g - k->row_base;
	o.col = (uint64_t)j;
	a->op[a->n_op++] = o;
	return 0;
}

struct reach {
	int64_t g_min, g_max, j_min, j_max;
};

static struct reach reach_of(const struct part *t)
{
	struct reach r = {t->g, t->g, t->j, t->j};

	for (uint32_t a = 0; a < t->n_axis; a++) {
		int64_t n = (int64_t)t->n[a] - 1;

		r.g_min += WB_MIN(t->sg[a], 0) * n;
		r.g_max += WB_MAX(t->sg[a], 0) * n;
		r.j_min += WB_MIN(t->sj[a], 0) * n;
		r.j_max += WB_MAX(t->sj[a], 0) * n;
	}
	return r;
}

/* Find an axis that no op can have: it moves both row and column, or in too wide steps; -1:
 * none. */
static int odd_axis(const struct part *t)
{
	for (uint32_t a = 0; a < t->n_axis; a++)
		if ((t->sg[a] && t->sj[a]) || t->sg[a] > UINT32_MAX || -t->sg[a] > UINT32_MAX ||
			t->sj[a] > UINT32_MAX || -t->sj[a] > UINT32_MAX)
			return (int)a;
	return -1;
}

/* Find the shortest axis among those of a kind (row, column, repeat) that occurs more than once;
 * -1: none. */
static int spare_axis(const struct part *t)
{
	uint32_t count[3] = {0};
	int best = -1;

	for (uint32_t a = 0; a < t->n_axis; a++)
		count[t->sg[a] ? 0 : t->sj[a] ? 1 : 2]++;
	for (uint32_t a = 0; a < t->n_axis; a++)
		if (count[t->sg[a]     ? 0
			    : t->sj[a] ? 1
				       : 2] > 1 &&
			(best < 0 || t->n[a] < t->n[best]))
			best = (int)a;
	return best;
}

static int outside(struct place *pl, const struct part *t, const struct reach *r)
{
	wb__fault(pl->a,
		"element %" PRIu64 " and others: ids outside the checkpoint (rows %" PRId64
		"..%" PRId64 ", columns %" PRId64 "..%" PRId64
		"): load_weights does not do the same in every pass, joins digits of several "
		"elements, or casts to %s in an unknown way",
		t->dst, r->g_min, r->g_max, r->j_min, r->j_max, wb_dtype_name(pl->a->dtype));
	return -EDOM;
}

static int put_in_tensor(struct place *pl, const struct part *t, const struct wb_tensor *k)
{
	bool is_exact;
	int a = spare_axis(t);

	if (a >= 0)
		return put_singles(pl, t, (uint32_t)a);
	for (uint32_t i = 0; i < t->n_axis; i++) {
		int rc = 0;

		if (t->n[i] <= SIDE_MAX)
			continue;
		for (uint64_t at = 0; at < t->n[i] && !rc; at += SIDE_MAX)
			rc = put_cut(pl, t, i, at, WB_MIN(at + SIDE_MAX, t->n[i]));
		return rc;
	}
	if (wb_cast_between(k->dtype, pl->a->dtype, &is_exact) < 0) {
		wb__fault(pl->a, "no known cast from %s (tensor %s) to its %s",
			wb_dtype_name(k->dtype), k->name, wb_dtype_name(pl->a->dtype));
		return -EDOM;
	}
	return put_op(pl, t, k);
}

static int put_part(struct place *pl, struct part t)
{
	const struct wb_manifest *m = pl->p->manifest;
	const struct wb_tensor *k;
	struct reach r;
	int a, widest = -1, movers = 0;

	simplify(&t);
	r = reach_of(&t);
	a = odd_axis(&t);
	if (a >= 0)
		return put_singles(pl, &t, (uint32_t)a);
	if (r.g_min < 0 || r.j_min < 0 || (uint64_t)r.g_max >= m->rows)
		return outside(pl, &t, &r);
	k = &m->tensor[tensor_of(m, (uint64_t)r.g_min)];
	if ((uint64_t)r.g_max < k->row_base + k->rows) {
		if ((uint64_t)r.j_max >= k->cols)
			return outside(pl, &t, &r);
		return put_in_tensor(pl, &t, k);
	}
	for (uint32_t i = 0; i < t.n_axis; i++) {
		if (!t.sg[i])
			continue;
		movers++;
		if (widest < 0 || llabs(t.sg[i]) > llabs(t.sg[widest]))
			widest = (int)i;
	}
	return movers == 1 ? put_by_tensor(pl, &t, (uint32_t)widest)
			   : put_singles(pl, &t, (uint32_t)widest);
}

/* Turn the boxes of parameter @number into ops of checkpoint tensors.  Rows of its ids are too
 * large by @g_base, columns by @j_base.  0, -E2BIG above WB__OPS_MAX ops, -ENOMEM, -EDOM when ids
 * lie in no tensor (the fault is written). */
static int put_boxes(struct wb_probe *p, uint32_t number, const struct wb__boxes *b, int64_t g_base,
	int64_t j_base)
{
	struct wb__param *a = &p->param[number];
	struct place pl = {p, a, number};
	const struct wb__geom *geom = &a->geom;
	uint32_t axes = b->n_axis;

	for (size_t i = 0; i < b->n; i++) {
		const int64_t *w = b->w + i * WB__BOX_WORDS(axes);
		struct part t = {.n_axis = axes};
		int rc;

		for (uint32_t k = 0; k < axes; k++) {
			t.n[k] = (uint64_t)w[axes + k];
			t.ds[k] = geom->stride[k];
			t.dst += (uint64_t)(w[k] * geom->stride[k]);
			t.sg[k] = w[2 * axes + 2 + 2 * k];
			t.sj[k] = w[2 * axes + 3 + 2 * k];
		}
		t.g = w[2 * axes] - g_base;
		t.j = w[2 * axes + 1] - j_base;
		rc = put_part(&pl, t);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* By how much a decoded id is too large, since each of its digits is too large by a constant. */
static int64_t base_of(const struct wb_probe *p, enum wb_dtype t, uint32_t n_pass)
{
	unsigned w = wb__code_width(p, t);
	int64_t base = 0;

	for (uint32_t k = 0; k < n_pass && k * w < 62; k++)
		base += wb__code_offset(p, t) << (k * w);
	return base;
}

static int recover_param(struct wb_probe *p, uint32_t number)
{
	struct wb__param *a = &p->param[number];
	/* A row of 0 means no copy.  Rows of copies are raised by so much that no affine run of
	 * copies can pass through 0. */
	int64_t shift = (int64_t)p->manifest->rows + 1;
	struct wb__boxes b = {.max = WB__OPS_MAX};
	struct wb__recs ones = {0};
	int rc = wb__indicator(p, a, &ones);

	if (!rc)
		rc = wb__recs_add(&a->field[0], &ones, shift, 0, SIZE_MAX / 64);
	if (!rc)
		rc = wb__recover(&a->geom, &a->field[0], &a->field[1], &b);
	if (!rc)
		rc = put_boxes(p, number, &b, shift + base_of(p, a->dtype, p->n_row_pass),
			base_of(p, a->dtype, p->n_col_pass));
	if (!rc)
		wb__fold(a);
	if (rc == -E2BIG) {
		wb__fault(a, "record overflow: more than %u separate copies", WB__OPS_MAX);
		rc = 0;
	} else if (rc == -EDOM) {
		rc = 0; /* the fault is written */
	}
	wb__recs_finish(&ones);
	wb__recs_finish(&a->field[0]);
	wb__recs_finish(&a->field[1]);
	wb__boxes_finish(&b);
	a->has_digits = true;
	return rc;
}

static int recover_task(void *ctx, size_t task)
{
	struct wb_probe *p = ctx;
	struct wb__param *a = &p->param[task];

	if (a->state != WB__ACTIVE || a->is_over || a->has_digits || !a->geom.total)
		return 0;
	return recover_param(p, (uint32_t)task);
}

int wb__recover_all(struct wb_probe *p)
{
	return wb__parallel(p->threads, p->n_param, recover_task, p);
}
