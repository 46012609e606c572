/* SPDX-License-Identifier: Apache-2.0 */
/* Read a whole plan from a packed one: from its head and all of its parts. */
#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/internal.h"
#include "planner/parts_internal.h"

#include <stdlib.h>

/* Find where the parts are: they follow the head and each other, and nothing comes after them. */
static bool place_parts(struct wb_cursor *c, const struct wb__head *h, struct wb_plan_slice *s)
{
	(void)wb_cur_bytes(c, h->end - (uint64_t)(c->p - h->start));
	s[0] = (struct wb_plan_slice){0, h->end, wb_digest_of(h->start, h->end)};
	for (uint32_t d = 0; d < h->count[WB__HEAD_PART]; d++) {
		wb_cur_align(c, h->start, WB__SECTION_ALIGN);
		s[1 + d] = wb__head_entry(h, d);
		s[1 + d].at = (uint64_t)(c->p - h->start);
		(void)wb_cur_bytes(c, s[1 + d].bytes);
	}
	return !c->bad && !wb_cur_left(c);
}

int wb_plan_slices(const void *packed, size_t bytes, struct wb_plan_slice **out, struct wb_err *err)
{
	struct wb_cursor c = wb_cursor(packed, bytes);
	struct wb_plan p = {0};
	struct wb_plan_slice *s;
	struct wb__head h;
	int rc = wb__head_table(&c, &p, &h, err);

	if (rc < 0)
		return rc;
	s = wb_zalloc((size_t)h.count[WB__HEAD_PART] + 1, sizeof(*s));
	if (!s)
		return wb_err_set(err, -ENOMEM, "no memory for the parts of a plan");
	if (!place_parts(&c, &h, s)) {
		wb_free(s);
		return wb__plan_damaged(err, "its length");
	}
	*out = s;
	return (int)h.count[WB__HEAD_PART] + 1;
}

/* All parts of a plan, and which classes have their segments already. */
struct whole {
	struct wb_plan *p;
	const uint8_t *packed;
	struct wb_plan_slice *slice; /* owned */
	struct wb__part *part; /* owned */
	uint32_t n_part;
	uint32_t *n_segment; /* owned: by class; UINT32_MAX = in no part so far, or read */
};

static int open_parts(struct whole *w, struct wb_err *err)
{
	for (uint32_t d = 0; d < w->n_part; d++) {
		const struct wb_plan_slice *s = &w->slice[1 + d];
		struct wb_plan_piece in = {w->packed + s->at, s->bytes};
		int rc;

		if (!wb_digest_eq(s->digest, wb_digest_of(in.data, in.bytes)))
			return wb__plan_damaged(err, "a part");
		rc = wb__part_open(w->p, in, &w->part[d], err);
		if (rc < 0)
			return rc;
		if (w->part[d].domain != d)
			return wb__plan_damaged(err, "the order of its parts");
	}
	return 0;
}

/* Count the segments of each class, and the routes of all parts.  A route between two domains is in
 * two parts, and is counted twice. */
static int count_all(struct whole *w, uint64_t *n_segment, uint64_t *n_route, struct wb_err *err)
{
	*n_segment = *n_route = 0;
	for (uint32_t d = 0; d < w->n_part; d++) {
		struct wb__part x = w->part[d];
		struct wb__own o;

		for (uint32_t i = 0; i < x.count[WB__PART_CLASS]; i++) {
			if (!wb__part_class(&x, w->p, &o))
				return wb__plan_damaged(err, "a class of a part");
			if (w->n_segment[o.cls] == UINT32_MAX)
				*n_segment += w->n_segment[o.cls] = o.n_segment;
		}
		*n_route += x.count[WB__PART_ROUTE];
	}
	return *n_segment > WB__SEGMENTS_MAX ? wb__plan_damaged(err, "the count of its segments")
					     : 0;
}

static void place_classes(struct whole *w)
{
	uint32_t seg = 0;

	for (uint32_t c = 0; c < w->p->n_class; c++) {
		w->p->cls[c].seg_begin = seg;
		seg += w->n_segment[c] == UINT32_MAX ? 0 : w->n_segment[c];
		w->p->cls[c].seg_end = seg;
	}
}

