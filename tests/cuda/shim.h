/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WBT_SHIM_H
#define WBT_SHIM_H
/*
 * Plays the device for the .cu files of kernels, which a C compiler builds with this header first.
 *
 * Each thread of a block is a fiber, blocks run one after another.  A fiber gives way only at
 * __syncthreads() and where the lanes of a warp exchange something; so a run can be repeated, and
 * sanitizers see every access.  In what order fibers go between two such points is chosen by
 * wbt_shim_order: what depends on it is a race.  A barrier or an exchange that not all threads
 * reach ends the program with a sentence, as does one with only some lanes in its mask.
 *
 * Not seen here: the memory model of a device, races between blocks.  One launch at a time.
 */
#include <stdint.h>
#include <stdlib.h>

struct wbt_dim {
	unsigned x;
};

typedef struct {
	uint32_t x, y, z, w;
} __attribute__((aligned(16))) uint4;

extern struct wbt_dim threadIdx, blockIdx, blockDim, gridDim;

/* The order of fibers between two barriers: 0 ascending, 1 descending, else shuffled by it. */
extern uint64_t wbt_shim_order;

/** wbt_shim_run - @kernel(@args) as @grid blocks of @threads (a multiple of 32, 1024 at most). */
void wbt_shim_run(
	void (*kernel)(const void *args), const void *args, unsigned grid, unsigned threads);

/** wbt_shim_sync - __syncthreads(). */
void wbt_shim_sync(void);
/** wbt_shim_any - __syncthreads_or(). */
int wbt_shim_any(int is);
/** wbt_shim_exchange - each lane of the warp gives @x; returns what all 32 gave, until the next. */
const uint64_t *wbt_shim_exchange(unsigned mask, uint64_t x);

#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __shared__ static
/* The entry is wbt_NAME(args), since host code knows the name as that of its own. */
#define WBK_KERNEL(name, blocks) void wbt_##name

#define __syncthreads() wbt_shim_sync()
#define __syncthreads_or(is) wbt_shim_any(is)
#define __popc(x) __builtin_popcount(x)

static inline unsigned __ballot_sync(unsigned mask, int is)
{
	const uint64_t *x = wbt_shim_exchange(mask, is != 0);
	unsigned all = 0;

	for (unsigned i = 0; i < 32; i++)
		all |= (unsigned)x[i] << i;
	return all;
}

static inline unsigned long long __shfl_sync(unsigned mask, unsigned long long x, unsigned lane)
{
	return wbt_shim_exchange(mask, x)[lane % 32];
}

static inline unsigned long long __shfl_down_sync(unsigned mask, unsigned long long x, unsigned d)
{
	unsigned from = threadIdx.x % 32 + d;

	return wbt_shim_exchange(mask, x)[from < 32 ? from : threadIdx.x % 32];
}

static inline unsigned long long atomicAdd(unsigned long long *p, unsigned long long x)
{
	unsigned long long was = *p;

	*p += x;
	return was;
}

static inline unsigned long long atomicMin(unsigned long long *p, unsigned long long x)
{
	unsigned long long was = *p;

	*p = x < was ? x : was;
	return was;
}

static inline unsigned long long atomicMax(unsigned long long *p, unsigned long long x)
{
	unsigned long long was = *p;

	*p = x > was ? x : was;
	return was;
}

#endif
