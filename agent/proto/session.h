/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PROTO_SESSION_H
#define WB_PROTO_SESSION_H
/*
 * One side of a control connection, from its first message to its end.
 *
 *	side that opens   DOWN > DIALLING > HELLO         > UP > ENDING > DOWN
 *	side that answers DOWN >            HELLO > ASKED > UP > ENDING > DOWN
 *
 * Between a worker's library and its agent WELCOMED comes before UP, on the library's side followed
 * by ATTACHING, and UP is TRAINER or ROLLOUT.
 *
 * The first message and its answer agree on a version.  What may come in which state is a table
 * (session.c); anything else is refused by name before its body is read.  In UP a side may send
 * heartbeats, a heartbeat that asks for an answer gets one, and a side that hears nothing for too
 * long reports it.  The end of a session has one cause: this side's, if this side ended it, else
 * the channel's.
 *
 * When a frame is refused or the other side is late, the caller gets a code and a sentence, and
 * ends the session by wb_session_end() or wb_session_reject(), as it chooses.
 *
 * A session sees no socket and no clock: frames, the time and the channel's end are given to it,
 * and what it sends goes through struct wb_session_io.  Times are ns of one monotonic clock.
 * Threads: one at a time for each session.  Layer: proto (L1).
 */
#include "base/err.h"
#include "base/lent.h"
#include "proto/messages.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which side this is, of which pair. */
enum wb_session_side {
	WB_SIDE_AGENT, /* an agent that dialled its operator */
	WB_SIDE_OPERATOR, /* an operator, to an agent */
	WB_SIDE_DIALLED, /* an agent that dialled another one */
	WB_SIDE_ACCEPTED, /* an agent that was dialled by another one */
	WB_SIDE_LIBRARY, /* the library of a worker, to its agent */
	WB_SIDE_WORKERS, /* an agent, to the library of one of its workers */
	WB_SIDES,
};

enum wb_session_state {
	WB_SESSION_DOWN, /* no channel */
	WB_SESSION_DIALLING, /* the channel is not open yet */
	WB_SESSION_HELLO, /* the first message: on its way to the other side, or awaited */
	WB_SESSION_ASKED, /* the first message has come; the answer is not known yet */
	WB_SESSION_WELCOMED, /* the version is agreed on, nothing is attached */
	WB_SESSION_ATTACHING, /* asked to attach; the answer has not come */
	WB_SESSION_UP,
	WB_SESSION_TRAINER, /* up, for a worker of this role */
	WB_SESSION_ROLLOUT,
	WB_SESSION_ENDING, /* this side has ended the session; the channel has not ended yet */
	WB_SESSION_STATES,
};

typedef int (*wb_msg_encode_fn)(
	const struct wb_frame *f, const void *msg, struct wb_buf *out, struct wb_err *err);

/* How messages are encoded and sent; one constant for each kind of caller. */
struct wb_session_io {
	/* Send one whole frame, which is copied; @fds: descriptors, borrowed, where the channel
	 * carries them.  0, or negative: then the session ends. */
	int (*send)(void *link, const void *frame, size_t bytes, const int *fds, uint32_t n_fd);
	/* Begin to end the channel; wb_session_closed() follows when it has. */
	void (*close)(void *link);
	/* wb_msg_encode() and wb_msg_decode(), or their binary halves. */
	wb_msg_encode_fn encode;
	int (*decode)(const struct wb_frame *f, const void *body, void *msg, struct wb_err *err);
	/* As send, for a frame of which only the beginning, @head, is copied.  @rest is given back
	 * when it has been sent, but not on failure.  NULL where nothing is lent. */
	int (*send_lent)(void *link, const void *head, size_t bytes, const struct wb_lent *rest);
};

struct wb_session_count {
	uint64_t frames, bytes; /* of whole frames, as the channel gets them */
};

/* Sums over any number of sessions, since the program started. */
struct wb_session_counts {
	struct wb_session_count tx, rx;
	struct wb_session_count beat; /* heartbeats sent and received; not in tx and rx */
};

