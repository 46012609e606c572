/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that every element of a parameter has exactly one source.  Every op and every region is a
 * set of elements {lo + sum of i_k * stride_k}.  Two sets whose intervals from first to last
 * element do not meet are disjoint.  All other sets are split by the largest stride P into
 * quotients and remainders, which are again such sets, with fewer or smaller axes.  Two sets are
 * disjoint when their quotients or their remainders are.
 */
#include "planner/internal.h"

#include "base/base.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AXES_MAX 3
#define EXPAND_MAX (1u << 20) /* elements compared one by one where splitting does not work */
/* Units of work (wb__spend()): for two shapes that are compared; for an element that is listed and
 * sorted. */
#define PAIR_WORK 32
#define ELEM_WORK 64

struct shape {
	uint64_t lo, hi; /* first and last element */
	uint64_t elems;
	struct {
		uint64_t stride, n;
	} axis[AXES_MAX]; /* n >= 2, strides ascending */
	uint32_t n_axis;
	uint32_t what; /* op number, or n_op + region number */
};

static void shape_axis(struct shape *s, uint64_t n, int64_t stride)
{
	uint64_t step = (uint64_t)(stride < 0 ? -stride : stride);
	uint32_t i = s->n_axis;

	if (n < 2)
		return;
	s->elems = wb_mul_u64(s->elems, n, &s->elems) ? s->elems : UINT64_MAX;
	if (stride < 0)
		s->lo -= (n - 1) * step;
	s->hi += (stride < 0 ? 0 : (n - 1) * step);
	for (; i && s->axis[i - 1].stride > step; i--)
		s->axis[i] = s->axis[i - 1];
	s->axis[i].stride = step;
	s->axis[i].n = n;
	s->n_axis++;
}

/* Join each axis that continues the axis inside it with that axis. */
static void shape_fold(struct shape *s)
{
	uint32_t n = 0;

	for (uint32_t i = 1; i < s->n_axis; i++) {
		if (s->axis[i].stride == s->axis[n].stride * s->axis[n].n)
			s->axis[n].n *= s->axis[i].n;
		else
			s->axis[++n] = s->axis[i];
	}
	s->n_axis = s->n_axis ? n + 1 : 0;
}

static struct shape shape_of_op(const struct wb_op *o, uint32_t what)
{
	struct shape s = {.lo = o->dst, .hi = o->dst, .elems = 1, .what = what};

	shape_axis(&s, o->n_row, o->dst_row_stride);
	shape_axis(&s, o->n_col, o->dst_col_stride);
	shape_axis(&s, o->repeat, o->dst_repeat_stride);
	shape_fold(&s);
	return s;
}

static struct shape shape_of_region(const struct wb_region *r, uint32_t what)
{
	struct shape s = {.lo = r->dst, .hi = r->dst, .elems = 1, .what = what};

	shape_axis(&s, r->n_row, (int64_t)r->row_stride);
	shape_axis(&s, r->n_col, 1);
	shape_fold(&s);
	return s;
}

