/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_INTERNAL_H
#define WB_XPORT_INTERNAL_H
/*
 * What tcp, shm and verbs share: connections of several stream sockets, rails with a thread each.
 *
 * The loop thread owns connections and ops; a rail thread owns its sockets.  They meet in two rings
 * for each rail: commands down, events up; what an item points to changes owner with the item.
 *
 *	loop.c		the operations of wb_xport_ops: the book (book.h), and commands to rails
 *	poll.c		what rails say, entered in the book, as events for the user
 *	rail.c		rail thread: sleep, wake, rate caps, deadlines
 *	handshake.c	the challenge
 *	secure.c	TLS after it, where the epoch asks for that
 *	sock.c		frames in, frames out, grants and answers of one socket
 *	inet.c		sockets of the network, for tcp and verbs
 *	ranges.c	answers that name memory, for shm and verbs
 *	tcp/, shm/, verbs/	addresses, and how payload moves: struct wb__link_ops
 *
 * A socket belongs to one conn for life.  The rail closes it and says EV_DOWN; the loop answers
 * with CMD_FREE, the last command that names the socket, and only then is it freed: so no ring ever
 * holds a dangling socket.  Ops live as long as their conn, which outlives its sockets.
 *
 * A slot is the place of one grant on one socket; how many there are is agreed in HELLO, and both
 * sides keep a table of them.  A new grant may use a slot when the answer to the last one is
 * complete.
 *
 * Invariants, asserted: a slot of a socket holds at most one grant; a socket sends one answer at a
 * time, and is in at most one list of its rail; whoever emits an event or sends an entry has made
 * sure that there is room; no more payload is taken than the WRITE frame said.  Nothing that a peer
 * sends is asserted: a peer that breaks a rule loses its connection.
 * Layer: xport (L2), internal.
 */
#include "base/base.h"
#include "base/ring.h"
#include "xport/desk.h"
#include "xport/frame.h"

#include <pthread.h>
#include <stdatomic.h>

#define WB__RING_ITEMS 4096
/* Sockets that a rail has accepted and that have proved nothing yet. */
#define WB__STRANGERS_MAX 1024
#define WB__LINGER_NS WB_NS_PER_S /* after this a stranger makes room for another */
#define WB__RX_BYTES (2 * WBP_BULK_FRAME_MAX)
#define WB__QUANTUM (1u << 20) /* bytes a socket may move before others get a turn */
#define WB__SCRATCH (64u << 10)
#define WB__UNSAID_MAX 4 /* when this many events are not said yet the loop is woken */
#define WB__AHEAD_MIN                                                                              \
	4 /* grants that keep a socket busy: what arrived need not be said at once                 \
	   */
#define WB__LINK_MARKS 32 /* kinds of descriptors that a link may have in a rail's epoll */
#define WB__EV_ROOM 8 /* a step makes fewer events than this */

struct wb__xport_stream;
struct wb__rail;
struct wb__conn;

/* ---- sockets (rail thread) --------------------------------------------------------------------
 */

enum wb__sock_state {
	WB__S_CONNECTING, /* dialer */
	WB__S_CHALLENGE, /* dialer: HELLO sent */
	WB__S_WELCOME, /* dialer: PROOF sent */
	WB__S_HELLO, /* acceptor */
	WB__S_PROOF, /* acceptor: CHALLENGE sent */
	WB__S_SECURE, /* PROOF sent or taken: the TLS handshake */
	WB__S_ADMIT, /* acceptor: proved; the loop decides */
	WB__S_UP,
	WB__S_CLOSED,
};

/* The source's side of a slot. */
enum wb__in_state {
	WB__IN_FREE,
	WB__IN_WAITING, /* the loop has not answered yet */
	WB__IN_GONE, /* cancelled before the loop answered; it knows, or will */
	WB__IN_WRITE, /* queued */
	WB__IN_REFUSE, /* queued */
	WB__IN_SENDING,
	WB__IN_SENT, /* shm, verbs: until RELEASE */
};

