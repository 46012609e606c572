/* SPDX-License-Identifier: Apache-2.0 */
#include "extract/internal.h"

#include <stdlib.h>

/*
 * Makes fewer ops: ops of one tensor that differ only in where they begin, by equal steps in the
 * tensor and in the parameter, become one op with more rows (or columns).  Interleaved rows,
 * reshapes and flat shards come here as many single rows, and become a handful of ops.
 */

static void swap_axes(struct wb_op *o)
{
	struct wb_op t = *o;

	o->row = t.col;
	o->n_row = t.n_col;
	o->row_step = t.col_step;
	o->dst_row_stride = t.dst_col_stride;
	o->col = t.row;
	o->n_col = t.n_row;
	o->col_step = t.row_step;
	o->dst_col_stride = t.dst_row_stride;
}

#define CMP(f)                                                                                     \
	do {                                                                                       \
		if (x->f != y->f)                                                                  \
			return x->f < y->f ? -1 : 1;                                               \
	} while (0)

/* Compare what is equal in ops that may be rows of one op: everything but the rows. */
static int by_group(const struct wb_op *x, const struct wb_op *y)
{
	CMP(tensor);
	CMP(col);
	CMP(n_col);
	CMP(col_step);
	CMP(dst_col_stride);
	CMP(repeat);
	CMP(dst_repeat_stride);
	return 0;
}

static int by_group_dst(const void *a, const void *b)
{
	const struct wb_op *x = a, *y = b;
	int c = by_group(x, y);

	if (c)
		return c;
	CMP(dst);
	CMP(row);
	return 0;
}

/* Rows in the order of the parameter: first row, signed step of the row, first place in the
 * parameter and the step of that. */
struct line {
	int64_t row, step, dst, ds;
	uint64_t n;
};

static struct line line_of(const struct wb_op *o)
{
	struct line l = {
		(int64_t)o->row, o->row_step, (int64_t)o->dst, o->dst_row_stride, o->n_row};

	if (l.n > 1 && l.ds < 0) {
		l.row += (int64_t)(l.n - 1) * l.step;
		l.dst += (int64_t)(l.n - 1) * l.ds;
		l.step = -l.step;
		l.ds = -l.ds;
	}
	return l;
}

static void line_to(const struct line *in, struct wb_op *o)
{
	struct line l = *in;

	if (l.n > 1 && l.step < 0) {
		l.row += (int64_t)(l.n - 1) * l.step;
		l.dst += (int64_t)(l.n - 1) * l.ds;
		l.step = -l.step;
		l.ds = -l.ds;
	}
	o->row = (uint64_t)l.row;
	o->dst = (uint64_t)l.dst;
	o->n_row = (uint32_t)l.n;
	o->row_step = l.n > 1 ? (uint32_t)l.step : 1;
	o->dst_row_stride = l.n > 1 ? l.ds : 0;
}

/* Append @b to @a if they make one line.  @third: the line after @b, or NULL. */
static bool join(struct line *a, const struct line *b, const struct line *third)
{
	int64_t step = a->n > 1 ? a->step : b->n > 1 ? b->step : b->row - a->row;
	int64_t ds = a->n > 1 ? a->ds : b->n > 1 ? b->ds : b->dst - a->dst;

	if (!step || ds < 1 || llabs(step) > UINT32_MAX || a->n + b->n > UINT32_MAX)
		return false;
	if ((b->n > 1 && (b->step != step || b->ds != ds)) ||
		b->row != a->row + (int64_t)a->n * step || b->dst != a->dst + (int64_t)a->n * ds)
		return false;
	/* Two single rows are a line only if they are neighbours, or a third one continues them. */
	if (a->n == 1 && b->n == 1 && llabs(step) != 1 &&
		!(third && third->row == b->row + step && third->dst == b->dst + ds))
		return false;
	a->step = step;
	a->ds = ds;
	a->n += b->n;
	return true;
}

static void fold_rows(struct wb_op *op, size_t *n_op)
{
	size_t kept = 0;

	if (*n_op < 2)
		return;
	qsort(op, *n_op, sizeof(*op), by_group_dst);
	for (size_t i = 0; i < *n_op;) {
		struct wb_op first = op[i];
		struct line l = line_of(&first);

		for (i++; i < *n_op && !by_group(&first, &op[i]); i++) {
			struct line next = line_of(&op[i]), third;
			bool has_third = i + 1 < *n_op && !by_group(&first, &op[i + 1]);

			if (has_third)
				third = line_of(&op[i + 1]);
			if (!join(&l, &next, has_third ? &third : NULL))
				break;
		}
		line_to(&l, &first);
		op[kept++] = first;
	}
	*n_op = kept;
}

void wb__fold(struct wb__param *a)
{
	size_t before;

	do {
		before = a->n_op;
		fold_rows(a->op, &a->n_op);
		for (size_t i = 0; i < a->n_op; i++)
			swap_axes(&a->op[i]);
		fold_rows(a->op, &a->n_op);
		for (size_t i = 0; i < a->n_op; i++)
			swap_axes(&a->op[i]);
	} while (a->n_op < before);
}
