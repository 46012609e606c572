/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_XPORT_H
#define WB_XPORT_XPORT_H
/*
 * Transports: chunks of bytes from one agent to another, asked for by the receiver.
 *
 * A connection carries data one way.  The receiver dials; it sends grants, each a credit for one
 * chunk, with a landing in its own memory.  The source (the side that accepted) answers each grant
 * once, with a write or a refusal.  A write is the chunk's bytes followed by a 32-byte trailer,
 * whose meaning only the callers know.  Two agents that send to each other have two connections.
 *
 * Every grant ends exactly once at the receiver: ARRIVED, REFUSED, CANCELLED or LOST.  Every write
 * ends exactly once at the source: WRITE_DONE with a code.  Every connection that
 * wb_xport_connect() returned or CONN_UP announced ends exactly once: CONN_DOWN, after all its LOST
 * and WRITE_DONE. After CANCELLED, LOST or CONN_DOWN nothing is written to the landings concerned
 * any more; the landing's content is then undefined until a later grant fills it.
 *
 * Connections are made inside an epoch: both sides must hold its key and prove so in a mutual
 * challenge that names epoch, dialer, acceptor and connection.
 *
 * Invariants: iov lists sum to the chunk's bytes; at most `depth` grants are outstanding on a
 * connection, cancelled ones included until the source has answered them.
 * Threads: every function here belongs to the loop thread of the transport's owner, and none blocks
 * but open, close and listen.  Observer and trailer callbacks run on rail threads: they must not
 * block, allocate or call the transport.
 * On the chunk path there is no allocation, no lock and no log.
 * Layer: xport (L2).
 */
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/ident.h"

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define WB_XPORT_NAME_MAX 64 /* agent names, with the NUL */
#define WB_XPORT_KEY_BYTES 32
#define WB_XPORT_TRAILER_BYTES 32
#define WB_XPORT_RAILS_MAX 16
#define WB_XPORT_SOCKETS_MAX 16 /* of a connection */
#define WB_XPORT_DEPTH_MAX 256 /* grants outstanding on a connection */
#define WB_XPORT_DEPTH 256 /* that limit where wb_xport_opts.depth is 0 */
#define WB_XPORT_CONNS_MAX 65536
/* Ranges of one chunk.  Every transport takes this many, and none needs a limit of its own, since
 * each cuts lists by what its sockets, frames and queues hold. */
#define WB_XPORT_IOV_MAX 65536
#define WB_XPORT_RUN_MIN 2048 /* wb_xport_run_min() where the transport does not want more */
#define WB_XPORT_CHUNK_MAX (256u << 20) /* bytes of one chunk */
#define WB_XPORT_ENDPOINT_MAX 4096
#define WB_XPORT_SET_MAX 4 /* transports in a set */
#define WB_XPORT_PCI_MAX 16 /* a PCI address, with the NUL */
/* Pieces shown to observers end where iov ranges end, and else at multiples of this many wire
 * bytes. */
#define WB_XPORT_PIECE_ALIGN 64

struct wb_xport; /* an open transport */
typedef uint32_t wb_conn_t; /* 0 = none; numbers are not used again soon */

/* ---- opening ------------------------------------------------------------------------------ */

struct wb_xport_rail {
	/* tcp: "10.0.0.1:0", "[::1]:7001"; numeric, also the local address of dialled connections.
	 * shm: "unix:/path" or "unix:@name" (abstract), "unix:@" picks a name.
	 * verbs: like tcp, for its words; "mlx5_0@10.0.0.1:0" or "mlx5_0/1@.." names the device,
	 * or the port, whose queue pairs the rail prefers; without, where rails are apart, that of
	 * the RoCE port that has this address. */
	const char *addr;
	const char
		*advertise_host; /* tcp: goes into the endpoint text instead of addr's; or NULL */
	/* Only for wb_xport_open_set(), where addr is HOST:PORT: the device for verbs, named as
	 * above; or NULL. */
	const char *device;
	uint64_t rate_bytes_per_s; /* cap in each direction on payload bytes; 0 = none */
	const cpu_set_t *cpus; /* on which its thread runs, where the system lets it; NULL = any */
};

