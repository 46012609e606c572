/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extraction of parameters on GPUs, beyond what the tables of test_extract.c and test_extract_bad.c
 * claim of them there: fills, bounds, order, constants, and devices that fail.
 */
#include "base/base.h"
#include "extract/internal.h"
#include "extract/table.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_cuda.h"
#include "tests/common/fx_loader.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number of the stand-in's, by where it is in the struct. */
static struct fakecuda_counts counts(void)
{
	struct fakecuda_counts c;

	fx_cuda()->count(&c);
	return c;
}

static void same_counts(const struct fakecuda_counts *a, const struct fakecuda_counts *b)
{
	ck_assert_int_eq(a->blocks, b->blocks);
	ck_assert_int_eq(a->mappings, b->mappings);
	ck_assert_int_eq(a->streams, b->streams);
	ck_assert_int_eq(a->events, b->events);
	ck_assert_int_eq(a->modules, b->modules);
	ck_assert_int_eq(a->pinned, b->pinned);
	ck_assert_int_eq(a->contexts, b->contexts);
}

/* @is_merged: the map lists constants as unwritten, there are too many of them. */
static struct wb_digest digest_of(struct sim *s, bool is_merged)
{
	struct wb_srcmap *map = NULL;
	struct wb_err err = {0};
	struct wb_digest d;
	char faults[4096];
	int rc = fxl_extract(s, &map, faults, &err);

	ck_assert_msg(!rc, "%s", err.msg);
	if (!is_merged)
		fxl_check_map(s, map);
	fxl_check_intact(s);
	d = map->map->digest;
	wb_srcmap_destroy(map);
	fxl_clear(s);
	return d;
}

/* A probe of the one parameter of fxl_case_plain(), in memory of the device; wb_probe_destroy(). */
static struct wb_probe *probe_plain(struct sim *s)
{
	struct wb_probe *p;
	struct wb_err err;

	fxl_case_plain(s);
	ck_assert_int_eq(fxl_manifest(s, &err), 0);
	fxl_allocate(s);
	ck_assert_int_eq(wb_probe_create(s->m, &s->param[0].p, 1, &s->opts, &p, &err), 0);
	return p;
}

/* ---- fills ----------------------------------------------------------------------------------- */

static const enum wb_dtype dtypes[] = {
	WB_BF16, WB_F32, WB_F16, WB_F8_E4M3, WB_F8_E5M2, WB_I8, WB_U8, WB_I32};

/* Bytes of a tensor's fill in memory of the host and of a device. */
static void check_fill(const struct sim *s, const struct wb_probe *p, uint32_t t, bool expand)
{
	const struct wb_tensor *k = &s->m->tensor[t];
	enum wb_fill_kind kind = wb_probe_fill_kind(p, t);
	uint64_t rows = expand && (kind & 1) ? 1 : k->rows,
		 cols = expand && (kind & 2) ? 1 : k->cols;
	size_t bytes = rows * cols * wb_dtype_bytes(k->dtype);
	uint8_t *host = malloc(bytes), *there = malloc(bytes);
	const struct wbcu *cu;
	uint64_t dev;

	ck_assert_int_eq(wbcu_load(&cu, NULL), 0);
	ck_assert_int_eq(cu->mem_alloc(&dev, bytes), 0);
	ck_assert_int_eq(wb_probe_fill(p, t, expand, host, bytes), 0);
	ck_assert_int_eq(wb_probe_fill(p, t, expand, (void *)(uintptr_t)dev, bytes), 0);
	fx_cuda_read(there, dev, bytes);
	ck_assert(!memcmp(host, there, bytes));
	ck_assert_int_eq(wb_probe_fill(p, t, expand, (void *)(uintptr_t)dev, bytes + 1), -EINVAL);
	cu->mem_free(dev);
	free(host);
	free(there);
}

static const char *const unfilled[] = {
	"fail cuLaunchKernel 1 1", "fail cuLaunchKernel 700 1", "fail cuCtxPushCurrent_v2 400 1"};

static const char *unfilled_needs(int row)
{
	(void)row;
	return FX_SCRIPT;
}