static int by_u64(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static int expand(struct wb__work *w, const struct shape *s, uint64_t **out)
{
	uint64_t *v, n = 1;

	if (wb__spend(w, s->elems * ELEM_WORK) < 0)
		return -E2BIG;
	v = wb_alloc(s->elems * sizeof(*v));
	if (!v)
		return -ENOMEM;
	v[0] = s->lo;
	for (uint32_t a = 0; a < s->n_axis; a++) {
		for (uint64_t i = 1; i < s->axis[a].n; i++)
			for (uint64_t k = 0; k < n; k++)
				v[i * n + k] = v[k] + i * s->axis[a].stride;
		n *= s->axis[a].n;
	}
	qsort(v, n, sizeof(*v), by_u64);
	*out = v;
	return 0;
}

/* Does the shape have each of its elements once?  1 = yes, 0 = no, or undecidable, or -ENOMEM,
 * -E2BIG. */
static int is_simple(struct wb__work *w, const struct shape *s)
{
	uint64_t reach = 0, *v;
	int ok = 1, rc;

	for (uint32_t a = 0; a < s->n_axis; a++) {
		if (s->axis[a].stride <= reach)
			ok = 0;
		reach += (s->axis[a].n - 1) * s->axis[a].stride;
	}
	if (ok || !s->axis[0].stride || s->elems > EXPAND_MAX)
		return ok;
	rc = expand(w, s, &v);
	if (rc < 0)
		return rc;
	ok = 1;
	for (uint64_t i = 1; i < s->elems; i++)
		ok &= v[i] != v[i - 1];
	wb_free(v);
	return ok;
}

/* Split a shape into quotients and remainders by @p.  False: the remainders would wrap round. */
static bool split(const struct shape *s, uint64_t p, struct shape *quot, struct shape *rem)
{
	*quot = (struct shape){.lo = s->lo / p, .hi = s->lo / p, .elems = 1};
	*rem = (struct shape){.lo = s->lo % p, .hi = s->lo % p, .elems = 1};
	for (uint32_t a = 0; a < s->n_axis; a++) {
		uint64_t stride = s->axis[a].stride;

		if (stride % p)
			shape_axis(rem, s->axis[a].n, (int64_t)stride);
		else
			shape_axis(quot, s->axis[a].n, (int64_t)(stride / p));
	}
	if (rem->hi >= p)
		return false;
	shape_fold(quot);
	shape_fold(rem);
	return true;
}

static int apart_by_element(struct wb__work *w, const struct shape *a, const struct shape *b)
{
	uint64_t *x = NULL, *y = NULL, i = 0, k = 0;
	int rc;

	if (a->elems > EXPAND_MAX || b->elems > EXPAND_MAX)
		return 0;
	rc = expand(w, a, &x);
	if (!rc)
		rc = expand(w, b, &y);
	if (!rc)
		rc = 1;
	while (rc == 1 && i < a->elems && k < b->elems) {
		if (x[i] == y[k])
			rc = 0;
		else if (x[i] < y[k])
			i++;
		else
			k++;
	}
	wb_free(x);
	wb_free(y);
	return rc;
}

/* Are two shapes disjoint?  1 = yes, 0 = no, or undecidable, or -ENOMEM, -E2BIG. */
static int is_apart(struct wb__work *w, const struct shape *a, const struct shape *b)
{
	struct shape qa, qb, ra, rb;
	uint64_t p = 1;
	int rc;

	if (a->hi < b->lo || b->hi < a->lo)
		return 1;
	if (a->n_axis <= 1 && b->n_axis <= 1) {
		struct wb__axis x = {a->lo, a->n_axis ? a->axis[0].stride : 1, a->elems};
		struct wb__axis y = {b->lo, b->n_axis ? b->axis[0].stride : 1, b->elems};

		return !wb__axis_common(x, y);
	}
	if (a->n_axis)
		p = a->axis[a->n_axis - 1].stride;
	if (b->n_axis)
		p = WB_MAX(p, b->axis[b->n_axis - 1].stride);
	if (p < 2 || !split(a, p, &qa, &ra) || !split(b, p, &qb, &rb))
		return apart_by_element(w, a, b);
	rc = is_apart(w, &ra, &rb);
	return rc ? rc : is_apart(w, &qa, &qb);
}

static int by_lo(const void *a, const void *b)
{
	const struct shape *x = a, *y = b;

	if (x->lo != y->lo)
		return x->lo < y->lo ? -1 : 1;
	return x->what < y->what ? -1 : x->what > y->what;
}

struct param_shapes {
	struct shape *shape; /* sorted by lo */
	uint32_t *open; /* scratch: earlier shapes whose interval may reach the present one */
	uint32_t n;
};

static void two_sources(struct wb__work *w, const struct wb__layout *l, const struct wb_param *p,
	const struct shape *a, const struct shape *b)
{
	char who[160];

	wb__who(w->in, l->rollout != UINT32_MAX ? l->rollout : l->trainer, who, sizeof(who));
	wb__plan_fault(&w->faults,
		"%s: parameter %.120s: elements %" PRIu64 "-%" PRIu64 " and %" PRIu64 "-%" PRIu64
		" overlap, so some are written twice",
		who, p->name, a->lo, a->hi, b->lo, b->hi);
}

static void too_tangled(struct wb__work *w, const struct wb__layout *l, const struct wb_param *p)
{
	char who[160];

	wb__who(w->in, l->rollout != UINT32_MAX ? l->rollout : l->trainer, who, sizeof(who));
	snprintf(w->limit, sizeof(w->limit),
		"%s: parameter %.120s: too many ops lie across each other", who, p->name);
}

/* Check that the shapes of a parameter are disjoint.  Stops at the first fault, since one for each
 * parameter is enough. */
static int check_apart(struct wb__work *w, const struct wb__layout *l, const struct wb_param *p,
	const struct param_shapes *s)
{
	uint32_t n_open = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		const struct shape *x = &s->shape[i];
		uint32_t kept = 0;
		int rc = wb__spend(w, (uint64_t)n_open * PAIR_WORK);

		if (!rc)
			rc = is_simple(w, x);
		if (rc < 0)
			return rc;
		if (!rc) {
			two_sources(w, l, p, x, x);
			return 0;
		}
		for (uint32_t k = 0; k < n_open; k++) {
			const struct shape *y = &s->shape[s->open[k]];

			if (y->hi < x->lo)
				continue;
			s->open[kept++] = s->open[k];
			rc = is_apart(w, y, x);
			if (rc < 0)
				return rc;
			if (!rc) {
				two_sources(w, l, p, y, x);
				return 0;
			}
		}
		n_open = kept;
		s->open[n_open++] = i;
	}
	return 0;
}

