/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MEM_CUDA_H
#define WB_MEM_CUDA_H
/*
 * The CUDA driver API as far as this project uses it: numbers, layouts, and a table of functions.
 *
 * No CUDA header and no CUDA library is needed to build: these are facts of the driver's binary
 * interface, which is the same from CUDA 12 on (make check-cuda compares them with cuda.h).  The
 * library is opened by its name if it is installed, so that one program runs on nodes with and
 * without a GPU.  Handles are pointers or numbers without a type of their own; results are
 * WBCU_SUCCESS or another number of the driver, which no code above mem sees (mem/gpu.h).
 *
 * Threads: as for the driver: any, with a context current in the calling thread.  Layer: mem (L1).
 */
#include <stddef.h>
#include <stdint.h>

struct wb_err;

/* ---- results --------------------------------------------------------------------------------- */

enum {
	WBCU_SUCCESS = 0,
	WBCU_INVALID_VALUE = 1,
	WBCU_OUT_OF_MEMORY = 2,
	WBCU_NOT_INITIALIZED = 3,
	WBCU_NO_DEVICE = 100,
	WBCU_INVALID_DEVICE = 101,
	WBCU_INVALID_IMAGE = 200,
	WBCU_INVALID_CONTEXT = 201,
	WBCU_ALREADY_MAPPED = 208,
	WBCU_NO_BINARY_FOR_GPU = 209,
	WBCU_INVALID_HANDLE = 400,
	WBCU_NOT_FOUND = 500,
	WBCU_NOT_READY = 600,
	WBCU_ILLEGAL_ADDRESS = 700,
	WBCU_HOST_MEMORY_ALREADY_REGISTERED = 712,
	WBCU_HOST_MEMORY_NOT_REGISTERED = 713,
	WBCU_LAUNCH_FAILED = 719,
	WBCU_NOT_PERMITTED = 800,
	WBCU_NOT_SUPPORTED = 801,
	WBCU_UNKNOWN = 999,
};

/* ---- numbers --------------------------------------------------------------------------------- */

enum { /* of a device */
	WBCU_DEVICE_SM_COUNT = 16,
	WBCU_DEVICE_PCI_BUS = 33,
	WBCU_DEVICE_PCI_DEVICE = 34,
	WBCU_DEVICE_PCI_DOMAIN = 50,
	WBCU_DEVICE_MAJOR = 75,
	WBCU_DEVICE_MINOR = 76,
	WBCU_DEVICE_HAS_VMM = 102,
	WBCU_DEVICE_EXPORTS_FD = 103,
	WBCU_DEVICE_HAS_DMABUF = 124,
};

enum { /* attributes of a pointer; each comment begins with the type of the value */
	WBCU_POINTER_MEMORY_TYPE = 2, /* unsigned; 0 = the driver does not know it */
	WBCU_POINTER_DEVICE = 9, /* int, the device's number in this process */
	WBCU_POINTER_IS_IPC_CAPABLE = 10, /* int */
	WBCU_POINTER_RANGE_START = 11, /* uint64_t: of the allocation, or of the reserved range */
	WBCU_POINTER_RANGE_BYTES = 12, /* size_t */
	WBCU_POINTER_HANDLE_TYPES = 14, /* uint64_t, a set of WBCU_HANDLE_* */
	WBCU_POINTER_BLOCK_BYTES = 18, /* size_t: of the mapping in which it lies */
	WBCU_POINTER_BLOCK_START = 19, /* uint64_t */
};

enum {
	WBCU_MEMORY_HOST = 1,
	WBCU_MEMORY_DEVICE = 2,
	WBCU_HANDLE_FD = 1, /* a POSIX file descriptor */
	WBCU_ALLOCATION_PINNED = 1,
	WBCU_LOCATION_DEVICE = 1,
	WBCU_ACCESS_READWRITE = 3,
	WBCU_RANGE_DMABUF = 1,
	WBCU_IPC_LAZY_PEER = 1,
	WBCU_HOST_PORTABLE = 1, /* pinned for all contexts */
	WBCU_HOST_MAPPED = 2, /* and readable by devices */
	WBCU_STREAM_NON_BLOCKING = 1,
	WBCU_EVENT_BLOCKING = 1, /* a thread that waits for it sleeps; without this flag it spins */
	WBCU_EVENT_NO_TIMING = 2,
};

