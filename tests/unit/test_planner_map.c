/* SPDX-License-Identifier: Apache-2.0 */
/* Manifest and source map: derived numbers, refusals, canonical encoding, allocation failures. */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "kernels/kernels.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_plan.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct wb_manifest *manifest(void)
{
	struct wb_tensor t[] = {
		fx_tensor("model.embed.weight", WB_BF16, 100, 8),
		fx_tensor("model.norm.weight", WB_F32, 0, 8),
		{.name = NULL, .dtype = WB_F16, .ndim = 3, .shape = {2, 3, 5}},
	};
	struct wb_manifest *m = NULL;
	struct wb_err err = {0};
	char name[] = "model.experts";

	t[2].name = name;
	ck_assert_msg(!wb_manifest_create(t, 3, &m, &err), "%s", err.msg);
	return m;
}

static void fill(struct fx_map *f)
{
	uint32_t e, x, n;

	e = fx_param(f, "embed", WB_BF16, 52, 8);
	x = fx_param(f, "experts", WB_F32, 5, 6);
	n = fx_param(f, "norm", WB_F32, 0, 16);
	fx_copy(f, e, "model.embed.weight", (struct fx_box){50, 50, 0, 8, 0, 0});
	fx_region(f, (struct wb_region){e, WB_REGION_CONSTANT, 400, 8, 2, 8, 0});
	/* Transposed, and a broadcast. */
	fx_op(f, (struct wb_op){.param = x,
			 .tensor = 2,
			 .n_row = 6,
			 .n_col = 5,
			 .row_step = 1,
			 .col_step = 1,
			 .dst_row_stride = 1,
			 .dst_col_stride = 6,
			 .repeat = 1});
	fx_op(f, (struct wb_op){.param = n,
			 .tensor = 1,
			 .n_row = 1,
			 .n_col = 4,
			 .row_step = 7,
			 .col_step = 2,
			 .dst_row_stride = 9,
			 .dst_col_stride = 1,
			 .repeat = 2,
			 .dst_repeat_stride = 4});
	fx_region(f, (struct wb_region){n, WB_REGION_UNWRITTEN, 8, 3, 1, 8, 5});
}

static struct wb_map *map_of(const struct wb_manifest *m)
{
	struct fx_map f = {.m = m};

	fill(&f);
	return fx_map_done(&f);
}

START_TEST(manifest_derives_rows_and_positions)
{
	struct wb_manifest *m = manifest();

	ck_assert_uint_eq(m->tensor[0].rows, 100);
	ck_assert_uint_eq(m->tensor[1].rows, 1);
	ck_assert_uint_eq(m->tensor[1].cols, 8);
	ck_assert_uint_eq(m->tensor[2].rows, 6);
	ck_assert_uint_eq(m->tensor[2].row_base, 101);
	ck_assert_uint_eq(m->tensor[1].byte_base, 1600);
	ck_assert_uint_eq(m->tensor[2].byte_base, 1664);
	ck_assert_uint_eq(m->bytes, 1600 + 32 + 60);
	ck_assert_uint_eq(m->rows, 107);
	for (uint32_t i = 1; i < m->n; i++)
		ck_assert_int_lt(
			strcmp(m->tensor[m->by_name[i - 1]].name, m->tensor[m->by_name[i]].name),
			0);
	wb_manifest_destroy(m);
}
END_TEST

static const struct {
	struct wb_tensor t;
	const char *want;
} bad_tensors[] = {
	{{.name = (char[]){""}, .dtype = WB_BF16, .ndim = 1, .shape = {1}}, "empty"},
	{{.name = (char[]){"a"}, .dtype = WB_BF16, .ndim = 1, .shape = {1}}, "a is listed twice"},
	{{.name = (char[]){"b"}, .dtype = WB_DT_COUNT, .ndim = 1, .shape = {1}}, "b has an unkn"},
	{{.name = (char[]){"b"}, .dtype = WB_BF16, .ndim = 2, .shape = {1, 0}},
		"b has a dimension"},
	{{.name = (char[]){"b"}, .dtype = WB_BF16, .ndim = 9}, "b has 9 dimensions"},
	{{.name = (char[]){"b"}, .dtype = WB_BF16, .ndim = 3, .shape = {1ull << 33, 1ull << 33, 2}},
		"b is too large"},
	{{.name = (char[]){"b"}, .dtype = WB_F32, .ndim = 2, .shape = {1ull << 39, 1ull << 31}},
		"2^62 bytes"},
};

