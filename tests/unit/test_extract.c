/* SPDX-License-Identifier: Apache-2.0 */
/* Extraction of loaders that copy: every kind of layout, and random ones. */
#include "base/base.h"
#include "base/buf.h"
#include "base/mem.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_cuda.h"
#include "tests/common/fx_loader.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Extract, compare with the table, want @ops ops (0 = any); -1: no check of the count. */
static void expect(struct sim *s, int64_t ops)
{
	struct wb_err err = {0};
	struct wb_srcmap *map = NULL;
	char faults[4096];
	int rc = fxl_extract(s, &map, faults, &err);

	ck_assert_msg(!rc, "%s", err.msg);
	fxl_check_map(s, map);
	fxl_check_intact(s);
	if (ops >= 0)
		ck_assert_int_eq(map->map->n_op, ops);
	wb_srcmap_destroy(map);
	fxl_clear(s);
}

/* ---- the rows of the table of cases ----------------------------------------------------- */

static void case_column_slice(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 40, 24, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 40, 8, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, i / 8 * 24 + 8 + i % 8);
}

static void case_transpose(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 20, 30, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 30, 20, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, i % 20 * 30 + i / 20);
}

static void case_transposed_slice(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 20, 30, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 7, 20, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, i % 20 * 30 + 11 + i / 20);
}

static void case_vector(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_F32, 1, 100, 0, 0);
	struct sim_param *p = fxl_param(s, WB_F32, 1, 60, 0, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, i + 17);
}

static void case_scalar(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_F32, 0, 0, 0, 0);
	struct sim_param *p = fxl_param(s, WB_F32, 0, 0, 0, 0);

	p->src[0] = fxl_src(t, 0);
}

static void case_stacked_experts(struct sim *s)
{
	struct sim_param *p;

	for (int i = 0; i < 12; i++)
		fxl_tensor(s, WB_BF16, 2, 6, 10, 0);
	p = fxl_param(s, WB_BF16, 3, 4, 12, 10); /* [gate; up] of experts 1..4 */
	for (uint64_t i = 0; i < p->n; i++) {
		uint64_t e = i / 120, r = i % 120 / 10;

		p->src[i] = fxl_src((uint32_t)(3 * (e % 4) + r / 6), r % 6 * 10 + i % 10);
	}
}

static void case_five_tiles(struct sim *s)
{
	static const int tile[5][4] = {
		{0, 3, 0, 5}, {0, 3, 5, 6}, {3, 4, 0, 2}, {3, 5, 2, 6}, {4, 5, 0, 2}};
	struct sim_param *p;

	for (int i = 0; i < 5; i++)
		fxl_tensor(s, WB_BF16, 2, 9, 9, 0);
	p = fxl_param(s, WB_BF16, 2, 5, 6, 0);
	for (int k = 0; k < 5; k++)
		for (int r = tile[k][0]; r < tile[k][1]; r++)
			for (int c = tile[k][2]; c < tile[k][3]; c++)
				p->src[r * 6 + c] = fxl_src((uint32_t)((k * 2) % 5),
					(uint64_t)((r - tile[k][0] + k) * 9 + c - tile[k][2] + 2));
}

static void case_checkerboard(struct sim *s)
{
	uint32_t a = fxl_tensor(s, WB_BF16, 2, 6, 6, 0), b = fxl_tensor(s, WB_BF16, 2, 6, 6, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 6, 6, 0);

	for (uint64_t i = 0; i < 36; i++)
		p->src[i] = fxl_src((i / 6 + i) % 2 ? a : b, i);
}

static void case_interleaved_rows(struct sim *s)
{
	uint32_t a = fxl_tensor(s, WB_BF16, 2, 20, 8, 0), b = fxl_tensor(s, WB_BF16, 2, 20, 8, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 40, 8, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(i / 8 % 2 ? b : a, i / 16 * 8 + i % 8);
}

static void case_deinterleaved_columns(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 12, 32, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 12, 32, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, i / 32 * 32 + i % 16 * 2 + i % 32 / 16);
}

