/* SPDX-License-Identifier: Apache-2.0 */
/* Imports a worker's memory of a device into this process. */
#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "mem/gpu.h"
#include "mem/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what the kinds need --------------------------------------------------------------------- */

static int attribute_is(struct wb_gpu *g, int attribute, const char *what, struct wb_err *err)
{
	int is = 0, rc;

	rc = wb_gpu_rc(
		g, g->cu->device_attribute(&is, attribute, g->number), "cuDeviceGetAttribute", err);
	if (!rc && !is)
		rc = wb_err_set(err, -ENOTSUP, "%s does not %s", g->name, what);
	return rc;
}

static int vmm_probe(const uint8_t *uuid, struct wb_err *err)
{
	struct wb_gpu *g;
	int rc = wb_gpu_get(uuid, &g, err);

	if (rc)
		return rc;
	rc = attribute_is(g, WBCU_DEVICE_HAS_VMM, "manage virtual memory (cuMemCreate)", err);
	if (!rc)
		rc = attribute_is(
			g, WBCU_DEVICE_EXPORTS_FD, "export memory as file descriptors", err);
	wb_gpu_put(g);
	return rc;
}

/* Only opening a handle shows whether it can be opened; this finds out whether the device can be
 * used. */
static int ipc_probe(const uint8_t *uuid, struct wb_err *err)
{
	struct wb_gpu *g;
	int rc = wb_gpu_get(uuid, &g, err);

	if (!rc)
		wb_gpu_put(g);
	return rc;
}

static int dmabuf_probe(const uint8_t *uuid, struct wb_err *err)
{
	struct wb_gpu *g;
	int rc = wb_gpu_get(uuid, &g, err);

	if (rc)
		return rc;
	rc = attribute_is(g, WBCU_DEVICE_HAS_DMABUF, "export memory as dma-bufs", err);
	wb_gpu_put(g);
	return rc;
}

static int check_range(
	const struct wb_mem_desc *d, uint64_t has, const char *what, struct wb_err *err)
{
	uint64_t end;

	if (d->bytes && !__builtin_add_overflow(d->offset, d->bytes, &end) && end <= has)
		return 0;
	return wb_err_set(err, -EINVAL, "memory object: %llu bytes at offset %llu of %s of %llu",
		(unsigned long long)d->bytes, (unsigned long long)d->offset, what,
		(unsigned long long)has);
}

/* ---- descriptors of VMM ---------------------------------------------------------------------- */

struct vmm {
	uint64_t base, bytes; /* the addresses that are reserved */
	uint32_t n_mapped;
	uint64_t piece_bytes[];
};

static void vmm_undo(struct wb_gpu *g, struct vmm *v)
{
	uint64_t at = v->base;

	for (uint32_t i = 0; i < v->n_mapped; i++) {
		g->cu->vmm_unmap(at, v->piece_bytes[i]);
		at += v->piece_bytes[i];
	}
	if (v->base)
		g->cu->vmm_unreserve(v->base, v->bytes);
	wb_free(v);
}

/* Is the allocation on the device that the worker named?  If not, its addresses would be slow, or
 * not valid at all. */
static int check_device(struct wb_gpu *g, uint64_t handle, struct wb_err *err)
{
	struct wbcu_allocation is = {0};
	int rc = wb_gpu_rc(
		g, g->cu->vmm_describe(&is, handle), "cuMemGetAllocationPropertiesFromHandle", err);

	if (!rc && (is.location.type != WBCU_LOCATION_DEVICE || is.location.id != g->number))
		rc = wb_err_set(err, -EINVAL,
			"memory object: a descriptor is of another device than %s", g->name);
	return rc;
}

/* Map a whole allocation.  The driver maps all of it and nothing else, so it knows whether the
 * allocation is as long as the worker says.  If it is not, the driver answers "not supported",
 * which would sound as if this device could not map at all.  But the import of the handle has shown
 * what the device can do, so the fault is the worker's. */
static int map_all(
	struct wb_gpu *g, const struct vmm *v, uint64_t at, uint64_t handle, struct wb_err *err)
{
	uint64_t bytes = v->piece_bytes[v->n_mapped];
	struct wb_err why = {0};
	int rc = wb_gpu_rc(g, g->cu->vmm_map(at, bytes, 0, handle, 0), "cuMemMap", &why);