struct wb__in {
	uint64_t id, bytes;
	enum wb__in_state state;
	int code; /* REFUSE */
	struct wb__op *op; /* WRITE .. SENT */
	struct wb__in *next; /* in the socket's answer queue */
};

enum { WB__ON_NONE, WB__ON_READY, WB__ON_WAIT, WB__ON_SERVED };

struct wb__sock {
	struct wb__conn *conn; /* owned by the loop; NULL until the socket is admitted */
	struct wb__rail *rail;
	bool is_dialer;
	uint32_t n_slot;
	int fd;
	enum wb__sock_state state;
	int code; /* why it closed */
	uint64_t closed_ns;
	char reason[WB__REASON_MAX];
	char peer[WB_XPORT_NAME_MAX]; /* name of the peer; "" until known */

	/* scheduling */
	struct wb__sock *prev, *next; /* ready or waiting list */
	struct wb__sock *all_prev, *all_next;
	struct wb__sock *down_next;
	uint8_t on;
	bool rd_ready, wr_ready, is_hup;
	struct wb__sock *young_prev, *young_next;
	uint8_t young; /* enum wb__young_kind */
	uint64_t deadline_ns; /* handshake */
	uint64_t hold_until_ns; /* fault: delay */
	bool drop_soon; /* fault: drop in the middle of the chunk */

	/* frames */
	uint8_t rxb[WB__RX_BYTES];
	uint32_t rx_at, rx_have; /* bytes [at, have) are unread */
	bool in_payload; /* payload is coming in: the link reads it */
	uint8_t *txb; /* control frames out */
	uint32_t tx_at, tx_have, tx_cap;
	/* How many queued bytes may wait for others to go with, while rx_op is set. */
	uint32_t tx_lazy;

	/* handshake */
	struct wb__hello hello;
	uint8_t hello_raw[WBP_BULK_HELLO_BYTES];
	uint8_t key[WB_XPORT_KEY_BYTES];
	uint8_t nonce[WBP_BULK_NONCE]; /* acceptor's */
	struct wb__secure *secure; /* TLS, from WB__S_SECURE on; NULL = in the clear */

	/* receiver */
	struct wb__op **grant; /* [n_slot] */
	uint32_t n_grant; /* how many of these are set */
	struct wb__op *rx_op; /* grant whose bytes come now */
	uint64_t rx_left; /* payload bytes to come */
	uint8_t trailer[WB_XPORT_TRAILER_BYTES];
	uint32_t trailer_have;

	/* source */
	struct wb__in *in; /* [n_slot] */
	struct wb__in *q_head, **q_tail;
	struct wb__in *tx_in; /* answer being sent */
	bool is_trailer_queued;

	void *link; /* the link's own */
};

/* What a step of a socket returns; a negative errno: close it. */
enum {
	WB__IDLE = 0, /* nothing to do until the socket or a command brings more */
	WB__AGAIN = 1, /* its budget is used up: once more */
	WB__WAIT = 2, /* rate cap, full ring, fault: the rail's wake time is set */
};

/* ---- rails ------------------------------------------------------------------------------------
 */

struct wb__bucket {
	double rate, tokens, burst; /* bytes/s (0 = no cap), bytes */
	/* Bytes that one socket may move before others get a turn: what one wake-up earns. */
	size_t most;
	uint64_t last_ns;
};

struct wb__list {
	struct wb__sock *head, *tail;
};

/* Sockets that are not UP, by kind: those we dialled; those that we accepted and that have proved
 * nothing yet (strangers); those that we accepted and that have proved who they are.  Each list is
 * in the order of deadlines. */
enum wb__young_kind {
	WB__YOUNG_NONE,
	WB__YOUNG_DIALLED,
	WB__YOUNG_STRANGER,
	WB__YOUNG_PROVED,
	WB__YOUNGS,
};
struct wb__young {
	struct wb__sock *head, *tail;
	uint32_t n;
};

