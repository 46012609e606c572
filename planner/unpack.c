/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a plan's head and parts: what an agent has of a plan, or all of it. */
#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/internal.h"
#include "planner/parts_internal.h"
#include "planner/runs.h"

#include <inttypes.h>
#include <stdlib.h>

/* A head that was read: where the parts' entries lie. */
struct head {
	const uint8_t *start;
	uint32_t count[WB__HEAD_SECTIONS];
	uint64_t end; /* of the head */
};

/* A part whose header was read: cursors at its sections. */
struct part {
	uint32_t domain;
	uint32_t count[WB__PART_SECTIONS];
	struct wb_cursor at[WB__PART_SECTIONS];
	uint64_t n_segment;
	uint32_t next_class, next_run;
};

static int damaged(struct wb_err *err, const char *what)
{
	return wb_err_set(err, -EBADMSG, "plan: %s is damaged", what);
}

/* ---- the head ---- */

static int read_head_table(
	struct wb_cursor *c, struct wb_plan *p, struct head *h, struct wb_err *err)
{
	size_t whole = wb_cur_left(c);
	uint32_t magic, version;

	h->start = c->p;
	magic = wb_cur_u32(c);
	version = wb_cur_u32(c);
	p->digest.hi = wb_cur_u64(c);
	p->digest.lo = wb_cur_u64(c);
	p->manifest.hi = wb_cur_u64(c);
	p->manifest.lo = wb_cur_u64(c);
	p->chunk_bytes = wb_cur_u32(c);
	p->n_chunk = wb_cur_u32(c);
	wb__sums_get(c, p);
	if (c->bad || magic != WB__HEAD_MAGIC || version != WB__PARTS_VERSION)
		return wb_err_set(
			err, -EBADMSG, "not the head of a plan of format %d", WB__PARTS_VERSION);
	if (!wb__table_get(c, wb__head_section, h->count, WB__HEAD_SECTIONS, WB__HEAD_BYTES, whole,
		    &h->end))
		return damaged(err, "the head's table");
	return 0;
}

static void read_classes(struct wb_cursor *c, struct wb_plan *p)
{
	for (uint32_t i = 0; i < p->n_class; i++) {
		struct wb_class *k = &p->cls[i];

		k->holder_begin = wb_cur_u32(c);
		k->holder_end = wb_cur_u32(c);
		k->needer_begin = wb_cur_u32(c);
		k->needer_end = wb_cur_u32(c);
		k->dtype = wb_cur_u32(c);
		k->n_chunk = wb_cur_u32(c);
		k->bytes = wb_cur_u64(c);
		k->chunk_base = wb_cur_u32(c);
		k->primary = wb_cur_u32(c);
		k->is_direct = wb_cur_u32(c);
		c->bad |= wb_cur_u32(c) != 0;
	}
}

/* What a plan takes with @n_segment and @n_route; its head's arrays are counted. */
static uint64_t memory_of(const struct head *h, uint64_t n_segment, uint64_t n_route)
{
	return sizeof(struct wb_plan) +
	       h->count[WB__HEAD_WORKER] * (uint64_t)sizeof(struct wb_plan_worker) +
	       h->count[WB__HEAD_LAYOUT] * (uint64_t)sizeof(struct wb_digest) +
	       h->count[WB__HEAD_CLASS] * (uint64_t)sizeof(struct wb_class) +
	       h->count[WB__HEAD_MEMBER] * (uint64_t)sizeof(uint32_t) +
	       n_segment * sizeof(struct wb_segment) + n_route * sizeof(struct wb_route);
}

