/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_CHAN_H
#define WB_NET_CHAN_H
/*
 * A channel: whole frames in order to one peer and back.
 *
 * This is the interface below the control plane: TLS (tls.h, listen.h) is one implementation, the
 * simulator has another.  Only the framer knows what a frame is (proto's wb_frame_length): net
 * never looks inside.
 *
 * Life: a channel is created by a connect or handed out by a listener; wb_chan_bind() sets the
 * callbacks.  on_closed is called exactly once, never from inside a call on the channel, and is the
 * last callback: after it returns the channel is freed.  It follows wb_chan_close(), or the loss of
 * the peer.
 *
 * A channel does not notice a half-open connection: users send heartbeats.  It does notice a peer
 * that is there and does not read, or does not finish a frame that it has begun: see stuck_ns
 * (tls.h).
 * Threads: the loop's.  Layer: net (L1).
 */
#include "base/err.h"
#include "base/lent.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

struct wb_chan;

#define WB_FRAME_HEAD_BYTES 16
#define WB_CHAN_BINDING_BYTES 32
#define WB_CHAN_BINDING_TEXT (2 * WB_CHAN_BINDING_BYTES + 1)

/**
 * wb_framer_fn - length of the frame that begins with @head
 * @head:	WB_FRAME_HEAD_BYTES bytes, untrusted
 * @total_out:	bytes of the whole frame, at least WB_FRAME_HEAD_BYTES
 * Returns 0 or negative with a sentence, which closes the channel.  The framer enforces caps: the
 * channel allocates what the framer allows.
 */
typedef int (*wb_framer_fn)(
	void *cookie, const uint8_t *head, size_t *total_out, struct wb_err *err);

struct wb_chan_cb {
	void *cookie;
	/* Connected and authenticated; frames may be sent.  Only for dialled channels. */
	void (*on_open)(void *cookie, struct wb_chan *ch);
	/* One whole frame; @frame is borrowed for the call. */
	void (*on_frame)(void *cookie, struct wb_chan *ch, const uint8_t *frame, size_t bytes);
	/* The channel has ended; why->code is 0 after wb_chan_close() or when the peer closed in
	 * order. */
	void (*on_closed)(void *cookie, struct wb_chan *ch, const struct wb_err *why);
	/* Optional: a frame of @bytes bytes begins.  Returns 0; -EAGAIN: not now, and nothing more
	 * is read before wb_chan_resume(); another code: @cookie's owner has closed the channel. */
	int (*on_head)(void *cookie, struct wb_chan *ch, size_t bytes);
	/* Optional: the peer makes no progress (stuck_ns): close the channel.  NULL = the channel
	 * just ends. */
	void (*on_stuck)(void *cookie, struct wb_chan *ch, const struct wb_err *why);
	/* Optional: everything queued has been given to the system; never called from inside a call
	 * on the channel. */
	void (*on_room)(void *cookie, struct wb_chan *ch);
};

/* How far the peer of an accepted channel has come. */
enum wb_chan_trust {
	WB_CHAN_CLAIMS, /* it has said who it is, and this is being checked */
	WB_CHAN_PROVED, /* the check has succeeded */
};

struct wb_chan_ops {
	int (*send)(struct wb_chan *ch, const void *frame, size_t bytes);
	/* may be NULL: then lent bytes are copied */
	int (*send_lent)(
		struct wb_chan *ch, const void *head, size_t bytes, const struct wb_lent *rest);
	void (*close)(struct wb_chan *ch);
	const char *(*peer)(const struct wb_chan *ch);
	const char *(*identity)(const struct wb_chan *ch);
	size_t (*queued)(const struct wb_chan *ch);
	int (*binding)(const struct wb_chan *ch, uint8_t *out); /* may be NULL */
	int (*trust)(struct wb_chan *ch, enum wb_chan_trust how_far); /* may be NULL */
	void (*limit)(struct wb_chan *ch, size_t frame_bytes_max); /* may be NULL */
	/* May be NULL, if the implementation never calls on_head */
	void (*resume)(struct wb_chan *ch);
};

/* First member of every implementation. */
struct wb_chan {
	const struct wb_chan_ops *ops;
	struct wb_chan_cb cb;
};

/** wb_chan_bind - set the callbacks; a second call replaces them. */
static inline void wb_chan_bind(struct wb_chan *ch, const struct wb_chan_cb *cb)
{
	ch->cb = *cb;
}