static void check_whole(struct wb__work *w, const struct wb__layout *l, const struct wb_param *p,
	const struct param_shapes *s)
{
	uint64_t want = 1, have = 0;
	char who[160];

	for (uint32_t d = 0; d < p->ndim; d++)
		want = wb_mul_u64(want, p->shape[d], &want) ? want : UINT64_MAX;
	for (uint32_t i = 0; i < s->n; i++)
		have = wb_add_u64(have, s->shape[i].elems, &have) ? have : UINT64_MAX;
	if (have >= want)
		return;
	wb__who(w->in, l->rollout, who, sizeof(who));
	wb__plan_fault(&w->faults,
		"%s: parameter %.120s: %" PRIu64 " of %" PRIu64
		" elements are neither copied nor listed as constant or unwritten",
		who, p->name, want - have, want);
}

static uint32_t param_of(const struct wb_map *map, uint32_t what)
{
	return what < map->n_op ? map->op[what].param : map->region[what - map->n_op].param;
}

int wb__overlap(struct wb__work *w, const struct wb__layout *l)
{
	const struct wb_map *map = l->map;
	uint32_t n = map->n_op + map->n_region, *begin, *open;
	struct shape *shape;
	int rc = 0;

	begin = wb_zalloc((size_t)map->n_param + 2, sizeof(*begin));
	open = wb_zalloc(n, sizeof(*open));
	shape = wb_zalloc(n, sizeof(*shape));
	if (!begin || !open || !shape) {
		rc = -ENOMEM;
		goto free_scratch;
	}
	for (uint32_t i = 0; i < n; i++)
		begin[param_of(map, i) + 2]++;
	for (uint32_t i = 2; i <= map->n_param; i++)
		begin[i] += begin[i - 1];
	for (uint32_t i = 0; i < n; i++)
		shape[begin[param_of(map, i) + 1]++] =
			i < map->n_op ? shape_of_op(&map->op[i], i)
				      : shape_of_region(&map->region[i - map->n_op], i);
	for (uint32_t p = 0; p < map->n_param && !rc; p++) {
		struct param_shapes s = {shape + begin[p], open, begin[p + 1] - begin[p]};

		if (s.n)
			qsort(s.shape, s.n, sizeof(*s.shape), by_lo);
		rc = check_apart(w, l, &map->param[p], &s);
		if (rc == -E2BIG)
			too_tangled(w, l, &map->param[p]);
		if (!rc && l->rollout != UINT32_MAX)
			check_whole(w, l, &map->param[p], &s);
	}
free_scratch:
	wb_free(begin);
	wb_free(open);
	wb_free(shape);
	return rc;
}