struct wb_xport_opts {
	const char *name; /* this agent's name, copied */
	const struct wb_xport_rail *rail; /* copied */
	uint32_t n_rail; /* 1 .. WB_XPORT_RAILS_MAX */
	/* True: bytes of a rail's sockets go by that rail only, while it works.  False: they go by
	 * others too, if the transport can do that (verbs). */
	bool is_apart;
	/* Sockets of a dialled connection, spread over the rails of both sides; 0 = as many as
	 * wb_xport_sockets() says. */
	uint32_t sockets;
	uint32_t depth; /* grants outstanding on a dialled connection; 0 = WB_XPORT_DEPTH */
	uint32_t conns_max; /* connections at once, dialled and accepted; 0 = WB_XPORT_CONNS_MAX */
	uint32_t piece_bytes; /* observers get at most this many bytes at once; 0 = 128 KiB */
	uint32_t sock_buf_bytes; /* tcp: SO_SNDBUF and SO_RCVBUF; 0 = measured default */
	uint64_t handshake_timeout_ns; /* dial and challenge; 0 = 5 s */
	uint64_t rekey_bytes; /* TLS: bytes that one key may carry; 0 = 64 GiB */
	/* How long a rail looks for work before it sleeps; 0 = 50 us, or not at all where there are
	 * fewer than 4 cores. */
	uint64_t spin_ns;
	/* verbs: what its packets ask of the network, in both directions: DSCP and ECN bits of a
	 * RoCE packet (traffic class of a GRH), and the service level, 0 .. 15. */
	uint8_t traffic_class, service_level;
	/* verbs: READs that a lane has under way at once; 0 = as many as both devices take.  To
	 * measure how long one takes alone. */
	uint32_t reads_max;
	/* verbs: peers get keys of whole regions, also from devices that have memory windows
	 * (wb_xport_keys()). */
	bool no_windows;
	const struct wb_clock *clock; /* borrowed; NULL = wb_clock_real */
	struct wb_fault *fault; /* borrowed; NULL = none */
	/* verbs: where sysfs is, which tells how near devices are to each other; NULL = "/sys" */
	const char *sysfs; /* copied */
	/* Only for wb_xport_open_set(): folder where agents of this host find each other's sockets;
	 * NULL = they find them in their network namespace. */
	const char *folder;
	uint32_t tag; /* goes into the upper bits of connections' numbers; below WB_XPORT_SET_MAX */
	void *medium; /* borrowed; for registered transports: what joins their ends; else NULL */
};

/* What connections belong to.  Several may be known at once (an epoch and the one before, several
 * objects). */
struct wb_xport_epoch {
	struct wb_epoch_id id;
	uint8_t key[WB_XPORT_KEY_BYTES]; /* copied by wb_xport_epoch_add() */
	/* Both sides must agree on it, as on the key.  tcp: TLS or no connection.  shm: changes
	 * nothing, since no byte leaves the memory of the host. */
	bool is_encrypted;
	/* Only for a set: names of the transports that may carry it, best first, with commas;
	 * borrowed for the call.  NULL = all that the set has, in its order. */
	const char *allowed;
};

/* What a region is for, so that devices and peers are given the least right. */
enum wb_xport_direction {
	WB_XPORT_BOTH = 0,
	WB_XPORT_SOURCE, /* it is written from: others may read it, no device may write it */
	WB_XPORT_LANDING, /* grants land in it: devices here may write it, nobody else has a right;
			     a write from it is -EINVAL */
};

/*
 * Memory of a GPU; a zeroed one: the region is the host's.
 *
 * The CPU never touches it.  So only transports with WB_XPORT_CAP_GPU move it, for others such a
 * grant or write is -ENOTSUP; nobody looks at its bytes (.observe is NULL); and a grant that lands
 * there has a .copy that can write there, for bytes that no device can put there by itself.
 */
struct wb_xport_gpu {
	bool is_there; /* .base is an address of a GPU */
	bool any_nic; /* use all devices alike; else those nearest to .pci, while they are up */
	/* dma-buf that has the region in it; borrowed for the call (the transport keeps a duplicate
	 * until the region is registered or removed; the devices hold the memory by themselves); -1
	 * = none, then it is only tried as peer memory */
	int dmabuf_fd;
	/* Offset of .base in the dma-buf; the same within a page as that of .base. */
	uint64_t dmabuf_off;
	/* "0000:3b:00.0", the GPU as sysfs calls it; "" = not known, then all devices count as
	 * equally near */
	char pci[WB_XPORT_PCI_MAX];
};