#define WBCU_UUID_BYTES 16
#define WBCU_IPC_BYTES 64

/* ---- layouts --------------------------------------------------------------------------------- */

struct wbcu_location {
	int type, id; /* WBCU_LOCATION_DEVICE: the device's number in this process */
};

struct wbcu_allocation {
	int type; /* WBCU_ALLOCATION_PINNED */
	int handle_types; /* WBCU_HANDLE_FD, or 0 = never exported */
	struct wbcu_location location;
	void *unused;
	uint8_t compression, is_rdma_capable;
	uint16_t usage;
	uint8_t reserved[4];
};

struct wbcu_access {
	struct wbcu_location location;
	int flags; /* WBCU_ACCESS_READWRITE */
};

struct wbcu_uuid {
	uint8_t bytes[WBCU_UUID_BYTES];
};

struct wbcu_ipc {
	uint8_t bytes[WBCU_IPC_BYTES];
};

/* ---- functions ------------------------------------------------------------------------------- */

/*
 * X(member of the table, symbol of the library, its arguments).  Addresses of devices and handles
 * of allocations are uint64_t; contexts, streams, events, modules and functions are void *.
 */
#define WBCU_FUNCTIONS(X)                                                                          \
	X(init, cuInit, (unsigned flags))                                                          \
	X(driver_version, cuDriverGetVersion, (int *version))                                      \
	X(error_name, cuGetErrorName, (int rc, const char **text))                                 \
	X(error_text, cuGetErrorString, (int rc, const char **text))                               \
	X(device_count, cuDeviceGetCount, (int *n))                                                \
	X(device_get, cuDeviceGet, (int *dev, int number))                                         \
	X(device_uuid, cuDeviceGetUuid_v2, (struct wbcu_uuid * uuid, int dev))                     \
	X(device_name, cuDeviceGetName, (char *name, int bytes, int dev))                          \
	X(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, int dev))            \
	X(context_retain, cuDevicePrimaryCtxRetain, (void **context, int dev))                     \
	X(context_release, cuDevicePrimaryCtxRelease_v2, (int dev))                                \
	X(context_push, cuCtxPushCurrent_v2, (void *context))                                      \
	X(context_pop, cuCtxPopCurrent_v2, (void **context))                                       \
	X(context_sync, cuCtxSynchronize, (void))                                                  \
	X(mem_info, cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                  \
	X(mem_alloc, cuMemAlloc_v2, (uint64_t * addr, size_t bytes))                               \
	X(mem_free, cuMemFree_v2, (uint64_t addr))                                                 \
	X(mem_range, cuMemGetAddressRange_v2, (uint64_t * base, size_t * bytes, uint64_t addr))    \
	X(pointer_attribute, cuPointerGetAttribute, (void *value, int attribute, uint64_t addr))   \
	X(pointer_attributes, cuPointerGetAttributes,                                              \
		(unsigned n, int *attributes, void **values, uint64_t addr))                       \
	X(host_alloc, cuMemHostAlloc, (void **p, size_t bytes, unsigned flags))                    \
	X(host_free, cuMemFreeHost, (void *p))                                                     \
	X(host_register, cuMemHostRegister_v2, (void *p, size_t bytes, unsigned flags))            \
	X(host_unregister, cuMemHostUnregister, (void *p))                                         \
	X(host_device_addr, cuMemHostGetDevicePointer_v2,                                          \
		(uint64_t * addr, void *p, unsigned flags))                                        \
	X(vmm_granularity, cuMemGetAllocationGranularity,                                          \
		(size_t * bytes, const struct wbcu_allocation *what, int option))                  \
	X(vmm_create, cuMemCreate,                                                                 \
		(uint64_t * handle, size_t bytes, const struct wbcu_allocation *what,              \
			unsigned long long flags))                                                 \
	X(vmm_release, cuMemRelease, (uint64_t handle))                                            \
	X(vmm_reserve, cuMemAddressReserve,                                                        \
		(uint64_t * addr, size_t bytes, size_t align, uint64_t wish,                       \
			unsigned long long flags))                                                 \
	X(vmm_unreserve, cuMemAddressFree, (uint64_t addr, size_t bytes))                          \
	X(vmm_map, cuMemMap,                                                                       \
		(uint64_t addr, size_t bytes, size_t offset, uint64_t handle,                      \
			unsigned long long flags))                                                 \
	X(vmm_unmap, cuMemUnmap, (uint64_t addr, size_t bytes))                                    \
	X(vmm_access, cuMemSetAccess,                                                              \
		(uint64_t addr, size_t bytes, const struct wbcu_access *access, size_t n))         \
	X(vmm_export, cuMemExportToShareableHandle,                                                \
		(void *out, uint64_t handle, int type, unsigned long long flags))                  \
	X(vmm_import, cuMemImportFromShareableHandle, (uint64_t * handle, void *what, int type))   \
	X(vmm_retain, cuMemRetainAllocationHandle, (uint64_t * handle, void *addr))                \
	X(vmm_describe, cuMemGetAllocationPropertiesFromHandle,                                    \
		(struct wbcu_allocation * out, uint64_t handle))                                   \
	X(range_export, cuMemGetHandleForAddressRange,                                             \
		(void *out, uint64_t addr, size_t bytes, int type, unsigned long long flags))      \
	X(ipc_export, cuIpcGetMemHandle, (struct wbcu_ipc * out, uint64_t addr))                   \
	X(ipc_open, cuIpcOpenMemHandle_v2,                                                         \
		(uint64_t * addr, struct wbcu_ipc handle, unsigned flags))                         \
	X(ipc_close, cuIpcCloseMemHandle, (uint64_t addr))                                         \
	X(stream_create, cuStreamCreate, (void **stream, unsigned flags))                          \
	X(stream_destroy, cuStreamDestroy_v2, (void *stream))                                      \
	X(stream_query, cuStreamQuery, (void *stream))                                             \
	X(stream_sync, cuStreamSynchronize, (void *stream))                                        \
	X(stream_wait, cuStreamWaitEvent, (void *stream, void *event, unsigned flags))             \
	X(stream_call, cuLaunchHostFunc, (void *stream, void (*fn)(void *), void *arg))            \
	X(event_create, cuEventCreate, (void **event, unsigned flags))                             \
	X(event_destroy, cuEventDestroy_v2, (void *event))                                         \
	X(event_record, cuEventRecord, (void *event, void *stream))                                \
	X(event_query, cuEventQuery, (void *event))                                                \
	X(event_sync, cuEventSynchronize, (void *event))                                           \
	X(copy_in, cuMemcpyHtoDAsync_v2,                                                           \
		(uint64_t to, const void *from, size_t bytes, void *stream))                       \
	X(copy_out, cuMemcpyDtoHAsync_v2, (void *to, uint64_t from, size_t bytes, void *stream))   \
	X(copy_on, cuMemcpyDtoDAsync_v2, (uint64_t to, uint64_t from, size_t bytes, void *stream)) \
	X(fill, cuMemsetD8Async, (uint64_t addr, uint8_t value, size_t bytes, void *stream))       \
	X(module_load, cuModuleLoadData, (void **module, const void *image))                       \
	X(module_unload, cuModuleUnload, (void *module))                                           \
	X(module_function, cuModuleGetFunction, (void **fn, void *module, const char *name))       \
	X(launch, cuLaunchKernel,                                                                  \
		(void *fn, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,    \
			unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream,   \
			void **args, void **extra))

/* clang-format off */
struct wbcu {
#define WBCU_MEMBER(member, symbol, args) int (*member) args;
	WBCU_FUNCTIONS(WBCU_MEMBER)
#undef WBCU_MEMBER
};
/* clang-format on */

/**
 * wbcu_load - open the driver's library, once in a process
 * Blocks at the first call (cuInit: up to seconds if devices have to be woken).
 * @out:	static
 * 0; -ENOTSUP: there is no library, it lacks a function, or it finds no usable device; the sentence
 * says which.  The result stays the same for as long as the process lives.
 */
int wbcu_load(const struct wbcu **out, struct wb_err *err);

#endif
