/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MEM_MEM_H
#define WB_MEM_MEM_H
/*
 * Memory of a worker, by kind, as its agent can use it.
 *
 * A worker describes each memory object by its kind and what the kind travels as: a descriptor,
 * several, or a handle.  wb_mem_import() makes that usable here and says how (enum wb_mem_access):
 * an address alone says nothing, since one of a device looks like one of the host and must never be
 * touched by the CPU.  wb_mem_export() is the worker's side: it finds out what memory of a device
 * can travel as.
 *
 * Invariant: an object stays whole while it is imported.  A memfd cannot shrink under its mapping,
 * so no SIGBUS, and the driver keeps what was exported as descriptors.  Memory of an IPC handle is
 * promised for as long as the worker lives (README.md: a driver kept it longer): who works on it
 * stops when the worker is gone, and releases.
 * Devices are named by UUID: numbers differ between processes (CUDA_VISIBLE_DEVICES).
 * Threads: any; an object belongs to one thread at a time.  Blocks (mmap, the driver).
 * Layer: mem (L1).
 */
#include <stddef.h>
#include <stdint.h>

struct wb_err;
struct wb_gpu;

/* Numbers travel in messages: append only. */
enum wb_mem_kind {
	WB_MEM_MEMFD = 1, /* shared memory file: the agent maps it */
	WB_MEM_HEAP = 2, /* memory that only the worker can touch, the host's or a device's: its
			    lane runs there */
	WB_MEM_CUDA_VMM = 3, /* of cuMemCreate(), each allocation exported as a descriptor */
	WB_MEM_CUDA_IPC = 4, /* of cuMemAlloc() (cudaMalloc), a handle of the whole allocation */
	WB_MEM_DMABUF =
		5, /* of a device, as a dma-buf: for a network interface, without a context */
	WB_MEM_KINDS = 6,
};

/* Who can touch an object, and what its address means. */
enum wb_mem_access {
	WB_MEM_AT_WORKER = 0, /* only the worker: there is no address here */
	WB_MEM_AT_HOST, /* the CPU, here */
	WB_MEM_AT_DEVICE, /* kernels and copies of a device, queued here; never the CPU */
};

#define WB_MEM_UUID_BYTES 16
#define WB_MEM_HANDLE_BYTES 64
/* Allocations of an object.  PyTorch's expandable segments are made of 20 MiB each (of 2 MiB for
 * tensors of up to 1 MiB), so this is 1.25 GiB of a model that has hundreds or thousands of them:
 * what has more stays with the worker.  It is a size of arrays here and no more: a datagram takes
 * 32 descriptors (base/unixsock.h; of the kernel's limit of 253), so many come in several, and each
 * may be closed when it was sent, and when it is mapped, so that RLIMIT_NOFILE bounds those under
 * way. */
#define WB_MEM_PIECES_MAX 64u

/* An allocation of a device; those of an object follow each other without a gap. */
struct wb_mem_piece {
	int fd; /* borrowed in a description */
	uint64_t bytes; /* of all of it */
};

/* A part of an object: bytes [offset, offset + bytes). */
struct wb_mem_desc {
	enum wb_mem_kind kind;
	int fd; /* memfd, dma-buf; borrowed; -1 = none */
	uint64_t offset, bytes; /* memfd: offset is a multiple of the page size */
	uint8_t uuid[WB_MEM_UUID_BYTES]; /* kinds of a device: which one */
	uint8_t handle[WB_MEM_HANDLE_BYTES]; /* CUDA_IPC */
	const struct wb_mem_piece *piece; /* CUDA_VMM; borrowed */
	uint32_t n_piece; /* at most WB_MEM_PIECES_MAX */
};

struct wb_mem {
	const struct wb_mem_ops *ops;
	enum wb_mem_access access;
	void *addr; /* first byte at offset, as access says; NULL = WB_MEM_AT_WORKER */
	uint64_t bytes;
	int fd; /* owned duplicate, -1 = none; of a dma-buf: what to register */
	uint64_t fd_offset; /* of the first byte in it */
	struct wb_gpu *gpu; /* owned reference: WB_MEM_AT_DEVICE; else NULL */
	void *own; /* the kind's */
};

struct wb_mem_ops {
	const char *name;
	enum wb_mem_kind kind;
	enum wb_mem_access access; /* of what was imported */
	/* NULL uuid: of the first device.  0, or -ENOTSUP, -ENODEV with the reason. */
	int (*probe)(const uint8_t *uuid, struct wb_err *err);
	int (*import)(const struct wb_mem_desc *d, struct wb_mem *out, struct wb_err *err);
	void (*release)(struct wb_mem *m);
};

/** wb_mem_ops - of a kind; NULL when the number is unknown. */
const struct wb_mem_ops *wb_mem_ops(uint32_t kind);

/**
 * wb_mem_import - make a worker's memory object usable here
 * @d:		description from an untrusted peer; its descriptors are duplicated
 * @out:	filled on success; wb_mem_release()
 * 0; -EINVAL: unknown kind, length 0, unaligned offset, an object shorter than offset + bytes,
 * descriptors that are no memory of that device, or not as long as is said (figures named);
 * -EPERM: cannot be sealed against shrinking (the sentence says how to create it).
 * Not an error of the worker's, who may do the work itself (WB_MEM_HEAP): -ENOTSUP: no driver, or
 * a device without what the kind needs; -ENODEV: the device is hidden from this process; -EXDEV:
 * the handle cannot be opened from here (the sentence names what has to be so).
 * -EIO: the device failed; -ENOMEM, -EMFILE, ...
 */
