/* SPDX-License-Identifier: Apache-2.0 */
/* Write and read the sections that several encodings of a plan have in common. */
#include "planner/sections.h"

#include "base/base.h"

void wb__table_put(struct wb_buf *b, const struct wb__section *s, const uint32_t *count, int n,
	uint64_t header)
{
	uint64_t at = header;

	for (int i = 0; i < n; i++) {
		at = wb_align_up(at, WB__SECTION_ALIGN);
		wb_buf_u64(b, at);
		wb_buf_u32(b, count[i]);
		at += (uint64_t)count[i] * s[i].bytes;
	}
}

bool wb__table_get(struct wb_cursor *c, const struct wb__section *s, uint32_t *count, int n,
	uint64_t header, uint64_t whole, uint64_t *end)
{
	uint64_t at = header;

	for (int i = 0; i < n; i++) {
		uint64_t off = wb_cur_u64(c);

		count[i] = wb_cur_u32(c);
		at = wb_align_up(at, WB__SECTION_ALIGN);
		if (c->bad || off != at || count[i] > s[i].max || off > whole ||
			count[i] > (whole - off) / s[i].bytes)
			return false;
		at += (uint64_t)count[i] * s[i].bytes;
	}
	*end = at;
	return true;
}

void wb__section_align(struct wb_buf *b, size_t start)
{
	while (!b->rc && (b->len - start) % WB__SECTION_ALIGN)
		wb_buf_u8(b, 0);
}

void wb__workers_put(struct wb_buf *b, const struct wb_plan *p)
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

void wb__workers_get(struct wb_cursor *c, struct wb_plan *p)
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

void wb__layouts_put(struct wb_buf *b, const struct wb_plan *p)
{
	for (uint32_t i = 0; i < p->n_layout; i++) {
		wb_buf_u64(b, p->layout[i].hi);
		wb_buf_u64(b, p->layout[i].lo);
	}
}

void wb__layouts_get(struct wb_cursor *c, struct wb_plan *p)
{
	for (uint32_t i = 0; i < p->n_layout; i++) {
		p->layout[i].hi = wb_cur_u64(c);
		p->layout[i].lo = wb_cur_u64(c);
	}
}

void wb__members_put(struct wb_buf *b, const struct wb_plan *p)
{
	for (uint32_t i = 0; i < p->n_member; i++)
		wb_buf_u32(b, p->member[i]);
}

void wb__members_get(struct wb_cursor *c, struct wb_plan *p)
{
	for (uint32_t i = 0; i < p->n_member; i++)
		p->member[i] = wb_cur_u32(c);
}

/* A worker (low 16 bits) and the rail for it (high bits): 0 = its own, else 1 more than the number
 * of the worker that has the rail. */
static void put_end(struct wb_buf *b, uint32_t worker, uint32_t rail)
{
	wb_buf_u32(b, worker | (rail == worker ? 0 : rail + 1) << 16);
}

static void get_end(struct wb_cursor *c, uint16_t *worker, uint16_t *rail)
{
	uint32_t x = wb_cur_u32(c);

	*worker = (uint16_t)x;
	*rail = x >> 16 ? (uint16_t)((x >> 16) - 1) : *worker;
	c->bad |= x >> 16 && *rail == *worker;
}

void wb__route_put(struct wb_buf *b, const struct wb_route *r)
{
	wb_buf_u32(b, r->class_id);
	wb_buf_u32(b, r->chunk_begin);
	wb_buf_u32(b, r->chunk_end);
	wb_buf_u32(b, r->stage);
	put_end(b, r->src, r->src_rail);
	put_end(b, r->dst, r->dst_rail);
}

void wb__routes_get(struct wb_cursor *c, struct wb_route *r, uint32_t n)
{
	for (; n; n--, r++) {
		r->class_id = wb_cur_u32(c);
		r->chunk_begin = wb_cur_u32(c);
		r->chunk_end = wb_cur_u32(c);
		r->stage = wb_cur_u32(c);
		get_end(c, &r->src, &r->src_rail);
		get_end(c, &r->dst, &r->dst_rail);
	}
}

void wb__sums_put(struct wb_buf *b, const struct wb_plan *p)
{
	wb_buf_u64(b, p->trainer_slot_min_bytes);
	wb_buf_u64(b, p->rollout_slot_min_bytes);
	wb_buf_u64(b, p->node_bound_ns);
	wb_buf_u64(b, p->worker_bound_ns);
	wb_buf_u64(b, p->model_bytes);
	wb_buf_u64(b, p->delivered_bytes);
}

void wb__sums_get(struct wb_cursor *c, struct wb_plan *p)
{
	p->trainer_slot_min_bytes = wb_cur_u64(c);
	p->rollout_slot_min_bytes = wb_cur_u64(c);
	p->node_bound_ns = wb_cur_u64(c);
	p->worker_bound_ns = wb_cur_u64(c);
	p->model_bytes = wb_cur_u64(c);
	p->delivered_bytes = wb_cur_u64(c);
}
