/* SPDX-License-Identifier: Apache-2.0 */
/* What was staged in host memory comes to a device as it comes to the host, on the driver without
 * devices; WB_GPU=device: on the machine's. */
#include "base/base.h"
#include "base/err.h"
#include "base/hash.h"
#include "kernels/gpu.h"
#include "lane/area_gpu.h"
#include "mem/gpu.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_cuda.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define OBJECTS 2u
#define MEM_BYTES (20 * MIB) /* more than one job, and more than one window of pinned memory */
#define FEW_BYTES (2 * MIB)
#define RANGES 64u
#define SHARE ((uint64_t)4096) /* of a random range, of its object */

/* The parameters' memory on the device, the same on the host, and the area. */
struct rig {
	const struct wbcu *cu;
	struct wb_area_gpu *gpu;
	uint64_t dev[OBJECTS];
	void *from[OBJECTS], *to[OBJECTS], *twin[OBJECTS], *got;
	uint8_t *area;
	uint64_t bytes, area_bytes; /* bytes: of each object */
};

static struct wb_rng rng;

static uint8_t *room(size_t bytes)
{
	uint8_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert(p != MAP_FAILED);
	return p;
}

static void scribble(void *p, size_t bytes)
{
	for (size_t i = 0; i < bytes / 8; i++)
		((uint64_t *)p)[i] = wb_rng_u64(&rng);
}

static void start(struct rig *r, uint64_t bytes)
{
	const char *s = getenv("WB_SEED");
	const uint64_t size[OBJECTS] = {bytes, bytes};
	int number = fx_cuda_second();
	uint64_t off[OBJECTS];
	struct wbcu_uuid uuid;
	struct wb_err err = {0};

	*r = (struct rig){.cu = fx_cuda_driver(number), .bytes = bytes};
	rng.state = s ? strtoull(s, NULL, 0) : 20261128 + (uint64_t)getpid();
	printf("seed %llu\n", (unsigned long long)rng.state);
	r->area_bytes = wb_area_layout(size, OBJECTS, off);
	r->area = room(r->area_bytes);
	scribble(r->area, r->area_bytes);
	r->got = room(bytes);
	for (unsigned i = 0; i < OBJECTS; i++) {
		r->dev[i] = fx_cuda_vmm(number, bytes, true);
		r->from[i] = r->area + off[i];
		r->to[i] = (void *)(uintptr_t)r->dev[i];
		r->twin[i] = room(bytes);
		scribble(r->twin[i], bytes);
		fx_cuda_write(r->dev[i], r->twin[i], bytes);
	}
	uuid = fx_cuda_uuid(number);
	ck_assert_msg(!wb_area_gpu_create(uuid.bytes, r->area, r->area_bytes, &r->gpu, &err), "%s",
		err.msg);
}

static void stop(struct rig *r)
{
	struct fakecuda_counts n;

	wb_area_gpu_destroy(r->gpu);
	fx_cuda()->count(&n);
	ck_assert(!n.streams && !n.events && !n.modules && !n.pinned && !n.queued);
}

static void same_memory(struct rig *r)
{
	for (unsigned i = 0; i < OBJECTS; i++) {
		fx_cuda_read(r->got, r->dev[i], r->bytes);
		ck_assert(!memcmp(r->got, r->twin[i], r->bytes));
	}
}

/* Copied there and on the host, all is the same: what ranges cover, and what lies between them. */
static void copies(struct rig *r, const struct wb_area_range *range, uint32_t n)
{
	wb_area_copy(range, n, r->from, r->twin);
	ck_assert_int_eq(wb_area_gpu_copy(r->gpu, range, n, r->from, r->to), 0);
	same_memory(r);
}

static uint32_t differs(struct rig *r, const struct wb_area_range *range, uint32_t n, uint32_t i)
{
	uint32_t at = UINT32_MAX;

	ck_assert_int_eq(wb_area_gpu_differs(r->gpu, range, n, i, r->from, r->to, &at), 0);
	return at;
}

