/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_VERBS_HOST_H
#define WB_XPORT_VERBS_HOST_H
/*
 * What RDMA this host has: devices, their ports, protection domains, registered memory.
 *
 * Devices.  Those that cannot be opened, or whose completion queues hold too little, are left out.
 * One that is over stays so, and its ports down, until the transport is opened again.
 * Ports.  Those that are active at first, or are named by rails.  A port that fails stays in the
 * table, as down; every change of it raises its `turn`, by which rails see that they have to look.
 * Memory.  A thread of its own registers and lets go, since pinning takes a second for ten
 * gigabytes; what it has done the loop hears by wb__host_done().  Memory of the host is registered
 * with all devices that are not gone, or is FAILED.  Memory of a GPU is tried with each device by
 * its dma-buf, then by its address, as a peer's memory.  A device that takes neither does not get
 * it.  When no device takes it, it is FAILED with -ENOTSUP, and the caller has to move its bytes by
 * way of the host.
 * One domain for each object and device: a key of one object is worth nothing on the queue pair of
 * another.
 * Windows.  Where the device has them (type 2B), memory of the host that others read is registered
 * without that right: windows may be bound to it instead.  The kernel allows this only for memory
 * that is mapped with the right to write.  Other memory has no windows, nor has memory of a GPU,
 * since libraries bind to no dma-buf.
 * Threads: marked at each function.  Layer: xport (L2), internal.
 */
#include "xport/internal.h"
#include "xport/verbs/lib.h"

#define WB__DEVICES_MAX 16
#define WB__PORTS_MAX 16
#define WB__DOMAINS_MAX 64 /* objects */
#define WB__COMPLETIONS_MIN 32 /* entries that a completion queue must be able to hold */
#define WB__SAYS_MAX 512

struct wb__device {
	char name[64];
	bool is_soft;
	bool has_windows; /* it has windows of type 2B, and they are to be used */
	const char *keys; /* what its keys belong to, and why; static */
	/* Ways of registering a GPU's memory that were logged, a bit each; the thread's. */
	uint8_t said;
	/* It is over, as it or the kernel said; set by the rail that looks at its events. */
	_Atomic bool is_over;
	char folder[IBV_SYSFS_PATH_MAX]; /* the kernel's, while the device is there; "": none */
	struct ibv_context *ctx;
	struct ibv_device_attr attr;
	struct ibv_pd *pd[WB__DOMAINS_MAX]; /* by index of the object in wb__host.object */
};

/* What a queue pair needs of its port; a copy is taken when one is made. */
struct wb__port_at {
	union ibv_gid gid;
	int gid_index; /* -1: without GRH (InfiniBand) */
	uint16_t lid;
	uint8_t mtu; /* enum ibv_mtu */
	uint8_t net_bits; /* leading bits of the GID that its network shares; 0: not known */
	uint32_t max_msg;
};

struct wb__port {
	uint32_t device; /* index in wb__host.device */
	uint8_t num;
	_Atomic bool is_up;
	_Atomic uint32_t turn;
	struct wb__port_at at; /* under the host's lock */
};

enum wb__memory_state { WB__MEM_PENDING, WB__MEM_READY, WB__MEM_FAILED };

/* A region of the book as devices see it. */
struct wb__memory {
	uint32_t id;
	uint64_t serial; /* different for each wb__memory */
	struct wb_xport_region r;
	enum wb__memory_state state; /* the loop's; rails are told it together with the pointer */
	int code; /* FAILED */
	bool is_done, is_removed; /* the loop's: given back by the thread; removed by the user */
	/* It is no landing: a source only, or mapped without the right to write. */
	bool is_readonly;
	/* By device; NULL: the device cannot have it, or is gone. */
	struct ibv_mr *mr[WB__DEVICES_MAX];
	/* Devices by which its bytes go while they can, a bit each: for a GPU's memory the nearest
	 * of those that have it, else all. */
	uint32_t near;
	/* Devices from which others read it by windows only, a bit each.  From the rest (devices
	 * without windows; memory that cannot have them) they read it by the region's own key. */
	uint32_t by_window;
	enum wb_xport_path path; /* set together with state */
	char says[WB__SAYS_MAX]; /* for a GPU's memory: which devices have it, or why none */
	/* Of the loop and of each rail; after the last the thread frees it. */
	_Atomic uint32_t refs;
	struct wb__memory *next, *all_next, **all_back;
};