START_TEST(bad_tensor_is_named)
{
	struct wb_tensor t[2] = {fx_tensor("a", WB_BF16, 0, 4), bad_tensors[_i].t};
	struct wb_manifest *m = (void *)1;
	struct wb_err err = {0};

	ck_assert_int_eq(wb_manifest_create(t, 2, &m, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, bad_tensors[_i].want), "%s", err.msg);
	ck_assert_ptr_eq(m, (void *)1);
}
END_TEST

START_TEST(decode_gives_back_what_encode_wrote)
{
	struct wb_manifest *m = manifest(), *m2 = NULL;
	struct wb_map *map = map_of(m), *map2 = NULL;
	struct wb_buf b, b2;

	wb_buf_init(&b, 1 << 20);
	wb_buf_init(&b2, 1 << 20);
	ck_assert(!wb_manifest_encode(m, &b));
	fx_golden("manifest-1.bin", b.data, b.len);
	ck_assert(!wb_manifest_decode(b.data, b.len, &m2, NULL));
	ck_assert(wb_digest_eq(m->digest, m2->digest));
	ck_assert_uint_eq(m2->tensor[2].byte_base, m->tensor[2].byte_base);
	wb_buf_reset(&b);
	ck_assert(!wb_map_encode(map, &b));
	fx_golden("map-1.bin", b.data, b.len);
	ck_assert(!wb_map_decode(m2, b.data, b.len, &map2, NULL));
	ck_assert(wb_digest_eq(map->digest, map2->digest));
	ck_assert(!wb_map_encode(map2, &b2));
	ck_assert(b.len == b2.len && !memcmp(b.data, b2.data, b.len));
	wb_map_destroy(map);
	wb_map_destroy(map2);
	wb_manifest_destroy(m);
	wb_manifest_destroy(m2);
	wb_buf_finish(&b);
	wb_buf_finish(&b2);
}
END_TEST

START_TEST(op_order_does_not_change_the_digest)
{
	struct wb_manifest *m = manifest();
	struct fx_map f = {.m = m};
	struct wb_map *a = map_of(m), *b;
	struct wb_op o;

	fill(&f);
	o = f.map.op[0];
	f.map.op[0] = f.map.op[2];
	f.map.op[2] = o;
	b = fx_map_done(&f);
	ck_assert(wb_digest_eq(a->digest, b->digest));
	ck_assert_uint_eq(b->op[1].row_step, 1); /* one row: its step means nothing */
	wb_map_destroy(a);
	wb_map_destroy(b);
	wb_manifest_destroy(m);
}
END_TEST

