/* SPDX-License-Identifier: Apache-2.0 */
/* Read a plan's head and a part: what one agent has of the plan. */
#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/internal.h"
#include "planner/parts_internal.h"
#include "planner/runs.h"

#include <inttypes.h>
#include <stdlib.h>

int wb__plan_damaged(struct wb_err *err, const char *what)
{
	return wb_err_set(err, -EBADMSG, "plan: %s is damaged", what);
}

/* ---- the head ---- */

int wb__head_table(struct wb_cursor *c, struct wb_plan *p, struct wb__head *h, struct wb_err *err)
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
		return wb__plan_damaged(err, "the head's table");
	return 0;
}

static void read_classes(struct wb_cursor *c, struct wb_plan *p)
{
	for (uint32_t i = 0; i < p->n_class; i++)
		wb__class_get(c, &p->cls[i]);
}

/* Bytes of memory that a plan takes: the arrays of its head, @n_segment segments and @n_route
 * routes. */
static uint64_t memory_of(const struct wb__head *h, uint64_t n_segment, uint64_t n_route)
{
	return sizeof(struct wb_plan) +
	       h->count[WB__HEAD_WORKER] * (uint64_t)sizeof(struct wb_plan_worker) +
	       h->count[WB__HEAD_LAYOUT] * (uint64_t)sizeof(struct wb_digest) +
	       h->count[WB__HEAD_CLASS] * (uint64_t)sizeof(struct wb_class) +
	       h->count[WB__HEAD_MEMBER] * (uint64_t)sizeof(uint32_t) +
	       n_segment * sizeof(struct wb_segment) + n_route * sizeof(struct wb_route);
}

static int make_head_arrays(struct wb_plan *p, const struct wb__head *h, struct wb_err *err)
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

int wb__body_make(struct wb_plan *p, uint64_t n_segment, uint64_t n_route, struct wb_err *err)
{
	if (n_segment > UINT32_MAX || n_route > UINT32_MAX)
		return wb__plan_damaged(err, "a count");
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

int wb__head_sections(
	struct wb_cursor *c, struct wb_plan *p, const struct wb__head *h, struct wb_err *err)
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
		return wb__plan_damaged(err, "its head");
	return 0;
}

struct wb_plan_slice wb__head_entry(const struct wb__head *h, uint32_t domain)
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

static int count_segments(struct wb__part *x, struct wb_err *err)
{
	struct wb_cursor c = x->at[WB__PART_CLASS];

	for (uint32_t i = 0; i < x->count[WB__PART_CLASS]; i++) {
		(void)wb_cur_bytes(&c, 12);
		x->n_segment += wb_cur_u32(&c);
	}
	return x->n_segment > WB__SEGMENTS_MAX
		       ? wb__plan_damaged(err, "the count of segments of a part")
		       : 0;
}

int wb__part_open(
	const struct wb_plan *p, struct wb_plan_piece in, struct wb__part *x, struct wb_err *err)
{
	struct wb_cursor c = wb_cursor(in.data, in.bytes);
	const uint8_t *start = c.p;
	uint32_t magic = wb_cur_u32(&c), version = wb_cur_u32(&c);
	struct wb_digest of = {.hi = wb_cur_u64(&c)};
	uint64_t end = 0;

	of.lo = wb_cur_u64(&c);
	*x = (struct wb__part){.domain = wb_cur_u32(&c)};
	c.bad |= wb_cur_u32(&c) != 0;
	if (c.bad || magic != WB__PART_MAGIC || version != WB__PARTS_VERSION)
		return wb_err_set(
			err, -EBADMSG, "not a part of a plan of format %d", WB__PARTS_VERSION);
	if (!wb_digest_eq(of, p->digest))
		return wb_err_set(err, -EBADMSG, "a part of another plan than the head's");
	if (!wb__table_get(&c, wb__part_section, x->count, WB__PART_SECTIONS, WB__PART_BYTES,
		    in.bytes, &end) ||
		end != in.bytes)
		return wb__plan_damaged(err, "a part's table");
	for (int s = 0; s < WB__PART_SECTIONS; s++) {
		wb_cur_align(&c, start, WB__SECTION_ALIGN);
		x->at[s] = c;
		(void)wb_cur_bytes(&c, (size_t)x->count[s] * wb__part_section[s].bytes);
	}
	if (c.bad)
		return wb__plan_damaged(err, "a part");
	return count_segments(x, err);
}

bool wb__part_run(struct wb__part *x, struct wb__run *r)
{
	struct wb_cursor *c = &x->at[WB__PART_RUN], *levels = &x->at[WB__PART_LEVEL];

	if (!x->count[WB__PART_RUN])
		return false;
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

bool wb__part_segments(
	struct wb__part *x, uint32_t n_run, uint32_t cls, struct wb_segment *out, uint32_t n)
{
	uint64_t at = 0;
	bool is_sorted = true;

	if (n_run > x->count[WB__PART_RUN])
		return false;
	for (uint32_t i = 0; i < n_run; i++) {
		struct wb__run r;
		uint64_t more;

		if (!wb__part_run(x, &r))
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

bool wb__part_class(struct wb__part *x, const struct wb_plan *p, struct wb__own *o)
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

/* Read the classes of one agent.  Their segments follow each other; other classes have none. */
static bool read_own(struct wb_plan *p, struct wb__part *x)
{
	uint32_t next = 0, seg = 0;

	for (uint32_t i = 0; i < x->count[WB__PART_CLASS]; i++) {
		struct wb__own o;

		if (!wb__part_class(x, p, &o))
			return false;
		for (; next <= o.cls; next++)
			p->cls[next].seg_begin = p->cls[next].seg_end = seg;
		if (!wb__part_segments(x, o.n_run, o.cls, p->segment + seg, o.n_segment))
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
	struct wb__head h;
	struct wb__part x;
	uint64_t need;
	int rc = wb__head_table(c, p, &h, err);

	if (!rc && h.end != (uint64_t)(c->end - h.start))
		rc = wb__plan_damaged(err, "the length of its head");
	if (!rc)
		rc = wb__part_open(p, part, &x, err);
	if (rc < 0)
		return rc;
	if (x.domain >= h.count[WB__HEAD_PART] || !wb_digest_eq(wb__head_entry(&h, x.domain).digest,
							  wb_digest_of(part.data, part.bytes)))
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
	rc = wb__body_make(p, x.n_segment, x.count[WB__PART_ROUTE], err);
	if (!rc)
		rc = wb__head_sections(c, p, &h, err);
	if (!rc && !read_own(p, &x))
		rc = wb__plan_damaged(err, "a class of a part");
	if (rc < 0)
		return rc;
	wb__routes_get(&x.at[WB__PART_ROUTE], p->route, p->n_route);
	return x.at[WB__PART_ROUTE].bad ? wb__plan_damaged(err, "a route of a part")
					: wb__plan_sane(p, err);
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
