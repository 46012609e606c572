/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of devices between a worker and its agent, on the driver without devices; WB_GPU=device:
 * on the machine's. */
#include "base/base.h"
#include "base/err.h"
#include "mem/gpu.h"
#include "mem/mem.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_cuda.h"

#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCK ((uint64_t)2 << 20)

/* What the context of a process may take for itself while it works, on a device. */
#define CONTEXT ((uint64_t)64 << 20)

/* In a process of its own: what is not so ends it. */
#define must(x)                                                                                    \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                    \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* ---- a worker's memory ----------------------------------------------------------------------- */

/* Allocations side by side, as an allocator with expandable segments has them. */
static uint64_t segments(int number, const uint64_t *bytes, unsigned n, bool is_exported)
{
	const struct wbcu *cu = fx_cuda_driver(number);
	struct wbcu_allocation what = {.type = WBCU_ALLOCATION_PINNED,
		.handle_types = is_exported ? WBCU_HANDLE_FD : 0,
		.location = {WBCU_LOCATION_DEVICE, number}};
	struct wbcu_access access = {what.location, WBCU_ACCESS_READWRITE};
	uint64_t base, handle, all = 0, at = 0;

	for (unsigned i = 0; i < n; i++)
		all += bytes[i];
	must(!cu->vmm_reserve(&base, all + BLOCK, 0, 0, 0)); /* room to grow */
	for (unsigned i = 0; i < n; at += bytes[i++]) {
		must(!cu->vmm_create(&handle, bytes[i], &what, 0));
		must(!cu->vmm_map(base + at, bytes[i], 0, handle, 0));
		must(!cu->vmm_release(handle));
	}
	must(!cu->vmm_access(base, all, &access, 1));
	return base;
}

static uint64_t legacy(int number, uint64_t bytes)
{
	uint64_t addr;

	must(!fx_cuda_driver(number)->mem_alloc(&addr, bytes));
	return addr;
}

/* Two allocations of 1024 bytes without a gap; 0: this driver leaves one. */
static uint64_t side_by_side(int number, const char *claim)
{
	uint64_t first = legacy(number, 1024), second = legacy(number, 1024);

	if (second == first + 1024)
		return first;
	must(fx_cuda_is_device());
	fx_cuda_skip(claim, "allocations are not side by side here");
	return 0;
}

static const struct way {
	enum wb_mem_kind kind;
	int device; /* as the worker numbers them; 1 = the last */
	const char *agent_sees; /* CUDA_VISIBLE_DEVICES, where there are two */
	unsigned n_piece;
	uint64_t piece[3];
	uint64_t offset, bytes; /* of the parameters in it */
} ways[] = {
	{WB_MEM_CUDA_VMM, 0, NULL, 1, {BLOCK}, 0, BLOCK},
	{WB_MEM_CUDA_VMM, 1, "1", 1, {BLOCK}, 4096, 10000},
	{WB_MEM_CUDA_VMM, 1, "1,0", 3, {BLOCK, 3 * BLOCK, BLOCK}, BLOCK - 100, 3 * BLOCK + 200},
	{WB_MEM_CUDA_IPC, 0, NULL, 1, {BLOCK}, 0, BLOCK},
	{WB_MEM_CUDA_IPC, 1, "1", 1, {3 * BLOCK}, BLOCK + 512, 77777},
};

static void fill(uint8_t *p, uint64_t bytes, uint8_t seed)
{
	for (uint64_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)(i * 13 + i / 977 + seed);
}

static void holds(uint64_t addr, uint64_t bytes, uint8_t seed)
{
	uint8_t *want = malloc(bytes), *is = malloc(bytes);

	must(want && is);
	fill(want, bytes, seed);
	fx_cuda_read(is, addr, bytes);
	must(!memcmp(want, is, bytes));
	free(want);
	free(is);
}

static void put(uint64_t addr, uint64_t bytes, uint8_t seed)
{
	uint8_t *p = malloc(bytes);

	must(p);
	fill(p, bytes, seed);
	fx_cuda_write(addr, p, bytes);
	free(p);
}

