/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MEM_MEM_H
#define WB_MEM_MEM_H
/*
 * Memory of a worker, by kind, made usable for its agent.
 *
 * A worker describes each memory object by its kind and by what is sent for this kind: one
 * descriptor, several, or a handle.  wb_mem_import() makes the object usable here and says how
 * (enum wb_mem_access): an address alone is not enough, since an address of a device looks like one
 * of the host, and must never be touched by the CPU.  wb_mem_export() is the worker's side: it
 * finds out as which kind memory of a device can be sent.
 *
 * Invariant: an object stays whole while it is imported.  A memfd cannot shrink under its mapping,
 * so no SIGBUS, and the driver keeps what was exported as descriptors.  Memory of an IPC handle is
 * guaranteed only as long as the worker lives (README.md: a driver kept it longer): a user must
 * stop when the worker is gone, and release the object.
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
	/* Memory that only the worker can touch, of the host or a device: its lane runs in the
	 * worker */
	WB_MEM_HEAP = 2,
	WB_MEM_CUDA_VMM = 3, /* from cuMemCreate(); each allocation is exported as a descriptor */
	WB_MEM_CUDA_IPC = 4, /* from cuMemAlloc() (cudaMalloc); a handle of the whole allocation */
	WB_MEM_DMABUF =
		5, /* memory of a device as a dma-buf: for a network interface, without a context */
	WB_MEM_KINDS = 6,
};

/* Who can touch an object, and what its address means. */
enum wb_mem_access {
	WB_MEM_AT_WORKER = 0, /* only the worker: there is no address here */
	WB_MEM_AT_HOST, /* the CPU, in this process */
	/* Kernels and copies of a device, queued by this process; never the CPU */
	WB_MEM_AT_DEVICE,
};

#define WB_MEM_UUID_BYTES 16
#define WB_MEM_HANDLE_BYTES 64
/* Allocations of an object.  PyTorch's expandable segments are made of 20 MiB each (of 2 MiB for
 * tensors of up to 1 MiB), so this is 1.25 GiB of a model that has hundreds or thousands of them:
 * an object with more stays with the worker.  The number is only the size of arrays here: a
 * datagram carries 32 descriptors (base/unixsock.h; the kernel's limit is 253), so more come in
 * several datagrams; a descriptor may be closed once it was sent, or was mapped, so RLIMIT_NOFILE
 * bounds only those under way. */
#define WB_MEM_PIECES_MAX 64u

/* An allocation of a device; the allocations of an object follow each other without a gap. */
struct wb_mem_piece {
	int fd; /* borrowed in a description */
	uint64_t bytes; /* of the whole allocation */
};

/* A part of an object: bytes [offset, offset + bytes). */
struct wb_mem_desc {
	enum wb_mem_kind kind;
	int fd; /* memfd, dma-buf; borrowed; -1 = none */
	uint64_t offset, bytes; /* memfd: offset is a multiple of the page size */
	uint8_t uuid[WB_MEM_UUID_BYTES]; /* for kinds of a device: which device */
	uint8_t handle[WB_MEM_HANDLE_BYTES]; /* CUDA_IPC */
	const struct wb_mem_piece *piece; /* CUDA_VMM; borrowed */
	uint32_t n_piece; /* at most WB_MEM_PIECES_MAX */
};

struct wb_mem {
	const struct wb_mem_ops *ops;
	enum wb_mem_access access;
	void *addr; /* first byte at offset, as access says; NULL = WB_MEM_AT_WORKER */
	uint64_t bytes;
	int fd; /* owned duplicate, -1 = none; for a dma-buf: what to register */
	uint64_t fd_offset; /* of the first byte in fd */
	struct wb_gpu *gpu; /* owned reference for WB_MEM_AT_DEVICE; else NULL */
	void *own; /* private to the kind */
};

struct wb_mem_ops {
	const char *name;
	enum wb_mem_kind kind;
	enum wb_mem_access access; /* of imported objects */
	/* Can this kind be imported here?  @uuid NULL: from the first device.  0, or -ENOTSUP,
	 * -ENODEV with the reason. */
	int (*probe)(const uint8_t *uuid, struct wb_err *err);
	int (*import)(const struct wb_mem_desc *d, struct wb_mem *out, struct wb_err *err);
	void (*release)(struct wb_mem *m);
};

/** wb_mem_ops - the functions of a kind; NULL when the number is unknown. */
const struct wb_mem_ops *wb_mem_ops(uint32_t kind);

/**
 * wb_mem_import - make a worker's memory object usable here
 * @d:		description from an untrusted peer; its descriptors are duplicated
 * @out:	filled on success; release with wb_mem_release()
 * 0; -EINVAL: unknown kind, length 0, unaligned offset, an object shorter than offset + bytes,
 * descriptors that are not memory of the device, or are not as long as described (figures are
 * named); -EPERM: it cannot be sealed against shrinking (the sentence says how to create it).  The
 * next three are not the worker's fault, and it may do the work itself (WB_MEM_HEAP): -ENOTSUP:
 * there is no driver, or the device lacks what the kind needs; -ENODEV: the device is hidden from
 * this process; -EXDEV: the handle cannot be opened from here (the sentence names the
 * requirements).
 * -EIO: the device failed; -ENOMEM, -EMFILE, ...
 */
