/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answers [SITUATION...]   What a CUDA driver says in the situations that we rely on.
 *
 * One line an answer, "situation: question: answer", without addresses, sizes or names of devices,
 * so that all drivers print the same; answers.txt holds what a driver printed.  The stand-in
 * (tests/cuda/driver) and drivers have to agree: nothing here knows which of them it is.  What
 * drivers may do one way or the other is not asked.
 *
 * Each situation has a process of its own, several run at a time: one that ends by a signal, waits
 * for ever or loses its device costs the lines that it had yet to print, and one of "ended by
 * signal N" is printed instead.  Exit status: 0, whatever the answers; 77 no GPU.
 */
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "mem/cuda.h"

#define PATIENCE_S 15
#define AT_A_TIME 4
#define SOCKET 3 /* of a peer, to who started it */
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct wbcu *cu;
static const char *name; /* of the situation */

/* ---- saying ---------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void say(const char *what, const char *format, ...)
{
	va_list ap;

	printf("%s: %s: ", name, what);
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout); /* what comes next may end the process */
}

static void result(const char *what, int rc)
{
	const char *text = NULL, *prefix = "CUDA_ERROR_";

	if (!rc) {
		say(what, "SUCCESS");
		return;
	}
	if (cu->error_name(rc, &text) || !text) {
		say(what, "%d", rc);
		return;
	}
	say(what, "%s", strncmp(text, prefix, strlen(prefix)) ? text : text + strlen(prefix));
}

/* For what is refused in words that differ between drivers. */
static void refused(const char *what, int rc)
{
	say(what, "%s", rc ? "refused" : "SUCCESS");
}

static void yes(const char *what, bool is)
{
	say(what, "%s", is ? "yes" : "no");
}

/* What a situation needs before its questions: without, it has no more to say. */
static void must(const char *what, int rc)
{
	if (!rc)
		return;
	result(what, rc);
	exit(0);
}

static void must_be(const char *what, bool is)
{
	if (is)
		return;
	say(what, "%s", strerror(errno));
	exit(0);
}

/* ---- a device -------------------------------------------------------------------------------- */

static void begin(void)
{
	void *context;

	if (wbcu_load(&cu, NULL))
		must("cuInit", cu->init(0));
	must("cuDevicePrimaryCtxRetain", cu->context_retain(&context, 0));
	must("cuCtxPushCurrent", cu->context_push(context));
}

static struct wbcu_allocation described(int handle_types)
{
	return (struct wbcu_allocation){.type = WBCU_ALLOCATION_PINNED,
		.handle_types = handle_types,
		.location = {WBCU_LOCATION_DEVICE, 0}};
}

static const struct wbcu_access both_ways = {{WBCU_LOCATION_DEVICE, 0}, WBCU_ACCESS_READWRITE};

/* Two pieces as large as the driver deals in: the least whose parts can be told apart. */
static size_t piece_bytes(void)
{
	struct wbcu_allocation what = described(WBCU_HANDLE_FD);
	size_t n = 0;

	must("cuMemGetAllocationGranularity", cu->vmm_granularity(&n, &what, 0));
	return n < 2 * MIB ? 2 * MIB : n;
}

static uint64_t legacy(size_t bytes)
{
	uint64_t addr;

	must("cuMemAlloc", cu->mem_alloc(&addr, bytes));
	return addr;
}

static uint64_t created(size_t bytes, int handle_types)
{
	struct wbcu_allocation what = described(handle_types);
	uint64_t handle;

	must("cuMemCreate", cu->vmm_create(&handle, bytes, &what, 0));
	return handle;
}

static uint64_t reserved(size_t bytes)
{
	uint64_t addr;

	must("cuMemAddressReserve", cu->vmm_reserve(&addr, bytes, 0, 0, 0));
	return addr;
}

/* An allocation at @addr, in a reservation; its handle is released. */
static void map_at(uint64_t addr, size_t bytes, int handle_types)
{
	uint64_t handle = created(bytes, handle_types);

	must("cuMemMap", cu->vmm_map(addr, bytes, 0, handle, 0));
	must("cuMemSetAccess", cu->vmm_access(addr, bytes, &both_ways, 1));
	must("cuMemRelease", cu->vmm_release(handle));
}

static void write_all(uint64_t addr, uint8_t value, size_t bytes)
{
	must("cuMemsetD8Async", cu->fill(addr, value, bytes, NULL));
	must("cuStreamSynchronize", cu->stream_sync(NULL));
}

