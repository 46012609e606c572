/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/gpu/bench.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/hash.h"
#include "kernels/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPS 7
#define CALLS 5 /* queued at once, so that the host's part is hidden */

struct gb gb = {.wire_bytes = GB_WIRE_BYTES};

void gb_must(int rc, const char *what)
{
	struct wb_err err = {0};

	if (!rc)
		return;
	wb_gpu_rc(gb.gpu, rc, what, &err);
	fprintf(stderr, "gpu: %s: %d %s\n", what, rc, err.msg);
	exit(1);
}

void gb_must_err(int rc, const struct wb_err *err)
{
	if (!rc)
		return;
	fprintf(stderr, "gpu: %s\n", err->msg);
	exit(1);
}

/* ---- a device -------------------------------------------------------------------------------- */

uint64_t gb_device(uint64_t bytes)
{
	uint64_t at;

	gb_must(gb.cu->mem_alloc(&at, bytes + 256), "cuMemAlloc");
	return at;
}

void *gb_pinned(uint64_t bytes)
{
	void *p;

	gb_must(gb.cu->host_alloc(&p, bytes, WBCU_HOST_PORTABLE | WBCU_HOST_MAPPED),
		"cuMemHostAlloc");
	return p;
}

uint64_t gb_sent(const void *p, uint64_t bytes)
{
	uint64_t at = gb_device(bytes);

	gb_must(gb.cu->copy_in(at, p, bytes, gb.stream), "cuMemcpyHtoDAsync");
	gb_must(gb.cu->stream_sync(gb.stream), "cuStreamSynchronize");
	return at;
}

/* Bytes that do not compress, and are as good as random to a kernel. */
void gb_scribble(uint64_t at, uint64_t bytes)
{
	uint64_t have = WB_MIN(bytes, (uint64_t)16 << 20), n;
	uint64_t *p = malloc(have + 8);
	struct wb_rng rng = {20261127};

	for (uint64_t i = 0; i < have / 8 + 1; i++)
		p[i] = wb_rng_u64(&rng);
	gb_must(gb.cu->copy_in(at, p, have, gb.stream), "cuMemcpyHtoDAsync");
	for (; have < bytes; have += n) {
		n = WB_MIN(have, bytes - have);
		gb_must(gb.cu->copy_on(at + have, at, n, gb.stream), "cuMemcpyDtoDAsync");
	}
	gb_must(gb.cu->stream_sync(gb.stream), "cuStreamSynchronize");
	free(p);
}

void *gb_image_of(const char *file)
{
	FILE *f = fopen(file, "rb");
	char *p = malloc(8 << 20);
	size_t n = f ? fread(p, 1, (8 << 20) - 1, f) : 0;

	if (!n) {
		fprintf(stderr, "gpu: cannot read %s\n", file);
		exit(1);
	}
	p[n] = 0;
	fclose(f);
	return p;
}

void *gb_function(const void *image, const char *name)
{
	void *module, *fn;

	gb_must(gb.cu->module_load(&module, image), "cuModuleLoadData");
	gb_must(gb.cu->module_function(&fn, module, name), name);
	return fn;
}

static void *kernel(enum wbk_gpu which)
{
	static void *fn[WBK_GPU_COUNT];
	const struct wbk_gpu_kernel *k = wbk_gpu_kernel(which);
	const char *file = which <= WBK_GPU_IMAGE ? gb.move : gb.scan;

	if (!fn[which])
		fn[which] = gb_function(file ? gb_image_of(file) : k->image, k->name);
	return fn[which];
}

void gb_launch(enum wbk_gpu which, void *a, uint32_t n_tile)
{
	uint32_t grid = wbk_gpu_grid(which, n_tile, (uint32_t)gb.gpu->n_sm);
	void *param[] = {a};

	if (gb.blocks)
		grid = WB_MIN(n_tile, gb.blocks * (uint32_t)gb.gpu->n_sm);
	gb_must(gb.cu->launch(kernel(which), grid, 1, 1, wbk_gpu_kernel(which)->threads, 1, 1, 0,
			gb.stream, param, NULL),
		"cuLaunchKernel");
}

/* ---- measuring ------------------------------------------------------------------------------- */

static double seconds(gb_queue_fn *fn, void *arg)
{
	uint64_t t;

	gb_must(gb.cu->stream_sync(gb.stream), "cuStreamSynchronize");
	t = wb_now_ns(&wb_clock_real);
	for (int i = 0; i < CALLS; i++)
		fn(arg);
	gb_must(gb.cu->stream_sync(gb.stream), "the kernel");
	return 1e-9 * (double)(wb_now_ns(&wb_clock_real) - t) / CALLS;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct gb_timed gb_beside(gb_queue_fn *fn, void *arg, gb_queue_fn *other, void *with)
{
	double t[REPS], q[REPS];

	fn(arg);
	other(with);
	for (int i = 0; i < REPS; i++) {
		double ref = seconds(other, with);

		t[i] = seconds(fn, arg);
		q[i] = ref / t[i];
	}
	qsort(t, REPS, sizeof(*t), by_value);
	qsort(q, REPS, sizeof(*q), by_value);
	return (struct gb_timed){t[REPS / 2], q[REPS / 2]};
}

bool gb_is_wanted(const char *name)
{
	return !gb.only || strstr(name, gb.only);
}

/* @bytes: read and written, for the rate. */
void gb_row(const char *name, struct gb_timed t, double bytes, double bar, const char *more)
{
	printf("{\"name\":\"gpu: %s\",\"figure\":%.3f,\"unit\":\"of %s\",\"GBps\":%.0f,\"ms\":%."
	       "3f,",
		name, t.ratio, more, bytes / t.s / 1e9, t.s * 1e3);
	if (bar)
		printf("\"bar\":%.2f,\"met\":%s}\n", bar, t.ratio >= bar ? "true" : "false");
	else
		printf("\"bar\":null,\"met\":null}\n");
	fflush(stdout);
}

void gb_copy_on(void *arg)
{
	struct gb_copy *c = arg;

	gb_must(gb.cu->copy_on(c->to, c->from, c->bytes, gb.stream), "cuMemcpyDtoDAsync");
}

void gb_copy_out(void *arg)
{
	struct gb_copy *c = arg;

	gb_must(gb.cu->copy_out((void *)(uintptr_t)c->to, c->from, c->bytes, gb.stream),
		"cuMemcpyDtoH");
}

void gb_copy_in(void *arg)
{
	struct gb_copy *c = arg;

	gb_must(gb.cu->copy_in(c->to, (void *)(uintptr_t)c->from, c->bytes, gb.stream),
		"cuMemcpyHtoD");
}