static void case_reversed(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 12, 9, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 12, 9, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, (11 - i / 9) * 9 + 8 - i % 9);
}

static void case_stride_two(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 24, 9, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 12, 9, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, i / 9 * 18 + i % 9);
}

static void case_permuted_rows(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 16, 9, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 16, 9, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, (i / 9 * 7 * (i / 9 + 3) + i / 9 * i / 9) % 16 * 9 + i % 9);
}

static void case_permuted_columns(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 9, 16, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 9, 16, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, i / 16 * 16 + (i % 16 * 5 + i % 16 / 3) % 16);
}

static void case_broadcast_row(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 9, 16, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 20, 16, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, 3 * 16 + i % 16);
}

static void case_gate_per_head(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 4, 16, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 32, 16, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, i / 16 / 8 * 16 + i % 16);
}

static void case_scalar_everywhere(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 1, 4, 0, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 5, 7, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, 2);
}

static void case_copies(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 8, 16, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 3, 3, 8, 16);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, i % 128);
}

static void case_unwritten(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 8, 10, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 8, 10, 0);

	for (uint64_t i = 0; i < 50; i++)
		p->src[i] = fxl_src(t, i);
	fxl_param(s, WB_F32, 1, 6, 0, 0); /* never written */
	fxl_param(s, WB_F32, 2, 0, 6, 0); /* no elements */
}

static void case_reshape_keeps_rows(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 3, 4, 6, 10);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 24, 10, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, i);
}

static void case_reshape_cuts_rows(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 24, 10, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 48, 5, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, i);
}

static void case_flat_shard(struct sim *s)
{
	struct sim_param *p;
	uint64_t at = 0;

	for (int i = 0; i < 4; i++)
		fxl_tensor(s, WB_BF16, 2, 12, 10, 0);
	p = fxl_param(s, WB_BF16, 1, 403, 0, 0); /* from 37 elements into the first tensor */
	for (uint64_t i = 0; i < p->n; i++, at++)
		p->src[i] = fxl_src((uint32_t)((at + 37) / 120), (at + 37) % 120);
}

static void case_casts(struct sim *s)
{
	uint32_t a = fxl_tensor(s, WB_BF16, 2, 8, 10, 0), b = fxl_tensor(s, WB_F32, 2, 8, 10, 0);
	struct sim_param *p = fxl_param(s, WB_F32, 2, 8, 10, 0);
	struct sim_param *q = fxl_param(s, WB_BF16, 2, 10, 8, 0);

	for (uint64_t i = 0; i < p->n; i++) {
		p->src[i] = fxl_src(a, i);
		q->src[i] = fxl_src(b, i % 8 * 10 + i / 8);
	}
}

static void case_half_casts(struct sim *s)
{
	uint32_t a = fxl_tensor(s, WB_BF16, 2, 8, 10, 0), b = fxl_tensor(s, WB_F32, 2, 8, 10, 0);
	uint32_t c = fxl_tensor(s, WB_F16, 2, 8, 10, 0);
	enum wb_dtype to[] = {WB_F16, WB_F16, WB_F32, WB_BF16, WB_F16};
	uint32_t from[] = {a, b, c, c, c};

	for (uint32_t k = 0; k < 5; k++) {
		struct sim_param *p = fxl_param(s, to[k], 2, 8, 10, 0);

		for (uint64_t i = 0; i < p->n; i++)
			p->src[i] = fxl_src(from[k], i);
	}
}

