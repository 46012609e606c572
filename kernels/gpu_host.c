/* SPDX-License-Identifier: Apache-2.0 */
/* Host references of the kernels of gpu.h: they define what a kernel does, one element at a
 * time. */
#include <assert.h>
#include <string.h>

#include "kernels/ids.h"

struct mover {
	const struct wbk_move_args *a;
	const struct wbk_op *o;
	uint8_t *mem, *wire;
	struct wbk_sum *sum;
};

static void pack_one(const struct mover *m, const uint8_t *mem, uint8_t *wire)
{
	if (m->o->cast)
		wbk_cast_back(m->o->cast, mem, wire, 1);
	else
		memcpy(wire, mem, m->o->wire_elem);
}

static void assemble_one(const struct mover *m, const uint8_t *wire, uint8_t *mem)
{
	uint32_t repeat = m->o->repeat ? m->o->repeat : 1;

	for (uint32_t k = 0; k < repeat; k++, mem += m->o->repeat_stride) {
		if (m->o->is_fill)
			memcpy(mem, &m->o->value, m->o->mem_elem); /* little-endian */
		else if (m->o->cast)
			wbk_cast_fwd(m->o->cast, wire, mem, 1);
		else
			memcpy(mem, wire, m->o->mem_elem);
	}
}

/* Element number @i of the op. */
static void move_one(const struct mover *m, uint64_t i)
{
	const struct wbk_op *o = m->o;
	uint64_t pos = o->pos, left = i;
	int64_t off = 0;
	uint8_t one[8];
	uint8_t *wire = m->wire ? m->wire + i * o->wire_elem : one;

	for (unsigned d = WBK_DIMS; d-- > 0; left /= o->n[d]) {
		off += (int64_t)(left % o->n[d]) * o->mem_stride[d];
		pos += left % o->n[d] * o->pos_stride[d];
	}
	if (m->a->way == WBK_WAY_ASSEMBLE)
		assemble_one(m, wire, m->mem + off);
	else
		pack_one(m, m->mem + off, wire);
	if (m->sum && !o->is_fill)
		wbk_sum_add(m->a->keys, pos, wire, o->wire_elem, m->sum);
}

void wbk_host_move(const struct wbk_move_args *a)
{
	assert(a && (a->keys || !a->sum) && (a->way == WBK_WAY_SUM) == !a->wire);
	for (uint32_t i = 0; i < a->n_op; i++) {
		const struct wbk_op *o = &a->op[i];
		struct mover m = {.a = a,
			.o = o,
			.mem = (uint8_t *)a->bases[o->base] + o->mem_off,
			.wire = a->wire ? (uint8_t *)a->wire + o->wire_off : NULL,
			.sum = a->sum ? &a->sum[o->sum] : NULL};
		uint64_t n = (uint64_t)o->n[0] * o->n[1] * o->n[2] * o->n[3];

		for (uint64_t k = 0; k < n; k++)
			move_one(&m, k);
	}
}

/* ---- scanning -------------------------------------------------------------------------------- */

static void hit(const struct wbk_scan_args *a, uint32_t item, uint64_t index, int64_t value)
{
	a->out[item].n_hit++;
	if (*a->n_hit < a->cap)
		a->hit[*a->n_hit] = (struct wbk_hit){index, value, item, 0};
	else
		a->out[item].is_over = 1;
	++*a->n_hit;
}

static void note(struct wbk_range *r, uint64_t at)
{
	r->n++;
	r->first = at < r->first ? at : r->first;
	r->last = at > r->last ? at : r->last;
}

/* The bits of an element, zero-extended. */
static uint32_t raw_at(const void *p, uint64_t index, unsigned elem)
{
	uint32_t raw = 0;

	memcpy(&raw, (const uint8_t *)p + index * elem, elem); /* little-endian */
	return raw;
}

static uint8_t *row_of(const struct wbk_plane *p, uint64_t r)
{
	return (uint8_t *)p->data + (int64_t)r * p->row_stride * p->elem;
}

/* Note the elements of one row that are copies and no code. */
static void note_bad(
	const struct wbk_diff2 *d, const struct wbk_field *f, uint64_t r, struct wbk_found *out)
{
	size_t bytes = wbk__code_bytes((enum wbk_code)f->code);
	const uint8_t *row = (const uint8_t *)f->data + (int64_t)r * f->row_stride * (int64_t)bytes;

	for (uint64_t c = 0; c < d->f.cols; c++)
		if (!(f->cls && f->cls[r * f->cols + c]) &&
			wbk_decode((enum wbk_code)f->code, row + c * bytes) < 0)
			note(&out->a, r * f->cols + c);
}