struct wb__rail {
	struct wb__xport_stream *x;
	uint32_t index;
	pthread_t thread;
	bool is_started, is_stopping;
	int epfd, cmd_fd, listen_fd;
	char addr[256], advertise[128];
	char unlink_path[128]; /* shm: path to unlink at close */
	struct wb_ring cmd, ev;
	_Atomic int asleep;
	/* rail thread */
	struct wb__list ready, waiting;
	/* Sockets that have moved bytes in this round and have to wait.  At the end of the round
	 * they go behind the others that wait. */
	struct wb__list served;
	struct wb__sock *all;
	/* Events that commands and ends of sockets make are said in order, and wait when the ring
	 * has no room: */
	struct wb__op *late_head, **late_tail; /* before any other event */
	struct wb__sock *down_head, **down_tail; /* EV_DOWN, after those */
	uint64_t now_ns, wake_ns, stall_until_ns, idle_since_ns, accept_at_ns, throttled_until_ns;
	struct wb__young young[WB__YOUNGS];
	struct wb__sock
		*dropped; /* strangers that made room for others; the loop never heard of them */
	uint32_t n_unsaid; /* events that the loop has not been woken for */
	struct wb__bucket rx, tx;
	uint8_t *scratch;
	void *link; /* the link's own */
	/* The address of each byte stands for one of the link's descriptors in epfd. */
	char link_mark[WB__LINK_MARKS];
	/* counters: written by the rail, read by the loop */
	_Atomic uint64_t rx_bytes, tx_bytes, rx_chunks, tx_chunks, sleeps, rejected, throttled_ns;
	_Atomic uint64_t rekeys, word_bytes, requests, doorbells, completions, rails_lost;
};

enum wb__cmd_kind {
	WB__CMD_STOP = 1,
	WB__CMD_LISTEN, /* n = fd */
	WB__CMD_ADOPT, /* n = fd */
	WB__CMD_DIAL, /* sock */
	WB__CMD_ADMIT, /* sock */
	WB__CMD_CLOSE, /* sock, code */
	WB__CMD_FREE, /* sock */
	WB__CMD_GRANT, /* sock, op, chunk */
	WB__CMD_CANCEL, /* sock, op, id */
	WB__CMD_WRITE, /* sock, op, id */
	WB__CMD_REFUSE, /* sock, id, code */
	WB__CMD_REGION, /* n = id, region (the rail keeps a copy) */
	WB__CMD_UNREGION, /* n = id */
	WB__CMD_LINK, /* n, p: the link's own */
};

struct wb__cmd {
	enum wb__cmd_kind kind;
	int code;
	uint64_t id;
	int64_t n;
	struct wb__sock *sock;
	struct wb__op *op;
	void *p; /* LINK */
	struct wb_xport_chunk chunk; /* GRANT */
	struct wb_xport_region region; /* REGION; the rail owns its fd from then on */
};

enum wb__ev_kind {
	WB__EV_AUTHED = 1, /* sock: accepted and proved */
	WB__EV_UP, /* sock: welcome */
	WB__EV_DOWN, /* sock: closed; code and reason in it */
	WB__EV_ARRIVED, /* op, trailer */
	WB__EV_REFUSED, /* op, code */
	WB__EV_CANCELLED, /* op: nothing lands any more */
	WB__EV_RETIRED, /* op: the answer to a cancelled grant is over, its slot is free */
	WB__EV_GRANT, /* id, chunk */
	WB__EV_GONE, /* id */
	WB__EV_WRITTEN, /* op, code */
};

struct wb__ev {
	enum wb__ev_kind kind;
	int code;
	struct wb__sock *sock;
	struct wb__op *op;
	uint64_t id, at_ns;
	union {
		struct wb_xport_chunk chunk;
		uint8_t trailer[WB_XPORT_TRAILER_BYTES];
	} u;
};

/* ---- links: tcp, shm and verbs ----------------------------------------------------------------
 */

