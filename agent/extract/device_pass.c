/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of passes for parameters on devices: content, counts, the sentinel, the hash pass. */
#include "base/base.h"
#include "extract/table.h"

/* ---- sums of content ------------------------------------------------------------------------- */

static uint64_t hash_of(const struct wb__param *a)
{
	return a->kept.sum.lane[0] ^ (a->kept.sum.lane[1] << 32 | a->kept.sum.lane[1] >> 32);
}

/* Sum the content of LEFT parameters into kept.sum. */
static int sum_left(struct wb__dev *d)
{
	struct wb__moves m = {.d = d, .way = WBK_WAY_SUM};
	int rc = 0;

	for_on_device (d, a) {
		if (a->state != WB__LEFT || !a->geom.total || rc)
			continue;
		a->kept.sum = (struct wbk_sum){{0, 0}};
		rc = wb__moves_add(&m, a, a->data, 0, NULL);
	}
	return rc ? rc : wb__moves_flush(&m);
}

static int left(struct wb__dev *d, void *ctx)
{
	int rc = sum_left(d);

	(void)ctx;
	for_on_device (d, a)
		if (!rc && a->state == WB__LEFT)
			a->hash = hash_of(a);
	return rc;
}

int wb__dev_left(struct wb_probe *p)
{
	return wb__dev_each(p, left, NULL);
}

int wb__check_left(struct wb__dev *d, void (*changed)(struct wb_probe *p, struct wb__param *a))
{
	int rc = sum_left(d);

	for_on_device (d, a)
		if (!rc && a->state == WB__LEFT && a->geom.total && hash_of(a) != a->hash)
			changed(d->p, a);
	return rc;
}

/* ---- counting -------------------------------------------------------------------------------- */

static void like_at(void *item, const struct wb__param *a, uint64_t index)
{
	struct wbk_equal *q = item;

	q->like = a->has_snapshot ? (void *)(uintptr_t)(a->kept.before + index * a->elem_bytes)
				  : NULL;
}

static void no_like_at(void *item, const struct wb__param *a, uint64_t index)
{
	(void)a;
	(void)index;
	((struct wbk_equal *)item)->like = NULL;
}

int wb__count_take(struct wb__scan *s, const void *item, struct wb__param *a,
	const struct wbk_found *f, const struct wbk_hit *hit, size_t n_hit)
{
	const struct wbk_equal *q = item;

	(void)s;
	(void)hit;
	(void)n_hit;
	a->n_equal += q->p.rows * q->p.cols - f->a.n;
	a->n_unlike += f->b.n;
	return 0;
}

int wb__count_one(struct wb__scan *s, struct wb__param *a, const struct wb__count *c)
{
	struct wbk_equal item = {.want = wb__const_raw(a->dtype, c->kind)};

	a->n_equal = a->n_unlike = 0;
	return wb__scan_planes(s, &item, a, c->has_like ? like_at : no_like_at);
}

int wb__count_all(struct wb__dev *d, void *ctx)
{
	struct wb__scan s = wb__scan_of(d, WBK_GPU_EQUAL, sizeof(struct wbk_equal));
	int rc = 0;

	s.found = wb__count_take;
	for_on_device (d, a)
		if (!rc && wb__takes_part(a))
			rc = wb__count_one(&s, a, ctx);
	return rc ? rc : wb__scan_flush(&s);
}

int wb__dev_count(struct wb_probe *p, enum wb_pass_kind kind)
{
	struct wb__count c = {kind, false};

	return wb__dev_each(p, wb__count_all, &c);
}

static int equals(struct wb__dev *d, void *ctx)
{
	struct wb__scan s = wb__scan_of(d, WBK_GPU_EQUAL, sizeof(struct wbk_equal));
	struct wb__count c = {WB_PASS_CONST, true};
	int rc;

	s.found = wb__count_take;
	rc = wb__count_one(&s, ctx, &c);
	return rc ? rc : wb__scan_flush(&s);
}

bool wb__dev_equals_snapshot(struct wb_probe *p, const struct wb__param *a)
{
	struct wb__param *x = &p->param[a - p->param];

	return a->data && !wb__dev_do(a->dev, equals, x) && !x->n_unlike;
}

/* ---- after the first pass of constants ------------------------------------------------------- */

/* Does the parameter have elements that do not hold the first constant?  Its content is needed once
 * more after the second pass. */
static bool has_rest(const struct wb__param *a)
{
	return a->state == WB__ACTIVE && a->geom.total && a->n_equal != a->geom.total;
}

static int keep_rest(struct wb__dev *d)
{
	struct wb__moves m = {.d = d, .way = WBK_WAY_PACK};
	uint64_t bytes = 0;
	int rc = 0;

	assert(!d->was.addr); /* a probe runs this pass once */
	for_on_device (d, a)
		if (has_rest(a))
			bytes += wb__room(wb__dense_bytes(a));
	if (bytes)
		rc = wb__store_get(d, bytes, true, &d->was);
	bytes = d->was.addr;
	for_on_device (d, a) {
		a->kept.was = 0;
		if (rc || !has_rest(a))
			continue;
		a->kept.was = bytes;
		bytes += wb__room(wb__dense_bytes(a));
		rc = wb__moves_add(&m, a, a->data, a->kept.was, &d->was);
	}
	return rc ? rc : wb__moves_flush(&m);
}

static int first(struct wb__dev *d, void *ctx)
{
	int rc = wb__count_all(d, ctx);

	for_on_device (d, a) {
		if (rc || !has_rest(a) || a->n_equal || (a->has_snapshot && a->n_unlike))
			continue;
		a->state = WB__LEFT;
		rc = wb__region_whole(a, (uint32_t)(a - d->p->param), WB_REGION_UNWRITTEN);
	}
	if (!rc)
		rc = left(d, NULL);
	return rc ? rc : keep_rest(d);
}

