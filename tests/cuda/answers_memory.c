/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about memory: what it is, how it is mapped, and that which may not be touched. */
#include "tests/cuda/answers.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- cuMemAlloc, and memory of the host -------------------------------------------------------
 */

static void legacy_large(void)
{
	size_t bytes = 6 * MIB + 512;
	uint64_t addr = legacy(bytes), start = 0;
	struct wbcu_ipc ipc;
	size_t n = 0;
	int rc;

	type_of(addr + bytes - 1);
	number_of("it is IPC capable", addr, WBCU_POINTER_IS_IPC_CAPABLE);
	number_of("its handle types", addr, WBCU_POINTER_HANDLE_TYPES);
	range_of(addr + 3 * MIB, addr, bytes);
	rc = cu->mem_range(&start, &n, addr + 3 * MIB);
	same_place("cuMemGetAddressRange, start", rc, start, addr);
	same_size("cuMemGetAddressRange, bytes", rc, n, bytes);
	result("an IPC handle of it", cu->ipc_export(&ipc, addr));
	result("an IPC handle of its middle", cu->ipc_export(&ipc, addr + 3 * MIB));
	result("its allocation handle", cu->vmm_retain(&(uint64_t){0}, (void *)(uintptr_t)addr));
	refused("freeing its middle", cu->mem_free(addr + 512));
	result("freeing it", cu->mem_free(addr));
	result("freeing it again", cu->mem_free(addr));
	type_of(addr);
}

static void legacy_small(void)
{
	uint64_t first = legacy(1000), second = legacy(1000), start = 0;
	struct wbcu_ipc ipc;
	size_t n = 0, total = 0;
	int rc;

	type_of(second + 999);
	number_of("it is IPC capable", second, WBCU_POINTER_IS_IPC_CAPABLE);
	number_of("its handle types", second, WBCU_POINTER_HANDLE_TYPES);
	yes("it is aligned to 256", first % 256 == 0 && second % 256 == 0);
	range_of(second + 500, second, 1000);
	rc = cu->mem_range(&start, &n, second + 500);
	same_place("cuMemGetAddressRange, start", rc, start, second);
	same_size("cuMemGetAddressRange, bytes", rc, n, 1000);
	result("an IPC handle of it", cu->ipc_export(&ipc, second));
	must("cuMemGetInfo", cu->mem_info(&n, &total));
	result("more than there is", cu->mem_alloc(&first, 2 * total));
	result("no bytes at all", cu->mem_alloc(&first, 0));
}

static void legacy_neighbours(void)
{
	uint64_t first = legacy(KIB), second = legacy(KIB);
	static char host[2 * KIB];

	yes("the second begins where the first ends", second == first + KIB);
	if (second != first + KIB)
		return;
	result("filling both at once", cu->fill(first, 1, 2 * KIB, NULL));
	result("copying to both at once", cu->copy_in(first, host, 2 * KIB, NULL));
	result("copying from both at once", cu->copy_out(host, first, 2 * KIB, NULL));
	result("the end of that", cu->context_sync());
}

static void host_memory(void)
{
	static char unknown[100];
	size_t bytes = 64 * KIB;
	uint64_t at = 0;
	char *pinned, *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			      -1, 0);
	struct wbcu_ipc ipc;

	must_be("mmap", own != MAP_FAILED);
	memset(own, 1, bytes);
	must("cuMemHostAlloc", cu->host_alloc((void **)&pinned, bytes, WBCU_HOST_PORTABLE));
	type_of((uintptr_t)pinned + bytes - 1);
	result("an IPC handle of it", cu->ipc_export(&ipc, (uintptr_t)pinned));
	name = "host memory, registered";
	result("registering", cu->host_register(own, bytes, WBCU_HOST_PORTABLE | WBCU_HOST_MAPPED));
	type_of((uintptr_t)own + bytes - 1);
	result("its address for the device", cu->host_device_addr(&at, own, 0));
	yes("that is the host's", at == (uintptr_t)own);
	result("registering again", cu->host_register(own, bytes, WBCU_HOST_PORTABLE));
	result("registering a part of it", cu->host_register(own, bytes / 2, WBCU_HOST_PORTABLE));
	refused("freeing it as if it were allocated", cu->host_free(own));
	result("unregistering", cu->host_unregister(own));
	result("unregistering again", cu->host_unregister(own));
	type_of((uintptr_t)own);
	name = "host memory, unknown";
	type_of((uintptr_t)unknown);
	result("freeing it", cu->mem_free((uintptr_t)unknown));
	result("unregistering", cu->host_unregister(unknown));
	result("freeing it as pinned", cu->host_free(unknown));
	name = "host memory, pinned";
	result("unregistering", cu->host_unregister(pinned));
	result("freeing it", cu->host_free(pinned));
}

