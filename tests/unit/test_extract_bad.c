/* SPDX-License-Identifier: Apache-2.0 */
/* Extraction of loaders that do not copy, shared memory, the cache, no memory. */
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

static uint32_t ops_of(const struct wb_srcmap *map, uint32_t param)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < map->map->n_op; i++)
		n += map->map->op[i].param == param;
	return n;
}

/* ---- loaders that are no copies --------------------------------------------------------- */

static void refuse(struct sim *s, const char *const *words)
{
	struct wb_err err = {0};
	struct wb_srcmap *map = NULL;
	char faults[4096];
	int rc = fxl_extract(s, &map, faults, &err);

	ck_assert_int_eq(rc, WB_ENOTCOPY);
	fxl_check_intact(s);
	for (; *words; words++)
		ck_assert_msg(strstr(faults, *words), "no '%s' in: %s", *words, faults);
	fxl_clear(s);
}

START_TEST(all_faults_are_named_with_range_and_reason)
{
	struct sim s = {.rng = {1}};

	fxl_case_plain(&s);
	fxl_param(&s, WB_BF16, 2, 5, 4, 0);
	for (int i = 8; i < 16; i++)
		s.param[1].src[i] = ODD;
	fxl_param(&s, WB_BF16, 1, 6, 0, 0);
	for (int i = 0; i < 6; i++)
		s.param[2].src[i] = ODD;
	refuse(&s, (const char *[]){"p1: rows 2..3 (8 elements): arithmetic",
			   "p2: elements 0..5 (6 elements): arithmetic", NULL});
}
END_TEST

START_TEST(what_only_the_first_call_writes_is_named)
{
	struct sim s = {.rng = {1}};

	fxl_case_plain(&s);
	for (int i = 30; i < 40; i++)
		s.param[0].src[i] = FIRST;
	refuse(&s, (const char *[]){
			   "p0: row 1, columns 6..15 (10 elements): written by the first", NULL});
}
END_TEST

/* Constants arrive, and nothing else does. */
START_TEST(what_is_no_code_is_named)
{
	struct sim s = {.rng = {1}};

	fxl_case_plain(&s);
	for (int i = 50; i < 80; i++)
		s.param[0].src[i] = CUT;
	refuse(&s, (const char *[]){"p0: rows 2..3 (30 elements): what arrives is no code", NULL});
}
END_TEST

START_TEST(an_arithmetic_loader_is_found_without_a_snapshot)
{
	struct sim s = {.rng = {1}, .opts = {.keep_no_snapshot = true}};
	struct wb_err err = {0};
	struct wb_srcmap *map = NULL;
	char faults[4096];

	fxl_case_plain(&s);
	fxl_param(&s, WB_BF16, 1, 6, 0, 0);
	for (int i = 0; i < 6; i++)
		s.param[1].src[i] = ODD;
	ck_assert_int_eq(fxl_extract(&s, &map, faults, &err), WB_ENOTCOPY);
	ck_assert_ptr_nonnull(strstr(faults, "p1: all 6 elements: arithmetic"));
	fxl_clear(&s);
}
END_TEST

START_TEST(a_loader_that_changes_its_mind_is_caught)
{
	struct sim s = {.rng = {1}, .flaky_from = (uint32_t)_i};

	fxl_case_plain(&s);
	refuse(&s, (const char *[]){"p0: ", NULL});
}
END_TEST

START_TEST(a_flaky_hash_pass_is_called_not_deterministic)
{
	struct sim s = {.rng = {1}, .flaky_from = 4};

	fxl_case_plain(&s);
	refuse(&s, (const char *[]){"not deterministic", NULL});
}
END_TEST