/* How long each state may take; 0 = any time. */
struct wb_session_bounds {
	uint64_t hello_ns; /* in HELLO, since it began */
	uint64_t asked_ns; /* in ASKED and ATTACHING, since it began */
	uint64_t silent_ns; /* in UP, since the last frame came */
	uint64_t beat_ns; /* between our heartbeats in UP; 0 = none */
};

struct wb_session {
	/* The caller's; bounds and clock_offset_ns may change at any time. */
	const struct wb_session_io *io;
	enum wb_session_side side;
	struct wb_session_bounds bounds;
	struct wb_session_counts *counts; /* borrowed; NULL = nobody counts */
	int64_t clock_offset_ns; /* our clock minus the other side's, where it is known */
	/* The session's. */
	enum wb_session_state state;
	void *link; /* the channel, of io; NULL in DOWN */
	uint32_t version; /* protocol version of our messages */
	uint64_t since_ns; /* when the state began */
	uint64_t heard_ns; /* when the last frame came */
	uint64_t beat_at_ns; /* when our next heartbeat is due */
	uint32_t n_beat;
	bool was_up; /* in this connection, or when DOWN in the last one */
	bool is_refused; /* trying the same again cannot succeed */
	struct wb_err cause; /* from ENDING on */
};

/**
 * wb_session_dial, wb_session_accept - begin on a new channel
 * @link:	borrowed until wb_session_closed()
 * Only in DOWN.  The state becomes DIALLING, or HELLO, where the first message is awaited.  What
 * the session knew of the last connection is forgotten.
 */
void wb_session_dial(struct wb_session *s, void *link, uint64_t now_ns);
void wb_session_accept(struct wb_session *s, void *link, uint64_t now_ns);
/** wb_session_open - the channel is open: send the first message, @msg.  Only in DIALLING.  Returns
 *  as wb_session_send(). */
int wb_session_open(struct wb_session *s, const void *msg, uint64_t now_ns);
/** wb_session_enter - go to a later state, one of ASKED to ROLLOUT.  From UP on wb_session_tick()
 * sends heartbeats. */
void wb_session_enter(struct wb_session *s, enum wb_session_state state, uint64_t now_ns);
/** wb_session_agree - the side that answers: choose the version, as wb_version_agree() does. */
int wb_session_agree(
	struct wb_session *s, const char *who, uint32_t min, uint32_t max, struct wb_err *err);
/** wb_session_chosen - the side that opened: the other chose @version.  0; WB_EVERSION when this
 *  build does not speak it; s->is_refused is then set. */
int wb_session_chosen(struct wb_session *s, const char *who, uint32_t version, struct wb_err *err);

/**
 * wb_session_take - a frame has come
 * @frame:	untrusted
 * @m:		filled where 1 is returned; release with wb_msg_free(f->type, m)
 * Returns 1; 0 when the session has ended: drop the frame; negative with a sentence: the frame is
 * broken (as wb_frame_check() and the decoder say), or out of its turn (-EPROTO): end the session.
 * A heartbeat that asks for an answer is answered here, and still given to the caller.
 */
int wb_session_take(struct wb_session *s, const uint8_t *frame, size_t bytes, uint64_t now_ns,
	struct wb_frame *f, union wb_msg *m, struct wb_err *err);
/** wb_session_send - encode, send and count.  0; -ENOTCONN when this side may not send now (not
 *  open, its first message not answered, ended); or the code of the encoder or the channel, with
 *  which the session is then ended. */
int wb_session_send(struct wb_session *s, uint16_t type, const void *msg);
/** wb_session_send_fds - the same with descriptors, which stay the caller's. */
int wb_session_send_fds(
	struct wb_session *s, uint16_t type, const void *msg, const int *fds, uint32_t n_fd);
/** wb_session_send_frame - the same for a message that is encoded already, in our newest version.
 *  If another version was agreed on, it is encoded anew. */
