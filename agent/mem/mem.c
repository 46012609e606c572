/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/mem.h"

#include "base/base.h"
#include "base/err.h"
#include "mem/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int heap_probe(const uint8_t *uuid, struct wb_err *err)
{
	(void)uuid;
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

static const struct wb_mem_ops heap = {.name = "heap",
	.kind = WB_MEM_HEAP,
	.access = WB_MEM_AT_WORKER,
	.probe = heap_probe,
	.import = heap_import,
	.release = heap_release};

const struct wb_mem_ops *wb_mem_ops(uint32_t kind)
{
	static const struct wb_mem_ops *const ops[WB_MEM_KINDS] = {
		[WB_MEM_MEMFD] = &wb__mem_memfd,
		[WB_MEM_HEAP] = &heap,
		[WB_MEM_CUDA_VMM] = &wb__mem_cuda_vmm,
		[WB_MEM_CUDA_IPC] = &wb__mem_cuda_ipc,
		[WB_MEM_DMABUF] = &wb__mem_dmabuf,
	};

	return kind < WB_MEM_KINDS ? ops[kind] : NULL;
}

int wb_mem_import(const struct wb_mem_desc *d, struct wb_mem *out, struct wb_err *err)
{
	const struct wb_mem_ops *ops = wb_mem_ops(d->kind);
	struct wb_mem m = {.ops = ops, .bytes = d->bytes, .fd = -1};
	int rc;

	if (!ops)
		return wb_err_set(err, -EINVAL, "memory object: unknown kind %u", d->kind);
	m.access = ops->access;
	rc = ops->import(d, &m, err);
	if (rc < 0)
		return rc;
	assert((m.access == WB_MEM_AT_WORKER) == !m.addr);
	assert((m.access == WB_MEM_AT_DEVICE) == (m.gpu != NULL));
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

void wb_mem_reach(const uint8_t *uuid, char *out, size_t out_bytes)
{
	static const enum wb_mem_kind kinds[] = {WB_MEM_CUDA_VMM, WB_MEM_CUDA_IPC, WB_MEM_DMABUF};
	size_t at = 0;

	assert(out && out_bytes);
	out[0] = '\0';
	for (size_t i = 0; i < WB_ARRAY_SIZE(kinds) && at < out_bytes; i++) {
		const struct wb_mem_ops *ops = wb_mem_ops(kinds[i]);
		struct wb_err err = {0};
		int rc = ops->probe(uuid, &err);
		int n = snprintf(out + at, out_bytes - at, "%s%s: %s%s", i ? "; " : "", ops->name,
			rc < 0 ? "no: " : "yes", err.msg);

		at += n > 0 ? (size_t)n : 0;
	}
}