START_TEST(moved_storage_is_a_fault)
{
	struct sim s = {.rng = {1}, .moves = true};
	struct wb_err err = {0};
	struct wb_srcmap *map = NULL;
	char faults[4096];

	fxl_case_plain(&s);
	ck_assert_int_eq(fxl_extract(&s, &map, faults, &err), WB_ENOTCOPY);
	ck_assert_ptr_nonnull(strstr(faults, "p0: all elements: its storage was moved"));
	fxl_check_intact(&s);
	ck_assert(!memcmp(s.moved, s.param[0].mem + 2, sizeof(s.moved)));
	fxl_clear(&s);
}
END_TEST

START_TEST(an_unknown_cast_is_named)
{
	struct sim s = {.rng = {1}};

	fxl_tensor(&s, WB_I8, 2, 8, 10, 0);
	fxl_param(&s, WB_U8, 2, 8, 10, 0);
	for (uint64_t i = 0; i < 80; i++)
		s.param[0].src[i] = fxl_src(0, i);
	refuse(&s, (const char *[]){"p0: no known cast from I8 (tensor t0) to its U8", NULL});
}
END_TEST

START_TEST(too_many_records_of_a_matrix_is_a_fault)
{
	struct sim s = {.rng = {1}, .opts = {.record_max = 50}};

	fxl_tensor(&s, WB_BF16, 2, 20, 20, 0);
	fxl_param(&s, WB_BF16, 2, 20, 20, 0);
	for (uint64_t i = 0; i < 400; i++)
		s.param[0].src[i] = fxl_src(0, i * 77 % 400);
	refuse(&s, (const char *[]){"p0: record overflow", NULL});
}
END_TEST

START_TEST(too_many_records_of_a_stack_are_retried_along_all_axes)
{
	struct sim s = {.rng = {1}};
	struct wb_srcmap *map;
	struct wb_err err;

	/* [E, R, C]: the same row permutation in each expert */
	for (uint32_t e = 0; e < 20; e++)
		fxl_tensor(&s, WB_BF16, 2, 12, 6, 0);
	fxl_param(&s, WB_BF16, 3, 20, 12, 6);
	for (uint64_t i = 0; i < s.param[0].n; i++)
		s.param[0].src[i] = fxl_src((uint32_t)(i / 72), i % 72 / 6 * 5 % 12 * 6 + i % 6);
	s.opts.record_max = 100;
	ck_assert_int_eq(fxl_extract(&s, &map, NULL, &err), 0);
	fxl_check_map(&s, map);
	fxl_check_intact(&s);
	ck_assert_uint_eq(s.calls, 7); /* both digits twice */
	wb_srcmap_destroy(map);
	fxl_clear(&s);
}
END_TEST

/* ---- aliases ---------------------------------------------------------------------------- */

START_TEST(tied_parameters_are_one)
{
	struct sim s = {.rng = {1}};
	struct wb_srcmap *map;
	struct wb_err err;
	char faults[4096];

	fxl_case_plain(&s);
	fxl_param(&s, WB_BF16, 2, 40, 24, 0); /* the same memory */
	fxl_param(&s, WB_BF16, 2, 8, 10, 0); /* a window in it */
	fxl_allocate(&s);
	fxl_view(&s, 1, 0, 0);
	fxl_view(&s, 2, 0, 2 * (3 * 24 + 5));
	s.param[2].p.stride[0] = 24;
	memcpy(s.param[1].src, s.param[0].src, s.param[0].n * 8);
	for (uint64_t i = 0; i < 80; i++)
		s.param[2].src[i] = s.param[0].src[(3 + i / 10) * 24 + 5 + i % 10];
	ck_assert_int_eq(fxl_extract(&s, &map, faults, &err), 0);
	fxl_check_map(&s, map);
	fxl_check_intact(&s);
	ck_assert_uint_eq(map->map->n_op, 1);
	ck_assert_uint_eq(map->alias[1].owner, 0);
	ck_assert_uint_eq(map->alias[2].owner, 0);
	ck_assert_uint_eq(map->alias[2].offset, 3 * 24 + 5);
	wb_srcmap_destroy(map);
	fxl_clear(&s);
}
END_TEST