/* The byte at @addr; -1 = it cannot be read. */
static int byte_at(uint64_t addr)
{
	uint8_t b = 0;

	if (cu->copy_out(&b, addr, 1, NULL) || cu->stream_sync(NULL))
		return -1;
	return b;
}

/* ---- what a pointer is ----------------------------------------------------------------------- */

static void type_of(uint64_t addr)
{
	static const char *const types[] = {"none", "host", "device"};
	unsigned type = 77;
	int device = 77, what[] = {WBCU_POINTER_MEMORY_TYPE, WBCU_POINTER_DEVICE};
	void *to[] = {&type, &device};
	int rc = cu->pointer_attribute(&type, WBCU_POINTER_MEMORY_TYPE, addr);

	if (rc)
		result("its memory type", rc);
	else
		say("its memory type", "%s", type < COUNT(types) ? types[type] : "another");
	type = 77;
	rc = cu->pointer_attributes(2, what, to, addr);
	if (rc)
		result("its memory type, asked with others", rc);
	else
		say("its memory type, asked with others", "%s",
			type < COUNT(types) ? types[type] : "another");
	if (!rc && type == WBCU_MEMORY_DEVICE)
		yes("it is of the first device", device == 0);
}

static void number_of(const char *what, uint64_t addr, int attribute)
{
	uint64_t n = 0; /* of an int, or 8 bytes */
	int rc = cu->pointer_attribute(&n, attribute, addr);

	if (rc)
		result(what, rc);
	else
		say(what, "%d", (int)n);
}

static void same_place(const char *what, int rc, uint64_t is, uint64_t want)
{
	if (rc)
		result(what, rc);
	else
		say(what, "%s", is == want ? "as expected" : is < want ? "before" : "behind");
}

static void same_size(const char *what, int rc, size_t is, size_t want)
{
	if (rc)
		result(what, rc);
	else
		say(what, "%s", is == want ? "as expected" : is < want ? "less" : "more");
}

/* Of an address: which range it is in. */
static void range_of(uint64_t addr, uint64_t start, size_t bytes)
{
	uint64_t is = 0;
	size_t n = 0;
	int rc = cu->pointer_attribute(&is, WBCU_POINTER_RANGE_START, addr);

	same_place("the start of its range", rc, is, start);
	rc = cu->pointer_attribute(&n, WBCU_POINTER_RANGE_BYTES, addr);
	same_size("the bytes of its range", rc, n, bytes);
}

static void block_of(uint64_t addr, uint64_t start, size_t bytes)
{
	uint64_t is = 0;
	size_t n = 0;
	int rc = cu->pointer_attribute(&is, WBCU_POINTER_BLOCK_START, addr);

	same_place("the start of its mapping", rc, is, start);
	rc = cu->pointer_attribute(&n, WBCU_POINTER_BLOCK_BYTES, addr);
	same_size("the bytes of its mapping", rc, n, bytes);
	rc = cu->mem_range(&is, &n, addr);
	same_place("cuMemGetAddressRange, start", rc, is, start);
	same_size("cuMemGetAddressRange, bytes", rc, n, bytes);
}

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
	size_t n = 0;
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
	result("no bytes at all", cu->mem_alloc(&first, 0));
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
	struct wbcu_allocation is = {0};
	struct wbcu_ipc ipc;
	int fd = -1;

	yes("the granularity is a power of two", !(n & (n - 1)));
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

/* ---- other processes ------------------------------------------------------------------------- */

/*
 * A peer has memory and does what it is told over the socket, a letter each: 'r' tell the byte at
 * its start, 'f' let go of it.  It never prints, and ends when the socket does.
 */
struct note {
	struct wbcu_ipc ipc;
	uint64_t bytes;
	int rc, n; /* of a peer that only looks: cuInit's result, and devices */
};

struct peer {
	pid_t pid;
	int sock, fd; /* fd: a descriptor that came with the note */
	struct note note;
};

static void send_note(const struct note *note, int fd)
{
	char room[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec v = {(void *)(uintptr_t)note, sizeof(*note)};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	struct cmsghdr *h;

	if (fd >= 0) {
		m.msg_control = room;
		m.msg_controllen = sizeof(room);
		h = CMSG_FIRSTHDR(&m);
		*h = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(h), &fd, sizeof(fd));
	}
	if (sendmsg(SOCKET, &m, MSG_NOSIGNAL) != (ssize_t)sizeof(*note))
		exit(1);
}

