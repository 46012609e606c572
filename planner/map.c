/* SPDX-License-Identifier: Apache-2.0 */
/* Source maps: make, check, encode and decode them.  Also the table of casts. */
#include "planner/map.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "kernels/kernels.h"
#include "planner/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAP_MAGIC 0x504d4257u /* "WBMP" */
#define MAP_VERSION 1
#define PARAM_BYTES_MIN 21 /* name, dtype, ndim, span */
#define OP_BYTES 80
#define REGION_BYTES 40
#define SPAN_MAX (UINT64_C(1) << 60)

/* Does the op write only inside its parameter?  Products of 32 and 64 bits, and the sum of three,
 * fit in 128 bits. */
static bool op_in_param(const struct wb_op *o, const struct wb_param *p)
{
	__int128 lo = o->dst, hi = o->dst;
	const __int128 reach[] = {
		(__int128)(o->n_row - 1) * o->dst_row_stride,
		(__int128)(o->n_col - 1) * o->dst_col_stride,
		(__int128)(o->repeat - 1) * o->dst_repeat_stride,
	};

	for (size_t i = 0; i < WB_ARRAY_SIZE(reach); i++) {
		if (reach[i] < 0)
			lo += reach[i];
		else
			hi += reach[i];
	}
	return lo >= 0 && hi < (__int128)p->span;
}

static bool axis_in(uint64_t first, uint32_t n, uint32_t step, uint64_t size)
{
	return first < size && (uint64_t)(n - 1) * step < size - first;
}

static int check_op(const struct wb_manifest *m, const struct wb_map *map, const struct wb_op *o,
	struct wb_err *err)
{
	const struct wb_tensor *t;
	const struct wb_param *p;

	if (o->param >= map->n_param || o->tensor >= m->n)
		return wb_err_set(err, -EINVAL,
			"an op names parameter %" PRIu32 " of %" PRIu32 " and tensor %" PRIu32
			" of %" PRIu32,
			o->param, map->n_param, o->tensor, m->n);
	p = &map->param[o->param];
	t = &m->tensor[o->tensor];
	if (!o->n_row || !o->n_col || !o->repeat || !o->row_step || !o->col_step)
		return wb_err_set(err, -EINVAL,
			"parameter %s: an op of tensor %s has a count or "
			"step of 0",
			p->name, t->name);
	if (!axis_in(o->row, o->n_row, o->row_step, t->rows) ||
		!axis_in(o->col, o->n_col, o->col_step, t->cols))
		return wb_err_set(err, -EINVAL,
			"parameter %s: an op leaves tensor %s (%" PRIu64 " rows of %" PRIu64
			") at row %" PRIu64 ", column %" PRIu64,
			p->name, t->name, t->rows, t->cols, o->row, o->col);
	if (!op_in_param(o, p))
		return wb_err_set(err, -EINVAL,
			"parameter %s: an op of tensor %s at row %" PRIu64 ", column %" PRIu64
			" writes outside its %" PRIu64 " elements",
			p->name, t->name, o->row, o->col, p->span);
	return 0;
}

static int check_param(const struct wb_param *p, struct wb_err *err)
{
	if (!p->name || !p->name[0] || strlen(p->name) > WB_NAME_MAX)
		return wb_err_set(err, -EINVAL, "a parameter name is empty or longer than %d bytes",
			WB_NAME_MAX);
	if (!wb_dtype_bytes(p->dtype) || p->ndim > WB_NDIM_MAX || p->span > SPAN_MAX)
		return wb_err_set(err, -EINVAL,
			"parameter %s: unknown dtype, more than %d dimensions, or too large",
			p->name, WB_NDIM_MAX);
	return 0;
}

static int check_region(const struct wb_map *map, const struct wb_region *r, struct wb_err *err)
{
	const struct wb_param *p;

	if (r->param >= map->n_param)
		return wb_err_set(err, -EINVAL, "a region names parameter %" PRIu32 " of %" PRIu32,
			r->param, map->n_param);
	p = &map->param[r->param];
	if ((r->kind != WB_REGION_CONSTANT && r->kind != WB_REGION_UNWRITTEN) || !r->n_row ||
		!r->n_col ||
		(__int128)r->dst + (__int128)(r->n_row - 1) * r->row_stride + r->n_col >
			(__int128)p->span)
		return wb_err_set(err, -EINVAL,
			"parameter %s: a region at element %" PRIu64
			" is empty, of unknown kind or "
			"leaves its %" PRIu64 " elements",
			p->name, r->dst, p->span);
	return 0;
}

