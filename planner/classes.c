/* SPDX-License-Identifier: Apache-2.0 */
/* Make classes over workers from segments over sets of layouts. */
#include "planner/internal.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CLASSES_MAX (1u << 24)
#define MEMBERS_MAX (1u << 28)

/* The workers of one role: those of layout l are worker[begin[l]] .. worker[begin[l + 1]],
 * ascending. */
struct roll {
	uint32_t *worker, *begin;
};

/* Where the workers of a set of layouts lie in plan->member, once they are listed there.  A set has
 * one list for each role. */
struct placed {
	uint32_t begin, end;
	bool is_done;
};

struct classing {
	struct wb__work *w;
	struct roll roll[2]; /* trainers, rollouts */
	struct placed *placed[2];
};

static int make_roll(const struct wb_plan_input *in, enum wb_role role, struct roll *out)
{
	out->begin = wb_zalloc((size_t)in->n_layout + 2, sizeof(*out->begin));
	out->worker = wb_zalloc(in->n_worker, sizeof(*out->worker));
	if (!out->begin || !out->worker)
		return -ENOMEM;
	for (uint32_t i = 0; i < in->n_worker; i++)
		if (in->worker[i].role == role)
			out->begin[in->worker[i].layout + 2]++;
	for (uint32_t l = 2; l < in->n_layout + 2; l++)
		out->begin[l] += out->begin[l - 1];
	for (uint32_t i = 0; i < in->n_worker; i++)
		if (in->worker[i].role == role)
			out->worker[out->begin[in->worker[i].layout + 1]++] = i;
	return 0;
}