static void diff2_rows(const struct wbk_scan_args *a, uint32_t item, const struct wbk_diff2 *d,
	const struct wbk_field *f)
{
	uint64_t at = d->row_begin * f->cols, n_bad = 0;

	while (at < d->row_end * f->cols) {
		struct wbk_record rec[64];
		size_t n = wbk_diff2(f, at, rec, 64, &at, &n_bad);

		for (size_t k = 0; k < n; k++)
			hit(a, item, rec[k].index, rec[k].value);
	}
	for (uint64_t r = d->row_begin; n_bad && r < d->row_end; r++)
		note_bad(d, f, r, &a->out[item]);
}

/* Elements are F16 and are widened to F32.  The difference of each is made from the 3 x 3 elements
 * that end with it. */
static void diff2_wide(const struct wbk_scan_args *a, uint32_t item, const struct wbk_diff2 *d)
{
	for (uint64_t r = d->row_begin; r < d->row_end; r++) {
		for (uint64_t c = 0; c < d->f.cols; c++) {
			float wide[9] = {0}; /* the 3 x 3 elements that end here */
			uint8_t cls[9];
			struct wbk_field f = {wide, 3, 3, 3, cls, WBK_CODE_F32};
			struct wbk_record rec;
			uint64_t next, n_bad = 0;

			for (unsigned i = 0; i < 9; i++) {
				uint64_t y = r + i / 3, x = c + i % 3; /* 2 too large */
				const uint8_t *p = d->f.data;

				cls[i] = 1;
				if (y < 2 || x < 2)
					continue;
				cls[i] = d->f.cls && d->f.cls[(y - 2) * d->f.cols + x - 2];
				p += ((int64_t)(y - 2) * d->f.row_stride + (int64_t)x - 2) * 2;
				wbk_cast_fwd(WBK_F16_TO_F32, p, &wide[i], 1);
			}
			if (wbk_diff2(&f, 8, &rec, 1, &next, &n_bad))
				hit(a, item, r * d->f.cols + c, rec.value);
			if (n_bad)
				note(&a->out[item].a, r * d->f.cols + c);
		}
	}
}

void wbk_host_diff2(const struct wbk_scan_args *a)
{
	const struct wbk_diff2 *item = a->item;

	for (uint32_t i = 0; i < a->n_item; i++) {
		struct wbk_field f = item[i].f;

		f.rows = item[i].row_end;
		if (item[i].is_wide)
			diff2_wide(a, i, &item[i]);
		else
			diff2_rows(a, i, &item[i], &f);
	}
}

void wbk_host_equal(const struct wbk_scan_args *a)
{
	for (uint32_t i = 0; i < a->n_item; i++) {
		const struct wbk_equal *q = (const struct wbk_equal *)a->item + i;
		const struct wbk_plane *p = &q->p;

		for (uint64_t r = p->row_begin; r < p->row_end; r++) {
			for (uint64_t c = 0; c < p->cols; c++) {
				uint64_t at = r * p->cols + c;
				uint32_t raw = raw_at(row_of(p, r), c, p->elem);

				if (raw != q->want)
					note(&a->out[i].a, at);
				if (q->like && raw != raw_at(q->like, at, p->elem))
					note(&a->out[i].b, at);
			}
		}
	}
}

/* The class of element (@r, @c).  *@is_once: by its values, the first pass wrote it and the second
 * did not. */
static enum wbk_class class_at(
	const struct wbk_classify *k, uint64_t r, uint64_t c, uint32_t *raw, int *is_once)
{
	uint64_t at = r * k->p.cols + c;
	uint32_t now = raw_at(row_of(&k->p, r), c, k->p.elem);
	uint32_t was = k->was ? raw_at(k->was, at, k->p.elem) : k->first;

	*raw = now;
	*is_once = now == k->sentinel && was == k->first;
	if (was == k->first && now == k->second)
		return WBK_CLASS_COPY;
	/* If what was there before is known, a constant that equals the sentinel differs from an
	 * element that is not written. */
	if (now == k->sentinel && (!k->before || raw_at(k->before, at, k->p.elem) == was))
		return WBK_CLASS_UNWRITTEN;
	return was == now ? WBK_CLASS_CONSTANT : WBK_CLASS_ARITHMETIC;
}

