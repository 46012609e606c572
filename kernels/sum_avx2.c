/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum with AVX2; see sum_body.h. */
#include "kernels/internal.h"

#if WBK_X86
#include <immintrin.h>

#define FN __attribute__((target("avx2")))
#define VL 8u
typedef __m256i vec;
typedef __m256i vmask;
#define v_zero() _mm256_setzero_si256()
#define v_load(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define v_odd(p)                                                                                   \
	_mm256_castps_si256(_mm256_movehdup_ps(_mm256_loadu_ps((const float *)(const void *)(p))))
#define v_add(a, b) _mm256_add_epi64(a, b)
#define v_mul(a, b) _mm256_mul_epu32(a, b)
#define v_shift(a) _mm256_srli_epi64(a, 32)
#define v_store(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), v)
#define v_stream(p, v) _mm256_stream_si256((__m256i *)(void *)(p), v)
#define v_mask_hi(n) _mm256_cmpgt_epi32(lanes(), _mm256_set1_epi32((int)(n)-1))
#define v_mask_lo(n) _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n)), lanes())
#define v_load_mask(p, m) _mm256_maskload_epi32((const int *)(const void *)(p), m)
#define v_store_mask(p, m, v) _mm256_maskstore_epi32((int *)(void *)(p), m, v)
#define v_mul64(a, key) mul64(a, key)
#define v_fold(a) fold(a)

FN static inline __m256i lanes(void)
{
	return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}

/* A product modulo 2^64.  AVX2 has only products of 32 by 32 bits. */
FN static inline __m256i mul64(__m256i x, uint64_t key)
{
	__m256i k = _mm256_set1_epi64x((long long)key);
	__m256i hi = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), k);
	__m256i kh = _mm256_mul_epu32(x, _mm256_srli_epi64(k, 32));
	__m256i lo = _mm256_mul_epu32(x, k);

	return _mm256_add_epi64(lo, _mm256_slli_epi64(_mm256_add_epi64(hi, kh), 32));
}

FN static inline uint64_t fold(__m256i v)
{
	__m128i x = _mm_add_epi64(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

	return (uint64_t)_mm_cvtsi128_si64(x) + (uint64_t)_mm_extract_epi64(x, 1);
}

#include "kernels/sum_body.h"

FN void wbk__words_avx2(const struct wbk_sum_keys *k, const struct wbk__rows *r, size_t head,
	size_t n_word, struct wbk_sum *s)
{
	words(k, r, head, n_word, s);
}
#endif
