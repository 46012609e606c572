/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/mem.h"
#include "extract/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Recovers a field from its sparse second differences, as boxes on which it is affine.
 *
 * Along one axis, at every step, S += difference and E += S, so E is the value, S its slope, and
 * between two events (nonzero differences) E moves by S.  The vectors of values (E, S) at all
 * active places are again a sparse second difference along the next axis.  The same sweep is done
 * on them, with vectors twice as long, and at the last axis a vector holds the coefficients of a
 * multilinear function on a box.  Boxes with a cross term are cut until none is left.  A jump makes
 * a box of one element before the slope behind it is seen, so boxes that continue each other are
 * merged at the end.
 */

/* Active places and their vectors of @len words. */
struct lane {
	uint64_t *at; /* owned */
	int64_t *v; /* owned */
	size_t n, cap;
	uint32_t len;
};

struct sweep {
	const struct wb__geom *g;
	struct lane state[WB__AXES_MAX], next[WB__AXES_MAX];
	uint64_t lo[WB__AXES_MAX], n[WB__AXES_MAX];
	struct wb__boxes *out;
};

#define COEFS_MAX (2u << WB__AXES_MAX)

static int lane_room(struct lane *l, size_t n)
{
	size_t cap = l->cap;
	int rc = wb_grow(&l->at, &cap, n, SIZE_MAX / 64, sizeof(*l->at));

	if (rc < 0)
		return rc;
	if (cap != l->cap) {
		int64_t *v = wb_realloc_array(l->v, cap * l->len, sizeof(*v));

		if (!v)
			return -ENOMEM;
		l->v = v;
		l->cap = cap;
	}
	return 0;
}

static bool is_zero(const int64_t *v, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (v[i])
			return false;
	return true;
}

static int push_box(struct sweep *s, const uint64_t *lo, const uint64_t *n, const int64_t *coef)
{
	uint32_t axes = s->g->n_axis;
	size_t words = WB__BOX_WORDS(axes);
	struct wb__boxes *o = s->out;
	size_t cap = o->cap;
	int64_t *w;
	int rc = wb_grow(&o->w, &cap, o->n + 1, o->max, words * sizeof(*w));

	if (rc < 0)
		return rc;
	o->cap = cap;
	w = o->w + o->n++ * words;
	for (uint32_t a = 0; a < axes; a++) {
		w[a] = (int64_t)lo[a];
		w[axes + a] = (int64_t)n[a];
	}
	for (uint32_t c = 0; c < 2; c++) {
		w[2 * axes + c] = coef[c];
		for (uint32_t a = 0; a < axes; a++)
			w[2 * axes + 2 + 2 * a + c] = n[a] > 1 ? coef[c + (2u << a)] : 0;
	}
	return 0;
}

/* Put a box with its multilinear coefficients: coef[c + 2 * mask], c = 0 for the row and 1 for the
 * column, bit a of mask = slope of axis a. */
static int leaf(struct sweep *s, const uint64_t *lo_in, const uint64_t *n_in, const int64_t *coef)
{
	uint32_t axes = s->g->n_axis, one = 0, cross = 0;
	uint64_t lo[WB__AXES_MAX], n[WB__AXES_MAX];
	int64_t cut[COEFS_MAX];
	bool is_copy = false;
	uint32_t a;
	int rc = 0;

	for (a = 0; a < axes; a++)
		one |= n_in[a] == 1 ? 1u << a : 0;
	for (uint32_t mask = 0; mask < 1u << axes; mask++) {
		if (mask & one)
			continue;
		is_copy |= coef[2 * mask] != 0;
		if (!cross && (mask & (mask - 1)) && (coef[2 * mask] || coef[2 * mask + 1]))
			cross = mask;
	}
	if (!is_copy)
		return 0;
	if (!cross)
		return push_box(s, lo_in, n_in, coef);
	a = (uint32_t)__builtin_ctz(cross);
	memcpy(lo, lo_in, sizeof(lo));
	memcpy(n, n_in, sizeof(n));
	n[a] = 1;
	for (uint64_t i = 0; i < n_in[a] && !rc; i++) {
		for (uint32_t mask = 0; mask < 1u << axes; mask++)
			for (uint32_t c = 0; c < 2; c++)
				cut[2 * mask + c] =
					mask >> a & 1
						? 0
						: coef[2 * mask + c] +
							  (int64_t)i *
								  coef[2 * (mask | 1u << a) + c];
		lo[a] = lo_in[a] + i;
		rc = leaf(s, lo, n, cut);
	}
	return rc;
}

