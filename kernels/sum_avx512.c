/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum with AVX-512; see sum_body.h. */
#include "kernels/internal.h"

#if WBK_X86
#include <immintrin.h>

#define FN __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#define VL 16u
typedef __m512i vec;
typedef __mmask16 vmask;
#define v_zero() _mm512_setzero_si512()
#define v_load(p) _mm512_loadu_si512(p)
#define v_odd(p) _mm512_castps_si512(_mm512_movehdup_ps(_mm512_loadu_ps(p)))
#define v_add(a, b) _mm512_add_epi64(a, b)
#define v_mul(a, b) _mm512_mul_epu32(a, b)
#define v_shift(a) _mm512_srli_epi64(a, 32)
#define v_store(p, v) _mm512_storeu_si512(p, v)
#define v_stream(p, v) _mm512_stream_si512((void *)(p), v)
#define v_mask_lo(n) ((vmask)((1u << (n)) - 1))
#define v_mask_hi(n) ((vmask) ~((1u << (n)) - 1))
#define v_load_mask(p, m) _mm512_maskz_loadu_epi32(m, p)
#define v_store_mask(p, m, v) _mm512_mask_storeu_epi32(p, m, v)
#define v_mul64(a, key) _mm512_mullo_epi64(a, _mm512_set1_epi64((long long)(key)))
#define v_fold(a) fold(a)

/* _mm512_reduce_add_epi64 is not used, since it adds signed numbers. */
FN static inline uint64_t fold(__m512i v)
{
	uint64_t x[8];

	_mm512_storeu_si512(x, v);
	return x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7];
}

#include "kernels/sum_body.h"

FN void wbk__words_avx512(const struct wbk_sum_keys *k, const struct wbk__rows *r, size_t head,
	size_t n_word, struct wbk_sum *s)
{
	words(k, r, head, n_word, s);
}
#endif