static int make_head_arrays(struct wb_plan *p, const struct head *h, struct wb_err *err)
{
	p->n_worker = h->count[WB__HEAD_WORKER];
	p->n_layout = h->count[WB__HEAD_LAYOUT];
	p->n_class = h->count[WB__HEAD_CLASS];
	p->n_member = h->count[WB__HEAD_MEMBER];
	p->worker = wb_zalloc(p->n_worker, sizeof(*p->worker));
	p->layout = wb_zalloc(p->n_layout, sizeof(*p->layout));
	p->cls = wb_zalloc(p->n_class, sizeof(*p->cls));
	p->member = wb_zalloc(p->n_member, sizeof(*p->member));
	if (!p->worker || !p->layout || !p->cls || !p->member)
		return wb_err_set(err, -ENOMEM, "no memory for the head of a plan");
	return 0;
}

static int make_arrays(struct wb_plan *p, uint64_t n_segment, uint64_t n_route, struct wb_err *err)
{
	if (n_segment > UINT32_MAX || n_route > UINT32_MAX)
		return damaged(err, "a count");
	p->n_segment = (uint32_t)n_segment;
	p->n_route = (uint32_t)n_route;
	p->segment = wb_zalloc(p->n_segment, sizeof(*p->segment));
	p->route = wb_zalloc(p->n_route, sizeof(*p->route));
	if (!p->segment || !p->route)
		return wb_err_set(err, -ENOMEM,
			"no memory for %" PRIu64 " segments and %" PRIu64 " routes of a plan",
			n_segment, n_route);
	return 0;
}

static int read_head_sections(
	struct wb_cursor *c, struct wb_plan *p, const struct head *h, struct wb_err *err)
{
	uint32_t n_domain = 0;
	int rc = make_head_arrays(p, h, err);

	if (rc < 0)
		return rc;
	wb_cur_align(c, h->start, WB__SECTION_ALIGN);
	wb__workers_get(c, p);
	wb_cur_align(c, h->start, WB__SECTION_ALIGN);
	wb__layouts_get(c, p);
	wb_cur_align(c, h->start, WB__SECTION_ALIGN);
	read_classes(c, p);
	wb_cur_align(c, h->start, WB__SECTION_ALIGN);
	wb__members_get(c, p);
	wb_cur_align(c, h->start, WB__SECTION_ALIGN);
	for (uint32_t i = 0; i < p->n_worker; i++)
		n_domain = WB_MAX(n_domain, p->worker[i].domain + 1);
	if (c->bad || n_domain != h->count[WB__HEAD_PART])
		return damaged(err, "its head");
	return 0;
}

/* Entry of a domain's part.  @h was read from a piece that has them all. */
static struct wb_plan_slice entry_of(const struct head *h, uint32_t domain)
{
	const uint8_t *entries =
		h->start + h->end - (uint64_t)h->count[WB__HEAD_PART] * WB__HEAD_PART_BYTES;
	struct wb_cursor c =
		wb_cursor(entries + (uint64_t)domain * WB__HEAD_PART_BYTES, WB__HEAD_PART_BYTES);
	struct wb_plan_slice s = {.bytes = wb_cur_u64(&c)};

	s.digest.hi = wb_cur_u64(&c);
	s.digest.lo = wb_cur_u64(&c);
	return s;
}

/* ---- parts ---- */

static int count_segments(struct part *x, struct wb_err *err)
{
	struct wb_cursor c = x->at[WB__PART_CLASS];

	for (uint32_t i = 0; i < x->count[WB__PART_CLASS]; i++) {
		(void)wb_cur_bytes(&c, 12);
		x->n_segment += wb_cur_u32(&c);
	}
	return x->n_segment > WB__SEGMENTS_MAX ? damaged(err, "the count of segments of a part")
					       : 0;
}

