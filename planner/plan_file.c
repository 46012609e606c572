/* SPDX-License-Identifier: Apache-2.0 */
/* Encode and decode a plan as a list, which is all of it: versions 1 and 3 (FORMAT.md). */
#include "planner/plan.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/internal.h"
#include "planner/parts_internal.h"
#include "planner/sections.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define PLAN_MAGIC 0x4c504257u /* "WBPL" */
#define PLAN_VERSION 1
#define PLAN_VERSION_LENT 3 /* version 1, with rails that are lent */

enum section { S_WORKER, S_LAYOUT, S_CLASS, S_SEGMENT, S_MEMBER, S_ROUTE, SECTIONS };

#define HEADER_BYTES (80 + SECTIONS * WB__SECTION_ENTRY)

static const struct wb__section record[SECTIONS] = {
	[S_WORKER] = WB__SECTION_WORKER,
	[S_LAYOUT] = WB__SECTION_LAYOUT,
	[S_CLASS] = {"class", 56, WB__CLASSES_MAX},
	[S_SEGMENT] = {"segment", 48, UINT32_MAX},
	[S_MEMBER] = WB__SECTION_MEMBER,
	[S_ROUTE] = WB__SECTION_ROUTE,
};

void wb__class_put(struct wb_buf *b, const struct wb_class *k)
{
	wb_buf_u32(b, k->holder_begin);
	wb_buf_u32(b, k->holder_end);
	wb_buf_u32(b, k->needer_begin);
	wb_buf_u32(b, k->needer_end);
	wb_buf_u32(b, k->dtype);
	wb_buf_u32(b, k->n_chunk);
	wb_buf_u64(b, k->bytes);
	wb_buf_u32(b, k->chunk_base);
	wb_buf_u32(b, k->primary);
	wb_buf_u32(b, k->is_direct);
	wb_buf_u32(b, 0);
}

