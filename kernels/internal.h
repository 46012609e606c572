/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WBK_INTERNAL_H
#define WBK_INTERNAL_H
/*
 * Shared by the kernel bodies: rows that are copied and summed at once, transposes, the choice of
 * instruction set.  Not for users of kernels.h (only tests use it, to compare the bodies).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/bits.h"
#include "kernels/kernels.h"

#if defined(__x86_64__)
#define WBK_X86 1
#include <emmintrin.h>
#else
#define WBK_X86 0
#endif

/* Instruction sets with a body of their own.  Linear: each includes the ones before. */
enum wbk__isa { WBK__SCALAR = 0, WBK__AVX2 = 1, WBK__AVX512 = 2 };

/* For tests and benchmarks: bodies above this are not used.  Write it only before any other
 * call. */
extern enum wbk__isa wbk__isa_max;
/** wbk__isa - the best set this CPU (and wbk__isa_max) allows. */
enum wbk__isa wbk__isa(void);

/* Rows of wire bytes: n_row rows of row_bytes bytes, each contiguous in the checkpoint. */
struct wbk__rows {
	uint64_t pos, pos_stride; /* checkpoint byte position of row 0; bytes to the next row */
	const uint8_t *src;
	uint8_t *dst; /* NULL = only sum */
	int64_t src_stride, dst_stride; /* bytes */
	size_t row_bytes, n_row;
	bool stream; /* large, and not read again soon: stores may bypass the caches */
};

/* With .stream, call wbk__stream_fence() before the bytes are handed on. */
/** wbk__rows_sum - copy the rows (when dst is set) and add them to @s in the same pass. */
void wbk__rows_sum(const struct wbk_sum_keys *k, const struct wbk__rows *r, struct wbk_sum *s);
/** wbk__rows_copy - copy the rows. */
void wbk__rows_copy(const struct wbk__rows *r);

/* Bodies of the sum over whole words: @n words at word position @p of one row.  dst may be NULL. */
typedef void wbk__words_fn(const struct wbk_sum_keys *k, const struct wbk__rows *r, size_t head,
	size_t n_word, struct wbk_sum *s);
/** wbk__words_scalar, wbk__words_avx2, wbk__words_avx512 - add @n_word words of each row to @s,
 * from byte @head of it on, and copy them where dst is set; all three give the same sum.  pos +
 * @head must be a multiple of 4 in each row.  The caller checks that the machine has the
 * instructions. */
void wbk__words_scalar(const struct wbk_sum_keys *k, const struct wbk__rows *r, size_t head,
	size_t n_word, struct wbk_sum *s);
#if WBK_X86
/** wbk__words_avx2, wbk__words_avx512 - the same sum, on a machine that has the instructions. */
void wbk__words_avx2(const struct wbk_sum_keys *k, const struct wbk__rows *r, size_t head,
	size_t n_word, struct wbk_sum *s);
void wbk__words_avx512(const struct wbk_sum_keys *k, const struct wbk__rows *r, size_t head,
	size_t n_word, struct wbk_sum *s);
#endif

/* n_a x n_b elements: in src, neighbours in b are adjacent, and neighbours in a are src_stride
 * bytes apart; in dst it is the other way round. */
struct wbk__grid {
	const uint8_t *src;
	uint8_t *dst;
	int64_t src_stride, dst_stride;
	size_t n_a, n_b;
	int64_t ahead; /* bytes from a source line to the one to prefetch; 0 = none */
};

/** wbk__transpose - dst[b][a] = src[a][b] for elements of @elem bytes.  @stream: stores may bypass
 * the caches; call wbk__stream_fence() before the bytes are handed on. */
void wbk__transpose(unsigned elem, const struct wbk__grid *g, bool stream);
/* Copy 64 bytes, bypassing the caches; @dst must be aligned to 64. */
static inline void wbk__line_stream(uint8_t *dst, const uint8_t *src)
{
#if WBK_X86
	for (int i = 0; i < 64; i += 16)
		_mm_stream_si128((__m128i *)(void *)(dst + i),
			_mm_loadu_si128((const __m128i *)(const void *)(src + i)));
#else
	__builtin_memcpy(dst, src, 64);
#endif
}
/** wbk__copy_stream - memcpy that bypasses the caches for whole lines of @dst. */
void wbk__copy_stream(uint8_t *dst, const uint8_t *src, size_t n);
/** wbk__stream_fence - stores that bypassed the caches become visible before all stores after this
 * call. */
void wbk__stream_fence(void);

/** wbk__cast_ok - whether the cast exists and fits the element sizes (bytes). */
unsigned wbk__cast_ok(unsigned cast, unsigned wire_elem, unsigned mem_elem);

#endif