	if (rc == -EINVAL || rc == -ENOTSUP)
		return wb_err_set(err, -EINVAL,
			"memory object: descriptor %u is of no allocation of %llu bytes: %s",
			v->n_mapped, (unsigned long long)bytes, why.msg);
	return rc ? wb_err_set(err, rc, "%s", why.msg) : 0;
}

/* Import and map one allocation.  The mapping keeps it, so its handle is not needed any more. */
static int map_piece(struct wb_gpu *g, struct vmm *v, uint64_t at, int fd, struct wb_err *err)
{
	uint64_t handle;
	int rc;

	rc = g->cu->vmm_import(&handle, (void *)(intptr_t)fd, WBCU_HANDLE_FD);
	if (rc == WBCU_INVALID_VALUE || rc == WBCU_INVALID_HANDLE)
		return wb_err_set(err, -EINVAL, "memory object: descriptor %u is no memory of %s",
			v->n_mapped, g->name);
	rc = wb_gpu_rc(g, rc, "cuMemImportFromShareableHandle", err);
	if (rc)
		return rc;
	rc = check_device(g, handle, err);
	if (!rc)
		rc = map_all(g, v, at, handle, err);
	if (!rc)
		v->n_mapped++;
	g->cu->vmm_release(handle);
	return rc;
}

static int map_pieces(
	struct wb_gpu *g, const struct wb_mem_desc *d, struct vmm *v, struct wb_err *err)
{
	struct wbcu_access access = {{WBCU_LOCATION_DEVICE, g->number}, WBCU_ACCESS_READWRITE};
	int rc = wb_gpu_rc(
		g, g->cu->vmm_reserve(&v->base, v->bytes, 0, 0, 0), "cuMemAddressReserve", err);
	uint64_t at = v->base;

	for (uint32_t i = 0; !rc && i < d->n_piece; i++) {
		v->piece_bytes[i] = d->piece[i].bytes;
		rc = map_piece(g, v, at, d->piece[i].fd, err);
		at += d->piece[i].bytes;
	}
	if (!rc)
		rc = wb_gpu_rc(
			g, g->cu->vmm_access(v->base, v->bytes, &access, 1), "cuMemSetAccess", err);
	return rc;
}

static int sum_pieces(const struct wb_mem_desc *d, uint64_t *bytes, struct wb_err *err)
{
	*bytes = 0;
	if (!d->n_piece || d->n_piece > WB_MEM_PIECES_MAX)
		return wb_err_set(err, -EINVAL,
			"memory object: %u descriptors, at most %u are taken", d->n_piece,
			WB_MEM_PIECES_MAX);
	for (uint32_t i = 0; i < d->n_piece; i++)
		if (!d->piece[i].bytes || __builtin_add_overflow(*bytes, d->piece[i].bytes, bytes))
			return wb_err_set(err, -EINVAL,
				"memory object: an allocation of %llu bytes",
				(unsigned long long)d->piece[i].bytes);
	return check_range(d, *bytes, "allocations", err);
}

static int vmm_import(const struct wb_mem_desc *d, struct wb_mem *out, struct wb_err *err)
{
	struct wb_gpu *g;
	struct vmm *v;
	uint64_t bytes;
	int rc = sum_pieces(d, &bytes, err);

	if (!rc)
		rc = wb_gpu_get(d->uuid, &g, err);
	if (rc)
		return rc;
	v = wb_zalloc(1, sizeof(*v) + d->n_piece * sizeof(v->piece_bytes[0]));
	rc = v ? wb_gpu_enter(g, err) : wb_err_set(err, -ENOMEM, "no memory for an object");
	if (rc) {
		wb_free(v);
		wb_gpu_put(g);
		return rc;
	}
	v->bytes = bytes;
	rc = map_pieces(g, d, v, err);
	if (rc)
		vmm_undo(g, v);
	wb_gpu_leave(g);
	if (rc) {
		wb_gpu_put(g);
		return rc;
	}
	out->addr = (void *)(uintptr_t)(v->base + d->offset);
	out->gpu = g;
	out->own = v;
	return 0;
}

static void vmm_release(struct wb_mem *m)
{
	/* A lost device refuses all of this: the driver takes the memory back when the process
	 * ends. */
	if (wb_gpu_enter(m->gpu, NULL)) {
		wb_free(m->own);
	} else {
		vmm_undo(m->gpu, m->own);
		wb_gpu_leave(m->gpu);
	}
	wb_gpu_put(m->gpu);
}