/* What a worker says: its description, then the descriptors. */
struct said {
	struct wb_mem_desc desc;
	uint64_t piece[WB_MEM_PIECES_MAX];
};

static void say(int sock, const struct wb_mem_export *x)
{
	struct said s = {.desc = x->desc};
	int fds[WB_MEM_PIECES_MAX];

	for (uint32_t i = 0; i < x->desc.n_piece; i++) {
		s.piece[i] = x->piece[i].bytes;
		fds[i] = x->piece[i].fd;
	}
	fx_send(sock, &s, sizeof(s), NULL, 0);
	fx_send(sock, "x", 1, fds, x->desc.n_piece);
}

/* As the agent has it: the pieces in @piece. */
static struct wb_mem_desc hear(int sock, struct wb_mem_piece *piece)
{
	struct said s;
	int fds[WB_MEM_PIECES_MAX];
	char x;

	fx_receive(sock, &s, sizeof(s), NULL, 0);
	fx_receive(sock, &x, 1, fds, s.desc.n_piece);
	for (uint32_t i = 0; i < s.desc.n_piece; i++)
		piece[i] = (struct wb_mem_piece){fds[i], s.piece[i]};
	s.desc.piece = piece;
	return s.desc;
}

static void close_all(const struct wb_mem_desc *d)
{
	for (uint32_t i = 0; i < d->n_piece; i++)
		close(d->piece[i].fd);
}

static void worker(int sock, void *arg)
{
	const struct way *w = arg;
	int number = w->device ? fx_cuda_second() : 0;
	uint64_t addr = w->kind == WB_MEM_CUDA_VMM ? segments(number, w->piece, w->n_piece, true)
						   : legacy(number, w->piece[0]);
	struct wbcu_uuid uuid = fx_cuda_uuid(number);
	struct wb_mem_export x;
	struct wb_err err = {0};
	char c;

	addr += w->offset;
	put(addr, w->bytes, 1);
	if (wb_mem_export((void *)(uintptr_t)addr, w->bytes, &x, &err)) {
		fprintf(stderr, "%s\n", err.msg);
		abort();
	}
	must(x.desc.kind == w->kind && x.desc.bytes == w->bytes && x.desc.n_piece <= w->n_piece);
	must(!memcmp(x.desc.uuid, uuid.bytes, sizeof(uuid)));
	must(wb_mem_is_device((void *)(uintptr_t)addr));
	say(sock, &x);
	wb_mem_export_finish(&x);
	fx_receive(sock, &c, 1, NULL, 0);
	holds(addr, w->bytes, 2);
}

static void agent(int sock, void *arg)
{
	const struct way *w = arg;
	struct wb_mem_piece piece[WB_MEM_PIECES_MAX];
	struct wb_mem_desc d = hear(sock, piece);
	struct fakecuda_counts n;
	struct wb_err err = {0};
	uint64_t before, after, all;
	struct wb_gpu *g;
	struct wb_mem m;
	size_t none;

	if (w->agent_sees && fx_cuda_devices() > 1)
		setenv("CUDA_VISIBLE_DEVICES", w->agent_sees, 1);
	if (wb_gpu_get(d.uuid, &g, &err) || wb_gpu_room(g, &before, &all, &err) ||
		wb_mem_import(&d, &m, &err)) {
		fprintf(stderr, "%s\n", err.msg);
		abort();
	}
	close_all(&d);
	must(m.access == WB_MEM_AT_DEVICE && m.addr && m.bytes == w->bytes && m.gpu == g);
	/* The calling thread has no context of ours. */
	must(g->cu->mem_info(&none, &none) == WBCU_INVALID_CONTEXT);
	must(!wb_gpu_enter(g, &err));
	holds((uintptr_t)m.addr, w->bytes, 1);
	put((uintptr_t)m.addr, w->bytes, 2);
	wb_gpu_leave(g);
	wb_mem_release(&m);
	wb_mem_release(&m);
	must(!wb_gpu_room(g, &after, &all, &err));
	must(before == after || (fx_cuda_is_device() && before < after + CONTEXT));
	wb_gpu_put(g);
	fx_cuda()->count(&n);
	must(!n.blocks && !n.mappings && !n.reservations && !n.handles && !n.contexts);
	fx_send(sock, "x", 1, NULL, 0);
}