/* Read a part.  A class that is in several parts is read from the first, and a route from the part
 * of its destination.  Copies in other parts are not compared with these. */
static bool read_part(struct whole *w, struct wb__part *x)
{
	struct wb_plan *p = w->p;
	struct wb__run skipped;
	struct wb__own o;

	for (uint32_t i = 0; i < x->count[WB__PART_CLASS]; i++) {
		if (!wb__part_class(x, p, &o))
			return false;
		if (w->n_segment[o.cls] != UINT32_MAX) {
			w->n_segment[o.cls] = UINT32_MAX;
			if (!wb__part_segments(x, o.n_run, o.cls,
				    p->segment + p->cls[o.cls].seg_begin,
				    p->cls[o.cls].seg_end - p->cls[o.cls].seg_begin))
				return false;
			continue;
		}
		for (uint32_t r = 0; r < o.n_run; r++)
			if (!wb__part_run(x, &skipped))
				return false;
	}
	for (uint32_t i = 0; i < x->count[WB__PART_ROUTE]; i++) {
		struct wb_route *r = &p->route[p->n_route];

		wb__routes_get(&x->at[WB__PART_ROUTE], r, 1);
		p->n_route += r->dst < p->n_worker && p->worker[r->dst].domain == x->domain;
	}
	return !x->at[WB__PART_ROUTE].bad && !x->count[WB__PART_RUN] && !x->count[WB__PART_LEVEL];
}

static int read_parts(struct whole *w, struct wb_err *err)
{
	struct wb_plan *p = w->p;

	p->n_route = 0;
	for (uint32_t d = 0; d < w->n_part; d++)
		if (!read_part(w, &w->part[d]))
			return wb__plan_damaged(err, "a part");
	if (p->n_route)
		qsort(p->route, p->n_route, sizeof(*p->route), wb__route_order);
	return wb__plan_sane(p, err);
}

static int unpack_all(struct whole *w, size_t bytes, struct wb_err *err)
{
	struct wb_cursor c = wb_cursor(w->packed, bytes);
	struct wb_digest named;
	uint64_t n_segment, n_route;
	struct wb__head h;
	int rc = wb__head_table(&c, w->p, &h, err);

	if (!rc)
		rc = wb__head_sections(&c, w->p, &h, err);
	if (!rc)
		rc = wb_plan_slices(w->packed, bytes, &w->slice, err);
	if (rc < 0)
		return rc;
	w->n_part = (uint32_t)rc - 1;
	w->part = wb_zalloc(w->n_part, sizeof(*w->part));
	w->n_segment = wb_alloc((size_t)w->p->n_class * sizeof(*w->n_segment));
	if (!w->part || !w->n_segment)
		return wb_err_set(err, -ENOMEM, "no memory for the parts of a plan");
	for (uint32_t i = 0; i < w->p->n_class; i++)
		w->n_segment[i] = UINT32_MAX;
	rc = open_parts(w, err);
	if (!rc)
		rc = count_all(w, &n_segment, &n_route, err);
	if (!rc)
		rc = wb__body_make(w->p, n_segment, n_route, err);
	if (rc < 0)
		return rc;
	place_classes(w);
	rc = read_parts(w, err);
	named = w->p->digest;
	if (!rc)
		rc = wb__plan_name(w->p);
	if (!rc && !wb_digest_eq(named, w->p->digest))
		rc = wb_err_set(err, -EBADMSG, "plan: it is not the one that its head names");
	return rc;
}

int wb__plan_unpack_all(const void *packed, size_t bytes, struct wb_plan **out, struct wb_err *err)
{
	struct whole w = {.p = wb_zalloc(1, sizeof(*w.p)), .packed = packed};
	int rc = w.p ? unpack_all(&w, bytes, err) : wb_err_set(err, -ENOMEM, "plan");

	wb_free(w.slice);
	wb_free(w.part);
	wb_free(w.n_segment);
	if (rc < 0)
		wb_plan_destroy(w.p);
	else
		*out = w.p;
	return rc;
}