void wb__class_get(struct wb_cursor *c, struct wb_class *k)
{
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

static void put_classes(struct wb_buf *b, const struct wb_plan *p)
{
	for (uint32_t i = 0; i < p->n_class; i++) {
		const struct wb_class *k = &p->cls[i];

		wb_buf_u32(b, k->seg_begin);
		wb_buf_u32(b, k->seg_end);
		wb__class_put(b, k);
	}
}

static void put_segments(struct wb_buf *b, const struct wb_plan *p)
{
	for (uint32_t i = 0; i < p->n_segment; i++) {
		const struct wb_segment *s = &p->segment[i];

		wb_buf_u32(b, s->class_id);
		wb_buf_u32(b, s->tensor);
		wb_buf_u64(b, s->row);
		wb_buf_u64(b, s->col);
		wb_buf_u32(b, s->n_row);
		wb_buf_u32(b, s->n_col);
		wb_buf_u32(b, s->row_step);
		wb_buf_u32(b, s->col_step);
		wb_buf_u64(b, s->wire_off);
	}
}

static bool has_lent(const struct wb_plan *p)
{
	for (uint32_t i = 0; i < p->n_route; i++)
		if (p->route[i].src_rail != p->route[i].src ||
			p->route[i].dst_rail != p->route[i].dst)
			return true;
	return false;
}

static void put_section(struct wb_buf *b, const struct wb_plan *p, enum section s)
{
	switch (s) {
	case S_WORKER:
		wb__workers_put(b, p);
		return;
	case S_LAYOUT:
		wb__layouts_put(b, p);
		return;
	case S_CLASS:
		put_classes(b, p);
		return;
	case S_SEGMENT:
		put_segments(b, p);
		return;
	case S_MEMBER:
		wb__members_put(b, p);
		return;
	case S_ROUTE:
		for (uint32_t i = 0; i < p->n_route; i++)
			wb__route_put(b, &p->route[i]);
		return;
	default:
		return;
	}
}

int wb_plan_encode(const struct wb_plan *p, struct wb_buf *out)
{
	const uint32_t count[SECTIONS] = {
		p->n_worker, p->n_layout, p->n_class, p->n_segment, p->n_member, p->n_route};
	size_t start = out->len;

	assert(!p->is_part);
	wb_buf_u32(out, PLAN_MAGIC);
	wb_buf_u32(out, has_lent(p) ? PLAN_VERSION_LENT : PLAN_VERSION);
	wb_buf_u64(out, p->manifest.hi);
	wb_buf_u64(out, p->manifest.lo);
	wb_buf_u32(out, p->chunk_bytes);
	wb_buf_u32(out, p->n_chunk);
	wb__sums_put(out, p);
	wb__table_put(out, record, count, SECTIONS, HEADER_BYTES);
	for (int s = 0; s < SECTIONS && !out->rc; s++) {
		wb__section_align(out, start);
		put_section(out, p, (enum section)s);
	}
	return out->rc;
}

int wb__plan_name(struct wb_plan *p)
{
	struct wb_buf b;
	int rc;

	wb_buf_init(&b, SIZE_MAX / 2);
	rc = wb_plan_encode(p, &b);
	if (!rc)
		p->digest = wb_digest_of(b.data, b.len);
	wb_buf_finish(&b);
	return rc;
}

static void get_classes(struct wb_cursor *c, struct wb_plan *p)
{
	for (uint32_t i = 0; i < p->n_class; i++) {
		struct wb_class *k = &p->cls[i];

		k->seg_begin = wb_cur_u32(c);
		k->seg_end = wb_cur_u32(c);
		wb__class_get(c, k);
	}
}

static void get_segments(struct wb_cursor *c, struct wb_plan *p)
{
	for (uint32_t i = 0; i < p->n_segment; i++) {
		struct wb_segment *s = &p->segment[i];

		s->class_id = wb_cur_u32(c);
		s->tensor = wb_cur_u32(c);
		s->row = wb_cur_u64(c);
		s->col = wb_cur_u64(c);
		s->n_row = wb_cur_u32(c);
		s->n_col = wb_cur_u32(c);
		s->row_step = wb_cur_u32(c);
		s->col_step = wb_cur_u32(c);
		s->wire_off = wb_cur_u64(c);
	}
}

static void get_section(struct wb_cursor *c, struct wb_plan *p, enum section s)
{
	switch (s) {
	case S_WORKER:
		wb__workers_get(c, p);
		return;
	case S_LAYOUT:
		wb__layouts_get(c, p);
		return;
	case S_CLASS:
		get_classes(c, p);
		return;
	case S_SEGMENT:
		get_segments(c, p);
		return;
	case S_MEMBER:
		wb__members_get(c, p);
		return;
	case S_ROUTE:
		wb__routes_get(c, p->route, p->n_route);
		return;
	default:
		return;
	}
}

static int read_header(struct wb_cursor *c, struct wb_plan *p, uint32_t *version, uint32_t *count,
	struct wb_err *err)
{
	const uint8_t *start = c->p;
	size_t whole = wb_cur_left(c);
	uint32_t magic = wb_cur_u32(c);
	uint64_t end = 0;

	*version = wb_cur_u32(c);
	p->manifest.hi = wb_cur_u64(c);
	p->manifest.lo = wb_cur_u64(c);
	p->chunk_bytes = wb_cur_u32(c);
	p->n_chunk = wb_cur_u32(c);
	wb__sums_get(c, p);
	if (c->bad || magic != PLAN_MAGIC ||
		(*version != PLAN_VERSION && *version != PLAN_VERSION_LENT))
		return wb_err_set(err, -EBADMSG, "not a plan of format %d, %d or %d", PLAN_VERSION,
			WB__PARTS_VERSION, PLAN_VERSION_LENT);
	if (!wb__table_get(c, record, count, SECTIONS, HEADER_BYTES, whole, &end))
		return wb_err_set(err, -EBADMSG, "plan: its sections do not fit its length");
	wb_cur_align(c, start, WB__SECTION_ALIGN);
	if (c->bad || end != whole)
		return wb_err_set(err, -EBADMSG, "plan: header or length is damaged");
	return 0;
}

static int alloc_arrays(struct wb_plan *p, const uint32_t *count)
{
	p->n_worker = count[S_WORKER];
	p->n_layout = count[S_LAYOUT];
	p->n_class = count[S_CLASS];
	p->n_segment = count[S_SEGMENT];
	p->n_member = count[S_MEMBER];
	p->n_route = count[S_ROUTE];
	p->worker = wb_zalloc(p->n_worker, sizeof(*p->worker));
	p->layout = wb_zalloc(p->n_layout, sizeof(*p->layout));
	p->cls = wb_zalloc(p->n_class, sizeof(*p->cls));
	p->segment = wb_zalloc(p->n_segment, sizeof(*p->segment));
	p->member = wb_zalloc(p->n_member, sizeof(*p->member));
	p->route = wb_zalloc(p->n_route, sizeof(*p->route));
	if (!p->worker || !p->layout || !p->cls || !p->segment || !p->member || !p->route)
		return -ENOMEM;
	return 0;
}

static int list_decode(const void *bytes_in, size_t bytes, struct wb_plan **out, struct wb_err *err)
{
	struct wb_cursor c = wb_cursor(bytes_in, bytes);
	const uint8_t *start = c.p;
	struct wb_plan *p = wb_zalloc(1, sizeof(*p));
	uint32_t count[SECTIONS], version = 0;
	int rc;

	if (!p)
		return wb_err_set(err, -ENOMEM, "plan");
	rc = read_header(&c, p, &version, count, err);
	if (!rc && alloc_arrays(p, count) < 0)
		rc = wb_err_set(err, -ENOMEM, "plan of %zu bytes", bytes);
	for (int s = 0; s < SECTIONS && !rc; s++) {
		wb_cur_align(&c, start, WB__SECTION_ALIGN);
		get_section(&c, p, (enum section)s);
		if (c.bad)
			rc = wb_err_set(err, -EBADMSG, "plan: a %s is damaged", record[s].name);
	}
	if (!rc && has_lent(p) != (version == PLAN_VERSION_LENT))
		rc = wb_err_set(err, -EBADMSG, "plan: rails that are lent make it format %d",
			PLAN_VERSION_LENT);
	if (!rc)
		rc = wb__plan_sane(p, err);
	if (rc < 0) {
		wb_plan_destroy(p);
		return rc;
	}
	p->digest = wb_digest_of(bytes_in, bytes);
	*out = p;
	return 0;
}

int wb_plan_decode(const void *p, size_t bytes, struct wb_plan **out, struct wb_err *err)
{
	struct wb_cursor c = wb_cursor(p, bytes);

	return wb_cur_u32(&c) == WB__HEAD_MAGIC ? wb__plan_unpack_all(p, bytes, out, err)
						: list_decode(p, bytes, out, err);
}