static bool receive_note(struct peer *p)
{
	char room[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec v = {&p->note, sizeof(p->note)};
	struct msghdr m = {.msg_iov = &v,
		.msg_iovlen = 1,
		.msg_control = room,
		.msg_controllen = sizeof(room)};

	p->fd = -1;
	if (recvmsg(p->sock, &m, MSG_WAITALL | MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(p->note))
		return false;
	if (CMSG_FIRSTHDR(&m))
		memcpy(&p->fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
	return true;
}

/* This program once more, in @role; with CUDA_VISIBLE_DEVICES as @visible when that is given. */
static void peer_start(struct peer *p, const char *role, const char *visible)
{
	int pair[2];

	must_be("socketpair", !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
	p->sock = pair[0];
	p->pid = fork();
	must_be("fork", p->pid >= 0);
	if (!p->pid) {
		alarm(PATIENCE_S);
		if (visible)
			setenv("CUDA_VISIBLE_DEVICES", visible, 1);
		if (pair[1] == SOCKET)
			fcntl(SOCKET, F_SETFD, 0);
		else
			dup2(pair[1], SOCKET);
		execl("/proc/self/exe", "answers", "peer", role, (char *)NULL);
		_exit(127);
	}
	close(pair[1]);
	errno = ECONNRESET;
	must_be(role, receive_note(p));
}

static int peer_ask(const struct peer *p, char what)
{
	uint8_t reply = 0;

	if (write(p->sock, &what, 1) != 1 || read(p->sock, &reply, 1) != 1)
		return -1;
	return reply;
}

static void peer_kill(struct peer *p)
{
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	close(p->sock);
}

static void serve(uint64_t addr, void (*let_go)(uint64_t))
{
	uint8_t reply = 0;
	char what;

	while (read(SOCKET, &what, 1) == 1) {
		if (what == 'r')
			reply = (uint8_t)byte_at(addr);
		else
			let_go(addr);
		if (write(SOCKET, &reply, 1) != 1)
			break;
	}
}

static void free_legacy(uint64_t addr)
{
	must("cuMemFree", cu->mem_free(addr));
}

static void have_legacy(size_t bytes)
{
	struct note note = {.bytes = bytes};
	uint64_t before = legacy(1000), addr = legacy(bytes), behind = legacy(1000);

	write_all(before, 10, 1000);
	write_all(behind, 12, 1000);
	write_all(addr, 11, bytes);
	must("cuIpcGetMemHandle", cu->ipc_export(&note.ipc, addr));
	send_note(&note, -1);
	serve(addr, free_legacy);
}

static size_t piece;

static void free_vmm(uint64_t addr)
{
	must("cuMemUnmap", cu->vmm_unmap(addr, piece));
	must("cuMemAddressFree", cu->vmm_unreserve(addr, piece));
}

static void have_vmm(void)
{
	struct note note = {.bytes = piece_bytes()};
	uint64_t addr = reserved(note.bytes), handle;
	int fd;

	piece = note.bytes;
	map_at(addr, piece, WBCU_HANDLE_FD);
	write_all(addr, 11, piece);
	must("cuMemRetainAllocationHandle", cu->vmm_retain(&handle, (void *)(uintptr_t)addr));
	must("cuMemExportToShareableHandle", cu->vmm_export(&fd, handle, WBCU_HANDLE_FD, 0));
	must("cuMemRelease", cu->vmm_release(handle));
	send_note(&note, fd);
	close(fd);
	serve(addr, free_vmm);
}

static void look(void)
{
	struct note note = {0};

	(void)wbcu_load(&cu, NULL);
	note.rc = cu->init(0);
	if (!note.rc)
		cu->device_count(&note.n);
	send_note(&note, -1);
}

static int be_peer(const char *role)
{
	name = "peer";
	if (!strcmp(role, "look")) {
		look();
		return 0;
	}
	begin();
	if (!strcmp(role, "vmm"))
		have_vmm();
	else
		have_legacy(!strcmp(role, "small") ? 1000 : 6 * MIB);
	return 0;
}

static void ipc_own(void)
{
	uint64_t addr = legacy(4 * MIB), again;
	struct wbcu_ipc ipc;

	must("cuIpcGetMemHandle", cu->ipc_export(&ipc, addr));
	result("opening it in its own process", cu->ipc_open(&again, ipc, WBCU_IPC_LAZY_PEER));
	result("closing what was not opened", cu->ipc_close(addr));
}

static void ipc_other(void)
{
	uint64_t addr = 0, again = 0, start = 0;
	struct wbcu_ipc ipc, none = {{0}};
	struct peer p;
	size_t n = 0;
	int rc;

	peer_start(&p, "legacy", NULL);
	refused("without flags", cu->ipc_open(&addr, p.note.ipc, 0));
	refused("of zeros", cu->ipc_open(&addr, none, WBCU_IPC_LAZY_PEER));
	result("opening it", cu->ipc_open(&addr, p.note.ipc, WBCU_IPC_LAZY_PEER));
	result("opening it again", cu->ipc_open(&again, p.note.ipc, WBCU_IPC_LAZY_PEER));
	yes("that is the same address", addr == again);
	rc = cu->mem_range(&start, &n, addr);
	same_place("cuMemGetAddressRange, start", rc, start, addr);
	same_size("cuMemGetAddressRange, bytes", rc, n, p.note.bytes);
	type_of(addr);
	say("its first and last byte", "%d, %d", byte_at(addr), byte_at(addr + n - 1));
	write_all(addr, 21, 100);
	say("what was written here, read there", "%d", peer_ask(&p, 'r'));
	refused("a handle of what was opened", cu->ipc_export(&ipc, addr));
	refused("freeing it", cu->mem_free(addr));
	result("closing it", cu->ipc_close(addr));
	say("its first byte after that", "%d", byte_at(addr));
	result("closing it again", cu->ipc_close(addr));
	refused("once more than opened", cu->ipc_close(addr));
	result("opening it once more", cu->ipc_open(&addr, p.note.ipc, WBCU_IPC_LAZY_PEER));
	result("and closing", cu->ipc_close(addr));
	peer_kill(&p);
	refused("opening it when its owner is dead",
		cu->ipc_open(&addr, p.note.ipc, WBCU_IPC_LAZY_PEER));
	result("the device afterwards", cu->context_sync());
}

static void ipc_small(void)
{
	struct peer p;
	uint64_t addr;

	peer_start(&p, "small", NULL);
	must("opening it", cu->ipc_open(&addr, p.note.ipc, WBCU_IPC_LAZY_PEER));
	say("the byte at the address", "%s", byte_at(addr) == 11 ? "the allocation's" : "another");
	result("closing it", cu->ipc_close(addr));
	peer_kill(&p);
}

static void ipc_freed(void)
{
	struct peer p;
	uint64_t addr;

	peer_start(&p, "legacy", NULL);
	must_be("freeing it there", peer_ask(&p, 'f') >= 0);
	refused("opening it", cu->ipc_open(&addr, p.note.ipc, WBCU_IPC_LAZY_PEER));
	peer_kill(&p);
}

/* What was imported, wherever it came from. */
static uint64_t import_and_map(const struct peer *p)
{
	uint64_t handle = 0, at = reserved(2 * p->note.bytes);
	size_t n = p->note.bytes;
	struct wbcu_allocation is = {0};

	result("importing it", cu->vmm_import(&handle, (void *)(intptr_t)p->fd, WBCU_HANDLE_FD));
	result("what the handle is of", cu->vmm_describe(&is, handle));
	yes("that is the first device",
		is.location.type == WBCU_LOCATION_DEVICE && is.location.id == 0);
	result("mapping more than there is", cu->vmm_map(at, 2 * n, 0, handle, 0));
	result("mapping it", cu->vmm_map(at, n, 0, handle, 0));
	result("access to it", cu->vmm_access(at, n, &both_ways, 1));
	result("releasing the handle", cu->vmm_release(handle));
	say("its first and last byte", "%d, %d", byte_at(at), byte_at(at + n - 1));
	return at;
}

static void vmm_other(void)
{
	uint64_t at, handle = 0;
	struct peer p;
	int fd = -1;

	peer_start(&p, "vmm", NULL);
	at = import_and_map(&p);
	type_of(at);
	number_of("its handle types", at, WBCU_POINTER_HANDLE_TYPES);
	range_of(at + 100, at, 2 * p.note.bytes);
	block_of(at + 100, at, p.note.bytes);
	result("its handle, from the address", cu->vmm_retain(&handle, (void *)(uintptr_t)at));
	result("exporting it from here", cu->vmm_export(&fd, handle, WBCU_HANDLE_FD, 0));
	write_all(at, 21, 100);
	say("what was written here, read there", "%d", peer_ask(&p, 'r'));
	say("the owner lets go", "%d", peer_ask(&p, 'f'));
	say("its byte after that", "%d", byte_at(at));
	peer_kill(&p);
	say("its byte when the owner is dead", "%d", byte_at(at));
	result("importing it once more",
		cu->vmm_import(&handle, (void *)(intptr_t)p.fd, WBCU_HANDLE_FD));
	result("unmapping it", cu->vmm_unmap(at, p.note.bytes));
}

static void vmm_freed(void)
{
	struct peer p;

	peer_start(&p, "vmm", NULL);
	must_be("freeing it there", peer_ask(&p, 'f') >= 0);
	import_and_map(&p);
	peer_kill(&p);
}

static void vmm_dead(void)
{
	struct peer p;

	peer_start(&p, "vmm", NULL);
	peer_kill(&p);
	import_and_map(&p);
}

/* ---- devices and contexts -------------------------------------------------------------------- */

static void visible(void)
{
	char full[64], part[64], strange[64];
	const struct {
		const char *what, *value;
	} views[] = {{"\"\"", ""}, {"-1", "-1"}, {"0", "0"}, {"0,-1", "0,-1"}, {"-1,0", "-1,0"},
		{"77", "77"}, {"nonsense", "nonsense"}, {"its UUID", full},
		{"the beginning of its UUID", part}, {"a UUID of none", strange}};
	struct wbcu_uuid u;
	int at = 0;

	must("cuDeviceGetUuid", cu->device_uuid(&u, 0));
	at += snprintf(full, sizeof(full), "GPU-");
	for (int i = 0; i < WBCU_UUID_BYTES; i++)
		at += snprintf(full + at, sizeof(full) - (size_t)at, "%s%02x",
			i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u.bytes[i]);
	snprintf(part, sizeof(part), "%.12s", full);
	snprintf(strange, sizeof(strange), "%.20s-0123-456789abcdef", full);
	for (size_t i = 0; i < COUNT(views); i++) {
		struct peer p;

		peer_start(&p, "look", views[i].value);
		waitpid(p.pid, NULL, 0);
		if (p.note.rc)
			result(views[i].what, p.note.rc);
		else
			say(views[i].what, "%d", p.note.n);
	}
}

static void devices(void)
{
	int n, dev;
	struct wbcu_uuid u;

	must("cuDeviceGetCount", cu->device_count(&n));
	result("cuDeviceGet of one too many", cu->device_get(&dev, n));
	result("cuDeviceGetUuid of one too many", cu->device_uuid(&u, n));
	result("cuDeviceGetAttribute of none such", cu->device_attribute(&dev, 100000, 0));
	result("cuInit with flags", cu->init(1));
	result("cuInit again", cu->init(0));
}

static void contexts(void)
{
	void *first, *again, *was = NULL;

	must("cuDevicePrimaryCtxRetain", cu->context_retain(&first, 0));
	must("cuDevicePrimaryCtxRetain", cu->context_retain(&again, 0));
	yes("retaining it again gives the same", first == again);
	result("pushing it on itself", cu->context_push(first));
	result("popping it", cu->context_pop(&was));
	yes("that is what was pushed", was == first);
	result("cuCtxSynchronize", cu->context_sync());
	result("popping the first", cu->context_pop(&was));
	result("popping none", cu->context_pop(&was));
	result("cuCtxSynchronize without one", cu->context_sync());
	while (!cu->context_pop(&was))
		;
	for (int i = 0; i < 3; i++)
		result("releasing it", cu->context_release(0));
	result("releasing it once more than retained", cu->context_release(0));
	result("retaining it anew", cu->context_retain(&first, 0));
	result("pushing that", cu->context_push(first));
	result("cuCtxSynchronize with that", cu->context_sync());
}

/* A child cannot go on with what its parent began. */
static void forked(void)
{
	uint64_t addr = legacy(100), at;
	int n, rc[5], pipes[2];
	pid_t pid;
	unsigned type;

	must_be("pipe", !pipe(pipes));
	pid = fork();
	if (!pid) {
		alarm(PATIENCE_S / 2);
		rc[0] = cu->device_count(&n);
		rc[1] = cu->init(0);
		rc[2] = cu->mem_alloc(&at, 100);
		rc[3] = cu->context_sync();
		rc[4] = cu->pointer_attribute(&type, WBCU_POINTER_MEMORY_TYPE, addr);
		_exit(write(pipes[1], rc, sizeof(rc)) != sizeof(rc));
	}
	close(pipes[1]);
	must_be("an answer of the child", read(pipes[0], rc, sizeof(rc)) == sizeof(rc));
	waitpid(pid, NULL, 0);
	result("cuDeviceGetCount", rc[0]);
	result("cuInit", rc[1]);
	result("cuMemAlloc", rc[2]);
	result("cuCtxSynchronize", rc[3]);
	result("cuPointerGetAttribute", rc[4]);
	result("the parent afterwards", cu->context_sync());
}

/* ---- work ------------------------------------------------------------------------------------ */

/* What holds a stream until it is let go. */
static sem_t gate;

static void wait_at_gate(void *arg)
{
	(void)arg;
	while (sem_wait(&gate))
		;
}

static void *stream(unsigned flags)
{
	void *s;

	must("cuStreamCreate", cu->stream_create(&s, flags));
	return s;
}

static void *event(void)
{
	void *e;

	must("cuEventCreate", cu->event_create(&e, WBCU_EVENT_BLOCKING | WBCU_EVENT_NO_TIMING));
	return e;
}

static void events(void)
{
	void *s = stream(WBCU_STREAM_NON_BLOCKING), *t = stream(WBCU_STREAM_NON_BLOCKING);
	void *e = event(), *other = event();
	uint64_t at = legacy(MIB);

	result("asking before it is recorded", cu->event_query(e));
	result("waiting before it is recorded", cu->event_sync(e));
	result("a stream without work", cu->stream_query(s));
	sem_init(&gate, 0, 0);
	write_all(at, 0, MIB);
	must("cuLaunchHostFunc", cu->stream_call(s, wait_at_gate, NULL));
	must("cuMemsetD8Async", cu->fill(at, 1, MIB, s));
	must("cuEventRecord", cu->event_record(e, s));
	result("while work is before it", cu->event_query(e));
	result("its stream", cu->stream_query(s));
	result("recording another in an idle stream", cu->event_record(other, t));
	result("and waiting for that", cu->event_sync(other));
	result("the idle stream", cu->stream_query(t));
	result("the idle stream waits for the event", cu->stream_wait(t, e, 0));
	must("cuEventRecord", cu->event_record(other, t));
	result("what is behind that wait", cu->event_query(other));
	sem_post(&gate);
	result("waiting for what is behind it", cu->event_sync(other));
	result("the event then", cu->event_query(e));
	result("its stream then", cu->stream_sync(s));
	result("destroying the stream", cu->stream_destroy(s));
	result("the event after its stream", cu->event_query(e));
	result("destroying the event", cu->event_destroy(e));
}

static bool is_held(void *behind)
{
	return cu->event_query(behind) == WBCU_NOT_READY;
}

/* Work of @second while @first is held: does it wait? */
static void order_of(const char *what, void *first, void *second)
{
	void *e = event();
	uint64_t at = legacy(MIB);
	bool waits;

	write_all(at, 0, MIB); /* what a driver does at a first fill may wait for all streams */
	must("cuLaunchHostFunc", cu->stream_call(first, wait_at_gate, NULL));
	must("cuMemsetD8Async", cu->fill(at, 1, MIB, second));
	must("cuEventRecord", cu->event_record(e, second));
	/* What does not wait is over soon, and who waits for it sees that. */
	for (int i = 0; i < 100 && is_held(e); i++)
		usleep(1000);
	waits = is_held(e);
	sem_post(&gate);
	must("cuCtxSynchronize", cu->context_sync());
	say(what, "%s", waits ? "waits" : "does not wait");
	cu->event_destroy(e);
	cu->mem_free(at);
}

static void orders(void)
{
	void *blocking = stream(0), *other = stream(0),
	     *free_one = stream(WBCU_STREAM_NON_BLOCKING);

	sem_init(&gate, 0, 0);
	order_of("the legacy stream behind a blocking one", blocking, NULL);
	order_of("a blocking stream behind the legacy one", NULL, blocking);
	order_of("a blocking stream behind another", blocking, other);
	order_of("the legacy stream behind a non-blocking one", free_one, NULL);
	order_of("a non-blocking stream behind the legacy one", NULL, free_one);
	order_of("a stream behind itself", free_one, free_one);
}

/* Copies of memory that is not pinned: who queued them may use it when the call returns. */
static void pageable(void)
{
	size_t bytes = 8 * MIB;
	void *s = stream(WBCU_STREAM_NON_BLOCKING);
	uint64_t at = legacy(bytes);
	uint8_t *in = malloc(bytes), *out = malloc(bytes);
	bool is_same = true;

	must_be("malloc", in && out);
	memset(in, 1, bytes);
	memset(out, 0, bytes);
	for (int i = 0; i < 20; i++)
		must("cuMemsetD8Async", cu->fill(at, 9, bytes, s));
	result("copying in", cu->copy_in(at, in, bytes, s));
	memset(in, 2, bytes);
	result("copying out", cu->copy_out(out, at, bytes, s));
	is_same = !memchr(out, 0, bytes);
	yes("what is copied out is there when the call returns", is_same);
	for (size_t i = 0; i < bytes; i++)
		is_same &= out[i] == 1;
	yes("what is copied in is as it was at the call", is_same);
	must("cuStreamSynchronize", cu->stream_sync(s));
	result("copying nothing", cu->copy_in(at, in, 0, s));
	result("filling nothing", cu->fill(at, 1, 0, s));
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* Stores 7 at an address. */
static const char ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
			  ".visible .entry answers_store(.param .u64 p)\n{\n"
			  ".reg .u64 %rd<2>;\n.reg .u32 %r<2>;\n"
			  "ld.param.u64 %rd1, [p];\nmov.u32 %r1, 7;\n"
			  "st.global.u32 [%rd1], %r1;\nret;\n}\n";
/* As of a build without a CUDA compiler (agent/lane/gpu.c). */
static const uint32_t no_code[4] = {0xBA55ED50u, 0x00100001u, 0, 0};

static int store(void *fn, uint64_t at, unsigned grid, unsigned block)
{
	void *args[] = {&at};

	return cu->launch(fn, grid, 1, 1, block, 1, 1, 0, NULL, args, NULL);
}

static void kernels(void)
{
	void *module, *fn;
	uint64_t at = legacy(4 * KIB);

	result("an image of nonsense", cu->module_load(&module, "nonsense\n"));
	result("an image without code", cu->module_load(&module, no_code));
	must("an image in PTX", cu->module_load(&module, ptx));
	result("a function that it lacks", cu->module_function(&fn, module, "nothing"));
	must("a function that it has", cu->module_function(&fn, module, "answers_store"));
	write_all(at, 0, 4 * KIB);
	result("a launch", store(fn, at, 1, 32));
	result("its end", cu->context_sync());
	say("what it stored", "%d", byte_at(at));
	result("a launch of no blocks", store(fn, at, 0, 32));
	result("a launch of no threads", store(fn, at, 1, 0));
	result("a launch of too many threads", store(fn, at, 1, 2048));
	result("unloading the module", cu->module_unload(module));
}

/* A context that failed: what says so? */
static void after_a_fault(uint64_t addr, void *s, void *e)
{
	unsigned type;
	uint64_t at;
	size_t n;
	void *was, *again;
	char c;

	result("cuMemAlloc", cu->mem_alloc(&at, 100));
	result("cuStreamQuery", cu->stream_query(s));
	result("cuEventQuery", cu->event_query(e));
	result("cuEventRecord", cu->event_record(e, s));
	result("cuMemcpyDtoHAsync", cu->copy_out(&c, addr, 1, s));
	result("cuMemsetD8Async", cu->fill(addr, 0, 100, s));
	result("cuStreamCreate", cu->stream_create(&again, WBCU_STREAM_NON_BLOCKING));
	result("cuPointerGetAttribute",
		cu->pointer_attribute(&type, WBCU_POINTER_MEMORY_TYPE, addr));
	result("cuMemGetInfo", cu->mem_info(&n, &n));
	result("cuMemFree", cu->mem_free(addr));
	result("cuDevicePrimaryCtxRetain", cu->context_retain(&again, 0));
	result("cuCtxPopCurrent", cu->context_pop(&was));
	result("cuCtxPushCurrent", cu->context_push(was));
	result("cuCtxSynchronize", cu->context_sync());
	result("cuDevicePrimaryCtxRelease", cu->context_release(0));
}

static void fault_of_a_kernel(void)
{
	void *module, *fn, *s = stream(WBCU_STREAM_NON_BLOCKING), *e = event();
	uint64_t addr = legacy(100);

	must("an image in PTX", cu->module_load(&module, ptx));
	must("a function that it has", cu->module_function(&fn, module, "answers_store"));
	result("a launch that stores at an address of nobody", store(fn, 4096, 1, 32));
	result("its end", cu->context_sync());
	after_a_fault(addr, s, e);
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

/* ---- all of them ----------------------------------------------------------------------------- */

static const struct situation {
	const char *name;
	void (*run)(void);
} situations[] = {
	{"devices", devices},
	{"CUDA_VISIBLE_DEVICES", visible},
	{"contexts", contexts},
	{"a thread without a context", without_a_context},
	{"a forked child", forked},
	{"legacy memory, large", legacy_large},
	{"legacy memory, small", legacy_small},
	{"host memory, pinned", host_memory},
	{"vmm, exportable", vmm_exportable},
	{"vmm, private", vmm_private},
	{"vmm, mapping", vmm_mapping},
	{"vmm, strange descriptors", vmm_strange_descriptors},
	{"dma-buf", dmabuf},
	{"an IPC handle, own", ipc_own},
	{"an IPC handle, of another process", ipc_other},
	{"an IPC handle, of a small allocation", ipc_small},
	{"an IPC handle, of memory that was freed", ipc_freed},
	{"a descriptor, of another process", vmm_other},
	{"a descriptor, of memory that its owner let go", vmm_freed},
	{"a descriptor, of a process that is dead", vmm_dead},
	{"events", events},
	{"orders of streams", orders},
	{"pageable memory", pageable},
	{"kernels", kernels},
	{"a fault of a kernel", fault_of_a_kernel},
	{"memory without access", touch_without_access},
	{"memory without access, copied to", copy_without_access},
	{"memory that is not mapped", touch_not_mapped},
	{"memory across the end of a mapping", touch_across_the_end},
	{"memory beyond an allocation", touch_beyond_legacy},
	{"memory that was freed", touch_freed},
};

static int be_situation(const char *which)
{
	for (size_t i = 0; i < COUNT(situations); i++) {
		if (strcmp(situations[i].name, which) != 0)
			continue;
		name = which;
		begin();
		situations[i].run();
		return 0;
	}
	fprintf(stderr, "answers: no situation \"%s\"\n", which);
	return 2;
}

struct job {
	pid_t pid; /* 0 = not under way */
	int out, status;
	bool is_over;
};

static void job_start(struct job *j, const char *which)
{
	j->out = memfd_create("answers", MFD_CLOEXEC);
	j->pid = j->out < 0 ? -1 : fork();
	if (j->pid < 0) {
		perror("answers");
		exit(2);
	}
	if (j->pid)
		return;
	alarm(PATIENCE_S);
	dup2(j->out, STDOUT_FILENO);
	execl("/proc/self/exe", "answers", "situation", which, (char *)NULL);
	_exit(127);
}

static void job_print(struct job *j, const char *which)
{
	char buf[4096];
	ssize_t n;

	fflush(stdout);
	lseek(j->out, 0, SEEK_SET);
	while ((n = read(j->out, buf, sizeof(buf))) > 0)
		if (write(STDOUT_FILENO, buf, (size_t)n) != n)
			exit(2);
	close(j->out);
	if (WIFSIGNALED(j->status))
		printf("%s: ended by signal %d\n", which, WTERMSIG(j->status));
	else if (WEXITSTATUS(j->status))
		printf("%s: ended with status %d\n", which, WEXITSTATUS(j->status));
}

static bool is_wanted(const char *which, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], which))
			return true;
	return argc < 2;
}

static void job_reap(struct job *jobs, size_t n)
{
	int status;
	pid_t pid = wait(&status);

	for (size_t i = 0; i < n; i++)
		if (pid > 0 && jobs[i].pid == pid) {
			jobs[i].status = status;
			jobs[i].is_over = true;
		}
}

int main(int argc, char **argv)
{
	struct job jobs[COUNT(situations)] = {0};
	size_t printed = 0, started = 0, over;
	struct wb_err err = {0};

	if (argc == 3 && !strcmp(argv[1], "peer"))
		return be_peer(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "situation"))
		return be_situation(argv[2]);
	if (wbcu_load(&cu, &err)) {
		printf("%s\n", err.msg);
		return 77;
	}
	while (printed < COUNT(situations)) {
		for (over = 0; over < started && jobs[over].is_over; over++)
			;
		for (; printed < over; printed++)
			if (jobs[printed].pid)
				job_print(&jobs[printed], situations[printed].name);
		if (started < COUNT(situations) && started < printed + AT_A_TIME) {
			if (is_wanted(situations[started].name, argc, argv))
				job_start(&jobs[started], situations[started].name);
			else
				jobs[started].is_over = true;
			started++;
		} else if (printed < COUNT(situations)) {
			job_reap(jobs, started);
		}
	}
	return 0;
}