/* Also where the driver calls it an invalid value: -EINVAL says that there is no pass. */
START_TEST(a_tensor_that_a_device_does_not_fill_has_failed)
{
	struct sim s = {.rng = {1}};
	size_t bytes = 40 * 24 * 2;
	const struct wbcu *cu;
	struct wb_probe *p = probe_plain(&s);
	struct wb_pass pass;
	struct wb_err err;
	uint64_t dev;

	ck_assert_int_eq(wbcu_load(&cu, NULL), 0);
	ck_assert_int_eq(cu->mem_alloc(&dev, bytes), 0);
	ck_assert_int_eq(wb_probe_next_pass(p, &pass, &err), 1);
	fx_cuda_do(unfilled[_i]);
	ck_assert_int_eq(wb_probe_fill(p, 0, false, (void *)(uintptr_t)dev, bytes), -EIO);
	fx_cuda_do("reset");
	ck_assert_int_eq(wb_probe_fill(p, 0, false, (void *)(uintptr_t)dev, bytes), 0);
	wb_probe_destroy(p);
	cu->mem_free(dev);
	fxl_clear(&s);
}
END_TEST

START_TEST(a_tensor_filled_on_a_device_is_the_host_s)
{
	struct sim s = {.rng = {1}};
	struct wb_probe_param param;
	struct wb_probe *p;
	struct wb_pass pass;
	struct wb_err err;
	uint32_t t = fxl_tensor(&s, WB_F32, 2, 9, 7, 0);
	struct sim_param *q = fxl_param(&s, WB_F32, 2, 9, 7, 0);

	for (uint64_t i = 0; i < q->n; i++)
		q->src[i] = fxl_src(t, i);
	for (size_t i = 0; i < WB_ARRAY_SIZE(dtypes); i++)
		if (_i || dtypes[i] != WB_F16) /* with F16 a probe is mixed */
			fxl_tensor(&s, dtypes[i], 3, 20, 10, 300);
	ck_assert_int_eq(fxl_manifest(&s, &err), 0);
	fxl_allocate(&s);
	param = s.param[0].p;
	ck_assert_int_eq(wb_probe_create(s.m, &param, 1, &s.opts, &p, &err), 0);
	while (wb_probe_next_pass(p, &pass, &err) == 1) {
		for (uint32_t i = 0; i < s.n_tensor; i++) {
			check_fill(&s, p, i, false);
			check_fill(&s, p, i, true);
		}
		fxl_load(&s, p, &pass);
		ck_assert_int_eq(wb_probe_end_pass(p, NULL, 0, &err), 0);
	}
	wb_probe_destroy(p);
	fxl_clear(&s);
}
END_TEST

START_TEST(a_device_without_parameters_fills_no_tensor)
{
	struct sim s = {.rng = {1}};
	const struct wbcu *cu;
	struct wb_probe *p = probe_plain(&s);
	struct wb_pass pass;
	struct wb_err err;
	void *context;
	uint64_t dev;

	ck_assert_int_eq(wbcu_load(&cu, NULL), 0);
	ck_assert_int_eq(cu->context_retain(&context, 1), 0);
	ck_assert_int_eq(cu->context_push(context), 0);
	ck_assert_int_eq(cu->mem_alloc(&dev, 40 * 24 * 2), 0);
	ck_assert_int_eq(cu->context_pop(&context), 0);
	ck_assert_int_eq(wb_probe_next_pass(p, &pass, &err), 1);
	ck_assert_int_eq(wb_probe_fill(p, 0, false, (void *)(uintptr_t)dev, 40 * 24 * 2), -ENOTSUP);
	wb_probe_destroy(p);
	fxl_check_intact(&s);
	fxl_clear(&s);
}
END_TEST

/* ---- what comes to the host ------------------------------------------------------------------ */

/* Bytes that a worker of two parameters of @side x @side costs: a copy, and one with zeros around.
 */
static uint64_t bytes_to_host(uint64_t side)
{
	struct sim s = {.rng = {1}};
	struct wb_srcmap *map = NULL;
	struct wb_err err;
	uint64_t bytes;
	uint32_t t = fxl_tensor(&s, WB_BF16, 2, side, side, 0);

	for (int k = 0; k < 2; k++) {
		struct sim_param *p = fxl_param(&s, WB_BF16, 2, side, side, 0);

		for (uint64_t i = 0; i < p->n; i++)
			p->src[i] = k && i % side >= side - 3 ? ZERO : fxl_src(t, i);
	}
	fxl_param(&s, WB_BF16, 2, side, side, 0); /* not written */
	ck_assert_int_eq(fxl_extract(&s, &map, NULL, &err), 0);
	fxl_check_map(&s, map);
	fxl_check_intact(&s);
	bytes = map->stats.dev_out_bytes;
	wb_srcmap_destroy(map);
	fxl_clear(&s);
	return bytes;
}

