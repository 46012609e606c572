/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_DESK_H
#define WB_XPORT_DESK_H
/*
 * Operations of wb_xport_ops that are the same for every transport that has a book: a desk that
 * enters the user's wishes in the book and hands them to the transport as words to be sent.
 *
 * A transport has a struct wb__desk as its first member and puts these functions into its table.
 * It writes itself: open, close, listen, connect with its challenge, poll (which enters in the book
 * (book.h) what the other side says, then calls wb__desk_tell()), and the four functions of
 * wb__desk_ops.  Threads: the loop's.  Layer: xport (L2), internal.
 */
#include "xport/book.h"

struct wb__desk;

struct wb__desk_ops {
	/* Can send() take this word now?  NULL: it always can. */
	bool (*has_room)(struct wb__desk *d, const struct wb__entry *e);
	/* Send the word; it is entered in the book already.  Must not fail.  What the other side
	 * answers is told by poll, never from inside this call. */
	void (*send)(struct wb__desk *d, const struct wb__entry *e);
	/* Begin the end of a connection that is not down: call wb__book_close() with -ECONNABORTED
	 * and @reason, let the other side know, and call wb__book_down() as soon as nothing of it
	 * moves. */
	void (*hang_up)(struct wb__desk *d, struct wb__account *c, const char *reason);
	/* Free a connection whose number is gone. */
	void (*free)(struct wb__account *c);
};

struct wb__desk {
	struct wb_xport base; /* first */
	const struct wb__desk_ops *ops;
	struct wb__book book;
	struct wb__account
		*ended; /* their end was told; freed at the next poll, their sentences are in use */
};

/** wb__desk - the desk of a transport; @x must have one. */
static inline struct wb__desk *wb__desk(struct wb_xport *x)
{
	return wb_container_of(x, struct wb__desk, base);
}

/** wb__desk_init - @d is zeroed.  @conns_max: 0 = WB_XPORT_CONNS_MAX. */
void wb__desk_init(struct wb__desk *d, const struct wb_xport_ops *ops,
	const struct wb__desk_ops *desk_ops, uint32_t conns_max);
/** wb__desk_finish - free all connections, untold, and the book: nothing moves any more. */
void wb__desk_finish(struct wb__desk *d);
/** wb__desk_tell - fill in up to @max events of connections that are down, with time @now_ns;
 * returns how many. */
int wb__desk_tell(struct wb__desk *d, struct wb_xport_event *ev, int max, uint64_t now_ns);
/** wb__desk_bury - free the connections whose end the last poll has told; at the beginning of a
 * poll. */
void wb__desk_bury(struct wb__desk *d);

/** wb__desk_dial - make the first checks of wb_xport_connect(), and fill in @info but for .n_socket
 * and .depth.  0, -EINVAL (no name, no endpoint), -ENOENT (epoch). */
int wb__desk_dial(struct wb__desk *d, const struct wb_xport_peer *p,
	struct wb_xport_conn_info *info, struct wb_err *err);

/* Operations.  Each keeps the contract of the function of xport.h that has its name. */

/** wb__desk_epoch_add - wb_xport_epoch_add() of a transport without encryption. */
int wb__desk_epoch_add(struct wb_xport *x, const struct wb_xport_epoch *e, struct wb_err *err);
/** wb__desk_epoch_remove - wb_xport_epoch_remove(): hang_up() for each connection that is not down.
 */
int wb__desk_epoch_remove(struct wb_xport *x, const struct wb_epoch_id *id);
/** wb__desk_region_add - wb_xport_region_add() where no peer has to learn of it. */
int wb__desk_region_add(
	struct wb_xport *x, const struct wb_xport_region *r, uint32_t *id, struct wb_err *err);
/** wb__desk_region_remove - wb_xport_region_remove(), likewise. */
int wb__desk_region_remove(struct wb_xport *x, uint32_t id);
/** wb__desk_region_path - wb_xport_region_path() where no device takes part. */
enum wb_xport_path wb__desk_region_path(struct wb_xport *x, uint32_t id, char *out, size_t cap);
/** wb__desk_disconnect - wb_xport_disconnect(): hang_up(). */
int wb__desk_disconnect(struct wb_xport *x, wb_conn_t conn);
/** wb__desk_grant - wb_xport_grant(): enter it in the book, then send(); -EAGAIN also when
 * has_room() says no. */
int wb__desk_grant(struct wb_xport *x, wb_conn_t conn, const struct wb_xport_grant *g);
/** wb__desk_cancel - wb_xport_cancel(), likewise. */
int wb__desk_cancel(struct wb_xport *x, wb_conn_t conn, uint64_t cookie);
/** wb__desk_write - wb_xport_write(), likewise. */
int wb__desk_write(struct wb_xport *x, wb_conn_t conn, const struct wb_xport_write *w);
/** wb__desk_refuse - wb_xport_refuse(), likewise. */
int wb__desk_refuse(struct wb_xport *x, wb_conn_t conn, uint64_t grant, int code);

/* All of them, for a table that names no other of these. */
#define WB__DESK_OPERATIONS                                                                        \
	.epoch_add = wb__desk_epoch_add, .epoch_remove = wb__desk_epoch_remove,                    \
	.region_add = wb__desk_region_add, .region_remove = wb__desk_region_remove,                \
	.region_path = wb__desk_region_path, .disconnect = wb__desk_disconnect,                    \
	.grant = wb__desk_grant, .cancel = wb__desk_cancel, .write = wb__desk_write,               \
	.refuse = wb__desk_refuse

#endif
