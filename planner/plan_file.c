/* SPDX-License-Identifier: Apache-2.0 */
/* The plan's bytes: a header with a table of sections, each of fixed-size records (FORMAT.md). */
#include "planner/plan.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define PLAN_MAGIC 0x4c504257u /* "WBPL" */
#define PLAN_VERSION 1
#define PLAN_VERSION_LENT 3 /* version 1, with rails that are lent */
#define HEADER_BYTES 152
#define SECTION_ALIGN 64

enum section { S_WORKER, S_LAYOUT, S_CLASS, S_SEGMENT, S_MEMBER, S_ROUTE, SECTIONS };

static const struct {
	uint32_t bytes, max;
	const char *name;
} record[SECTIONS] = {
	[S_WORKER] = {32, WB_WORKERS_MAX, "worker"},
	[S_LAYOUT] = {16, WB_WORKERS_MAX, "layout"},
	[S_CLASS] = {56, 1u << 24, "class"},
	[S_SEGMENT] = {48, UINT32_MAX, "segment"},
	[S_MEMBER] = {4, 1u << 28, "member"},
	[S_ROUTE] = {24, 1u << 27, "route"},
};

static void put_workers(struct wb_buf *b, const struct wb_plan *p)
{
	for (uint32_t i = 0; i < p->n_worker; i++) {
		const struct wb_plan_worker *w = &p->worker[i];

		wb_buf_u32(b, w->role);
		wb_buf_u32(b, w->layout);
		wb_buf_u32(b, w->engine);
		wb_buf_u32(b, w->domain);
		wb_buf_u32(b, w->node);
		wb_buf_u32(b, 0);
		wb_buf_u64(b, w->rail_bytes_per_s);
	}
}