int wb_mem_import(const struct wb_mem_desc *d, struct wb_mem *out, struct wb_err *err);
/** wb_mem_release - unmap and release the object, also what it took of a device.  Work on it must
 * be over.  A zeroed object is allowed. */
void wb_mem_release(struct wb_mem *m);

/**
 * wb_mem_reach - write one line about which memory of a device can be imported here, and why the
 * rest cannot
 * @uuid:	NULL = the first device
 * For status and logs: "cuda-vmm: yes; cuda-ipc: yes; dmabuf: no: ...".  Whether a certain worker's
 * handle can be opened is known only when it is imported.  Blocks.
 */
void wb_mem_reach(const uint8_t *uuid, char *out, size_t out_bytes);

/* How memory of a device can be sent.  Must not be copied, since it points into itself. */
struct wb_mem_export {
	struct wb_mem_desc desc; /* kind WB_MEM_HEAP: it cannot be sent; uuid is set in any case */
	struct wb_mem_piece piece[WB_MEM_PIECES_MAX]; /* what desc.piece points to; fds owned */
	char why[512]; /* for WB_MEM_HEAP: the reason, and which setting of the allocator helps */
};

/**
 * wb_mem_where - is @addr memory of a device?
 * 1: yes; 0: no, also without a driver; -EIO: the driver does not answer (a device is lost), and
 * the CPU must not touch memory that may be a device's.
 */
int wb_mem_where(const void *addr, struct wb_err *err);
/** wb_mem_is_device - is @addr memory of a device?  False also without a driver. */
int wb_mem_is_device(const void *addr);
/**
 * wb_mem_device - find on which device [@addr, @addr + @bytes) of this process lies
 * @uuid_out:	WB_MEM_UUID_BYTES; written on success
 * It checks both ends, since the range may consist of several allocations.  0; -EINVAL: an end is
 * not memory of a device, or the ends are on two devices; -ENOTSUP: no driver.
 */
int wb_mem_device(const void *addr, uint64_t bytes, uint8_t *uuid_out, struct wb_err *err);
/**
 * wb_mem_export - find out how [@addr, @addr + @bytes) of this process was allocated
 * @out:	written on success; release with wb_mem_export_finish()
 * 0, also when it cannot be sent; -EINVAL: it is not memory of one device, or not all of it is
 * allocated; -ENOTSUP: no driver; -EIO.
 */
int wb_mem_export(const void *addr, uint64_t bytes, struct wb_mem_export *out, struct wb_err *err);
/** wb_mem_export_finish - close its descriptors.  A zeroed struct is allowed. */
void wb_mem_export_finish(struct wb_mem_export *x);

/* What a network interface needs to know about memory of a device. */
struct wb_mem_nic {
	int dmabuf_fd; /* owned; -1 = none, for the reason in .why */
	uint64_t dmabuf_off; /* of the first byte in the dma-buf */
	char pci[16]; /* where the device is: "0000:3b:00.0"; "" = the driver does not say */
	char why[256];
};

/**
 * wb_mem_nic - describe [@addr, @addr + @bytes), this process's own or imported memory, for
 * registering it
 * @out:	written on success; release with wb_mem_nic_finish().  The dma-buf keeps the memory
 *		alive, and so does a registration made from it, even after its descriptor is closed
 * 0, also when the device exports no dma-buf; -EINVAL: it is not memory of one device; -ENOTSUP: no
 * driver; -EIO.  Makes a context of the device if this process has none.
 */
int wb_mem_nic(const void *addr, uint64_t bytes, struct wb_mem_nic *out, struct wb_err *err);
/** wb_mem_nic_finish - close its descriptor.  A second call does nothing; a zeroed struct is not
 * allowed. */
void wb_mem_nic_finish(struct wb_mem_nic *x);

/* Memory of a device for trying out what works. */
struct wb_mem_sample {
	void *addr; /* address on the device */
	uint64_t bytes;
	struct wb_gpu *gpu; /* owned reference */
};

/** wb_mem_sample - allocate @bytes on the first device of this process: 0; -ENOTSUP, -ENODEV: there
 *  is none; -ENOMEM, -EIO.  wb_mem_sample_finish() */
int wb_mem_sample(uint64_t bytes, struct wb_mem_sample *out, struct wb_err *err);
/** wb_mem_sample_finish - free it. */
void wb_mem_sample_finish(struct wb_mem_sample *s);

/** wb_memfd_create - make a memfd of @bytes, close-on-exec, sealed against shrinking and growing.
 * Returns the descriptor, -EINVAL, -EMFILE, -ENOMEM, ... */
int wb_memfd_create(const char *name, uint64_t bytes, struct wb_err *err);
/** wb_memfd_check - check that the object behind @fd is at least @bytes long and can never become
 * shorter (the seal is applied when it is missing).  0, -EINVAL or -EPERM as for wb_mem_import().
 * @size_out may be NULL. */
int wb_memfd_check(int fd, uint64_t bytes, uint64_t *size_out, struct wb_err *err);

#endif
