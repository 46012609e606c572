/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the classes of the elements of parameters on devices, and makes regions of them. */
#include "base/base.h"
#include "extract/table.h"

#include <errno.h>

/* ---- after the second pass of constants ------------------------------------------------------ */

/* What has been found for the parameter whose items come now. */
struct classes {
	struct wb__param *a; /* NULL: none yet */
	struct wb__found found;
	struct wb__regions regions;
	int rc; /* of its regions; -E2BIG: scan it again, in parts */
};

static struct wbk_classify classify_item(const struct wb__param *a)
{
	return (struct wbk_classify){.first = wb__const_raw(a->dtype, WB_PASS_CONST),
		.second = wb__const_raw(a->dtype, WB_PASS_CONST_B),
		.sentinel = wb__sentinel_raw(a->dtype),
		.is_merged = a->is_merged};
}

static void classes_at(void *item, const struct wb__param *a, uint64_t index)
{
	struct wbk_classify *k = item;
	uint64_t at = index * a->elem_bytes;

	k->was = a->kept.was ? (void *)(uintptr_t)(a->kept.was + at) : NULL;
	k->before = a->has_snapshot ? (void *)(uintptr_t)(a->kept.before + at) : NULL;
	k->cls = (void *)(uintptr_t)(a->kept.cls + index);
}

/* Number of the item's first element in the parameter. */
static uint64_t index_of(const struct wb__param *a, const struct wbk_classify *k)
{
	return (uint64_t)(uintptr_t)k->cls - a->kept.cls;
}

/* Add the run from a hit to the next one of its row: hits are where the class changes. */
static int put_hit(struct classes *c, const struct wbk_classify *k, const struct wbk_hit *h,
	const struct wbk_hit *next)
{
	const struct wb__geom *g = &c->a->geom;
	uint64_t row = h->index / g->cols, index = index_of(c->a, k);
	struct wb__region_run run = {.row = row + index / g->cols,
		.col = h->index % g->cols,
		.col_end = next && next->index / g->cols == row ? next->index % g->cols : g->cols};

	if (h->value == WBK_CLASS_COPY)
		return 0;
	if (!k->is_merged && (h->value & 0xff) == WBK_CLASS_CONSTANT) {
		run.is_constant = true;
		run.value = (uint64_t)h->value >> 8;
	}
	return wb__regions_run(&c->regions, &run);
}

static int put_hits(
	struct classes *c, const struct wbk_classify *k, const struct wbk_hit *hit, size_t n)
{
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++)
		rc = put_hit(c, k, &hit[i], i + 1 < n ? &hit[i + 1] : NULL);
	return rc;
}

/* ---- one parameter in parts: too many hits for all of it, or constants merged ---- */

struct parts {
	struct classes *c;
	bool is_over;
};

static int take_part(struct wb__scan *s, const void *item, struct wb__param *a,
	const struct wbk_found *f, const struct wbk_hit *hit, size_t n_hit)
{
	struct parts *p = s->ctx;

	(void)a;
	p->is_over = f->is_over;
	return f->is_over ? 0 : put_hits(p->c, item, hit, n_hit);
}

/* Do rows of one slab; if their hits have no room, do each half of the rows alone. */
static int do_rows(struct wb__dev *d, struct classes *c, struct wbk_classify *item)
{
	struct parts p = {c, false};
	struct wb__scan s = wb__scan_of(d, WBK_GPU_CLASSIFY, sizeof(*item));
	uint64_t begin = item->p.row_begin, end = item->p.row_end;
	int rc;

	s.found = take_part;
	s.ctx = &p;
	rc = wb__scan_add(&s, item, &(struct wb__extent){end - begin, item->p.cols, 1}, c->a);
	if (!rc)
		rc = wb__scan_flush(&s);
	if (rc || !p.is_over)
		return rc;
	if (end - begin == 1)
		return wb__dev_says(d, -ENOMEM,
			"a row of a parameter changes in more places than there is room for");
	item->p.row_end = begin + (end - begin) / 2;
	rc = do_rows(d, c, item);
	item->p.row_begin = begin + (end - begin) / 2;
	item->p.row_end = end;
	return rc ? rc : do_rows(d, c, item);
}

