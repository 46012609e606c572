/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MEM_TRAVEL_H
#define WB_MEM_TRAVEL_H
/*
 * A description of memory as bytes for another process; its descriptors are sent along, in their
 * order.
 *
 *	u32 kind, u32 n_piece, uuid, u64 offset, u64 bytes, handle, n_piece x u64 bytes of a piece
 *
 * Pure.  Threads: any.  Layer: mem (L1).
 */
#include "mem/mem.h"

struct wb_buf;
struct wb_cursor;

#define WB_MEM_TRAVEL_BYTES (24 + WB_MEM_UUID_BYTES + WB_MEM_HANDLE_BYTES) /* and 8 a piece */

/** wb_mem_put - append @d, of kind CUDA_VMM or CUDA_IPC; the buffer remembers a failure. */
void wb_mem_put(struct wb_buf *b, const struct wb_mem_desc *d);

/* What a description is read into. */
struct wb_mem_taken {
	struct wb_mem_desc desc; /* points to @piece, so it must not be copied */
	struct wb_mem_piece piece[WB_MEM_PIECES_MAX];
};

/**
 * wb_mem_take - read a description that another process sent
 * @fds, @n_fd:	received descriptors that were not taken yet; borrowed
 * @out:	written; its descriptors are the first desc.n_piece of @fds
 * 0; -EINVAL with a sentence: cut short, another kind, more pieces than WB_MEM_PIECES_MAX or than
 * descriptors.  The numbers are checked only by wb_mem_import().
 */
int wb_mem_take(struct wb_cursor *c, const int *fds, uint32_t n_fd, struct wb_mem_taken *out,
	struct wb_err *err);

#endif
