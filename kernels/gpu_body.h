/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WBK_GPU_BODY_H
#define WBK_GPU_BODY_H
/*
 * Shared by the .cu files, which are written in what C11 and CUDA C++ have in common: nvcc builds
 * them for devices; for tests a C compiler builds them with a header that imitates the device
 * (tests/cuda/shim.h).
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/bits.h"
#include "kernels/gpu_tile.h"

#define DEV static __device__ __forceinline__
#ifndef WBK_KERNEL
/* @blocks: least number of blocks that a multiprocessor must run at once. */
#define WBK_KERNEL(name, blocks)                                                                   \
	extern "C" __global__ void __launch_bounds__(WBK__THREADS, blocks) name
#endif

#ifdef __CUDACC__
#define WBK_UNROLL _Pragma("unroll")
#define WBK_ROLLED _Pragma("unroll 1")
/* For a pointer that was read from memory: the compiler cannot know that it does not point to
 * shared memory. */
#define WBK_IS_GLOBAL(p) __builtin_assume(__isGlobal(p))
#define WBK_ALIGNED(n) __align__(n)
#else
#define WBK_ALIGNED(n) _Alignas(n)
#define WBK_IS_GLOBAL(p) (void)(p)
#define WBK_UNROLL
#define WBK_ROLLED
#endif

#define WBK_FULL 0xffffffffu /* all lanes of a warp */

/* A word of sums that other blocks add to as well. */
typedef unsigned long long wbk_u64;

/** add_u64 - *@to += @x, atomically, since others may add to it, too. */
DEV void add_u64(uint64_t *to, uint64_t x)
{
	atomicAdd((wbk_u64 *)to, (wbk_u64)x);
}

/** warp_sum - the sum over the lanes of a warp, in lane 0; all of them call it. */
DEV uint64_t warp_sum(uint64_t x)
{
	for (unsigned d = 16; d; d /= 2)
		x += __shfl_down_sync(WBK_FULL, (wbk_u64)x, d);
	return x;
}

/** piece_of - which piece of a table tile @t belongs to: the last one whose first tile is not after
 * @t.  All lanes of a warp ask for the same tile, and each looks at one of 32 places at a time. */
DEV uint32_t piece_of(const uint32_t *first, uint32_t n, uint32_t t)
{
	uint32_t lo = 0, lane = threadIdx.x % 32;

	while (n > 1) {
		uint32_t step = (n - 1) / 32 + 1, at = lane * step;
		unsigned before = __ballot_sync(WBK_FULL, at < n && first[lo + at] <= t);

		at = (uint32_t)(__popc(before) - 1) * step; /* first[lo] is before it in any case */
		lo += at;
		n = n - at < step ? n - at : step;
	}
	return lo;
}

/** load_bits - the @bytes bytes (at most 8) at @p, zero-extended, at any alignment. */
DEV uint64_t load_bits(const uint8_t *p, unsigned bytes)
{
	uint64_t x = 0;

	if (((uintptr_t)p & (bytes - 1)) == 0) {
		if (bytes == 2)
			return *(const uint16_t *)(const void *)p;
		if (bytes == 4)
			return *(const uint32_t *)(const void *)p;
		if (bytes == 8)
			return *(const uint64_t *)(const void *)p;
	}
	for (unsigned i = 0; i < bytes; i++)
		x |= (uint64_t)p[i] << 8 * i;
	return x;
}

/** store_bits - the low @bytes of @x to @p, at any alignment. */
DEV void store_bits(uint8_t *p, unsigned bytes, uint64_t x)
{
	if (((uintptr_t)p & (bytes - 1)) == 0 && (bytes == 2 || bytes == 4 || bytes == 8)) {
		if (bytes == 2)
			*(uint16_t *)(void *)p = (uint16_t)x;
		else if (bytes == 4)
			*(uint32_t *)(void *)p = (uint32_t)x;
		else
			*(uint64_t *)(void *)p = x;
		return;
	}
	for (unsigned i = 0; i < bytes; i++)
		p[i] = (uint8_t)(x >> 8 * i);
}

/** cast_one - element @x, cast from the wire's type to memory's; without a cast @x itself. */
DEV uint64_t cast_one(unsigned cast, uint64_t x)
{
	switch (cast) {
	case WBK_BF16_TO_F32:
		return wbk__f32_of_bf16((uint16_t)x);
	case WBK_F32_TO_BF16:
		return wbk__bf16_of_f32((uint32_t)x);
	case WBK_F16_TO_F32:
		return wbk__f32_of_f16((uint16_t)x);
	case WBK_F32_TO_F16:
		return wbk__f16_of_f32((uint32_t)x);
	case WBK_BF16_TO_F16:
		return wbk__f16_of_f32(wbk__f32_of_bf16((uint16_t)x));
	case WBK_F16_TO_BF16:
		return wbk__bf16_of_f32(wbk__f32_of_f16((uint16_t)x));
	default:
		return x;
	}
}

/** cast_back - the cast from memory to the wire. */
DEV unsigned cast_back(unsigned cast)
{
	switch (cast) {
	case WBK_BF16_TO_F32:
		return WBK_F32_TO_BF16;
	case WBK_F32_TO_BF16:
		return WBK_BF16_TO_F32;
	case WBK_F16_TO_F32:
		return WBK_F32_TO_F16;
	case WBK_F32_TO_F16:
		return WBK_F16_TO_F32;
	case WBK_BF16_TO_F16:
		return WBK_F16_TO_BF16;
	case WBK_F16_TO_BF16:
		return WBK_BF16_TO_F16;
	default:
		return cast;
	}
}

#endif
