/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second difference of a field of digits.
 *
 *	D(r,c) = u(r,c) - 2 u(r,c-1) + u(r,c-2),  u(r,c) = v(r,c) - 2 v(r-1,c) + v(r-2,c)
 *
 * This is the header's definition with the two directions exchanged.  So nothing is carried from
 * row to row, a pass can start anywhere, and a row of any length needs no memory.  Where a copy is
 * regular, u is one number over long stretches of a row, and so D is 0.  Blocks of 16 columns in
 * which u equals its two predecessors are skipped after an exact 16-bit test; all others are
 * computed in full.
 */
#include <assert.h>
#include <string.h>

#include "kernels/codes.h"
#include "kernels/internal.h"

#define INLINE static inline __attribute__((always_inline))
#define STEP 16u /* elements of a vector */
#define STRIDE (4 * STEP) /* elements between looks at the result of the test */

typedef uint8_t vu8 __attribute__((vector_size(STEP)));
typedef uint16_t vu16 __attribute__((vector_size(2 * STEP)));
typedef uint32_t vu32 __attribute__((vector_size(4 * STEP)));
typedef uint64_t vu64 __attribute__((vector_size(2 * STEP)));

/* Read as elements, these bytes are no codes; read as classes, they are copies. */
static const uint8_t zeros[4 * STEP];

/* Walks the elements of one call. */
struct walk {
	const struct wbk_field *f;
	uint64_t r, c; /* the next element */
	bool is_flat; /* u(r, c - 1) == u(r, c - 2) == flat */
	int16_t flat;
	struct wbk_record *rec;
	size_t n, cap;
	uint64_t n_bad;
};

/* Vectors are passed by pointer, since the ABI of passing them by value depends on the instruction
 * set. */
INLINE bool is_any(const vu16 *x)
{
	vu64 y;

	memcpy(&y, x, sizeof(y));
	return ((y[0] | y[1]) | (y[2] | y[3])) != 0;
}

/* Decode STEP elements at @p.  *@v: their digits, 0 for an element that is no code.  In *@bad the
 * lanes of such elements are set. */
INLINE void decode(enum wbk_code code, const uint8_t *p, vu16 *v, vu16 *bad)
{
	vu16 x, t, ok;

	if (code == WBK_CODE_BF16) {
		memcpy(&x, p, sizeof(x));
	} else if (code == WBK_CODE_F32) {
		vu32 w;

		memcpy(&w, p, sizeof(w));
		x = __builtin_convertvector(w >> 16, vu16);
		/* A pattern whose low half is not 0 is no code.  It becomes 0, which is no code
		 * either. */
		x &= (vu16)(__builtin_convertvector(w & 0xffff, vu16) == 0);
	} else {
		vu8 b;

		memcpy(&b, p, sizeof(b));
		x = __builtin_convertvector(b, vu16);
	}
	if (code == WBK_CODE_I8) {
		ok = (vu16)(x >= 0x80);
		x &= 0x7f;
	} else if (code == WBK_CODE_E4M3) {
		t = (x & 0x7f) - 0x20;
		ok = (vu16)(t < 0x40);
		x = t | (x >> 1 & 0x40);
	} else {
		t = (x & 0x7fff) - 0x2000;
		ok = (vu16)(t < 0x4000);
		x = t | (x >> 1 & 0x4000);
	}
	*bad = ~ok;
	*v = x & ok;
}

/* A row as the test reads it.  An absent row, and absent classes, are read from zeros: their step
 * is 0. */
struct line {
	const uint8_t *data, *cls;
	size_t data_step, cls_step; /* bytes from an element to the next; 0: always read the same */
};

INLINE struct line line_of(enum wbk_code code, const struct wbk_field *f, uint64_t r, uint64_t back)
{
	struct line l = {zeros, zeros, 0, 0};
	size_t bytes = wbk__code_bytes(code);

	if (r < back)
		return l;
	r -= back;
	l.data = (const uint8_t *)f->data + (int64_t)r * f->row_stride * (int64_t)bytes;
	l.data_step = bytes;
	if (f->cls) {
		l.cls = f->cls + r * f->cols;
		l.cls_step = 1;
	}
	return l;
}

INLINE void load(
	enum wbk_code code, bool has_cls, const struct line *l, uint64_t c, vu16 *v, vu16 *bad)
{
	decode(code, l->data + c * l->data_step, v, bad);
	if (has_cls) {
		vu16 copy;
		vu8 b;

		memcpy(&b, l->cls + c * l->cls_step, sizeof(b));
		copy = (vu16)(__builtin_convertvector(b, vu16) == 0);
		*v &= copy;
		*bad &= copy;
	}
}

/* Test STEP elements.  If no lane of *@off is set, none of the elements is bad, and all have u ==
 * @flat. */
INLINE void test(enum wbk_code code, bool has_cls, const struct line l[3], uint64_t c,
	uint16_t flat, vu16 *off)
{
	vu16 bad, ignored, v0, v1, v2, d1, d2, u;

	load(code, has_cls, &l[0], c, &v0, &bad);
	load(code, has_cls, &l[1], c, &v1, &ignored);
	load(code, has_cls, &l[2], c, &v2, &ignored);
	d1 = v0 - v1;
	d2 = v1 - v2;
	u = d1 - d2;
	/* Set lanes with another u, with a sign that shows that u overflowed, or with an element
	 * that is no code. */
	*off |= (u ^ flat) | (((d1 ^ d2) & (d1 ^ u)) & 0x8000) | bad;
}