static int do_parts(struct wb__dev *d, struct wb__param *a)
{
	struct classes c = {.a = a};
	int rc = 0;

	wb__regions_begin(&c.regions, a, (uint32_t)(a - d->p->param));
	for (uint64_t i = 0; i < a->geom.slabs && !rc; i++) {
		struct wbk_classify item = classify_item(a);

		item.p = wb__plane_of(a, i);
		classes_at(&item, a, i * a->geom.rows * a->geom.cols);
		rc = do_rows(d, &c, &item);
	}
	wb__regions_finish(&c.regions);
	return rc;
}

static int do_again(struct wb__dev *d, struct wb__param *a)
{
	int rc = do_parts(d, a);

	if (rc != -E2BIG || a->is_merged)
		return rc;
	a->is_merged = true; /* probably a table made at load time: left as it is */
	return do_parts(d, a);
}

/* ---- all parameters in one table ---- */

static void end_param(struct classes *c)
{
	if (!c->a)
		return;
	wb__regions_finish(&c->regions);
	c->a->is_again = !wb__classify_judge(c->a, &c->found) && c->rc == -E2BIG;
}

static int take_classes(struct wb__scan *s, const void *item, struct wb__param *a,
	const struct wbk_found *f, const struct wbk_hit *hit, size_t n_hit)
{
	const struct wbk_classify *k = item;
	struct classes *c = s->ctx;

	if (c->a != a) {
		end_param(c);
		*c = (struct classes){.a = a};
		wb__regions_begin(&c->regions, a, (uint32_t)(a - s->d->p->param));
	}
	wb__bad_add(&c->found.arithmetic, &f->a, index_of(a, k));
	wb__bad_add(&c->found.once, &f->b, index_of(a, k));
	if (!c->rc)
		c->rc = f->is_over ? -E2BIG : put_hits(c, k, hit, n_hit);
	return c->rc == -E2BIG ? 0 : c->rc;
}

static bool has_classes(const struct wb__param *a)
{
	return a->state == WB__ACTIVE && a->geom.total &&
	       (a->n_equal != a->geom.total || a->kept.was);
}

static int get_classes(struct wb__dev *d)
{
	uint64_t bytes = 0, at;
	int rc = 0;

	wb__store_put(d, &d->cls);
	for_on_device (d, a)
		if (has_classes(a))
			bytes += wb__room(a->geom.total);
	if (bytes)
		rc = wb__store_get(d, bytes, true, &d->cls);
	at = d->cls.addr;
	for_on_device (d, a) {
		a->kept.cls = !rc && has_classes(a) ? at : 0;
		at += has_classes(a) ? wb__room(a->geom.total) : 0;
	}
	return rc;
}

static void left_changed(struct wb_probe *p, struct wb__param *a)
{
	(void)p;
	wb__classify_left(a);
}

static int classify(struct wb__dev *d)
{
	struct wb__scan s = wb__scan_of(d, WBK_GPU_CLASSIFY, sizeof(struct wbk_classify));
	struct classes c = {.a = NULL};
	int rc = get_classes(d);

	s.found = take_classes;
	s.ctx = &c;
	for_on_device (d, a) {
		struct wbk_classify item = classify_item(a);

		a->is_again = false;
		if (!rc && a->kept.cls)
			rc = wb__scan_planes(&s, &item, a, classes_at);
	}
	if (!rc)
		rc = wb__scan_flush(&s);
	end_param(&c);
	for_on_device (d, a)
		if (!rc && a->is_again)
			rc = do_again(d, a);
	return rc;
}

static int second(struct wb__dev *d, void *ctx)
{
	bool is_needed = false;
	int rc = wb__check_left(d, left_changed);

	if (!rc)
		rc = wb__count_all(d, ctx);
	if (!rc)
		rc = classify(d);
	/* If there is no snapshot, unwritten elements get back what kept.was holds. */
	for_on_device (d, a) {
		a->kept.was = a->has_snapshot ? 0 : a->kept.was;
		is_needed |= a->kept.was != 0;
	}
	if (!is_needed)
		wb__store_put(d, &d->was);
	return rc;
}

int wb__dev_second(struct wb_probe *p)
{
	struct wb__count c = {WB_PASS_CONST_B, false};

	return wb__dev_each(p, second, &c);
}
