/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of extraction. */
#include "base/base.h"
#include "kernels/codes.h"
#include "kernels/gpu.h"
#include "tests/bench/gpu/bench.h"

#include <stdio.h>
#include <stdlib.h>

struct scan {
	uint64_t dev_n;
	uint32_t n_tile;
	enum wbk_gpu which;
	struct wbk_scan_args a;
};

#define SCAN_ROWS 65536u
#define SCAN_COLS 8192u
#define SCAN_BYTES ((uint64_t)SCAN_ROWS * SCAN_COLS * 2)
#define HITS 65536u

static void scan_run(void *arg)
{
	struct scan *s = arg;

	gb_must(gb.cu->fill(s->dev_n, 0, 8, gb.stream), "cuMemsetD8Async");
	gb_launch(s->which, &s->a, s->n_tile);
}

struct reduce {
	void *fn;
	uint64_t from, n, out;
};

static void reduce_run(void *arg)
{
	struct reduce *r = arg;
	void *param[] = {&r->from, &r->n, &r->out};

	gb_must(gb.cu->launch(r->fn, 4 * (uint32_t)gb.gpu->n_sm, 1, 1, 512, 1, 1, 0, gb.stream,
			param, NULL),
		"cuLaunchKernel");
}

/* A parameter that a pass of column digits has come to: every row is the same ramp. */
static uint64_t ramps(void)
{
	static uint16_t one[SCAN_COLS];
	uint64_t at = gb_device(SCAN_BYTES), have = sizeof(one), n;

	wbk_encode_ramp(WBK_CODE_BF16, 0, 0, 0x7fff, one, SCAN_COLS);
	gb_must(gb.cu->copy_in(at, one, sizeof(one), gb.stream), "cuMemcpyHtoDAsync");
	for (; have < SCAN_BYTES; have += n) {
		n = WB_MIN(have, SCAN_BYTES - have);
		gb_must(gb.cu->copy_on(at + have, at, n, gb.stream), "cuMemcpyDtoDAsync");
	}
	gb_must(gb.cu->stream_sync(gb.stream), "cuStreamSynchronize");
	return at;
}

static void bench_scan(
	const char *name, enum wbk_gpu which, const void *item, size_t item_bytes, double bar)
{
	uint32_t first[2] = {0};
	struct scan s = {.which = which};
	struct wbk_found out = wbk_found_none();
	/* What an item begins with is where its matrix is. */
	struct reduce r = {
		.from = *(const uint64_t *)item, .n = SCAN_BYTES / 16, .out = gb_device(4)};
	char file[4096];
	const char *o = getenv("WB_REDUCE");

	if (!gb_is_wanted(name))
		return;
	snprintf(file, sizeof(file), "%s", o ? o : WBT_REDUCE);
	r.fn = gb_function(gb_image_of(file), "wbt_gpu_reduce");
	gb_must(wbk_tiles_add(first, SCAN_ROWS, SCAN_COLS, 1), "wbk_tiles_add");
	s.n_tile = first[1];
	s.dev_n = gb_device(8);
	s.a = (struct wbk_scan_args){.item = (void *)(uintptr_t)gb_sent(item, item_bytes),
		.first = (void *)(uintptr_t)gb_sent(first, sizeof(first)),
		.out = (void *)(uintptr_t)gb_sent(&out, sizeof(out)),
		.hit = (void *)(uintptr_t)gb_device(HITS * sizeof(struct wbk_hit)),
		.n_hit = (void *)(uintptr_t)s.dev_n,
		.cap = HITS,
		.n_item = 1};
	gb_row(name, gb_beside(scan_run, &s, reduce_run, &r), (double)SCAN_BYTES, bar,
		"reading as many bytes");
}

void gb_scans(void)
{
	struct wbk_diff2 diff2 = {.f = {.rows = SCAN_ROWS,
					  .cols = SCAN_COLS,
					  .row_stride = SCAN_COLS,
					  .code = WBK_CODE_BF16},
		.row_end = SCAN_ROWS};
	struct wbk_plane plane = {.rows = SCAN_ROWS,
		.cols = SCAN_COLS,
		.row_stride = SCAN_COLS,
		.row_end = SCAN_ROWS,
		.elem = 2};
	struct wbk_equal equal = {.want = 0x3f3f};
	struct wbk_classify classify = {.first = 0x3f3f, .second = 0x3f3f, .sentinel = 0x1234};
	uint64_t at;

	if (!gb_is_wanted("second differences") && !gb_is_wanted("classes") &&
		!gb_is_wanted("constants"))
		return;
	at = ramps();
	diff2.f.data = plane.data = (void *)(uintptr_t)at;
	bench_scan("second differences, 65536 x 8192 of bf16", WBK_GPU_DIFF2, &diff2, sizeof(diff2),
		0.8);
	gb_must(gb.cu->fill(at, 0x3f, SCAN_BYTES, gb.stream), "cuMemsetD8Async");
	equal.p = classify.p = plane;
	classify.cls = (uint8_t *)(uintptr_t)gb_device(SCAN_BYTES / 2);
	bench_scan("constants, 65536 x 8192 of bf16", WBK_GPU_EQUAL, &equal, sizeof(equal), 0);
	bench_scan(
		"classes, 65536 x 8192 of bf16", WBK_GPU_CLASSIFY, &classify, sizeof(classify), 0);
	gb.cu->mem_free((uintptr_t)classify.cls);
	gb.cu->mem_free(at);
}