static int sweep_last(struct sweep *s, const struct lane *in)
{
	uint32_t axis = s->g->n_axis - 1, len = in->len;
	int64_t v[COEFS_MAX]; /* E, then S */

	memset(v, 0, 2 * len * sizeof(*v));
	for (size_t i = 0; i < in->n; i++) {
		uint64_t end = i + 1 < in->n ? in->at[i + 1] : s->g->n[axis];
		int rc;

		for (uint32_t k = 0; k < len; k++) {
			v[len + k] += in->v[i * len + k];
			v[k] += v[len + k];
		}
		s->lo[axis] = in->at[i];
		s->n[axis] = end - in->at[i];
		rc = leaf(s, s->lo, s->n, v);
		if (rc < 0)
			return rc;
		for (uint32_t k = 0; k < len; k++)
			v[k] += v[len + k] * (int64_t)(s->n[axis] - 1);
	}
	return 0;
}

/* Do one step at every active place, and add the events of this row.  The result is in
 * next[axis]. */
static int step(struct sweep *s, uint32_t axis, const struct lane *in, size_t from, size_t to,
	uint64_t inner)
{
	struct lane *was = &s->state[axis], *is = &s->next[axis];
	uint32_t len = in->len;
	size_t i = 0;
	int rc = lane_room(is, was->n + (to - from));

	if (rc < 0)
		return rc;
	is->n = 0;
	while (i < was->n || from < to) {
		int64_t *v = is->v + is->n * 2 * len;
		uint64_t e = from < to ? in->at[from] % inner : UINT64_MAX;
		uint64_t w = i < was->n ? was->at[i] : UINT64_MAX;

		if (w <= e)
			memcpy(v, was->v + i++ * 2 * len, 2 * len * sizeof(*v));
		else
			memset(v, 0, 2 * len * sizeof(*v));
		for (uint32_t k = 0; k < len; k++) {
			if (e <= w)
				v[len + k] += in->v[from * len + k];
			v[k] += v[len + k];
		}
		from += e <= w;
		is->at[is->n] = WB_MIN(e, w);
		is->n += !is_zero(v, 2 * len);
	}
	return 0;
}

static int sweep_axis(struct sweep *s, uint32_t axis, const struct lane *in)
{
	uint64_t inner = 1;
	uint32_t len = in->len;

	if (axis + 1 == s->g->n_axis)
		return sweep_last(s, in);
	for (uint32_t a = axis + 1; a < s->g->n_axis; a++)
		inner *= s->g->n[a];
	s->state[axis].n = 0;
	for (size_t i = 0, end; i < in->n; i = end) {
		uint64_t row = in->at[i] / inner, row_end;
		struct lane swap;
		int rc;

		for (end = i; end < in->n && in->at[end] / inner == row; end++)
			;
		row_end = end < in->n ? in->at[end] / inner : s->g->n[axis];
		rc = step(s, axis, in, i, end, inner);
		if (rc < 0)
			return rc;
		swap = s->state[axis];
		s->state[axis] = s->next[axis];
		s->next[axis] = swap;
		s->lo[axis] = row;
		s->n[axis] = row_end - row;
		rc = sweep_axis(s, axis + 1, &s->state[axis]);
		if (rc < 0)
			return rc;
		for (size_t k = 0; k < s->state[axis].n; k++)
			for (uint32_t c = 0; c < len; c++)
				s->state[axis].v[(2 * k) * len + c] +=
					s->state[axis].v[(2 * k + 1) * len + c] *
					(int64_t)(row_end - row - 1);
	}
	return 0;
}

struct order {
	uint32_t axes, axis;
};

static int by_line(const void *pa, const void *pb, void *arg)
{
	const int64_t *a = pa, *b = pb;
	const struct order *o = arg;

	for (uint32_t k = 0; k < 2 * o->axes; k++) {
		if (k % o->axes == o->axis || a[k] == b[k])
			continue;
		return a[k] < b[k] ? -1 : 1;
	}
	return a[o->axis] < b[o->axis] ? -1 : a[o->axis] > b[o->axis];
}