/* Memory that a source writes from.  Required for every source byte where WB_XPORT_CAP_REGIONS is
 * set, allowed everywhere. */
struct wb_xport_region {
	uint64_t object; /* wb_object_id.hash: only connections of its epochs may use it */
	/* memfd with sealing allowed (F_SEAL_SHRINK is added); borrowed.  -1 = private: then it is
	 * no source, except memory of a GPU, which has no memfd. */
	int fd;
	uint64_t fd_off; /* page aligned */
	void *base; /* where it is mapped here; borrowed until deregistered */
	size_t bytes;
	enum wb_xport_direction direction;
	struct wb_xport_gpu gpu;
};

/* How the bytes of a region get to and from the network. */
enum wb_xport_path {
	WB_XPORT_PATH_PENDING = 0, /* it is being registered */
	WB_XPORT_PATH_HOST, /* memory of the host */
	WB_XPORT_PATH_DMABUF, /* a GPU's, by its dma-buf */
	WB_XPORT_PATH_PEER, /* a GPU's, by its address, which the kernel knows (nvidia_peermem) */
	/* A GPU's that no device reaches: the caller copies by way of the host (a write from it
	 * ends with -ENOTSUP; bytes that land in it go by the grant's .copy). */
	WB_XPORT_PATH_BOUNCE,
	WB_XPORT_PATH_FAILED, /* memory of the host that could not be registered */
};

struct wb_xport_peer {
	const char *name; /* name of the agent that must answer */
	/* What the peer's wb_xport_listen() or wb_xport_serve() said.  From a set's text each
	 * transport takes its own part. */
	const char *endpoint;
	const struct wb_epoch_id *epoch; /* must have been added; borrowed for the call */
	uint64_t user; /* given back in wb_xport_conn_info */
	uint32_t rails; /* rails of ours that its sockets are spread over, a bit each; 0 = all */
	uint32_t depth; /* grants outstanding on it; 0 = wb_xport_opts.depth */
};

/* ---- chunks ------------------------------------------------------------------------------- */

struct wb_xport_chunk {
	uint64_t transfer;
	uint64_t bytes; /* 1 .. WB_XPORT_CHUNK_MAX, without trailer */
	uint32_t cls, chunk, gen; /* class, number of the chunk in it, generation of the grant */
	uint32_t src, dst; /* worker numbers */
};

/**
 * wb_observe_fn - sees the wire bytes of one chunk, each once, in order, while they are hot
 * At the source before they are sent; at the receiver after they landed, in the landing.
 */
typedef void (*wb_observe_fn)(void *ctx, const void *data, size_t bytes, uint64_t wire_off);
/**
 * wb_copy_fn - move @bytes of the chunk from @from to @to, a part of the landing, and observe them
 * Replaces memcpy and the observer where the receiver moves the bytes itself (shm), so that memory
 * is read once.  Pieces come in order and may end anywhere.  After some pieces it is called with 0
 * bytes: when that call returns, all that was copied so far must be visible to other threads.
 */
typedef void (*wb_copy_fn)(void *ctx, void *to, const void *from, size_t bytes, uint64_t wire_off);
/** wb_trailer_fn - fill @out; called after the observer has seen the chunk's last byte. */
typedef void (*wb_trailer_fn)(void *ctx, uint8_t out[WB_XPORT_TRAILER_BYTES]);

struct wb_xport_grant {
	uint64_t cookie; /* comes back in the event that ends the grant */
	struct wb_xport_chunk chunk;
	const struct iovec *iov; /* landing; list and memory are borrowed until the grant ends */
	uint32_t n_iov; /* 1 .. WB_XPORT_IOV_MAX; no empty ranges */
	wb_observe_fn observe; /* may be NULL */
	wb_copy_fn copy; /* may be NULL: then memcpy, and observe */
	void *ctx;
};

struct wb_xport_write {
	uint64_t grant; /* wb_xport_event.grant of the GRANT */
	uint64_t cookie; /* comes back in WRITE_DONE */
	const struct iovec *iov; /* list and memory are borrowed until WRITE_DONE */
	uint32_t n_iov;
	wb_observe_fn observe; /* may be NULL */
	wb_trailer_fn trailer; /* NULL = 32 zero bytes */
	void *ctx;
};

/* ---- events ------------------------------------------------------------------------------- */