START_TEST(a_workers_memory_is_its_agents_whatever_number_the_device_has)
{
	fx_two(worker, agent, (void *)(uintptr_t)&ways[_i]);
}
END_TEST

/* ---- what cannot be imported ----------------------------------------------------------------- */

static const struct refusal {
	enum wb_mem_kind kind;
	const char *agent_sees, *script;
	int rc;
	const char *word;
} refusals[] = {
	{WB_MEM_CUDA_VMM, "0", "", -ENODEV,
		"GPU-66616b65-6375-6461-0000-000000000001 is not among"},
	{WB_MEM_CUDA_IPC, "0", "", -ENODEV, "CUDA_VISIBLE_DEVICES"},
	{WB_MEM_CUDA_VMM, "", "", -ENOTSUP, "(100)"},
	{WB_MEM_CUDA_IPC, "1", "fail cuIpcOpenMemHandle_v2 201", -EXDEV, "hostIPC"},
	{WB_MEM_CUDA_IPC, "1", "fail cuIpcOpenMemHandle_v2 1", -EXDEV, "namespaces"},
	{WB_MEM_CUDA_IPC, "1", "fail cuIpcOpenMemHandle_v2 2", -ENOMEM, "OUT_OF_MEMORY"},
	{WB_MEM_CUDA_IPC, "1", "fail cuIpcOpenMemHandle_v2 719; fail cuMemGetInfo_v2 719", -EIO,
		"cuIpcOpenMemHandle"},
	{WB_MEM_CUDA_IPC, "1", "fail cuMemGetAddressRange_v2 999", -EIO, "UNKNOWN"},
	{WB_MEM_CUDA_IPC, "1", "fail cuCtxPushCurrent_v2 719", -EIO, "cuCtxPushCurrent"},
	{WB_MEM_CUDA_IPC, "1", "fail cuDevicePrimaryCtxRetain 2", -ENOMEM, "PrimaryCtxRetain"},
	{WB_MEM_CUDA_VMM, "1", "fail cuMemAddressReserve 2", -ENOMEM, "cuMemAddressReserve"},
	{WB_MEM_CUDA_VMM, "1", "fail cuMemImportFromShareableHandle 2 1 1", -ENOMEM, "Import"},
	{WB_MEM_CUDA_VMM, "1", "fail cuMemImportFromShareableHandle 801", -ENOTSUP, "SUPPORTED"},
	{WB_MEM_CUDA_VMM, "1", "fail cuMemMap 2 1 2", -ENOMEM, "cuMemMap"},
	{WB_MEM_CUDA_VMM, "1", "fail cuMemMap 801 1 2", -EINVAL,
		"descriptor 2 is of no allocation of 2097152 bytes: "},
	{WB_MEM_CUDA_VMM, "1", "fail cuMemSetAccess 1", -EINVAL, "cuMemSetAccess"},
	{WB_MEM_CUDA_VMM, "1", "fail cuMemGetAllocationPropertiesFromHandle 999 1 1", -EIO, "Prop"},
};

static const char *refusal_needs(int row)
{
	if (refusals[row].script[0])
		return FX_SCRIPT;
	return refusals[row].agent_sees[0] ? "the second device of two, as the stand-in has them"
					   : NULL;
}

static void refused_worker(int sock, void *arg)
{
	const struct refusal *r = arg;
	static const uint64_t pieces[] = {BLOCK, BLOCK, BLOCK};
	int number = fx_cuda_second();
	uint64_t addr = r->kind == WB_MEM_CUDA_VMM ? segments(number, pieces, 3, true)
						   : legacy(number, 3 * BLOCK);
	struct wb_mem_export x;
	char c;

	must(!wb_mem_export((void *)(uintptr_t)addr, 3 * BLOCK, &x, NULL));
	say(sock, &x);
	wb_mem_export_finish(&x);
	fx_receive(sock, &c, 1, NULL, 0);
}

