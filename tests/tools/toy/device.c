/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters on a GPU, as a framework keeps them there: the default stream computes on them. */
#include "base/err.h"
#include "mem/gpu.h"
#include "tests/tools/toy/toy.h"

#include <string.h>
#include <time.h>

#define BLOCK ((size_t)2 << 20)

static struct wb_gpu *gpu;
static uint64_t computed; /* memory of the GPU: the next values */

static void must(int rc, const char *what)
{
	struct wb_err err = {0};

	toy_must(wb_gpu_rc(gpu, rc, what, &err), "GPU", err.msg);
}

static size_t rounded(const struct toy *t)
{
	return (t->bytes + BLOCK - 1) / BLOCK * BLOCK;
}

static void make_vmm(struct toy *t)
{
	struct wbcu_allocation what = {.type = WBCU_ALLOCATION_PINNED,
		.handle_types = WBCU_HANDLE_FD,
		.location = {WBCU_LOCATION_DEVICE, gpu->number}};
	struct wbcu_access access = {what.location, WBCU_ACCESS_READWRITE};
	uint64_t handle;

	must(gpu->cu->vmm_create(&handle, rounded(t), &what, 0), "cuMemCreate");
	must(gpu->cu->vmm_reserve(&t->on_device, rounded(t), 0, 0, 0), "cuMemAddressReserve");
	must(gpu->cu->vmm_map(t->on_device, rounded(t), 0, handle, 0), "cuMemMap");
	must(gpu->cu->vmm_access(t->on_device, rounded(t), &access, 1), "cuMemSetAccess");
	must(gpu->cu->vmm_release(handle), "cuMemRelease");
}

void toy_device_make(struct toy *t)
{
	struct wb_err err = {0};

	toy_must(wb_gpu_get(NULL, &gpu, &err), "GPU", err.msg);
	toy_must(wb_gpu_enter(gpu, &err), "GPU", err.msg); /* for good: the main thread's */
	if (!strcmp(t->device, "vmm"))
		make_vmm(t);
	else
		must(gpu->cu->mem_alloc(
			     &t->on_device, strcmp(t->device, "ipc") ? t->bytes : rounded(t)),
			"cuMemAlloc");
	must(gpu->cu->mem_alloc(&computed, t->bytes), "cuMemAlloc");
}

void toy_device_drop(struct toy *t)
{
	must(gpu->cu->mem_free(computed), "cuMemFree");
	if (!strcmp(t->device, "vmm")) {
		must(gpu->cu->vmm_unmap(t->on_device, rounded(t)), "cuMemUnmap");
		must(gpu->cu->vmm_unreserve(t->on_device, rounded(t)), "cuMemAddressFree");
	} else {
		must(gpu->cu->mem_free(t->on_device), "cuMemFree");
	}
	t->on_device = 0;
	wb_gpu_leave(gpu);
	wb_gpu_put(gpu);
}

/* What the values are computed by: the stream goes on when it returns. */
static void compute(void *arg)
{
	const struct toy *t = arg;
	struct timespec takes = {t->late_ms / 1000, t->late_ms % 1000 * 1000000};

	(void)nanosleep(&takes, NULL);
}

void toy_device_push(struct toy *t)
{
	if (!t->on_device)
		return;
	must(gpu->cu->copy_in(computed, t->data, t->bytes, NULL), "cuMemcpyHtoDAsync");
	if (t->late_ms)
		must(gpu->cu->stream_call(NULL, compute, t), "cuLaunchHostFunc");
	must(gpu->cu->copy_on(t->on_device, computed, t->bytes, NULL), "cuMemcpyDtoDAsync");
}

void toy_device_pull(const struct toy *t)
{
	if (!t->on_device)
		return;
	must(gpu->cu->copy_out(t->data, t->on_device, t->bytes, NULL), "cuMemcpyDtoHAsync");
	must(gpu->cu->stream_sync(NULL), "cuStreamSynchronize");
}