struct wb__link_ops {
	uint16_t over; /* WBP_BULK_OVER_* */
	/* The same in encrypted epochs; 0 = no other, bytes stay within the host. */
	uint16_t over_secure;
	bool is_clear; /* it cannot be encrypted, and its bytes leave the host */
	bool rx_exact; /* payload follows WRITE in the stream: a dialer reads frame by frame */
	uint32_t tx_extra; /* bytes of control frames beyond those of the slots */
	/* loop thread; fds are non-blocking */
	int (*listen)(struct wb__rail *r, int *fd, char *endpoint, size_t cap, struct wb_err *err);
	int (*dial)(struct wb__rail *r, const char *endpoint, int *fd, struct wb_err *err);
	void (*tune)(struct wb__xport_stream *x, int fd); /* or NULL */
	/* Did this socket come in at the rail's address?  NULL: the link cannot tell. */
	bool (*is_home)(const struct wb__rail *r, int fd);
	/* For the whole transport, with its state in x->own.  open: before its rails; close: after
	 * them (also after a failed open); region_*: in place of `region` below; poll: takes in
	 * what other threads have done, at each poll.  NULL: nothing to do. */
	int (*open)(struct wb__xport_stream *x, const struct wb_xport_opts *o, struct wb_err *err);
	void (*close)(struct wb__xport_stream *x);
	int (*region_add)(struct wb__xport_stream *x, uint32_t id, const struct wb_xport_region *r,
		struct wb_err *err);
	void (*region_remove)(struct wb__xport_stream *x, uint32_t id);
	enum wb_xport_path (*region_path)(
		struct wb__xport_stream *x, uint32_t id, char *out, size_t cap);
	void (*poll)(struct wb__xport_stream *x);
	/* rail thread */
	int (*rail_open)(struct wb__rail *r); /* before the thread starts */
	void (*rail_close)(struct wb__rail *r); /* after it ended */
	int (*region)(struct wb__rail *r, const struct wb__cmd *c); /* REGION, UNREGION */
	void (*command)(struct wb__rail *r, const struct wb__cmd *c); /* LINK */
	/* What the rail has beside its sockets; each may be NULL.  rail_poll: look; true if there
	 * was something.  rail_arm: see to it that the rail is woken when there is something; false
	 * if there is already.  rail_event: a descriptor of its epoll with &r->link_mark[@mark] was
	 * ready. */
	bool (*rail_poll)(struct wb__rail *r);
	bool (*rail_arm)(struct wb__rail *r);
	void (*rail_event)(struct wb__rail *r, uint32_t mark);
	int (*sock_open)(struct wb__sock *s); /* it is UP; NULL: nothing to do */
	void (*sock_close)(struct wb__sock *s); /* uses s->link only */
	/* As recv(), for frames; -1 and errno. */
	ssize_t (*recv)(struct wb__sock *s, void *p, size_t n);
	/* A frame that only this link has. */
	int (*on_frame)(struct wb__sock *s, const struct wb__frame *f);
	int (*rx_begin)(struct wb__sock *s); /* WRITE came: rx_op (may be dead), rx_left */
	int (*rx_payload)(struct wb__sock *s, uint32_t *budget); /* while in_payload */
	/* Send the link's own words between answers: 0, 1 = socket full, negative. */
	int (*tx_idle)(struct wb__sock *s);
	int (*tx_begin)(struct wb__sock *s); /* tx_in: queue the WRITE frame */
	int (*tx_payload)(struct wb__sock *s, uint32_t *budget); /* until tx_in is NULL */
	/* A grant is taken back.  True: nothing of it can land any more; false: bytes of it may
	 * still land, and wb__sock_cancelled() follows.  NULL: bytes land only while the socket's
	 * turn moves them. */
	bool (*revoke)(struct wb__sock *s, struct wb__op *op);
};

extern const struct wb__link_ops wb__link_tcp, wb__link_shm, wb__link_verbs;

/* ---- the transport (loop thread, but for what is marked) ---------------------------------------
 */

struct wb__xport_stream {
	struct wb__desk desk; /* must be first; rails read the epochs in it, under epoch_lock */
	const struct wb__link_ops *link;
	struct wb_xport_opts o; /* of its pointers only clock and fault are kept */
	char name[WB_XPORT_NAME_MAX];
	struct wb__rail *rail; /* [n_rail] */
	uint32_t n_rail;
	int event_fd;
	_Atomic int signalled; /* an event_fd write is under way or unread */
	bool is_listening;
	uint32_t adopt_next;
	struct wb__sock *rejected; /* sockets to be freed at the next poll */
	pthread_mutex_t epoch_lock; /* guards: desk.book.epoch; leaf; not on the chunk path */
	void *own; /* the link's */
	struct wb__secure_ctx *secure; /* made with the first encrypted epoch */
};