enum wb_xport_event_kind {
	WB_XP_CONN_UP = 1, /* .info; both sides */
	WB_XP_CONN_DOWN, /* .code .reason; nothing lands any more */
	WB_XP_REJECTED, /* .code .reason: somebody could not connect to us; .conn is 0 */
	/* receiver */
	WB_XP_ARRIVED, /* .cookie .trailer: the landing is full */
	WB_XP_REFUSED, /* .cookie .code: what the source passed to wb_xport_refuse() */
	WB_XP_CANCELLED, /* .cookie: wb_xport_cancel() took effect */
	WB_XP_LOST, /* .cookie .code: the connection went down first */
	/* source */
	/* .grant (a number within .conn) .chunk: answer it once, with write or refuse */
	WB_XP_GRANT,
	WB_XP_GRANT_GONE, /* .grant: cancelled before it was answered; do not answer */
	/* .cookie .code: 0, -ECANCELED or why the connection went down.  The source memory is free.
	 * 0 means sent, not arrived. */
	WB_XP_WRITE_DONE,
};

struct wb_xport_conn_info {
	wb_conn_t conn;
	bool is_dialer; /* true: we receive on it; false: we are its source */
	uint64_t user; /* dialer's wb_xport_peer.user, else 0 */
	struct wb_epoch_id epoch;
	uint32_t n_socket, depth;
	const char *via; /* what carries it: "tcp", "tcp+tls", "shm"; borrowed from the transport */
	uint64_t n_arrived; /* chunks that have arrived, at the dialer */
	char peer[WB_XPORT_NAME_MAX];
};

struct wb_xport_event {
	enum wb_xport_event_kind kind;
	wb_conn_t conn;
	int code; /* 0 or a negative errno / WB_E* */
	uint32_t rail; /* rail that carried the chunk, if the event is about one */
	uint64_t at_ns; /* when it happened, by the transport's clock */
	uint64_t cookie, grant;
	struct wb_xport_chunk chunk; /* GRANT */
	uint8_t trailer[WB_XPORT_TRAILER_BYTES]; /* ARRIVED */
	const struct wb_xport_conn_info *info; /* CONN_UP, CONN_DOWN; valid until the next poll */
	const char *reason; /* a sentence; valid until the next poll; NULL = none */
	/* CONN_DOWN of a connection that the user dialled: the peer may still be reached by another
	 * transport, which is taken when it is dialled again. */
	bool has_other;
};

struct wb_xport_stats { /* of one rail, since open */
	uint64_t rx_bytes, tx_bytes; /* payload */
	uint64_t rx_chunks, tx_chunks;
	uint64_t sleeps; /* times the rail's thread blocked */
	uint64_t rejected; /* connections that failed the challenge */
	uint64_t throttled_ns; /* time that work waited for the rate cap */
	uint64_t rekeys; /* TLS keys that were renewed here */
	uint64_t word_bytes; /* bytes of frames sent: all but payload */
	/* verbs: READs posted, times the device was told, completions taken, queue pairs lost */
	uint64_t requests, doorbells, completions, rails_lost;
};

/* ---- operations --------------------------------------------------------------------------- */

enum {
	WB_XPORT_CAP_REGIONS = 1u << 0, /* sources must lie in registered regions with an fd */
	WB_XPORT_CAP_THREADS = 1u << 1, /* rails have threads; event_fd() is worth polling */
	WB_XPORT_CAP_LOCAL = 1u << 2, /* only between agents of one host */
	/* Landings in regions cost less: into others bytes are copied. */
	WB_XPORT_CAP_LANDINGS = 1u << 3,
	WB_XPORT_CAP_CLEAR = 1u << 4, /* cannot be encrypted, and its bytes leave the host */
	WB_XPORT_CAP_GPU = 1u << 5, /* moves memory of GPUs */
	/* The source's CPU does not touch what is written.  Who wants a sum of it takes that before
	 * the write, on a thread of its own choice, once for all who ask; with .observe a rail
	 * reads the bytes only for that, again for each who asks.  Without this flag the source's
	 * rails observe the bytes as they go by.  At the receiver, in either case, rails notice
	 * that bytes have landed, and observe them then, while they are hot. */
	WB_XPORT_CAP_UNTOUCHED = 1u << 6,
};