int wb__dev_first(struct wb_probe *p)
{
	struct wb__count c = {WB_PASS_CONST, true};

	return wb__dev_each(p, first, &c);
}

/* ---- the sentinel ---------------------------------------------------------------------------- */

static int prefill(struct wb__dev *d, void *ctx)
{
	struct wb__scan s = wb__scan_of(d, WBK_GPU_PUT, sizeof(struct wbk_put));
	int rc = 0;

	(void)ctx;
	for_on_device (d, a) {
		struct wbk_put item = {.value = wb__sentinel_raw(a->dtype)};

		if (!rc && wb__is_prefilled(d->p, a))
			rc = wb__scan_planes(&s, &item, a, NULL);
	}
	return rc ? rc : wb__scan_flush(&s);
}

int wb__dev_prefill(struct wb_probe *p)
{
	return wb__dev_each(p, prefill, NULL);
}

/* ---- the hash pass --------------------------------------------------------------------------- */

static int take_check(struct wb__scan *s, const void *item, struct wb__param *a,
	const struct wbk_found *f, const struct wbk_hit *hit, size_t n_hit)
{
	(void)item;
	(void)hit;
	(void)n_hit;
	if (f->a.n)
		wb__ledger(s->d->p, a, f->a.first, f->a.n);
	return 0;
}

static int check_op(struct wb__scan *s, const struct wb__param *a, const struct wb_op *o)
{
	const struct wb_probe *p = s->d->p;
	const struct wb_tensor *k = &p->manifest->tensor[o->tensor];
	bool is_exact = true;
	struct wbk_check item = {.data = a->data + o->dst * a->elem_bytes,
		.row_stride = o->dst_row_stride,
		.col_stride = o->dst_col_stride,
		.repeat_stride = o->dst_repeat_stride,
		.at = o->dst,
		.row = k->row_base + o->row,
		.col = o->col,
		.rows = o->n_row,
		.cols = o->n_col,
		.repeat = WB_MAX(o->repeat, 1),
		.row_step = o->row_step,
		.col_step = o->col_step,
		.wire_elem = (uint8_t)wb_dtype_bytes(k->dtype),
		.mem_elem = (uint8_t)a->elem_bytes,
		.cast = (uint8_t)wb_cast_between(k->dtype, a->dtype, &is_exact),
		.id = {.seed = p->opts.seed + p->hash_done,
			.mask = wb__code_mask(p, k->dtype),
			.code = (uint8_t)wb__code_of(k->dtype),
			.is_mixed = p->is_mixed,
			.kind = WBK_ID_HASH}};

	item.is_lossy = !is_exact;
	return wb__scan_add(s, &item, &(struct wb__extent){item.rows, item.cols, item.repeat}, a);
}

static int check_ops(struct wb__dev *d)
{
	struct wb__scan s = wb__scan_of(d, WBK_GPU_CHECK, sizeof(struct wbk_check));
	int rc = 0;

	s.found = take_check;
	for_on_device (d, a)
		for (size_t i = 0; a->state == WB__ACTIVE && i < a->n_op && !rc; i++)
			rc = check_op(&s, a, &a->op[i]);
	return rc ? rc : wb__scan_flush(&s);
}

/* Constants must still be there, and unwritten elements must still hold the sentinel. */
static int take_region(struct wb__scan *s, const void *item, struct wb__param *a,
	const struct wbk_found *f, const struct wbk_hit *hit, size_t n_hit)
{
	const struct wbk_equal *q = item;
	uint64_t dst = (uint64_t)((const uint8_t *)q->p.data - a->data) / a->elem_bytes;

	(void)hit;
	(void)n_hit;
	if (f->a.n)
		wb__ledger(s->d->p, a,
			dst + f->a.first / q->p.cols * (uint64_t)q->p.row_stride +
				f->a.first % q->p.cols,
			f->a.n);
	return 0;
}

static int check_region(struct wb__scan *s, const struct wb__param *a, const struct wb_region *r)
{
	struct wbk_equal item = {.p = {.data = a->data + r->dst * a->elem_bytes,
					 .rows = r->n_row,
					 .cols = r->n_col,
					 .row_stride = (int64_t)r->row_stride,
					 .row_end = r->n_row,
					 .elem = (uint8_t)a->elem_bytes},
		.want = r->kind == WB_REGION_CONSTANT ? (uint32_t)r->value
						      : wb__sentinel_raw(a->dtype)};

	if (r->kind == WB_REGION_UNWRITTEN && a->is_merged)
		return 0;
	return wb__scan_add(s, &item, &(struct wb__extent){r->n_row, r->n_col, 1}, a);
}

static int check_regions(struct wb__dev *d)
{
	struct wb__scan s = wb__scan_of(d, WBK_GPU_EQUAL, sizeof(struct wbk_equal));
	int rc = 0;

	s.found = take_region;
	for_on_device (d, a)
		for (size_t i = 0; a->state == WB__ACTIVE && i < a->n_region && !rc; i++)
			rc = check_region(&s, a, &a->region[i]);
	return rc ? rc : wb__scan_flush(&s);
}

static void left_written(struct wb_probe *p, struct wb__param *a)
{
	wb__ledger(p, a, 0, a->geom.total);
}

static int verify(struct wb__dev *d, void *ctx)
{
	int rc = check_ops(d);

	(void)ctx;
	if (!rc)
		rc = check_regions(d);
	return rc ? rc : wb__check_left(d, left_written);
}

int wb__dev_verify(struct wb_probe *p)
{
	return wb__dev_each(p, verify, NULL);
}
