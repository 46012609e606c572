/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver without devices promises (tests/cuda/driver/fakecuda.h); WB_GPU=device: of that,
 * what the machine's driver keeps as well. */
#include "base/base.h"
#include "base/err.h"
#include "base/hash.h"
#include "kernels/gpu.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_cuda.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define BLOCK (2 * MIB)

/* ---- devices --------------------------------------------------------------------------------- */

static const struct {
	const char *visible;
	int n;
	uint8_t last[2]; /* byte of the UUID of device 0 and 1 */
} views[] = {
	{NULL, 2, {0, 1}}, {"0", 1, {0}}, {"1", 1, {1}}, {"1,0", 2, {1, 0}},
	{"GPU-66616b65-6375-6461-0000-000000000001", 1, {1}},
	{"1,7,0", 1, {1}}, /* what is unknown ends the list */
};

static const char *view_needs(int row)
{
	(void)row;
	return "the stand-in's two devices (tests/cuda/answers.c asks a driver)";
}

START_TEST(a_device_keeps_its_uuid_whatever_number_it_has)
{
	const struct wbcu *cu;
	struct wbcu_uuid u;
	int n, dev;

	if (views[_i].visible)
		setenv("CUDA_VISIBLE_DEVICES", views[_i].visible, 1);
	fx_cuda();
	ck_assert_int_eq(wbcu_load(&cu, NULL), 0);
	ck_assert_int_eq(cu->device_count(&n), 0);
	ck_assert_int_eq(n, views[_i].n);
	for (int i = 0; i < n; i++) {
		ck_assert_int_eq(cu->device_get(&dev, i), 0);
		ck_assert_int_eq(cu->device_uuid(&u, dev), 0);
		ck_assert(!memcmp(u.bytes, "fakecuda", 8) && u.bytes[15] == views[_i].last[i]);
	}
	ck_assert_int_eq(cu->device_get(&dev, n), WBCU_INVALID_DEVICE);
}
END_TEST

START_TEST(nothing_to_see_is_one_sentence)
{
	const struct wbcu *cu;
	struct wb_err err = {0};

	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	fx_cuda();
	ck_assert_int_eq(wbcu_load(&cu, &err), -ENOTSUP);
	ck_assert_msg(strstr(err.msg, "(100)") != NULL, "%s", err.msg);
}
END_TEST