static int check_all(const struct wb_manifest *m, const struct wb_map *map, struct wb_err *err)
{
	int rc = 0;

	if (map->n_param > WB_PARAMS_MAX || map->n_op > WB_OPS_MAX || map->n_region > WB_OPS_MAX)
		return wb_err_set(err, -EINVAL,
			"a map of %" PRIu32 " parameters, %" PRIu32 " ops and %" PRIu32
			" regions is too large",
			map->n_param, map->n_op, map->n_region);
	for (uint32_t i = 0; i < map->n_param && !rc; i++)
		rc = check_param(&map->param[i], err);
	for (uint32_t i = 0; i < map->n_op && !rc; i++)
		rc = check_op(m, map, &map->op[i], err);
	for (uint32_t i = 0; i < map->n_region && !rc; i++)
		rc = check_region(map, &map->region[i], err);
	return rc;
}

/* A step or stride along an axis of one element means nothing: give it one value, so that equal ops
 * are encoded in the same way. */
static void canon_op(struct wb_op *o)
{
	if (o->n_row == 1) {
		o->row_step = 1;
		o->dst_row_stride = 0;
	}
	if (o->n_col == 1) {
		o->col_step = 1;
		o->dst_col_stride = 0;
	}
	if (o->repeat == 1)
		o->dst_repeat_stride = 0;
}

static void canon_region(struct wb_region *r)
{
	if (r->n_row == 1)
		r->row_stride = 0;
	if (r->kind != WB_REGION_CONSTANT)
		r->value = 0;
}

#define CMP(x, y)                                                                                  \
	do {                                                                                       \
		if ((x) != (y))                                                                    \
			return (x) < (y) ? -1 : 1;                                                 \
	} while (0)

static int by_source(const void *a, const void *b)
{
	const struct wb_op *x = a;
	const struct wb_op *y = b;

	CMP(x->tensor, y->tensor);
	CMP(x->row, y->row);
	CMP(x->col, y->col);
	CMP(x->param, y->param);
	CMP(x->dst, y->dst);
	CMP(x->n_row, y->n_row);
	CMP(x->n_col, y->n_col);
	CMP(x->row_step, y->row_step);
	CMP(x->col_step, y->col_step);
	CMP(x->dst_row_stride, y->dst_row_stride);
	CMP(x->dst_col_stride, y->dst_col_stride);
	CMP(x->dst_repeat_stride, y->dst_repeat_stride);
	CMP(x->repeat, y->repeat);
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct wb_region *x = a;
	const struct wb_region *y = b;

	CMP(x->param, y->param);
	CMP(x->dst, y->dst);
	CMP(x->kind, y->kind);
	CMP(x->row_stride, y->row_stride);
	CMP(x->n_row, y->n_row);
	CMP(x->n_col, y->n_col);
	CMP(x->value, y->value);
	return 0;
}

static int set_digest(struct wb_map *map, struct wb_err *err)
{
	struct wb_buf b;
	int rc;

	wb_buf_init(&b, SIZE_MAX / 2);
	rc = wb_map_encode(map, &b);
	if (rc < 0)
		wb_err_set(err, rc, "map of %" PRIu32 " ops", map->n_op);
	else
		map->digest = wb_digest_of(b.data, b.len);
	wb_buf_finish(&b);
	return rc;
}

int wb_map_create(
	const struct wb_manifest *m, struct wb_map *map, struct wb_map **out, struct wb_err *err)
{
	struct wb_map *made;
	int rc;

	assert(m && map && out);
	rc = check_all(m, map, err);
	if (rc < 0)
		return rc;
	made = wb_alloc(sizeof(*made));
	if (!made)
		return wb_err_set(err, -ENOMEM, "map of %" PRIu32 " ops", map->n_op);
	for (uint32_t i = 0; i < map->n_op; i++)
		canon_op(&map->op[i]);
	for (uint32_t i = 0; i < map->n_region; i++)
		canon_region(&map->region[i]);
	if (map->n_op)
		qsort(map->op, map->n_op, sizeof(*map->op), by_source);
	if (map->n_region)
		qsort(map->region, map->n_region, sizeof(*map->region), by_place);
	map->manifest = m->digest;
	*made = *map;
	rc = set_digest(made, err);
	if (rc < 0) {
		wb_free(made);
		return rc;
	}
	*out = made;
	return 0;
}

void wb_map_destroy(struct wb_map *map)
{
	if (!map)
		return;
	for (uint32_t i = 0; map->param && i < map->n_param; i++)
		wb_free(map->param[i].name);
	wb_free(map->param);
	wb_free(map->op);
	wb_free(map->region);
	wb_free(map);
}