/** wb__xport_stream - the transport that has this base. */
static inline struct wb__xport_stream *wb__xport_stream(struct wb_xport *x)
{
	return wb_container_of(x, struct wb__xport_stream, desk.base);
}

/** wb__xport_stream_epoch_of - copy the epoch that a HELLO names, with its key, to @out; false: it
 * is not known.  Any thread. */
bool wb__xport_stream_epoch_of(
	struct wb__xport_stream *x, const struct wb__hello *h, struct wb_xport_epoch *out);
/** wb__xport_stream_over - WBP_BULK_OVER_* that sockets of this epoch use. */
static inline uint16_t wb__xport_stream_over(
	const struct wb__xport_stream *x, const struct wb_xport_epoch *e)
{
	return e->is_encrypted && x->link->over_secure ? x->link->over_secure : x->link->over;
}
/** wb__xport_stream_via - wb_xport_conn_info.via of its connections; static. */
static inline const char *wb__xport_stream_via(
	const struct wb__xport_stream *x, const struct wb_xport_epoch *e)
{
	return wb__xport_stream_over(x, e) == WBP_BULK_OVER_TLS ? "tcp+tls"
								: x->desk.base.ops->name;
}

/* rail.c */
/** wb__rail_open - make rail @index and start its thread.  0 or negative: call wb__rail_close() in
 * either case. */
int wb__rail_open(struct wb__xport_stream *x, uint32_t index, const struct wb_xport_rail *o);
/** wb__rail_close - stop the rail's thread, close all that it has, free it; also after a failed
 * open.  Blocks. */
void wb__rail_close(struct wb__rail *r);
/** wb__cmd_has_room - loop: is less than half of the ring used?  The other half is for commands
 * that must not fail. */
static inline bool wb__cmd_has_room(struct wb__rail *r)
{
	return wb_ring_room(&r->cmd) > WB__RING_ITEMS / 2;
}
/** wb__cmd - loop: push a command; -EAGAIN when there is no room. */
int wb__cmd(struct wb__rail *r, const struct wb__cmd *c);
/** wb__cmd_must - loop: push a command that must not fail; yields to the rail while the ring is
 * full.  Rails take commands whether or not anybody takes their events, so this ends within a round
 * of the rail. */
void wb__cmd_must(struct wb__rail *r, const struct wb__cmd *c);
/** wb__emit - rail: push an event; there must be room (wb__rail_has_room()).  @may_wait: the loop
 * need not be woken for it at once, but at the end of the rail's round at the latest, with other
 * events. */
void wb__emit(struct wb__rail *r, struct wb__ev *e, bool may_wait);
/** wb__emit_of_cmd - rail: the same for an event that a command makes of its op, whether or not
 * there is room: without room it waits, and is said before any other event.  At most one waits for
 * an op. */
void wb__emit_of_cmd(struct wb__rail *r, struct wb__ev *e);
static inline bool wb__rail_has_room(struct wb__rail *r)
{
	return !r->late_head && wb_ring_room(&r->ev) >= WB__EV_ROOM;
}
/** wb__rail_wake_at - look at the waiting sockets again at @ns. */
static inline void wb__rail_wake_at(struct wb__rail *r, uint64_t ns)
{
	r->wake_ns = WB_MIN(r->wake_ns, ns);
}
/** wb__rail_ready - @s has something to do. */
void wb__rail_ready(struct wb__rail *r, struct wb__sock *s);
/** wb__young_move - @s becomes a young socket of another kind, with a new deadline; YOUNG_NONE: it
 * is UP or closed. */