static void refusing_agent(int sock, void *arg)
{
	const struct refusal *r = arg;
	struct wb_mem_piece piece[WB_MEM_PIECES_MAX];
	struct wb_mem_desc d = hear(sock, piece);
	struct fakecuda_counts n;
	struct wb_err err = {0};
	struct wb_mem m = {.bytes = 77};
	const struct wbcu *cu;

	setenv("CUDA_VISIBLE_DEVICES", r->agent_sees, 1);
	if (!wbcu_load(&cu, NULL) && r->script[0])
		fx_cuda_do(r->script);
	if (wb_mem_import(&d, &m, &err) != r->rc || !strstr(err.msg, r->word)) {
		fprintf(stderr, "%d: %s\n", err.code, err.msg);
		abort();
	}
	must(m.bytes == 77); /* untouched */
	fx_cuda()->count(&n);
	must(!n.blocks && !n.mappings && !n.reservations && !n.handles && !n.contexts);
	close_all(&d);
	fx_send(sock, "x", 1, NULL, 0);
}

START_TEST(what_cannot_be_imported_is_said_and_leaves_nothing)
{
	fx_two(refused_worker, refusing_agent, (void *)(uintptr_t)&refusals[_i]);
}
END_TEST

static const struct lie {
	uint32_t n_piece;
	uint64_t piece, offset, bytes;
	const char *word;
} lies[] = {
	{0, 0, 0, 10, "0 descriptors, at most 64"},
	{65, BLOCK, 0, 10, "65 descriptors"},
	{1, BLOCK, 0, 0, "0 bytes at offset 0"},
	{1, BLOCK, BLOCK, 1, "1 bytes at offset 2097152 of allocations of 2097152"},
	{1, BLOCK, UINT64_MAX, 2, "offset 18446744073709551615"},
	{1, 0, 0, 1, "an allocation of 0 bytes"},
	{2, UINT64_MAX, 0, 1, "an allocation of"},
	{1, BLOCK, 0, 10, "descriptor 0 is no memory of "},
};

START_TEST(a_description_that_cannot_be_is_einval)
{
	const struct lie *l = &lies[_i];
	struct wb_mem_piece piece[65];
	struct wb_mem_desc d = {.kind = WB_MEM_CUDA_VMM,
		.fd = -1,
		.offset = l->offset,
		.bytes = l->bytes,
		.piece = piece,
		.n_piece = l->n_piece};
	struct wb_err err = {0};
	struct wb_gpu *g;
	struct wb_mem m;

	fx_cuda();
	ck_assert_int_eq(wb_gpu_get(NULL, &g, NULL), 0);
	memcpy(d.uuid, g->uuid.bytes, sizeof(d.uuid));
	for (size_t i = 0; i < WB_ARRAY_SIZE(piece); i++)
		piece[i] = (struct wb_mem_piece){STDIN_FILENO, l->piece};
	ck_assert_int_eq(wb_mem_import(&d, &m, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, l->word) != NULL, "%s", err.msg);
	wb_gpu_put(g);
}
END_TEST

/* Of the memory of device 1, as if it were of device 0, where there are two; longer than it is, and
 * shorter. */
static void lying_worker(int sock, void *arg)
{
	static const uint64_t pieces[] = {2 * BLOCK};
	uint64_t addr = segments(fx_cuda_second(), pieces, 1, true);
	struct wb_mem_export x;
	char c;

	(void)arg;
	must(!wb_mem_export((void *)(uintptr_t)addr, 2 * BLOCK, &x, NULL));
	say(sock, &x);
	fx_receive(sock, &c, 1, NULL, 0);
	wb_mem_export_finish(&x);
}

