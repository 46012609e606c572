/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/mem.h"
#include "extract/device.h"
#include "extract/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/*
 * Computes the second differences of what a digit pass left in the parameters.  The kernel does one
 * slab.  Along outer axes, the sparse results of neighbouring slabs are differenced again, so
 * memory is needed only for the nonzeros of two slabs for each axis.
 */

#define BATCH 1024

/* Where a field's elements come from. */
struct source {
	struct wb__slabs slabs; /* first, so that this is one */
	const struct wb__param *a;
	const uint8_t *ones; /* not NULL: a field of ones instead of the parameter's content */
	bool is_f16; /* F16 elements of a mixed probe */
	struct wb__bad bad;
};

static int emit(const struct wbk_field *f, uint64_t begin, uint64_t shift, struct source *s,
	struct wb__recs *out)
{
	struct wbk_record rec[BATCH];
	uint64_t end = f->rows * f->cols;

	while (begin < end) {
		size_t n = wbk_diff2(f, begin, rec, BATCH, &begin, &s->bad.n);
		int rc;

		for (size_t i = 0; i < n; i++)
			rec[i].index += shift;
		rc = wb__recs_put(out, rec, n, s->slabs.max);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* F16 parameters of a mixed probe hold codes that can be decoded only as F32. */
static int emit_widened(const struct wb__piece *k, struct source *s, struct wb__recs *out)
{
	const struct wb__param *a = s->a;
	uint64_t above = WB_MIN(k->row % a->geom.rows, 2); /* rows above that are needed */
	uint64_t row = k->row - above, col = k->col - WB_MIN(k->col, 2);
	uint64_t rows = k->row_end - row, cols = k->col_end - col;
	struct wbk_field f = {.rows = rows, .cols = cols, .row_stride = (int64_t)cols};
	float *wide = wb_realloc_array(NULL, rows * cols, sizeof(*wide));
	int rc;

	if (!wide)
		return -ENOMEM;
	for (uint64_t r = 0; r < rows; r++)
		wbk_cast_fwd(WBK_F16_TO_F32,
			a->data + (wb__geom_row(&a->geom, row + r) + col) * a->elem_bytes,
			wide + r * cols, cols);
	f.data = wide;
	f.code = WBK_CODE_F32;
	f.cls = a->cls ? a->cls + row * a->geom.cols + col : NULL;
	rc = emit(&f, (k->row - row) * cols + (k->col - col), row * a->geom.cols + col, s, out);
	wb_free(wide);
	return rc;
}

/* Append the records of a piece of one slab (whose rows count over all slabs), with indices of the
 * whole parameter. */
static int emit_piece(const struct wb__piece *k, struct source *s, struct wb__recs *out)
{
	const struct wb__param *a = s->a;
	const struct wb__geom *g = &a->geom;
	uint64_t first = k->row - k->row % g->rows; /* first row of the slab */
	struct wbk_field f = {
		.rows = k->row_end - first,
		.cols = k->col_end,
		.row_stride = g->stride[g->n_axis - 2],
		.cls = a->cls ? a->cls + first * g->cols : NULL,
		.code = (uint8_t)a->code,
	};

	if (s->is_f16 && !s->ones)
		return emit_widened(k, s, out);
	if (s->ones) {
		f.data = s->ones;
		f.row_stride = 0;
		f.code = WBK_CODE_I8;
	} else {
		f.data = a->data + wb__geom_row(g, first) * a->elem_bytes;
	}
	return emit(&f, (k->row - first) * g->cols + k->col, first * g->cols, s, out);
}

static int emit_slab(struct wb__slabs *slabs, uint64_t slab, struct wb__recs *out)
{
	struct source *s = (struct source *)slabs;
	const struct wb__geom *g = slabs->g;
	struct wb__piece k = {0, slab * g->rows, (slab + 1) * g->rows, 0, g->cols};
	int rc = emit_piece(&k, s, out);

	for (size_t i = 0; i < out->n; i++)
		out->r[i].index -= slab * g->rows * g->cols;
	return rc;
}

/* Append the differences along the axes from @axis on of the part numbered @part, with indices
 * inside that part. */
static int emit_nd(struct wb__slabs *s, uint32_t axis, uint64_t part, struct wb__recs *out)
{
	const struct wb__geom *g = s->g;
	struct wb__recs before = {0}, before2 = {0};
	uint64_t inner = 1;
	int rc = 0;

	if (axis + 2 == g->n_axis)
		return s->get(s, part, out);
	for (uint32_t i = axis + 1; i < g->n_axis; i++)
		inner *= g->n[i];
	for (uint64_t i = 0; i < g->n[axis] && !rc; i++) {
		struct wb__recs is = {0}, d = {0};

		rc = emit_nd(s, axis + 1, part * g->n[axis] + i, &is);
		if (!rc)
			rc = wb__recs_add(&d, &is, 1, 0, s->max);
		if (!rc)
			rc = wb__recs_add(&d, &before, -2, 0, s->max);
		if (!rc)
			rc = wb__recs_add(&d, &before2, 1, 0, s->max);
		for (size_t k = 0; k < d.n; k++)
			d.r[k].index += i * inner;
		if (!rc)
			rc = wb__recs_put(out, d.r, d.n, s->max);
		wb__recs_finish(&d);
		wb__recs_finish(&before2);
		before2 = before;
		before = is;
	}
	wb__recs_finish(&before);
	wb__recs_finish(&before2);
	return rc;
}

int wb__digits_nd(struct wb__slabs *s, struct wb__recs *out)
{
	return emit_nd(s, 0, 0, out);
}

/* The indicator if all elements are copies: it is 1 everywhere, so its second difference is +-1 at
 * the first two places of each axis, and 0 elsewhere. */
static int corner(const struct wb__geom *g, struct wb__recs *out)
{
	int rc = 0;

	for (uint32_t mask = 0; mask < 1u << g->n_axis && !rc; mask++) {
		struct wbk_record r = {0, 1};
		uint64_t inner = g->total;
		bool skip = false;

		for (uint32_t a = 0; a < g->n_axis; a++) {
			bool second = mask >> (g->n_axis - 1 - a) & 1;

			inner /= g->n[a];
			r.index += second ? inner : 0;
			r.value *= second ? -1 : 1;
			skip |= second && g->n[a] == 1;
		}
		if (!skip)
			rc = wb__recs_put(out, &r, 1, SIZE_MAX / 64);
	}
	return rc;
}

int wb__indicator(struct wb_probe *p, const struct wb__param *a, struct wb__recs *out)
{
	struct source s = {.slabs = {emit_slab, &a->geom, SIZE_MAX / 64}, .a = a};
	uint8_t *ones;
	int rc;

	if (a->dev && a->kept.cls)
		return wb__dev_indicator(p, a, out);
	if (!a->cls)
		return corner(&a->geom, out);
	ones = wb_alloc(a->geom.cols);
	if (!ones)
		return -ENOMEM;
	wbk_encode_fill(WBK_CODE_I8, 1, ones, a->geom.cols);
	s.ones = ones;
	rc = wb__digits_nd(&s.slabs, out);
	wb_free(ones);
	return rc;
}

struct job {
	struct wb_probe *p;
	struct wb__piece *piece;
	struct wb__recs *out; /* one for each piece */
};

static bool is_code(const struct wb_probe *p, const struct wb__param *a, const uint8_t *elem)
{
	float wide;

	if (!p->is_mixed || a->dtype != WB_F16)
		return wbk_decode(a->code, elem) >= 0;
	wbk_cast_fwd(WBK_F16_TO_F32, elem, &wide, 1);
	return wbk_decode(WBK_CODE_F32, &wide) >= 0;
}

void wb__digits_bad(struct wb__param *a, const struct wb__bad *found)
{
	if (!found->n)
		return;
	if (!a->bad.n || found->first < a->bad.first)
		a->bad.first = found->first;
	a->bad.last = a->bad.n ? WB_MAX(a->bad.last, found->last) : found->last;
	a->bad.n += found->n;
}

/* Find the elements that hold no code; called only when there are some. */
static void find_bad(const struct wb_probe *p, const struct wb__piece *k, struct wb__param *a)
{
	uint64_t n = 0, first = 0, last = 0;

	for (uint64_t r = k->row; r < k->row_end; r++) {
		for (uint64_t c = k->col; c < k->col_end; c++) {
			uint64_t i = r * a->geom.cols + c;

			if ((a->cls && a->cls[i] != WB__COPY) ||
				is_code(p, a,
					a->data + (wb__geom_row(&a->geom, r) + c) * a->elem_bytes))
				continue;
			if (!n++)
				first = i;
			last = i;
		}
	}
	wb__digits_bad(a, &(struct wb__bad){first, last, n});
}

static int digit_task(void *ctx, size_t task)
{
	struct job *j = ctx;
	struct wb_probe *p = j->p;
	struct wb__piece k = j->piece[task];
	struct wb__param *a = &p->param[k.param];
	struct source s = {.slabs = {emit_slab, &a->geom, p->opts.record_max}, .a = a};
	bool skip;
	int rc;

	pthread_mutex_lock(&p->lock);
	skip = a->is_over;
	pthread_mutex_unlock(&p->lock);
	if (skip)
		return 0;
	s.is_f16 = p->is_mixed && a->dtype == WB_F16;
	if (a->geom.slabs > 1) { /* one task does all of it */
		if (k.row)
			return 0;
		k.row_end = a->geom.rows_all;
		rc = wb__digits_nd(&s.slabs, &j->out[task]);
	} else {
		rc = emit_piece(&k, &s, &j->out[task]);
	}
	pthread_mutex_lock(&p->lock);
	if (rc == -E2BIG) {
		a->is_over = true;
		rc = 0;
	} else if (s.bad.n) {
		find_bad(p, &k, a);
	}
	pthread_mutex_unlock(&p->lock);
	return rc;
}

/* Is a record larger than ids allow?  A second difference adds up at most 4 digits along each axis.
 * A larger one does not come from codes, and would overflow the sums that follow. */
static bool is_too_large(const struct wb_probe *p, const struct wb__param *a, unsigned shift,
	const struct wb__recs *recs)
{
	uint64_t id = p->pass.kind == WB_PASS_ROW ? p->manifest->rows - 1 : p->col_max;
	uint64_t mask = (UINT64_C(1) << wb__code_width(p, a->dtype)) - 1;
	int64_t digit = (int64_t)WB_MIN(id >> shift, mask) + wb__code_offset(p, a->dtype);

	digit <<= 2 * a->geom.n_axis;
	for (size_t i = 0; i < recs->n; i++)
		if (llabs(recs->r[i].value) > digit)
			return true;
	return false;
}

int wb__digits_add(struct wb_probe *p, struct wb__param *a, struct wb__recs *all)
{
	unsigned shift = p->pass.digit * wb__code_width(p, a->dtype);
	int rc = 0;

	p->stats.n_record += all->n;
	if (shift < 62 && is_too_large(p, a, shift, all))
		wb__fault(a,
			"what arrives is no code of an element of the checkpoint (undecodable "
			"ids: the value is changed, or cast to %s in an unknown way)",
			wb_dtype_name(a->dtype));
	else if (shift < 62)
		rc = wb__recs_add(&a->field[p->pass.kind == WB_PASS_ROW ? 0 : 1], all,
			INT64_C(1) << shift, 0, p->opts.record_max);
	wb__recs_finish(all);
	if (rc == -E2BIG) {
		a->is_over = true;
		rc = 0;
	}
	return rc;
}

/* Join the records of one parameter's pieces in order, and add them to its field at the digit's
 * weight. */
static int gather(struct job *j, size_t first, size_t end)
{
	struct wb_probe *p = j->p;
	struct wb__param *a = &p->param[j->piece[first].param];
	struct wb__recs all = j->out[first];
	int rc = 0;

	j->out[first] = (struct wb__recs){0};
	for (size_t i = first + 1; i < end && !rc; i++)
		rc = wb__recs_put(&all, j->out[i].r, j->out[i].n, p->opts.record_max);
	if (!rc)
		return wb__digits_add(p, a, &all);
	wb__recs_finish(&all);
	if (rc != -E2BIG)
		return rc;
	a->is_over = true;
	return 0;
}

static void judge(struct wb_probe *p)
{
	char range[WB__RANGE_TEXT];

	for (uint32_t i = 0; i < p->n_param; i++) {
		struct wb__param *a = &p->param[i];

		if (a->state == WB__ACTIVE && a->bad.n)
			wb__fault(a, "%s (%" PRIu64 " elements): what arrives is no code (%s)",
				wb__range_text(a, a->bad.first, a->bad.last, range), a->bad.n,
				"undecodable ids: the value is changed, or cast in an unknown way");
		a->bad = (struct wb__bad){0};
	}
}

int wb__digits_read(struct wb_probe *p)
{
	struct job j = {.p = p};
	size_t n;
	int rc = wb__pieces(p, &j.piece, &n);

	if (rc < 0)
		return rc;
	j.out = wb_zalloc(n, sizeof(*j.out));
	rc = j.out ? wb__parallel(p->threads, n, digit_task, &j) : -ENOMEM;
	for (size_t i = 0, end; i < n && !rc; i = end) {
		for (end = i + 1; end < n && j.piece[end].param == j.piece[i].param; end++)
			;
		rc = gather(&j, i, end);
	}
	for (size_t i = 0; j.out && i < n; i++)
		wb__recs_finish(&j.out[i]);
	wb_free(j.out);
	wb_free(j.piece);
	if (!rc)
		rc = wb__dev_digits(p);
	judge(p);
	return rc;
}