/* ---- IPC handles ----------------------------------------------------------------------------- */

static int open_handle(
	struct wb_gpu *g, const struct wb_mem_desc *d, uint64_t *base, struct wb_err *err)
{
	struct wbcu_ipc handle;
	struct wb_err why = {0};
	uint64_t start;
	size_t bytes = 0, all = 0;
	int rc;

	memcpy(&handle, d->handle, sizeof(handle));
	rc = wb_gpu_rc(
		g, g->cu->ipc_open(base, handle, WBCU_IPC_LAZY_PEER), "cuIpcOpenMemHandle", &why);
	if (rc == -ENOMEM)
		return wb_err_set(err, rc, "%s", why.msg);
	/* The result alone does not tell a lost device from a handle that cannot be opened.  But a
	 * lost device fails every call that needs it, also one without the handle. */
	if (rc && g->cu->mem_info(&bytes, &all))
		return wb_err_set(err, -EIO, "%s", why.msg);
	if (rc)
		return wb_err_set(err, -EXDEV,
			"%s: the worker must live, in another process, and have the memory; where "
			"that is so, let both share their namespaces of processes and IPC "
			"(shareProcessNamespace, or hostPID and hostIPC), which not every driver "
			"asks for",
			why.msg);
	rc = wb_gpu_rc(g, g->cu->mem_range(&start, &bytes, *base), "cuMemGetAddressRange", err);
	if (!rc)
		rc = check_range(d, bytes, "an allocation", err);
	if (rc)
		g->cu->ipc_close(*base);
	return rc;
}

static int ipc_import(const struct wb_mem_desc *d, struct wb_mem *out, struct wb_err *err)
{
	struct wb_gpu *g;
	uint64_t base;
	int rc = check_range(d, UINT64_MAX, "an allocation", err);

	if (!rc)
		rc = wb_gpu_get(d->uuid, &g, err);
	if (rc)
		return rc;
	rc = wb_gpu_enter(g, err);
	if (!rc) {
		rc = open_handle(g, d, &base, err);
		wb_gpu_leave(g);
	}
	if (rc) {
		wb_gpu_put(g);
		return rc;
	}
	out->addr = (void *)(uintptr_t)(base + d->offset);
	out->gpu = g;
	out->own = (void *)(uintptr_t)base;
	return 0;
}

static void ipc_release(struct wb_mem *m)
{
	if (!wb_gpu_enter(m->gpu, NULL)) {
		m->gpu->cu->ipc_close((uintptr_t)m->own);
		wb_gpu_leave(m->gpu);
	}
	wb_gpu_put(m->gpu);
}

/* ---- dma-bufs: no address and no context, only something to register ------------------------- */

static int dmabuf_import(const struct wb_mem_desc *d, struct wb_mem *out, struct wb_err *err)
{
	struct stat st;
	int rc;

	if (d->fd < 0)
		return wb_err_set(err, -EINVAL, "memory object: no descriptor came with it");
	if (fstat(d->fd, &st) < 0 || st.st_size < 0)
		return wb_err_set(err, -EINVAL, "memory object: its descriptor has no size");
	rc = check_range(d, (uint64_t)st.st_size, "a dma-buf", err);
	if (rc)
		return rc;
	out->fd = fcntl(d->fd, F_DUPFD_CLOEXEC, 3);
	if (out->fd < 0)
		return wb_err_set(err, -errno, "memory object: dup: %s", strerror(errno));
	out->fd_offset = d->offset;
	return 0;
}

static void dmabuf_release(struct wb_mem *m)
{
	close(m->fd);
}

const struct wb_mem_ops wb__mem_cuda_vmm = {.name = "cuda-vmm",
	.kind = WB_MEM_CUDA_VMM,
	.access = WB_MEM_AT_DEVICE,
	.probe = vmm_probe,
	.import = vmm_import,
	.release = vmm_release};
const struct wb_mem_ops wb__mem_cuda_ipc = {.name = "cuda-ipc",
	.kind = WB_MEM_CUDA_IPC,
	.access = WB_MEM_AT_DEVICE,
	.probe = ipc_probe,
	.import = ipc_import,
	.release = ipc_release};
const struct wb_mem_ops wb__mem_dmabuf = {.name = "dmabuf",
	.kind = WB_MEM_DMABUF,
	.access = WB_MEM_AT_WORKER,
	.probe = dmabuf_probe,
	.import = dmabuf_import,
	.release = dmabuf_release};
