/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_CONN_H
#define WB_XPORT_CONN_H
/*
 * Connections of several sockets as the loop thread sees them.
 *
 * Invariants: a socket reports chunks only while it is a lane of a connection, from when it was
 * admitted until it says that it is down; each is admitted once, so no more are up than there are
 * lanes.
 * Loop thread only.  Layer: xport (L2), internal.
 */
#include "xport/internal.h"

/* What the book keeps, and the sockets that are its lanes. */
struct wb__conn {
	struct wb__account a; /* first */
	uint64_t session; /* the dialer's random number: sockets of one connection say the same */
	uint32_t n_present, n_up; /* sockets that exist; that are up */
	struct wb__sock *sock[WB_XPORT_SOCKETS_MAX]; /* by lane; NULL: not yet, or down */
	/* When the socket went down whose reason the connection has; 0 = none did. */
	uint64_t cause_ns;
};

/** wb__conn_of - the connection around its account, which is its first member. */
static inline struct wb__conn *wb__conn_of(struct wb__account *a)
{
	return wb_container_of(a, struct wb__conn, a);
}

/** wb__conn_create - a connection with a number and info->n_socket lanes of @n_slot slots; 0,
 * -ENOSPC (conns_max), -ENOMEM.  Free with wb__conn_free() when its number is gone. */
int wb__conn_create(struct wb__xport_stream *x, const struct wb_xport_conn_info *info,
	uint32_t n_slot, struct wb__conn **out);
/** wb__conn_free - free it; its sockets are gone or belong to somebody else. */
void wb__conn_free(struct wb__account *a);
/** wb__conn_close - begin the end of the connection with this code and reason, and tell every
 * socket to close; if there is no socket the end is told at the next poll.  Does nothing when it
 * has begun. */
void wb__conn_close(struct wb__xport_stream *x, struct wb__conn *c, int code, const char *reason);
/** wb__conn_take_down - a socket went down: forget it, and close the connection.  With the last
 * socket nothing moves any more, and the end is told. */
void wb__conn_take_down(struct wb__xport_stream *x, struct wb__conn *c, struct wb__sock *s);

#endif
