/* SPDX-License-Identifier: Apache-2.0 */
/* Check that every number of a plan is in range. */
#include "base/base.h"
#include "base/err.h"
#include "planner/internal.h"

#include <inttypes.h>

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

bool wb__class_is_of(const struct wb_plan *p, const struct wb_class *k, uint32_t domain)
{
	for (uint32_t i = k->holder_begin; i < k->holder_end; i++)
		if (p->worker[p->member[i]].domain == domain)
			return true;
	for (uint32_t i = k->needer_begin; i < k->needer_end; i++)
		if (p->worker[p->member[i]].domain == domain)
			return true;
	return false;
}

/* Check what a head says of class @i.  @chunk: number of chunks in the classes before it. */
static bool class_ok(const struct wb_plan *p, uint32_t i, uint32_t chunk)
{
	const struct wb_class *k = &p->cls[i];

	if (!wb_dtype_bytes((enum wb_dtype)k->dtype) || k->chunk_base != chunk ||
		k->is_direct > 1 || k->primary > i)
		return false;
	if (k->primary != i && (!k->is_direct || p->cls[k->primary].is_direct))
		return false;
	return members_ok(p, k->holder_begin, k->holder_end, WB_ROLE_TRAINER) &&
	       members_ok(p, k->needer_begin, k->needer_end, WB_ROLE_ROLLOUT) && k->bytes &&
	       k->bytes < UINT64_MAX - WB_CHUNK_BYTES_MAX &&
	       k->n_chunk == wb_ceil_div(k->bytes, p->chunk_bytes);
}

/* Check that the segments of class @i fill its wire image. */
static bool segments_ok(const struct wb_plan *p, uint32_t i)
{
	const struct wb_class *k = &p->cls[i];
	size_t elem = wb_dtype_bytes((enum wb_dtype)k->dtype);
	uint64_t at = 0;

	for (uint32_t s = k->seg_begin; s < k->seg_end; s++) {
		const struct wb_segment *x = &p->segment[s];
		uint64_t n;

		if (x->class_id != i || x->wire_off != at || !x->n_row || !x->n_col ||
			!x->row_step || !x->col_step || x->row >> 41 || x->col >> 33)
			return false;
		if (!wb_mul_u64((uint64_t)x->n_row * x->n_col, elem, &n) || !wb_add_u64(at, n, &at))
			return false;
	}
	return at == k->bytes;
}

/* Check that the segments of the classes follow each other.  A part has none of classes that have
 * no member in its domain. */
static bool class_segments_ok(const struct wb_plan *p, uint32_t i, uint32_t seg)
{
	const struct wb_class *k = &p->cls[i];

	if (k->seg_begin != seg || k->seg_end < seg || k->seg_end > p->n_segment)
		return false;
	if (p->is_part && !wb__class_is_of(p, k, p->domain))
		return k->seg_end == seg;
	return segments_ok(p, i);
}

/* Is it the worker's own rail, or, in a route that leaves the node (not @is_near), the rail of
 * another rollout worker of the domain, lent to a rollout worker? */
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
		       p->worker[r->src].node == p->worker[r->dst].node;

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
		if (p->is_part && p->worker[r->src].domain != p->domain &&
			p->worker[r->dst].domain != p->domain)
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
		if (!class_ok(p, i, chunk) || !class_segments_ok(p, i, seg) ||
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
