/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/mem.h"

#include "base/base.h"
#include "base/err.h"
#include "mem/internal.h"

#include <errno.h>
#include <string.h>

static int heap_probe(struct wb_err *err)
{
	(void)err;
	return 0;
}

static int heap_import(const struct wb_mem_desc *d, struct wb_mem *out, struct wb_err *err)
{
	(void)out;
	if (!d->bytes)
		return wb_err_set(err, -EINVAL, "memory object: 0 bytes");
	return 0;
}

static void heap_release(struct wb_mem *m)
{
	(void)m;
}

static int cuda_probe(struct wb_err *err)
{
	return wb_err_set(err, -ENOSYS,
		"this build has no CUDA support: register host memory (memfd or heap)");
}

static int cuda_import(const struct wb_mem_desc *d, struct wb_mem *out, struct wb_err *err)
{
	(void)d;
	(void)out;
	return cuda_probe(err);
}

#define CUDA_KIND(word, number)                                                                    \
	{                                                                                          \
		.name = word, .kind = number, .flags = WB_MEM_DEVICE, .probe = cuda_probe,         \
		.import = cuda_import, .release = heap_release                                     \
	}

static const struct wb_mem_ops heap = {.name = "heap",
	.kind = WB_MEM_HEAP,
	.probe = heap_probe,
	.import = heap_import,
	.release = heap_release};
static const struct wb_mem_ops cuda_vmm = CUDA_KIND("cuda-vmm", WB_MEM_CUDA_VMM);
static const struct wb_mem_ops cuda_ipc = CUDA_KIND("cuda-ipc", WB_MEM_CUDA_IPC);
static const struct wb_mem_ops dmabuf = CUDA_KIND("dmabuf", WB_MEM_DMABUF);

const struct wb_mem_ops *wb_mem_ops(uint32_t kind)
{
	static const struct wb_mem_ops *const ops[WB_MEM_KINDS] = {
		[WB_MEM_MEMFD] = &wb__mem_memfd,
		[WB_MEM_HEAP] = &heap,
		[WB_MEM_CUDA_VMM] = &cuda_vmm,
		[WB_MEM_CUDA_IPC] = &cuda_ipc,
		[WB_MEM_DMABUF] = &dmabuf,
	};

	return kind < WB_MEM_KINDS ? ops[kind] : NULL;
}

int wb_mem_import(const struct wb_mem_desc *d, struct wb_mem *out, struct wb_err *err)
{
	const struct wb_mem_ops *ops = wb_mem_ops(d->kind);
	struct wb_mem m = {.ops = ops, .bytes = d->bytes, .fd = -1, .device = d->device};
	int rc;

	if (!ops)
		return wb_err_set(err, -EINVAL, "memory object: unknown kind %u", d->kind);
	rc = ops->import(d, &m, err);
	if (rc < 0)
		return rc;
	assert(!(ops->flags & WB_MEM_MAPPABLE) || m.addr);
	*out = m;
	return 0;
}

void wb_mem_release(struct wb_mem *m)
{
	if (m->ops)
		m->ops->release(m);
	memset(m, 0, sizeof(*m));
	m->fd = -1;
}