static int by_u32(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Find the list of the workers of set @set in role @r (0 trainers, 1 rollouts).  The list is made
 * when a set is first asked for. */
static int place(struct classing *c, int r, uint32_t set, struct placed *out)
{
	const struct wb__sets *s = &c->w->sets;
	struct wb_plan *p = c->w->plan;
	struct placed *at = &c->placed[r][set];
	const struct roll *roll = &c->roll[r];

	if (!at->is_done) {
		at->begin = p->n_member;
		for (uint32_t i = s->begin[set]; i < s->begin[set + 1]; i++) {
			uint32_t l = s->val[i], n = roll->begin[l + 1] - roll->begin[l];
			int rc = wb_grow(&p->member, &c->w->cap_member, (size_t)p->n_member + n,
				MEMBERS_MAX, sizeof(*p->member));

			if (rc < 0)
				return rc;
			memcpy(p->member + p->n_member, roll->worker + roll->begin[l],
				n * sizeof(*p->member));
			p->n_member += n;
		}
		at->end = p->n_member;
		if (at->end > at->begin)
			qsort(p->member + at->begin, at->end - at->begin, sizeof(*p->member),
				by_u32);
		at->is_done = true;
	}
	*out = *at;
	return 0;
}

static int add_class(struct classing *c, const struct wb__combo *k, bool is_direct, uint32_t *id)
{
	struct wb_plan *p = c->w->plan;
	struct wb_class *cls = &p->cls[p->n_class];
	struct placed held, need;
	int rc = place(c, 0, k->held, &held);

	if (!rc)
		rc = place(c, 1, is_direct ? k->lossy : k->exact, &need);
	if (rc < 0)
		return rc;
	memset(cls, 0, sizeof(*cls));
	cls->holder_begin = held.begin;
	cls->holder_end = held.end;
	cls->needer_begin = need.begin;
	cls->needer_end = need.end;
	cls->dtype = k->dtype;
	cls->is_direct = is_direct;
	*id = p->n_class++;
	cls->primary = *id;
	return 0;
}

/* Number classes in the order of their first segments.  A class comes before the direct class that
 * has the same segments. */
static int number_classes(struct classing *c)
{
	struct wb__work *w = c->w;

	for (size_t i = 0; i < w->n_seg; i++) {
		struct wb__combo *k = &w->combo[w->seg[i].class_id];
		int rc = 0;

		if (k->cls_exact != UINT32_MAX || k->cls_lossy != UINT32_MAX)
			continue;
		if (k->exact)
			rc = add_class(c, k, false, &k->cls_exact);
		if (!rc && k->lossy)
			rc = add_class(c, k, true, &k->cls_lossy);
		if (rc < 0)
			return rc;
		if (k->exact && k->lossy)
			w->plan->cls[k->cls_lossy].primary = k->cls_exact;
	}
	return 0;
}

static void put_segment(struct wb_plan *p, uint32_t *fill, uint32_t cls, struct wb_segment s)
{
	struct wb_class *k = &p->cls[cls];

	s.class_id = cls;
	s.wire_off = k->bytes;
	k->bytes += (uint64_t)s.n_row * s.n_col * wb_dtype_bytes((enum wb_dtype)k->dtype);
	p->segment[fill[cls]++] = s;
}

/* Put the segments of each class side by side into the plan, in their order. */
static int place_segments(struct wb__work *w)
{
	struct wb_plan *p = w->plan;
	uint32_t *fill = wb_zalloc(p->n_class, sizeof(*fill));
	uint64_t n = 0;

	if (!fill)
		return -ENOMEM;
	for (size_t i = 0; i < w->n_seg; i++) {
		const struct wb__combo *k = &w->combo[w->seg[i].class_id];

		if (k->cls_exact != UINT32_MAX)
			p->cls[k->cls_exact].seg_end++;
		if (k->cls_lossy != UINT32_MAX)
			p->cls[k->cls_lossy].seg_end++;
	}
	for (uint32_t c = 0; c < p->n_class; c++) {
		p->cls[c].seg_begin = fill[c] = (uint32_t)n;
		n += p->cls[c].seg_end;
		p->cls[c].seg_end = (uint32_t)n;
	}
	if (n > UINT32_MAX) {
		wb_free(fill);
		return -E2BIG;
	}
	p->n_segment = (uint32_t)n;
	p->segment = wb_zalloc(n, sizeof(*p->segment));
	for (size_t i = 0; p->segment && i < w->n_seg; i++) {
		const struct wb__combo *k = &w->combo[w->seg[i].class_id];

		if (k->cls_exact != UINT32_MAX)
			put_segment(p, fill, k->cls_exact, w->seg[i]);
		if (k->cls_lossy != UINT32_MAX)
			put_segment(p, fill, k->cls_lossy, w->seg[i]);
	}
	wb_free(fill);
	return p->segment ? 0 : -ENOMEM;
}

int wb__classes(struct wb__work *w)
{
	struct classing c = {.w = w};
	int rc = -ENOMEM;

	if (w->n_combo > CLASSES_MAX / 2)
		return -E2BIG;
	for (uint32_t i = 0; i < w->n_combo; i++)
		w->combo[i].cls_exact = w->combo[i].cls_lossy = UINT32_MAX;
	w->plan->cls = wb_zalloc(2 * (size_t)w->n_combo, sizeof(*w->plan->cls));
	c.placed[0] = wb_zalloc(w->sets.n, sizeof(*c.placed[0]));
	c.placed[1] = wb_zalloc(w->sets.n, sizeof(*c.placed[1]));
	if (w->plan->cls && c.placed[0] && c.placed[1])
		rc = make_roll(w->in, WB_ROLE_TRAINER, &c.roll[0]);
	if (!rc)
		rc = make_roll(w->in, WB_ROLE_ROLLOUT, &c.roll[1]);
	if (!rc)
		rc = number_classes(&c);
	if (!rc)
		rc = place_segments(w);
	for (int r = 0; r < 2; r++) {
		wb_free(c.placed[r]);
		wb_free(c.roll[r].worker);
		wb_free(c.roll[r].begin);
	}
	return rc;
}
