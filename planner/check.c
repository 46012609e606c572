/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prove a plan again, from the plan and the layouts alone.  That the classes fill all parameters is
 * proved in another way than the planner's: the elements that pairs of boxes have in common are
 * counted.  Routes are played chunk by chunk (check_routes.c).  The code that looks for elements
 * with two sources, and the node bound, are the planner's own.
 */
#include "planner/plan.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct check {
	const struct wb_plan *p;
	const struct wb_manifest *m;
	const struct wb_map *const *layout;
	struct wb_err *err;
	uint32_t *seg; /* segments of primary classes by (tensor, row, col) */
	uint32_t *tensor; /* seg[tensor[t]] .. seg[tensor[t + 1]]: those of tensor t */
	uint32_t n_seg;
	uint32_t *direct; /* by primary class: its direct class, UINT32_MAX = none */
	uint32_t *stamp; /* by layout: members of the class at hand that have it */
	uint32_t *open; /* scratch of n_seg */
	uint8_t *needs; /* by class: the layout at hand needs it */
};

static const char *tensor_name(const struct check *c, const struct wb_segment *s)
{
	return c->m->tensor[s->tensor].name;
}

static int by_place(const void *a, const void *b, void *plan)
{
	const struct wb_plan *p = plan;
	const struct wb_segment *x = &p->segment[*(const uint32_t *)a];
	const struct wb_segment *y = &p->segment[*(const uint32_t *)b];

	if (x->tensor != y->tensor)
		return x->tensor < y->tensor ? -1 : 1;
	if (x->row != y->row)
		return x->row < y->row ? -1 : 1;
	return x->col < y->col ? -1 : x->col > y->col;
}

/* Check that every segment lies in its tensor and has its class's type; index the segments of
 * primary classes by tensor. */
static int index_segments(struct check *c)
{
	const struct wb_plan *p = c->p;

	for (uint32_t i = 0; i < p->n_segment; i++) {
		const struct wb_segment *s = &p->segment[i];
		const struct wb_class *k = &p->cls[s->class_id];
		const struct wb_tensor *t;

		if (s->tensor >= c->m->n)
			return wb_err_set(c->err, WB_EPLAN,
				"class %" PRIu32 " names tensor %" PRIu32 " of %" PRIu32,
				s->class_id, s->tensor, c->m->n);
		t = &c->m->tensor[s->tensor];
		if (t->dtype != (enum wb_dtype)k->dtype ||
			s->row + (uint64_t)(s->n_row - 1) * s->row_step >= t->rows ||
			s->col + (uint64_t)(s->n_col - 1) * s->col_step >= t->cols)
			return wb_err_set(c->err, WB_EPLAN,
				"class %" PRIu32 " leaves tensor %s or has another type",
				s->class_id, t->name);
		if (k->primary == s->class_id)
			c->seg[c->n_seg++] = i;
	}
	if (c->n_seg)
		qsort_r(c->seg, c->n_seg, sizeof(*c->seg), by_place, (void *)(uintptr_t)p);
	for (uint32_t i = 0; i < c->n_seg; i++)
		c->tensor[p->segment[c->seg[i]].tensor + 1]++;
	for (uint32_t t = 0; t < c->m->n; t++)
		c->tensor[t + 1] += c->tensor[t];
	return 0;
}

