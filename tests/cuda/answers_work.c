/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about work: events, orders of streams, copies, kernels and their faults. */
#include "tests/cuda/answers.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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
	void *pinned;

	result("asking before it is recorded", cu->event_query(e));
	result("waiting before it is recorded", cu->event_sync(e));
	result("a stream without work", cu->stream_query(s));
	must("cuMemHostAlloc", cu->host_alloc(&pinned, 100, 0));
	sem_init(&gate, 0, 0);
	write_all(at, 0, MIB);
	must("cuLaunchHostFunc", cu->stream_call(s, wait_at_gate, NULL));
	must("cuMemsetD8Async", cu->fill(at, 1, MIB, s));
	must("cuEventRecord", cu->event_record(e, s));
	result("while work is before it", cu->event_query(e));
	result("its stream", cu->stream_query(s));
	result("a copy to pinned memory behind it", cu->copy_out(pinned, at, 100, s));
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

static void fill_then(uint64_t at, void *stream, void *behind)
{
	must("cuMemsetD8Async", cu->fill(at, 1, MIB, stream));
	must("cuEventRecord", cu->event_record(behind, stream));
}

/* Work of @second while @first is held: does it wait?  What does not is over when the same work is
 * that was queued later in a stream of its own, @aside; a device may take a moment more. */
static void order_of(const char *what, void *first, void *second, void *aside)
{
	void *e = event(), *later = event();
	uint64_t at = legacy(MIB), other = legacy(MIB);
	bool waits;

	write_all(at, 0, MIB); /* what a driver does at a first fill may wait for all streams */
	must("cuLaunchHostFunc", cu->stream_call(first, wait_at_gate, NULL));
	fill_then(at, second, e);
	fill_then(other, aside, later);
	must("cuEventSynchronize", cu->event_sync(later));
	for (int i = 0; i < 20 && is_held(e); i++)
		usleep(1000);
	waits = is_held(e);
	sem_post(&gate);
	must("cuCtxSynchronize", cu->context_sync());
	say(what, "%s", waits ? "waits" : "does not wait");
	cu->event_destroy(e);
	cu->event_destroy(later);
	cu->mem_free(at);
	cu->mem_free(other);
}

static void orders(void)
{
	void *blocking = stream(0), *other = stream(0);
	void *apart = stream(WBCU_STREAM_NON_BLOCKING), *aside = stream(WBCU_STREAM_NON_BLOCKING);

	sem_init(&gate, 0, 0);
	order_of("the legacy stream behind a blocking one", blocking, NULL, aside);
	order_of("a blocking stream behind the legacy one", NULL, blocking, aside);
	order_of("a blocking stream behind another", blocking, other, aside);
	order_of("the legacy stream behind a non-blocking one", apart, NULL, aside);
	order_of("a non-blocking stream behind the legacy one", NULL, apart, aside);
	order_of("a stream behind itself", apart, apart, aside);
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

void *storer(void **module)
{
	void *fn;

	must("an image in PTX", cu->module_load(module, ptx));
	must("a function that it has", cu->module_function(&fn, *module, "answers_store"));
	return fn;
}

int store(void *fn, uint64_t at, unsigned grid, unsigned block)
{
	void *args[] = {&at};

	return cu->launch(fn, grid, 1, 1, block, 1, 1, 0, NULL, args, NULL);
}

/* Slots of an agent: shared memory, pinned a part at a time, that kernels write at the host's
 * addresses. */
static void store_in_slots(void *fn)
{
	size_t half = 2 * MIB;
	int fd = memfd_create("slots", MFD_CLOEXEC);
	uint8_t *p;

	must_be("slots", fd >= 0 && !ftruncate(fd, (off_t)(2 * half)));
	p = mmap(NULL, 2 * half, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must_be("slots", p != MAP_FAILED);
	for (int i = 0; i < 2; i++)
		result("pinning a half of shared memory",
			cu->host_register(
				p + (size_t)i * half, half, WBCU_HOST_PORTABLE | WBCU_HOST_MAPPED));
	result("a launch that stores there", store(fn, (uintptr_t)p + half - 4, 1, 32));
	result("its end", cu->context_sync());
	result("and in the other half", store(fn, (uintptr_t)p + half, 1, 32));
	result("its end", cu->context_sync());
	say("what the host sees there", "%d, %d", p[half - 4], p[half]);
	for (int i = 0; i < 2; i++)
		result("unpinning it", cu->host_unregister(p + (size_t)i * half));
}

static void kernels(void)
{
	void *module, *fn, *none;
	uint64_t at = legacy(4 * KIB);

	refused("an image of nonsense", cu->module_load(&module, "nonsense\n"));
	refused("an image without code", cu->module_load(&module, no_code));
	fn = storer(&module);
	/* What is left of a function that there is none of is up to the driver. */
	result("a function that it lacks", cu->module_function(&none, module, "nothing"));
	write_all(at, 0, 4 * KIB);
	result("a launch", store(fn, at, 1, 32));
	result("its end", cu->context_sync());
	say("what it stored", "%d", byte_at(at));
	result("a launch of no blocks", store(fn, at, 0, 32));
	result("a launch of no threads", store(fn, at, 1, 0));
	result("a launch of too many threads", store(fn, at, 1, 2048));
	store_in_slots(fn);
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
	void *module, *fn = storer(&module), *s = stream(WBCU_STREAM_NON_BLOCKING), *e = event();
	size_t n = piece_bytes();
	uint64_t addr = legacy(100), vmm = reserved(n);

	map_at(vmm, n, 0);
	result("a launch that stores at an address of nobody", store(fn, 4096, 1, 32));
	result("its end", cu->context_sync());
	result("cuDeviceGetCount", cu->device_count(&(int){0}));
	result("cuMemAddressReserve", cu->vmm_reserve(&(uint64_t){0}, n, 0, 0, 0));
	result("cuMemUnmap", cu->vmm_unmap(vmm, n));
	after_a_fault(addr, s, e);
}

const struct situation of_work[] = {
	{"events", events},
	{"orders of streams", orders},
	{"pageable memory", pageable},
	{"kernels", kernels},
	{"a fault of a kernel", fault_of_a_kernel},
	{NULL, NULL},
};
