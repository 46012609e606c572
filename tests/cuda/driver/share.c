/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that goes to another process: descriptors of VMM, IPC handles, dma-bufs. */
#include "tests/cuda/driver/internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IPC_MAGIC 0x6674634970634663ull

struct ipc {
	uint64_t magic, serial, block_bytes;
	uint64_t offset, bytes; /* of the allocation in the block */
	uint64_t name; /* where the exporter answers */
	int32_t device, pad;
	uint8_t unused[8];
};
_Static_assert(sizeof(struct ipc) == WBCU_IPC_BYTES, "what applications copy");

/* Is it memory of a device, and of which? */
static bool read_name(int fd, int *device, uint64_t *serial)
{
	char path[64], name[128] = "";
	unsigned long long n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, name, sizeof(name) - 1) < 0 ||
		sscanf(name, "/memfd:fakecuda-%d-%llx", device, &n) != 2)
		return false;
	*serial = n;
	return true;
}

static struct fc_block *block_with(uint64_t serial)
{
	for (struct fc_block *b = fc.block; b; b = b->next)
		if (b->serial == serial)
			return b;
	return NULL;
}

/* ---- VMM ------------------------------------------------------------------------------------- */

int cuMemExportToShareableHandle(void *out, uint64_t handle, int type, unsigned long long flags)
{
	int rc = fc_enter(__func__, FC_SOUND), fd;
	struct fc_block *b;

	if (rc)
		return rc;
	for (b = fc.block; b && (b->id != handle || !b->n_handle); b = b->next)
		;
	if (!b || type != WBCU_HANDLE_FD || !(b->handle_types & type) || flags)
		return fc_leave(WBCU_INVALID_VALUE);
	fd = fcntl(b->fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return fc_leave(WBCU_UNKNOWN);
	memcpy(out, &fd, sizeof(fd));
	return fc_leave(WBCU_SUCCESS);
}

int cuMemImportFromShareableHandle(uint64_t *handle, void *what, int type)
{
	int rc = fc_enter(__func__, FC_SOUND), fd = (int)(intptr_t)what, device;
	struct fc_block *b;
	struct stat st;
	uint64_t serial;

	if (rc)
		return rc;
	if (type != WBCU_HANDLE_FD || !read_name(fd, &device, &serial) || fstat(fd, &st))
		return fc_leave(WBCU_INVALID_VALUE);
	if (fc_number(device) < 0)
		return fc_leave(WBCU_INVALID_DEVICE);
	b = block_with(serial);
	if (!b) {
		rc = fc_block_new(
			(size_t)st.st_size, device, fcntl(fd, F_DUPFD_CLOEXEC, 3), serial, &b);
		if (rc)
			return fc_leave(rc);
	}
	b->n_handle++;
	fc.count.handles++;
	*handle = b->id;
	return fc_leave(WBCU_SUCCESS);
}

/* ---- IPC ------------------------------------------------------------------------------------- */

int cuIpcGetMemHandle(struct wbcu_ipc *out, uint64_t addr)
{
	int rc = fc_enter(__func__, FC_CONTEXT);
	const struct fc_mapping *m;
	const struct fc_alloc *a;
	struct ipc h;

	if (rc)
		return rc;
	m = fc_mapping_at(fc.mapping, addr, 1);
	a = fc_alloc_at(addr);
	if (!m || !a || m->n_ipc)
		return fc_leave(WBCU_INVALID_VALUE);
	h = (struct ipc){.magic = IPC_MAGIC,
		.serial = m->block->serial,
		.block_bytes = m->bytes,
		.offset = a->addr - m->addr,
		.bytes = a->bytes,
		.name = fc_serve_name(),
		.device = m->block->device};
	memcpy(out, &h, sizeof(h));
	return fc_leave(WBCU_SUCCESS);
}

static struct fc_mapping *mapping_of(uint64_t serial)
{
	for (struct fc_mapping *m = fc.mapping; m; m = m->next)
		if (m->block->serial == serial)
			return m;
	return NULL;
}

static int open_handle(const struct ipc *h, struct fc_mapping **out)
{
	struct fc_block *b;
	int fd, rc;

	*out = mapping_of(h->serial); /* opened before */
	if (*out)
		return WBCU_SUCCESS;
	fd = fc_ask(h->name, h->serial);
	if (fd < 0)
		return WBCU_INVALID_VALUE;
	*out = mapping_of(h->serial); /* or meanwhile */
	if (*out) {
		close(fd);
		return WBCU_SUCCESS;
	}
	rc = fc_block_new((size_t)h->block_bytes, h->device, fd, h->serial, &b);
	if (rc) {
		close(fd);
		return rc;
	}
	b->is_legacy = true;
	return fc_map(b, 0, b->bytes, out);
}

int cuIpcOpenMemHandle_v2(uint64_t *addr, struct wbcu_ipc handle, unsigned flags)
{
	int rc = fc_enter(__func__, FC_CONTEXT);
	struct fc_mapping *m;
	struct ipc h;

	if (rc)
		return rc;
	memcpy(&h, &handle, sizeof(h));
	if (h.magic != IPC_MAGIC || flags != WBCU_IPC_LAZY_PEER)
		return fc_leave(WBCU_INVALID_VALUE);
	if (h.name == fc_serve_name() || h.device != fc_current()->number)
		return fc_leave(WBCU_INVALID_CONTEXT);
	rc = open_handle(&h, &m);
	if (rc)
		return fc_leave(rc);
	*addr = fc_alloc_open(m, h.offset, (size_t)h.bytes);
	return fc_leave(WBCU_SUCCESS);
}

int cuIpcCloseMemHandle(uint64_t addr)
{
	int rc = fc_enter(__func__, FC_CONTEXT);

	return rc ? rc : fc_leave(fc_alloc_close(addr));
}

/* ---- dma-buf: the memfd once more, its position where the range begins ------------------------
 */

int cuMemGetHandleForAddressRange(
	void *out, uint64_t addr, size_t bytes, int type, unsigned long long flags)
{
	int rc = fc_enter(__func__, FC_CONTEXT), fd;
	const struct fc_mapping *m;
	char path[64];

	if (rc)
		return rc;
	m = fc_mapping_at(fc.mapping, addr, bytes);
	if (!m || type != WBCU_RANGE_DMABUF || flags || !bytes || addr % 4096 || bytes % 4096)
		return fc_leave(WBCU_INVALID_VALUE);
	if (!fc.device[m->block->device].attribute[WBCU_DEVICE_HAS_DMABUF])
		return fc_leave(WBCU_NOT_SUPPORTED);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", m->block->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || lseek(fd, (off_t)(addr - m->addr), SEEK_SET) < 0)
		return fc_leave(WBCU_UNKNOWN);
	memcpy(out, &fd, sizeof(fd));
	return fc_leave(WBCU_SUCCESS);
}
