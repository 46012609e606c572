/* SPDX-License-Identifier: Apache-2.0 */
/* Bindings: find where the segments of a worker's classes lie in its parameters, and cut chunks
 * into boxes. */
#include "planner/binding.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#define OPS_MAX (1u << 28)

struct wb_binding {
	const struct wb_plan *p; /* borrowed, and so are m and map */
	const struct wb_manifest *m;
	const struct wb_map *map;
	uint32_t worker;
	uint32_t *base; /* by class: where its segments begin in first[]; UINT32_MAX = not bound */
	uint32_t *first; /* ops of bound segment s: op[first[s]] .. op[first[s + 1]] */
	uint32_t *op; /* numbers of ops; the best source of a segment comes first */
	uint64_t *reach; /* by op: largest end row of this op and those before it (same tensor) */
	size_t cap_first, cap_op, n_first, n_op, boxes_max;
};

/* Ops of a tensor are sorted by their first row.  bind_segment() goes through them backwards, and
 * stops at the first op for which reach[] says that neither this op nor an earlier one has the
 * row. */
static int make_reach(struct wb_binding *b)
{
	const struct wb_map *map = b->map;

	b->reach = wb_zalloc(map->n_op, sizeof(*b->reach));
	if (!b->reach)
		return -ENOMEM;
	for (uint32_t i = 0; i < map->n_op; i++) {
		const struct wb_op *o = &map->op[i];

		b->reach[i] = o->row + (uint64_t)(o->n_row - 1) * o->row_step + 1;
		if (i && map->op[i - 1].tensor == o->tensor)
			b->reach[i] = WB_MAX(b->reach[i], b->reach[i - 1]);
	}
	return 0;
}