static int open_part(
	const struct wb_plan *p, struct wb_plan_piece in, struct part *x, struct wb_err *err)
{
	struct wb_cursor c = wb_cursor(in.data, in.bytes);
	const uint8_t *start = c.p;
	uint32_t magic = wb_cur_u32(&c), version = wb_cur_u32(&c);
	struct wb_digest of = {.hi = wb_cur_u64(&c)};
	uint64_t end = 0;

	of.lo = wb_cur_u64(&c);
	*x = (struct part){.domain = wb_cur_u32(&c)};
	c.bad |= wb_cur_u32(&c) != 0;
	if (c.bad || magic != WB__PART_MAGIC || version != WB__PARTS_VERSION)
		return wb_err_set(
			err, -EBADMSG, "not a part of a plan of format %d", WB__PARTS_VERSION);
	if (!wb_digest_eq(of, p->digest))
		return wb_err_set(err, -EBADMSG, "a part of another plan than the head's");
	if (!wb__table_get(&c, wb__part_section, x->count, WB__PART_SECTIONS, WB__PART_BYTES,
		    in.bytes, &end) ||
		end != in.bytes)
		return damaged(err, "a part's table");
	for (int s = 0; s < WB__PART_SECTIONS; s++) {
		wb_cur_align(&c, start, WB__SECTION_ALIGN);
		x->at[s] = c;
		(void)wb_cur_bytes(&c, (size_t)x->count[s] * wb__part_section[s].bytes);
	}
	if (c.bad)
		return damaged(err, "a part");
	return count_segments(x, err);
}

/* The next run, with its levels. */
static bool read_run(struct part *x, struct wb__run *r)
{
	struct wb_cursor *c = &x->at[WB__PART_RUN], *levels = &x->at[WB__PART_LEVEL];

	*r = (struct wb__run){.first.tensor = wb_cur_u32(c)};
	r->first.n_row = wb_cur_u32(c);
	r->first.n_col = wb_cur_u32(c);
	r->first.row_step = wb_cur_u32(c);
	r->first.col_step = wb_cur_u32(c);
	r->n_level = wb_cur_u32(c);
	r->first.row = wb_cur_u64(c);
	r->first.col = wb_cur_u64(c);
	r->first.wire_off = wb_cur_u64(c);
	if (c->bad || r->n_level > WB__RUN_LEVELS || r->n_level > x->count[WB__PART_LEVEL])
		return false;
	x->count[WB__PART_LEVEL] -= r->n_level;
	x->count[WB__PART_RUN]--;
	for (uint32_t k = 0; k < r->n_level; k++) {
		r->level[k].n = wb_cur_u32(levels);
		r->level[k].tensor = wb_cur_u32(levels);
		r->level[k].row = wb_cur_u64(levels);
		r->level[k].wire_off = wb_cur_u64(levels);
		if (r->level[k].n < 2)
			return false;
	}
	return !levels->bad;
}

static int by_wire(const void *a, const void *b)
{
	const struct wb_segment *x = a, *y = b;

	return x->wire_off < y->wire_off ? -1 : x->wire_off > y->wire_off;
}

/* @n segments of class @cls from the part's next @n_run runs. */
static bool read_segments(
	struct part *x, uint32_t n_run, uint32_t cls, struct wb_segment *out, uint32_t n)
{
	uint64_t at = 0;
	bool is_sorted = true;

	if (n_run > x->count[WB__PART_RUN])
		return false;
	for (uint32_t i = 0; i < n_run; i++) {
		struct wb__run r;
		uint64_t more;

		if (!read_run(x, &r))
			return false;
		r.first.class_id = cls;
		more = wb__run_segments(&r);
		if (more > n - at)
			return false;
		wb__run_unfold(&r, out + at);
		at += more;
	}
	for (uint32_t i = 1; i < at; i++)
		is_sorted &= out[i - 1].wire_off < out[i].wire_off;
	if (!is_sorted)
		qsort(out, n, sizeof(*out), by_wire);
	return at == n;
}

/* A class of a part, as its record says. */
struct own {
	uint32_t cls, n_run, n_segment;
};

/* The next one; false: damaged, or not behind the one before. */
static bool next_class(struct part *x, const struct wb_plan *p, struct own *o)
{
	struct wb_cursor *c = &x->at[WB__PART_CLASS];
	uint32_t begin, end;

	o->cls = wb_cur_u32(c);
	begin = wb_cur_u32(c);
	end = wb_cur_u32(c);
	o->n_segment = wb_cur_u32(c);
	o->n_run = end - begin;
	if (c->bad || o->cls < x->next_class || o->cls >= p->n_class || begin != x->next_run ||
		end < begin)
		return false;
	x->next_class = o->cls + 1;
	x->next_run = end;
	return true;
}