static void case_narrow_types(struct sim *s)
{
	static const enum wb_dtype types[] = {WB_F8_E4M3, WB_F8_E5M2, WB_I8, WB_U8, WB_I32, WB_F16};

	for (uint32_t k = 0; k < WB_ARRAY_SIZE(types); k++) {
		uint32_t t = fxl_tensor(s, types[k], 2, 150, 200, 0);
		struct sim_param *p = fxl_param(s, types[k], 2, 100, 130, 0);

		for (uint64_t i = 0; i < p->n; i++)
			p->src[i] = fxl_src(t, (i / 130 + 33) * 200 + i % 130 + 5);
	}
}

static void case_row_pitch(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 8, 10, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 8, 10, 0);

	p->p.stride[0] = 13;
	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = i % 10 == 4 ? ZERO : fxl_src(t, i);
}

static void case_transposed_storage(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 3, 3, 8, 10);
	struct sim_param *p = fxl_param(s, WB_BF16, 3, 3, 8, 10);

	p->p.stride[0] = 80;
	p->p.stride[1] = 1;
	p->p.stride[2] = 8;
	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, i);
}

static void case_two_pitches(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 3, 3, 8, 10);
	struct sim_param *p = fxl_param(s, WB_BF16, 3, 3, 8, 10);

	p->p.stride[0] = 100;
	p->p.stride[1] = 12;
	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = i % 80 > 70 ? NONE : fxl_src(t, i);
}

static void case_gaps_in_columns(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 8, 10, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 8, 10, 0);

	p->p.stride[0] = 20;
	p->p.stride[1] = 2;
	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, i);
}

static void case_kv_groups(struct sim *s)
{
	/* [q.., k, v] per group, 4 groups of 2 q heads of 3 rows */
	uint32_t q = fxl_tensor(s, WB_BF16, 2, 24, 5, 0);
	uint32_t k = fxl_tensor(s, WB_BF16, 2, 12, 5, 0), v = fxl_tensor(s, WB_BF16, 2, 12, 5, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 48, 5, 0);

	for (uint64_t i = 0; i < p->n; i++) {
		uint64_t g = i / 5 / 12, r = i / 5 % 12, c = i % 5;

		p->src[i] = r < 6   ? fxl_src(q, (g * 6 + r) * 5 + c)
			    : r < 9 ? fxl_src(k, (g * 3 + r - 6) * 5 + c)
				    : fxl_src(v, (g * 3 + r - 9) * 5 + c);
	}
}

static void case_stacked_vectors(struct sim *s)
{
	struct sim_param *p;

	for (int i = 0; i < 6; i++)
		fxl_tensor(s, WB_BF16, 1, 11, 0, 0);
	p = fxl_param(s, WB_BF16, 2, 6, 11, 0);
	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src((uint32_t)(i / 11), i % 11);
}

static void case_diagonal(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 12, 12, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 1, 12, 0, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, i * 13);
}

static void case_bilinear(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 1, 200, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 10, 12, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, (i / 12 + 1) * (i % 12));
}

/* Constants that are the sentinel, beside what is not written at all: what was there before tells
 * them apart, where that was another value. */
static void case_sentinels(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_I8, 2, 20, 12, 0);
	struct sim_param *p = fxl_param(s, WB_I8, 2, 20, 12, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = i % 12 < 3 ? NINETY : i % 12 < 6 ? NONE : fxl_src(t, i);
}

