/* SPDX-License-Identifier: Apache-2.0 */
/* Casts, digit codes and the second difference against plain oracles. */
#include "base/base.h"
#include "base/hash.h"
#include "kernels/codes.h"
#include "kernels/internal.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct wb_rng rng;

static void setup(void)
{
	const char *s = getenv("WB_SEED");

	rng.state = s ? strtoull(s, NULL, 0) : 20240612;
}

/* A binary floating format, through doubles. */
struct fmt {
	int bytes, man, exp;
};
static const struct fmt bf16 = {2, 7, 8}, f16 = {2, 10, 5}, f32 = {4, 23, 8}, e4m3 = {1, 3, 4},
			e5m2 = {1, 2, 5};

static double value_of(const struct fmt *f, uint32_t x)
{
	int bias = (1 << (f->exp - 1)) - 1, e = x >> f->man & ((1 << f->exp) - 1);
	double m = x & ((1u << f->man) - 1);
	double v = e ? ldexp(m + (1 << f->man), e - bias - f->man) : ldexp(m, 1 - bias - f->man);

	if (e == (1 << f->exp) - 1)
		v = m ? NAN : INFINITY;
	return x >> (f->exp + f->man) & 1 ? -v : v;
}

/* Nearest, ties to even; not for NaN. */
static uint32_t pattern_of(const struct fmt *f, double v)
{
	int bias = (1 << (f->exp - 1)) - 1, e;
	uint32_t sign = signbit(v) ? 1u << (f->exp + f->man) : 0;
	uint32_t inf = ((1u << f->exp) - 1) << f->man;
	double m;

	v = fabs(v);
	if (isinf(v))
		return sign | inf;
	if (v == 0)
		return sign;
	frexp(v, &e);
	e = e - 1 < 1 - bias ? 1 - bias : e - 1;
	m = nearbyint(ldexp(v, f->man - e)); /* the default mode: to even */
	if (m >= 1 << (f->man + 1)) {
		m /= 2;
		e++;
	}
	if (e > bias)
		return sign | inf;
	return sign | (m < 1 << f->man ? (uint32_t)m
				       : ((uint32_t)(e + bias) << f->man) +
						 ((uint32_t)m - (1u << f->man)));
}

static void check_cast(enum wbk_cast cast, const struct fmt *from, const struct fmt *to,
	const uint32_t *x, size_t n)
{
	uint8_t in[64], out[64];
	uint32_t y;

	for (size_t i = 0; i < n; i += 16) { /* long enough for vectors, with a remainder */
		size_t k = n - i < 13 ? n - i : 13;

		for (size_t j = 0; j < k; j++)
			memcpy(in + j * from->bytes, &x[i + j], from->bytes);
		wbk_cast_fwd(cast, in, out, k);
		for (size_t j = 0; j < k; j++) {
			double v = value_of(from, x[i + j]);

			y = 0;
			memcpy(&y, out + j * to->bytes, to->bytes);
			if (isnan(v))
				ck_assert(isnan(value_of(to, y)));
			else
				ck_assert(y == pattern_of(to, v));
		}
	}
}

static const struct {
	enum wbk_cast cast;
	const struct fmt *from, *to;
} casts[] = {{WBK_BF16_TO_F32, &bf16, &f32}, {WBK_F32_TO_BF16, &f32, &bf16},
	{WBK_F16_TO_F32, &f16, &f32}, {WBK_F32_TO_F16, &f32, &f16}, {WBK_BF16_TO_F16, &bf16, &f16},
	{WBK_F16_TO_BF16, &f16, &bf16}};

START_TEST(casts_round_to_nearest_even)
{
	uint32_t *x = calloc(1 << 19, 4);
	size_t n = 0;
	int i = _i % 6;

	wbk__isa_max = _i / 6;
	if (casts[i].from->bytes == 2) {
		for (uint32_t p = 0; p < 65536; p++) {
			/* The checker looks at 13 of 16. */
			x[n++] = p;
			if (n % 16 == 13)
				n += 3;
		}
	} else {
		int low = casts[i].to == &bf16 ? 16 : 13;

		for (uint32_t p = 0; p < 65536; p++) { /* every top half, at and beside the ties */
			static const int32_t near[] = {0, -1, 1};
			uint32_t r = wb_rng_u64(&rng) & (low == 13 ? 7u : 0u);

			x[n++] = (p << 16 | r << 13 | 1u << (low - 1)) + near[p % 3];
			x[n++] = p << 16 | (wb_rng_u64(&rng) & 0xffff);
			x[n++] = p << 16 | r << 13;
			while (n % 16 >= 13)
				n++;
		}
	}
	check_cast(casts[i].cast, casts[i].from, casts[i].to, x, n);
	free(x);
}
END_TEST