/* Two hits a row of the padded one are all that grows. */
START_TEST(what_comes_to_the_host_are_places_not_parameters)
{
	uint64_t small = bytes_to_host(32), large = bytes_to_host(256);

	printf("%llu bytes of %d, %llu of %d\n", (unsigned long long)small, 3 * 32 * 32 * 2,
		(unsigned long long)large, 3 * 256 * 256 * 2);
	ck_assert_uint_le(small, 8192);
	ck_assert_uint_le(large - small, (256 - 32) * sizeof(struct wbk_hit));
}
END_TEST

/* ---- hits that have no room ------------------------------------------------------------------ */

static void permuted(struct sim *s)
{
	for (uint32_t k = 0; k < 2; k++) {
		uint32_t t = fxl_tensor(s, WB_BF16, 2, 25, 25, 0);
		struct sim_param *p = fxl_param(s, WB_BF16, 2, 25, 25, 0);

		for (uint64_t i = 0; i < p->n; i++)
			p->src[i] = fxl_src(t, wb_mix64(i + k) % p->n);
	}
}

static void checkerboard(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 70, 80, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 70, 80, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = (i / 80 + i) % 2 ? fxl_src(t, i) : ZERO;
}

/* More constants than are told apart, in columns, with what is not written beside them. */
static void many_constants(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_F32, 2, 300, 100, 0);
	struct sim_param *p = fxl_param(s, WB_F32, 2, 300, 100, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = i % 2 ? fxl_src(t, i) : i % 4 ? NONE : i % 3 ? ZERO : ONE_HALF;
}

/* The last have no hits: they have room when those before them have none. */
static void slabs_of_gaps(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 3, 40, 10, 20);
	struct sim_param *p = fxl_param(s, WB_BF16, 3, 40, 10, 20);

	p->p.stride[1] = 21;
	p->p.stride[0] = 10 * 21 + 5;
	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = i / 200 > 36 ? NONE
			    : i % 7 == 0 ? ZERO
					 : fxl_src(t, i % 200 * 3 % 200 + i / 200 * 200);
}

/* After the desk's: rooms for 20000 and 10000 hits are refused, that for 5000 is not. */
#define LITTLE "fail cuMemAlloc_v2 2 2 1"

static const struct {
	const char *name;
	void (*make)(struct sim *s);
	bool is_merged;
	uint64_t record_max; /* also what there is room for in hits */
	const char *script;
} large[] = {
	{"checkerboard", checkerboard, false, 20000, LITTLE},
	{"many constants", many_constants, true, 20000, LITTLE},
	{"slabs of gaps", slabs_of_gaps, false, 20000, LITTLE},
	{"two that have room one by one", permuted, false, 1024, NULL},
};

/* A device with so little memory that hits of all parameters, or of one, do not fit at once. */
START_TEST(hits_beyond_the_buffer_are_found_in_parts)
{
	struct sim s = {.rng = {3}};
	struct wb_digest want, got;

	printf("%s\n", large[_i].name);
	fxl_use_host();
	large[_i].make(&s);
	want = digest_of(&s, large[_i].is_merged);
	fxl_use_device();
	large[_i].make(&s);
	fxl_allocate(&s);
	s.opts.record_max = large[_i].record_max;
	if (large[_i].script)
		fx_cuda_do(large[_i].script);
	got = digest_of(&s, large[_i].is_merged);
	if (large[_i].script)
		fx_cuda_do("reset");
	ck_assert(wb_digest_eq(want, got));
}
END_TEST

static const char *large_needs(int row)
{
	return large[row].script ? FX_SCRIPT : NULL;
}

START_TEST(more_records_than_are_allowed_are_counted_not_fetched)
{
	struct sim s = {.rng = {3}, .opts = {.record_max = 5000}};
	struct wb_srcmap *map = NULL;
	struct wb_err err;
	char faults[4096];
	uint32_t t = fxl_tensor(&s, WB_BF16, 2, 100, 100, 0);
	struct sim_param *p = fxl_param(&s, WB_BF16, 2, 100, 100, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, wb_mix64(i) % p->n);
	ck_assert_int_eq(fxl_extract(&s, &map, faults, &err), WB_ENOTCOPY);
	ck_assert_msg(
		strstr(faults, "p0: record overflow: more than 5000 jumps") != NULL, "%s", faults);
	fxl_check_intact(&s);
	fxl_clear(&s);
}
END_TEST