static void hearing_agent(int sock, void *arg)
{
	struct wb_mem_piece piece[WB_MEM_PIECES_MAX];
	struct wb_mem_desc d = hear(sock, piece), lie = d, other = d;
	struct wb_mem_piece said = {piece[0].fd, 0};
	struct wb_err err = {0};
	struct wb_mem m;

	(void)arg;
	lie.piece = &said;
	for (int i = 0; i < 2; i++) {
		said.bytes = lie.bytes = i ? BLOCK : 4 * BLOCK;
		/* Not -ENOTSUP, which is the driver's word: that says that the worker can. */
		must(wb_mem_import(&lie, &m, &err) == -EINVAL &&
			strstr(err.msg, i ? "descriptor 0 is of no allocation of 2097152 bytes: "
					  : "descriptor 0 is of no allocation of 8388608 bytes: "));
	}
	if (fx_cuda_devices() > 1) {
		struct wbcu_uuid first = fx_cuda_uuid(0);

		memcpy(other.uuid, first.bytes, sizeof(first));
		must(wb_mem_import(&other, &m, &err) == -EINVAL &&
			strstr(err.msg, "another device"));
	}
	must(!wb_mem_import(&d, &m, &err));
	wb_mem_release(&m);
	close_all(&d);
	fx_send(sock, "x", 1, NULL, 0);
}

START_TEST(descriptors_are_what_the_driver_says_and_not_the_worker)
{
	fx_two(lying_worker, hearing_agent, NULL);
}
END_TEST

/* ---- what it can travel as ------------------------------------------------------------------- */

enum from { VMM_SHARED, VMM_PRIVATE, LARGE, SMALL, ODD, NEIGHBOURS, HOST, MANY };

static const struct {
	enum from from;
	uint64_t bytes;
	int rc;
	enum wb_mem_kind kind;
	const char *word;
} exports[] = {
	{VMM_SHARED, BLOCK, 0, WB_MEM_CUDA_VMM, ""},
	{VMM_SHARED, BLOCK + 1, -EINVAL, 0, "beyond what was allocated"},
	{VMM_PRIVATE, BLOCK, 0, WB_MEM_HEAP, "expandable_segments:True"},
	{LARGE, 3 * BLOCK, 0, WB_MEM_CUDA_IPC, ""},
	{LARGE, 3 * BLOCK + 1, -EINVAL, 0, "beyond"},
	{SMALL, 1000, 0, WB_MEM_HEAP, "no multiple of 2 MiB may share a block"},
	{ODD, BLOCK, 0, WB_MEM_HEAP, "no multiple of 2 MiB may share a block"},
	{SMALL, 1001, -EINVAL, 0, "beyond their allocation of 1000"},
	{NEIGHBOURS, 2048, 0, WB_MEM_HEAP, "of several allocations"},
	{NEIGHBOURS, 2049, -EINVAL, 0, "beyond their allocation of 1024"},
	{HOST, 1000, -EINVAL, 0, "no memory of a GPU"},
	{LARGE, 0, -EINVAL, 0, "0 bytes"},
	{MANY, 67 * BLOCK, 0, WB_MEM_HEAP,
		": 140509184 bytes in 67 allocations: at most 64 are shared"},
	{MANY, 65 * BLOCK - 1, 0, WB_MEM_HEAP, ": 136314879 bytes in 65 allocations: at most"},
	{MANY, 64 * BLOCK, 0, WB_MEM_CUDA_VMM, ""},
};

START_TEST(an_allocator_decides_what_memory_can_travel_as)
{
	static uint64_t many[67], one[] = {BLOCK};
	static char host[1000];
	struct wb_mem_export x = {.desc = {.fd = -1}};
	struct wb_err err = {0};
	uint64_t addr = 0;
	char before[64], after[64];

	for (size_t i = 0; i < WB_ARRAY_SIZE(many); i++)
		many[i] = BLOCK;
	fx_cuda_driver(0); /* begun before descriptors are counted */
	switch (exports[_i].from) {
	case VMM_SHARED:
	case VMM_PRIVATE:
		addr = segments(0, one, 1, exports[_i].from == VMM_SHARED);
		break;
	case LARGE:
		addr = legacy(0, 3 * BLOCK);
		break;
	case SMALL:
		addr = legacy(0, 1000);
		break;
	case ODD:
		addr = legacy(0, BLOCK + 512);
		break;
	case NEIGHBOURS:
		addr = side_by_side(0, "an_allocator_decides_what_memory_can_travel_as");
		if (!addr)
			return;
		break;
	case MANY:
		addr = segments(0, many, 67, true);
		break;
	case HOST:
		addr = (uintptr_t)host;
	}
	snprintf(before, sizeof(before), "%d", dup(0));
	ck_assert_int_eq(wb_mem_export((void *)(uintptr_t)addr, exports[_i].bytes, &x, &err),
		exports[_i].rc);
	if (exports[_i].rc) {
		/* How far it knows an allocation to reach is the driver's affair. */
		ck_assert_msg(fx_cuda_is_device() || strstr(err.msg, exports[_i].word) != NULL,
			"%s", err.msg);
	} else {
		ck_assert_int_eq(x.desc.kind, exports[_i].kind);
		ck_assert_msg(strstr(x.why, exports[_i].word) != NULL, "%s", x.why);
		ck_assert(!x.why[0] == (x.desc.kind != WB_MEM_HEAP));
	}
	wb_mem_export_finish(&x);
	snprintf(after, sizeof(after), "%d", dup(0));
	ck_assert_int_eq(atoi(after), atoi(before) + 1); /* no descriptor stayed open */
}
END_TEST