/* Check that a direct class has the segments of its primary class, and none of its needers. */
static int check_direct(struct check *c, uint32_t id)
{
	const struct wb_plan *p = c->p;
	const struct wb_class *k = &p->cls[id], *k0 = &p->cls[k->primary];

	if (c->direct[k->primary] != UINT32_MAX ||
		k->seg_end - k->seg_begin != k0->seg_end - k0->seg_begin)
		return wb_err_set(c->err, WB_EPLAN,
			"class %" PRIu32 " is not class %" PRIu32 " again", id, k->primary);
	c->direct[k->primary] = id;
	for (uint32_t i = 0; i < k->seg_end - k->seg_begin; i++) {
		struct wb_segment s = p->segment[k->seg_begin + i];

		s.class_id = k->primary;
		if (memcmp(&s, &p->segment[k0->seg_begin + i], sizeof(s)))
			return wb_err_set(c->err, WB_EPLAN,
				"class %" PRIu32 " is not class %" PRIu32 " again", id, k->primary);
	}
	for (uint32_t i = k0->needer_begin; i < k0->needer_end; i++)
		for (uint32_t n = k->needer_begin; n < k->needer_end; n++)
			if (p->member[i] == p->member[n])
				return wb_err_set(c->err, WB_EPLAN,
					"worker %" PRIu32 " gets class %" PRIu32 " twice",
					p->member[i], k->primary);
	return 0;
}

static uint64_t common(const struct wb_segment *s, struct wb__axis rows, struct wb__axis cols)
{
	struct wb__axis c = wb__seg_cols(s);

	/* Most pairs of boxes of a tensor have no columns in common, so the cheap test comes
	 * first. */
	if (c.first > cols.first + (cols.n - 1) * cols.step ||
		cols.first > c.first + (c.n - 1) * c.step)
		return 0;
	return wb__axis_common(wb__seg_rows(s), rows) * wb__axis_common(c, cols);
}

/* Check that no two segments share an element. */
static int check_disjoint(struct check *c)
{
	const struct wb_plan *p = c->p;
	uint32_t n_open = 0;

	for (uint32_t i = 0; i < c->n_seg; i++) {
		const struct wb_segment *s = &p->segment[c->seg[i]];
		uint32_t kept = 0;

		for (uint32_t k = 0; k < n_open; k++) {
			const struct wb_segment *o = &p->segment[c->open[k]];

			if (o->tensor != s->tensor ||
				o->row + (uint64_t)(o->n_row - 1) * o->row_step < s->row)
				continue;
			c->open[kept++] = c->open[k];
			if (common(o, wb__seg_rows(s), wb__seg_cols(s)))
				return wb_err_set(c->err, WB_EPLAN,
					"two segments of tensor %s at rows %" PRIu64 " and %" PRIu64
					" overlap",
					tensor_name(c, s), o->row, s->row);
		}
		n_open = kept;
		c->open[n_open++] = c->seg[i];
	}
	return 0;
}

