/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_CUDA_H
#define WB_TESTS_FX_CUDA_H
/*
 * The driver without devices, loaded so that what is tested finds it as libcuda.so.1, and what a
 * test may do to it (tests/cuda/driver/fakecuda.h).
 */
#include "mem/cuda.h"
#include "tests/cuda/driver/fakecuda.h"

#include <stdbool.h>

struct fx_cuda {
	int (*script)(const char *text);
	void (*count)(struct fakecuda_counts *out);
};

/** fx_cuda - the stand-in; loaded at the first call, which comes before that of what is tested. */
const struct fx_cuda *fx_cuda(void);
/** fx_cuda_do - a script; ends the test when it is not understood. */
void fx_cuda_do(const char *text);
/** fx_cuda_driver - its functions, with the context of device @number current in this thread. */
const struct wbcu *fx_cuda_driver(int number);
/** fx_cuda_write, fx_cuda_read - bytes of the device's memory, from and to the host. */
void fx_cuda_write(uint64_t addr, const void *from, size_t bytes);
void fx_cuda_read(void *to, uint64_t addr, size_t bytes);
/** fx_cuda_vmm - an allocation of VMM, mapped on device @number. */
uint64_t fx_cuda_vmm(int number, size_t bytes, bool is_exported);
/** fx_cuda_vmm_free - unmap it, and forget its addresses. */
void fx_cuda_vmm_free(uint64_t addr, size_t bytes);

/* Between the processes of a test, over a socket pair. */

/** fx_send - @bytes bytes and descriptors; fx_receive waits for them.  End the process on errors.
 */
void fx_send(int sock, const void *p, size_t bytes, const int *fds, unsigned n_fd);
void fx_receive(int sock, void *p, size_t bytes, int *fds, unsigned n_fd);
/** fx_two - run @a and @b in processes of their own, joined by a socket pair; both have to return.
 *  A driver is begun in them, not before. */
void fx_two(void (*a)(int sock, void *arg), void (*b)(int sock, void *arg), void *arg);

#endif
