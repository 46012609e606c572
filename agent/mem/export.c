/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out in which form this process's memory of a device can be passed to another process. */
#include "base/base.h"
#include "base/err.h"
#include "mem/gpu.h"
#include "mem/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The driver may allocate what does not fill blocks of this size in a block that other allocations
 * share, and a handle gives access to the whole block.  CUDA's guide says to share only whole
 * blocks.  Where the handle was opened, copies to a neighbour in the block are refused, but a
 * kernel can write there (tests/cuda/answers.txt). */
#define IPC_BLOCK ((uint64_t)2 << 20)

#define SETTING                                                                                    \
	"with PyTorch, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True gives memory that can be"

struct range {
	uint64_t addr, bytes;
};

static int type_of(const struct wbcu *cu, uint64_t addr, int *device)
{
	unsigned type = 0;
	int what[] = {WBCU_POINTER_MEMORY_TYPE, WBCU_POINTER_DEVICE};
	void *to[] = {&type, device};

	*device = -1;
	return cu->pointer_attributes(2, what, to, addr) == WBCU_SUCCESS ? (int)type : 0;
}

int wb_mem_where(const void *addr, struct wb_err *err)
{
	const struct wbcu *cu;
	unsigned type = 0;
	int what = WBCU_POINTER_MEMORY_TYPE, rc;
	void *to = &type;

	if (wbcu_load(&cu, NULL))
		return 0;
	rc = cu->pointer_attributes(1, &what, &to, (uintptr_t)addr);
	if (rc)
		return wb_err_set(err, -EIO, "cuPointerGetAttributes: error %d", rc);
	return type == WBCU_MEMORY_DEVICE;
}

int wb_mem_is_device(const void *addr)
{
	const struct wbcu *cu;
	int device;

	return !wbcu_load(&cu, NULL) && type_of(cu, (uintptr_t)addr, &device) == WBCU_MEMORY_DEVICE;
}

int wb_mem_device(const void *addr, uint64_t bytes, uint8_t *uuid_out, struct wb_err *err)
{
	uint64_t first = (uintptr_t)addr;
	const struct wbcu *cu;
	struct wbcu_uuid uuid;
	int device, last, rc = wbcu_load(&cu, err);

	assert(uuid_out);
	if (rc)
		return rc;
	if (!bytes || first + bytes < first || type_of(cu, first, &device) != WBCU_MEMORY_DEVICE ||
		cu->device_uuid(&uuid, device))
		return wb_err_set(err, -EINVAL, "%llu bytes that are no memory of a GPU",
			(unsigned long long)bytes);
	if (type_of(cu, first + bytes - 1, &last) != WBCU_MEMORY_DEVICE || last != device)
		return wb_err_set(err, -EINVAL,
			"%llu bytes of a GPU's memory reach beyond what was allocated",
			(unsigned long long)bytes);
	memcpy(uuid_out, uuid.bytes, WB_MEM_UUID_BYTES);
	return 0;
}

/* The memory stays with the worker, for the reason @why. */
static int keep(struct wb_mem_export *x, const char *why)
{
	for (uint32_t i = 0; i < x->desc.n_piece; i++)
		close(x->piece[i].fd);
	x->desc.n_piece = 0;
	x->desc.kind = WB_MEM_HEAP;
	snprintf(x->why, sizeof(x->why), "memory of the GPU that only the worker can use: %.400s",
		why);
	return 0;
}

/* ---- VMM ------------------------------------------------------------------------------------- */

/* Find the mapping that @at lies in.  It is a whole allocation, since the driver does not map a
 * part of one. */
static int range_at(struct wb_gpu *g, uint64_t at, struct range *r, struct wb_err *err)
{
	uint64_t start = 0;
	size_t bytes = 0;
	int rc = wb_gpu_rc(g, g->cu->pointer_attribute(&start, WBCU_POINTER_BLOCK_START, at),
		"cuPointerGetAttribute", err);

	if (!rc)
		rc = wb_gpu_rc(g, g->cu->pointer_attribute(&bytes, WBCU_POINTER_BLOCK_BYTES, at),
			"cuPointerGetAttribute", err);
	if (!rc && start + bytes <= at)
		rc = wb_err_set(err, -EIO, "%s: a mapping that ends before its bytes", g->name);
	*r = (struct range){start, bytes};
	return rc;
}

/* Find the mapping that @at lies in, and get a descriptor of its allocation. */
static int export_piece(struct wb_gpu *g, uint64_t at, struct range *r, int *fd, struct wb_err *err)
{
	uint64_t handle;
	int rc = range_at(g, at, r, err);

	if (!rc)
		rc = wb_gpu_rc(g, g->cu->vmm_retain(&handle, (void *)(uintptr_t)at),
			"cuMemRetainAllocationHandle", err);
	if (rc)
		return rc;
	rc = wb_gpu_rc(g, g->cu->vmm_export(fd, handle, WBCU_HANDLE_FD, 0),
		"cuMemExportToShareableHandle", err);
	g->cu->vmm_release(handle);
	return rc;
}