START_TEST(interleaved_views_share_nothing)
{
	struct sim s = {.rng = {1}};
	uint8_t *buffer = calloc(40 * 24, 2);
	struct wb_srcmap *map;
	struct wb_err err;

	fxl_tensor(&s, WB_BF16, 2, 40, 24, 0);
	for (uint64_t k = 0; k < 2; k++) {
		struct sim_param *p = fxl_param(&s, WB_BF16, 2, 40, 12, 0);

		p->p.stride[0] = 24;
		p->p.data = buffer + 24 * k;
		for (uint64_t i = 0; i < p->n; i++)
			p->src[i] = fxl_src(0, i / 12 * 24 + 12 * k + i % 12);
	}
	ck_assert_int_eq(fxl_extract(&s, &map, NULL, &err), 0);
	ck_assert_uint_eq(ops_of(map, 0), 1);
	ck_assert_uint_eq(ops_of(map, 1), 1);
	ck_assert_uint_eq(map->alias[1].owner, WB_ALIAS_NONE);
	wb_srcmap_destroy(map);
	fxl_clear(&s);
	free(buffer);
}
END_TEST

static const struct {
	enum wb_dtype type;
	int64_t offset, rows;
	const char *word;
} bad_views[] = {
	{WB_F16, 0, 8, "two types"},
	{WB_F32, 2, 3, "not element by element"},
	{WB_BF16, 80, 8, "neither is a view"},
};

START_TEST(memory_shared_in_other_ways_is_refused_by_both_names)
{
	struct sim s = {.rng = {1}};
	struct wb_srcmap *map;
	struct wb_err err;

	fxl_tensor(&s, WB_BF16, 2, 8, 10, 0);
	fxl_param(&s, WB_BF16, 2, 16, 10, 0);
	fxl_allocate(&s); /* twice its size: what reaches beyond it is memory all the same */
	s.param[0].p.shape[0] = 8;
	s.param[0].n = 80;
	fxl_param(&s, bad_views[_i].type, 2, (uint64_t)bad_views[_i].rows, 10, 0);
	s.param[1].p.data = (uint8_t *)s.param[0].p.data + bad_views[_i].offset;
	ck_assert_int_eq(fxl_extract(&s, &map, NULL, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, bad_views[_i].word) && strstr(err.msg, "p0") &&
			      strstr(err.msg, "p1"),
		"%s", err.msg);
	fxl_check_intact(&s);
	fxl_clear(&s);
}
END_TEST

START_TEST(overlapping_or_reversed_elements_are_refused)
{
	struct sim s = {.rng = {1}};
	struct wb_srcmap *map;
	struct wb_err err;

	fxl_case_plain(&s);
	fxl_allocate(&s);
	s.param[0].p.stride[0] = _i ? -24 : 20;
	ck_assert_int_eq(fxl_extract(&s, &map, NULL, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.msg, "p0"));
	s.param[0].p.stride[0] = 24;
	fxl_clear(&s);
}
END_TEST

/* ---- cache ------------------------------------------------------------------------------ */

static char *cache_dir(void)
{
	static char path[4096];

	snprintf(path, sizeof(path), "%s/wbcacheXXXXXX",
		getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(path));
	return path;
}

static void remove_dir(const char *path)
{
	char cmd[4200];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", path);
	ck_assert_int_eq(system(cmd), 0);
}

static struct wb_digest cached_run(struct sim *s, uint32_t calls, const char *note)
{
	struct wb_srcmap *map;
	struct wb_err err;
	char text[4096];
	struct wb_digest d;
	int rc = fxl_extract(s, &map, text, &err);

	ck_assert_msg(!rc, "%s", err.msg);
	ck_assert_uint_eq(s->calls, calls);
	ck_assert_msg(note ? strstr(text, note) != NULL : !text[0], "%s", text);
	fxl_check_map(s, map);
	fxl_check_intact(s);
	d = map->map->digest;
	wb_srcmap_destroy(map);
	return d;
}