/*
 * One transport.  The functions below call through this table; their contracts are its entries'.
 *
 * A new transport has to write: open, close, listen, connect with a challenge that both sides pass,
 * and poll; and how a grant, a cancel, an answer and the end of a connection get to the other side
 * (struct wb__desk_ops, desk.h).  All else is WB__DESK_OPERATIONS, and the book (book.h) keeps what
 * it promises to its user.  adopt, event_fd and stats may be NULL: no sockets, no descriptor, no
 * counters.  tests/common/xport_skeleton.c is the smallest that works; tests/unit/test_xport*.c is
 * what a real one has to pass.
 *
 * Bytes may move on any thread; chunks, and parts of a chunk, in any order.  ARRIVED is told when
 * all parts of a chunk have landed and its trailer is there.  CANCELLED, LOST and CONN_DOWN are
 * told when nothing can land any more: where the other side writes into our memory by itself, its
 * right to do so is taken away first (a queue pair is destroyed, a key is revoked), and a transport
 * that cannot take back one chunk alone ends the connection.  Retries are finite, with a deadline
 * of our own.
 */
struct wb_xport_ops {
	const char *name;
	/* Endpoint texts begin with it; "" = any text that no other scheme begins. */
	const char *scheme;
	uint32_t sockets_min; /* sockets of a connection, however few rails there are */
	uint32_t caps;
	uint32_t run_min; /* wb_xport_run_min(); 0 = WB_XPORT_RUN_MIN */
	/* Only for a set: returns the transport that carries @conn, NULL when none does.  NULL:
	 * this transport does. */
	struct wb_xport *(*carrier)(struct wb_xport *x, wb_conn_t conn);
	/* For wb_xport_open_set(); each may be NULL.  rail_addr: the address of a rail that is at
	 * HOST:PORT; NULL = just that.  is_mine: are these the first bytes of a socket for this
	 * transport?  NULL = never.  is_near: can an agent with the endpoint @theirs be on this
	 * host, if only such agents are reached?  NULL = agents need not be on one host. */
	int (*rail_addr)(const struct wb_xport_rail *r, const char *folder, char *out, size_t cap);
	bool (*is_mine)(const uint8_t *first, size_t bytes);
	bool (*is_near)(const char *mine, const char *theirs);
	int (*open)(const struct wb_xport_opts *o, struct wb_xport **out, struct wb_err *err);
	void (*close)(struct wb_xport *x);
	int (*listen)(struct wb_xport *x, char *endpoint, size_t cap, struct wb_err *err);
	int (*adopt)(struct wb_xport *x, int fd_take, struct wb_err *err); /* or NULL */
	int (*epoch_add)(struct wb_xport *x, const struct wb_xport_epoch *e, struct wb_err *err);
	int (*epoch_remove)(struct wb_xport *x, const struct wb_epoch_id *id);
	int (*region_add)(struct wb_xport *x, const struct wb_xport_region *r, uint32_t *id,
		struct wb_err *err);
	int (*region_remove)(struct wb_xport *x, uint32_t id);
	enum wb_xport_path (*region_path)(
		struct wb_xport *x, uint32_t id, char *out, size_t cap); /* or NULL */
	int (*connect)(struct wb_xport *x, const struct wb_xport_peer *p, wb_conn_t *out,
		struct wb_err *err);
	int (*disconnect)(struct wb_xport *x, wb_conn_t conn);
	int (*grant)(struct wb_xport *x, wb_conn_t conn, const struct wb_xport_grant *g);
	int (*cancel)(struct wb_xport *x, wb_conn_t conn, uint64_t cookie);
	int (*write)(struct wb_xport *x, wb_conn_t conn, const struct wb_xport_write *w);
	int (*refuse)(struct wb_xport *x, wb_conn_t conn, uint64_t grant, int code);
	int (*poll)(struct wb_xport *x, struct wb_xport_event *ev, int max);
	int (*event_fd)(struct wb_xport *x); /* or NULL */
	int (*stats)(struct wb_xport *x, uint32_t rail, struct wb_xport_stats *out); /* or NULL */
	bool (*instead)(struct wb_xport *x, uint64_t object, char *out, size_t cap); /* or NULL */
	bool (*reduced)(struct wb_xport *x, char *out, size_t cap); /* or NULL */
	bool (*keys)(struct wb_xport *x, char *out, size_t cap); /* or NULL */
	int (*serve)(struct wb_xport *x, const char *const *at, uint32_t n, char *endpoint,
		size_t cap, struct wb_err *err); /* NULL: see wb_xport_serve() */
};