static const struct {
	const char *name;
	void (*make)(struct sim *s);
	int64_t ops; /* -1: any number */
	uint32_t calls; /* 0: any number */
} cases[] = {
	{"plain", fxl_case_plain, 1, 5}, /* few rows: one row digit */
	{"column slice", case_column_slice, 1, 5},
	{"transpose", case_transpose, 1, 5},
	{"transposed slice", case_transposed_slice, 1, 0},
	{"vector", case_vector, 1, 0},
	{"scalar", case_scalar, 1, 0},
	{"stacked experts", case_stacked_experts, 8, 0},
	{"five tiles", case_five_tiles, 5, 0},
	{"checkerboard", case_checkerboard, -1, 0},
	{"interleaved rows", case_interleaved_rows, 2, 0},
	{"deinterleaved columns", case_deinterleaved_columns, 2, 0},
	{"reversed", case_reversed, 1, 0},
	{"stride two", case_stride_two, 1, 0},
	{"permuted rows", case_permuted_rows, -1, 0},
	{"permuted columns", case_permuted_columns, -1, 0},
	{"broadcast row", case_broadcast_row, 1, 0},
	{"gate per head", case_gate_per_head, 1, 0},
	{"scalar everywhere", case_scalar_everywhere, 1, 0},
	{"copies of a source", case_copies, 3, 0},
	{"zero padding", fxl_case_zero_padding, 1, 0},
	{"unwritten", case_unwritten, 1, 0},
	{"reshape keeps rows", case_reshape_keeps_rows, 1, 0},
	{"reshape cuts rows", case_reshape_cuts_rows, 1, 0},
	{"flat shard", case_flat_shard, 5, 0},
	{"casts", case_casts, 2, 0},
	{"half casts", case_half_casts, 5, 0},
	{"narrow types", case_narrow_types, 6, 0},
	{"row pitch", case_row_pitch, 2, 0},
	{"transposed storage", case_transposed_storage, 3, 0},
	{"two pitches", case_two_pitches, -1, 0},
	{"gaps in columns", case_gaps_in_columns, 1, 0},
	{"KV groups", case_kv_groups, 12, 0},
	{"stacked vectors", case_stacked_vectors, 6, 0},
	{"diagonal", case_diagonal, 12, 0},
	{"bilinear", case_bilinear, -1, 0},
	{"sentinels", case_sentinels, 1, 0},
};

START_TEST(every_case_comes_out_exactly)
{
	struct sim s = {.rng = {(uint64_t)_i + 1}};

	cases[_i].make(&s);
	s.expand = _i % 2;
	fprintf(stderr, "%s\n", cases[_i].name);
	expect(&s, cases[_i].ops);
}
END_TEST

START_TEST(small_bf16_takes_five_calls_and_more_rows_six)
{
	struct sim s = {.rng = {1}};
	struct wb_srcmap *map;
	struct wb_err err;

	fxl_case_plain(&s);
	ck_assert_int_eq(fxl_extract(&s, &map, NULL, &err), 0);
	ck_assert_uint_eq(s.calls, 5);
	wb_srcmap_destroy(map);
	fxl_clear(&s);
	fxl_case_plain(&s);
	fxl_tensor(&s, WB_BF16, 2, 40000, 1, 0);
	ck_assert_int_eq(fxl_extract(&s, &map, NULL, &err), 0);
	ck_assert_uint_eq(s.calls, 6);
	wb_srcmap_destroy(map);
	fxl_clear(&s);
}
END_TEST

START_TEST(parameters_outside_the_checkpoint_are_never_touched)
{
	struct sim s = {.rng = {1}};
	struct wb_probe_param param[2];
	struct wb_probe *p;
	struct wb_pass pass;
	struct wb_err err;

	fxl_case_plain(&s);
	fxl_param(&s, WB_F32, 1, 6, 0, 0);
	ck_assert_int_eq(fxl_manifest(&s, &err), 0);
	fxl_allocate(&s);
	param[0] = s.param[0].p;
	param[1] = s.param[1].p;
	s.opts.keep_no_snapshot = true;
	ck_assert_int_eq(wb_probe_create(s.m, param, 2, &s.opts, &p, &err), 0);
	while (wb_probe_next_pass(p, &pass, &err) == 1) {
		fxl_load(&s, p, &pass);
		ck_assert_int_eq(wb_probe_end_pass(p, NULL, 0, &err), 0);
		fxl_pull(&s);
		ck_assert(!memcmp(s.param[1].mem, s.param[1].before, 8 * 4));
	}
	wb_probe_destroy(p);
	fxl_clear(&s);
}
END_TEST