struct wb__host {
	const struct wb__ibv *ibv;
	char sysfs[128];
	struct wb__device device[WB__DEVICES_MAX];
	uint32_t n_device;
	struct wb__port port[WB__PORTS_MAX];
	uint32_t n_port;
	int alarm_fd; /* in every rail's epoll, edge-triggered: a port changed */
	int done_fd; /* the loop's eventfd, written when memory is ready */
	_Atomic int *done_signalled;
	/* Length of the list below, so that an empty one is seen without the lock. */
	_Atomic uint32_t n_done;
	pthread_mutex_t lock; /* guards: what follows, ports' at, devices' pd; leaf */
	pthread_cond_t work;
	uint64_t object[WB__DOMAINS_MAX];
	uint32_t n_object;
	uint64_t serial;
	struct wb__memory *todo, **todo_tail, *done, **done_tail, *all;
	pthread_t thread;
	bool is_started, is_stopping;
};

/** wb__host_open - open the devices that rails name ("DEVICE[/PORT]@.."), or all, and their active
 *  ports.  Devices that cannot be opened are logged and left out.  0; -ENOTSUP (no library),
 *  -ENODEV (no port is active, a rail names a device that is not here), -ENOMEM, or what the system
 *  says; then too call wb__host_close().  Loop. */
int wb__host_open(struct wb__host *h, const struct wb_xport_opts *o, struct wb_err *err);
/** wb__host_is_soft - are all its devices the kernel's (rxe, siw), over a network interface?
 * Loop. */
bool wb__host_is_soft(const struct wb__host *h);
/** wb__host_close - release all memory and close the devices; rails have ended.  Also after a
 * failed open. */
void wb__host_close(struct wb__host *h);

/** wb__host_port_of - index of a rail's port: the one that its address names; where rails are
 * apart, the one that has its IP address as GID; else chosen by the rail's index.  Loop. */
uint32_t wb__host_port_of(struct wb__host *h, const struct wb__rail *r);
/** wb__host_address - the part of a rail's address that follows the device's name; borrowed. */
const char *wb__host_address(const char *addr);
/** wb__host_look - a device's async_fd was readable: apply its events to the ports.  Only the rail
 * that looks at events. */
void wb__host_look(struct wb__host *h, struct wb__device *d);
/** wb__host_find - look whether devices are still there.  Some drivers (rxe) tell nobody that a
 * device is removed: its folder goes, and the kernel waits until all have closed it, while it works
 * as before.  Costs a system call for each device.  Only the rail of wb__host_look(). */
void wb__host_find(struct wb__host *h);
/** wb__host_at - a copy of what port @i is now.  Any thread. */
struct wb__port_at wb__host_at(struct wb__host *h, uint32_t i);
/** wb__host_is_near - is @gid an address of the network that port @i is on, so that nothing has to
 * route between the two?  False also when that is not known.  Any thread. */
bool wb__host_is_near(struct wb__host *h, uint32_t i, const uint8_t gid[16]);
/** wb__host_name_port - "mlx5_0 port 1 (GID ::ffff:10.0.0.1)" into @out.  Any thread. */
void wb__host_name_port(struct wb__host *h, uint32_t i, char *out, size_t cap);
/** wb__host_name_gid - the same, with a GID that the port had at some time. */
void wb__host_name_gid(
	const struct wb__host *h, uint32_t i, const union ibv_gid *gid, char *out, size_t cap);
/** wb__host_keys - what the keys of each device belong to: "fake0: of .., by ..; fake1: ..".  Any
 * thread. */
void wb__host_keys(const struct wb__host *h, char *out, size_t cap);
/** wb__host_reduced - one of the ports in @used (a bit each) that is down, as a sentence into @out;
 * false: none is.  Any thread. */
bool wb__host_reduced(struct wb__host *h, uint32_t used, char *out, size_t cap);
/** wb__host_pd - the domain of @object on device @d; NULL: it cannot be made.  Any thread;
 * locks. */
struct ibv_pd *wb__host_pd(struct wb__host *h, uint32_t d, uint64_t object);

/* memory.c: what the thread does, with the host. */
void *wb__host_thread(void *arg);
/** wb__host_register - begin to register @r; wb__host_done() gives it back, READY or FAILED.  NULL:
 * no memory.  @refs: how many users will let go of it.  r->gpu.dmabuf_fd is taken, unless this
 * fails: it is closed when devices have the memory, or when the last user has let go.  Loop. */
struct wb__memory *wb__host_register(
	struct wb__host *h, uint32_t id, const struct wb_xport_region *r, uint32_t refs);
/** wb__host_done - memory whose registering is over, or NULL.  Locks only when there is some.
 * Loop. */
struct wb__memory *wb__host_done(struct wb__host *h);
/** wb__host_let_go - one user of the memory needs it no more.  Any thread; the last one locks. */
void wb__host_let_go(struct wb__host *h, struct wb__memory *m);

#endif