START_TEST(a_forked_child_cannot_go_on)
{
	const struct wbcu *cu = fx_cuda_driver(0);
	int status, n;
	pid_t pid = fork();

	if (!pid)
		_exit(cu->device_count(&n) == WBCU_NOT_INITIALIZED ? 0 : 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* ---- memory ---------------------------------------------------------------------------------- */

START_TEST(memory_of_a_device_is_not_the_hosts)
{
	const struct wbcu *cu = fx_cuda_driver(0);
	uint64_t addr;

	ck_assert_int_eq(cu->mem_alloc(&addr, 100), 0);
	signal(SIGSEGV, SIG_DFL);
	*(volatile char *)(uintptr_t)addr = 1;
}
END_TEST

START_TEST(what_is_copied_in_comes_out)
{
	const struct wbcu *cu = fx_cuda_driver(0);
	char in[3000], out[3000], same[3000];
	uint64_t a, b;

	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (char)(i * 7);
	ck_assert_int_eq(cu->mem_alloc(&a, sizeof(in)), 0);
	b = fx_cuda_vmm(0, BLOCK, false);
	fx_cuda_write(a, in, sizeof(in));
	ck_assert_int_eq(cu->copy_on(b + 5, a, sizeof(in), NULL), 0);
	fx_cuda_read(out, b + 5, sizeof(out));
	ck_assert(!memcmp(in, out, sizeof(in)));
	memset(same, 0x55, sizeof(same));
	ck_assert_int_eq(cu->fill(b, 0x55, sizeof(same), NULL), 0);
	fx_cuda_read(out, b, sizeof(out));
	ck_assert(!memcmp(same, out, sizeof(same)));
	fx_cuda_vmm_free(b, BLOCK);
	ck_assert_int_eq(cu->mem_free(a), 0);
	ck_assert_int_eq(cu->mem_free(a), WBCU_INVALID_VALUE);
}
END_TEST

START_TEST(a_copy_beyond_memory_is_refused)
{
	const struct wbcu *cu = fx_cuda_driver(0);
	uint64_t a = fx_cuda_vmm(0, BLOCK, false);
	char host[11] = "";

	ck_assert_int_eq(cu->fill(a + BLOCK - 10, 0, 11, NULL), WBCU_INVALID_VALUE);
	ck_assert_int_eq(cu->copy_in(a + BLOCK - 10, host, 11, NULL), WBCU_INVALID_VALUE);
	ck_assert_int_eq(cu->copy_out(host, a + BLOCK - 10, 11, NULL), WBCU_INVALID_VALUE);
	ck_assert_int_eq(cu->copy_on(a, a + BLOCK - 10, 11, NULL), WBCU_INVALID_VALUE);
	ck_assert_int_eq(cu->fill(a + BLOCK - 10, 0, 10, NULL), 0);
	ck_assert_int_eq(cu->context_sync(), 0);
}
END_TEST

START_TEST(memory_that_goes_before_its_work_loses_the_device)
{
	const struct wbcu *cu = fx_cuda_driver(0);
	uint64_t a = fx_cuda_vmm(0, BLOCK, false), b;

	fx_cuda_do("hold");
	ck_assert_int_eq(cu->fill(a, 0, 11, NULL), 0);
	fx_cuda_vmm_free(a, BLOCK);
	fx_cuda_do("go");
	ck_assert_int_eq(cu->stream_sync(NULL), WBCU_ILLEGAL_ADDRESS);
	ck_assert_int_eq(cu->mem_alloc(&b, 1), WBCU_ILLEGAL_ADDRESS); /* for good */
}
END_TEST

static size_t free_bytes(const struct wbcu *cu)
{
	size_t is, total;

	ck_assert_int_eq(cu->mem_info(&is, &total), 0);
	return is;
}

START_TEST(free_memory_returns_to_what_it_was)
{
	const struct wbcu *cu = fx_cuda_driver(0);
	size_t at_first = free_bytes(cu);
	uint64_t small, large, vmm, handle;

	ck_assert_int_eq(cu->mem_alloc(&small, 10), 0);
	ck_assert_int_eq(cu->mem_alloc(&large, 3 * MIB), 0);
	vmm = fx_cuda_vmm(0, 2 * BLOCK, true);
	ck_assert_uint_eq(at_first - free_bytes(cu), BLOCK + 2 * BLOCK + 2 * BLOCK);
	ck_assert_int_eq(cu->vmm_retain(&handle, (void *)(uintptr_t)vmm), 0);
	fx_cuda_vmm_free(vmm, 2 * BLOCK);
	ck_assert_uint_eq(at_first - free_bytes(cu), 5 * BLOCK); /* the handle holds it */
	ck_assert_int_eq(cu->vmm_release(handle), 0);
	ck_assert_int_eq(cu->mem_free(small), 0);
	ck_assert_int_eq(cu->mem_free(large), 0);
	ck_assert_uint_eq(free_bytes(cu), at_first);
}
END_TEST

START_TEST(more_than_there_is_is_out_of_memory)
{
	const struct wbcu *cu = fx_cuda_driver(0);
	uint64_t a, b;

	fx_cuda_do("memory 8388608");
	ck_assert_int_eq(cu->mem_alloc(&a, 3 * BLOCK), 0);
	ck_assert_int_eq(cu->mem_alloc(&b, BLOCK + 1), WBCU_OUT_OF_MEMORY);
	ck_assert_int_eq(cu->mem_alloc(&b, BLOCK), 0);
}
END_TEST

START_TEST(a_pointer_says_what_it_is)
{
	int number = fx_cuda_second();
	const struct wbcu *cu = fx_cuda_driver(number);
	uint64_t legacy, vmm = fx_cuda_vmm(number, 2 * BLOCK, true), base, types;
	unsigned type = 7;
	int device = -1, is_ipc = -1, which[] = {WBCU_POINTER_MEMORY_TYPE, WBCU_POINTER_DEVICE};
	void *to[] = {&type, &device};
	size_t bytes;

	ck_assert_int_eq(cu->mem_alloc(&legacy, 3 * MIB), 0);
	ck_assert_int_eq(cu->pointer_attributes(2, which, to, legacy + 5), 0);
	ck_assert(type == WBCU_MEMORY_DEVICE && device == number);
	ck_assert_int_eq(cu->pointer_attributes(2, which, to, (uintptr_t)&type), 0);
	ck_assert(type == 0);
	ck_assert_int_eq(cu->pointer_attribute(&is_ipc, WBCU_POINTER_IS_IPC_CAPABLE, legacy), 0);
	ck_assert_int_eq(is_ipc, 1);
	ck_assert_int_eq(cu->mem_range(&base, &bytes, legacy + MIB), 0);
	ck_assert(base == legacy && bytes == 3 * MIB);
	ck_assert_int_eq(cu->pointer_attribute(&is_ipc, WBCU_POINTER_IS_IPC_CAPABLE, vmm), 0);
	ck_assert_int_eq(is_ipc, 0);
	ck_assert_int_eq(cu->pointer_attribute(&types, WBCU_POINTER_HANDLE_TYPES, vmm), 0);
	ck_assert_uint_eq(types, WBCU_HANDLE_FD);
}
END_TEST

/* ---- work ------------------------------------------------------------------------------------ */

START_TEST(work_is_done_when_the_device_gets_to_it)
{
	const struct wbcu *cu = fx_cuda_driver(0);
	struct fakecuda_counts n;
	void *s, *e;
	char *pinned;
	uint64_t a;

	ck_assert_int_eq(cu->host_alloc((void **)&pinned, 10, 0), 0);
	memset(pinned, 1, 10);
	ck_assert_int_eq(cu->mem_alloc(&a, 10), 0);
	ck_assert_int_eq(cu->stream_create(&s, WBCU_STREAM_NON_BLOCKING), 0);
	ck_assert_int_eq(cu->event_create(&e, WBCU_EVENT_BLOCKING | WBCU_EVENT_NO_TIMING), 0);
	fx_cuda_do("hold");
	ck_assert_int_eq(cu->fill(a, 9, 10, s), 0);
	ck_assert_int_eq(cu->copy_out(pinned, a, 10, s), 0);
	ck_assert_int_eq(cu->event_record(e, s), 0);
	ck_assert_int_eq(cu->event_query(e), WBCU_NOT_READY);
	ck_assert_int_eq(cu->stream_query(s), WBCU_NOT_READY);
	ck_assert_int_eq(pinned[0], 1);
	fx_cuda_do("go 1");
	while (fx_cuda()->count(&n), n.queued > 2)
		;
	ck_assert_int_eq(pinned[0], 1);
	fx_cuda_do("go");
	ck_assert_int_eq(cu->event_sync(e), 0);
	ck_assert_int_eq(pinned[9], 9);
	ck_assert_int_eq(cu->event_query(e), 0);
}
END_TEST

/* Numbers of streams, as their calls came. */
static char seen[16];
static int n_seen;

static void see(void *which)
{
	seen[n_seen++] = *(char *)which;
}

static const struct {
	const char *order;
	unsigned flags; /* of the streams */
	const char *calls; /* a, b: a stream; L: the legacy one */
	const char *must, *may_not; /* orders; NULL = any */
} orders[] = {
	{"order 0", WBCU_STREAM_NON_BLOCKING, "aabb", "aabb", NULL},
	{"order 0", WBCU_STREAM_NON_BLOCKING, "abLab", "abLab", NULL},
	{"order 3", WBCU_STREAM_NON_BLOCKING, "aaaabbbb", NULL, "aaaabbbb"},
	{"order 3", WBCU_STREAM_NON_BLOCKING, "aaaabbbbLLLL", NULL, "aaaabbbbLLLL"},
	{"order 3", 0, "aaaLbbb", "aaaLbbb", NULL}, /* they wait for the legacy stream */
};

static const char *order_needs(int row)
{
	(void)row;
	return FX_HOLD;
}

START_TEST(streams_go_in_any_order_that_they_may)
{
	const struct wbcu *cu = fx_cuda_driver(0);
	static char names[] = "abL";
	const char *calls = orders[_i].calls;
	void *s[3] = {NULL, NULL, NULL};

	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(cu->stream_create(&s[i], orders[_i].flags), 0);
	fx_cuda_do(orders[_i].order);
	fx_cuda_do("hold");
	for (; *calls; calls++) {
		int at = (int)(strchr(names, *calls) - names);

		ck_assert_int_eq(cu->stream_call(s[at], see, &names[at]), 0);
	}
	fx_cuda_do("go");
	ck_assert_int_eq(cu->context_sync(), 0);
	ck_assert_int_eq(n_seen, (int)strlen(orders[_i].calls));
	if (orders[_i].must)
		ck_assert_str_eq(seen, orders[_i].must);
	if (orders[_i].may_not)
		ck_assert_str_ne(seen, orders[_i].may_not);
}
END_TEST

START_TEST(a_stream_waits_for_an_event_of_another)
{
	const struct wbcu *cu = fx_cuda_driver(0);
	static char names[] = "ab";
	void *a, *b, *e;

	ck_assert_int_eq(cu->stream_create(&a, WBCU_STREAM_NON_BLOCKING), 0);
	ck_assert_int_eq(cu->stream_create(&b, WBCU_STREAM_NON_BLOCKING), 0);
	ck_assert_int_eq(cu->event_create(&e, 0), 0);
	if (!fx_cuda_is_device())
		fx_cuda_do("late cuLaunchHostFunc 20000000 1");
	ck_assert_int_eq(cu->stream_call(a, see, &names[0]), 0); /* late */
	ck_assert_int_eq(cu->event_record(e, a), 0);
	ck_assert_int_eq(cu->stream_wait(b, e, 0), 0);
	ck_assert_int_eq(cu->stream_call(b, see, &names[1]), 0);
	ck_assert_int_eq(cu->stream_sync(b), 0);
	ck_assert_str_eq(seen, "ab");
}
END_TEST

/* ---- kernels --------------------------------------------------------------------------------- */

static void *function(const struct wbcu *cu)
{
	static const uint32_t no_code[4] = {0xBA55ED50};
	const void *image = wbk_gpu_kernel(WBK_GPU_ROWS)->image;
	void *module, *fn;

	ck_assert_int_eq(cu->module_load(&module, image ? image : no_code), 0);
	ck_assert_int_eq(cu->module_function(&fn, module, "nothing"), WBCU_NOT_FOUND);
	ck_assert_int_eq(cu->module_function(&fn, module, "wbk_gpu_rows"), 0);
	return fn;
}

START_TEST(a_kernel_reads_and_writes_memory_of_the_device)
{
	const struct wbcu *cu = fx_cuda_driver(0);
	struct wbk_op op = {.n = {1, 1, 3, 100},
		.mem_stride = {0, 0, 512, 2},
		.pos_stride = {0, 0, 200, 2},
		.wire_elem = 2,
		.mem_elem = 2};
	uint64_t dev = fx_cuda_vmm(0, BLOCK, false), table = dev + MIB;
	struct wbk_move_args a = {.n_op = 1, .way = WBK_WAY_PACK};
	uint8_t mem[3 * 512], wire[600], want[600];
	void *fn = function(cu), *args[] = {&a}, *base = (void *)(uintptr_t)dev;
	uint32_t first[WBK_MOVES * 2], bad;

	for (size_t i = 0; i < sizeof(mem); i++)
		mem[i] = (uint8_t)(i * 31);
	for (size_t i = 0; i < 3; i++)
		memcpy(want + i * 200, mem + i * 512, 200);
	ck_assert_int_eq(wbk_move_prepare(&op, 1, WBK_WAY_PACK, first, &bad), 0);
	fx_cuda_write(dev, mem, sizeof(mem));
	fx_cuda_write(table, &op, sizeof(op));
	fx_cuda_write(table + 512, first, sizeof(first));
	fx_cuda_write(table + 1024, &base, sizeof(base));
	a.op = (void *)(uintptr_t)table;
	a.first = (void *)(uintptr_t)(table + 512);
	a.bases = (void *)(uintptr_t)(table + 1024);
	a.wire = (void *)(uintptr_t)(dev + MIB / 2);
	ck_assert_int_eq(cu->launch(fn, 3, 1, 1, 64, 1, 1, 0, NULL, args, NULL), 0);
	a.n_op = 0; /* arguments were taken by the call */
	fx_cuda_read(wire, dev + MIB / 2, sizeof(wire));
	ck_assert(!memcmp(wire, want, sizeof(want)));
	ck_assert_int_eq(
		cu->launch(fn, 1, 1, 1, 2048, 1, 1, 0, NULL, args, NULL), WBCU_INVALID_VALUE);
}
END_TEST

/* ---- faults ---------------------------------------------------------------------------------- */

START_TEST(a_script_fails_the_calls_that_it_names)
{
	const struct wbcu *cu = fx_cuda_driver(0);
	uint64_t a;

	fx_cuda_do("fail cuMemAlloc_v2 2 2 1");
	ck_assert_int_eq(cu->mem_alloc(&a, 1), 0);
	ck_assert_int_eq(cu->mem_alloc(&a, 1), WBCU_OUT_OF_MEMORY);
	ck_assert_int_eq(cu->mem_alloc(&a, 1), WBCU_OUT_OF_MEMORY);
	ck_assert_int_eq(cu->mem_alloc(&a, 1), 0);
	fx_cuda_do("fail * 999");
	ck_assert_int_eq(cu->mem_alloc(&a, 1), WBCU_UNKNOWN);
	fx_cuda_do("reset");
	ck_assert_int_eq(cu->mem_alloc(&a, 1), 0);
	ck_assert_int_eq(fx_cuda()->script("reset; flail cuMemAlloc_v2 2"), -EINVAL);
}
END_TEST

START_TEST(a_device_that_is_lost_stays_lost)
{
	const struct wbcu *cu = fx_cuda_driver(0);
	void *s, *e, *context;
	uint64_t a, b;
	unsigned type;

	ck_assert_int_eq(cu->mem_alloc(&a, 100), 0);
	ck_assert_int_eq(cu->stream_create(&s, WBCU_STREAM_NON_BLOCKING), 0);
	ck_assert_int_eq(cu->event_create(&e, 0), 0);
	fx_cuda_do("hold; lose 719 1");
	ck_assert_int_eq(cu->fill(a, 1, 10, s), 0);
	ck_assert_int_eq(cu->event_record(e, s), 0);
	ck_assert_int_eq(cu->fill(a, 1, 10, s), 0);
	fx_cuda_do("go");
	ck_assert_int_eq(cu->stream_sync(s), WBCU_LAUNCH_FAILED);
	ck_assert_int_eq(cu->event_query(e), WBCU_LAUNCH_FAILED);
	fx_cuda_do("reset");
	ck_assert_int_eq(cu->mem_alloc(&b, 100), WBCU_LAUNCH_FAILED);
	/* What works on no memory goes on, so entering a context tells nothing of its device. */
	ck_assert_int_eq(cu->pointer_attribute(&type, WBCU_POINTER_MEMORY_TYPE, a), 0);
	ck_assert_int_eq(cu->context_retain(&context, 0), 0);
	ck_assert_int_eq(cu->context_push(context), 0);
	ck_assert_int_eq(cu->context_sync(), WBCU_LAUNCH_FAILED);
	ck_assert_int_eq(cu->context_pop(&context), 0);
	ck_assert_int_eq(cu->context_release(0), 0);
}
END_TEST

/* ---- other processes ------------------------------------------------------------------------- */

struct shared {
	struct wbcu_ipc ipc;
	uint64_t offset; /* of the allocation from a neighbour */
	int result;
};

/* The parent of a test has no driver: each side is a child of its own. */
static void in_child(void (*body)(void *), void *arg)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		body(arg);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

static void open_ipc(void *arg)
{
	struct shared *s = arg;
	const struct wbcu *cu = fx_cuda_driver(0);
	uint64_t addr, again;
	char out[4] = "";

	s->result = cu->ipc_open(&addr, s->ipc, WBCU_IPC_LAZY_PEER);
	if (s->result)
		return;
	if (cu->ipc_open(&again, s->ipc, WBCU_IPC_LAZY_PEER) || again != addr)
		abort();
	fx_cuda_read(out, addr, 4);
	if (memcmp(out, "abc", 4) != 0)
		abort();
	/* What others have in the block: kernels may reach it, copies do not. */
	if (cu->copy_out(out, addr - s->offset, 4, NULL) != WBCU_INVALID_VALUE)
		abort();
	fx_cuda_write(addr, "xyz", 4);
	if (cu->ipc_close(addr) || cu->ipc_close(addr) || !cu->ipc_close(addr))
		abort();
}

/* Allocate, tell, and stay until told. */
static void export_ipc(int to, int from, struct shared *s)
{
	const struct wbcu *cu = fx_cuda_driver(0);
	uint64_t other, addr, base;
	char out[4];
	size_t bytes;

	if (cu->mem_alloc(&other, 1000) || cu->mem_alloc(&addr, 100) ||
		cu->ipc_export(&s->ipc, addr) || cu->mem_range(&base, &bytes, addr))
		abort();
	s->offset = addr - other;
	fx_cuda_write(other, "own", 4);
	if (base != addr ||
		cu->ipc_open(&other, s->ipc, WBCU_IPC_LAZY_PEER) != WBCU_INVALID_CONTEXT)
		abort();
	fx_cuda_write(addr, "abc", 4);
	if (write(to, "x", 1) != 1 || read(from, out, 1) != 1)
		abort();
	fx_cuda_read(out, addr, 4);
	_exit(memcmp(out, "xyz", 4) != 0);
}

START_TEST(an_ipc_handle_opens_an_allocation_while_its_owner_lives)
{
	struct shared *s =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int pair[2], status;
	char c = 0;
	pid_t pid;

	fx_cuda();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	pid = fork();
	if (!pid)
		export_ipc(pair[1], pair[1], s);
	ck_assert_int_eq(read(pair[0], &c, 1), 1);
	in_child(open_ipc, s);
	ck_assert_int_eq(s->result, 0);
	ck_assert_int_eq(write(pair[0], &c, 1), 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	in_child(open_ipc, s);
	ck_assert(s->result == WBCU_INVALID_VALUE || (s->result && fx_cuda_is_device()));
	munmap(s, 4096);
}
END_TEST

static void import_fd(int sock, void *arg)
{
	int fd;
	struct wbcu_allocation what;
	struct wbcu_access access = {{WBCU_LOCATION_DEVICE, 0}, WBCU_ACCESS_READWRITE};
	const struct wbcu *cu;
	uint64_t handle, addr;
	char out[4];

	(void)arg;
	fx_receive(sock, out, 1, &fd, 1);
	if (fx_cuda_devices() > 1)
		setenv("CUDA_VISIBLE_DEVICES", "1", 1); /* device 1 is number 0 here */
	cu = fx_cuda_driver(0);
	if (cu->vmm_import(&handle, (void *)(intptr_t)fd, WBCU_HANDLE_FD) ||
		cu->vmm_describe(&what, handle) || what.location.id != 0 ||
		cu->vmm_reserve(&addr, 2 * BLOCK, 0, 0, 0) ||
		cu->vmm_map(addr, 2 * BLOCK, 0, handle, 0) != WBCU_NOT_SUPPORTED ||
		cu->vmm_map(addr, BLOCK, 0, handle, 0) || cu->vmm_access(addr, BLOCK, &access, 1) ||
		cu->vmm_release(handle))
		abort();
	fx_cuda_read(out, addr + 77, 4);
	if (memcmp(out, "abc", 4) != 0)
		abort();
	fx_cuda_write(addr + 77, "xyz", 4);
	if (write(sock, "x", 1) != 1)
		abort();
}

static void export_fd(int sock, void *arg)
{
	int fd, number = fx_cuda_second();
	const struct wbcu *cu = fx_cuda_driver(number);
	uint64_t addr = fx_cuda_vmm(number, BLOCK, true),
		 secret = fx_cuda_vmm(number, BLOCK, false), handle;
	char out[4];

	(void)arg;
	fx_cuda_write(addr + 77, "abc", 4);
	if (cu->vmm_retain(&handle, (void *)(uintptr_t)secret) ||
		cu->vmm_export(&fd, handle, WBCU_HANDLE_FD, 0) != WBCU_INVALID_VALUE ||
		cu->vmm_retain(&handle, (void *)(uintptr_t)(addr + 100)) ||
		cu->vmm_export(&fd, handle, WBCU_HANDLE_FD, 0) || cu->vmm_release(handle))
		abort();
	fx_send(sock, "x", 1, &fd, 1);
	if (read(sock, out, 1) != 1)
		abort();
	fx_cuda_read(out, addr + 77, 4);
	if (memcmp(out, "xyz", 4) != 0)
		abort();
}

START_TEST(a_descriptor_carries_the_memory_and_its_device)
{
	fx_two(export_fd, import_fd, NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuda driver");
	TCase *t = tcase_create("all");

	if (!fx_cuda_here())
		return 77;
	/* A process begins with the driver once, so each claim needs one of its own. */
	unsetenv("CK_FORK");
	FX_CUDA_ADD_ROWS(t, a_device_keeps_its_uuid_whatever_number_it_has, views, view_needs);
	FX_CUDA_ADD(t, nothing_to_see_is_one_sentence, NULL);
	FX_CUDA_ADD(t, a_forked_child_cannot_go_on, NULL);
	if (!fx_cuda_is_device())
		tcase_add_test_raise_signal(t, memory_of_a_device_is_not_the_hosts, SIGSEGV);
	else
		fx_cuda_skip("memory_of_a_device_is_not_the_hosts",
			"a host may have addresses of its own there");
	FX_CUDA_ADD(t, what_is_copied_in_comes_out, NULL);
	FX_CUDA_ADD(t, a_copy_beyond_memory_is_refused, NULL);
	FX_CUDA_ADD(t, memory_that_goes_before_its_work_loses_the_device, FX_HOLD);
	FX_CUDA_ADD(t, free_memory_returns_to_what_it_was, "a device for itself alone");
	FX_CUDA_ADD(t, more_than_there_is_is_out_of_memory, "a size of memory by script");
	FX_CUDA_ADD(t, a_pointer_says_what_it_is, NULL);
	FX_CUDA_ADD(t, work_is_done_when_the_device_gets_to_it, FX_HOLD);
	FX_CUDA_ADD_ROWS(t, streams_go_in_any_order_that_they_may, orders, order_needs);
	FX_CUDA_ADD(t, a_stream_waits_for_an_event_of_another, NULL);
	FX_CUDA_ADD(t, a_kernel_reads_and_writes_memory_of_the_device,
		wbk_gpu_kernel(WBK_GPU_ROWS)->image ? NULL : "a build with CUDA=yes");
	FX_CUDA_ADD(t, a_script_fails_the_calls_that_it_names, FX_SCRIPT);
	FX_CUDA_ADD(t, a_device_that_is_lost_stays_lost, FX_SCRIPT);
	FX_CUDA_ADD(t, an_ipc_handle_opens_an_allocation_while_its_owner_lives, NULL);
	FX_CUDA_ADD(t, a_descriptor_carries_the_memory_and_its_device, NULL);
	suite_add_tcase(s, t);
	return fx_run(s);
}