/* wb_mem_is_device() is asked by threads without a context. */
static void without_a_context(void)
{
	uint64_t addr = legacy(4 * MIB), handle = 0, at = 0;
	size_t n;
	struct wbcu_allocation what = described(WBCU_HANDLE_FD);
	void *was;

	n = piece_bytes();
	must("cuCtxPopCurrent", cu->context_pop(&was));
	type_of(addr);
	result("cuMemAlloc", cu->mem_alloc(&at, 100));
	result("cuCtxSynchronize", cu->context_sync());
	result("cuCtxPopCurrent", cu->context_pop(&was));
	result("cuMemCreate", cu->vmm_create(&handle, n, &what, 0));
	result("cuMemAddressReserve", cu->vmm_reserve(&at, n, 0, 0, 0));
	result("cuMemMap", cu->vmm_map(at, n, 0, handle, 0));
	result("cuMemSetAccess", cu->vmm_access(at, n, &both_ways, 1));
	result("cuMemUnmap", cu->vmm_unmap(at, n));
}

/* ---- VMM ------------------------------------------------------------------------------------- */

/* Two allocations side by side, and room for a third. */
static void vmm_exportable(void)
{
	size_t n = piece_bytes();
	uint64_t at = reserved(3 * n), handle = 0, start;
	struct wbcu_allocation is = {0}, what = described(WBCU_HANDLE_FD);
	size_t least = 0;
	struct wbcu_ipc ipc;
	int fd = -1;

	must("cuMemGetAllocationGranularity", cu->vmm_granularity(&least, &what, 0));
	yes("the granularity is a power of two", least && !(least & (least - 1)));
	yes("and 2 MiB or more", least >= 2 * MIB);
	yes("addresses are aligned to it", at % n == 0);
	map_at(at, n, WBCU_HANDLE_FD);
	map_at(at + n, n, WBCU_HANDLE_FD);
	type_of(at + 2 * n - 1);
	number_of("it is IPC capable", at, WBCU_POINTER_IS_IPC_CAPABLE);
	number_of("its handle types", at, WBCU_POINTER_HANDLE_TYPES);
	range_of(at + n + 100, at, 3 * n);
	block_of(at + n + 100, at + n, n);
	result("an IPC handle of it", cu->ipc_export(&ipc, at));
	result("freeing it as if it were legacy", cu->mem_free(at));
	result("its handle, by an address inside",
		cu->vmm_retain(&handle, (void *)(uintptr_t)(at + n + 100)));
	result("what the handle is of", cu->vmm_describe(&is, handle));
	yes("that is the first device",
		is.location.type == WBCU_LOCATION_DEVICE && is.location.id == 0);
	yes("and a descriptor", is.handle_types == WBCU_HANDLE_FD);
	result("exporting it", cu->vmm_export(&fd, handle, WBCU_HANDLE_FD, 0));
	yes("the descriptor closes on exec", fcntl(fd, F_GETFD) & FD_CLOEXEC);
	result("releasing the handle", cu->vmm_release(handle));
	write_all(at, 5, 2 * n);
	say("bytes across both", "%d, %d", byte_at(at + n - 1), byte_at(at + n));
	name = "vmm, reserved and not mapped";
	type_of(at + 2 * n);
	result("its handle", cu->vmm_retain(&handle, (void *)(uintptr_t)(at + 2 * n)));
	result("cuMemGetAddressRange", cu->mem_range(&start, &n, at + 2 * n));
}