/**
 * wb_chan_send - queue one frame
 * @frame:	whole frame, copied
 * Returns 0 (queued, not delivered); -EAGAIN when the queue is at its cap (the peer does not
 * read: slow down or close); -EMSGSIZE when the frame alone is above the cap; -ENOTCONN before
 * on_open or after the channel began to end; -ENOMEM.
 */
static inline int wb_chan_send(struct wb_chan *ch, const void *frame, size_t bytes)
{
	return ch->ops->send(ch, frame, bytes);
}

/**
 * wb_chan_send_lent - the same for a frame whose last part is sent on many channels
 * @head:	the first @bytes bytes of the frame, copied
 * @rest:	what follows, not copied: given back when the system has it, or the channel has
 *		ended; on failure it is not taken
 */
int wb_chan_send_lent(
	struct wb_chan *ch, const void *head, size_t bytes, const struct wb_lent *rest);

/** wb_chan_close - send what is queued (for a bounded time), then end the channel.  Further frames
 * of the peer are dropped.  Calling it again does nothing. */
static inline void wb_chan_close(struct wb_chan *ch)
{
	ch->ops->close(ch);
}

/** wb_chan_peer - "host:port" of the peer, for people.  Valid while the channel lives. */
static inline const char *wb_chan_peer(const struct wb_chan *ch)
{
	return ch->ops->peer(ch);
}

/** wb_chan_put, wb_chan_stop - wb_chan_send() (without descriptors) and wb_chan_close() for callers
 * that have the channel as a void pointer. */
static inline int wb_chan_put(
	void *ch, const void *frame, size_t bytes, const int *fds, uint32_t n_fd)
{
	(void)fds;
	(void)n_fd;
	return wb_chan_send(ch, frame, bytes);
}

/** wb_chan_put_lent - wb_chan_send_lent() for callers that have the channel as a void pointer. */
static inline int wb_chan_put_lent(
	void *ch, const void *head, size_t bytes, const struct wb_lent *rest)
{
	return wb_chan_send_lent(ch, head, bytes, rest);
}

static inline void wb_chan_stop(void *ch)
{
	wb_chan_close(ch);
}

/** wb_chan_identity - id of the key that the peer has proved to have ("" with certificates). */
static inline const char *wb_chan_identity(const struct wb_chan *ch)
{
	return ch->ops->identity(ch);
}

/**
 * wb_chan_trust - tell the listener how far the peer is trusted, since it has only limited room for
 * strangers
 * 0; -EUSERS: too many claims from the peer's address are being checked already: refuse the peer,
 * which may come again.
 */
static inline int wb_chan_trust(struct wb_chan *ch, enum wb_chan_trust how_far)
{
	return ch->ops->trust ? ch->ops->trust(ch, how_far) : 0;
}

/** wb_chan_limit - from now on a frame with more bytes ends the channel, even if the framer allows
 * it: for peers of which nothing is known yet.  0 = no such limit. */
static inline void wb_chan_limit(struct wb_chan *ch, size_t frame_bytes_max)
{
	if (ch->ops->limit)
		ch->ops->limit(ch, frame_bytes_max);
}

/** wb_chan_resume - read on after on_head has put off a frame.  on_head is called again for it,
 * from the loop. */
static inline void wb_chan_resume(struct wb_chan *ch)
{
	if (ch->ops->resume)
		ch->ops->resume(ch);
}

/** wb_chan_queued - bytes not yet given to the system. */
static inline size_t wb_chan_queued(const struct wb_chan *ch)
{
	return ch->ops->queued(ch);
}

/**
 * wb_chan_binding - a value that only the two ends of this connection know, and no other connection
 * has, as hex
 * A message that contains it was made for this connection.  Only while the channel is open.
 * Returns 0, -ENOTSUP (no TLS), -ENOTCONN or -EIO; then @out is "".
 */
static inline int wb_chan_binding(const struct wb_chan *ch, char out[WB_CHAN_BINDING_TEXT])
{
	uint8_t raw[WB_CHAN_BINDING_BYTES];
	int rc = ch->ops->binding ? ch->ops->binding(ch, raw) : -ENOTSUP;

	out[0] = '\0';
	for (int i = 0; i < WB_CHAN_BINDING_BYTES && rc == 0; i++) {
		out[2 * i] = "0123456789abcdef"[raw[i] >> 4];
		out[2 * i + 1] = "0123456789abcdef"[raw[i] & 15];
		out[2 * i + 2] = '\0';
	}
	return rc;
}

#endif
