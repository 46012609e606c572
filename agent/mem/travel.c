/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/travel.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"

#include <errno.h>
#include <string.h>

void wb_mem_put(struct wb_buf *b, const struct wb_mem_desc *d)
{
	assert(d->kind == WB_MEM_CUDA_VMM || d->kind == WB_MEM_CUDA_IPC);
	assert(d->n_piece <= WB_MEM_PIECES_MAX);
	wb_buf_u32(b, d->kind);
	wb_buf_u32(b, d->n_piece);
	wb_buf_put(b, d->uuid, sizeof(d->uuid));
	wb_buf_u64(b, d->offset);
	wb_buf_u64(b, d->bytes);
	wb_buf_put(b, d->handle, sizeof(d->handle));
	for (uint32_t i = 0; i < d->n_piece; i++)
		wb_buf_u64(b, d->piece[i].bytes);
}

int wb_mem_take(struct wb_cursor *c, const int *fds, uint32_t n_fd, struct wb_mem_taken *out,
	struct wb_err *err)
{
	struct wb_mem_desc *d = &out->desc;
	const uint8_t *uuid, *handle;

	*d = (struct wb_mem_desc){.fd = -1, .piece = out->piece};
	d->kind = (enum wb_mem_kind)wb_cur_u32(c);
	d->n_piece = wb_cur_u32(c);
	uuid = wb_cur_bytes(c, sizeof(d->uuid));
	d->offset = wb_cur_u64(c);
	d->bytes = wb_cur_u64(c);
	handle = wb_cur_bytes(c, sizeof(d->handle));
	if (c->bad || !uuid || !handle)
		return wb_err_set(err, -EINVAL, "a description of memory is cut short");
	if (d->kind != WB_MEM_CUDA_VMM && d->kind != WB_MEM_CUDA_IPC)
		return wb_err_set(
			err, -EINVAL, "memory of kind %u does not travel", (unsigned)d->kind);
	if (d->n_piece > WB_MEM_PIECES_MAX || d->n_piece > n_fd)
		return wb_err_set(err, -EINVAL,
			"memory of %u allocations: %u descriptors came for it, at most %u are "
			"taken",
			d->n_piece, n_fd, WB_MEM_PIECES_MAX);
	memcpy(d->uuid, uuid, sizeof(d->uuid));
	memcpy(d->handle, handle, sizeof(d->handle));
	for (uint32_t i = 0; i < d->n_piece; i++)
		out->piece[i] = (struct wb_mem_piece){fds[i], wb_cur_u64(c)};
	return c->bad ? wb_err_set(err, -EINVAL, "a description of memory is cut short") : 0;
}