/* First member of every transport's own struct. */
struct wb_xport {
	const struct wb_xport_ops *ops;
};

/** wb_xport_of_endpoint - name of the transport that an endpoint text belongs to; "" = to none.
 * Static. */
const char *wb_xport_of_endpoint(const char *endpoint);
/** wb_xport_way - copy the @i-th of the endpoints in a set's endpoint text, best first, to @out.
 * false: there are fewer, or no room. */
bool wb_xport_way(const char *endpoint, uint32_t i, char *out, size_t cap);
/** wb_xport_meet - is there a transport by which agents with these endpoint texts may reach each
 * other?  @allowed: as wb_xport_epoch.allowed.  Only connecting shows whether it works. */
bool wb_xport_meet(const char *mine, const char *theirs, const char *allowed, bool is_encrypted);
/**
 * wb_xport_memory - a text that is equal for agents that reach each other's memory by shm, and for
 *	no others, as far as can be known without connecting
 * @folder: where agents find each other; NULL: by names of their network namespace
 * It names the kernel that the agent runs under, and that place.  0; -errno of the system, -ENOSPC;
 * then @out is "".
 */
int wb_xport_memory(const char *folder, char *out, size_t cap);
/** wb_xport_memory_rate - bytes a second that one thread copies here, as each rail of shm does.  It
 * is the best of a few copies, which take a few milliseconds, of memory that no cache holds (on
 * x86-64 and arm64; elsewhere a cache may hold it, and the rate be too high).  0: no memory to try
 * it in. */
uint64_t wb_xport_memory_rate(void);
/** wb_xport_sockets - how many sockets a connection has from an agent with @n_rail rails to one
 * with this endpoint text, which has an address for each rail of that agent: each rail of either
 * agent has one, and there are at least ops->sockets_min, at most WB_XPORT_SOCKETS_MAX.  Of a set's
 * text: those of the transport that takes most. */
uint32_t wb_xport_sockets(uint32_t n_rail, const char *endpoint);

/** wb_xport_endpoint_of - copy an endpoint text to @out with only the addresses of the peer's rails
 * @rails, a bit each in their order; 0 = all.  In a set's text this is done to each endpoint.  0;
 * -EINVAL: there is no such rail; -ENOSPC. */
int wb_xport_endpoint_of(const char *endpoint, uint32_t rails, char *out, size_t cap);

/** wb_xport_find - the table of "tcp", "shm", "verbs" or a registered transport; NULL when unknown.
 */
const struct wb_xport_ops *wb_xport_find(const char *name);
/** wb_xport_register - make one more transport known by its name and scheme: a test double, or one
 * that lives outside of this folder.  @ops stays valid for the life of the process.  0, also for
 * the same @ops again; -EEXIST: another has this name or scheme; -ENOSPC: more than 8.  Call it
 * before threads start, or at least not while another function here takes a name or an endpoint. */
int wb_xport_register(const struct wb_xport_ops *ops);

/**
 * wb_xport_open - start a transport and its rail threads
 * Returns 0; -EINVAL bad options or name; -EMFILE, -ENOMEM, -EAGAIN from the system.  Blocks.
 * Close with wb_xport_close().
 */
int wb_xport_open(
	const char *name, const struct wb_xport_opts *o, struct wb_xport **out, struct wb_err *err);
/** wb_xport_check_names - can a set be opened with @names?  0; -EINVAL: one is not known, or comes
 * twice, or there are none or too many. */
int wb_xport_check_names(const char *names, struct wb_err *err);
/**
 * wb_xport_open_set - several transports as one
 * @names:	which, best first, with commas; "auto" = all that this host has (the others are left
 *	out, and the log says so)
 * @o:	rails have .addr HOST:PORT, and each transport has all rails; where rails are apart, only
 *	those of network transports have their rates
 * With one name just that transport is opened.  A set serves by each of its transports, and dials a
 * peer by the first that the epoch allows and both ends have.  When that fails, at connecting or
 * before a chunk has arrived (or often), the next one is taken for this peer and epoch:
 * WB_XP_CONN_DOWN says so by .has_other.  When all have failed the best has its turn again.  The
 * endpoint text of a set is that of each transport, best first, with semicolons.
 * Returns as wb_xport_open() and wb_xport_check_names().
 */
