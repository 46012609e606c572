/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the second differences of parameters on devices. */
#include "base/base.h"
#include "base/mem.h"
#include "extract/table.h"

#include <errno.h>

/* Slabs of one parameter, which are fetched some at a time: as many as their hits have room for. */
struct slabs {
	struct wb__slabs base; /* first, so that this is one */
	struct wb__dev *d;
	const struct wb__param *a;
	const uint8_t *ones; /* a row of ones on the device, read instead of the content; or NULL */
	uint64_t begin, end; /* slabs whose records are in recs */
	uint64_t step; /* how many are tried next */
	struct wb__recs recs; /* their indices are of the whole parameter */
	uint64_t at; /* the first record that was not handed out */
	bool is_over;
	struct wb__bad bad;
};

static struct wbk_diff2 item_of(const struct slabs *s, uint64_t slab)
{
	const struct wb__param *a = s->a;
	const struct wb__geom *g = &a->geom;
	bool is_wide = s->d->p->is_mixed && a->dtype == WB_F16 && !s->ones;
	uint64_t index = slab * g->rows * g->cols;
	struct wbk_diff2 item = {
		.f = {.data = a->data + wb__geom_row(g, slab * g->rows) * a->elem_bytes,
			.rows = g->rows,
			.cols = g->cols,
			.row_stride = g->stride[g->n_axis - 2],
			.code = (uint8_t)(is_wide ? WBK_CODE_F32 : a->code)},
		.row_end = g->rows,
		.is_wide = is_wide};

	if (a->kept.cls)
		item.f.cls = (void *)(uintptr_t)(a->kept.cls + index);
	if (s->ones) {
		item.f.data = s->ones;
		item.f.row_stride = 0;
		item.f.code = WBK_CODE_I8;
	}
	return item;
}

/* ---- slabs, some at a time ------------------------------------------------------------------- */

static int put_recs(struct slabs *s, const struct wbk_hit *hit, size_t n, uint64_t index)
{
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++)
		rc = wb__recs_put(&s->recs,
			&(struct wbk_record){hit[i].index + index, hit[i].value}, 1, SIZE_MAX / 64);
	return rc;
}

static int take_slab(struct wb__scan *scan, const void *item, struct wb__param *a,
	const struct wbk_found *f, const struct wbk_hit *hit, size_t n_hit)
{
	struct slabs *s = scan->ctx;
	uint64_t index = s->end * a->geom.rows * a->geom.cols;

	(void)item;
	s->is_over |= f->is_over != 0;
	if (s->is_over)
		return 0;
	wb__bad_add(&s->bad, &f->a, index);
	s->end++;
	return put_recs(s, hit, n_hit, index);
}

static int take_rows(struct wb__scan *scan, const void *item, struct wb__param *a,
	const struct wbk_found *f, const struct wbk_hit *hit, size_t n_hit)
{
	struct slabs *s = scan->ctx;
	uint64_t index = s->begin * a->geom.rows * a->geom.cols;

	(void)item;
	s->is_over = f->is_over != 0;
	if (s->is_over)
		return 0;
	wb__bad_add(&s->bad, &f->a, index);
	return put_recs(s, hit, n_hit, index);
}

/* Do rows of one slab; if their hits have no room, do each half of the rows alone. */
static int do_rows(struct slabs *s, struct wbk_diff2 *item)
{
	struct wb__scan scan = {.d = s->d,
		.which = WBK_GPU_DIFF2,
		.item_bytes = sizeof(*item),
		.found = take_rows,
		.ctx = s};
	uint64_t begin = item->row_begin, end = item->row_end;
	int rc =
		wb__scan_add(&scan, item, &(struct wb__extent){end - begin, item->f.cols, 1}, s->a);

	if (!rc)
		rc = wb__scan_flush(&scan);
	if (rc || !s->is_over)
		return rc;
	if (s->recs.n > s->base.max)
		return -E2BIG;
	if (end - begin == 1)
		return wb__dev_says(s->d, -ENOMEM,
			"a row of a parameter changes in more places than there is room for");
	item->row_end = begin + (end - begin) / 2;
	rc = do_rows(s, item);
	item->row_begin = begin + (end - begin) / 2;
	item->row_end = end;
	return rc ? rc : do_rows(s, item);
}

/* Fetch slabs from @slab on, as many as have room, but at least one. */
static int fetch(struct slabs *s, uint64_t slab)
{
	struct wb__scan scan = {.d = s->d,
		.which = WBK_GPU_DIFF2,
		.item_bytes = sizeof(struct wbk_diff2),
		.found = take_slab,
		.ctx = s};
	uint64_t n = WB_MIN(s->step, s->a->geom.slabs - slab);
	struct wbk_diff2 item;
	int rc = 0;

	s->recs.n = s->at = 0;
	s->begin = s->end = slab;
	s->is_over = false;
	for (uint64_t i = 0; i < n && !rc; i++) {
		item = item_of(s, slab + i);
		rc = wb__scan_add(
			&scan, &item, &(struct wb__extent){item.f.rows, item.f.cols, 1}, s->a);
	}
	if (!rc)
		rc = wb__scan_flush(&scan);
	if (rc || s->end > slab) {
		s->step = s->is_over ? WB_MAX(s->end - slab, 1) : s->step;
		return rc;
	}
	item = item_of(s, slab);
	rc = do_rows(s, &item);
	s->end = slab + 1;
	return rc;
}