static const struct wb_area_range ranges[] = {
	{.off = 0, .bytes = MEM_BYTES, .n_row = 1, .n_rep = 1}, /* all: jobs, windows */
	{.off = 4096 + 6, .bytes = 17 * MIB + 2, .n_row = 1, .n_rep = 1},
	{.off = 3, .bytes = 9, .n_row = 1, .n_rep = 1},
	{.mem = 1, .off = 640, .bytes = 96, .n_row = 400, .n_rep = 1, .row_stride = 160}, /* columns
											   */
	/* Rows that follow each other are one piece. */
	{.off = 256, .bytes = 4096, .n_row = 4500, .n_rep = 1, .row_stride = 4096},
	/* Single elements, in any order. */
	{.off = 64, .bytes = 2, .n_row = 30, .n_rep = 20, .row_stride = 2, .rep_stride = 100},
	{.off = 9000, .bytes = 2, .n_row = 30, .n_rep = 20, .row_stride = -2, .rep_stride = 100},
	{.off = 10 * MIB, .bytes = 64, .n_row = 5, .n_rep = 1, .row_stride = -2 * (int64_t)MIB},
	{.off = 0, .bytes = 64, .n_row = 3, .n_rep = 1, .row_stride = 9 * (int64_t)MIB},
	{.off = 80, .bytes = 0, .n_row = 1, .n_rep = 1},
	{.off = 80, .bytes = 8, .n_row = 0, .n_rep = 1},
};

START_TEST(a_range_comes_to_a_device_as_to_the_host)
{
	const struct wb_area_range *range = &ranges[_i];
	uint32_t is_nothing = !range->bytes || !range->n_row;
	struct rig r;

	start(&r, MEM_BYTES);
	ck_assert_uint_eq(differs(&r, range, 1, 0), is_nothing); /* 1 = none */
	copies(&r, range, 1);
	ck_assert_uint_eq(differs(&r, range, 1, 0), 1);
	stop(&r);
}
END_TEST

/* Ranges of both objects that do not touch each other. */
static void random_ranges(struct wb_area_range *x)
{
	for (uint32_t i = 0; i < RANGES; i++) {
		uint64_t row = 1 + wb_rng_below(&rng, 8), gap = wb_rng_below(&rng, 3) * 6;

		x[i] = (struct wb_area_range){.mem = i % OBJECTS,
			.param = i,
			.off = i / OBJECTS * SHARE + wb_rng_below(&rng, 300),
			.bytes = 1 + wb_rng_below(&rng, (SHARE - 300) / row - gap),
			.n_row = row,
			.n_rep = 1};
		x[i].row_stride = (int64_t)(x[i].bytes + gap);
	}
}

START_TEST(random_ranges_come_to_a_device_as_to_the_host)
{
	static struct wb_area_range x[RANGES];
	struct rig r;

	start(&r, FEW_BYTES);
	for (int k = 0; k < 2; k++) {
		random_ranges(x);
		copies(&r, x, RANGES);
		ck_assert_uint_eq(differs(&r, x, RANGES, 0), RANGES);
		scribble(r.area, r.area_bytes);
	}
	stop(&r);
}
END_TEST

/* One byte, in the middle of a job of many ranges: it is that range, and no other. */
START_TEST(what_differs_is_found_by_its_range)
{
	static struct wb_area_range x[RANGES];
	struct rig r;

	start(&r, FEW_BYTES);
	random_ranges(x);
	copies(&r, x, RANGES);
	for (int k = 0; k < 2; k++) {
		uint32_t i = (uint32_t)wb_rng_below(&rng, RANGES);
		uint64_t at = x[i].off +
			      (uint64_t)x[i].row_stride * wb_rng_below(&rng, x[i].n_row) +
			      wb_rng_below(&rng, x[i].bytes);
		uint8_t byte = ((uint8_t *)r.from[x[i].mem])[at] ^ 0x10;

		fx_cuda_write(r.dev[x[i].mem] + at, &byte, 1);
		ck_assert_uint_eq(differs(&r, x, RANGES, 0), i);
		ck_assert_uint_eq(differs(&r, x, RANGES, i), i);
		ck_assert_uint_eq(differs(&r, x, RANGES, i + 1), RANGES);
		ck_assert_int_eq(wb_area_gpu_copy(r.gpu, &x[i], 1, r.from, r.to), 0);
		ck_assert_uint_eq(differs(&r, x, RANGES, 0), RANGES);
	}
	same_memory(&r);
	stop(&r);
}
END_TEST

/* A job that begins at a range of the object behind does not reach back to the one before it. */
START_TEST(what_differs_is_found_where_ranges_lie_to_and_fro)
{
	struct wb_area_range x[8];
	struct rig r;

	start(&r, FEW_BYTES);
	for (uint32_t i = 0; i < WB_ARRAY_SIZE(x); i++)
		x[i] = (struct wb_area_range){.mem = (i + 1) % OBJECTS,
			.off = i * SHARE,
			.bytes = 10,
			.n_row = 1,
			.n_rep = 1};
	copies(&r, x, WB_ARRAY_SIZE(x));
	for (uint32_t i = 0; i < WB_ARRAY_SIZE(x); i++) {
		uint8_t byte = ((uint8_t *)r.from[x[i].mem])[x[i].off + 7] ^ 1;

		fx_cuda_write(r.dev[x[i].mem] + x[i].off + 7, &byte, 1);
		ck_assert_uint_eq(differs(&r, x, WB_ARRAY_SIZE(x), 0), i);
		ck_assert_int_eq(wb_area_gpu_copy(r.gpu, &x[i], 1, r.from, r.to), 0);
	}
	stop(&r);
}
END_TEST

