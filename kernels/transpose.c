/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transposes of 1-, 2- and 4-byte elements.
 *
 * A block of N x N elements (N elements fill 16 bytes) is transposed in registers: log2(N) rounds
 * of interleaving row i with row i + N/2.  Blocks are done in the order that completes 64-byte
 * lines of the destination, since those are what the caches move.
 */
#include <string.h>

#include "kernels/internal.h"

#define INLINE static inline __attribute__((always_inline))

/* Blocks are not inlined: with inlining gcc needs minutes and a gigabyte for this file. */
#define BLOCK static __attribute__((noinline))

typedef uint8_t v16u8 __attribute__((vector_size(16)));
typedef uint16_t v8u16 __attribute__((vector_size(16)));
typedef uint32_t v4u32 __attribute__((vector_size(16)));

#define EACH4(X) X(0) X(1) X(2) X(3)
#define EACH8(X) EACH4(X) X(4) X(5) X(6) X(7)
#define EACH16(X) EACH8(X) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)

/* One round: @o from @i, both of 2 * H vectors.  Written out, not looped, so that the vectors stay
 * in registers at any level of optimisation. */
#define PAIR(lo, hi, o, i, H, r)                                                                   \
	o[2 * (r)] = lo(i[r], i[(r) + (H)]);                                                       \
	o[2 * (r) + 1] = hi(i[r], i[(r) + (H)]);