/* ---- order ----------------------------------------------------------------------------------- */

/* A loader whose copies are still under way, in a stream of its own, when it returns. */
START_TEST(what_a_loader_has_queued_is_waited_for)
{
	struct sim s = {.rng = {1}};
	struct wb_srcmap *map;
	const struct wbcu *cu;
	struct wb_probe *p = probe_plain(&s);
	struct wb_pass pass;
	struct wb_err err;
	uint8_t *pinned;
	void *stream;
	size_t bytes = 40 * 24 * 2;

	ck_assert_int_eq(wbcu_load(&cu, NULL), 0);
	ck_assert_int_eq(cu->stream_create(&stream, WBCU_STREAM_NON_BLOCKING), 0);
	ck_assert_int_eq(cu->host_alloc((void **)&pinned, bytes, 0), 0);
	while (wb_probe_next_pass(p, &pass, &err) == 1) {
		ck_assert_int_eq(wb_probe_fill(p, 0, false, pinned, bytes), 0);
		fx_cuda_do("late cuMemcpyHtoDAsync_v2 20000000 1");
		ck_assert_int_eq(
			cu->copy_in((uintptr_t)s.param[0].p.data, pinned, bytes, stream), 0);
		ck_assert_int_eq(wb_probe_end_pass(p, NULL, 0, &err), 0);
		fx_cuda_do("reset");
	}
	ck_assert_int_eq(wb_probe_finish(p, &map, &err), 0);
	fxl_check_map(&s, map);
	wb_probe_destroy(p);
	fxl_check_intact(&s);
	wb_srcmap_destroy(map);
	cu->stream_destroy(stream);
	cu->host_free(pinned);
	fxl_clear(&s);
}
END_TEST

/* A loader that raises leaves what it has queued: it must not come after the parameters' content.
 */
START_TEST(what_a_loader_that_raised_has_queued_does_not_come_after)
{
	struct sim s = {.rng = {1}};
	struct wb_probe_param param[2];
	const struct wbcu *cu;
	struct wb_probe *p;
	struct wb_pass pass;
	struct wb_err err;
	uint8_t *pinned;
	void *stream;
	size_t bytes = 40 * 24 * 2;

	fxl_case_plain(&s);
	fxl_param(&s, WB_BF16, 2, 40, 24, 0); /* not written by the first load */
	ck_assert_int_eq(fxl_manifest(&s, &err), 0);
	fxl_allocate(&s);
	param[0] = s.param[0].p;
	param[1] = s.param[1].p;
	ck_assert_int_eq(wbcu_load(&cu, NULL), 0);
	ck_assert_int_eq(cu->stream_create(&stream, WBCU_STREAM_NON_BLOCKING), 0);
	ck_assert_int_eq(cu->host_alloc((void **)&pinned, bytes, 0), 0);
	memset(pinned, 0x11, bytes);
	ck_assert_int_eq(wb_probe_create(s.m, param, 2, &s.opts, &p, &err), 0);
	ck_assert_int_eq(wb_probe_next_pass(p, &pass, &err), 1);
	fxl_load(&s, p, &pass);
	ck_assert_int_eq(wb_probe_end_pass(p, NULL, 0, &err), 0);
	ck_assert_int_eq(wb_probe_next_pass(p, &pass, &err), 1);
	fx_cuda_do("late cuMemcpyHtoDAsync_v2 20000000 2");
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(cu->copy_in((uintptr_t)param[i].data, pinned, bytes, stream), 0);
	wb_probe_destroy(p);
	fxl_check_intact(&s);
	cu->stream_destroy(stream);
	cu->host_free(pinned);
	fxl_clear(&s);
}
END_TEST

/* ---- constants ------------------------------------------------------------------------------- */

