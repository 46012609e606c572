/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that there are, as the CPU plays them. */
#include "tests/cuda/driver/internal.h"
#include "tests/cuda/play.h"
#include "tests/cuda/shim.h"

#include <string.h>

/* The kernel of tests/cuda/answers.c: a number to an address. */
static uint64_t stored_at(const void *args)
{
	uint64_t at;

	memcpy(&at, args, sizeof(at));
	return at;
}

static void play_store(const void *args)
{
	static const uint32_t seven = 7;

	memcpy((void *)(uintptr_t)stored_at(args), &seven, sizeof(seven));
}

static const struct {
	const char *name;
	void (*play)(const void *);
	size_t bytes;
} kernels[] = {
#define ROW(name, type) {"wbk_gpu_" #name, play_##name, sizeof(struct type)},
	WBT_KERNELS(ROW)
#undef ROW
		{"answers_store", play_store, sizeof(uint64_t)},
};

int fc_kernel_find(const char *name)
{
	for (int i = 0; i < (int)(sizeof(kernels) / sizeof(*kernels)); i++)
		if (!strcmp(kernels[i].name, name))
			return i;
	return -1;
}

size_t fc_kernel_bytes(int kernel)
{
	return kernels[kernel].bytes;
}

bool fc_kernel_reaches(int kernel, const void *args)
{
	uint64_t at;

	if (kernels[kernel].play != play_store)
		return true;
	at = stored_at(args);
	return fc_is_open(at, sizeof(uint32_t)) || fc_is_pinned(at, sizeof(uint32_t));
}

void fc_kernel_run(int kernel, const void *args, unsigned grid, unsigned threads)
{
	pthread_mutex_lock(&fc.lock);
	wbt_shim_order = fc.order;
	pthread_mutex_unlock(&fc.lock);
	wbt_shim_run(kernels[kernel].play, args, grid, threads);
}
