/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WBT_GPU_H
#define WBT_GPU_H
/*
 * What tests of the kernels run on: the CPU, which plays a device (shim.h), or a real one through
 * libcuda.  The same tests, chosen by WB_GPU=device.
 *
 * What goes wrong on a device ends the test with the driver's sentence.  One thread.
 */
#include "tests/common/fx_check.h"

#include <stdbool.h>
#include <stddef.h>

#include "kernels/gpu.h"

/** wbt_gpu_open - the device that WB_GPU asks for; false with a reason when there is none. */
bool wbt_gpu_open(char *why, size_t why_bytes);
/** wbt_gpu_is_device - is that a device? */
bool wbt_gpu_is_device(void);
/** wbt_gpu_name - of what it runs on. */
const char *wbt_gpu_name(void);
/** wbt_gpu_get - memory of the device with a copy of @bytes bytes at @host (NULL: as it comes).
 *  On the CPU it has this size exactly, so that sanitizers see what goes beyond. */
void *wbt_gpu_get(const void *host, size_t bytes);
/** wbt_gpu_read - @bytes bytes of the device's memory at @dev. */
void wbt_gpu_read(void *host, const void *dev, size_t bytes);
/** wbt_gpu_put - give the memory back.  NULL is allowed. */
void wbt_gpu_put(void *dev);
/** wbt_gpu_run - one launch of @n_tile tiles, and wait for its end.  @threads: of a block; 0 = what
 *  the kernel is made for. */
void wbt_gpu_run(enum wbk_gpu which, const void *args, uint32_t n_tile, uint32_t threads);

/** wbt_scan_tests - add what is claimed of the scans (scans.c); @seed: of what is random. */
void wbt_scan_tests(Suite *suite, uint64_t seed);

#endif
