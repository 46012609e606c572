/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_VERBS_HOST_H
#define WB_XPORT_VERBS_HOST_H
/*
 * What of RDMA this host has: devices, their ports, protection domains, registered memory.
 *
 * Devices.  Those that cannot be opened, or whose completion queues hold too little, are left out.
 * One that is over stays so, and its ports down, until the transport is opened again.
 * Ports.  Those that are active at first, or are named by rails.  A port that fails stays in the
 * table, as down; every change of it raises its `turn`, by which rails see that they have to look.
 * Memory.  A thread of its own registers and lets go, since pinning takes a second for ten
 * gigabytes; what it has done the loop hears by wb__host_done().  Memory of the host is registered
 * with all devices or is FAILED.  Memory of a GPU is tried with each device by its dma-buf, then as
 * a peer's, by its address; those that take neither go without, and when all do it is FAILED with
 * -ENOTSUP, and its bytes go by way of the host, which is the caller's to do.
 * One domain for each object and device: a key of one object is worth nothing on the queue pair of
 * another.
 * Windows.  Where the device has them (type 2B), memory of the host that others read is registered
 * without that right: windows may be bound to it instead.  The kernel wants the right to write for
 * that, so what is mapped without it has none; nor has memory of a GPU, since libraries bind to no
 * dma-buf.
 * Threads: marked at each function.  Layer: xport (L2), internal.
 */
#include "xport/internal.h"
#include "xport/verbs/lib.h"

#define WB__DEVICES_MAX 16
#define WB__PORTS_MAX 16
#define WB__DOMAINS_MAX 64 /* objects */
#define WB__COMPLETIONS_MIN 32 /* that a completion queue has to hold */
#define WB__SAYS_MAX 512

struct wb__device {
	char name[64];
	bool is_soft;
	bool has_windows; /* of type 2B, and they are to be used */
	const char *keys; /* whose keys are, and why; static */
	uint8_t said; /* how a GPU's memory was registered, a bit each; the thread's */
	_Atomic bool is_over; /* it or the kernel said so; set by who looks at its events */
	char folder[IBV_SYSFS_PATH_MAX]; /* the kernel's, while the device is there; "": none */
	struct ibv_context *ctx;
	struct ibv_device_attr attr;
	struct ibv_pd *pd[WB__DOMAINS_MAX]; /* by number of the object */
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
	uint32_t device; /* number in the host's table */
	uint8_t num;
	_Atomic bool is_up;
	_Atomic uint32_t turn;
	struct wb__port_at at; /* under the host's lock */
};

enum wb__memory_state { WB__MEM_PENDING, WB__MEM_READY, WB__MEM_FAILED };

/* A region of the book as devices see it. */
struct wb__memory {
	uint32_t id;
	uint64_t serial; /* never again */
	struct wb_xport_region r;
	enum wb__memory_state state; /* loop; rails hear of it with the pointer */
	int code; /* FAILED */
	bool is_done, is_removed; /* loop: given back; removed by the user */
	bool is_readonly; /* no landing: a source alone, or mapped without the right to write */
	struct ibv_mr *mr[WB__DEVICES_MAX]; /* NULL: a device that cannot, or is gone */
	/* Devices that its bytes go by while they can, a bit each: of a GPU's the nearest of those
	 * that have it, else all. */
	uint32_t near;
	/* Devices that others read it from by windows alone, a bit each; by the region's own key
	 * from the rest: those that have none, and memory that cannot have them. */
	uint32_t by_window;
	enum wb_xport_path path; /* as state: set with it */
	char says[WB__SAYS_MAX]; /* which devices, or why none; a GPU's */
	_Atomic uint32_t refs; /* the loop and each rail; the last lets the thread free it */
	struct wb__memory *next, *all_next, **all_back;
};