/* Every truncation and every flipped bit: refused, or decoded to something canonical. */
START_TEST(damaged_bytes_are_refused_or_canonical)
{
	struct wb_manifest *m = manifest();
	struct wb_map *map = map_of(m), *got;
	struct wb_buf b, b2;

	wb_buf_init(&b, 1 << 20);
	wb_buf_init(&b2, 1 << 20);
	ck_assert(!wb_map_encode(map, &b));
	for (size_t n = 0; n < b.len; n++)
		ck_assert_int_eq(wb_map_decode(m, b.data, n, &got, NULL), -EBADMSG);
	for (size_t bit = 0; bit < 8 * b.len; bit++) {
		b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		if (!wb_map_decode(m, b.data, b.len, &got, NULL)) {
			wb_buf_reset(&b2);
			ck_assert(!wb_map_encode(got, &b2));
			ck_assert(b.len == b2.len && !memcmp(b.data, b2.data, b.len));
			wb_map_destroy(got);
		}
		b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	wb_buf_reset(&b);
	ck_assert(!wb_manifest_encode(m, &b));
	for (size_t n = 0; n < b.len; n++) {
		struct wb_manifest *cut;

		ck_assert_int_eq(wb_manifest_decode(b.data, n, &cut, NULL), -EBADMSG);
	}
	wb_map_destroy(map);
	wb_manifest_destroy(m);
	wb_buf_finish(&b);
	wb_buf_finish(&b2);
}
END_TEST

static const struct {
	struct wb_op op;
	const char *want;
} bad_ops[] = {
	{{.param = 9, .n_row = 1}, "parameter 9 of 1"},
	{{.tensor = 9, .n_row = 1}, "tensor 9 of 3"},
	{{.n_row = 1, .n_col = 1, .row_step = 1, .repeat = 1}, "count or step of 0"},
	{{.n_row = 101, .n_col = 1, .row_step = 1, .col_step = 1, .repeat = 1}, "leaves tensor"},
	{{.row = 100, .n_row = 1, .n_col = 1, .row_step = 1, .col_step = 1, .repeat = 1},
		"leaves tensor"},
	{{.n_row = 1, .n_col = 5, .row_step = 1, .col_step = 2, .repeat = 1}, "leaves tensor"},
	{{.dst = 64, .n_row = 1, .n_col = 1, .row_step = 1, .col_step = 1, .repeat = 1},
		"writes outside"},
	{{.n_row = 2, .n_col = 1, .row_step = 1, .col_step = 1, .repeat = 1, .dst_row_stride = -1},
		"writes outside"},
	{{.n_row = 2,
		 .n_col = 1,
		 .row_step = 1,
		 .col_step = 1,
		 .repeat = 1,
		 .dst_row_stride = INT64_MAX},
		"writes outside"},
};

START_TEST(bad_op_is_named)
{
	struct wb_manifest *m = manifest();
	struct fx_map f = {.m = m};
	struct wb_map *out = (void *)1;
	struct wb_err err = {0};

	fx_param(&f, "p", WB_BF16, 8, 8);
	fx_op(&f, bad_ops[_i].op);
	ck_assert_int_eq(wb_map_create(m, &f.map, &out, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, bad_ops[_i].want), "%s", err.msg);
	ck_assert_ptr_eq(out, (void *)1);
	wb_free(f.map.param[0].name);
	wb_free(f.map.param);
	wb_free(f.map.op);
	wb_manifest_destroy(m);
}
END_TEST

START_TEST(map_of_another_manifest_is_refused)
{
	struct wb_manifest *m = manifest(), *other = NULL;
	struct wb_tensor t = fx_tensor("x", WB_BF16, 100, 100);
	struct wb_map *map = map_of(m), *got;
	struct wb_err err = {0};
	struct wb_buf b;

	wb_buf_init(&b, 1 << 20);
	ck_assert(!wb_map_encode(map, &b));
	ck_assert(!wb_manifest_create(&t, 1, &other, NULL));
	ck_assert_int_eq(wb_map_decode(other, b.data, b.len, &got, &err), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(err.msg, "another manifest"));
	wb_map_destroy(map);
	wb_manifest_destroy(m);
	wb_manifest_destroy(other);
	wb_buf_finish(&b);
}
END_TEST

static struct wb_manifest *listed(const struct wb_tensor *t, uint32_t n)
{
	struct wb_manifest *m = NULL;
	struct wb_err err = {0};

	ck_assert_msg(!wb_manifest_create(t, n, &m, &err), "%s", err.msg);
	return m;
}

START_TEST(differences_of_manifests_are_told_by_tensor)
{
	struct wb_tensor base[] = {fx_tensor("b", WB_BF16, 4, 8), fx_tensor("a", WB_F32, 1000, 256),
		fx_tensor("c", WB_I8, 0, 3), fx_tensor("d", WB_I8, 0, 3)};
	struct wb_tensor other[] = {fx_tensor("b", WB_BF16, 4, 8),
		fx_tensor("a", WB_BF16, 1008, 256), fx_tensor("c", WB_I8, 0, 3),
		fx_tensor("e", WB_I8, 0, 3)};
	struct wb_tensor turned[] = {base[0], base[2], base[1], base[3]};
	static const struct {
		uint32_t n, shown_max;
		const char *text;
	} rows[] = {
		{3, 4,
			"a: trainer F32 [1000,256], rollout BF16 [1008,256]; d: only trainer I8 "
			"[3]; e: only rollout I8 [3]"},
		{3, 1, "a: trainer F32 [1000,256], rollout BF16 [1008,256]; and 2 more"},
	};
	static const char *const who[] = {"trainer", "rollout"};
	struct wb_manifest *first = listed(base, 4), *second = listed(other, 4);
	struct wb_manifest *third = listed(turned, 4), *fourth = listed(base, 2);
	const struct wb_manifest *m[2] = {first, second}, *o[2] = {first, third};
	const struct wb_manifest *same[2] = {first, first}, *less[2] = {fourth, first};
	struct wb_buf b;

	wb_buf_init(&b, 1 << 16);
	for (size_t i = 0; i < WB_ARRAY_SIZE(rows); i++) {
		wb_buf_reset(&b);
		ck_assert_uint_eq(wb_manifest_differ(m, who, rows[i].shown_max, &b), rows[i].n);
		ck_assert_str_eq(wb_buf_cstr(&b), rows[i].text);
	}
	wb_buf_reset(&b);
	ck_assert_uint_eq(wb_manifest_differ(o, who, 4, &b), 1);
	ck_assert_str_eq(wb_buf_cstr(&b), "the same tensors in another order: number 1 is a for "
					  "trainer and c for rollout");
	wb_buf_reset(&b);
	ck_assert_uint_eq(wb_manifest_differ(less, who, 4, &b), 2);
	ck_assert_str_eq(wb_buf_cstr(&b), "c: only rollout I8 [3]; d: only rollout I8 [3]");
	wb_buf_reset(&b);
	ck_assert_uint_eq(wb_manifest_differ(same, who, 4, &b), 0);
	ck_assert_str_eq(wb_buf_cstr(&b), "");
	wb_buf_finish(&b);
	wb_manifest_destroy(first);
	wb_manifest_destroy(second);
	wb_manifest_destroy(third);
	wb_manifest_destroy(fourth);
}
END_TEST

START_TEST(allocation_failures_leave_outputs_untouched)
{
	struct wb_manifest *m = manifest(), *m2;
	struct wb_map *map = map_of(m), *map2;
	struct wb_buf b;
	uint64_t n;
	int rc = -ENOMEM;

	wb_buf_init(&b, 1 << 20);
	ck_assert(!wb_map_encode(map, &b));
	for (n = 1; rc; n++) {
		map2 = (void *)1;
		wb_mem_fail_at(n);
		rc = wb_map_decode(m, b.data, b.len, &map2, NULL);
		wb_mem_fail_at(0);
		ck_assert(rc == 0 || (rc == -ENOMEM && map2 == (void *)1));
	}
	wb_map_destroy(map2);
	for (n = 1, rc = -ENOMEM; rc; n++) {
		m2 = (void *)1;
		wb_mem_fail_at(n);
		rc = wb_manifest_create(m->tensor, m->n, &m2, NULL);
		wb_mem_fail_at(0);
		ck_assert(rc == 0 || (rc == -ENOMEM && m2 == (void *)1));
	}
	wb_manifest_destroy(m2);
	for (n = 1, rc = -ENOMEM; rc; n++) {
		struct fx_map f = {.m = m};

		fill(&f);
		wb_mem_fail_at(n);
		rc = wb_map_create(m, &f.map, &map2, NULL);
		wb_mem_fail_at(0);
		if (!rc)
			break;
		ck_assert_int_eq(rc, -ENOMEM);
		for (uint32_t i = 0; i < f.map.n_param; i++)
			wb_free(f.map.param[i].name);
		wb_free(f.map.param);
		wb_free(f.map.op);
		wb_free(f.map.region);
	}
	wb_map_destroy(map2);
	wb_map_destroy(map);
	wb_manifest_destroy(m);
	wb_buf_finish(&b);
}
END_TEST

START_TEST(only_a_widening_cast_is_exact)
{
	bool is_exact = false;

	ck_assert_int_eq(wb_cast_between(WB_I8, WB_I8, &is_exact), WBK_COPY);
	ck_assert(is_exact);
	ck_assert_int_eq(wb_cast_between(WB_BF16, WB_F32, &is_exact), WBK_BF16_TO_F32);
	ck_assert(is_exact);
	ck_assert_int_eq(wb_cast_between(WB_F32, WB_BF16, &is_exact), WBK_F32_TO_BF16);
	ck_assert(!is_exact);
	ck_assert_int_eq(wb_cast_between(WB_I8, WB_U8, &is_exact), -ENOTSUP);
	ck_assert_int_eq(wb_cast_between(WB_DT_NONE, WB_DT_NONE, &is_exact), -ENOTSUP);
}
END_TEST

START_TEST(json_names_every_part)
{
	struct wb_manifest *m = manifest();
	struct wb_map *map = map_of(m);
	struct wb_buf b;

	wb_buf_init(&b, 1 << 20);
	ck_assert(!wb_map_json(m, map, &b));
	ck_assert_ptr_nonnull(strstr(wb_buf_cstr(&b), "\"tensor\":\"model.experts\""));
	ck_assert_ptr_nonnull(strstr(wb_buf_cstr(&b), "\"kind\":\"constant\",\"dst\":400"));
	wb_buf_finish(&b);
	wb_map_destroy(map);
	wb_manifest_destroy(m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("planner_map");
	TCase *c = tcase_create("map");

	suite_add_tcase(s, c);
	tcase_add_test(c, manifest_derives_rows_and_positions);
	tcase_add_loop_test(c, bad_tensor_is_named, 0, WB_ARRAY_SIZE(bad_tensors));
	tcase_add_test(c, decode_gives_back_what_encode_wrote);
	tcase_add_test(c, op_order_does_not_change_the_digest);
	tcase_add_test(c, damaged_bytes_are_refused_or_canonical);
	tcase_add_loop_test(c, bad_op_is_named, 0, WB_ARRAY_SIZE(bad_ops));
	tcase_add_test(c, map_of_another_manifest_is_refused);
	tcase_add_test(c, differences_of_manifests_are_told_by_tensor);
	tcase_add_test(c, allocation_failures_leave_outputs_untouched);
	tcase_add_test(c, only_a_widening_cast_is_exact);
	tcase_add_test(c, json_names_every_part);
	return fx_run(s);
}