/* The classes of an agent: segments one after the other, those of others empty. */
static bool read_own(struct wb_plan *p, struct part *x)
{
	uint32_t next = 0, seg = 0;

	for (uint32_t i = 0; i < x->count[WB__PART_CLASS]; i++) {
		struct own o;

		if (!next_class(x, p, &o))
			return false;
		for (; next <= o.cls; next++)
			p->cls[next].seg_begin = p->cls[next].seg_end = seg;
		if (!read_segments(x, o.n_run, o.cls, p->segment + seg, o.n_segment))
			return false;
		p->cls[o.cls].seg_end = seg += o.n_segment;
	}
	for (; next < p->n_class; next++)
		p->cls[next].seg_begin = p->cls[next].seg_end = seg;
	return !x->count[WB__PART_RUN] && !x->count[WB__PART_LEVEL];
}

static int unpack(struct wb_cursor *c, struct wb_plan_piece part, uint64_t memory_max,
	struct wb_plan *p, struct wb_err *err)
{
	struct head h;
	struct part x;
	uint64_t need;
	int rc = read_head_table(c, p, &h, err);

	if (!rc && h.end != (uint64_t)(c->end - h.start))
		rc = damaged(err, "the length of its head");
	if (!rc)
		rc = open_part(p, part, &x, err);
	if (rc < 0)
		return rc;
	if (x.domain >= h.count[WB__HEAD_PART] ||
		!wb_digest_eq(entry_of(&h, x.domain).digest, wb_digest_of(part.data, part.bytes)))
		return wb_err_set(err, -EBADMSG,
			"the part of domain %" PRIu32 " is not the one that the head names",
			x.domain);
	need = memory_of(&h, x.n_segment, x.count[WB__PART_ROUTE]);
	if (need > memory_max)
		return wb_err_set(err, -EFBIG,
			"the plan takes %" PRIu64 " bytes here, and %" PRIu64 " are left for it",
			need, memory_max);
	p->is_part = true;
	p->domain = x.domain;
	rc = make_arrays(p, x.n_segment, x.count[WB__PART_ROUTE], err);
	if (!rc)
		rc = read_head_sections(c, p, &h, err);
	if (!rc && !read_own(p, &x))
		rc = damaged(err, "a class of a part");
	if (rc < 0)
		return rc;
	wb__routes_get(&x.at[WB__PART_ROUTE], p->route, p->n_route);
	return x.at[WB__PART_ROUTE].bad ? damaged(err, "a route of a part") : wb__plan_sane(p, err);
}

int wb_plan_unpack(struct wb_plan_piece head, struct wb_plan_piece part, uint64_t memory_max,
	struct wb_plan **out, struct wb_err *err)
{
	struct wb_cursor c = wb_cursor(head.data, head.bytes);
	struct wb_plan *p = wb_zalloc(1, sizeof(*p));
	int rc = p ? unpack(&c, part, memory_max, p, err) : wb_err_set(err, -ENOMEM, "plan");

	if (rc < 0)
		wb_plan_destroy(p);
	else
		*out = p;
	return rc;
}

/* ---- all of a packed plan ---- */

