/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "extract/internal.h"
#include "kernels/ids.h"

#include <string.h>

/*
 * The codes by which elements of a type carry digits, and the values of the passes of constants.
 *
 * If a probe has 16-bit floats of both kinds (or F16 beside F32), an element may be cast between
 * them on its way, and no 15-bit code survives that.  Such a probe is "mixed": BF16, F16 and F32
 * tensors all use digits of 11 bits that all three hold exactly (kernels/ids.h).
 */
static const struct {
	enum wbk_code code;
	uint32_t a, b; /* constants of the two passes */
	uint32_t sentinel; /* a signalling NaN if there is one: arithmetic makes it quiet */
} types[WB_DT_COUNT] = {
	[WB_BF16] = {WBK_CODE_BF16, 0x3fc0, 0xc0a0, 0x7fa5},
	[WB_F32] = {WBK_CODE_F32, 0x3fc00000, 0xc0a00000, 0x7fa5a5a5},
	[WB_F16] = {WBK_CODE_F16, 0x3e00, 0xc500, 0x7d5a},
	[WB_F8_E4M3] = {WBK_CODE_E4M3, 0x3c, 0xca, 0x7f},
	[WB_F8_E5M2] = {WBK_CODE_E5M2, 0x3e, 0xc5, 0x7f},
	[WB_I8] = {WBK_CODE_I8, 3, 0xfb, 0x5a},
	[WB_U8] = {WBK_CODE_I8, 3, 0xfb, 0x5a},
	[WB_I32] = {WBK_CODE_I32, 3, 0xfffffffb, 0x5a5a5a5a},
};

enum wbk_code wb__code_of(enum wb_dtype t)
{
	return types[t].code;
}

uint32_t wb__const_raw(enum wb_dtype t, enum wb_pass_kind kind)
{
	return kind == WB_PASS_CONST ? types[t].a : types[t].b;
}

uint32_t wb__sentinel_raw(enum wb_dtype t)
{
	return types[t].sentinel;
}

static bool is_float16or32(enum wb_dtype t)
{
	return t == WB_BF16 || t == WB_F16 || t == WB_F32;
}

unsigned wb__code_width(const struct wb_probe *p, enum wb_dtype t)
{
	return p->is_mixed && is_float16or32(t) ? WBK__MIXED_BITS : wbk_code_bits(types[t].code);
}

uint32_t wb__code_mask(const struct wb_probe *p, enum wb_dtype t)
{
	return (uint32_t)((UINT64_C(1) << wb__code_width(p, t)) - 1);
}

int64_t wb__code_offset(const struct wb_probe *p, enum wb_dtype t)
{
	return p->is_mixed && is_float16or32(t) ? WBK__MIXED_OFFSET : 0;
}

static unsigned bits_of(uint64_t max)
{
	return max ? 64 - (unsigned)__builtin_clzll(max) : 1;
}

static uint32_t types_of(enum wb_dtype t)
{
	return t == WB_F16 ? WB__TYPES_F16 : t == WB_BF16 || t == WB_F32 ? WB__TYPES_OTHER : 0;
}

uint32_t wb__codes_types(const struct wb_probe *p)
{
	uint32_t all = 0;

	for (uint32_t i = 0; i < p->manifest->n; i++)
		all |= types_of(p->manifest->tensor[i].dtype);
	for (uint32_t i = 0; i < p->n_param; i++)
		all |= types_of(p->param[i].dtype);
	return all;
}

/* The number of passes is the largest that any tensor needs. */
void wb__codes_setup(struct wb_probe *p, uint32_t all)
{
	const struct wb_manifest *m = p->manifest;

	p->is_mixed = (all & WB__TYPES_F16) && (all & WB__TYPES_OTHER);
	p->n_col_pass = p->n_row_pass = 1;
	for (uint32_t i = 0; i < m->n; i++) {
		const struct wb_tensor *t = &m->tensor[i];
		unsigned w = wb__code_width(p, t->dtype);
		uint64_t col = wb_ceil_div(bits_of(t->cols - 1), w);
		uint64_t row = wb_ceil_div(bits_of(m->rows - 1), w);

		p->col_max = WB_MAX(p->col_max, t->cols - 1);
		p->n_col_pass = (uint32_t)WB_MAX(p->n_col_pass, col);
		p->n_row_pass = (uint32_t)WB_MAX(p->n_row_pass, row);
	}
}

uint64_t wb__raw_at(const uint8_t *p, size_t elem_bytes)
{
	uint64_t raw = 0;

	memcpy(&raw, p, elem_bytes); /* little-endian */
	return raw;
}

void wb__raw_fill(uint8_t *out, size_t elem_bytes, uint64_t raw, size_t n)
{
	size_t bytes = n * elem_bytes, done = WB_MIN(bytes, 64 * elem_bytes);

	for (size_t i = 0; i < done; i += elem_bytes)
		memcpy(out + i, &raw, elem_bytes);
	/* Copy what is there already, in pieces that stay in the first-level cache. */
	while (done < bytes) {
		size_t take = WB_MIN(WB_MIN(done, 8192), bytes - done);

		memcpy(out + done, out, take);
		done += take;
	}
}

#define BLOCK 64