/* The memory stays with the worker, since it has more than WB_MEM_PIECES_MAX allocations; the first
 * ones end at @at.  The reason says how many there are. */
static int keep_many(
	struct wb_gpu *g, const struct range *want, uint64_t at, struct wb_mem_export *x)
{
	uint32_t n = x->desc.n_piece;
	char why[128];

	while (at < want->addr + want->bytes) {
		struct range r;

		if (range_at(g, at, &r, NULL))
			break;
		at = r.addr + r.bytes;
		n++;
	}
	snprintf(why, sizeof(why), "%llu bytes in %u allocations: at most %u are shared",
		(unsigned long long)want->bytes, n, WB_MEM_PIECES_MAX);
	return keep(x, why);
}

static int export_vmm(
	struct wb_gpu *g, const struct range *want, struct wb_mem_export *x, struct wb_err *err)
{
	uint64_t at = want->addr;

	x->desc.kind = WB_MEM_CUDA_VMM;
	while (at < want->addr + want->bytes) {
		struct wb_mem_piece *p = &x->piece[x->desc.n_piece];
		struct range r;
		int rc;

		if (x->desc.n_piece == WB_MEM_PIECES_MAX)
			return keep_many(g, want, at, x);
		rc = export_piece(g, at, &r, &p->fd, err);
		if (rc == -EPERM || rc == -ENOTSUP || rc == -EINVAL)
			return keep(x, err->msg);
		if (rc)
			return rc;
		if (!x->desc.n_piece)
			x->desc.offset = at - r.addr;
		p->bytes = r.bytes;
		x->desc.n_piece++;
		at = r.addr + r.bytes;
	}
	return 0;
}

/* ---- legacy ---------------------------------------------------------------------------------- */

/* Does @want continue from @at, the end of an allocation, through other allocations without a
 * gap? */
static bool is_in_neighbours(struct wb_gpu *g, const struct range *want, uint64_t at)
{
	while (at < want->addr + want->bytes) {
		uint64_t base = 0;
		size_t bytes = 0;

		if (g->cu->mem_range(&base, &bytes, at) || base != at || !bytes)
			return false;
		at += bytes;
	}
	return true;
}

static int export_ipc(
	struct wb_gpu *g, const struct range *want, struct wb_mem_export *x, struct wb_err *err)
{
	uint64_t base = 0;
	size_t bytes = 0;
	struct wbcu_ipc handle;
	int rc = wb_gpu_rc(
		g, g->cu->mem_range(&base, &bytes, want->addr), "cuMemGetAddressRange", err);

	if (rc)
		return rc;
	if (want->addr + want->bytes > base + bytes && is_in_neighbours(g, want, base + bytes))
		return keep(x,
			"it is of several allocations, and a handle is of one; " SETTING " shared");
	if (want->addr + want->bytes > base + bytes)
		return wb_err_set(err, -EINVAL,
			"%llu bytes of a GPU's memory reach beyond their allocation of %llu",
			(unsigned long long)want->bytes, (unsigned long long)bytes);
	if (bytes % IPC_BLOCK)
		return keep(x, "an allocation that is no multiple of 2 MiB may share a block with "
			       "others; " SETTING " given away");
	rc = wb_gpu_rc(g, g->cu->ipc_export(&handle, base), "cuIpcGetMemHandle", err);
	if (rc)
		return rc == -EIO || rc == -ENOMEM ? rc : keep(x, err->msg);
	memcpy(x->desc.handle, &handle, sizeof(handle));
	x->desc.kind = WB_MEM_CUDA_IPC;
	x->desc.offset = want->addr - base;
	return 0;
}

/* ---- either ---------------------------------------------------------------------------------- */

static int export_from(
	struct wb_gpu *g, const struct range *want, struct wb_mem_export *x, struct wb_err *err)
{
	uint64_t types = 0;
	int is_ipc = 0, rc;

	rc = wb_gpu_rc(g,
		g->cu->pointer_attribute(&is_ipc, WBCU_POINTER_IS_IPC_CAPABLE, want->addr),
		"cuPointerGetAttribute", err);
	if (!rc)
		rc = wb_gpu_rc(g,
			g->cu->pointer_attribute(&types, WBCU_POINTER_HANDLE_TYPES, want->addr),
			"cuPointerGetAttribute", err);
	if (rc)
		return rc;
	if (types & WBCU_HANDLE_FD)
		return export_vmm(g, want, x, err);
	if (is_ipc)
		return export_ipc(g, want, x, err);
	return keep(x, "its allocator made it for this process alone, or it came from another "
		       "process; " SETTING " shared");
}