/* The number of ops whose (tensor, row) is at most the one given. */
static uint32_t ops_up_to(const struct wb_map *map, uint32_t tensor, uint64_t row)
{
	uint32_t lo = 0, hi = map->n_op;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		const struct wb_op *o = &map->op[mid];

		if (o->tensor < tensor || (o->tensor == tensor && o->row <= row))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* 0 = no known cast, 1 = a rounded copy, 2 = the exact value. */
static int quality(const struct wb_binding *b, uint32_t op)
{
	const struct wb_op *o = &b->map->op[op];
	bool is_exact = false;
	int cast = wb_cast_between(
		b->m->tensor[o->tensor].dtype, b->map->param[o->param].dtype, &is_exact);

	return cast < 0 ? 0 : 1 + is_exact;
}

static int bind_segment(struct wb_binding *b, const struct wb_segment *s)
{
	size_t begin = b->n_op;

	for (uint32_t i = ops_up_to(b->map, s->tensor, s->row); i-- > 0;) {
		const struct wb_op *o = &b->map->op[i];
		int rc;

		if (o->tensor != s->tensor || b->reach[i] <= s->row)
			break;
		if (!wb__axis_has(wb__op_rows(o), wb__seg_rows(s)) ||
			!wb__axis_has(wb__op_cols(o), wb__seg_cols(s)) || !quality(b, i))
			continue;
		rc = wb_grow(&b->op, &b->cap_op, b->n_op + 1, OPS_MAX, sizeof(*b->op));
		if (rc < 0)
			return rc;
		b->op[b->n_op++] = i;
		if (quality(b, i) > quality(b, b->op[begin])) {
			b->op[b->n_op - 1] = b->op[begin];
			b->op[begin] = i;
		}
	}
	return b->n_op > begin ? 0 : WB_EPLAN;
}

static int bind_class(struct wb_binding *b, uint32_t cls, struct wb_err *err)
{
	const struct wb_class *k = &b->p->cls[cls];
	uint32_t n = k->seg_end - k->seg_begin;
	int rc = wb_grow(&b->first, &b->cap_first, b->n_first + n + 1, OPS_MAX, sizeof(*b->first));

	if (rc < 0)
		return wb_err_set(err, rc, "binding of worker %" PRIu32, b->worker);
	b->base[cls] = (uint32_t)b->n_first;
	for (uint32_t s = k->seg_begin; s < k->seg_end; s++) {
		const struct wb_segment *x = &b->p->segment[s];

		if (x->tensor >= b->m->n)
			return wb_err_set(err, WB_EPLAN,
				"the plan names tensor %" PRIu32 " of %" PRIu32, x->tensor,
				b->m->n);
		b->first[b->n_first++] = (uint32_t)b->n_op;
		rc = bind_segment(b, x);
		if (rc < 0)
			return wb_err_set(err, rc,
				"worker %" PRIu32 " has no parameter with tensor %s rows %" PRIu64
				"+%" PRIu32 ", columns %" PRIu64 "+%" PRIu32,
				b->worker, b->m->tensor[x->tensor].name, x->row, x->n_row, x->col,
				x->n_col);
	}
	/* The end of the last segment's ops.  The next class writes the same value here. */
	b->first[b->n_first] = (uint32_t)b->n_op;
	return 0;
}

struct emitter {
	const struct wb_binding *b;
	struct wbk_box *box; /* NULL: only count */
	uint32_t *param;
	size_t n, cap;
	uint64_t wire_start; /* where the chunk begins in the class, bytes */
	bool is_all;
};

/* Emit a box: rows [at[0], +at[1]) and columns [at[2], +at[3]) of a segment, at their place in op
 * @op. */
static void emit(struct emitter *e, const struct wb_segment *s, uint32_t op, const uint32_t at[4])
{
	const struct wb_binding *b = e->b;
	const struct wb_op *o = &b->map->op[op];
	const struct wb_param *p = &b->map->param[o->param];
	const struct wb_tensor *t = &b->m->tensor[s->tensor];
	uint64_t row = s->row + (uint64_t)at[0] * s->row_step;
	uint64_t col = s->col + (uint64_t)at[2] * s->col_step;
	int64_t wire = (int64_t)wb_dtype_bytes(t->dtype), mem = (int64_t)wb_dtype_bytes(p->dtype);
	/* The step of an axis of one element means nothing, and need not be a multiple of the op's
	 * step. */
	int64_t row_skip = at[1] > 1 ? (int64_t)(s->row_step / o->row_step) : 0;
	int64_t col_skip = at[3] > 1 ? (int64_t)(s->col_step / o->col_step) : 0;
	int64_t dst = (int64_t)o->dst +
		      (int64_t)((row - o->row) / o->row_step) * o->dst_row_stride +
		      (int64_t)((col - o->col) / o->col_step) * o->dst_col_stride;
	bool is_exact;

	if (e->box && e->n < e->cap) {
		e->box[e->n] = (struct wbk_box){
			.wire_off = s->wire_off +
				    ((uint64_t)at[0] * s->n_col + at[2]) * (uint64_t)wire -
				    e->wire_start,
			.mem_off = (uint64_t)(dst * mem),
			.pos = t->byte_base + (row * t->cols + col) * (uint64_t)wire,
			.pos_row_stride = s->row_step * t->cols * (uint64_t)wire,
			.pos_col_stride = s->col_step * (uint64_t)wire,
			.row_stride = row_skip * o->dst_row_stride * mem,
			.col_stride = col_skip * o->dst_col_stride * mem,
			.repeat_stride = o->dst_repeat_stride * mem,
			.n_row = at[1],
			.n_col = at[3],
			.repeat = o->repeat,
			.wire_elem = (uint8_t)wire,
			.mem_elem = (uint8_t)mem,
			.cast = (uint8_t)wb_cast_between(t->dtype, p->dtype, &is_exact),
		};
		e->param[e->n] = o->param;
	}
	e->n++;
}

static void emit_all(
	struct emitter *e, const struct wb_segment *s, uint32_t bound, const uint32_t at[4])
{
	const struct wb_binding *b = e->b;

	for (uint32_t i = b->first[bound]; i < b->first[bound + 1]; i++) {
		emit(e, s, b->op[i], at);
		if (!e->is_all)
			break;
	}
}

/* Emit elements [begin, end) of a segment, counted in row-major order: the rest of a row, whole
 * rows, and the beginning of a row. */
static void emit_part(
	struct emitter *e, const struct wb_segment *s, uint32_t bound, uint64_t begin, uint64_t end)
{
	while (begin < end) {
		uint32_t row = (uint32_t)(begin / s->n_col), col = (uint32_t)(begin % s->n_col);
		uint64_t n_row = col ? 0 : (end - begin) / s->n_col;
		uint32_t n_col = (uint32_t)WB_MIN(s->n_col - col, end - begin);
		const uint32_t at[4] = {row, n_row ? (uint32_t)n_row : 1, col, n_col};

		emit_all(e, s, bound, at);
		begin += n_row ? n_row * s->n_col : n_col;
	}
}

static void emit_chunk(struct emitter *e, uint32_t cls, uint32_t chunk)
{
	const struct wb_plan *p = e->b->p;
	const struct wb_class *k = &p->cls[cls];
	uint64_t elem = wb_dtype_bytes((enum wb_dtype)k->dtype);
	uint64_t lo = (uint64_t)chunk * p->chunk_bytes, hi = lo + wb_chunk_len(p, k, chunk);
	uint32_t a = k->seg_begin, b = k->seg_end;

	e->wire_start = lo;
	e->n = 0;
	/* Find the last segment that begins at or before the chunk's first byte. */
	while (b - a > 1) {
		uint32_t mid = a + (b - a) / 2;

		if (p->segment[mid].wire_off <= lo)
			a = mid;
		else
			b = mid;
	}
	for (; a < k->seg_end && p->segment[a].wire_off < hi; a++) {
		const struct wb_segment *s = &p->segment[a];
		uint64_t bytes = (uint64_t)s->n_row * s->n_col * elem;
		uint64_t from = WB_MAX(lo, s->wire_off), to = WB_MIN(hi, s->wire_off + bytes);

		emit_part(e, s, e->b->base[cls] + (a - k->seg_begin), (from - s->wire_off) / elem,
			(to - s->wire_off) / elem);
	}
}

static void count_boxes(struct wb_binding *b)
{
	struct emitter e = {.b = b, .is_all = true};

	for (uint32_t c = 0; c < b->p->n_class; c++) {
		for (uint32_t i = 0; b->base[c] != UINT32_MAX && i < b->p->cls[c].n_chunk; i++) {
			emit_chunk(&e, c, i);
			b->boxes_max = WB_MAX(b->boxes_max, e.n);
		}
	}
}

static int bind_all(struct wb_binding *b, struct wb_err *err)
{
	const struct wb_plan *p = b->p;
	int rc = make_reach(b);

	b->base = wb_alloc((size_t)p->n_class * sizeof(*b->base));
	if (rc < 0 || !b->base)
		return wb_err_set(err, -ENOMEM, "binding of worker %" PRIu32, b->worker);
	for (uint32_t c = 0; c < p->n_class && !rc; c++) {
		const struct wb_class *k = &p->cls[c];

		b->base[c] = UINT32_MAX;
		if (wb_class_has_member(p, k, b->worker))
			rc = bind_class(b, c, err);
	}
	if (!rc)
		count_boxes(b);
	wb_free(b->reach);
	b->reach = NULL;
	return rc;
}

int wb_binding_create(const struct wb_plan *p, const struct wb_manifest *m,
	const struct wb_map *map, uint32_t worker, struct wb_binding **out, struct wb_err *err)
{
	struct wb_binding *b;
	int rc;

	assert(p && m && map && out && worker < p->n_worker);
	if (!wb_digest_eq(p->manifest, m->digest) || !wb_digest_eq(map->manifest, m->digest))
		return wb_err_set(err, WB_EPLAN, "the plan was made for another manifest");
	if (!wb_digest_eq(p->layout[p->worker[worker].layout], map->digest))
		return wb_err_set(err, WB_EPLAN,
			"the plan was made for another layout of worker %" PRIu32, worker);
	if (p->is_part && p->worker[worker].domain != p->domain)
		return wb_err_set(err, WB_EPLAN,
			"this part of the plan is not of the agent of worker %" PRIu32, worker);
	b = wb_zalloc(1, sizeof(*b));
	if (!b)
		return wb_err_set(err, -ENOMEM, "binding of worker %" PRIu32, worker);
	b->p = p;
	b->m = m;
	b->map = map;
	b->worker = worker;
	rc = bind_all(b, err);
	if (rc < 0) {
		wb_binding_destroy(b);
		return rc;
	}
	*out = b;
	return 0;
}

void wb_binding_destroy(struct wb_binding *b)
{
	if (!b)
		return;
	wb_free(b->base);
	wb_free(b->first);
	wb_free(b->op);
	wb_free(b->reach);
	wb_free(b);
}

int wb_binding_boxes(const struct wb_binding *b, uint32_t cls, uint32_t chunk, bool all,
	struct wbk_box *box, uint32_t *box_param, size_t cap)
{
	struct emitter e = {.b = b, .box = box, .param = box_param, .cap = cap, .is_all = all};

	wb_dassert(cls < b->p->n_class && b->base[cls] != UINT32_MAX);
	wb_dassert(chunk < b->p->cls[cls].n_chunk);
	emit_chunk(&e, cls, chunk);
	return e.n > cap || e.n > INT_MAX ? -E2BIG : (int)e.n;
}

size_t wb_binding_boxes_max(const struct wb_binding *b)
{
	return b->boxes_max;
}