static void is_on(const void *addr, uint64_t bytes, int number)
{
	struct wbcu_uuid want = fx_cuda_uuid(number);
	uint8_t uuid[WB_MEM_UUID_BYTES];
	struct wb_err err = {0};

	ck_assert_msg(!wb_mem_device(addr, bytes, uuid, &err), "%s", err.msg);
	ck_assert(!memcmp(uuid, want.bytes, sizeof(uuid)));
}

/* What a lane needs to know, whatever the memory can travel as. */
START_TEST(both_ends_of_a_range_say_which_device_it_is_on)
{
	static const uint64_t two[] = {BLOCK, BLOCK};
	static char host[1000];
	int second = fx_cuda_second();
	uint64_t neighbours, segment, other;
	uint8_t uuid[WB_MEM_UUID_BYTES];
	struct wb_err err = {0};

	neighbours = side_by_side(second, "both_ends_of_a_range_say_which_device_it_is_on");
	segment = segments(second, two, 2, false);
	other = legacy(0, 3 * BLOCK);
	if (!fx_cuda_is_device())
		fx_cuda_do("fail cuIpcGetMemHandle 999; fail cuMemRetainAllocationHandle 999");
	if (neighbours)
		is_on((void *)(uintptr_t)neighbours, 2048, second);
	is_on((void *)(uintptr_t)segment, 2 * BLOCK, second);
	is_on((void *)(uintptr_t)other, 3 * BLOCK, 0);
	ck_assert_int_eq(
		wb_mem_device((void *)(uintptr_t)segment, 2 * BLOCK + 1, uuid, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, "beyond what was allocated") != NULL, "%s", err.msg);
	ck_assert_int_eq(wb_mem_device((void *)(uintptr_t)other, 0, uuid, &err), -EINVAL);
	ck_assert_int_eq(wb_mem_device((void *)(uintptr_t)other, UINT64_MAX, uuid, &err), -EINVAL);
	ck_assert_int_eq(wb_mem_device(host, 1000, uuid, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, "no memory of a GPU") != NULL, "%s", err.msg);
}
END_TEST

/* ---- dma-buf, reach, loss -------------------------------------------------------------------- */