/* Copies and kernels take their time, in any order that they may: it is over when it returns. */
START_TEST(what_is_late_is_there_when_it_returns)
{
	struct fakecuda_counts n;
	struct rig r;

	start(&r, MEM_BYTES);
	fx_cuda_do("order 3; late cuMemcpyHtoDAsync_v2 20000000; late cuLaunchKernel 20000000");
	wb_area_copy(ranges, 1, r.from, r.twin);
	ck_assert_int_eq(wb_area_gpu_copy(r.gpu, ranges, 1, r.from, r.to), 0);
	fx_cuda()->count(&n);
	ck_assert_int_eq(n.queued, 0);
	same_memory(&r);
	stop(&r);
}
END_TEST

static const struct fault {
	const char *script;
	int rc;
	bool is_lost; /* for good */
} faults[] = {
	{"fail cuMemHostRegister_v2 2 1", -ENOMEM, false},
	{"fail cuMemHostRegister_v2 2 1 1", -ENOMEM, false}, /* with jobs under way */
	{"fail cuLaunchKernel 719 1 1", -EIO, false},
	{"fail cuMemcpyHtoDAsync_v2 999 1 2", -EIO, false},
	{"lose 700 1", -EIO, true},
};

START_TEST(a_device_that_fails_is_told_of_and_nothing_is_under_way)
{
	struct fakecuda_counts n;
	struct rig r;

	start(&r, MEM_BYTES);
	fx_cuda_do(faults[_i].script);
	ck_assert_int_eq(wb_area_gpu_copy(r.gpu, ranges, 1, r.from, r.to), faults[_i].rc);
	fx_cuda()->count(&n);
	ck_assert_int_eq(n.queued, 0);
	if (faults[_i].is_lost) {
		wb_area_gpu_destroy(r.gpu);
		return;
	}
	copies(&r, ranges, 1);
	stop(&r);
}
END_TEST

START_TEST(a_range_beyond_the_area_is_einval)
{
	const struct wb_area_range beyond[] = {
		{.mem = 1, .off = MEM_BYTES - 4, .bytes = 8, .n_row = 1, .n_rep = 1},
		{.mem = 1, .off = UINT64_MAX - 8, .bytes = 4, .n_row = 1, .n_rep = 1},
		{.mem = 1, .off = 8, .bytes = UINT64_MAX, .n_row = 1, .n_rep = 1},
	};
	struct rig r;
	uint32_t at;

	start(&r, MEM_BYTES);
	for (unsigned i = 0; i < WB_ARRAY_SIZE(beyond); i++) {
		ck_assert_int_eq(wb_area_gpu_copy(r.gpu, &beyond[i], 1, r.from, r.to), -EINVAL);
		ck_assert_int_eq(
			wb_area_gpu_differs(r.gpu, &beyond[i], 1, 0, r.from, r.to, &at), -EINVAL);
	}
	same_memory(&r);
	stop(&r);
}
END_TEST

static const char *needs_script(int row)
{
	(void)row;
	return FX_SCRIPT;
}

int main(void)
{
	Suite *suite = suite_create("lane area gpu");
	TCase *t = tcase_create("all");

	if (!fx_cuda_here())
		return 77;
	if (fx_cuda_is_device() && !wbk_gpu_kernel(WBK_GPU_ROWS)->image) {
		printf("built without a CUDA compiler: make CUDA=yes\n");
		return 77;
	}
	/* A process begins with a driver once, so each claim needs one of its own. */
	unsetenv("CK_FORK");
	tcase_set_timeout(t, 60);
	FX_CUDA_ADD_ROWS(t, a_range_comes_to_a_device_as_to_the_host, ranges, NULL);
	tcase_add_test(t, random_ranges_come_to_a_device_as_to_the_host);
	tcase_add_test(t, what_differs_is_found_by_its_range);
	tcase_add_test(t, what_differs_is_found_where_ranges_lie_to_and_fro);
	FX_CUDA_ADD(t, what_is_late_is_there_when_it_returns, FX_SCRIPT);
	FX_CUDA_ADD_ROWS(
		t, a_device_that_fails_is_told_of_and_nothing_is_under_way, faults, needs_script);
	tcase_add_test(t, a_range_beyond_the_area_is_einval);
	suite_add_tcase(suite, t);
	return fx_run(suite);
}