static int64_t kind_of(const struct wbk_classify *k, enum wbk_class c, uint32_t raw)
{
	if (k->is_merged)
		return c != WBK_CLASS_COPY;
	return (int64_t)c | (c == WBK_CLASS_CONSTANT ? (int64_t)raw << 8 : 0);
}

static void classify_row(
	const struct wbk_scan_args *a, uint32_t item, const struct wbk_classify *k, uint64_t r)
{
	int64_t left = WBK_CLASS_COPY;

	for (uint64_t c = 0; c < k->p.cols; c++) {
		uint64_t at = r * k->p.cols + c;
		uint32_t raw;
		int is_once;
		enum wbk_class cls = class_at(k, r, c, &raw, &is_once);
		int64_t kind = kind_of(k, cls, raw);

		k->cls[at] = (uint8_t)cls;
		if (is_once && (cls == WBK_CLASS_ARITHMETIC || !k->before))
			note(&a->out[item].b, at);
		else if (cls == WBK_CLASS_ARITHMETIC)
			note(&a->out[item].a, at);
		if (kind != left)
			hit(a, item, at, kind);
		left = kind;
	}
}

void wbk_host_classify(const struct wbk_scan_args *a)
{
	for (uint32_t i = 0; i < a->n_item; i++) {
		const struct wbk_classify *k = (const struct wbk_classify *)a->item + i;

		for (uint64_t r = k->p.row_begin; r < k->p.row_end; r++)
			classify_row(a, i, k, r);
	}
}

void wbk_host_put(const struct wbk_scan_args *a)
{
	for (uint32_t i = 0; i < a->n_item; i++) {
		const struct wbk_put *k = (const struct wbk_put *)a->item + i;

		for (uint64_t r = k->p.row_begin; r < k->p.row_end; r++) {
			for (uint64_t c = 0; c < k->p.cols; c++) {
				uint64_t at = r * k->p.cols + c;
				uint32_t raw = k->value;

				if (k->cls && k->cls[at] != k->only)
					continue;
				if (k->from)
					raw = raw_at(k->from, at, k->p.elem);
				memcpy(row_of(&k->p, r) + c * k->p.elem, &raw, k->p.elem);
			}
		}
	}
}

/* ---- ids ------------------------------------------------------------------------------------- */

void wbk_host_fill(const struct wbk_scan_args *a)
{
	for (uint32_t i = 0; i < a->n_item; i++) {
		const struct wbk_fill *k = (const struct wbk_fill *)a->item + i;

		for (uint64_t r = k->p.row_begin; r < k->p.row_end; r++) {
			for (uint64_t c = 0; c < k->p.cols; c++) {
				uint32_t raw = wbk__id_word(&k->id, k->row + r, c);

				memcpy(row_of(&k->p, r) + c * k->p.elem, &raw, k->p.elem);
			}
		}
	}
}

static int is_same(const struct wbk_check *k, uint32_t r, uint32_t c, const uint8_t *mem)
{
	uint32_t want = wbk__id_word(
		&k->id, k->row + (uint64_t)r * k->row_step, k->col + (uint64_t)c * k->col_step);
	uint8_t wire[8], one[8] = {0};

	memcpy(wire, &want, 4);
	if (!k->cast)
		return !memcmp(mem, wire, k->wire_elem);
	if (k->is_lossy) {
		wbk_cast_fwd((enum wbk_cast)k->cast, wire, one, 1);
		wbk_cast_back((enum wbk_cast)k->cast, one, wire, 1);
	}
	wbk_cast_back((enum wbk_cast)k->cast, mem, one, 1);
	return !memcmp(one, wire, k->wire_elem);
}

void wbk_host_check(const struct wbk_scan_args *a)
{
	for (uint32_t i = 0; i < a->n_item; i++) {
		const struct wbk_check *k = (const struct wbk_check *)a->item + i;

		for (uint64_t n = 0; n < (uint64_t)k->repeat * k->rows * k->cols; n++) {
			uint32_t c = (uint32_t)(n % k->cols), r = (uint32_t)(n / k->cols % k->rows);
			int64_t at = (int64_t)(n / k->cols / k->rows) * k->repeat_stride +
				     r * k->row_stride + c * k->col_stride;

			if (!is_same(k, r, c, (const uint8_t *)k->data + at * k->mem_elem))
				note(&a->out[i].a, k->at + (uint64_t)at);
		}
	}
}