static void put_op(struct wb_buf *b, const struct wb_op *o)
{
	wb_buf_u32(b, o->param);
	wb_buf_u32(b, o->tensor);
	wb_buf_u64(b, o->dst);
	wb_buf_u64(b, o->row);
	wb_buf_u64(b, o->col);
	wb_buf_u32(b, o->n_row);
	wb_buf_u32(b, o->n_col);
	wb_buf_u32(b, o->row_step);
	wb_buf_u32(b, o->col_step);
	wb_buf_u64(b, (uint64_t)o->dst_row_stride);
	wb_buf_u64(b, (uint64_t)o->dst_col_stride);
	wb_buf_u64(b, (uint64_t)o->dst_repeat_stride);
	wb_buf_u32(b, o->repeat);
	wb_buf_u32(b, 0);
}

int wb_map_encode(const struct wb_map *map, struct wb_buf *out)
{
	wb_buf_u32(out, MAP_MAGIC);
	wb_buf_u32(out, MAP_VERSION);
	wb_buf_u64(out, map->manifest.hi);
	wb_buf_u64(out, map->manifest.lo);
	wb_buf_u32(out, map->n_param);
	wb_buf_u32(out, map->n_op);
	wb_buf_u32(out, map->n_region);
	wb_buf_u32(out, 0);
	for (uint32_t i = 0; i < map->n_param; i++) {
		const struct wb_param *p = &map->param[i];

		wb_buf_str(out, p->name);
		wb_buf_u32(out, p->dtype);
		wb_buf_u32(out, p->ndim);
		for (uint32_t d = 0; d < p->ndim; d++) {
			wb_buf_u64(out, p->shape[d]);
			wb_buf_u64(out, (uint64_t)p->stride[d]);
		}
		wb_buf_u64(out, p->span);
	}
	for (uint32_t i = 0; i < map->n_op; i++)
		put_op(out, &map->op[i]);
	for (uint32_t i = 0; i < map->n_region; i++) {
		const struct wb_region *r = &map->region[i];

		wb_buf_u32(out, r->param);
		wb_buf_u32(out, r->kind);
		wb_buf_u64(out, r->dst);
		wb_buf_u64(out, r->row_stride);
		wb_buf_u32(out, r->n_row);
		wb_buf_u32(out, r->n_col);
		wb_buf_u64(out, r->value);
	}
	return out->rc;
}

static int read_param(struct wb_cursor *c, struct wb_param *p)
{
	int rc = wb__name_read(c, &p->name);
	uint32_t dtype;

	if (rc < 0)
		return rc;
	dtype = wb_cur_u32(c);
	p->ndim = wb_cur_u32(c);
	if (c->bad || dtype >= WB_DT_COUNT || p->ndim > WB_NDIM_MAX)
		return -EBADMSG;
	p->dtype = (enum wb_dtype)dtype;
	for (uint32_t d = 0; d < p->ndim; d++) {
		p->shape[d] = wb_cur_u64(c);
		p->stride[d] = (int64_t)wb_cur_u64(c);
	}
	p->span = wb_cur_u64(c);
	return c->bad ? -EBADMSG : 0;
}

/* Read an op.  False: it is not in canonical form, or out of order. */
static bool read_op(struct wb_cursor *c, struct wb_op *o, const struct wb_op *before)
{
	struct wb_op canon;
	uint32_t zero;

	o->param = wb_cur_u32(c);
	o->tensor = wb_cur_u32(c);
	o->dst = wb_cur_u64(c);
	o->row = wb_cur_u64(c);
	o->col = wb_cur_u64(c);
	o->n_row = wb_cur_u32(c);
	o->n_col = wb_cur_u32(c);
	o->row_step = wb_cur_u32(c);
	o->col_step = wb_cur_u32(c);
	o->dst_row_stride = (int64_t)wb_cur_u64(c);
	o->dst_col_stride = (int64_t)wb_cur_u64(c);
	o->dst_repeat_stride = (int64_t)wb_cur_u64(c);
	o->repeat = wb_cur_u32(c);
	zero = wb_cur_u32(c);
	canon = *o;
	canon_op(&canon);
	return !c->bad && !zero && !by_source(&canon, o) && (!before || by_source(before, o) <= 0);
}

static bool read_region(struct wb_cursor *c, struct wb_region *r, const struct wb_region *before)
{
	struct wb_region canon;
	uint32_t kind;

	r->param = wb_cur_u32(c);
	kind = wb_cur_u32(c);
	if (kind != WB_REGION_CONSTANT && kind != WB_REGION_UNWRITTEN)
		return false;
	r->kind = (enum wb_region_kind)kind;
	r->dst = wb_cur_u64(c);
	r->row_stride = wb_cur_u64(c);
	r->n_row = wb_cur_u32(c);
	r->n_col = wb_cur_u32(c);
	r->value = wb_cur_u64(c);
	canon = *r;
	canon_region(&canon);
	return !c->bad && !by_place(&canon, r) && (!before || by_place(before, r) <= 0);
}

