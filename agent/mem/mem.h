/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MEM_MEM_H
#define WB_MEM_MEM_H
/*
 * Memory of a worker, by kind, as its agent can use it.
 *
 * A worker describes each memory object by kind, length and (most kinds) a descriptor; the kind's
 * ops turn that into an address here, or say that only the worker itself can touch it.
 *
 * Invariant: a mapped object cannot shrink under the mapping, so no SIGBUS.
 * Threads: any; an object belongs to one thread at a time.  Blocks (mmap).  Layer: mem (L1).
 */
#include <stdint.h>

struct wb_err;

/* Numbers travel in messages: append only. */
enum wb_mem_kind {
	WB_MEM_MEMFD = 1, /* shared memory file: the agent maps it */
	WB_MEM_HEAP = 2, /* private memory of the worker: its lane runs there */
	WB_MEM_CUDA_VMM = 3, /* cuMemCreate, exported as a descriptor */
	WB_MEM_CUDA_IPC = 4, /* cudaIpcMemHandle */
	WB_MEM_DMABUF = 5, /* dma-buf descriptor */
	WB_MEM_KINDS = 6,
};

#define WB_MEM_HANDLE_BYTES 64

struct wb_mem_desc {
	enum wb_mem_kind kind;
	uint32_t device;
	int fd; /* borrowed; -1 = none */
	uint8_t handle[WB_MEM_HANDLE_BYTES]; /* kinds without a descriptor */
	uint64_t offset, bytes; /* part of the object; offset a multiple of the page size */
};

struct wb_mem {
	const struct wb_mem_ops *ops;
	void *addr; /* first byte at offset, or NULL when not mappable here */
	uint64_t bytes;
	int fd; /* owned duplicate, -1 = none */
	uint32_t device;
};

enum {
	WB_MEM_MAPPABLE = 1, /* import gives an address the host can read and write */
	WB_MEM_DEVICE = 2, /* memory of an accelerator */
};

struct wb_mem_ops {
	const char *name;
	enum wb_mem_kind kind;
	uint32_t flags;
	int (*probe)(struct wb_err *err); /* 0, or -ENOSYS with the reason */
	int (*import)(const struct wb_mem_desc *d, struct wb_mem *out, struct wb_err *err);
	void (*release)(struct wb_mem *m);
};

/** wb_mem_ops - of a kind; NULL when the number is unknown. */
const struct wb_mem_ops *wb_mem_ops(uint32_t kind);

/**
 * wb_mem_import - make a worker's memory object usable here
 * @d:		descriptor from an untrusted peer; its fd is duplicated
 * @out:	filled on success; wb_mem_release()
 * Returns 0 (heap: with addr NULL); -EINVAL (unknown kind, length 0, unaligned offset, object
 * shorter than offset + bytes: figures named); -EPERM (cannot be sealed against shrinking: the
 * sentence says how to create it); -ENOSYS (kind not built in); -ENOMEM, -EMFILE, ...
 */
int wb_mem_import(const struct wb_mem_desc *d, struct wb_mem *out, struct wb_err *err);
/** wb_mem_release - unmap and forget.  A zeroed object is allowed. */
void wb_mem_release(struct wb_mem *m);

/** wb_memfd_create - a memfd of @bytes, close-on-exec, sealed against shrinking and growing.
 *  Returns the descriptor, -EINVAL, -EMFILE, -ENOMEM, ... */
int wb_memfd_create(const char *name, uint64_t bytes, struct wb_err *err);
/** wb_memfd_check - the object behind @fd is at least @bytes long and can never be shorter (the
 *  seal is applied when it is missing).  0, -EINVAL or -EPERM as above.  *size_out may be NULL. */
int wb_memfd_check(int fd, uint64_t bytes, uint64_t *size_out, struct wb_err *err);

#endif