int wb_xport_open_set(const char *names, const struct wb_xport_opts *o, struct wb_xport **out,
	struct wb_err *err);
/** wb_xport_close - drop all connections without events, stop the threads, free.  When it returns
 *  nothing lands any more and no callback runs.  NULL is allowed.  Blocks (milliseconds). */
void wb_xport_close(struct wb_xport *x);

/**
 * wb_xport_listen - accept connections on every rail; called once
 * @endpoint: text for the peers' wb_xport_peer.endpoint; WB_XPORT_ENDPOINT_MAX bytes are enough
 * Returns 0, -EALREADY, -EADDRINUSE, -EADDRNOTAVAIL, -ENOSPC, ...  Blocks.
 */
int wb_xport_listen(struct wb_xport *x, char *endpoint, size_t cap, struct wb_err *err);
/** wb_xport_serve - be reached by peers: by wb_xport_adopt(), which gets the sockets that come to
 * the @n addresses @at (HOST:PORT, one for each rail), or by listeners of its own if the transport
 * only reaches agents of this host.  Writes @endpoint and returns as wb_xport_listen(). */
int wb_xport_serve(struct wb_xport *x, const char *const *at, uint32_t n, char *endpoint,
	size_t cap, struct wb_err *err);
/** wb_xport_adopt - serve a stream socket that was accepted elsewhere and whose challenge has not
 * begun.  Takes @fd_take, also on failure; the rail whose address the socket came to gets it.
 * Returns 0, -EAGAIN, -ENOTSUP (no sockets), -ENOMEM. */
int wb_xport_adopt(struct wb_xport *x, int fd_take, struct wb_err *err);

/** wb_xport_epoch_add - accept and make connections of this epoch.  0, also when it is known
 * already; -EEXIST: it is known with another key or encryption; -ENOSPC: more than 64; -ENOTSUP:
 * this transport or OpenSSL does not have that encryption. */
int wb_xport_epoch_add(struct wb_xport *x, const struct wb_xport_epoch *e, struct wb_err *err);
/** wb_xport_epoch_remove - forget the key and disconnect all connections of the epoch.
 *  Returns the number of connections that will report CONN_DOWN, or -ENOENT. */
int wb_xport_epoch_remove(struct wb_xport *x, const struct wb_epoch_id *id);

/** wb_xport_region_add - make memory known as a source or landing; the peers of its object learn of
 * a source.  Memory of a GPU has to be known before it is used in any way.  Returns 0, -EINVAL (the
 * sentence names the field that makes no sense), -ENOSPC, -EPERM (not sealable), -EMFILE.  Devices
 * may still be registering it after the call.  Release with wb_xport_region_remove(). */
int wb_xport_region_add(
	struct wb_xport *x, const struct wb_xport_region *r, uint32_t *id, struct wb_err *err);
/** wb_xport_region_remove - 0, -ENOENT, or -EBUSY while a write uses it. */
int wb_xport_region_remove(struct wb_xport *x, uint32_t id);
/** wb_xport_region_path - how the bytes of region @id get to the network; by which devices, or why
 * not, as a sentence into @out ("" = nothing to say).  Of a set: as the member says that does best.
 * Loop; changes from PENDING once, at a poll. */
enum wb_xport_path wb_xport_region_path(struct wb_xport *x, uint32_t id, char *out, size_t cap);

/**
 * wb_xport_connect - dial a peer, to receive from it
 * Asynchronous: CONN_UP or CONN_DOWN follows, never from inside the call.  When a peer refuses, its
 * sentence is the reason of CONN_DOWN.  Returns 0, -EINVAL (endpoint, name, rails, depth), -ENOENT
 * (epoch), -EPROTONOSUPPORT (the peer has no transport of this one's, or none that the epoch
 * allows), -ENOSPC (conns_max), -ENOMEM, or what the system says.
 */
int wb_xport_connect(
	struct wb_xport *x, const struct wb_xport_peer *p, wb_conn_t *out, struct wb_err *err);
/** wb_xport_disconnect - end a connection: everything outstanding ends as LOST or WRITE_DONE, then
 * CONN_DOWN (-ECONNABORTED) follows.  Returns 0 or -ENOTCONN. */
int wb_xport_disconnect(struct wb_xport *x, wb_conn_t conn);