START_TEST(constants_are_written_where_parameters_lie)
{
	struct sim s = {.rng = {1}};
	struct wb_srcmap *map;
	struct wb_err err;
	void *param[64];
	struct fakecuda_counts before, after;

	fxl_case_zero_padding(&s);
	ck_assert_int_eq(fxl_extract(&s, &map, NULL, &err), 0);
	for (uint32_t i = 0; i < s.n_param; i++)
		param[i] = i == 1 ? NULL : s.param[i].p.data; /* left out */
	before = counts();
	ck_assert_int_eq(wb_srcmap_write_constants(map, param, &err), 0);
	after = counts();
	same_counts(&before, &after);
	/* The same by the host, on what it has of them. */
	for (uint32_t i = 0; i < s.n_param; i++)
		param[i] = i == 1 ? NULL : s.param[i].before + wb_dtype_bytes(s.param[i].p.dtype);
	wb_srcmap_constants(map, param);
	fxl_check_intact(&s);
	wb_srcmap_destroy(map);
	fxl_clear(&s);
}
END_TEST

/* ---- memory ---------------------------------------------------------------------------------- */

static void with_all_kinds(struct sim *s)
{
	fxl_case_zero_padding(s);
	s->param[0].src[1] = NONE;
	fxl_param(s, WB_BF16, 1, 9, 0, 0);
	fxl_tensor(s, WB_BF16, 3, 4, 6, 5);
	fxl_param(s, WB_BF16, 3, 4, 6, 5);
	s->param[4].p.stride[0] = 40;
	for (uint64_t i = 0; i < 120; i++)
		s->param[4].src[i] = fxl_src(1, i);
}

/* With room for nothing but the tables: snapshots and all else that is kept go to the host. */
START_TEST(a_device_without_room_keeps_snapshots_in_pinned_memory)
{
	struct sim s = {.rng = {5}};
	struct wb_probe_param param[8];
	struct wb_srcmap *map;
	struct wb_probe *p;
	struct wb_pass pass;
	struct wb_err err;
	long pinned;
	int rc;

	with_all_kinds(&s);
	ck_assert_int_eq(fxl_manifest(&s, &err), 0);
	fxl_allocate(&s);
	for (uint32_t i = 0; i < s.n_param; i++)
		param[i] = s.param[i].p;
	pinned = counts().pinned;
	fx_cuda_do("fail cuMemAlloc_v2 2 0 2"); /* the desk and the hits, and no more */
	ck_assert_int_eq(wb_probe_create(s.m, param, s.n_param, &s.opts, &p, &err), 0);
	ck_assert_int_eq(counts().pinned, pinned + 2); /* the desk, the snapshots */
	while ((rc = wb_probe_next_pass(p, &pass, &err)) == 1) {
		fxl_load(&s, p, &pass);
		ck_assert_msg(!wb_probe_end_pass(p, NULL, 0, &err), "%s", err.msg);
		if (pass.kind == WB_PASS_COLUMN)
			/* what an indicator takes is small, and not kept */
			fx_cuda_do("reset");
	}
	ck_assert_int_eq(rc, 0);
	ck_assert_int_eq(wb_probe_finish(p, &map, &err), 0);
	wb_probe_destroy(p);
	fxl_check_map(&s, map);
	fxl_check_intact(&s);
	ck_assert_int_eq(counts().pinned, pinned);
	wb_srcmap_destroy(map);
	fxl_clear(&s);
}
END_TEST

START_TEST(snapshots_are_divided_where_only_some_have_room)
{
	struct sim s = {.rng = {5}};
	struct wb_probe_param param[2];
	struct wb_probe *p;
	struct wb_pass pass;
	struct wb_err err;
	uint32_t t = fxl_tensor(&s, WB_BF16, 2, 1024, 1024, 0);

	for (int k = 0; k < 2; k++) {
		struct sim_param *q = fxl_param(&s, WB_BF16, 2, 1024, 1024, 0);

		for (uint64_t i = 0; i < q->n; i++)
			q->src[i] = fxl_src(t, i);
	}
	ck_assert_int_eq(fxl_manifest(&s, &err), 0);
	fxl_allocate(&s);
	/* In blocks of 2 MiB: 8 are the parameters', 4 tables and hits, 1 stays free. */
	fx_cuda_do("memory 16777216");
	s.opts.record_max = 4096;
	for (int i = 0; i < 2; i++)
		param[i] = s.param[i].p;
	ck_assert_int_eq(wb_probe_create(s.m, param, 2, &s.opts, &p, &err), 0);
	ck_assert_uint_ne(p->dev[0]->before[0].addr, 0);
	ck_assert_ptr_nonnull(p->dev[0]->before[1].host);
	ck_assert_int_eq(wb_probe_next_pass(p, &pass, &err), 1);
	for (int i = 0; i < 2; i++)
		fx_cuda_write((uintptr_t)param[i].data, s.param[!i].before, 1 << 20);
	wb_probe_destroy(p);
	fxl_check_intact(&s);
	fxl_clear(&s);
}
END_TEST