void wb__young_move(struct wb__rail *r, struct wb__sock *s, enum wb__young_kind to);
/** wb__bucket_ok - may payload move now?  If not, the rail's wake time is set. */
bool wb__bucket_ok(struct wb__rail *r, struct wb__bucket *b);
/** wb__bucket_take - rail: @bytes of payload have moved.  The bucket may go below zero; the next
 * bytes wait for it. */
static inline void wb__bucket_take(struct wb__bucket *b, size_t bytes)
{
	b->tokens -= (double)bytes;
}
/** wb__count - add to a counter that only this thread writes; others read it at any time. */
static inline void wb__count(_Atomic uint64_t *c, uint64_t n)
{
	atomic_store_explicit(
		c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_relaxed);
}

/* sock.c */
/** wb__sock_create - a socket of rail @r over @fd, which is connected or connecting; NULL: no
 * memory.  wb__sock_free() does not close @fd. */
struct wb__sock *wb__sock_create(struct wb__rail *r, int fd, bool is_dialer);
/** wb__sock_tables - make slot tables and the control buffer, before the socket is UP.  Dialer: by
 * the loop, before CMD_DIAL; acceptor: by the rail.  0 or -ENOMEM. */
int wb__sock_tables(struct wb__sock *s, uint32_t n_slot);
/** wb__sock_free - free it and its tables; its descriptor is closed or belongs to somebody else.
 * NULL is allowed. */