static int get_slab(struct wb__slabs *base, uint64_t slab, struct wb__recs *out)
{
	struct slabs *s = (struct slabs *)base;
	uint64_t index = slab * base->g->rows * base->g->cols;
	uint64_t end = index + base->g->rows * base->g->cols, first;
	int rc = slab >= s->end || slab < s->begin ? fetch(s, slab) : 0;

	if (rc)
		return rc;
	first = s->at;
	while (s->at < s->recs.n && s->recs.r[s->at].index < end)
		s->recs.r[s->at++].index -= index;
	return wb__recs_put(out, s->recs.r + first, s->at - first, base->max);
}

static struct slabs slabs_of(struct wb__dev *d, const struct wb__param *a, uint64_t max)
{
	return (struct slabs){
		.base = {get_slab, &a->geom, max}, .d = d, .a = a, .step = WB__TABLE_ITEMS};
}

/* ---- passes of digits ------------------------------------------------------------------------ */

static int take_digits(struct wb__scan *s, const void *item, struct wb__param *a,
	const struct wbk_found *f, const struct wbk_hit *hit, size_t n_hit)
{
	struct wb_probe *p = s->d->p;
	struct wb__recs all = {0};
	int rc = 0;

	(void)item;
	a->is_again = f->is_over && f->n_hit <= p->opts.record_max;
	if (a->is_again)
		return 0;
	a->is_over |= f->n_hit > p->opts.record_max;
	if (a->is_over)
		return 0;
	wb__bad_add(&a->bad, &f->a, 0);
	for (size_t i = 0; i < n_hit && !rc; i++)
		rc = wb__recs_put(&all, &(struct wbk_record){hit[i].index, hit[i].value}, 1,
			p->opts.record_max);
	if (!rc)
		return wb__digits_add(p, a, &all);
	wb__recs_finish(&all);
	return rc;
}

/* Do one parameter alone: it has more than one slab, or its hits had no room beside those of
 * others. */
static int do_alone(struct wb__dev *d, struct wb__param *a)
{
	struct slabs s = slabs_of(d, a, d->p->opts.record_max);
	struct wb__recs all = {0};
	int rc = wb__digits_nd(&s.base, &all);

	wb__recs_finish(&s.recs);
	if (!rc) {
		wb__digits_bad(a, &s.bad);
		return wb__digits_add(d->p, a, &all);
	}
	wb__recs_finish(&all);
	a->is_over |= rc == -E2BIG;
	return rc == -E2BIG ? 0 : rc;
}

static int digits(struct wb__dev *d, void *ctx)
{
	struct wb__scan s = wb__scan_of(d, WBK_GPU_DIFF2, sizeof(struct wbk_diff2));
	int rc = 0;

	(void)ctx;
	s.found = take_digits;
	for_on_device (d, a) {
		struct slabs one = slabs_of(d, a, 0);
		struct wbk_diff2 item;

		if (rc || !wb__takes_part(a) || a->is_over)
			continue;
		a->is_again = a->geom.slabs > 1;
		if (a->is_again)
			continue;
		item = item_of(&one, 0);
		rc = wb__scan_add(&s, &item, &(struct wb__extent){item.f.rows, item.f.cols, 1}, a);
	}
	if (!rc)
		rc = wb__scan_flush(&s);
	for_on_device (d, a)
		if (!rc && wb__takes_part(a) && !a->is_over && a->is_again)
			rc = do_alone(d, a);
	return rc;
}

int wb__dev_digits(struct wb_probe *p)
{
	return wb__dev_each(p, digits, NULL);
}

/* ---- what is a copy -------------------------------------------------------------------------- */

struct indicator {
	const struct wb__param *a;
	struct wb__recs *out;
};

static int indicator(struct wb__dev *d, void *ctx)
{
	struct indicator *x = ctx;
	struct slabs s = slabs_of(d, x->a, SIZE_MAX / 64);
	struct wb__store ones = {0};
	uint8_t code;
	int rc = wb__store_get(d, x->a->geom.cols, false, &ones);

	wbk_encode_fill(WBK_CODE_I8, 1, &code, 1);
	if (!rc)
		rc = wb__dev_fails(d, d->gpu->cu->fill(ones.addr, code, x->a->geom.cols, d->stream),
			"cuMemsetD8Async");
	s.ones = (void *)(uintptr_t)ones.addr;
	if (!rc)
		rc = wb__digits_nd(&s.base, x->out);
	wb__recs_finish(&s.recs);
	wb__store_put(d, &ones);
	return rc;
}

int wb__dev_indicator(struct wb_probe *p, const struct wb__param *a, struct wb__recs *out)
{
	struct indicator x = {a, out};

	(void)p;
	return wb__dev_do(a->dev, indicator, &x);
}
