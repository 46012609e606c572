/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "extract/srcmap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Folds ops into loop nests, for the report.  Ops of one parameter with equal extents whose first
 * elements differ by a constant (global row, column, place in the parameter) are one loop; loops
 * with equal extents and constant distance are one loop of loops, and so on.
 */

#define DEPTH_MAX 5

struct loop {
	uint64_t n;
	int64_t row, col, dst;
};

struct nest {
	struct wb_op op; /* the first; its tensor, row, col and dst are not part of the shape */
	int64_t row, col, dst; /* row counted over all tensors */
	struct loop loop[DEPTH_MAX];
	uint32_t depth;
};

#define CMP(x, y)                                                                                  \
	do {                                                                                       \
		if ((x) != (y))                                                                    \
			return (x) < (y) ? -1 : 1;                                                 \
	} while (0)

static int by_shape(const struct nest *a, const struct nest *b)
{
	CMP(a->op.n_row, b->op.n_row);
	CMP(a->op.n_col, b->op.n_col);
	CMP(a->op.row_step, b->op.row_step);
	CMP(a->op.col_step, b->op.col_step);
	CMP(a->op.dst_row_stride, b->op.dst_row_stride);
	CMP(a->op.dst_col_stride, b->op.dst_col_stride);
	CMP(a->op.dst_repeat_stride, b->op.dst_repeat_stride);
	CMP(a->op.repeat, b->op.repeat);
	CMP(a->depth, b->depth);
	for (uint32_t i = 0; i < a->depth; i++) {
		CMP(a->loop[i].n, b->loop[i].n);
		CMP(a->loop[i].row, b->loop[i].row);
		CMP(a->loop[i].col, b->loop[i].col);
		CMP(a->loop[i].dst, b->loop[i].dst);
	}
	return 0;
}

static int by_shape_dst(const void *pa, const void *pb)
{
	const struct nest *a = pa, *b = pb;
	int c = by_shape(a, b);

	if (c)
		return c;
	CMP(a->dst, b->dst);
	CMP(a->row, b->row);
	return 0;
}

static bool is_step(const struct nest *a, const struct nest *b, const struct loop *l)
{
	return b->row - a->row == l->row && b->col - a->col == l->col && b->dst - a->dst == l->dst;
}

/* Fold by one level more; returns the number of nests that are left. */
static size_t fold_once(struct nest *v, size_t n)
{
	size_t kept = 0;

	qsort(v, n, sizeof(*v), by_shape_dst);
	for (size_t i = 0, end; i < n; i = end) {
		struct nest first = v[i];
		struct loop l = {1, 0, 0, 0};

		end = i + 1;
		if (end < n && !by_shape(&v[i], &v[end]) && first.depth < DEPTH_MAX) {
			l = (struct loop){1, v[end].row - first.row, v[end].col - first.col,
				v[end].dst - first.dst};
			while (end < n && !by_shape(&first, &v[end]) &&
				is_step(&v[end - 1], &v[end], &l))
				end++;
			l.n = end - i;
		}
		if (l.n > 1)
			first.loop[first.depth++] = l;
		v[kept++] = first;
	}
	return kept;
}

int64_t wb_srcmap_nests(const struct wb_srcmap *s, uint32_t param)
{
	const struct wb_map *map = s->map;
	size_t n = s->op_first[param + 1] - s->op_first[param], before;
	struct nest *v = wb_zalloc(n, sizeof(*v));

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const struct wb_op *o = &map->op[s->op_order[s->op_first[param] + i]];

		v[i].op = *o;
		v[i].row = (int64_t)(s->manifest->tensor[o->tensor].row_base + o->row);
		v[i].col = (int64_t)o->col;
		v[i].dst = (int64_t)o->dst;
	}
	do {
		before = n;
		n = fold_once(v, n);
	} while (n < before);
	wb_free(v);
	return (int64_t)n;
}