START_TEST(widening_and_back_gives_every_pattern_bit_for_bit)
{
	static uint16_t in[65536], back[65536];
	static uint32_t wide[65536];

	wbk__isa_max = _i / 2;
	for (uint32_t p = 0; p < 65536; p++)
		in[p] = (uint16_t)p;
	wbk_cast_fwd(_i % 2 ? WBK_BF16_TO_F32 : WBK_F16_TO_F32, in, wide, 65536);
	wbk_cast_back(_i % 2 ? WBK_BF16_TO_F32 : WBK_F16_TO_F32, wide, back, 65536);
	ck_assert_mem_eq(in, back, sizeof(in));
}
END_TEST

static const struct {
	enum wbk_code code;
	unsigned bits;
	const struct fmt *fmt; /* NULL = integer */
	uint32_t patterns; /* to try; 0 = 2^32 sampled */
} codes[] = {{WBK_CODE_BF16, 15, &bf16, 65536}, {WBK_CODE_F16, 15, &f16, 65536},
	{WBK_CODE_F32, 15, &f32, 0}, {WBK_CODE_E4M3, 7, &e4m3, 256}, {WBK_CODE_E5M2, 7, &e5m2, 256},
	{WBK_CODE_I8, 7, NULL, 256}, {WBK_CODE_I32, 31, NULL, 0}};

START_TEST(codes_are_normal_numbers_and_come_back)
{
	enum wbk_code code = codes[_i].code;
	uint32_t n = code == WBK_CODE_I32 ? 100000 : 1u << codes[_i].bits;
	const struct fmt *f = codes[_i].fmt;

	ck_assert_uint_eq(wbk_code_bits(code), codes[_i].bits);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t digit = n == 100000 ? (uint32_t)wb_rng_u64(&rng) >> 1 : i, x = 0;

		wbk_encode_fill(code, digit, &x, 1);
		ck_assert(wbk_decode(code, &x) == digit);
		if (!f)
			continue;
		x &= (uint32_t)((1ull << 8 * f->bytes) - 1);
		ck_assert(isnormal(value_of(f, x)));
		ck_assert((x >> f->man & ((1 << f->exp) - 1)) > 0);
	}
}
END_TEST

START_TEST(what_is_no_code_is_rejected)
{
	uint32_t n_ok = 0, patterns = codes[_i].patterns;
	enum wbk_code code = codes[_i].code;

	for (uint32_t x = 0; x < patterns; x++) {
		int64_t d = wbk_decode(code, &x);
		uint32_t y = 0;

		ck_assert(d < 1ll << codes[_i].bits);
		if (d < 0)
			continue;
		n_ok++;
		wbk_encode_fill(code, (uint32_t)d, &y, 1);
		ck_assert(x == y);
	}
	if (patterns)
		ck_assert_uint_eq(n_ok, 1u << codes[_i].bits);
	for (uint32_t i = 0; !patterns && i < 60000; i++) {
		uint32_t x = (uint32_t)wb_rng_u64(&rng) & (i % 2 ? 0xffff0000 : 0xffffffff), y = 0;
		int64_t d = wbk_decode(code, &x);

		if (d >= 0) {
			wbk_encode_fill(code, (uint32_t)d, &y, 1);
			ck_assert(x == y);
		} else {
			ck_assert(code == WBK_CODE_I32 ? !(x >> 31)
						       : x & 0xffff || (x >> 23 & 255) < 64 ||
								 (x >> 23 & 255) > 191);
		}
	}
}
END_TEST

START_TEST(ramp_is_its_definition)
{
	enum wbk_code code = codes[_i].code;
	uint8_t out[4 * 300];
	size_t bytes = wbk__code_bytes(code);

	for (int i = 0; i < 200; i++) {
		size_t n = wb_rng_below(&rng, 300);
		unsigned shift = (unsigned)wb_rng_below(&rng, 32);
		uint64_t first = wb_rng_u64(&rng) >> (4 + wb_rng_below(&rng, 50));
		uint32_t mask = (uint32_t)((1ull << codes[_i].bits) - 1);

		wbk_encode_ramp(code, first, shift, mask, out, n);
		for (size_t k = 0; k < n; k++)
			ck_assert(wbk_decode(code, out + k * bytes) ==
				  (int64_t)((first + k) >> shift & mask));
	}
}
END_TEST