START_TEST(a_dmabuf_is_something_to_register_and_has_no_address)
{
	static const uint64_t pieces[] = {BLOCK};
	uint64_t addr = segments(0, pieces, 1, true);
	struct wb_mem_desc d = {.kind = WB_MEM_DMABUF, .offset = 8192, .bytes = 100};
	struct wb_err err = {0};
	struct wb_gpu *g;
	struct wb_mem m;
	int has = 0;

	ck_assert_int_eq(wb_gpu_get(NULL, &g, NULL), 0);
	ck_assert(!g->cu->device_attribute(&has, WBCU_DEVICE_HAS_DMABUF, g->number));
	if (!has && fx_cuda_is_device()) {
		fx_cuda_skip("a_dmabuf_is_something_to_register_and_has_no_address",
			"this device exports none");
		return;
	}
	ck_assert_int_eq(
		g->cu->range_export(&d.fd, addr, BLOCK, WBCU_RANGE_DMABUF, 0), WBCU_SUCCESS);
	ck_assert_msg(!wb_mem_import(&d, &m, &err), "%s", err.msg);
	ck_assert(m.access == WB_MEM_AT_WORKER && !m.addr && m.fd >= 0 && m.fd != d.fd);
	ck_assert_uint_eq(m.fd_offset, 8192);
	wb_mem_release(&m);
	d.offset = BLOCK - 99;
	ck_assert_int_eq(wb_mem_import(&d, &m, &err), -EINVAL);
	close(d.fd);
	d.fd = -1;
	ck_assert_int_eq(wb_mem_import(&d, &m, &err), -EINVAL);
	wb_gpu_put(g);
}
END_TEST

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static const struct {
	const char *script, *pci, *why; /* "" = there is one */
} for_nics[] = {
	{"", "0000:10:00.0", ""},
	{"device 0 33 59; device 0 34 3; device 0 50 10", "000a:3b:03.0", ""},
	{"device 0 124 0", "0000:10:00.0", "Stand-in 0 exports no memory as dma-bufs"},
	{"fail cuMemGetHandleForAddressRange 801", "0000:10:00.0", "cuMemGetHandleForAddressRange"},
	{"fail cuMemGetHandleForAddressRange 1", "0000:10:00.0", "cuMemGetHandleForAddressRange"},
};

static const char *for_nics_needs(int row)
{
	return for_nics[row].script[0] ? FX_SCRIPT : NULL;
}

/* Whole pages are exported, and the range lies in them; the caller's is the descriptor. */
START_TEST(a_nic_is_told_where_memory_of_a_device_is)
{
	static const uint64_t pieces[] = {BLOCK};
	uint64_t addr = segments(0, pieces, 1, true), page = (uint64_t)sysconf(_SC_PAGESIZE);
	bool is_there = !for_nics[_i].why[0];
	struct wb_err err = {0};
	struct wb_mem_nic nic;
	int before;

	if (for_nics[_i].script[0])
		fx_cuda_do(for_nics[_i].script);
	before = open_descriptors();
	ck_assert_msg(!wb_mem_nic((void *)(uintptr_t)(addr + page + 100), 1000, &nic, &err), "%s",
		err.msg);
	if (fx_cuda_is_device())
		is_there = nic.dmabuf_fd >= 0; /* the machine's affair */
	else
		ck_assert_str_eq(nic.pci, for_nics[_i].pci);
	ck_assert_int_eq(nic.dmabuf_fd >= 0, is_there);
	ck_assert_int_eq(nic.why[0] == '\0', is_there);
	ck_assert_msg(fx_cuda_is_device() || strstr(nic.why, for_nics[_i].why), "%s", nic.why);
	ck_assert_uint_eq(nic.dmabuf_off, is_there ? 100 : 0);
	ck_assert_int_eq(open_descriptors(), before + is_there);
	ck_assert(!is_there || fcntl(nic.dmabuf_fd, F_GETFD) == FD_CLOEXEC);
	wb_mem_nic_finish(&nic);
	wb_mem_nic_finish(&nic);
	ck_assert_int_eq(open_descriptors(), before);
	ck_assert_int_eq(wb_mem_nic(&nic, sizeof(nic), &nic, &err), -EINVAL);
}
END_TEST

static const struct {
	const char *script, *line;
} reaches[] = {
	{"", "cuda-vmm: yes; cuda-ipc: yes; dmabuf: yes"},
	{"device 0 124 0",
		"cuda-vmm: yes; cuda-ipc: yes; dmabuf: no: Stand-in 0 does not export memory "
		"as dma-bufs"},
	{"device 0 103 0", "cuda-vmm: no: Stand-in 0 does not export memory as file descriptors; "
			   "cuda-ipc: yes; dmabuf: yes"},
	{"device 0 102 0", "cuda-vmm: no: Stand-in 0 does not manage virtual memory (cuMemCreate); "
			   "cuda-ipc: yes; dmabuf: yes"},
};

#define REACHES_EVERYWHERE (sizeof("cuda-vmm: yes; cuda-ipc: yes; dmabuf: ") - 1)

static const char *reach_needs(int row)
{
	return reaches[row].script[0] ? "attributes by script" : NULL;
}