/* Number of the first op of @tensor, or of a later tensor. */
static uint32_t first_op(const struct wb_map *map, uint32_t tensor)
{
	uint32_t lo = 0, hi = map->n_op;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (map->op[mid].tensor < tensor)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Does one op of the map hold the whole segment?  2: exactly, 1: rounded, 0: no. */
static int has_segment(const struct check *c, const struct wb_map *map, const struct wb_segment *s)
{
	uint64_t want = (uint64_t)s->n_row * s->n_col;
	int best = 0;

	for (uint32_t i = first_op(map, s->tensor); i < map->n_op; i++) {
		const struct wb_op *o = &map->op[i];
		bool is_exact = false;

		if (o->tensor != s->tensor)
			break;
		if (common(s, wb__op_rows(o), wb__op_cols(o)) != want ||
			wb_cast_between(c->m->tensor[s->tensor].dtype, map->param[o->param].dtype,
				&is_exact) < 0)
			continue;
		best = WB_MAX(best, 1 + is_exact);
	}
	return best;
}

/* Check that the layout of every member [begin, end) holds every segment, with at least the quality
 * @want (see has_segment()). */
static int check_members(struct check *c, uint32_t cls, uint32_t begin, uint32_t end, int want)
{
	const struct wb_plan *p = c->p;
	const struct wb_class *k = &p->cls[cls];

	memset(c->stamp, 0, p->n_layout * sizeof(*c->stamp));
	for (uint32_t i = begin; i < end; i++) {
		uint32_t l = p->worker[p->member[i]].layout;

		if (c->stamp[l]++)
			continue;
		for (uint32_t s = k->seg_begin; s < k->seg_end; s++) {
			int have = has_segment(c, c->layout[l], &p->segment[s]);

			if (have < want)
				return wb_err_set(c->err, WB_EPLAN,
					"worker %" PRIu32 " does not have tensor %s row %" PRIu64
					" as class %" PRIu32 " says",
					p->member[i], tensor_name(c, &p->segment[s]),
					p->segment[s].row, cls);
		}
	}
	return 0;
}

/* Check that a class that one rollout worker of a layout needs is needed by all of them, so that
 * check_filled() can look at layouts instead of workers. */
static int check_closed(struct check *c, const uint32_t *n_rollout)
{
	const struct wb_plan *p = c->p;

	for (uint32_t cls = 0; cls < p->n_class; cls++) {
		const struct wb_class *k = &p->cls[cls];

		memset(c->stamp, 0, p->n_layout * sizeof(*c->stamp));
		for (uint32_t i = k->needer_begin; i < k->needer_end; i++)
			c->stamp[p->worker[p->member[i]].layout]++;
		for (uint32_t i = k->needer_begin; i < k->needer_end; i++) {
			uint32_t l = p->worker[p->member[i]].layout;

			if (c->stamp[l] != n_rollout[l])
				return wb_err_set(c->err, WB_EPLAN,
					"class %" PRIu32 " misses a worker with the layout of "
					"worker %" PRIu32,
					cls, p->member[i]);
		}
	}
	return 0;
}

/* Check that each op of a rollout layout is filled by classes that the layout's workers need. */
static int check_filled(struct check *c, uint32_t l)
{
	const struct wb_plan *p = c->p;
	const struct wb_map *map = c->layout[l];

	memset(c->needs, 0, p->n_class);
	for (uint32_t cls = 0; cls < p->n_class; cls++)
		for (uint32_t i = p->cls[cls].needer_begin; i < p->cls[cls].needer_end; i++)
			if (p->worker[p->member[i]].layout == l)
				c->needs[p->cls[cls].primary] = 1;
	for (uint32_t i = 0; i < map->n_op; i++) {
		const struct wb_op *o = &map->op[i];
		uint64_t have = 0;

		for (uint32_t s = c->tensor[o->tensor]; s < c->tensor[o->tensor + 1]; s++) {
			const struct wb_segment *x = &p->segment[c->seg[s]];

			if (c->needs[x->class_id])
				have += common(x, wb__op_rows(o), wb__op_cols(o));
		}
		if (have != (uint64_t)o->n_row * o->n_col)
			return wb_err_set(c->err, WB_EPLAN,
				"parameter %s: %" PRIu64 " of %" PRIu64
				" elements of tensor %s row %" PRIu64 " are in no class",
				map->param[o->param].name, (uint64_t)o->n_row * o->n_col - have,
				(uint64_t)o->n_row * o->n_col, c->m->tensor[o->tensor].name,
				o->row);
	}
	return 0;
}

static int check_coverage(struct check *c)
{
	const struct wb_plan *p = c->p;
	uint32_t *n_rollout = wb_zalloc(p->n_layout, sizeof(*n_rollout));
	int rc = n_rollout ? index_segments(c) : -ENOMEM;

	for (uint32_t i = 0; !rc && i < p->n_worker; i++)
		n_rollout[p->worker[i].layout] += p->worker[i].role == WB_ROLE_ROLLOUT;
	for (uint32_t i = 0; !rc && i < p->n_class; i++) {
		const struct wb_class *k = &p->cls[i];

		if (k->primary != i)
			rc = check_direct(c, i);
		if (!rc)
			rc = check_members(c, i, k->holder_begin, k->holder_end, 1);
		if (!rc)
			rc = check_members(
				c, i, k->needer_begin, k->needer_end, k->is_direct ? 1 : 2);
	}
	if (!rc)
		rc = check_disjoint(c);
	if (!rc)
		rc = check_closed(c, n_rollout);
	for (uint32_t l = 0; !rc && l < p->n_layout; l++)
		if (n_rollout[l])
			rc = check_filled(c, l);
	wb_free(n_rollout);
	return rc;
}

static int check_overlaps(struct check *c)
{
	const struct wb_plan *p = c->p;
	struct wb_plan_input in = {.worker = p->worker, .n_worker = p->n_worker};
	struct wb__work w = {.in = &in};
	int rc = 0;

	for (uint32_t l = 0; l < p->n_layout && !rc; l++) {
		struct wb__layout x = {c->layout[l], UINT32_MAX, UINT32_MAX};

		for (uint32_t i = 0; i < p->n_worker; i++) {
			if (p->worker[i].layout != l)
				continue;
			if (p->worker[i].role == WB_ROLE_TRAINER)
				x.trainer = i;
			else
				x.rollout = i;
		}
		if (x.trainer != UINT32_MAX || x.rollout != UINT32_MAX)
			rc = wb__overlap(&w, &x);
	}
	return rc ? rc : wb__plan_faults_rc(&w.faults, c->err);
}

static int check_sums(struct check *c)
{
	const struct wb_plan *p = c->p;
	uint64_t model = 0, delivered = 0;
	int64_t bound = wb__node_bound(p, NULL);

	if (bound < 0)
		return (int)bound;
	for (uint32_t i = 0; i < p->n_class; i++) {
		const struct wb_class *k = &p->cls[i];

		model += k->primary == i ? k->bytes : 0;
		delivered += k->bytes * (k->needer_end - k->needer_begin);
	}
	if (model != p->model_bytes || delivered != p->delivered_bytes ||
		(uint64_t)bound != p->node_bound_ns)
		return wb_err_set(
			c->err, WB_EPLAN, "the plan's totals are not the sums of its classes");
	return 0;
}

int wb_plan_check(const struct wb_plan *p, const struct wb_manifest *m,
	const struct wb_map *const *layout, struct wb_err *err)
{
	struct check c = {.p = p, .m = m, .layout = layout, .err = err};
	int rc = wb__plan_sane(p, err);

	if (rc < 0)
		return WB_EPLAN;
	if (!wb_digest_eq(p->manifest, m->digest))
		return wb_err_set(err, WB_EPLAN, "the plan was made for another manifest");
	for (uint32_t l = 0; l < p->n_layout; l++)
		if (!wb_digest_eq(p->layout[l], layout[l]->digest))
			return wb_err_set(
				err, WB_EPLAN, "the plan was made for another layout %" PRIu32, l);
	c.seg = wb_zalloc(p->n_segment, sizeof(*c.seg));
	c.open = wb_zalloc(p->n_segment, sizeof(*c.open));
	c.tensor = wb_zalloc((size_t)m->n + 1, sizeof(*c.tensor));
	c.direct = wb_alloc((size_t)p->n_class * sizeof(*c.direct));
	c.stamp = wb_zalloc(p->n_layout, sizeof(*c.stamp));
	c.needs = wb_zalloc(p->n_class, 1);
	if (!c.seg || !c.open || !c.tensor || !c.direct || !c.stamp || !c.needs) {
		rc = wb_err_set(err, -ENOMEM, "checking a plan");
	} else {
		memset(c.direct, 0xff, (size_t)p->n_class * sizeof(*c.direct));
		rc = check_overlaps(&c);
	}
	if (!rc)
		rc = check_coverage(&c);
	if (!rc)
		rc = check_sums(&c);
	if (!rc)
		rc = wb__check_routes(p, err);
	wb_free(c.seg);
	wb_free(c.open);
	wb_free(c.tensor);
	wb_free(c.direct);
	wb_free(c.stamp);
	wb_free(c.needs);
	return rc;
}