int wb_session_send_frame(struct wb_session *s, const uint8_t *frame, size_t bytes);
/**
 * wb_session_send_lent - send a message whose end is the same for many sessions
 * @msg:	a binary message whose last field is a blob: it is empty here, and @rest are its
 *		bytes.  NULL: @rest is the whole body, in the version agreed on
 * Returns 0, and @rest is given back when it has been sent; or as wb_session_send(), and @rest is
 * not given back.
 */
int wb_session_send_lent(
	struct wb_session *s, uint16_t type, const void *msg, const struct wb_lent *rest);
/** wb_session_out_of_turn - for callers: the session may get this message now, but what it is about
 * may not.  -EPROTO with the sentence that wb_session_take() has for a message out of its turn. */
int wb_session_out_of_turn(const struct wb_session *s, uint16_t type, struct wb_err *err);
/** wb_session_reject - send REJECT (to a worker APP_REJECT) and end the session with that cause.
 *  @retry: the other side may try again; not in APP_REJECT. */
void wb_session_reject(struct wb_session *s, int code, bool retry, const char *sentence);
/** wb_session_end - end the session with this cause; @code 0: in order.  Does nothing when it has
 *  ended. */
void wb_session_end(struct wb_session *s, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/** wb_session_closed - the channel has ended because of @why (code 0: in order): go to DOWN.
 *  Returns why the session ended, with a sentence; valid until the next session begins. */
const struct wb_err *wb_session_closed(struct wb_session *s, const struct wb_err *why);

/** wb_session_tick - send the heartbeat that is due.  0, or -ETIMEDOUT with a sentence when the
 *  other side is late: end the session. */
int wb_session_tick(struct wb_session *s, uint64_t now_ns, struct wb_err *err);
/** wb_session_due - when wb_session_tick() has something to do; UINT64_MAX = never. */
uint64_t wb_session_due(const struct wb_session *s);

/** wb_session_is_up - both sides know each other, and this side has not ended it. */
static inline bool wb_session_is_up(const struct wb_session *s)
{
	return s->state >= WB_SESSION_UP && s->state < WB_SESSION_ENDING;
}

/** wb_session_is_over - has it ended, or never begun?  Then nothing is received or sent. */
static inline bool wb_session_is_over(const struct wb_session *s)
{
	return s->state == WB_SESSION_DOWN || s->state == WB_SESSION_ENDING;
}

/*
 * Messages that must not be lost with a connection, each as the frame that is sent, oldest first.
 * Zeroed = empty.  A wb_keep outlives sessions; release it with wb_keep_drop().
 */
struct wb_kept {
	struct wb_kept *next;
	uint64_t mark; /* 0 = not sent over this connection */
	uint8_t *frame; /* owned */
	size_t bytes;
};

struct wb_keep {
	struct wb_kept *first, *last; /* owned */
	uint32_t n;
};

/** wb_keep_add - encode @msg once, in our newest version.  When there are more than @max,
 *  the oldest is dropped.  0 or negative as @encode; -ENOMEM. */
int wb_keep_add(
	struct wb_keep *k, wb_msg_encode_fn encode, uint16_t type, const void *msg, uint32_t max);
/** wb_keep_add_frame - the same with a copy of a frame.  0 or -ENOMEM. */
int wb_keep_add_frame(struct wb_keep *k, const uint8_t *frame, size_t bytes, uint32_t max);
/** wb_keep_send - send over @s, if it is up, what was not sent over it yet, and mark that with
 *  @mark, which is not 0 and never less than before.  A frame of another version than the one
 *  agreed on is encoded anew.  0 or negative as wb_session_send(). */
int wb_keep_send(struct wb_keep *k, struct wb_session *s, uint64_t mark);
/** wb_keep_confirm - what was sent with @mark or a lower one has arrived: drop it. */
void wb_keep_confirm(struct wb_keep *k, uint64_t mark);
/** wb_keep_lost - the connection has ended: what is still kept counts as not sent. */
void wb_keep_lost(struct wb_keep *k);
/** wb_keep_drop - drop all messages. */
void wb_keep_drop(struct wb_keep *k);

#endif