/**
 * wb_xport_grant - ask for one chunk
 * Returns 0; -EAGAIN (depth reached or queue full: keep it, try after the next poll); -ENOTCONN;
 * -EINVAL (sizes; a connection that was not dialled from here, or is not up yet; a landing of a GPU
 * with .observe or without .copy); -ENOTSUP (a landing of a GPU, which this transport does not
 * move).  On failure no event follows.
 */
int wb_xport_grant(struct wb_xport *x, wb_conn_t conn, const struct wb_xport_grant *g);
/** wb_xport_cancel - take a grant back: CANCELLED follows, unless the grant ends otherwise first;
 * bytes under way are discarded.  Returns 0, -ENOENT (no such cookie), -EALREADY, -EAGAIN,
 * -ENOTCONN. */
int wb_xport_cancel(struct wb_xport *x, wb_conn_t conn, uint64_t cookie);
/**
 * wb_xport_write - answer a grant with its bytes
 * Returns 0; -ENOENT (no such open grant: answered or gone); -EINVAL (the list does not sum to the
 * grant's bytes, or lies outside the registered regions where they are required; memory of a GPU
 * with .observe); -ENOTSUP (memory of a GPU, which this transport does not move); -EAGAIN;
 * -ENOTCONN.  On failure no WRITE_DONE follows and the grant stays open.
 */
int wb_xport_write(struct wb_xport *x, wb_conn_t conn, const struct wb_xport_write *w);
/** wb_xport_refuse - answer a grant with "no": @code (negative) arrives as REFUSED.  Returns as
 * wb_xport_write(); -EINVAL: @code is not negative. */
int wb_xport_refuse(struct wb_xport *x, wb_conn_t conn, uint64_t grant, int code);

/** wb_xport_poll - take up to @max events; returns their number.  Call until it returns fewer. */
int wb_xport_poll(struct wb_xport *x, struct wb_xport_event *ev, int max);
/** wb_xport_event_fd - readable when wb_xport_poll() has something; -1 where there is none. */
int wb_xport_event_fd(struct wb_xport *x);
/** wb_xport_instead - is some peer of @object not reached by the best transport that it has in
 * common with this agent, where that one leaves the host?  (That memory of the host is not used is
 * not told.)  Who, and why, as a sentence into @out; false: there is none.  Only a set has such. */
bool wb_xport_instead(struct wb_xport *x, uint64_t object, char *out, size_t cap);
/** wb_xport_reduced - is one of the devices' ports that rails use down, so that its load goes by
 * others, if there are any?  Which, as a sentence into @out; false: none is down. */
bool wb_xport_reduced(struct wb_xport *x, char *out, size_t cap);
/** wb_xport_keys - which key a peer reads memory of this host by, device by device: a queue pair's
 * own (memory windows), or the region's; as a sentence into @out.  false: no device reads it.
 * Fixed when the transport is opened. */
bool wb_xport_keys(struct wb_xport *x, char *out, size_t cap);
/** wb_xport_rail_stats - counters of rail @rail; 0 or -EINVAL. */
int wb_xport_rail_stats(struct wb_xport *x, uint32_t rail, struct wb_xport_stats *out);

/** wb_xport_name - what it is called in options, metrics and sentences.  Static. */
static inline const char *wb_xport_name(const struct wb_xport *x)
{
	return x->ops->name;
}

/** wb_xport_caps - WB_XPORT_CAP_* of the transport; of a set, those that any of its transports has
 * and that matter before it is known which one carries a connection. */
static inline uint32_t wb_xport_caps(const struct wb_xport *x)
{
	return x->ops->caps;
}

/** wb_xport_carrier - table of the transport that carries @conn; of a set, that of the member.
 * Chunks on the connection should be made by this table's caps. */
static inline const struct wb_xport_ops *wb_xport_carrier(struct wb_xport *x, wb_conn_t conn)
{
	const struct wb_xport *by = x->ops->carrier ? x->ops->carrier(x, conn) : x;

	return by ? by->ops : x->ops;
}

/** wb_xport_run_min - how long, in bytes, the ranges of a chunk on @conn should be on average, at
 * least.  If they are shorter, it is faster for the user to pack them into one range, or take them
 * apart from one. */
static inline uint32_t wb_xport_run_min(struct wb_xport *x, wb_conn_t conn)
{
	uint32_t min = wb_xport_carrier(x, conn)->run_min;

	return min ? min : WB_XPORT_RUN_MIN;
}

#endif
