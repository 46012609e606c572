/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second difference of a field of digits.
 *
 *	D(r,c) = u(r,c) - 2 u(r,c-1) + u(r,c-2),  u(r,c) = v(r,c) - 2 v(r-1,c) + v(r-2,c)
 *
 * which is the header's definition with the two directions exchanged: no state goes from row to
 *row, a pass can start anywhere, and a row of any length needs no memory.  Where a copy is regular,
 *u is one number over long stretches of a row, and so D is 0: blocks of 16 columns in which u
 *equals its two predecessors are passed over after an exact 16-bit test; the others are computed in
 *full.
 */
#include <assert.h>
#include <string.h>

#include "kernels/codes.h"
#include "kernels/internal.h"

#define INLINE static inline __attribute__((always_inline))
#define STEP 16

typedef uint8_t v16u8 __attribute__((vector_size(16)));
typedef int16_t v16i16 __attribute__((vector_size(32)));
typedef uint16_t v16u16 __attribute__((vector_size(32)));
typedef uint32_t v16u32 __attribute__((vector_size(64)));
typedef uint64_t v4u64 __attribute__((vector_size(32)));

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

/* Vectors go by pointer: passed by value their ABI depends on the instruction set. */
INLINE bool is_any(const v16u16 *x)
{
	v4u64 y;

	memcpy(&y, x, sizeof(y));
	return (y[0] | y[1] | y[2] | y[3]) != 0;
}

/* Digits of 16 elements at @p, 0 where there is none; *@bad has the lanes of those set. */
INLINE void decode16(enum wbk_code code, const uint8_t *p, v16u16 *v, v16u16 *bad)
{
	v16u16 x, t, ok;

	if (code == WBK_CODE_BF16) {
		memcpy(&x, p, 32);
	} else if (code == WBK_CODE_F32) {
		v16u32 w;

		memcpy(&w, p, 64);
		x = __builtin_convertvector(w >> 16, v16u16);
		/* A low half makes the pattern no code: 0 is none. */
		x &= (v16u16)(__builtin_convertvector(w & 0xffff, v16u16) == 0);
	} else {
		v16u8 b;

		memcpy(&b, p, 16);
		x = __builtin_convertvector(b, v16u16);
	}
	if (code == WBK_CODE_I8) {
		ok = (v16u16)(x >= 0x80);
		x &= 0x7f;
	} else if (code == WBK_CODE_E4M3) {
		t = (x & 0x7f) - 0x20;
		ok = (v16u16)(t < 0x40);
		x = t | (x >> 1 & 0x40);
	} else {
		t = (x & 0x7fff) - 0x2000;
		ok = (v16u16)(t < 0x4000);
		x = t | (x >> 1 & 0x4000);
	}
	*bad = ~ok;
	*v = x & ok;
}

/* v of 16 elements of row @r at column @c. */
INLINE void values(enum wbk_code code, const struct walk *w, uint64_t r, v16u16 *v, v16u16 *bad)
{
	const struct wbk_field *f = w->f;
	const uint8_t *row = (const uint8_t *)f->data +
			     (int64_t)r * f->row_stride * (int64_t)wbk__code_bytes(code);

	decode16(code, row + w->c * wbk__code_bytes(code), v, bad);
	if (f->cls) {
		v16u16 copy;
		v16u8 b;

		memcpy(&b, f->cls + r * f->cols + w->c, 16);
		copy = (v16u16)(__builtin_convertvector(b, v16u16) == 0);
		*v &= copy;
		*bad &= copy;
	}
}

/* True when the 16 elements at the walk have D = 0; then the walk has passed them. */
INLINE bool skip16(enum wbk_code code, struct walk *w)
{
	v16u16 zero = {0}, bad, ignored, v0 = zero, v1 = zero, v2 = zero, d1, d2, u, off;

	values(code, w, w->r, &v0, &bad);
	if (w->r >= 1)
		values(code, w, w->r - 1, &v1, &ignored);
	if (w->r >= 2)
		values(code, w, w->r - 2, &v2, &ignored);
	d1 = v0 - v1;
	d2 = v1 - v2;
	u = d1 - d2;
	/* Wrapped u, or a sign that says it overflowed, or a bad element. */
	off = (u ^ (uint16_t)w->flat) | (((d1 ^ d2) & (d1 ^ u)) >> 15) | bad;
	if (is_any(&off))
		return false;
	w->c += STEP;
	return true;
}

struct value {
	int64_t v;
	bool bad;
};

INLINE struct value value_at(enum wbk_code code, const struct wbk_field *f, uint64_t r, uint64_t c)
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

/* u over columns [c - 2, c + n) of the walk's row; columns before the first are 0. */
INLINE void exact_u(
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

/* The next @n <= 16 elements in full; false when the records ran out on the way. */
INLINE bool exact(enum wbk_code code, struct walk *w, size_t n)
{
	int64_t u[STEP + 2];
	bool bad[STEP];

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

INLINE void walk_all(enum wbk_code code, struct walk *w)
{
	const struct wbk_field *f = w->f;

	for (; w->r < f->rows; w->r++, w->c = 0) {
		w->is_flat = !w->c;
		w->flat = 0;
		while (w->c < f->cols) {
			size_t n = f->cols - w->c < STEP ? (size_t)(f->cols - w->c) : STEP;

			if (code != WBK_CODE_I32 && n == STEP && w->is_flat && skip16(code, w))
				continue;
			if (!exact(code, w, n))
				return;
		}
	}
}

INLINE void walk_code(struct walk *w)
{
	switch (w->f->code) {
	case WBK_CODE_BF16:
	case WBK_CODE_F16:
		walk_all(WBK_CODE_BF16, w);
		break;
	case WBK_CODE_F32:
		walk_all(WBK_CODE_F32, w);
		break;
	case WBK_CODE_E4M3:
	case WBK_CODE_E5M2:
		walk_all(WBK_CODE_E4M3, w);
		break;
	case WBK_CODE_I8:
		walk_all(WBK_CODE_I8, w);
		break;
	default:
		walk_all(WBK_CODE_I32, w);
	}
}

#if WBK_X86
__attribute__((target("avx2"))) static void walk_avx2(struct walk *w)
{
	walk_code(w);
}
#endif

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
#if WBK_X86
	if (wbk__isa() >= WBK__AVX2)
		walk_avx2(&w);
	else
#endif
		walk_code(&w);
	*next = w.r * f->cols + w.c;
	*n_bad += w.n_bad;
	return w.n;
}