int wb_mem_import(const struct wb_mem_desc *d, struct wb_mem *out, struct wb_err *err);
/** wb_mem_release - unmap and forget; what it took of a device is free again.  Work on it is over.
 *  A zeroed object is allowed. */
void wb_mem_release(struct wb_mem *m);

/**
 * wb_mem_reach - one line on what of a device can be imported here, and why the rest cannot
 * @uuid:	NULL = the first device
 * For status and logs: "cuda-vmm: yes; cuda-ipc: yes; dmabuf: no: ...".  Whether the handle of
 * a worker can be opened only its import tells.  Blocks.
 */
void wb_mem_reach(const uint8_t *uuid, char *out, size_t out_bytes);

/* What memory of a device can travel as.  Not to be copied: it points into itself. */
struct wb_mem_export {
	struct wb_mem_desc desc; /* WB_MEM_HEAP: it cannot; uuid is set in any case */
	struct wb_mem_piece piece[WB_MEM_PIECES_MAX]; /* what desc.piece points to; fds owned */
	char why[512]; /* WB_MEM_HEAP: the reason, and which setting of the allocator helps */
};

/**
 * wb_mem_where - whose memory @addr is
 * 1: a device's; 0: not, also without a driver; -EIO: the driver does not answer (a device is
 * lost), and the CPU must not touch what may be a device's.
 */
int wb_mem_where(const void *addr, struct wb_err *err);
/** wb_mem_is_device - is @addr memory of a device?  False also without a driver. */
int wb_mem_is_device(const void *addr);
/**
 * wb_mem_device - which device [@addr, @addr + @bytes) of this process lies on
 * @uuid_out:	WB_MEM_UUID_BYTES; written on success
 * Asks for both ends: the range may be of several allocations.  0; -EINVAL: an end is no memory of
 * a device, or they are of two; -ENOTSUP: no driver.
 */
int wb_mem_device(const void *addr, uint64_t bytes, uint8_t *uuid_out, struct wb_err *err);
/**
 * wb_mem_export - find out how [@addr, @addr + @bytes) of this process was allocated
 * @out:	written on success; wb_mem_export_finish()
 * 0, also when it cannot travel; -EINVAL: no memory of one device, or not all of it allocated;
 * -ENOTSUP: no driver; -EIO.
 */
int wb_mem_export(const void *addr, uint64_t bytes, struct wb_mem_export *out, struct wb_err *err);
/** wb_mem_export_finish - close its descriptors.  A zeroed one is allowed. */
void wb_mem_export_finish(struct wb_mem_export *x);

/* What a network interface has to be told of memory of a device. */
struct wb_mem_nic {
	int dmabuf_fd; /* owned; -1 = none, for the reason in .why */
	uint64_t dmabuf_off; /* of the first byte in it */
	char pci[16]; /* where the device is: "0000:3b:00.0"; "" = the driver does not say */
	char why[256];
};

/**
 * wb_mem_nic - describe [@addr, @addr + @bytes), this process's own or imported, for registering
 * @out:	written on success; wb_mem_nic_finish().  The dma-buf keeps the memory, as what is
 *		registered from it does, also when its descriptor is closed
 * 0, also where the device exports no dma-buf; -EINVAL: no memory of one device; -ENOTSUP: no
 * driver; -EIO.  Makes a context of the device where this process has none.
 */
int wb_mem_nic(const void *addr, uint64_t bytes, struct wb_mem_nic *out, struct wb_err *err);
/** wb_mem_nic_finish - close its descriptor.  Again: nothing; a zeroed one is not allowed. */
void wb_mem_nic_finish(struct wb_mem_nic *x);

/* Memory of a device that is there to be tried with. */
struct wb_mem_sample {
	void *addr; /* of the device */
	uint64_t bytes;
	struct wb_gpu *gpu; /* owned reference */
};

/** wb_mem_sample - allocate @bytes on the first device of this process: 0; -ENOTSUP, -ENODEV: there
 *  is none; -ENOMEM, -EIO.  wb_mem_sample_finish() */
int wb_mem_sample(uint64_t bytes, struct wb_mem_sample *out, struct wb_err *err);
/** wb_mem_sample_finish - free it. */
void wb_mem_sample_finish(struct wb_mem_sample *s);

/** wb_memfd_create - a memfd of @bytes, close-on-exec, sealed against shrinking and growing.
 *  Returns the descriptor, -EINVAL, -EMFILE, -ENOMEM, ... */
int wb_memfd_create(const char *name, uint64_t bytes, struct wb_err *err);
/** wb_memfd_check - the object behind @fd is at least @bytes long and can never be shorter (the
 *  seal is applied when it is missing).  0, -EINVAL or -EPERM as above.  *size_out may be NULL. */
int wb_memfd_check(int fd, uint64_t bytes, uint64_t *size_out, struct wb_err *err);

#endif
