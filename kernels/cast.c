/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions among bf16, f16 and f32: those of bits.h for arrays.
 *
 * The hardware's conversions treat a NaN in another way than bits.h says, so vectors that contain a
 * NaN are converted element by element.
 */
#include <assert.h>
#include <string.h>

#include "kernels/internal.h"

#define INLINE static inline __attribute__((always_inline))

#define LOOP(name, from, to, expr)                                                                 \
	INLINE void name(const uint8_t *src, uint8_t *dst, size_t n)                               \
	{                                                                                          \
		for (size_t i = 0; i < n; i++) {                                                   \
			from x;                                                                    \
			to y;                                                                      \
                                                                                                   \
			memcpy(&x, src + i * sizeof(x), sizeof(x));                                \
			y = expr;                                                                  \
			memcpy(dst + i * sizeof(y), &y, sizeof(y));                                \
		}                                                                                  \
	}
LOOP(bf16_to_f32, uint16_t, uint32_t, wbk__f32_of_bf16(x))
LOOP(f32_to_bf16, uint32_t, uint16_t, wbk__bf16_of_f32(x))
LOOP(f16_to_f32, uint16_t, uint32_t, wbk__f32_of_f16(x))
LOOP(f32_to_f16, uint32_t, uint16_t, wbk__f16_of_f32(x))
LOOP(bf16_to_f16, uint16_t, uint16_t, wbk__f16_of_f32(wbk__f32_of_bf16(x)))
LOOP(f16_to_bf16, uint16_t, uint16_t, wbk__bf16_of_f32(wbk__f32_of_f16(x)))

INLINE void scalar(enum wbk_cast cast, const uint8_t *src, uint8_t *dst, size_t n)
{
	switch (cast) {
	case WBK_BF16_TO_F32:
		bf16_to_f32(src, dst, n);
		break;
	case WBK_F32_TO_BF16:
		f32_to_bf16(src, dst, n);
		break;
	case WBK_F16_TO_F32:
		f16_to_f32(src, dst, n);
		break;
	case WBK_F32_TO_F16:
		f32_to_f16(src, dst, n);
		break;
	case WBK_BF16_TO_F16:
		bf16_to_f16(src, dst, n);
		break;
	default:
		assert(cast == WBK_F16_TO_BF16);
		f16_to_bf16(src, dst, n);
	}
}

#if WBK_X86
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2,f16c")))
#define AVX2_INLINE AVX2 INLINE

AVX2_INLINE __m256i bf16_of_f32_x8(__m256i x, int *n_nan)
{
	__m256i one = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));
	__m256i abs = _mm256_and_si256(x, _mm256_set1_epi32(0x7fffffff));

	*n_nan = _mm256_movemask_epi8(_mm256_cmpgt_epi32(abs, _mm256_set1_epi32(0x7f800000)));
	x = _mm256_add_epi32(x, _mm256_add_epi32(one, _mm256_set1_epi32(0x7fff)));
	return _mm256_srli_epi32(x, 16);
}

AVX2_INLINE __m128i narrow_x8(__m256i x)
{
	x = _mm256_packus_epi32(x, x);
	return _mm256_castsi256_si128(_mm256_permute4x64_epi64(x, 0x08));
}

/* Convert eight elements.  False: a NaN must be converted in another way, and nothing was
 * written. */
AVX2_INLINE bool cast_x8(enum wbk_cast cast, const uint8_t *src, uint8_t *dst)
{
	bool from_f32 = cast == WBK_F32_TO_BF16 || cast == WBK_F32_TO_F16;
	bool from_f16 = cast == WBK_F16_TO_F32 || cast == WBK_F16_TO_BF16;
	__m256i x = _mm256_setzero_si256();
	int n_nan;

	if (from_f32) {
		memcpy(&x, src, 32);
	} else {
		__m128i h;

		memcpy(&h, src, 16);
		x = from_f16 ? _mm256_castps_si256(_mm256_cvtph_ps(h))
			     : _mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16);
	}
	if (cast == WBK_BF16_TO_F32) {
		memcpy(dst, &x, 32);
		return true;
	}
	if (cast == WBK_F32_TO_BF16 || cast == WBK_F16_TO_BF16) {
		__m128i h = narrow_x8(bf16_of_f32_x8(x, &n_nan));

		if (!n_nan)
			memcpy(dst, &h, 16);
		return !n_nan;
	}
	n_nan = _mm256_movemask_ps(
		_mm256_cmp_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(x), _CMP_UNORD_Q));
	if (n_nan)
		return false;
	if (cast == WBK_F16_TO_F32) {
		memcpy(dst, &x, 32);
	} else {
		__m128i h = _mm256_cvtps_ph(
			_mm256_castsi256_ps(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);

		memcpy(dst, &h, 16);
	}
	return true;
}