START_TEST(without_a_snapshot_unwritten_elements_come_back)
{
	struct sim s = {.rng = {1}, .opts = {.keep_no_snapshot = true}};
	struct wb_srcmap *map;
	struct wb_err err;

	case_unwritten(&s);
	ck_assert_int_eq(fxl_extract(&s, &map, NULL, &err), 0);
	fxl_check_map(&s, map);
	fxl_pull(&s);
	ck_assert(!memcmp(s.param[0].mem + 51 * 2, s.param[0].before + 51 * 2, 31 * 2));
	wb_srcmap_destroy(map);
	fxl_clear(&s);
}
END_TEST

START_TEST(equal_layouts_have_equal_digests)
{
	struct sim s = {.rng = {1}};
	struct wb_srcmap *a, *b;
	struct wb_err err;

	case_kv_groups(&s);
	ck_assert_int_eq(fxl_extract(&s, &a, NULL, &err), 0);
	fxl_clear(&s);
	s.rng.state = 99; /* other memory, other threads, other seed */
	s.opts = (struct wb_probe_opts){.threads = 3, .seed = 5, .n_hash = 2};
	s.expand = true;
	case_kv_groups(&s);
	ck_assert_int_eq(fxl_extract(&s, &b, NULL, &err), 0);
	ck_assert(wb_digest_eq(a->map->digest, b->map->digest));
	ck_assert_int_eq(wb_srcmap_nests(a, 0), 2);
	wb_srcmap_destroy(a);
	wb_srcmap_destroy(b);
	fxl_clear(&s);
}
END_TEST

/* ---- random compositions ---------------------------------------------------------------- */

/* A random parameter made of random tiles: copies by random lattices, constants, nothing. */
static void random_param(struct sim *s)
{
	struct wb_rng *r = &s->rng;
	uint64_t rows = 1 + wb_rng_below(r, 30), cols = 1 + wb_rng_below(r, 30);
	struct sim_param *p = fxl_param(s, wb_rng_below(r, 2) ? WB_BF16 : WB_F32, 2, rows, cols, 0);

	p->p.stride[0] += (int64_t)wb_rng_below(r, 3);
	for (uint64_t k = wb_rng_below(r, 12); k-- > 0;) {
		uint64_t r0 = wb_rng_below(r, rows), r1 = r0 + 1 + wb_rng_below(r, rows - r0);
		uint64_t c0 = wb_rng_below(r, cols), c1 = c0 + 1 + wb_rng_below(r, cols - c0);
		uint32_t t = (uint32_t)wb_rng_below(r, s->n_tensor);
		const struct wb_tensor *q = &s->tensor[t];
		uint64_t n = fxl_numel(q->shape, q->ndim), tc = q->shape[q->ndim - 1];
		uint64_t kind = wb_rng_below(r, 8), at = wb_rng_below(r, n);
		uint64_t s0 = wb_rng_below(r, 2) ? tc : wb_rng_below(r, tc + 3);
		uint64_t s1 = wb_rng_below(r, 3) ? 1 : wb_rng_below(r, tc + 3);

		for (uint64_t i = r0; i < r1; i++)
			for (uint64_t j = c0; j < c1; j++)
				p->src[i * cols + j] =
					kind == 0   ? ZERO
					: kind == 1 ? NONE
					: kind == 2
						? fxl_src(t, wb_rng_below(r, n))
						: fxl_src(t,
							  (at + (i - r0) * s0 + (j - c0) * s1) % n);
	}
}

static bool has_copy(const struct sim *s)
{
	for (uint32_t i = 0; i < s->n_param; i++)
		for (uint64_t k = 0; k < s->param[i].n; k++)
			if (s->param[i].src[k] >= 0)
				return true;
	return false;
}

