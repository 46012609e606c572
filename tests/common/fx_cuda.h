/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_CUDA_H
#define WB_TESTS_FX_CUDA_H
/*
 * The driver without devices, loaded so that what is tested finds it as libcuda.so.1, and what a
 * test may do to it (tests/cuda/driver/fakecuda.h).
 *
 * With WB_GPU=device the machine's own driver is found instead.  It has no scripts and no counts,
 * and one device may be all that there is: a claim that cannot be made there says why when it is
 * added, and is printed as skipped.
 */
#include "mem/cuda.h"
#include "tests/common/fx_check.h"
#include "tests/cuda/driver/fakecuda.h"

#include <stdbool.h>

struct fx_cuda {
	int (*script)(const char *text);
	void (*count)(struct fakecuda_counts *out);
};

/** fx_cuda_here - is there what the tests are to run on?  At the beginning of main(), which returns
 *  77 when it is not; the reason is printed.  A driver is not begun: it would not outlive a fork.
 */
bool fx_cuda_here(void);
/** fx_cuda_is_device - is that a driver with devices? */
bool fx_cuda_is_device(void);
/** fx_cuda_devices - how many it has. */
int fx_cuda_devices(void);
/** fx_cuda_second - number of the second device, or of the only one. */
int fx_cuda_second(void);
/**
 * fx_cuda_add_rows - tcase_add_loop_test() for rows 0 to @n - 1 of a table
 * @needs:	what the row needs that a device has not ("faults by script"), NULL = nothing; a
 *NULL function: no row needs anything.  Asked on devices only: such a row is skipped, and it is
 *said.
 */
void fx_cuda_add_rows(
	TCase *t, const TTest *test, const char *name, int n, const char *(*needs)(int row));
/** fx_cuda_add - one claim, with what it needs or NULL. */
void fx_cuda_add(TCase *t, const TTest *test, const char *name, const char *needs);
#define FX_CUDA_ADD_ROWS(t, test, table, needs)                                                    \
	fx_cuda_add_rows(t, test, #test, (int)(sizeof(table) / sizeof((table)[0])), needs)
#define FX_CUDA_ADD(t, test, needs) fx_cuda_add(t, test, #test, needs)
/** fx_cuda_skip - say that a claim, or the rest of it, is not made on this device, and why. */
void fx_cuda_skip(const char *name, const char *why);
#define FX_SCRIPT "faults by script"
#define FX_HOLD "work held by script"

/** fx_cuda - the stand-in; loaded at the first call, which comes before that of what is tested.  On
 *  a device nothing is loaded, and all counts are 0. */
const struct fx_cuda *fx_cuda(void);
/** fx_cuda_do - a script; ends the test when it is not understood, and on a device. */
void fx_cuda_do(const char *text);
/** fx_cuda_fill_late - fill memory, in the legacy stream, behind 50 ms of other work. */
void fx_cuda_fill_late(uint64_t addr, uint8_t value, size_t bytes);
/** fx_cuda_uuid - of a device, by number. */
struct wbcu_uuid fx_cuda_uuid(int number);
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