AVX2_INLINE void vectors(
	enum wbk_cast cast, size_t se, size_t de, const uint8_t *src, uint8_t *dst, size_t n)
{
	size_t i = 0;

	for (; i + 8 <= n; i += 8)
		if (!cast_x8(cast, src + i * se, dst + i * de))
			scalar(cast, src + i * se, dst + i * de, 8);
	scalar(cast, src + i * se, dst + i * de, n - i);
}

AVX2 static void convert_avx2(enum wbk_cast cast, const uint8_t *src, uint8_t *dst, size_t n)
{
	switch (cast) {
	case WBK_BF16_TO_F32:
		vectors(WBK_BF16_TO_F32, 2, 4, src, dst, n);
		break;
	case WBK_F32_TO_BF16:
		vectors(WBK_F32_TO_BF16, 4, 2, src, dst, n);
		break;
	case WBK_F16_TO_F32:
		vectors(WBK_F16_TO_F32, 2, 4, src, dst, n);
		break;
	case WBK_F32_TO_F16:
		vectors(WBK_F32_TO_F16, 4, 2, src, dst, n);
		break;
	case WBK_BF16_TO_F16:
		vectors(WBK_BF16_TO_F16, 2, 2, src, dst, n);
		break;
	default:
		vectors(WBK_F16_TO_BF16, 2, 2, src, dst, n);
	}
}
#endif

static void convert(enum wbk_cast cast, const void *src, void *dst, size_t n)
{
#if WBK_X86
	if (wbk__isa() >= WBK__AVX2) {
		convert_avx2(cast, src, dst, n);
		return;
	}
#endif
	scalar(cast, src, dst, n);
}

/* Bytes of an element on the wire. */
static size_t wire_bytes(enum wbk_cast cast)
{
	return cast == WBK_F32_TO_BF16 || cast == WBK_F32_TO_F16 ? 4 : 2;
}

unsigned wbk__cast_ok(unsigned cast, unsigned wire_elem, unsigned mem_elem)
{
	if (cast == WBK_COPY)
		return wire_elem == mem_elem && wire_elem >= 1 && wire_elem <= 8;
	if (cast >= WBK_CAST_COUNT)
		return 0;
	return wire_elem == wire_bytes(cast) &&
	       mem_elem == (cast == WBK_BF16_TO_F32 || cast == WBK_F16_TO_F32 ? 4 : 2);
}

void wbk_cast_fwd(enum wbk_cast cast, const void *wire, void *mem, size_t n)
{
	assert(cast > WBK_COPY && cast < WBK_CAST_COUNT);
	convert(cast, wire, mem, n);
}

void wbk_cast_back(enum wbk_cast cast, const void *mem, void *wire, size_t n)
{
	static const enum wbk_cast inverse[WBK_CAST_COUNT] = {
		[WBK_BF16_TO_F32] = WBK_F32_TO_BF16,
		[WBK_F32_TO_BF16] = WBK_BF16_TO_F32,
		[WBK_F16_TO_F32] = WBK_F32_TO_F16,
		[WBK_F32_TO_F16] = WBK_F16_TO_F32,
		[WBK_BF16_TO_F16] = WBK_F16_TO_BF16,
		[WBK_F16_TO_BF16] = WBK_BF16_TO_F16,
	};

	assert(cast > WBK_COPY && cast < WBK_CAST_COUNT);
	convert(inverse[cast], mem, wire, n);
}
