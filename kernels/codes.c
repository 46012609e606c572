/* SPDX-License-Identifier: Apache-2.0 */
/* Value-safe digit codes over arrays. */
#include <assert.h>

#include "kernels/codes.h"

#define INLINE static inline __attribute__((always_inline))

unsigned wbk_code_bits(enum wbk_code code)
{
	switch (code) {
	case WBK_CODE_BF16:
	case WBK_CODE_F32:
	case WBK_CODE_F16:
		return 15;
	case WBK_CODE_E4M3:
	case WBK_CODE_E5M2:
	case WBK_CODE_I8:
		return 7;
	case WBK_CODE_I32:
		return 31;
	default:
		return 0;
	}
}

int64_t wbk_decode(enum wbk_code code, const void *elem)
{
	assert(elem);
	return wbk__decode_one(code, elem);
}

INLINE void put(uint8_t *out, size_t i, size_t bytes, uint32_t pattern)
{
	memcpy(out + i * bytes, &pattern, bytes); /* little-endian: the low bytes */
}

/* @code and so the element size are constants where this is inlined. */
INLINE void ramp(
	enum wbk_code code, uint64_t first, unsigned shift, uint32_t mask, uint8_t *out, size_t n)
{
	for (size_t i = 0; i < n; i++)
		put(out, i, wbk__code_bytes(code),
			wbk__encode_one(code, (uint32_t)((first + i) >> shift) & mask));
}

void wbk_encode_ramp(
	enum wbk_code code, uint64_t first, unsigned shift, uint32_t mask, void *out, size_t n)
{
	assert(wbk_code_bits(code) && shift < 64 && !((uint64_t)mask >> wbk_code_bits(code)));
	switch (wbk__code_bytes(code)) {
	case 2:
		ramp(WBK_CODE_BF16, first, shift, mask, out, n);
		break;
	case 4:
		if (code == WBK_CODE_F32)
			ramp(WBK_CODE_F32, first, shift, mask, out, n);
		else
			ramp(WBK_CODE_I32, first, shift, mask, out, n);
		break;
	default:
		if (code == WBK_CODE_I8)
			ramp(WBK_CODE_I8, first, shift, mask, out, n);
		else
			ramp(WBK_CODE_E4M3, first, shift, mask, out, n);
	}
}

INLINE void fill(uint8_t *out, size_t bytes, uint32_t pattern, size_t n)
{
	for (size_t i = 0; i < n; i++)
		put(out, i, bytes, pattern);
}

void wbk_encode_fill(enum wbk_code code, uint32_t digit, void *out, size_t n)
{
	uint32_t pattern = wbk__encode_one(code, digit);

	assert(wbk_code_bits(code) && !((uint64_t)digit >> wbk_code_bits(code)));
	switch (wbk__code_bytes(code)) {
	case 2:
		fill(out, 2, pattern, n);
		break;
	case 4:
		fill(out, 4, pattern, n);
		break;
	default:
		memset(out, (int)pattern, n);
	}
}
