/* SPDX-License-Identifier: Apache-2.0 */
/* Reads all of it and keeps next to nothing: as fast as memory can be read. */
#include <stdint.h>

extern "C" __global__ void __launch_bounds__(512)
	wbt_gpu_reduce(const uint4 *from, uint64_t n, uint32_t *out)
{
	uint64_t step = (uint64_t)gridDim.x * blockDim.x;
	uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
	uint32_t x = 0;

	for (; i + 3 * step < n; i += 4 * step) {
		uint4 v[4];

#pragma unroll
		for (int k = 0; k < 4; k++)
			v[k] = from[i + k * step];
#pragma unroll
		for (int k = 0; k < 4; k++)
			x ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
	}
	for (; i < n; i += step)
		x ^= from[i].x ^ from[i].y ^ from[i].z ^ from[i].w;
	if (x == 0x5eed) /* hardly ever, but the compiler cannot know */
		atomicAdd(out, x);
}