static void expect_no_copy(struct sim *s)
{
	struct wb_srcmap *map = NULL;
	struct wb_err err = {0};

	ck_assert_int_eq(fxl_extract(s, &map, NULL, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, "copies nothing of the checkpoint") != NULL, "%s", err.msg);
	ck_assert_ptr_null(map);
	fxl_check_intact(s);
	fxl_clear(s);
}

START_TEST(random_tables_come_back)
{
	struct sim s = {.rng = {1000 + (uint64_t)_i}};

	fprintf(stderr, "seed %d\n", 1000 + _i);
	for (int round = 0; round < 10; round++) {
		s.opts.threads = 1;
		for (uint64_t k = 1 + wb_rng_below(&s.rng, 5); k-- > 0;)
			fxl_tensor(&s, wb_rng_below(&s.rng, 2) ? WB_BF16 : WB_F32,
				1 + (uint32_t)wb_rng_below(&s.rng, 3), 1 + wb_rng_below(&s.rng, 20),
				1 + wb_rng_below(&s.rng, 20), 1 + wb_rng_below(&s.rng, 6));
		for (uint64_t k = 1 + wb_rng_below(&s.rng, 4); k-- > 0;)
			random_param(&s);
		if (has_copy(&s))
			expect(&s, -1);
		else
			expect_no_copy(&s);
	}
}
END_TEST

static const int64_t no_copies[] = {NONE, ZERO, ONE_HALF};

START_TEST(a_loader_that_copies_nothing_is_refused)
{
	struct sim s = {.rng = {1}};
	struct sim_param *p;

	fxl_tensor(&s, WB_BF16, 2, 40, 24, 0);
	p = fxl_param(&s, WB_BF16, 2, 40, 24, 0);
	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = no_copies[_i];
	fxl_param(&s, WB_F32, 2, 0, 6, 0);
	expect_no_copy(&s);
}
END_TEST

START_TEST(a_shard_without_elements_has_nothing_to_copy)
{
	struct sim s = {.rng = {1}};

	fxl_tensor(&s, WB_BF16, 2, 40, 24, 0);
	fxl_param(&s, WB_F32, 2, 0, 6, 0);
	expect(&s, 0);
}
END_TEST

/* ---- source maps ------------------------------------------------------------------------ */

START_TEST(a_source_map_survives_encoding)
{
	struct sim s = {.rng = {1}};
	struct wb_srcmap *map, *again;
	struct wb_buf b;
	struct wb_err err;

	fxl_case_zero_padding(&s);
	ck_assert_int_eq(fxl_extract(&s, &map, NULL, &err), 0);
	wb_buf_init(&b, 1 << 20);
	ck_assert_int_eq(wb_srcmap_encode(map, &b), 0);
	ck_assert_int_eq(wb_srcmap_decode(b.data, b.len, &again, &err), 0);
	ck_assert(wb_digest_eq(map->map->digest, again->map->digest));
	ck_assert(wb_digest_eq(map->manifest->digest, again->manifest->digest));
	for (size_t n = 0; n < b.len; n++) {
		struct wb_srcmap *cut;

		ck_assert_int_eq(wb_srcmap_decode(b.data, n, &cut, &err), -EBADMSG);
	}
	wb_srcmap_destroy(again);
	wb_srcmap_destroy(map);
	wb_buf_finish(&b);
	fxl_clear(&s);
}
END_TEST

