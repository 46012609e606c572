/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_CONN_H
#define WB_XPORT_CONN_H
/*
 * Connections as the loop thread sees them.  Loop thread only.  Layer: xport (L2), internal.
 */
#include "xport/internal.h"

#define WB__CONN_SLOT_BITS 16 /* WB_XPORT_CONNS_MAX */

enum wb__conn_state {
	WB__C_OPENING, /* sockets are missing */
	WB__C_UP,
	WB__C_CLOSING, /* sockets go down */
	WB__C_DYING, /* all are down; the user is being told */
};

/* What the source's loop knows of a slot. */
enum { WB__ASK_NONE, WB__ASK_OPEN, WB__ASK_ANSWERED };
struct wb__ask {
	uint64_t id, bytes;
	uint8_t state;
};

struct wb__conn {
	wb_conn_t id;
	enum wb__conn_state state;
	bool was_announced; /* the user knows the number */
	struct wb_xport_conn_info info;
	uint64_t session;
	uint32_t n_slot; /* of each socket */
	uint32_t n_present, n_up; /* sockets that exist; that are up */
	struct wb__sock *sock[WB_XPORT_SOCKETS_MAX]; /* NULL: not yet, or down */
	uint64_t load[WB_XPORT_SOCKETS_MAX]; /* bytes outstanding (dialer) */
	uint32_t outstanding; /* slots in use (dialer) */
	uint32_t turn; /* socket that is next among equals (dialer) */
	struct wb__op *op; /* [n_socket * n_slot] */
	uint16_t *free_slot; /* dialer: a stack of n_slot for each socket */
	uint16_t n_free[WB_XPORT_SOCKETS_MAX];
	struct wb__ask *ask; /* source: [n_socket * n_slot] */
	int code; /* why it ends */
	char reason[WB__REASON_MAX];
	uint64_t cause_ns; /* when the socket went down whose reason that is; 0 = none did */
	uint32_t told; /* ops looked at while dying */
	struct wb__conn *next; /* dying or dead */
};

/** wb__conn_create - a conn with a number; 0, -ENOSPC (conns_max), -ENOMEM. */
int wb__conn_create(struct wb__sx *x, const struct wb_xport_conn_info *info, uint32_t n_slot,
	struct wb__conn **out);
void wb__conn_free(struct wb__conn *c);
/** wb__conn_drop - its number is free again; the conn itself is left. */
void wb__conn_drop(struct wb__sx *x, struct wb__conn *c);
struct wb__conn *wb__conn_get(struct wb__sx *x, wb_conn_t id);
/** wb__conn_close - begin the end (once); code and reason as given, first ones stay. */
void wb__conn_close(struct wb__sx *x, struct wb__conn *c, int code, const char *reason);
/** wb__conn_take_down - forget a socket that went down; the last one makes the conn die. */
void wb__conn_take_down(struct wb__sx *x, struct wb__conn *c, struct wb__sock *s);

/** wb__region_hold / _drop - count a write's use of the regions it lies in.  Hold: 0, or -EINVAL
 *  when a byte is outside (then nothing is counted). */
int wb__region_hold(struct wb__sx *x, uint64_t object, const struct iovec *iov, uint32_t n_iov);
void wb__region_drop(struct wb__sx *x, uint64_t object, const struct iovec *iov, uint32_t n_iov);

#endif
