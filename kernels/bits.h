/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WBK_BITS_H
#define WBK_BITS_H
/*
 * What host and device compute in the same way, on bit patterns: the odd factor of a block of the
 * checksum, and conversions of one element between bf16, f16 and f32.  Only integer arithmetic is
 * used, so that both give the same bits for every pattern, whatever the hardware's conversions do
 * with a NaN.
 *
 * Narrowing rounds to nearest, ties to even.  A NaN keeps the payload bits that fit and becomes
 * quiet only when none of them would be left, so that widening followed by narrowing gives back
 * every pattern bit for bit.
 */
#include <stdint.h>

#ifdef __CUDACC__
#define WBK_BOTH __host__ __device__ static inline
#else
#define WBK_BOTH static inline __attribute__((always_inline))
#endif

/** wbk__block_key - the odd factor of a block of 1024 words in one lane of the sum. */
WBK_BOTH uint64_t wbk__block_key(uint64_t seed, uint64_t block)
{
	uint64_t x = seed + block * 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return (x ^ (x >> 31)) | 1;
}

/** wbk__f32_of_bf16 - exact. */
WBK_BOTH uint32_t wbk__f32_of_bf16(uint16_t x)
{
	return (uint32_t)x << 16;
}

/** wbk__bf16_of_f32 - rounds. */
WBK_BOTH uint16_t wbk__bf16_of_f32(uint32_t x)
{
	uint32_t rounded = (x + 0x7fff + (x >> 16 & 1)) >> 16;
	uint32_t nan = x >> 16 | (x & 0x7f0000 ? 0 : 0x40);

	return (uint16_t)((x & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

/** wbk__f32_of_f16 - exact. */
WBK_BOTH uint32_t wbk__f32_of_f16(uint16_t x)
{
	uint32_t sign = (uint32_t)(x & 0x8000) << 16, exp = x >> 10 & 31, man = x & 0x3ff;

	if (exp == 31)
		return sign | 0x7f800000 | man << 13;
	if (exp)
		return sign | (exp + 112) << 23 | man << 13;
	if (!man)
		return sign;
	for (exp = 113; !(man & 0x400); exp--)
		man <<= 1;
	return sign | exp << 23 | (man & 0x3ff) << 13;
}

/** wbk__shift_round - @x >> @n, to nearest, ties to even; 0 < n < 32. */
WBK_BOTH uint32_t wbk__shift_round(uint32_t x, unsigned n)
{
	uint32_t half = 1u << (n - 1), rest = x & (2 * half - 1), q = x >> n;

	return q + (rest > half || (rest == half && (q & 1)));
}

/** wbk__f16_of_f32 - rounds; what is too large becomes infinity. */
WBK_BOTH uint16_t wbk__f16_of_f32(uint32_t x)
{
	uint32_t sign = x >> 16 & 0x8000, abs = x & 0x7fffffff, exp = abs >> 23, man;

	if (abs > 0x7f800000) {
		man = abs >> 13 & 0x3ff;
		return (uint16_t)(sign | 0x7c00 | (man ? man : 0x200));
	}
	if (exp >= 143)
		return (uint16_t)(sign | 0x7c00);
	if (exp >= 113) /* a carry out of the mantissa raises the exponent, up to infinity */
		return (uint16_t)(sign | wbk__shift_round(abs - (112u << 23), 13));
	if (exp < 102)
		return (uint16_t)sign;
	man = (abs & 0x7fffff) | 0x800000;
	return (uint16_t)(sign | wbk__shift_round(man, 126 - exp));
}

#endif