START_TEST(a_line_says_what_can_be_reached)
{
	const struct wbcu *cu;
	char line[1000], few[20];

	fx_cuda();
	ck_assert_int_eq(wbcu_load(&cu, NULL), 0);
	if (reaches[_i].script[0])
		fx_cuda_do(reaches[_i].script);
	wb_mem_reach(NULL, line, sizeof(line));
	if (!fx_cuda_is_device())
		ck_assert_str_eq(line, reaches[_i].line);
	else /* whether there are dma-bufs is the machine's affair */
		ck_assert_msg(!strncmp(line, reaches[_i].line, REACHES_EVERYWHERE), "%s", line);
	wb_mem_reach(NULL, few, sizeof(few));
	ck_assert(!strncmp(line, few, sizeof(few) - 1) && strlen(few) == sizeof(few) - 1);
}
END_TEST

START_TEST(without_a_driver_nothing_is_reached_and_it_is_said)
{
	char line[1000];

	if (dlopen("libcuda.so.1", RTLD_NOW)) {
		fx_cuda_skip("without_a_driver_nothing_is_reached_and_it_is_said",
			"this machine has a driver");
		return;
	}
	wb_mem_reach(NULL, line, sizeof(line));
	ck_assert_msg(strstr(line, "cuda-ipc: no: no GPU: libcuda.so.1") != NULL, "%s", line);
	ck_assert(!wb_mem_is_device(line));
}
END_TEST

static void losing_agent(int sock, void *arg)
{
	struct wb_mem_piece piece[WB_MEM_PIECES_MAX];
	struct wb_mem_desc d = hear(sock, piece);
	struct wb_err err = {0};
	struct wb_mem m, n;

	(void)arg;
	must(!wb_mem_import(&d, &m, &err));
	fx_cuda_do("lose 719");
	must(!wb_gpu_enter(m.gpu, &err));
	m.gpu->cu->fill((uintptr_t)m.addr, 0, 1, NULL);
	must(wb_gpu_rc(m.gpu, m.gpu->cu->context_sync(), "sync", &err) == -EIO);
	wb_gpu_leave(m.gpu);
	must(wb_mem_import(&d, &n, &err) == -EIO || err.code == -ENODEV);
	wb_mem_release(&m);
	close_all(&d);
	fx_send(sock, "x", 1, NULL, 0);
}

START_TEST(memory_of_a_lost_device_is_let_go)
{
	fx_two(lying_worker, losing_agent, NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mem gpu");
	TCase *t = tcase_create("all");

	if (!fx_cuda_here())
		return 77;
	/* A process begins with a driver once, so each claim needs one of its own. */
	unsetenv("CK_FORK");
	FX_CUDA_ADD_ROWS(
		t, a_workers_memory_is_its_agents_whatever_number_the_device_has, ways, NULL);
	FX_CUDA_ADD_ROWS(
		t, what_cannot_be_imported_is_said_and_leaves_nothing, refusals, refusal_needs);
	FX_CUDA_ADD_ROWS(t, a_description_that_cannot_be_is_einval, lies, NULL);
	FX_CUDA_ADD(t, descriptors_are_what_the_driver_says_and_not_the_worker, NULL);
	FX_CUDA_ADD_ROWS(t, an_allocator_decides_what_memory_can_travel_as, exports, NULL);
	FX_CUDA_ADD(t, both_ends_of_a_range_say_which_device_it_is_on, NULL);
	FX_CUDA_ADD(t, a_dmabuf_is_something_to_register_and_has_no_address, NULL);
	FX_CUDA_ADD_ROWS(t, a_nic_is_told_where_memory_of_a_device_is, for_nics, for_nics_needs);
	FX_CUDA_ADD_ROWS(t, a_line_says_what_can_be_reached, reaches, reach_needs);
	FX_CUDA_ADD(t, without_a_driver_nothing_is_reached_and_it_is_said,
		"a machine without a driver");
	FX_CUDA_ADD(t, memory_of_a_lost_device_is_let_go, FX_SCRIPT);
	suite_add_tcase(s, t);
	return fx_run(s);
}
