/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/gpu.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "kernels/gpu.h"
#include "mem/gpu.h"

#include <errno.h>
#include <string.h>

#define WINDOW ((uint64_t)16 << 20) /* slots are pinned in pieces of this size */
#define KERNELS 2u

static const enum wbk_gpu kernels[KERNELS] = {WBK_GPU_ROWS, WBK_GPU_IMAGE};

/* What a launch reads, here and on the device alike. */
struct tables {
	struct wbk_sum sum; /* written by the kernel */
	struct wbk_sum_keys keys;
	/* WB_LANE_GPU_BOXES + 1 numbers for each kernel, or fewer side by side. */
	uint32_t first[KERNELS * (WB_LANE_GPU_BOXES + 1)];
	struct wbk_op op[WB_LANE_GPU_BOXES];
	void *base[WB_LANE_GPU_BOXES]; /* of each op */
};

struct wb_lane_gpu {
	struct wb_gpu *gpu;
	void *module, *fn[KERNELS], *stream, *done;
	struct tables *host; /* pinned */
	uint64_t dev; /* the device's copy */
	uint8_t *arena; /* borrowed */
	uint64_t arena_bytes;
	uint8_t *is_pinned; /* owned: a window each */
	bool has_keys; /* those of host->keys are the device's as well, once its copies are made */
};

/* An image without code, for builds without a CUDA compiler: a driver refuses it in its own words,
 * the stand-in of the tests has the kernels itself. */
static const uint32_t no_code[4] = {0xBA55ED50u, 0x00100001u, 0, 0};

/* ---- life ------------------------------------------------------------------------------------ */

static int load(struct wb_lane_gpu *l, struct wb_err *err)
{
	const void *image = wbk_gpu_kernel(WBK_GPU_ROWS)->image; /* of both */
	const struct wbcu *cu = l->gpu->cu;
	int rc = cu->module_load(&l->module, image ? image : no_code);

	if (rc && !image)
		return wb_err_set(err, -ENOTSUP,
			"this build has no code for GPUs: it was built without a CUDA compiler");
	rc = wb_gpu_rc(l->gpu, rc, "cuModuleLoadData", err);
	for (unsigned i = 0; i < KERNELS && !rc; i++) {
		const char *name = wbk_gpu_kernel(kernels[i])->name;

		rc = wb_gpu_rc(l->gpu, cu->module_function(&l->fn[i], l->module, name), name, err);
	}
	return rc;
}

static int make(struct wb_lane_gpu *l, struct wb_err *err)
{
	const struct wbcu *cu = l->gpu->cu;
	int rc = load(l, err);

	if (!rc)
		rc = wb_gpu_rc(l->gpu, cu->stream_create(&l->stream, WBCU_STREAM_NON_BLOCKING),
			"cuStreamCreate", err);
	if (!rc)
		rc = wb_gpu_rc(l->gpu,
			cu->event_create(&l->done, WBCU_EVENT_BLOCKING | WBCU_EVENT_NO_TIMING),
			"cuEventCreate", err);
	if (!rc)
		rc = wb_gpu_rc(l->gpu,
			cu->host_alloc((void **)&l->host, sizeof(*l->host), WBCU_HOST_PORTABLE),
			"cuMemHostAlloc", err);
	if (!rc)
		rc = wb_gpu_rc(l->gpu, cu->mem_alloc(&l->dev, sizeof(*l->host)), "cuMemAlloc", err);
	return rc;
}

static uint64_t n_window(const struct wb_lane_gpu *l)
{
	return (l->arena_bytes + WINDOW - 1) / WINDOW;
}

static void unmake(struct wb_lane_gpu *l)
{
	const struct wbcu *cu = l->gpu->cu;

	for (uint64_t i = 0; l->is_pinned && i < n_window(l); i++)
		if (l->is_pinned[i])
			cu->host_unregister(l->arena + i * WINDOW);
	if (l->dev)
		cu->mem_free(l->dev);
	if (l->host)
		cu->host_free(l->host);
	if (l->done)
		cu->event_destroy(l->done);
	if (l->stream)
		cu->stream_destroy(l->stream);
	if (l->module)
		cu->module_unload(l->module);
}