static void put_classes(struct wb_buf *b, const struct wb_plan *p)
{
	for (uint32_t i = 0; i < p->n_class; i++) {
		const struct wb_class *k = &p->cls[i];

		wb_buf_u32(b, k->seg_begin);
		wb_buf_u32(b, k->seg_end);
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

/* A worker and the rail for it: 0 = its own, else its worker's number + 1. */
static void put_end(struct wb_buf *b, uint32_t worker, uint32_t rail)
{
	wb_buf_u32(b, worker | (rail == worker ? 0 : rail + 1) << 16);
}

static void put_routes(struct wb_buf *b, const struct wb_plan *p)
{
	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];

		wb_buf_u32(b, r->class_id);
		wb_buf_u32(b, r->chunk_begin);
		wb_buf_u32(b, r->chunk_end);
		wb_buf_u32(b, r->stage);
		put_end(b, r->src, r->src_rail);
		put_end(b, r->dst, r->dst_rail);
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
		put_workers(b, p);
		return;
	case S_LAYOUT:
		for (uint32_t i = 0; i < p->n_layout; i++) {
			wb_buf_u64(b, p->layout[i].hi);
			wb_buf_u64(b, p->layout[i].lo);
		}
		return;
	case S_CLASS:
		put_classes(b, p);
		return;
	case S_SEGMENT:
		put_segments(b, p);
		return;
	case S_MEMBER:
		for (uint32_t i = 0; i < p->n_member; i++)
			wb_buf_u32(b, p->member[i]);
		return;
	case S_ROUTE:
		put_routes(b, p);
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
	uint64_t at = HEADER_BYTES;

	wb_buf_u32(out, PLAN_MAGIC);
	wb_buf_u32(out, has_lent(p) ? PLAN_VERSION_LENT : PLAN_VERSION);
	wb_buf_u64(out, p->manifest.hi);
	wb_buf_u64(out, p->manifest.lo);
	wb_buf_u32(out, p->chunk_bytes);
	wb_buf_u32(out, p->n_chunk);
	wb_buf_u64(out, p->trainer_slot_min_bytes);
	wb_buf_u64(out, p->rollout_slot_min_bytes);
	wb_buf_u64(out, p->node_bound_ns);
	wb_buf_u64(out, p->worker_bound_ns);
	wb_buf_u64(out, p->model_bytes);
	wb_buf_u64(out, p->delivered_bytes);
	for (int s = 0; s < SECTIONS; s++) {
		at = wb_align_up(at, SECTION_ALIGN);
		wb_buf_u64(out, at);
		wb_buf_u32(out, count[s]);
		at += (uint64_t)count[s] * record[s].bytes;
	}
	for (int s = 0; s < SECTIONS && !out->rc; s++) {
		while (!out->rc && (out->len - start) % SECTION_ALIGN)
			wb_buf_u8(out, 0);
		put_section(out, p, (enum section)s);
	}
	return out->rc;
}

static void get_workers(struct wb_cursor *c, struct wb_plan *p)
{
	for (uint32_t i = 0; i < p->n_worker; i++) {
		struct wb_plan_worker *w = &p->worker[i];
		uint32_t role = wb_cur_u32(c);

		c->bad |= role != WB_ROLE_TRAINER && role != WB_ROLE_ROLLOUT;
		w->role = role == WB_ROLE_TRAINER ? WB_ROLE_TRAINER : WB_ROLE_ROLLOUT;
		w->layout = wb_cur_u32(c);
		w->engine = wb_cur_u32(c);
		w->domain = wb_cur_u32(c);
		w->node = wb_cur_u32(c);
		c->bad |= wb_cur_u32(c) != 0;
		w->rail_bytes_per_s = wb_cur_u64(c);
		c->bad |= w->layout >= p->n_layout || w->engine >= p->n_worker ||
			  w->domain >= p->n_worker || w->node >= p->n_worker;
	}
}

static void get_classes(struct wb_cursor *c, struct wb_plan *p)
{
	for (uint32_t i = 0; i < p->n_class; i++) {
		struct wb_class *k = &p->cls[i];

		k->seg_begin = wb_cur_u32(c);
		k->seg_end = wb_cur_u32(c);
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

static void get_end(struct wb_cursor *c, uint16_t *worker, uint16_t *rail)
{
	uint32_t x = wb_cur_u32(c);

	*worker = (uint16_t)x;
	*rail = x >> 16 ? (uint16_t)((x >> 16) - 1) : *worker;
	c->bad |= x >> 16 && *rail == *worker;
}

static void get_routes(struct wb_cursor *c, struct wb_plan *p)
{
	for (uint32_t i = 0; i < p->n_route; i++) {
		struct wb_route *r = &p->route[i];

		r->class_id = wb_cur_u32(c);
		r->chunk_begin = wb_cur_u32(c);
		r->chunk_end = wb_cur_u32(c);
		r->stage = wb_cur_u32(c);
		get_end(c, &r->src, &r->src_rail);
		get_end(c, &r->dst, &r->dst_rail);
	}
}

static void get_section(struct wb_cursor *c, struct wb_plan *p, enum section s)
{
	switch (s) {
	case S_WORKER:
		get_workers(c, p);
		return;
	case S_LAYOUT:
		for (uint32_t i = 0; i < p->n_layout; i++) {
			p->layout[i].hi = wb_cur_u64(c);
			p->layout[i].lo = wb_cur_u64(c);
		}
		return;
	case S_CLASS:
		get_classes(c, p);
		return;
	case S_SEGMENT:
		get_segments(c, p);
		return;
	case S_MEMBER:
		for (uint32_t i = 0; i < p->n_member; i++)
			p->member[i] = wb_cur_u32(c);
		return;
	case S_ROUTE:
		get_routes(c, p);
		return;
	default:
		return;
	}
}

static bool members_ok(const struct wb_plan *p, uint32_t begin, uint32_t end, enum wb_role role)
{
	if (begin >= end || end > p->n_member)
		return false;
	for (uint32_t i = begin; i < end; i++)
		if (p->member[i] >= p->n_worker || p->worker[p->member[i]].role != role ||
			(i > begin && p->member[i - 1] >= p->member[i]))
			return false;
	return true;
}

static bool class_ok(const struct wb_plan *p, uint32_t i, uint32_t seg, uint32_t chunk)
{
	const struct wb_class *k = &p->cls[i];
	size_t elem = wb_dtype_bytes((enum wb_dtype)k->dtype);
	uint64_t at = 0;

	if (k->seg_begin != seg || k->seg_end <= seg || k->seg_end > p->n_segment || !elem ||
		k->chunk_base != chunk || k->is_direct > 1 || k->primary > i)
		return false;
	if (k->primary != i && (!k->is_direct || p->cls[k->primary].is_direct))
		return false;
	if (!members_ok(p, k->holder_begin, k->holder_end, WB_ROLE_TRAINER) ||
		!members_ok(p, k->needer_begin, k->needer_end, WB_ROLE_ROLLOUT))
		return false;
	for (uint32_t s = k->seg_begin; s < k->seg_end; s++) {
		const struct wb_segment *x = &p->segment[s];
		uint64_t n;

		if (x->class_id != i || x->wire_off != at || !x->n_row || !x->n_col ||
			!x->row_step || !x->col_step || x->row >> 41 || x->col >> 33)
			return false;
		if (!wb_mul_u64((uint64_t)x->n_row * x->n_col, elem, &n) || !wb_add_u64(at, n, &at))
			return false;
	}
	return at == k->bytes && at < UINT64_MAX - WB_CHUNK_BYTES_MAX &&
	       k->n_chunk == wb_ceil_div(at, p->chunk_bytes);
}

/* A worker's own rail, or for the network one that another of its domain and role lends. */
static bool rail_ok(const struct wb_plan *p, uint32_t worker, uint32_t rail, bool is_near)
{
	if (worker >= p->n_worker || rail >= p->n_worker)
		return false;
	return rail == worker || (!is_near && p->worker[rail].role == WB_ROLE_ROLLOUT &&
					 p->worker[worker].role == WB_ROLE_ROLLOUT &&
					 p->worker[rail].domain == p->worker[worker].domain);
}

static bool ends_ok(const struct wb_plan *p, const struct wb_route *r)
{
	bool is_near = r->src < p->n_worker && r->dst < p->n_worker &&
		       p->worker[r->src].domain == p->worker[r->dst].domain;

	return rail_ok(p, r->src, r->src_rail, is_near) && rail_ok(p, r->dst, r->dst_rail, is_near);
}

static bool routes_ok(const struct wb_plan *p)
{
	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];

		if (r->class_id >= p->n_class || r->stage >= WB_STAGES || !ends_ok(p, r) ||
			r->chunk_begin >= r->chunk_end ||
			r->chunk_end > p->cls[r->class_id].n_chunk)
			return false;
	}
	return true;
}

int wb__plan_sane(const struct wb_plan *p, struct wb_err *err)
{
	uint32_t seg = 0, chunk = 0;

	if (p->chunk_bytes < WB_CHUNK_BYTES_LEAST || p->chunk_bytes > WB_CHUNK_BYTES_MAX ||
		p->chunk_bytes % 64)
		return wb_err_set(
			err, -EBADMSG, "plan: chunks of %" PRIu32 " bytes", p->chunk_bytes);
	for (uint32_t i = 0; i < p->n_class; i++) {
		if (!class_ok(p, i, seg, chunk) ||
			__builtin_add_overflow(chunk, p->cls[i].n_chunk, &chunk))
			return wb_err_set(err, -EBADMSG, "plan: class %" PRIu32 " is damaged", i);
		seg = p->cls[i].seg_end;
	}
	if (seg != p->n_segment || chunk != p->n_chunk)
		return wb_err_set(err, -EBADMSG, "plan: segments or chunks without a class");
	if (!routes_ok(p))
		return wb_err_set(err, -EBADMSG, "plan: a route is damaged");
	return 0;
}

static int read_header(struct wb_cursor *c, struct wb_plan *p, uint32_t *version, uint32_t *count,
	struct wb_err *err)
{
	const uint8_t *start = c->p;
	size_t whole = wb_cur_left(c);
	uint32_t magic = wb_cur_u32(c);
	uint64_t at = HEADER_BYTES;

	*version = wb_cur_u32(c);
	p->manifest.hi = wb_cur_u64(c);
	p->manifest.lo = wb_cur_u64(c);
	p->chunk_bytes = wb_cur_u32(c);
	p->n_chunk = wb_cur_u32(c);
	p->trainer_slot_min_bytes = wb_cur_u64(c);
	p->rollout_slot_min_bytes = wb_cur_u64(c);
	p->node_bound_ns = wb_cur_u64(c);
	p->worker_bound_ns = wb_cur_u64(c);
	p->model_bytes = wb_cur_u64(c);
	p->delivered_bytes = wb_cur_u64(c);
	if (c->bad || magic != PLAN_MAGIC ||
		(*version != PLAN_VERSION && *version != PLAN_VERSION_LENT))
		return wb_err_set(err, -EBADMSG, "not a plan of format %d or %d", PLAN_VERSION,
			PLAN_VERSION_LENT);
	for (int s = 0; s < SECTIONS; s++) {
		uint64_t off = wb_cur_u64(c);

		count[s] = wb_cur_u32(c);
		at = wb_align_up(at, SECTION_ALIGN);
		if (c->bad || off != at || count[s] > record[s].max || off > whole ||
			count[s] > (whole - off) / record[s].bytes)
			return wb_err_set(
				err, -EBADMSG, "plan: the %s section is damaged", record[s].name);
		at += (uint64_t)count[s] * record[s].bytes;
	}
	wb_cur_align(c, start, SECTION_ALIGN);
	if (c->bad || at != whole)
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

int wb_plan_decode(const void *bytes_in, size_t bytes, struct wb_plan **out, struct wb_err *err)
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
		wb_cur_align(&c, start, SECTION_ALIGN);
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