/* Write the words of @n <= BLOCK hashes: a code from the low bits of each.  The bits of the type
 * below those of its code are filled with other bits of the hash, to detect a loader that cuts them
 * off, or rounds them otherwise than a transfer does. */
static void hashes_put(
	const struct wb_probe *p, enum wb_dtype t, const uint32_t *hash, void *out, size_t n)
{
	const enum wbk_code code = types[t].code;
	const uint32_t mask = wb__code_mask(p, t);
	size_t bytes = wb_dtype_bytes(t);

	if (t == WB_F32 && !p->is_mixed) { /* a loop in which the compiler can use vectors */
		for (size_t i = 0; i < n; i++) {
			uint32_t word = wbk__hash_word(WBK_CODE_F32, 0, 0x7fff, hash[i]);

			memcpy((uint8_t *)out + 4 * i, &word, 4);
		}
		return;
	}
	for (size_t i = 0; i < n; i++) {
		uint32_t word = wbk__hash_word(code, p->is_mixed, mask, hash[i]);

		memcpy((uint8_t *)out + i * bytes, &word, bytes);
	}
}

/* Codes of digit(first + i) = ((first + i) >> shift) & mask. */
void wb__ramp(const struct wb_probe *p, enum wb_dtype t, const struct wb__digit *d, uint64_t first,
	void *out, size_t n)
{
	size_t bytes = wb_dtype_bytes(t);

	if (!(p->is_mixed && is_float16or32(t))) {
		wbk_encode_ramp(types[t].code, first, d->shift, d->mask, out, n);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		uint32_t word = wbk__mixed_word(
			types[t].code, (uint32_t)((first + i) >> d->shift) & d->mask);

		memcpy((uint8_t *)out + i * bytes, &word, bytes);
	}
}

/* Hashes of BLOCK columns; a fixed count, so that the compiler can use vectors. */
static inline __attribute__((always_inline)) void hash_block(
	uint32_t x, uint32_t step, uint32_t *hash)
{
	for (uint32_t i = 0; i < BLOCK; i++)
		hash[i] = wbk__hash_mix(x + i * step);
}

/* The same hashes as BF16 words, all in registers: this has to be fast, since every BF16 element of
 * a worker is verified with it. */
static inline __attribute__((always_inline)) void hash_bf16(
	uint32_t x, uint32_t step, uint16_t *word, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t h = wbk__hash_mix(x + (uint32_t)i * step);

		word[i] = (uint16_t)wbk__encode_float16(h);
	}
}

static void hash_plain(uint32_t x, uint32_t step, uint32_t *hash)
{
	hash_block(x, step, hash);
}

static void bf16_plain(uint32_t x, uint32_t step, uint16_t *word, size_t n)
{
	hash_bf16(x, step, word, n);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void hash_avx2(uint32_t x, uint32_t step, uint32_t *hash)
{
	hash_block(x, step, hash);
}

/* clang takes the optimisation level only from its command line, and knows no preferred width. */
#if defined(__clang__)
#define BF16_AVX2 __attribute__((target("avx2")))
#define BF16_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#else
#define BF16_AVX2 __attribute__((target("avx2"), optimize("O3")))
#define BF16_WIDE "avx512f,avx512bw,avx512vl,prefer-vector-width=512"
#define BF16_AVX512 __attribute__((target(BF16_WIDE), optimize("O3")))
#endif

BF16_AVX2 static void bf16_avx2(uint32_t x, uint32_t step, uint16_t *word, size_t n)
{
	hash_bf16(x, step, word, n);
}

BF16_AVX512 static void bf16_avx512(uint32_t x, uint32_t step, uint16_t *word, size_t n)
{
	hash_bf16(x, step, word, n);
}
#endif

struct hash_body {
	void (*hashes)(uint32_t x, uint32_t step, uint32_t *hash);
	void (*bf16)(uint32_t x, uint32_t step, uint16_t *word, size_t n);
};

static struct hash_body hash_body(void)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
		return (struct hash_body){hash_avx2, bf16_avx512};
	if (__builtin_cpu_supports("avx2"))
		return (struct hash_body){hash_avx2, bf16_avx2};
#endif
	return (struct hash_body){hash_plain, bf16_plain};
}

/* Words of a hash of (row, column): independent of the ids' own digits. */
void wb__hash_row(
	const struct wb_probe *p, enum wb_dtype t, const struct wb__hash_at *a, void *out, size_t n)
{
	const unsigned width = wb__code_width(p, t);
	const uint32_t step = (uint32_t)a->step * WBK__HASH_COLUMN;
	uint32_t x = wbk__hash_row_begin(a->seed, a->row) + (uint32_t)a->col * WBK__HASH_COLUMN;
	size_t bytes = wb_dtype_bytes(t);
	struct hash_body hash = hash_body();

	if (types[t].code == WBK_CODE_BF16 && width == 15 &&
		(uintptr_t)out % sizeof(uint16_t) == 0) {
		hash.bf16(x, step, out, n);
		return;
	}
	for (size_t at = 0; at < n; at += BLOCK) {
		uint32_t block[BLOCK];

		hash.hashes(x, step, block);
		x += BLOCK * step;
		hashes_put(p, t, block, (uint8_t *)out + at * bytes, WB_MIN(n - at, BLOCK));
	}
}