static void with_unwritten(struct sim *s)
{
	fxl_case_zero_padding(s);
	s->param[0].src[1] = NONE;
	fxl_param(s, WB_BF16, 1, 9, 0, 0);
}

START_TEST(a_cached_map_costs_one_call_and_is_checked)
{
	struct sim s = {.rng = {1}};
	char *dir = cache_dir();
	struct wb_digest a, b;

	with_unwritten(&s);
	s.opts.cache_dir = dir;
	a = cached_run(&s, 5, NULL);
	b = cached_run(&s, 1, NULL);
	ck_assert(wb_digest_eq(a, b));
	/* The loader changes: written where it was not, a constant gone, another source. */
	s.param[0].src[1] = fxl_src(0, 1);
	cached_run(&s, 6, "probing anew");
	cached_run(&s, 1, NULL);
	s.param[0].src[11] = NONE;
	cached_run(&s, 6, "probing anew");
	s.param[0].src[0] = fxl_src(0, 5);
	cached_run(&s, 6, "probing anew");
	s.param[3].src[2] = ZERO; /* one that was never touched */
	cached_run(&s, 6, "probing anew");
	s.opts.cache_key = "another version";
	cached_run(&s, 5, NULL);
	fxl_clear(&s);
	remove_dir(dir);
}
END_TEST

START_TEST(a_damaged_cache_is_ignored_with_a_note)
{
	struct sim s = {.rng = {1}};
	char *dir = cache_dir(), cmd[8300];

	with_unwritten(&s);
	s.opts.cache_dir = dir;
	cached_run(&s, 5, NULL);
	snprintf(cmd, sizeof(cmd), "for f in '%s'/*.map; do %s; done", dir,
		_i == 0   ? "truncate -s -1 $f"
		: _i == 1 ? "printf x | dd of=$f bs=1 seek=100 conv=notrunc 2>/dev/null"
		: _i == 2 ? ": > $f"
			  : "printf x | dd of=$f bs=1 seek=9 conv=notrunc 2>/dev/null");
	ck_assert_int_eq(system(cmd), 0);
	cached_run(&s, 5, "ignored");
	cached_run(&s, 1, NULL); /* written again */
	fxl_clear(&s);
	remove_dir(dir);
}
END_TEST

/* A map that is right is not said to belong to something else because memory was short. */
START_TEST(a_map_that_is_ignored_for_lack_of_memory_says_so)
{
	struct sim s = {.rng = {1}};
	char *dir = cache_dir();
	struct wb_probe_param param[4];
	struct wb_err err;
	uint32_t n_ignored = 0;

	with_unwritten(&s);
	s.opts.cache_dir = dir;
	s.opts.threads = 1;
	cached_run(&s, 5, NULL);
	for (uint32_t i = 0; i < s.n_param; i++)
		param[i] = s.param[i].p;
	for (uint64_t n = 1 + (uint64_t)fx_first();; n += (uint64_t)fx_step()) {
		struct wb_probe *p = NULL;
		const char *note;
		int rc;

		wb_mem_fail_at(n);
		rc = wb_probe_create(s.m, param, s.n_param, &s.opts, &p, &err);
		note = rc ? "" : wb_probe_notes(p);
		ck_assert_msg(!strstr(note, "ignored") || strstr(note, "memory"), "%s", note);
		n_ignored += strstr(note, "ignored") != NULL;
		wb_probe_destroy(p);
		if (!wb_mem_failed())
			break;
	}
	wb_mem_fail_at(0);
	ck_assert_uint_gt(n_ignored, 0);
	remove_dir(dir);
	fxl_clear(&s);
}
END_TEST

START_TEST(a_cache_that_cannot_be_written_is_only_a_note)
{
	struct sim s = {.rng = {1}, .opts = {.cache_dir = "/dev/null/x"}};

	fxl_case_plain(&s);
	cached_run(&s, 5, "map not kept");
	fxl_clear(&s);
}
END_TEST

