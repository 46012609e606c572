/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WBK_CODES_H
#define WBK_CODES_H
/*
 * Digit codes of one element, as inline functions for the bodies that loop over them.
 *
 * The floating codes shift their exponent window to 0, so a digit is sign | window | mantissa.  The
 * windows are chosen so that BF16 and F16 have the same 16-bit patterns, and E4M3 and E5M2 the same
 * 8-bit patterns.
 */
#include <stdint.h>
#include <string.h>

#include "kernels/bits.h"
#include "kernels/kernels.h"

/** wbk__encode_float16 - the 16-bit pattern that carries a digit of 15 bits; higher bits are
 *  ignored. */
WBK_BOTH uint32_t wbk__encode_float16(uint32_t digit)
{
	return ((digit & 0x3fff) + 0x2000) | (digit & 0x4000) << 1;
}

/** wbk__encode_float8 - the 8-bit pattern of a digit of 7 bits; higher bits are ignored. */
WBK_BOTH uint32_t wbk__encode_float8(uint32_t digit)
{
	return ((digit & 0x3f) + 0x20) | (digit & 0x40) << 1;
}

/* The element's bit pattern, zero-extended. */
WBK_BOTH uint32_t wbk__encode_one(enum wbk_code code, uint32_t digit)
{
	switch (code) {
	case WBK_CODE_BF16:
	case WBK_CODE_F16:
		return wbk__encode_float16(digit);
	case WBK_CODE_F32:
		return wbk__encode_float16(digit) << 16;
	case WBK_CODE_E4M3:
	case WBK_CODE_E5M2:
		return wbk__encode_float8(digit);
	case WBK_CODE_I8:
		return 0x80 | (digit & 0x7f);
	case WBK_CODE_I32:
		return 0x80000000u | digit;
	default:
		return 0;
	}
}

/** wbk__decode_float16 - the digit of a 16-bit pattern, or -1 when it carries none. */
WBK_BOTH int64_t wbk__decode_float16(uint32_t x)
{
	uint32_t t = (x & 0x7fff) - 0x2000;

	return t < 0x4000 ? (int64_t)(t | (x >> 1 & 0x4000)) : -1;
}

/** wbk__decode_bits - the digit of an element's bit pattern, zero-extended; -1 when it is no code.
 */
WBK_BOTH int64_t wbk__decode_bits(enum wbk_code code, uint32_t x)
{
	uint32_t t;

	switch (code) {
	case WBK_CODE_BF16:
	case WBK_CODE_F16:
		return wbk__decode_float16(x);
	case WBK_CODE_F32:
		return x & 0xffff ? -1 : wbk__decode_float16(x >> 16);
	case WBK_CODE_E4M3:
	case WBK_CODE_E5M2:
		t = (x & 0x7f) - 0x20;
		return t < 0x40 ? (int64_t)(t | (x >> 1 & 0x40)) : -1;
	case WBK_CODE_I8:
		return x & 0x80 ? (int64_t)(x & 0x7f) : -1;
	case WBK_CODE_I32:
		return x & 0x80000000u ? (int64_t)(x & 0x7fffffff) : -1;
	default:
		return -1;
	}
}

/** wbk__code_bytes - size of an element of the code in bytes; 0 for an unknown code. */
WBK_BOTH size_t wbk__code_bytes(enum wbk_code code)
{
	switch (code) {
	case WBK_CODE_BF16:
	case WBK_CODE_F16:
		return 2;
	case WBK_CODE_F32:
	case WBK_CODE_I32:
		return 4;
	case WBK_CODE_E4M3:
	case WBK_CODE_E5M2:
	case WBK_CODE_I8:
		return 1;
	default:
		return 0;
	}
}

/* @elem holds an element of the code's size, at any alignment. */
WBK_BOTH int64_t wbk__decode_one(enum wbk_code code, const uint8_t *elem)
{
	uint16_t half;
	uint32_t word;

	/* A copy of a length that the compiler knows is a load. */
	switch (code) {
	case WBK_CODE_BF16:
	case WBK_CODE_F16:
		memcpy(&half, elem, 2);
		return wbk__decode_float16(half);
	case WBK_CODE_F32:
		memcpy(&word, elem, 4);
		return wbk__decode_bits(WBK_CODE_F32, word);
	case WBK_CODE_I32:
		memcpy(&word, elem, 4);
		return wbk__decode_bits(WBK_CODE_I32, word);
	case WBK_CODE_E4M3:
	case WBK_CODE_E5M2:
	case WBK_CODE_I8:
		return wbk__decode_bits(code, *elem);
	default:
		return -1;
	}
}

#endif