static void vmm_private(void)
{
	size_t n = piece_bytes();
	uint64_t at = reserved(n), handle = 0;
	int fd = -1;

	map_at(at, n, 0);
	type_of(at);
	number_of("it is IPC capable", at, WBCU_POINTER_IS_IPC_CAPABLE);
	number_of("its handle types", at, WBCU_POINTER_HANDLE_TYPES);
	result("its handle", cu->vmm_retain(&handle, (void *)(uintptr_t)at));
	result("exporting it", cu->vmm_export(&fd, handle, WBCU_HANDLE_FD, 0));
}

static void vmm_mapping(void)
{
	size_t n = piece_bytes();
	uint64_t at = reserved(4 * n), handle = created(2 * n, WBCU_HANDLE_FD), other;
	struct wbcu_allocation what = described(WBCU_HANDLE_FD);

	refused("an allocation of an odd size", cu->vmm_create(&other, n + 4096, &what, 0));
	refused("addresses of an odd size", cu->vmm_reserve(&other, n + 100, 0, 0, 0));
	result("mapping from an offset", cu->vmm_map(at, n, n, handle, 0));
	result("mapping less than all of it", cu->vmm_map(at, n, 0, handle, 0));
	(void)cu->vmm_unmap(at, n);
	result("mapping more than there is", cu->vmm_map(at, 3 * n, 0, handle, 0));
	result("mapping at an odd address", cu->vmm_map(at + 4096, 2 * n, 0, handle, 0));
	result("mapping what is not reserved", cu->vmm_map(at + 4 * n, 2 * n, 0, handle, 0));
	result("mapping all of it", cu->vmm_map(at, 2 * n, 0, handle, 0));
	refused("mapping over it", cu->vmm_map(at + n, 2 * n, 0, handle, 0));
	result("mapping it twice", cu->vmm_map(at + 2 * n, 2 * n, 0, handle, 0));
	result("access to a part of a mapping", cu->vmm_access(at, n, &both_ways, 1));
	result("access to two mappings at once", cu->vmm_access(at, 4 * n, &both_ways, 1));
	write_all(at, 3, 2 * n);
	say("a byte at the second address", "%d", byte_at(at + 2 * n));
	refused("freeing addresses in use", cu->vmm_unreserve(at, 4 * n));
	result("unmapping a part", cu->vmm_unmap(at, n));
	result("unmapping both at once", cu->vmm_unmap(at, 4 * n));
	result("unmapping again", cu->vmm_unmap(at, 4 * n));
	result("access to what is not mapped", cu->vmm_access(at, n, &both_ways, 1));
	result("mapping it once more", cu->vmm_map(at, 2 * n, 0, handle, 0));
	result("releasing the handle", cu->vmm_release(handle));
	result("access to it", cu->vmm_access(at, 2 * n, &both_ways, 1));
	say("the byte is there still", "%d", byte_at(at));
	result("unmapping it", cu->vmm_unmap(at, 2 * n));
	refused("freeing a part of the addresses", cu->vmm_unreserve(at, n));
	result("freeing the addresses", cu->vmm_unreserve(at, 4 * n));
	refused("freeing them again", cu->vmm_unreserve(at, 4 * n));
}

static void vmm_strange_descriptors(void)
{
	uint64_t handle;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), memfd = memfd_create("x", MFD_CLOEXEC);

	must_be("descriptors", null >= 0 && memfd >= 0 && !ftruncate(memfd, 4096));
	refused("importing /dev/null",
		cu->vmm_import(&handle, (void *)(intptr_t)null, WBCU_HANDLE_FD));
	refused("importing memory of the host",
		cu->vmm_import(&handle, (void *)(intptr_t)memfd, WBCU_HANDLE_FD));
	close(memfd);
	refused("importing a closed one",
		cu->vmm_import(&handle, (void *)(intptr_t)memfd, WBCU_HANDLE_FD));
	result("the device afterwards", cu->context_sync());
}