void wb__sock_free(struct wb__sock *s);
/** wb__sock_fail - note why the socket fails (the first cause stays); returns @code. */
int wb__sock_fail(struct wb__sock *s, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/** wb__sock_errno - wb__sock_fail() for an errno of a socket call. */
int wb__sock_errno(struct wb__sock *s, int err);
/** wb__sock_turn - let the socket work for a quantum: WB__IDLE, WB__AGAIN, WB__WAIT or negative. */
int wb__sock_turn(struct wb__sock *s);
/** wb__sock_send - queue a control frame.  There is room, since the buffer has it for every frame
 * that may be sent; if not, -EPROTO. */
int wb__sock_send(struct wb__sock *s, const struct wb__frame *f);
/** wb__sock_send_lazy - queue a frame that the peer need not be woken for: it goes with the next
 * one, at the latest when no chunk is coming in. */
int wb__sock_send_lazy(struct wb__sock *s, const struct wb__frame *f);
/** wb__sock_push - send bytes [*at, have) of @p on the socket as they are: 1 = all sent, 0 = socket
 * full, negative.  *at is moved on. */
int wb__sock_push(struct wb__sock *s, const uint8_t *p, uint32_t *at, uint32_t have, int flags);
/** wb__sock_flush - send queued control frames; 1 = all sent, 0 = socket full, negative. */
int wb__sock_flush(struct wb__sock *s, int flags);
/** wb__sock_cmd - carry out a GRANT, CANCEL, WRITE or REFUSE of the loop, for a socket that is
 * UP. */
void wb__sock_cmd(struct wb__sock *s, const struct wb__cmd *c);
/** wb__sock_arrived - the running answer is complete; trailer in s->trailer. */
void wb__sock_arrived(struct wb__sock *s);
/** wb__sock_whole - the answer to @op is complete; unlike wb__sock_arrived() for any answer, not
 * only the running one. */
void wb__sock_whole(
	struct wb__sock *s, struct wb__op *op, const uint8_t trailer[WB_XPORT_TRAILER_BYTES]);
/** wb__sock_cancelled - nothing of a grant that was taken back lands any more. */
void wb__sock_cancelled(struct wb__sock *s, struct wb__op *op);
/** wb__sock_unwrite - the running write, of which nothing was sent, cannot be carried out: the
 * source's user is told @code, and the receiver's user gets it as a refusal. */
int wb__sock_unwrite(struct wb__sock *s, int code);
/** wb__sock_written - a write is over: the running one or (shm, verbs) an earlier one. */
void wb__sock_written(struct wb__sock *s, struct wb__in *in);
/** wb__sock_in - the source's slot of grant @id if it is there, else NULL. */
struct wb__in *wb__sock_in(struct wb__sock *s, uint64_t id);
/** wb__fault_begin - carry out faults that are due at the start of a chunk that this side moves; 0
 * or negative. */
int wb__fault_begin(struct wb__sock *s, struct wb__op *op);

/* handshake.c */
int wb__handshake_start(struct wb__sock *s); /* dialer: connected */
/** wb__handshake_frame - handle one frame of a socket that is not UP yet: @f is @raw decoded, and
 * @raw is as it came, since the MAC covers that.  0, or negative and noted in the socket: close
 * it. */
int wb__handshake_frame(struct wb__sock *s, const struct wb__frame *f, const uint8_t *raw);
/** wb__handshake_welcome - acceptor, in ADMIT: the loop admits the socket, which is then UP; or
 * negative. */
int wb__handshake_welcome(struct wb__sock *s);
/** wb__handshake_reject - tell the dialer why it is rejected, if the socket takes it. */
void wb__handshake_reject(struct wb__sock *s);

/* loop.c */
/** wb__xport_stream_open - wb_xport_open() for a transport of rails and sockets; such transports
 * differ by @link only. */
int wb__xport_stream_open(const struct wb_xport_ops *ops, const struct wb__link_ops *link,
	const struct wb_xport_opts *o, struct wb_xport **out, struct wb_err *err);
/** wb__xport_stream_close, wb__xport_stream_listen, wb__xport_stream_adopt,
 * wb__xport_stream_epoch_add, wb__xport_stream_epoch_remove, wb__xport_stream_region_add,
 * wb__xport_stream_region_remove, wb__xport_stream_region_path, wb__xport_stream_connect,
 * wb__xport_stream_poll, wb__xport_stream_event_fd, wb__xport_stream_stats - other operations of
 * struct wb_xport_ops, as it says them; the rest are the desk's.  Loop thread. */
void wb__xport_stream_close(struct wb_xport *x);
int wb__xport_stream_listen(struct wb_xport *x, char *endpoint, size_t cap, struct wb_err *err);
int wb__xport_stream_adopt(struct wb_xport *x, int fd_take, struct wb_err *err);
int wb__xport_stream_epoch_add(
	struct wb_xport *x, const struct wb_xport_epoch *e, struct wb_err *err);
int wb__xport_stream_epoch_remove(struct wb_xport *x, const struct wb_epoch_id *id);
int wb__xport_stream_region_add(
	struct wb_xport *x, const struct wb_xport_region *r, uint32_t *id, struct wb_err *err);
int wb__xport_stream_region_remove(struct wb_xport *x, uint32_t id);
enum wb_xport_path wb__xport_stream_region_path(
	struct wb_xport *x, uint32_t id, char *out, size_t cap);
int wb__xport_stream_connect(
	struct wb_xport *x, const struct wb_xport_peer *p, wb_conn_t *out, struct wb_err *err);
int wb__xport_stream_poll(struct wb_xport *x, struct wb_xport_event *ev, int max);
int wb__xport_stream_event_fd(struct wb_xport *x);
int wb__xport_stream_stats(struct wb_xport *x, uint32_t rail, struct wb_xport_stats *out);

/* All operations but open, for the table of such a transport. */
#define WB__STREAM_OPERATIONS                                                                      \
	.close = wb__xport_stream_close, .listen = wb__xport_stream_listen,                        \
	.adopt = wb__xport_stream_adopt, .epoch_add = wb__xport_stream_epoch_add,                  \
	.epoch_remove = wb__xport_stream_epoch_remove, .region_add = wb__xport_stream_region_add,  \
	.region_remove = wb__xport_stream_region_remove,                                           \
	.region_path = wb__xport_stream_region_path, .connect = wb__xport_stream_connect,          \
	.disconnect = wb__desk_disconnect, .grant = wb__desk_grant, .cancel = wb__desk_cancel,     \
	.write = wb__desk_write, .refuse = wb__desk_refuse, .poll = wb__xport_stream_poll,         \
	.event_fd = wb__xport_stream_event_fd, .stats = wb__xport_stream_stats

/* Named in xport.c. */
extern const struct wb_xport_ops wb_xport_tcp, wb_xport_shm, wb_xport_verbs;

#endif