#define LO_U8(x, y)                                                                                \
	__builtin_shufflevector(x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HI_U8(x, y)                                                                                \
	__builtin_shufflevector(x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define LO_U16(x, y) __builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11)
#define HI_U16(x, y) __builtin_shufflevector(x, y, 4, 12, 5, 13, 6, 14, 7, 15)
#define LO_U32(x, y) __builtin_shufflevector(x, y, 0, 4, 1, 5)
#define HI_U32(x, y) __builtin_shufflevector(x, y, 2, 6, 3, 7)

#define LOAD(r) memcpy(&a[r], src + (r)*ss, 16);
#define STORE_A(r) memcpy(dst + (r)*ds, &a[r], 16);

BLOCK void block_u8(const uint8_t *src, int64_t ss, uint8_t *dst, int64_t ds)
{
#define AB(r) PAIR(LO_U8, HI_U8, b, a, 8, r)
#define BA(r) PAIR(LO_U8, HI_U8, a, b, 8, r)
	v16u8 a[16], b[16];

	EACH16(LOAD)
	EACH8(AB)
	EACH8(BA)
	EACH8(AB)
	EACH8(BA)
	EACH16(STORE_A)
#undef AB
#undef BA
}

BLOCK void block_u16(const uint8_t *src, int64_t ss, uint8_t *dst, int64_t ds)
{
#define AB(r) PAIR(LO_U16, HI_U16, b, a, 4, r)
#define BA(r) PAIR(LO_U16, HI_U16, a, b, 4, r)
#define STORE_B(r) memcpy(dst + (r)*ds, &b[r], 16);
	v8u16 a[8], b[8];

	EACH8(LOAD)
	EACH4(AB)
	EACH4(BA)
	EACH4(AB)
	EACH8(STORE_B)
#undef AB
#undef BA
#undef STORE_B
}

BLOCK void block_u32(const uint8_t *src, int64_t ss, uint8_t *dst, int64_t ds)
{
#define AB(r) PAIR(LO_U32, HI_U32, b, a, 2, r)
#define BA(r) PAIR(LO_U32, HI_U32, a, b, 2, r)
	v4u32 a[4], b[4];

	EACH4(LOAD)
	AB(0)
	AB(1)
	BA(0)
	BA(1)
	EACH4(STORE_A)
#undef AB
#undef BA
}

/* Transpose a grid by blocks: n_a and n_b are multiples of 16 / @elem. */
INLINE void blocks(unsigned elem, const struct wbk__grid *g)
{
	const size_t n = 16 / elem;

	/* The inner loop is over b, so that a source line is read whole before another line can
	 * evict it from its cache set. */
	for (size_t a = 0; a < g->n_a; a += n) {
		for (size_t b = 0; b < g->n_b; b += n) {
			const uint8_t *s = g->src + (int64_t)a * g->src_stride + b * elem;
			uint8_t *d = g->dst + (int64_t)b * g->dst_stride + a * elem;

			if (elem == 1)
				block_u8(s, g->src_stride, d, g->dst_stride);
			else if (elem == 2)
				block_u16(s, g->src_stride, d, g->dst_stride);
			else
				block_u32(s, g->src_stride, d, g->dst_stride);
		}
	}
}

/* Part of a grid. */
INLINE struct wbk__grid sub(
	unsigned elem, const struct wbk__grid *g, size_t a, size_t b, size_t n_a, size_t n_b)
{
	struct wbk__grid s = *g;

	s.src += (int64_t)a * g->src_stride + b * elem;
	s.dst += (int64_t)b * g->dst_stride + a * elem;
	s.n_a = n_a;
	s.n_b = n_b;
	return s;
}

/* Element by element. */
INLINE void plain(unsigned elem, struct wbk__grid g)
{
	for (size_t a = 0; a < g.n_a; a++) {
		const uint8_t *s = g.src + (int64_t)a * g.src_stride;
		uint8_t *d = g.dst + a * elem;

		for (size_t b = 0; b < g.n_b; b++)
			memcpy(d + (int64_t)b * g.dst_stride, s + b * elem, elem);
	}
}

/* Transpose any grid: by blocks, and what is left at two edges element by element. */
INLINE void any(unsigned elem, const struct wbk__grid *g)
{
	const size_t n = 16 / elem;
	size_t na = g->n_a / n * n, nb = g->n_b / n * n;
	struct wbk__grid inner = sub(elem, g, 0, 0, na, nb);

	blocks(elem, &inner);
	if (nb < g->n_b)
		plain(elem, sub(elem, g, 0, nb, na, g->n_b - nb));
	if (na < g->n_a)
		plain(elem, sub(elem, g, na, 0, g->n_a - na, g->n_b));
}

/* Transpose a grid whose n_a fills whole lines of dst.  These are put together in a buffer, since
 * lines of dst may share one set of the cache.  Streaming them halves the traffic, and saves the
 * wait for ownership of a line. */
INLINE void lines(unsigned elem, const struct wbk__grid *g, bool stream)
{
	const size_t line = 64 / elem;
	_Alignas(64) uint8_t buf[64 * 64];

	for (size_t b = 0; b < g->n_b; b += line) {
		size_t nb = g->n_b - b < line ? g->n_b - b : line;

		for (size_t a = 0; a < g->n_a; a += line) {
			struct wbk__grid t = sub(elem, g, a, b, line, nb);
			uint8_t *dst = t.dst;

			/* Prefetch each source line of a later tile once. */
			for (size_t i = 0; g->ahead && i < line; i++)
				__builtin_prefetch(t.src + (int64_t)i * g->src_stride + g->ahead);
			t.dst = buf;
			t.dst_stride = 64;
			any(elem, &t);
			for (size_t i = 0; i < nb; i++, dst += g->dst_stride) {
				if (stream)
					wbk__line_stream(dst, buf + 64 * i);
				else
					memcpy(dst, buf + 64 * i, 64);
			}
		}
	}
}

INLINE void transpose(unsigned elem, const struct wbk__grid *g, bool stream)
{
	const size_t line = 64 / elem;
	size_t lead = (-(uintptr_t)g->dst & 63) / elem, n;
	struct wbk__grid t;

	if (g->dst_stride % 64 || (uintptr_t)g->dst % elem)
		stream = false;
	if (!stream || lead > g->n_a)
		lead = 0;
	n = (g->n_a - lead) / line * line;
	t = sub(elem, g, lead, 0, n, g->n_b);
	if (stream)
		lines(elem, &t, true);
	else
		lines(elem, &t, false);
	t = sub(elem, g, 0, 0, lead, g->n_b);
	any(elem, &t);
	t = sub(elem, g, lead + n, 0, g->n_a - lead - n, g->n_b);
	any(elem, &t);
}

void wbk__transpose(unsigned elem, const struct wbk__grid *g, bool stream)
{
	switch (elem) {
	case 1:
		transpose(1, g, stream);
		break;
	case 2:
		transpose(2, g, stream);
		break;
	case 4:
		transpose(4, g, stream);
		break;
	default:
		plain(elem, *g);
	}
}