/* ---- devices that fail ----------------------------------------------------------------------- */

enum { CREATE = 1000, FINISH = 1001 };

/* The whole probe, with a script before one of its steps: of pass @at, or CREATE or FINISH. */
static int probe_with(
	struct sim *s, uint32_t at, bool is_end, const char *script, struct wb_err *err)
{
	struct wb_probe_param param[8];
	struct wb_srcmap *map = NULL;
	struct wb_probe *p = NULL;
	struct wb_pass pass;
	uint32_t n = 0;
	int rc;

#define STEP(is_it, call)                                                                          \
	do {                                                                                       \
		if (is_it)                                                                         \
			fx_cuda_do(script);                                                        \
		rc = (call);                                                                       \
		fx_cuda_do("reset");                                                               \
	} while (0)
	for (uint32_t i = 0; i < s->n_param; i++)
		param[i] = s->param[i].p;
	STEP(at == CREATE, wb_probe_create(s->m, param, s->n_param, &s->opts, &p, err));
	while (!rc) {
		STEP(at == n && !is_end, wb_probe_next_pass(p, &pass, err));
		if (rc != 1)
			break;
		fxl_load(s, p, &pass);
		STEP(at == n && is_end, wb_probe_end_pass(p, NULL, 0, err));
		n++;
	}
	if (!rc)
		STEP(at == FINISH, wb_probe_finish(p, &map, err));
	wb_probe_destroy(p);
	wb_srcmap_destroy(map);
	return rc;
}

static const struct {
	uint32_t at;
	bool is_end;
} steps[] = {{CREATE, false}, {0, true}, {1, false}, {1, true}, {2, true}, {3, true}, {4, true},
	{FINISH, false}};

/* Each call of the driver once, out of memory or refused: a sentence with the device's name, the
 * parameters as they were (or it says that they are not), and nothing is left behind. */
START_TEST(a_call_of_the_driver_that_fails_ends_the_probe_with_a_sentence)
{
	static const int after[] = {0, 1, 2, 3, 4, 5, 7, 9, 12, 15, 20, 26, 33, 41, 60, 90};
	bool has_failed = false;

	for (size_t k = 0; k < WB_ARRAY_SIZE(after); k++) {
		struct sim s = {.rng = {5}};
		struct fakecuda_counts before, now;
		struct wb_err err = {0};
		char script[64];
		bool is_lost;
		int rc;

		with_all_kinds(&s);
		ck_assert_int_eq(fxl_manifest(&s, &err), 0);
		fxl_allocate(&s);
		before = counts();
		snprintf(script, sizeof(script), "fail * %d 1 %d", k % 2 ? 1 : 2, after[k]);
		rc = probe_with(&s, steps[_i].at, steps[_i].is_end, script, &err);
		is_lost = rc && strstr(err.msg, "could not be put back") != NULL;
		has_failed |= rc != 0;
		if (rc && steps[_i].at != CREATE) { /* nothing was touched yet */
			ck_assert_msg(rc == -ENOMEM || rc == -EINVAL, "%d: %s", rc, err.msg);
			ck_assert_msg(is_lost || strstr(err.msg, "are as before"), "%s", err.msg);
			ck_assert_msg(
				strstr(err.msg, "cu") || strstr(err.msg, "wbk_"), "%s", err.msg);
		}
		ck_assert_msg(!rc || err.msg[0], "%d", rc);
		ck_assert_msg(!is_lost || steps[_i].at == FINISH, "%s", err.msg);
		if (!is_lost)
			fxl_check_intact(&s);
		now = counts();
		same_counts(&before, &now);
		fxl_clear(&s);
	}
	ck_assert(has_failed);
}
END_TEST