START_TEST(apply_does_what_the_loader_does)
{
	struct sim s = {.rng = {77}};
	struct wb_srcmap *map;
	struct wb_err err;
	const void *tensor[64];
	uint8_t *data[64], *out[64];
	void *param[64];
	struct wb_buf report;

	cases[_i].make(&s);
	ck_assert_int_eq(fxl_extract(&s, &map, NULL, &err), 0);
	for (uint32_t t = 0; t < s.n_tensor; t++) {
		const struct wb_tensor *k = &s.m->tensor[t];
		size_t n = k->rows * k->cols;

		data[t] = malloc(n * wb_dtype_bytes(k->dtype));
		for (size_t i = 0; i < n; i++)
			fxl_number(k->dtype, (double)(wb_rng_below(&s.rng, 200)) / 8,
				data[t] + i * wb_dtype_bytes(k->dtype));
		tensor[t] = data[t];
	}
	for (uint32_t i = 0; i < s.n_param; i++) {
		size_t bytes = (s.param[i].span + 2) * wb_dtype_bytes(s.param[i].p.dtype);

		out[i] = malloc(bytes);
		memcpy(out[i], s.param[i].mem, bytes);
		param[i] = out[i] + wb_dtype_bytes(s.param[i].p.dtype);
	}
	ck_assert_int_eq(wb_srcmap_apply(map, tensor, param, &err), 0);
	for (uint32_t i = 0; i < s.n_param; i++) {
		for (uint64_t k = 0; k < s.param[i].n; k++)
			fxl_elem(&s, &s.param[i], k, s.param[i].src[k], data);
		ck_assert(!memcmp(out[i], s.param[i].mem,
			(s.param[i].span + 2) * wb_dtype_bytes(s.param[i].p.dtype)));
		free(out[i]);
	}
	wb_buf_init(&report, 1 << 20);
	ck_assert_int_eq(wb_srcmap_report(map, &report), 0);
	ck_assert_ptr_nonnull(strstr(wb_buf_cstr(&report), "p0"));
	wb_buf_finish(&report);
	for (uint32_t t = 0; t < s.n_tensor; t++)
		free(data[t]);
	wb_srcmap_destroy(map);
	fxl_clear(&s);
}
END_TEST

START_TEST(apply_names_a_missing_tensor)
{
	struct sim s = {.rng = {77}};
	const void *tensor[1] = {NULL};
	struct wb_srcmap *map;
	struct wb_err err;

	fxl_case_plain(&s);
	ck_assert_int_eq(fxl_extract(&s, &map, NULL, &err), 0);
	ck_assert_int_eq(
		wb_srcmap_apply(map, tensor, (void *[]){s.param[0].p.data}, &err), -EINVAL);
	ck_assert_str_eq(err.msg, "parameter p0 needs tensor t0");
	wb_srcmap_destroy(map);
	fxl_clear(&s);
}
END_TEST

static void add(Suite *s, TCase *tc)
{
	tcase_add_loop_test(tc, every_case_comes_out_exactly, 0, WB_ARRAY_SIZE(cases));
	tcase_add_test(tc, small_bf16_takes_five_calls_and_more_rows_six);
	tcase_add_test(tc, parameters_outside_the_checkpoint_are_never_touched);
	tcase_add_test(tc, without_a_snapshot_unwritten_elements_come_back);
	tcase_add_test(tc, equal_layouts_have_equal_digests);
	fx_add_points(tc, random_tables_come_back, 0, 10);
	tcase_add_loop_test(
		tc, a_loader_that_copies_nothing_is_refused, 0, WB_ARRAY_SIZE(no_copies));
	tcase_add_test(tc, a_shard_without_elements_has_nothing_to_copy);
	tcase_add_test(tc, a_source_map_survives_encoding);
	suite_add_tcase(s, tc);
}

int main(void)
{
	Suite *s = suite_create("extract");
	TCase *host = tcase_create("host"), *device = tcase_create("device");
	TCase *all = tcase_create("host and two devices");

	if (!fxl_here())
		return 77;

	tcase_add_loop_test(host, apply_does_what_the_loader_does, 0, WB_ARRAY_SIZE(cases));
	tcase_add_test(host, apply_names_a_missing_tensor);
	if (!fx_cuda_is_device()) /* nothing of the host's is another there */
		add(s, host);
	tcase_add_checked_fixture(device, fxl_use_device, fxl_use_host);
	add(s, device);
	tcase_add_checked_fixture(all, fxl_use_all, fxl_use_host);
	add(s, all);
	return fx_run(s);
}
