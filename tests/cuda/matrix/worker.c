/* SPDX-License-Identifier: Apache-2.0 */
/* The worker: memory of each kind. */
#include "tests/cuda/matrix/matrix.h"

#include "base/base.h"
#include "base/err.h"
#include "tests/common/fx_cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BLOCK ((uint64_t)2 << 20)
#define BYTES BLOCK /* that are shared, of each kind */

const struct mx_memory mx_memories[MX_MEMORIES] = {
	{"cuMemCreate, two allocations", WB_MEM_CUDA_VMM, true, true, false, 2, BLOCK, BLOCK / 2,
		BYTES},
	{"cuMemAlloc of 4 MiB", WB_MEM_CUDA_IPC, false, true, false, 1, 2 * BLOCK, BLOCK / 2,
		BYTES},
	{"dma-buf of cuMemAlloc", WB_MEM_DMABUF, false, true, false, 1, 2 * BLOCK, BLOCK / 2,
		BYTES},
	{"dma-buf of cuMemCreate", WB_MEM_DMABUF, true, true, false, 1, 2 * BLOCK, BLOCK / 2,
		BYTES},
	{"dma-buf of cuMemCreate for RDMA", WB_MEM_DMABUF, true, true, true, 1, 2 * BLOCK, 0,
		BYTES},
	{"cuMemCreate, not for export", WB_MEM_HEAP, true, false, false, 1, BLOCK, 0, BLOCK},
	{"cuMemAlloc of 64 KiB", WB_MEM_HEAP, false, true, false, 1, 65536, 0, 65536},
};

static int allocate_vmm(struct wb_gpu *g, const struct mx_memory *m, uint64_t *addr)
{
	struct wbcu_allocation what = {.type = WBCU_ALLOCATION_PINNED,
		.handle_types = m->is_exported ? WBCU_HANDLE_FD : 0,
		.location = {WBCU_LOCATION_DEVICE, g->number},
		.is_rdma_capable = m->is_rdma_capable};
	struct wbcu_access access = {what.location, WBCU_ACCESS_READWRITE};
	uint64_t all = m->n_block * m->block, handle;
	int rc = g->cu->vmm_reserve(addr, all, 0, 0, 0);

	for (unsigned i = 0; !rc && i < m->n_block; i++) {
		rc = g->cu->vmm_create(&handle, m->block, &what, 0);
		if (!rc)
			rc = g->cu->vmm_map(*addr + i * m->block, m->block, 0, handle, 0);
		if (!rc)
			rc = g->cu->vmm_release(handle);
	}
	return rc ? rc : g->cu->vmm_access(*addr, all, &access, 1);
}

static int allocate(struct wb_gpu *g, const struct mx_memory *m, uint64_t *addr, struct wb_err *err)
{
	int rc = m->is_vmm ? allocate_vmm(g, m, addr) : g->cu->mem_alloc(addr, m->block);

	*addr += m->offset;
	return wb_gpu_rc(g, rc, m->name, err);
}

void mx_pattern(uint8_t *p, uint64_t bytes, unsigned seed)
{
	for (uint64_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)(i * 13 + i / 977 + seed);
}

int mx_write(struct wb_gpu *g, uint64_t addr, uint64_t bytes, unsigned seed, struct wb_err *err)
{
	uint8_t *p = malloc(bytes);
	int rc;

	if (!p)
		return wb_err_set(err, -ENOMEM, "no memory");
	mx_pattern(p, bytes, seed);
	rc = g->cu->copy_in(addr, p, bytes, NULL);
	if (!rc)
		rc = g->cu->stream_sync(NULL);
	free(p);
	return wb_gpu_rc(g, rc, "write", err);
}

int mx_read(struct wb_gpu *g, uint64_t addr, uint64_t bytes, unsigned seed, struct wb_err *err)
{
	uint8_t *p = malloc(bytes), *want = malloc(bytes);
	int rc;

	if (!p || !want)
		exit(1);
	mx_pattern(want, bytes, seed);
	rc = g->cu->copy_out(p, addr, bytes, NULL);
	if (!rc)
		rc = g->cu->stream_sync(NULL);
	rc = wb_gpu_rc(g, rc, "read", err);
	if (!rc && memcmp(p, want, bytes) != 0)
		rc = wb_err_set(err, -EILSEQ, "the bytes differ");
	free(p);
	free(want);
	return rc;
}

static int export_dmabuf(struct wb_gpu *g, uint64_t addr, const struct mx_memory *m,
	struct wb_mem_export *x, struct wb_err *err)
{
	x->desc = (struct wb_mem_desc){.kind = WB_MEM_DMABUF, .fd = -1, .bytes = m->bytes};
	return wb_gpu_rc(g, g->cu->range_export(&x->desc.fd, addr, m->bytes, WBCU_RANGE_DMABUF, 0),
		"cuMemGetHandleForAddressRange", err);
}

static int give(struct wb_gpu *g, uint64_t addr, const struct mx_question *q,
	struct wb_mem_export *x, struct wb_err *err)
{
	const struct mx_memory *m = &mx_memories[q->memory];
	int rc = mx_write(g, addr, m->bytes, q->seed, err);

	if (rc)
		return rc;
	return m->kind == WB_MEM_DMABUF ? export_dmabuf(g, addr, m, x, err)
					: wb_mem_export((void *)(uintptr_t)addr, m->bytes, x, err);
}

static void answer(int sock, struct wb_gpu *g, uint64_t addr, const struct mx_question *q)
{
	struct wb_mem_export x = {.desc.fd = -1};
	struct wb_err err = {0};
	struct mx_answer a = {.pid = getpid()};
	int fds[WB_MEM_PIECES_MAX];
	unsigned n = 0;

	if (q->what == MX_CHECK)
		a.rc = mx_read(g, addr, mx_memories[q->memory].bytes, q->seed, &err);
	else
		a.rc = give(g, addr, q, &x, &err);
	snprintf(a.why, sizeof(a.why), "%.500s", a.rc ? err.msg : x.why);
	a.desc = x.desc;
	for (uint32_t i = 0; i < x.desc.n_piece; i++, n++) {
		a.piece[i] = x.piece[i].bytes;
		fds[n] = x.piece[i].fd;
	}
	if (x.desc.fd >= 0)
		fds[n++] = x.desc.fd;
	fx_send(sock, &a, sizeof(a), fds, n);
	if (x.desc.fd >= 0)
		close(x.desc.fd);
	wb_mem_export_finish(&x);
}

void mx_worker(int sock, int none)
{
	uint64_t addr[MX_MEMORIES] = {0};
	struct wb_err err = {0}, why[MX_MEMORIES] = {0};
	int rc[MX_MEMORIES];
	struct wb_gpu *g;
	struct mx_question q;

	(void)none;
	if (wb_gpu_get(NULL, &g, &err) || wb_gpu_enter(g, &err)) {
		fprintf(stderr, "worker: %s\n", err.msg);
		exit(1);
	}
	for (size_t i = 0; i < MX_MEMORIES; i++)
		rc[i] = allocate(g, &mx_memories[i], &addr[i], &why[i]);
	while (recv(sock, &q, sizeof(q), 0) == sizeof(q) && q.what != MX_END) {
		struct mx_answer a = {.rc = rc[q.memory], .desc.fd = -1};

		if (!a.rc) {
			answer(sock, g, addr[q.memory], &q);
			continue;
		}
		snprintf(a.why, sizeof(a.why), "%.500s", why[q.memory].msg);
		fx_send(sock, &a, sizeof(a), NULL, 0);
	}
	exit(0);
}