/* Nothing brings it back: the sentence does not say that all is well. */
START_TEST(a_lost_device_is_not_said_to_be_put_back)
{
	static const int after[] = {0, 1, 2, 5, 9};
	struct sim s = {.rng = {5}};
	struct wb_err err = {0};
	char script[64];
	int rc;

	with_all_kinds(&s);
	ck_assert_int_eq(fxl_manifest(&s, &err), 0);
	fxl_allocate(&s);
	snprintf(script, sizeof(script), "lose 719 %d", after[_i % 5]);
	rc = probe_with(&s, steps[1 + _i / 5].at, steps[1 + _i / 5].is_end, script, &err);
	if (rc) { /* else there were fewer pieces of work than that */
		ck_assert_int_eq(rc, -EIO);
		ck_assert_msg(strstr(err.msg, "could not be put back") != NULL, "%s", err.msg);
		ck_assert_msg(strstr(err.msg, "Stand-in 0: ") != NULL, "%s", err.msg);
	}
	fxl_clear(&s);
}
END_TEST

START_TEST(nothing_goes_on_after_a_device_has_failed)
{
	struct sim s = {.rng = {5}};
	struct wb_probe_param param[8];
	struct wb_srcmap *map = NULL;
	struct wb_err err = {0};
	struct wb_probe *p;
	struct wb_pass pass;

	with_all_kinds(&s);
	ck_assert_int_eq(fxl_manifest(&s, &err), 0);
	fxl_allocate(&s);
	for (uint32_t i = 0; i < s.n_param; i++)
		param[i] = s.param[i].p;
	ck_assert_int_eq(wb_probe_create(s.m, param, s.n_param, &s.opts, &p, &err), 0);
	ck_assert_int_eq(wb_probe_next_pass(p, &pass, &err), 1);
	fx_cuda_do("fail cuLaunchKernel 2 1");
	ck_assert_int_eq(wb_probe_end_pass(p, NULL, 0, &err), -ENOMEM);
	fxl_check_intact(&s);
	ck_assert_int_eq(wb_probe_next_pass(p, &pass, &err), -ENOMEM);
	ck_assert_int_eq(wb_probe_finish(p, &map, &err), -EINVAL);
	wb_probe_destroy(p);
	fxl_check_intact(&s);
	fxl_clear(&s);
}
END_TEST

static const char *needs_script(int row)
{
	(void)row;
	return FX_SCRIPT;
}

int main(void)
{
	Suite *s = suite_create("extract_gpu");
	TCase *tc = tcase_create("device"), *faults = tcase_create("faults");

	if (!fxl_here())
		return 77;
	tcase_add_checked_fixture(tc, fxl_use_device, fxl_use_host);
	tcase_add_checked_fixture(faults, fxl_use_device, fxl_use_host);
	tcase_add_loop_test(tc, a_tensor_filled_on_a_device_is_the_host_s, 0, 2);
	FX_CUDA_ADD(tc, a_device_without_parameters_fills_no_tensor,
		fx_cuda_devices() < 2 ? "a second device" : NULL);
	FX_CUDA_ADD_ROWS(
		tc, a_tensor_that_a_device_does_not_fill_has_failed, unfilled, unfilled_needs);
	FX_CUDA_ADD(tc, what_comes_to_the_host_are_places_not_parameters, NULL);
	FX_CUDA_ADD_ROWS(tc, hits_beyond_the_buffer_are_found_in_parts, large, large_needs);
	FX_CUDA_ADD(tc, more_records_than_are_allowed_are_counted_not_fetched, NULL);
	FX_CUDA_ADD(tc, what_a_loader_has_queued_is_waited_for, FX_SCRIPT);
	FX_CUDA_ADD(tc, what_a_loader_that_raised_has_queued_does_not_come_after, FX_SCRIPT);
	FX_CUDA_ADD(tc, constants_are_written_where_parameters_lie, NULL);
	FX_CUDA_ADD(tc, a_device_without_room_keeps_snapshots_in_pinned_memory, FX_SCRIPT);
	FX_CUDA_ADD(tc, snapshots_are_divided_where_only_some_have_room, FX_SCRIPT);
	FX_CUDA_ADD_ROWS(faults, a_call_of_the_driver_that_fails_ends_the_probe_with_a_sentence,
		steps, needs_script);
	if (fx_forks() && !fx_cuda_is_device())
		tcase_add_loop_test(faults, a_lost_device_is_not_said_to_be_put_back, 0,
			5 * ((int)WB_ARRAY_SIZE(steps) - 1));
	FX_CUDA_ADD(faults, nothing_goes_on_after_a_device_has_failed, FX_SCRIPT);
	suite_add_tcase(s, tc);
	suite_add_tcase(s, faults);
	return fx_run(s);
}