static bool is_nice(int64_t g, int64_t j)
{
	return (g == 0 || g == 1) && (j == 0 || j == 1) && g + j <= 1;
}

/* Append @b to @a if it continues @a along the axis. */
static bool join(int64_t *a, const int64_t *b, uint32_t axes, uint32_t axis)
{
	int64_t *va = a + 2 * axes, *sa = va + 2 + 2 * axis;
	const int64_t *vb = b + 2 * axes, *sb = vb + 2 + 2 * axis;
	int64_t na = a[axes + axis], nb = b[axes + axis], slope[2];

	for (uint32_t k = 0; k < axes; k++) {
		if (k == axis)
			continue;
		if (a[k] != b[k] || a[axes + k] != b[axes + k] || va[2 + 2 * k] != vb[2 + 2 * k] ||
			va[3 + 2 * k] != vb[3 + 2 * k])
			return false;
	}
	if (a[axis] + na != b[axis])
		return false;
	for (uint32_t c = 0; c < 2; c++) {
		slope[c] = na > 1 ? sa[c] : nb > 1 ? sb[c] : vb[c] - va[c];
		if (vb[c] != va[c] + na * slope[c] || (nb > 1 && sb[c] != slope[c]))
			return false;
	}
	/* Two boxes of length 1 along the axis do not prove a slope: take only the likely ones. */
	if (na == 1 && nb == 1 && !is_nice(slope[0], slope[1]))
		return false;
	a[axes + axis] += nb;
	sa[0] = slope[0];
	sa[1] = slope[1];
	return true;
}

static void merge(struct wb__boxes *b, uint32_t axis)
{
	size_t words = WB__BOX_WORDS(b->n_axis), kept = 0;
	struct order o = {b->n_axis, axis};

	if (b->n < 2)
		return;
	qsort_r(b->w, b->n, words * sizeof(*b->w), by_line, &o);
	for (size_t i = 1; i < b->n; i++) {
		if (join(b->w + kept * words, b->w + i * words, b->n_axis, axis))
			continue;
		kept++;
		if (kept != i)
			memcpy(b->w + kept * words, b->w + i * words, words * sizeof(*b->w));
	}
	b->n = kept + 1;
}

void wb__boxes_finish(struct wb__boxes *b)
{
	wb_free(b->w);
	*b = (struct wb__boxes){0};
}

static int pair(struct lane *l, const struct wb__recs *g, const struct wb__recs *j)
{
	size_t i = 0, k = 0;
	int rc = lane_room(l, g->n + j->n);

	if (rc < 0)
		return rc;
	while (i < g->n || k < j->n) {
		uint64_t a = i < g->n ? g->r[i].index : UINT64_MAX;
		uint64_t b = k < j->n ? j->r[k].index : UINT64_MAX;

		l->at[l->n] = WB_MIN(a, b);
		l->v[2 * l->n] = a <= b ? g->r[i++].value : 0;
		l->v[2 * l->n + 1] = b <= a ? j->r[k++].value : 0;
		l->n++;
	}
	return 0;
}

int wb__recover(const struct wb__geom *geom, const struct wb__recs *g, const struct wb__recs *j,
	struct wb__boxes *out)
{
	struct sweep s = {.g = geom, .out = out};
	struct lane all = {.len = 2};
	int rc = pair(&all, g, j);

	out->n_axis = geom->n_axis;
	for (uint32_t a = 0; a < geom->n_axis; a++)
		s.state[a].len = s.next[a].len = 4u << a;
	if (!rc)
		rc = sweep_axis(&s, 0, &all);
	for (uint32_t a = geom->n_axis; a-- > 0 && !rc;)
		merge(out, a);
	for (uint32_t a = 0; a < geom->n_axis; a++) {
		wb_free(s.state[a].at);
		wb_free(s.state[a].v);
		wb_free(s.next[a].at);
		wb_free(s.next[a].v);
	}
	wb_free(all.at);
	wb_free(all.v);
	return rc;
}
