/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_TLS_CHAN_H
#define WB_NET_TLS_CHAN_H
/*
 * The inside of a TLS channel, for tls_chan.c and dial.c.
 *
 * OpenSSL reads and writes the socket itself; the loop only watches it.  That saves a copy and a
 * second queue.  Layer: net (L1), internal.
 */
#include "net/internal.h"

enum wb__chan_state { WB__DIALLING, WB__HANDSHAKE, WB__OPEN, WB__CLOSING, WB__ENDED };

/* A frame to be sent: its copied part, then its lent part. */
struct wb__block {
	struct wb__block *next;
	size_t bytes, at; /* bytes: of both parts; at: how many were given to OpenSSL */
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
	struct wb_timer *timer; /* for connect and handshake; progress of the peer; linger */
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
	/* Bytes that came and went since the timer last checked; STUCK_BYTES for a frame or queue
	 * that has begun since. */
	size_t came, went;
	bool is_looked_after; /* the timer will check progress */
	bool is_put_off; /* on_head has put off the frame that begins */
	struct wb_err why;
	struct wb__defer later;
	bool is_deferred; /* later is queued for resume_reading() */
	bool was_open, said_goodbye, is_abandoned;
	struct wb__dial *dial; /* while dialling */
};

/** wb__chan_new - make a channel without a socket; its deadline is running.  0 or -ENOMEM. */
int wb__chan_new(struct wb_loop *loop, struct wb_tls *tls, const char *peer,
	const struct wb_chan_limits *limits, struct wb__tls_chan **out);
/** wb__chan_start - give the channel a connected socket, and begin the handshake.  Takes @fd_take
 * on success. */
int wb__chan_start(struct wb__tls_chan *c, int fd_take);
/** wb__chan_handshake - continue the handshake as far as the socket allows; ends in on_open or
 * on_closed. */
void wb__chan_handshake(struct wb__tls_chan *c);
/** wb__chan_end - end the channel now; on_closed follows from the loop.  @why NULL = in order. */
void wb__chan_end(struct wb__tls_chan *c, const struct wb_err *why);
/** wb__dial_stop - stop dialling; does nothing when dialling is over. */
void wb__dial_stop(struct wb__tls_chan *c);

#endif