/* Whether there are any is the machine's affair. */
static void dmabuf(void)
{
	size_t n = piece_bytes();
	uint64_t at = reserved(n);
	int has = 0, fd = -1, rc;
	struct stat st = {0};

	map_at(at, n, WBCU_HANDLE_FD);
	must("cuDeviceGetAttribute", cu->device_attribute(&has, WBCU_DEVICE_HAS_DMABUF, 0));
	rc = cu->range_export(&fd, at + 64 * KIB, 128 * KIB, WBCU_RANGE_DMABUF, 0);
	yes("a range as the attribute says", !rc == !!has);
	rc = rc ? 0 : fstat(fd, &st);
	yes("and as long as asked", !has || (!rc && st.st_size == (off_t)(128 * KIB)));
	refused("an odd address", cu->range_export(&fd, at + 100, 64 * KIB, WBCU_RANGE_DMABUF, 0));
	refused("an odd size", cu->range_export(&fd, at, 64 * KIB + 100, WBCU_RANGE_DMABUF, 0));
	refused("no bytes", cu->range_export(&fd, at, 0, WBCU_RANGE_DMABUF, 0));
	refused("more than there is", cu->range_export(&fd, at, 2 * n, WBCU_RANGE_DMABUF, 0));
}

/* ---- memory that may not be touched ---------------------------------------------------------- */

/* By a copy or a fill, one a situation: it may lose the device. */
static void touch(uint64_t at, size_t bytes)
{
	uint64_t other;

	result("filling it", cu->fill(at, 1, bytes, NULL));
	result("the end of that", cu->stream_sync(NULL));
	result("cuMemAlloc afterwards", cu->mem_alloc(&other, 100));
}

static void touch_without_access(void)
{
	size_t n = piece_bytes();
	uint64_t at = reserved(n), handle = created(n, 0);

	must("cuMemMap", cu->vmm_map(at, n, 0, handle, 0));
	touch(at, 100);
}

static void touch_not_mapped(void)
{
	touch(reserved(piece_bytes()), 100);
}

static void touch_across_the_end(void)
{
	size_t n = piece_bytes();
	uint64_t at = reserved(2 * n);

	map_at(at, n, 0);
	touch(at + n - 100, 101);
}

static void touch_beyond_legacy(void)
{
	size_t n = 4 * MIB;

	touch(legacy(n) + n - 100, 101);
}

static void touch_freed(void)
{
	uint64_t at = legacy(4 * MIB);

	must("cuMemFree", cu->mem_free(at));
	touch(at, 100);
}

static void copy_without_access(void)
{
	size_t n = piece_bytes();
	uint64_t at = reserved(n), handle = created(n, 0), other;
	char c[100] = "";

	must("cuMemMap", cu->vmm_map(at, n, 0, handle, 0));
	result("copying to it", cu->copy_in(at, c, sizeof(c), NULL));
	result("the end of that", cu->stream_sync(NULL));
	result("cuMemAlloc afterwards", cu->mem_alloc(&other, 100));
}

const struct situation of_memory[] = {
	{"a thread without a context", without_a_context},
	{"legacy memory, large", legacy_large},
	{"legacy memory, small", legacy_small},
	{"legacy memory, two side by side", legacy_neighbours},
	{"host memory, pinned", host_memory},
	{"vmm, exportable", vmm_exportable},
	{"vmm, private", vmm_private},
	{"vmm, mapping", vmm_mapping},
	{"vmm, strange descriptors", vmm_strange_descriptors},
	{"dma-buf", dmabuf},
	{"memory without access", touch_without_access},
	{"memory without access, copied to", copy_without_access},
	{"memory that is not mapped", touch_not_mapped},
	{"memory across the end of a mapping", touch_across_the_end},
	{"memory beyond an allocation", touch_beyond_legacy},
	{"memory that was freed", touch_freed},
	{NULL, NULL},
};