static int read_arrays(struct wb_cursor *c, struct wb_map *map, struct wb_err *err)
{
	for (uint32_t i = 0; i < map->n_param; i++) {
		int rc = read_param(c, &map->param[i]);

		if (rc < 0)
			return wb_err_set(err, rc, "map: parameter %" PRIu32 " is damaged", i);
	}
	for (uint32_t i = 0; i < map->n_op; i++)
		if (!read_op(c, &map->op[i], i ? &map->op[i - 1] : NULL))
			return wb_err_set(err, -EBADMSG, "map: op %" PRIu32 " is damaged", i);
	for (uint32_t i = 0; i < map->n_region; i++)
		if (!read_region(c, &map->region[i], i ? &map->region[i - 1] : NULL))
			return wb_err_set(err, -EBADMSG, "map: region %" PRIu32 " is damaged", i);
	if (wb_cur_left(c))
		return wb_err_set(err, -EBADMSG, "map: bytes after the last region");
	return 0;
}

static int read_header(struct wb_cursor *c, struct wb_map *map, struct wb_err *err)
{
	uint32_t magic = wb_cur_u32(c), version = wb_cur_u32(c), zero;

	map->manifest.hi = wb_cur_u64(c);
	map->manifest.lo = wb_cur_u64(c);
	map->n_param = wb_cur_count(c, WB_PARAMS_MAX, PARAM_BYTES_MIN);
	map->n_op = wb_cur_count(c, WB_OPS_MAX, OP_BYTES);
	map->n_region = wb_cur_count(c, WB_OPS_MAX, REGION_BYTES);
	zero = wb_cur_u32(c);
	if (c->bad || magic != MAP_MAGIC || version != MAP_VERSION || zero)
		return wb_err_set(err, -EBADMSG, "not a source map of format %d", MAP_VERSION);
	return 0;
}

int wb_map_decode(const struct wb_manifest *m, const void *p, size_t bytes, struct wb_map **out,
	struct wb_err *err)
{
	struct wb_cursor c = wb_cursor(p, bytes);
	struct wb_map *map = wb_zalloc(1, sizeof(*map));
	int rc;

	if (!map)
		return wb_err_set(err, -ENOMEM, "source map");
	rc = read_header(&c, map, err);
	if (!rc && !wb_digest_eq(map->manifest, m->digest))
		rc = wb_err_set(err, -EBADMSG, "the source map belongs to another manifest");
	if (rc < 0)
		goto destroy_map;
	map->param = wb_zalloc(map->n_param, sizeof(*map->param));
	map->op = wb_zalloc(map->n_op, sizeof(*map->op));
	map->region = wb_zalloc(map->n_region, sizeof(*map->region));
	if (!map->param || !map->op || !map->region) {
		rc = wb_err_set(err, -ENOMEM, "source map of %" PRIu32 " ops", map->n_op);
		goto destroy_map;
	}
	rc = read_arrays(&c, map, err);
	if (!rc && check_all(m, map, err) < 0) {
		rc = -EBADMSG;
		if (err)
			err->code = rc;
	}
	if (rc < 0)
		goto destroy_map;
	map->digest = wb_digest_of(p, bytes);
	*out = map;
	return 0;
destroy_map:
	wb_map_destroy(map);
	return rc;
}

int wb_cast_between(enum wb_dtype wire, enum wb_dtype param, bool *is_exact)
{
	static const struct {
		enum wb_dtype wire, param;
		enum wbk_cast cast;
		bool is_exact;
	} rows[] = {
		{WB_BF16, WB_F32, WBK_BF16_TO_F32, true},
		{WB_F32, WB_BF16, WBK_F32_TO_BF16, false},
		{WB_F16, WB_F32, WBK_F16_TO_F32, true},
		{WB_F32, WB_F16, WBK_F32_TO_F16, false},
		{WB_BF16, WB_F16, WBK_BF16_TO_F16, false},
		{WB_F16, WB_BF16, WBK_F16_TO_BF16, false},
	};

	if (wire == param && wb_dtype_bytes(wire)) {
		*is_exact = true;
		return WBK_COPY;
	}
	for (size_t i = 0; i < WB_ARRAY_SIZE(rows); i++) {
		if (rows[i].wire != wire || rows[i].param != param)
			continue;
		*is_exact = rows[i].is_exact;
		return rows[i].cast;
	}
	return -ENOTSUP;
}
