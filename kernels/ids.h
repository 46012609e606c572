/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WBK_IDS_H
#define WBK_IDS_H
/*
 * What a probe writes into a checkpoint: the word of an element by its row and column, as inline
 * functions that host and device share.
 *
 * Mixed digits are for probes with 16-bit floats of both kinds, in which an element may be cast
 * between these on its way: a digit of 11 bits is a number 2^-7 ..  2^8 with 7 mantissa bits, which
 * BF16, F16 and F32 can all hold exactly.  As BF16 codes, mixed digit d is digit 7168 + d, so the
 * ordinary decoder reads it with this constant added (F16 is widened to F32 first).
 */
#include "kernels/codes.h"
#include "kernels/gpu.h"

#define WBK__MIXED_BITS 11
#define WBK__MIXED_OFFSET 7168
#define WBK__MIXED_BF16 0x3c00u /* the BF16 word of mixed digit 0 */
#define WBK__MIXED_F16 0x2000u
#define WBK__HASH_COLUMN 0x9e3779b1u /* step from a column to the next, before mixing */

/** wbk__mixed_word - the bits of an element that carries a mixed digit, which has 11 bits. */
WBK_BOTH uint32_t wbk__mixed_word(enum wbk_code code, uint32_t d)
{
	if (code == WBK_CODE_F16)
		return WBK__MIXED_F16 + (d << 3);
	return (WBK__MIXED_BF16 + d) << (code == WBK_CODE_F32 ? 16 : 0);
}

/** wbk__is_mixed - does the code have mixed digits in a mixed probe? */
WBK_BOTH int wbk__is_mixed(enum wbk_code code, int is_mixed)
{
	return is_mixed && (code == WBK_CODE_BF16 || code == WBK_CODE_F16 || code == WBK_CODE_F32);
}

/** wbk__digit_word - the bits of an element that carries the digit. */
WBK_BOTH uint32_t wbk__digit_word(enum wbk_code code, int is_mixed, uint32_t d)
{
	return wbk__is_mixed(code, is_mixed) ? wbk__mixed_word(code, d) : wbk__encode_one(code, d);
}

/** wbk__id_mix - mixes a word (splitmix64's finaliser). */
WBK_BOTH uint64_t wbk__id_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/** wbk__hash_row_begin - start value of a row's hash, to which column * WBK__HASH_COLUMN is
 * added. */
WBK_BOTH uint32_t wbk__hash_row_begin(uint64_t seed, uint64_t row)
{
	return (uint32_t)wbk__id_mix(seed ^ wbk__id_mix(row));
}

/** wbk__hash_mix - mix 32 bits of a hash. */
WBK_BOTH uint32_t wbk__hash_mix(uint32_t h)
{
	h = (h ^ h >> 16) * 0x7feb352du;
	h = (h ^ h >> 15) * 0x846ca68bu;
	return h ^ h >> 16;
}

/** wbk__hash_free_bits - number of low bits of an element that no digit uses; a hash fills them as
 * well. */
WBK_BOTH unsigned wbk__hash_free_bits(enum wbk_code code, int is_mixed)
{
	if (code == WBK_CODE_F32)
		return 16;
	return code == WBK_CODE_F16 && is_mixed ? 3 : 0;
}

/** wbk__hash_word - the bits of an element that carries @hash, which was mixed; @mask: of its
 * digit. */
WBK_BOTH uint32_t wbk__hash_word(enum wbk_code code, int is_mixed, uint32_t mask, uint32_t hash)
{
	unsigned rest = wbk__hash_free_bits(code, is_mixed);
	uint32_t word = wbk__digit_word(code, is_mixed, hash & mask);

	return rest ? word | hash >> (32 - rest) : word;
}

/** wbk__id_word - the bits of the element at (@row, @col) of the checkpoint. */
WBK_BOTH uint32_t wbk__id_word(const struct wbk_id *id, uint64_t row, uint64_t col)
{
	enum wbk_code code = (enum wbk_code)id->code;

	switch (id->kind) {
	case WBK_ID_SAME:
		return id->mask;
	case WBK_ID_HASH:
		return wbk__hash_word(code, id->is_mixed, id->mask,
			wbk__hash_mix(wbk__hash_row_begin(id->seed, row) +
				      (uint32_t)col * WBK__HASH_COLUMN));
	default:
		return wbk__digit_word(code, id->is_mixed,
			(uint32_t)((id->kind == WBK_ID_ROW ? row : col) >> id->shift) & id->mask);
	}
}

#endif
