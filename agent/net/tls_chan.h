/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_TLS_CHAN_H
#define WB_NET_TLS_CHAN_H
/*
 * Inside of a TLS channel, for tls_chan.c and dial.c.
 *
 * OpenSSL reads and writes the socket itself; the loop only watches it.  That saves a copy and a
 * second queue.  Layer: net (L1), internal.
 */
#include "net/internal.h"

enum wb__chan_state { WB__DIALLING, WB__HANDSHAKE, WB__OPEN, WB__CLOSING, WB__ENDED };

/* A frame that is to go: what is copied of it, then what is lent. */
struct wb__block {
	struct wb__block *next;
	size_t bytes, at; /* of both; at: already given to OpenSSL */
	struct wb_lent rest; /* bytes 0 = nothing is lent */
	uint8_t data[];
};

struct wb__dial;

struct wb__tls_chan {
	struct wb_chan base;
	struct wb_loop *loop;
	struct wb_tls *tls; /* referenced */
	SSL *ssl;
	struct wb_watch *watch;
	struct wb_timer *timer; /* connect and handshake; who gets on; linger */
	enum wb__chan_state state;
	int fd, events;
	struct wb_chan_limits limits;
	struct wb__chan_owner owner;
	char peer[WB__PEER_MAX];
	const char *host; /* dialled; owned by dial */
	struct wb__tls_seen seen;
	/* out */
	struct wb__block *head, **tail;
	size_t queued_bytes;
	/* in: @have bytes of the present frame; its header first */
	uint8_t frame_head[WB_FRAME_HEAD_BYTES], *frame;
	size_t have, frame_bytes;
	size_t frame_max; /* 0 = what the framer allows */
	/* What came and went since the timer last looked, or STUCK_BYTES for what is new since. */
	size_t came, went;
	bool is_looked_after; /* the timer will look */
	bool is_put_off; /* the frame that begins: by on_head */
	struct wb_err why;
	struct wb__defer later;
	bool is_deferred; /* later is queued for resume_reading() */
	bool was_open, said_goodbye, is_abandoned;
	struct wb__dial *dial; /* while dialling */
};

/** wb__chan_new - a channel without a socket, with its deadline running.  0 or -ENOMEM. */
int wb__chan_new(struct wb_loop *loop, struct wb_tls *tls, const char *peer,
	const struct wb_chan_limits *limits, struct wb__tls_chan **out);
/** wb__chan_start - a connected socket: the handshake comes next.  Takes @fd_take on success. */
int wb__chan_start(struct wb__tls_chan *c, int fd_take);
/** wb__chan_handshake - go on with the handshake as far as the socket lets it; ends in on_open or
 *  on_closed. */
void wb__chan_handshake(struct wb__tls_chan *c);
/** wb__chan_end - end now; on_closed follows from the loop.  @why NULL = in order. */
void wb__chan_end(struct wb__tls_chan *c, const struct wb_err *why);
/** wb__dial_stop - give up dialling; nothing to do when it is over. */
void wb__dial_stop(struct wb__tls_chan *c);

#endif