/* A field that mixes smooth stretches, jumps, noise, bad elements and classes. */
static void random_field(struct wbk_field *f, uint8_t *data, uint8_t *cls)
{
	size_t bytes = wbk__code_bytes(f->code);
	uint32_t mask = (uint32_t)((1ull << wbk_code_bits(f->code)) - 1);
	uint64_t dr = wb_rng_below(&rng, 3), dc = wb_rng_below(&rng, 3);
	uint64_t at = wb_rng_u64(&rng);
	int noise = (int)wb_rng_below(&rng, 3);

	memset(data, 0, f->rows * f->row_stride * bytes);
	for (uint64_t r = 0; r < f->rows; r++) {
		if (noise && wb_rng_below(&rng, 7) == 0)
			at += wb_rng_u64(&rng);
		for (uint64_t c = 0; c < f->cols; c++) {
			uint32_t d = (uint32_t)(at + r * dr + c * dc) & mask, junk = 0;
			uint8_t *p = data + (r * f->row_stride + c) * bytes;

			if (noise == 2 && wb_rng_below(&rng, 30) == 0)
				d = (uint32_t)wb_rng_u64(&rng) & mask;
			wbk_encode_fill(f->code, d, p, 1);
			if (noise == 2 && wb_rng_below(&rng, 90) == 0)
				memcpy(p, &junk, bytes);
			cls[r * f->cols + c] =
				wb_rng_below(&rng, 200) ? 0 : 1 + wb_rng_below(&rng, 3);
		}
	}
}

static int64_t v_at(const struct wbk_field *f, int64_t r, int64_t c, bool *bad)
{
	int64_t v;

	*bad = false;
	if (r < 0 || c < 0 || (f->cls && f->cls[r * (int64_t)f->cols + c]))
		return 0;
	v = wbk_decode(
		f->code, (const uint8_t *)f->data +
				 (r * f->row_stride + c) * (int64_t)wbk__code_bytes(f->code));
	*bad = v < 0;
	return v < 0 ? 0 : v;
}

static int64_t d_at(const struct wbk_field *f, int64_t r, int64_t c, bool *bad)
{
	static const int k[3] = {1, -2, 1};
	int64_t d = 0;
	bool b;

	for (int i = 0; i < 3; i++)
		for (int j = 0; j < 3; j++)
			d += k[i] * k[j] * v_at(f, r - i, c - j, &b);
	v_at(f, r, c, bad);
	return d;
}

START_TEST(diff2_emits_what_its_definition_says)
{
	static uint8_t data[4 * 12 * 520], cls[12 * 500];
	struct wbk_record rec[64];

	wbk__isa_max = _i / 7;
	for (int i = 0; i < 16; i++) {
		struct wbk_field f = {.rows = 1 + wb_rng_below(&rng, 8),
			.cols = 1 + wb_rng_below(&rng, i % 4 ? 120 : 500),
			.code = codes[_i % 7].code,
			.data = data};
		uint64_t at = 0, n_bad = 0, want_bad = 0, till = 0;
		size_t cap = 1 + wb_rng_below(&rng, i % 2 ? 64 : 5);
		bool bad;

		f.row_stride = (int64_t)(f.cols + wb_rng_below(&rng, 5));
		f.cls = wb_rng_below(&rng, 2) ? cls : NULL;
		random_field(&f, data, cls);
		while (till < f.rows * f.cols) {
			size_t n = wbk_diff2(&f, till, rec, cap, &till, &n_bad);

			for (size_t k = 0; k <= n; k++) {
				uint64_t stop = k < n ? rec[k].index : till;

				for (; at < stop; at++)
					ck_assert(d_at(&f, (int64_t)(at / f.cols),
							  (int64_t)(at % f.cols), &bad) == 0);
				if (k == n)
					break;
				ck_assert_int_eq(
					rec[k].value, d_at(&f, (int64_t)(at / f.cols),
							      (int64_t)(at % f.cols), &bad));
				ck_assert(rec[k].value != 0);
				at++;
			}
			ck_assert(n == cap || till == f.rows * f.cols);
		}
		for (at = 0; at < till; at++) {
			d_at(&f, (int64_t)(at / f.cols), (int64_t)(at % f.cols), &bad);
			want_bad += bad;
		}
		ck_assert_uint_eq(n_bad, want_bad);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kernels: casts, codes, diff2");
	TCase *tc = tcase_create("all");

	setup();
	printf("seed %llu (WB_SEED=)\n", (unsigned long long)rng.state);
	tcase_add_loop_test(tc, casts_round_to_nearest_even, 0, 12);
	tcase_add_loop_test(tc, widening_and_back_gives_every_pattern_bit_for_bit, 0, 4);
	tcase_add_loop_test(tc, codes_are_normal_numbers_and_come_back, 0, 7);
	tcase_add_loop_test(tc, what_is_no_code_is_rejected, 0, 7);
	tcase_add_loop_test(tc, ramp_is_its_definition, 0, 7);
	tcase_add_loop_test(tc, diff2_emits_what_its_definition_says, 0, 21);
	suite_add_tcase(suite, tc);
	return fx_run(suite);
}