struct wb__host {
	const struct wb__ibv *ibv;
	char sysfs[128];
	struct wb__device device[WB__DEVICES_MAX];
	uint32_t n_device;
	struct wb__port port[WB__PORTS_MAX];
	uint32_t n_port;
	int alarm_fd; /* in every rail's epoll, edge by edge: a port changed */
	int done_fd; /* the loop's, written when memory is ready */
	_Atomic int *done_signalled;
	_Atomic uint32_t n_done; /* in the list below: that it is empty is seen without the lock */
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
 *  -ENODEV (no port is active, a rail names a device that is not here), -ENOMEM.  Loop. */
int wb__host_open(struct wb__host *h, const struct wb_xport_opts *o, struct wb_err *err);
/** wb__host_is_soft - all its devices are the kernel's (rxe, siw), over a network interface.  Loop.
 */
bool wb__host_is_soft(const struct wb__host *h);
/** wb__host_close - rails have ended: let go of all memory, close the devices.  Also after a failed
 *  open. */
void wb__host_close(struct wb__host *h);

/** wb__host_port_of - the port of a rail: that its address names; where rails are apart, that which
 *  has its IP address as GID; else by its index.  Loop. */
uint32_t wb__host_port_of(struct wb__host *h, const struct wb__rail *r);
/** wb__host_address - what follows the device's name in a rail's address. */
const char *wb__host_address(const char *addr);
/** wb__host_look - take a device's events (its async_fd was readable) into the ports.  One rail. */
void wb__host_look(struct wb__host *h, struct wb__device *d);
/** wb__host_find - look whether devices are still there.  Some drivers (rxe) tell nobody that a
 *  device is removed: its folder goes, and the kernel waits until all have closed it, while it
 *  works as before.  A system call a device.  The rail of wb__host_look(). */
void wb__host_find(struct wb__host *h);
/** wb__host_at - a copy of what port @i is now.  Any thread. */
struct wb__port_at wb__host_at(struct wb__host *h, uint32_t i);
/** wb__host_is_near - @gid is an address of the network that port @i is on, so that nothing has to
 * route between the two; false also where that is not known.  Any thread. */
bool wb__host_is_near(struct wb__host *h, uint32_t i, const uint8_t gid[16]);
/** wb__host_name_port - "mlx5_0 port 1 (GID ::ffff:10.0.0.1)" into @out.  Any thread. */
void wb__host_name_port(struct wb__host *h, uint32_t i, char *out, size_t cap);
/** wb__host_name_gid - the same, with the GID that the port had at some time. */
void wb__host_name_gid(
	const struct wb__host *h, uint32_t i, const union ibv_gid *gid, char *out, size_t cap);
/** wb__host_keys - whose keys are, by each device: "fake0: of .., by ..; fake1: ..".  Any thread.
 */
void wb__host_keys(const struct wb__host *h, char *out, size_t cap);
/** wb__host_reduced - one of the ports in @used, a bit each, that is down, as a sentence into @out;
 *  false: none is.  Any thread. */
bool wb__host_reduced(struct wb__host *h, uint32_t used, char *out, size_t cap);
/** wb__host_pd - the domain of @object on device @d; NULL: cannot be made.  Any thread, locks. */
struct ibv_pd *wb__host_pd(struct wb__host *h, uint32_t d, uint64_t object);

/* memory.c: what the thread does, with the host. */
void *wb__host_thread(void *arg);
/** wb__host_register - begin to register; wb__host_done() gives it back, READY or FAILED.  NULL:
 *  -ENOMEM.  @refs: who will let go of it.  r->gpu.dmabuf_fd is taken, but for a failure: it is
 *  closed when devices have the memory, or when it is let go of.  Loop. */
struct wb__memory *wb__host_register(
	struct wb__host *h, uint32_t id, const struct wb_xport_region *r, uint32_t refs);
/** wb__host_done - one that is done, or NULL.  Locks only where there is one.  Loop. */
struct wb__memory *wb__host_done(struct wb__host *h);
/** wb__host_let_go - one of its users is through with it.  Any thread, locks for the last. */
void wb__host_let_go(struct wb__host *h, struct wb__memory *m);

#endif