/* Parts follow the head; nothing else is between them or behind. */
static bool place_parts(struct wb_cursor *c, const struct head *h, struct wb_plan_slice *s)
{
	(void)wb_cur_bytes(c, h->end - (uint64_t)(c->p - h->start));
	s[0] = (struct wb_plan_slice){0, h->end, wb_digest_of(h->start, h->end)};
	for (uint32_t d = 0; d < h->count[WB__HEAD_PART]; d++) {
		wb_cur_align(c, h->start, WB__SECTION_ALIGN);
		s[1 + d] = entry_of(h, d);
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
	struct head h;
	int rc = read_head_table(&c, &p, &h, err);

	if (rc < 0)
		return rc;
	s = wb_zalloc((size_t)h.count[WB__HEAD_PART] + 1, sizeof(*s));
	if (!s)
		return wb_err_set(err, -ENOMEM, "no memory for the parts of a plan");
	if (!place_parts(&c, &h, s)) {
		wb_free(s);
		return damaged(err, "its length");
	}
	*out = s;
	return (int)h.count[WB__HEAD_PART] + 1;
}

/* All parts of a plan, and which classes have their segments already. */
struct whole {
	struct wb_plan *p;
	const uint8_t *packed;
	struct wb_plan_slice *slice; /* owned */
	struct part *part; /* owned */
	uint32_t n_part;
	uint32_t *n_segment; /* owned: by class; UINT32_MAX = in no part so far */
};

static int open_parts(struct whole *w, struct wb_err *err)
{
	for (uint32_t d = 0; d < w->n_part; d++) {
		const struct wb_plan_slice *s = &w->slice[1 + d];
		struct wb_plan_piece in = {w->packed + s->at, s->bytes};
		int rc;

		if (!wb_digest_eq(s->digest, wb_digest_of(in.data, in.bytes)))
			return damaged(err, "a part");
		rc = open_part(w->p, in, &w->part[d], err);
		if (rc < 0)
			return rc;
		if (w->part[d].domain != d)
			return damaged(err, "the order of its parts");
	}
	return 0;
}

/* Segments of each class, and routes to the workers of each part. */
static int count_all(struct whole *w, uint64_t *n_segment, uint64_t *n_route, struct wb_err *err)
{
	*n_segment = *n_route = 0;
	for (uint32_t d = 0; d < w->n_part; d++) {
		struct part x = w->part[d];
		struct own o;

		for (uint32_t i = 0; i < x.count[WB__PART_CLASS]; i++) {
			if (!next_class(&x, w->p, &o))
				return damaged(err, "a class of a part");
			if (w->n_segment[o.cls] == UINT32_MAX)
				*n_segment += w->n_segment[o.cls] = o.n_segment;
		}
		*n_route += x.count[WB__PART_ROUTE];
	}
	return *n_segment > WB__SEGMENTS_MAX ? damaged(err, "the count of its segments") : 0;
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

/* What stands in two parts is the same in both: else the plan is not the one that it is called. */
static bool read_part(struct whole *w, struct part *x)
{
	struct wb_plan *p = w->p;
	struct wb__run skipped;
	struct own o;

	for (uint32_t i = 0; i < x->count[WB__PART_CLASS]; i++) {
		if (!next_class(x, p, &o))
			return false;
		if (w->n_segment[o.cls] != UINT32_MAX) {
			w->n_segment[o.cls] = UINT32_MAX;
			if (!read_segments(x, o.n_run, o.cls, p->segment + p->cls[o.cls].seg_begin,
				    p->cls[o.cls].seg_end - p->cls[o.cls].seg_begin))
				return false;
			continue;
		}
		for (uint32_t r = 0; r < o.n_run; r++)
			if (!x->count[WB__PART_RUN] || !read_run(x, &skipped))
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
			return damaged(err, "a part");
	if (p->n_route)
		qsort(p->route, p->n_route, sizeof(*p->route), wb__route_order);
	return wb__plan_sane(p, err);
}

static int unpack_all(struct whole *w, size_t bytes, struct wb_err *err)
{
	struct wb_cursor c = wb_cursor(w->packed, bytes);
	struct wb_digest named;
	uint64_t n_segment, n_route;
	struct head h;
	int rc = read_head_table(&c, w->p, &h, err);

	if (!rc)
		rc = read_head_sections(&c, w->p, &h, err);
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
		rc = make_arrays(w->p, n_segment, n_route, err);
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