/* With a lost device its objects stay until the process ends: nothing else frees them. */
void wb_lane_gpu_destroy(struct wb_lane_gpu *l)
{
	if (!l)
		return;
	if (l->gpu && !wb_gpu_enter(l->gpu, NULL)) {
		unmake(l);
		wb_gpu_leave(l->gpu);
	}
	wb_gpu_put(l->gpu);
	wb_free(l->is_pinned);
	wb_free(l);
}

int wb_lane_gpu_create(const uint8_t *uuid, void *arena, uint64_t arena_bytes,
	struct wb_lane_gpu **out, struct wb_err *err)
{
	struct wb_lane_gpu *l;
	int rc;

	assert(out && (arena || !arena_bytes));
	l = wb_zalloc(1, sizeof(*l));
	if (!l)
		return wb_err_set(err, -ENOMEM, "no memory for a lane");
	l->arena = arena;
	l->arena_bytes = arena_bytes;
	l->is_pinned = wb_zalloc(n_window(l) + 1, 1);
	rc = l->is_pinned ? wb_gpu_get(uuid, &l->gpu, err)
			  : wb_err_set(err, -ENOMEM, "no memory for a lane");
	if (!rc)
		rc = wb_gpu_enter(l->gpu, err);
	if (!rc) {
		rc = make(l, err);
		wb_gpu_leave(l->gpu);
	}
	if (rc) {
		wb_lane_gpu_destroy(l);
		return rc;
	}
	*out = l;
	return 0;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* Kernels may touch [@wire, @wire + @bytes) of the slots. */
static int pin(struct wb_lane_gpu *l, const uint8_t *wire, uint64_t bytes)
{
	uint64_t at = (uint64_t)(wire - l->arena), end = at + bytes;

	for (uint64_t i = at / WINDOW; bytes && i <= (end - 1) / WINDOW; i++) {
		uint64_t left = l->arena_bytes - i * WINDOW;
		int rc;

		if (l->is_pinned[i])
			continue;
		rc = l->gpu->cu->host_register(l->arena + i * WINDOW, WB_MIN(left, WINDOW),
			WBCU_HOST_PORTABLE | WBCU_HOST_MAPPED);
		if (rc)
			return wb_gpu_rc(l->gpu, rc, "cuMemHostRegister", NULL);
		l->is_pinned[i] = 1;
	}
	return 0;
}

static int way_of(enum wb_lane_kind kind)
{
	switch (kind) {
	case WB_LANE_PACK:
		return WBK_WAY_PACK;
	case WB_LANE_ASSEMBLE:
		return WBK_WAY_ASSEMBLE;
	case WB_LANE_SUM:
		return WBK_WAY_SUM;
	}
	return -EINVAL;
}

static int fill_tables(struct wb_lane_gpu *l, const struct wb_lane_job *job, int way)
{
	struct tables *t = l->host;
	uint32_t bad;

	for (uint32_t i = 0; i < job->n_box; i++) {
		t->op[i] = wbk_op_of_box(&job->box[i], 0);
		t->base[i] = job->bases[job->box[i].base];
		t->op[i].base = i;
	}
	t->sum = (struct wbk_sum){{0, 0}};
	return wbk_move_prepare(t->op, job->n_box, (enum wbk_way)way, t->first, &bad);
}

static uint64_t at(const struct wb_lane_gpu *l, size_t member)
{
	return l->dev + member;
}

/* Tables to the device; the keys, most of the bytes, only when they are others. */
static int send_tables(struct wb_lane_gpu *l, const struct wb_lane_job *job)
{
	const struct wbcu *cu = l->gpu->cu;
	struct tables *t = l->host;
	size_t from = offsetof(struct tables, first);
	int rc = cu->copy_in(l->dev, &t->sum, sizeof(t->sum), l->stream);

	if (job->keys && (!l->has_keys || memcmp(&t->keys, job->keys, sizeof(t->keys)) != 0)) {
		t->keys = *job->keys;
		from = offsetof(struct tables, keys);
		l->has_keys = true;
	}
	if (!rc)
		rc = cu->copy_in(l->dev + from, (uint8_t *)t + from, sizeof(*t) - from, l->stream);
	return rc;
}

/* The table by both kernels, as far as they have tiles of it. */
static int launch_all(struct wb_lane_gpu *l, const struct wb_lane_job *job, struct wbk_move_args *a)
{
	int rc = WBCU_SUCCESS;

	for (unsigned i = 0; i < KERNELS && !rc; i++) {
		uint32_t begin = i * (job->n_box + 1), n_tile = l->host->first[begin + job->n_box];
		uint32_t grid = wbk_gpu_grid(n_tile, (uint32_t)l->gpu->n_sm);
		void *args[] = {a};

		a->first = (void *)(uintptr_t)(at(l, offsetof(struct tables, first)) +
					       begin * sizeof(*a->first));
		if (grid)
			rc = l->gpu->cu->launch(l->fn[i], grid, 1, 1,
				wbk_gpu_kernel(kernels[i])->threads, 1, 1, 0, l->stream, args,
				NULL);
	}
	return rc;
}

static int queue(struct wb_lane_gpu *l, const struct wb_lane_job *job, int way)
{
	const struct wbcu *cu = l->gpu->cu;
	struct wbk_move_args a = {.op = (void *)(uintptr_t)at(l, offsetof(struct tables, op)),
		.bases = (void *)(uintptr_t)at(l, offsetof(struct tables, base)),
		.wire = way == WBK_WAY_SUM ? NULL : job->wire,
		.n_op = job->n_box,
		.way = (uint32_t)way};
	int rc = send_tables(l, job);

	if (job->keys) {
		a.keys = (void *)(uintptr_t)at(l, offsetof(struct tables, keys));
		a.sum = (void *)(uintptr_t)at(l, offsetof(struct tables, sum));
	}
	if (!rc)
		rc = launch_all(l, job, &a);
	if (!rc)
		rc = cu->copy_out(&l->host->sum, l->dev, sizeof(l->host->sum), l->stream);
	if (!rc)
		rc = cu->event_record(l->done, l->stream);
	return rc;
}

static int launch(struct wb_lane_gpu *l, const struct wb_lane_job *job, int way)
{
	const struct wbcu *cu = l->gpu->cu;
	int rc;

	if (!job->n_box)
		return WBCU_SUCCESS;
	rc = queue(l, job, way);
	if (!rc)
		rc = cu->event_sync(l->done);
	if (rc) {
		/* What went into the stream before the failure reads the tables and writes the
		 * slot, which others have after this. */
		(void)cu->stream_sync(l->stream);
		l->has_keys = false; /* they may not have come there */
	}
	return rc;
}

/* The context is current. */
static int run(struct wb_lane_gpu *l, struct wb_lane_job *job)
{
	int way = way_of(job->kind), rc;

	if (way < 0 || job->n_box > WB_LANE_GPU_BOXES || (way == WBK_WAY_SUM && !job->keys))
		return -EINVAL;
	rc = fill_tables(l, job, way);
	if (!rc && way != WBK_WAY_SUM)
		rc = pin(l, job->wire, job->wire_bytes);
	if (!rc)
		rc = wb_gpu_rc(l->gpu, launch(l, job, way), "a kernel", NULL);
	if (!rc && job->keys)
		job->sum = l->host->sum;
	return rc;
}

void wb_lane_gpu_run(struct wb_lane_gpu *l, struct wb_lane_job *job)
{
	assert(l && job && (job->box || !job->n_box));
	job->sum = (struct wbk_sum){{0, 0}};
	job->rc = wb_gpu_enter(l->gpu, NULL);
	if (job->rc)
		return;
	job->rc = run(l, job);
	wb_gpu_leave(l->gpu);
}