int wb_mem_export(const void *addr, uint64_t bytes, struct wb_mem_export *out, struct wb_err *err)
{
	const struct range want = {(uintptr_t)addr, bytes};
	struct wb_mem_export x = {.desc = {.fd = -1, .bytes = bytes, .kind = WB_MEM_HEAP}};
	struct wb_err here = {0};
	struct wb_gpu *g;
	int rc = wb_mem_device(addr, bytes, x.desc.uuid, err);

	assert(out);
	if (!rc)
		rc = wb_gpu_get(x.desc.uuid, &g, err);
	if (rc)
		return rc;
	rc = wb_gpu_enter(g, &here);
	if (!rc) {
		rc = export_from(g, &want, &x, &here);
		wb_gpu_leave(g);
	}
	wb_gpu_put(g);
	if (rc) {
		wb_mem_export_finish(&x);
		return wb_err_set(err, rc, "%s", here.msg);
	}
	*out = x;
	out->desc.piece = out->piece;
	return 0;
}

void wb_mem_export_finish(struct wb_mem_export *x)
{
	for (uint32_t i = 0; i < x->desc.n_piece; i++)
		close(x->piece[i].fd);
	memset(x, 0, sizeof(*x));
	x->desc.fd = -1;
}

/* ---- for a network interface ----------------------------------------------------------------- */

static void find_pci(struct wb_gpu *g, char *out, size_t out_bytes)
{
	int bus = 0, device = 0, domain = 0;

	if (g->cu->device_attribute(&bus, WBCU_DEVICE_PCI_BUS, g->number) ||
		g->cu->device_attribute(&device, WBCU_DEVICE_PCI_DEVICE, g->number) ||
		g->cu->device_attribute(&domain, WBCU_DEVICE_PCI_DOMAIN, g->number))
		return;
	snprintf(out, out_bytes, "%04x:%02x:%02x.0", (unsigned)domain & 0xffffff,
		(unsigned)bus & 0xff, (unsigned)device & 0xff);
}

/* The driver exports whole pages of the host's size. */
static int export_dmabuf(
	struct wb_gpu *g, const struct range *want, struct wb_mem_nic *x, struct wb_err *err)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = want->addr / page * page;
	uint64_t end = wb_align_up(want->addr + want->bytes, page);
	int has = 0, fd = -1, rc;

	rc = wb_gpu_rc(g, g->cu->device_attribute(&has, WBCU_DEVICE_HAS_DMABUF, g->number),
		"cuDeviceGetAttribute", err);
	if (rc)
		return rc;
	if (!has)
		return wb_err_set(err, -ENOTSUP, "%s exports no memory as dma-bufs", g->name);
	rc = wb_gpu_rc(g, g->cu->range_export(&fd, first, end - first, WBCU_RANGE_DMABUF, 0),
		"cuMemGetHandleForAddressRange", err);
	if (rc)
		return rc;
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	x->dmabuf_fd = fd;
	x->dmabuf_off = want->addr - first;
	return 0;
}

int wb_mem_nic(const void *addr, uint64_t bytes, struct wb_mem_nic *out, struct wb_err *err)
{
	const struct range want = {(uintptr_t)addr, bytes};
	struct wb_mem_nic x = {.dmabuf_fd = -1};
	struct wb_err here = {0};
	uint8_t uuid[WB_MEM_UUID_BYTES];
	struct wb_gpu *g;
	int rc = wb_mem_device(addr, bytes, uuid, err);

	assert(out);
	if (!rc)
		rc = wb_gpu_get(uuid, &g, err);
	if (rc)
		return rc;
	find_pci(g, x.pci, sizeof(x.pci));
	rc = wb_gpu_enter(g, &here);
	if (!rc) {
		rc = export_dmabuf(g, &want, &x, &here);
		wb_gpu_leave(g);
	}
	wb_gpu_put(g);
	if (rc == -EIO)
		return wb_err_set(err, rc, "%s", here.msg);
	snprintf(x.why, sizeof(x.why), "%.250s", here.msg);
	*out = x;
	return 0;
}

void wb_mem_nic_finish(struct wb_mem_nic *x)
{
	if (x->dmabuf_fd >= 0)
		close(x->dmabuf_fd);
	x->dmabuf_fd = -1;
}

/* ---- samples: memory for trying out what works ----------------------------------------------- */

int wb_mem_sample(uint64_t bytes, struct wb_mem_sample *out, struct wb_err *err)
{
	struct wb_mem_sample s = {.bytes = bytes};
	uint64_t addr = 0;
	int rc = wb_gpu_get(NULL, &s.gpu, err);

	if (rc)
		return rc;
	rc = wb_gpu_enter(s.gpu, err);
	if (!rc) {
		rc = wb_gpu_rc(s.gpu, s.gpu->cu->mem_alloc(&addr, bytes), "cuMemAlloc", err);
		wb_gpu_leave(s.gpu);
	}
	if (rc) {
		wb_gpu_put(s.gpu);
		return rc;
	}
	s.addr = (void *)(uintptr_t)addr;
	*out = s;
	return 0;
}

void wb_mem_sample_finish(struct wb_mem_sample *s)
{
	if (!wb_gpu_enter(s->gpu, NULL)) {
		s->gpu->cu->mem_free((uintptr_t)s->addr);
		wb_gpu_leave(s->gpu);
	}
	wb_gpu_put(s->gpu);
	memset(s, 0, sizeof(*s));
}
