/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_LISTEN_H
#define WB_NET_LISTEN_H
/*
 * One TCP port for control and bulk connections.
 *
 * The first byte of a new connection decides: 0x16 (a TLS handshake record) becomes a channel;
 * anything else is handed out as a raw socket with that byte still unread, when the listener has
 * an on_raw, and closed otherwise.
 *
 * A peer is a stranger until it has proved who it is: by the handshake, if that requires a key,
 * else when wb_chan_trust() says so.  The number of strangers is bounded in all and for each
 * address.  When all places are taken, the address that has most of them gives one up for an
 * address that has fewer, else the oldest stranger that has made no progress is closed.  Peers
 * whose claim is being checked (WB_CHAN_CLAIMS) are counted separately: 1024, 256 of one address.
 * Handshakes of one address, except this pod's own, begin at a bounded rate, 64 at once and then 32
 * a second, since they take processor time: a peer that comes faster waits, and is refused if its
 * turn is after its deadline.  Silent connections end at a deadline.  Threads: the loop's.  Layer:
 * net (L1).
 */
#include "net/tls.h"

struct wb_listener;

struct wb_listen_cb {
	void *cookie;
	/* Handshake done.  Bind callbacks or close the channel before returning. */
	void (*on_chan)(void *cookie, struct wb_chan *ch);
	/* @fd_take: non-blocking, close-on-exec, the callee's; NULL = such connections are closed
	 */
	void (*on_raw)(void *cookie, int fd_take, const char *peer);
	/* A connection that was turned away, with the reason; for logs and counters.  May be NULL.
	 */
	void (*on_refused)(void *cookie, const char *peer, const struct wb_err *why);
};

struct wb_listen_opts {
	const char *host; /* address; NULL or "" = all */
	uint16_t port; /* 0 = any free one */
	struct wb_tls *tls; /* server context, referenced */
	/* connect_ns: for silence and handshake together; 0 = 5 s */
	struct wb_chan_limits limits;
	uint32_t conns_max; /* in all; 0 = 4096 */
	uint32_t pending_max; /* strangers; 0 = 256 */
	/* Strangers of one address, except this pod's own; 0 = 64.  Pods rarely share an address:
	 * only those on the host's network, and those behind a gateway of another cluster. */
	uint32_t source_max;
	bool proves_later; /* a handshake proves nothing: wb_chan_trust() is needed */
};

/** wb_listen - bind and listen.  0; -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, ... (address named);
 * -EINVAL; -ENOMEM.  Blocks to look up a host name (use an address). */
int wb_listen(struct wb_loop *loop, const struct wb_listen_opts *o, const struct wb_listen_cb *cb,
	struct wb_listener **out, struct wb_err *err);
/** wb_listener_port - the port on which it listens. */
uint16_t wb_listener_port(const struct wb_listener *l);
/** wb_listener_close - stop listening, drop unfinished connections (without callback), and free.
 * Channels that were handed out continue.  NULL is allowed. */
void wb_listener_close(struct wb_listener *l);

#endif