/* ---- memory ----------------------------------------------------------------------------- */

START_TEST(creation_survives_any_failed_allocation)
{
	struct sim s = {.rng = {1}};
	struct wb_probe_param param[4];
	struct wb_err err;

	with_unwritten(&s);
	ck_assert_int_eq(fxl_manifest(&s, &err), 0);
	fxl_allocate(&s);
	for (uint32_t i = 0; i < s.n_param; i++)
		param[i] = s.param[i].p;
	s.opts.threads = 1;
	for (uint64_t n = 1;; n++) {
		struct wb_probe *p = NULL;
		struct wb_srcmap *map = NULL;
		struct wb_pass pass;
		int rc;

		wb_mem_fail_at(n);
		rc = wb_probe_create(s.m, param, s.n_param, &s.opts, &p, &err);
		while (!rc && (rc = wb_probe_next_pass(p, &pass, &err)) == 1) {
			fxl_load(&s, p, &pass);
			rc = wb_probe_end_pass(p, NULL, 0, &err);
		}
		if (!rc)
			rc = wb_probe_finish(p, &map, &err);
		wb_probe_destroy(p);
		wb_srcmap_destroy(map);
		fxl_check_intact(&s);
		if (!wb_mem_failed()) {
			ck_assert_int_eq(rc, 0);
			break;
		}
		ck_assert_int_eq(rc, -ENOMEM);
	}
	wb_mem_fail_at(0);
	fxl_clear(&s);
}
END_TEST

static void add(Suite *s, TCase *tc)
{
	tcase_add_test(tc, all_faults_are_named_with_range_and_reason);
	tcase_add_test(tc, what_only_the_first_call_writes_is_named);
	tcase_add_test(tc, what_is_no_code_is_named);
	tcase_add_test(tc, an_arithmetic_loader_is_found_without_a_snapshot);
	tcase_add_loop_test(tc, a_loader_that_changes_its_mind_is_caught, 2, 5);
	tcase_add_test(tc, a_flaky_hash_pass_is_called_not_deterministic);
	tcase_add_test(tc, moved_storage_is_a_fault);
	tcase_add_test(tc, an_unknown_cast_is_named);
	tcase_add_test(tc, too_many_records_of_a_matrix_is_a_fault);
	tcase_add_test(tc, too_many_records_of_a_stack_are_retried_along_all_axes);
	tcase_add_test(tc, tied_parameters_are_one);
	tcase_add_test(tc, interleaved_views_share_nothing);
	tcase_add_loop_test(tc, memory_shared_in_other_ways_is_refused_by_both_names, 0,
		WB_ARRAY_SIZE(bad_views));
	tcase_add_loop_test(tc, overlapping_or_reversed_elements_are_refused, 0, 2);
	tcase_add_test(tc, a_cached_map_costs_one_call_and_is_checked);
	tcase_add_loop_test(tc, a_damaged_cache_is_ignored_with_a_note, 0, 4);
	tcase_add_test(tc, a_map_that_is_ignored_for_lack_of_memory_says_so);
	tcase_add_test(tc, a_cache_that_cannot_be_written_is_only_a_note);
	tcase_add_test(tc, creation_survives_any_failed_allocation);
	suite_add_tcase(s, tc);
}

int main(void)
{
	Suite *s = suite_create("extract_bad");
	TCase *host = tcase_create("host"), *device = tcase_create("device");
	TCase *all = tcase_create("host and two devices");

	if (!fxl_here())
		return 77;

	if (!fx_cuda_is_device()) /* nothing of the host's is another there */
		add(s, host);
	tcase_add_checked_fixture(device, fxl_use_device, fxl_use_host);
	add(s, device);
	tcase_add_checked_fixture(all, fxl_use_all, fxl_use_host);
	add(s, all);
	return fx_run(s);
}