/* The first column from w->c on that is not known to have D = 0.  Before w->c, u must be flat. */
INLINE uint64_t skip(enum wbk_code code, bool has_cls, const struct walk *w)
{
	const struct line l[3] = {line_of(code, w->f, w->r, 0), line_of(code, w->f, w->r, 1),
		line_of(code, w->f, w->r, 2)};
	uint64_t c = w->c, cols = w->f->cols;
	uint16_t flat = (uint16_t)w->flat;
	vu16 off = {0};

	for (; c + STRIDE <= cols; c += STRIDE) {
		for (unsigned i = 0; i < STRIDE; i += STEP)
			test(code, has_cls, l, c + i, flat, &off);
		if (is_any(&off))
			break;
	}
	off = (vu16){0};
	for (; c + STEP <= cols; c += STEP) {
		test(code, has_cls, l, c, flat, &off);
		if (is_any(&off))
			return c;
	}
	if (c == cols || cols < STEP)
		return c;
	/* Test the rest, together with columns that were tested before. */
	test(code, has_cls, l, cols - STEP, flat, &off);
	return is_any(&off) ? c : cols;
}

struct value {
	int64_t v;
	bool bad;
};

static struct value value_at(enum wbk_code code, const struct wbk_field *f, uint64_t r, uint64_t c)
{
	const uint8_t *row = (const uint8_t *)f->data +
			     (int64_t)r * f->row_stride * (int64_t)wbk__code_bytes(code);
	struct value x = {0, false};

	if (f->cls && f->cls[r * f->cols + c])
		return x;
	x.v = wbk__decode_one(code, row + c * wbk__code_bytes(code));
	if (x.v < 0)
		x = (struct value){0, true};
	return x;
}

/* Compute u for columns [c - 2, c + n) of the walk's row.  It is 0 for columns before the first. */
static void exact_u(
	enum wbk_code code, const struct walk *w, size_t n, int64_t u[STEP + 2], bool bad[STEP])
{
	for (size_t i = 0; i < n + 2; i++) {
		uint64_t c = w->c + i - 2;
		struct value x;

		u[i] = 0;
		if (w->c + i < 2)
			continue;
		x = value_at(code, w->f, w->r, c);
		u[i] = x.v;
		if (i >= 2)
			bad[i - 2] = x.bad;
		if (w->r >= 1)
			u[i] -= 2 * value_at(code, w->f, w->r - 1, c).v;
		if (w->r >= 2)
			u[i] += value_at(code, w->f, w->r - 2, c).v;
	}
}

/* Compute the next @n <= STEP elements in full.  False: the record buffer was full before the
 * end. */
static bool exact(enum wbk_code code, struct walk *w, size_t n)
{
	int64_t u[STEP + 2] = {0};
	bool bad[STEP] = {false};

	exact_u(code, w, n, u, bad);
	for (size_t i = 0; i < n; i++) {
		int64_t d = u[i + 2] - 2 * u[i + 1] + u[i];

		if (d) {
			if (w->n == w->cap) {
				w->c += i;
				return false;
			}
			w->rec[w->n++] = (struct wbk_record){w->r * w->f->cols + w->c + i, d};
		}
		w->n_bad += bad[i];
	}
	w->c += n;
	w->flat = (int16_t)u[n + 1];
	w->is_flat = u[n + 1] == u[n] && u[n + 1] == w->flat;
	return true;
}

/* Each variant of skip() is much code, so codes with the same patterns share a variant. */
INLINE uint64_t skip_code(bool has_cls, const struct walk *w)
{
	switch (w->f->code) {
	case WBK_CODE_BF16:
	case WBK_CODE_F16:
		return skip(WBK_CODE_BF16, has_cls, w);
	case WBK_CODE_F32:
		return skip(WBK_CODE_F32, has_cls, w);
	case WBK_CODE_E4M3:
	case WBK_CODE_E5M2:
		return skip(WBK_CODE_E4M3, has_cls, w);
	case WBK_CODE_I8:
		return skip(WBK_CODE_I8, has_cls, w);
	default:
		return w->c;
	}
}

typedef uint64_t skip_fn(const struct walk *w);

/* Without vectors of 32 bytes the test gains nothing over the full computation. */
static uint64_t skip_none(const struct walk *w)
{
	return w->c;
}

#if WBK_X86
__attribute__((target("avx2"))) static uint64_t skip_avx2(const struct walk *w)
{
	return skip_code(false, w);
}

__attribute__((target("avx2"))) static uint64_t skip_avx2_cls(const struct walk *w)
{
	return skip_code(true, w);
}
#endif

static skip_fn *skip_body(bool has_cls)
{
#if WBK_X86
	if (wbk__isa() >= WBK__AVX2)
		return has_cls ? skip_avx2_cls : skip_avx2;
#endif
	(void)has_cls;
	return skip_none;
}

static void walk(struct walk *w)
{
	const struct wbk_field *f = w->f;
	skip_fn *body = skip_body(f->cls != NULL);

	for (; w->r < f->rows; w->r++, w->c = 0) {
		w->is_flat = !w->c;
		w->flat = 0;
		while (w->c < f->cols) {
			if (w->is_flat)
				w->c = body(w);
			if (w->c < f->cols &&
				!exact(f->code, w,
					(size_t)(f->cols - w->c < STEP ? f->cols - w->c : STEP)))
				return;
		}
	}
}

size_t wbk_diff2(const struct wbk_field *f, uint64_t begin, struct wbk_record *rec, size_t cap,
	uint64_t *next, uint64_t *n_bad)
{
	struct walk w = {.f = f, .rec = rec, .cap = cap};

	assert(f && rec && cap && next && n_bad && wbk_code_bits(f->code));
	if (!f->cols || !f->rows) {
		*next = f->rows * f->cols;
		return 0;
	}
	w.r = begin / f->cols;
	w.c = begin % f->cols;
	walk(&w);
	*next = w.r * f->cols + w.c;
	*n_bad += w.n_bad;
	return w.n;
}
