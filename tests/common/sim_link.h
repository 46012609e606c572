/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_SIM_LINK_H
#define WB_TESTS_SIM_LINK_H
/*
 * Connections of the simulated transport: what travels on them and what it does when it arrives.
 * sim_link.c; sim.c has the operations.  One thread.  Layer: xport (L2), internal.
 */
#include "tests/common/sim_internal.h"
#include "xport/internal.h"

/* A connection: two ends, kept while an end or an item names it. */
struct wb__sim_link {
	uint32_t refs;
	bool is_cut; /* fault: nothing that was sent arrives */
	struct wb__sim_end *end[2]; /* dialer, acceptor; NULL = closed */
	struct wb__sim_node *node[2];
	uint32_t rails[2]; /* of the node at that side, a bit each; 0 = all */
	uint32_t n_socket;
	/* last delivery to the dialer, to the acceptor */
	uint64_t last_ns[2][WB_XPORT_SOCKETS_MAX];
	uint64_t sent, newest[2]; /* items so far; the last sent of those that came */
	uint64_t inflight;
	struct wb_xport_epoch epoch;
	uint32_t depth, n_slot; /* slots of a socket; the source has as many again */
};

struct wb__sim_write {
	struct wb__op *op; /* the book's */
	uint64_t id; /* the receiver's number of the grant */
	struct wb__sim_end *end;
	struct wb__sim_write *next; /* in the end's list */
	struct wb__sim_write *tx_next; /* in the transport's queue */
	bool is_queued;
	bool is_offered; /* the receiver takes it from our memory */
};

struct wb__sim_end {
	struct wb__account a; /* first; its lanes are the sockets */
	struct wb__simx *x;
	struct wb__sim_link *link;
	int side; /* 0 dialer, 1 acceptor */
	/* acceptor: the receiver's numbers of the grants in our slots.  A doubled one has two. */
	uint64_t *theirs, n_ask;
	struct wb__sim_write *write;
	struct wb__sim_end *next;
};

/* An event for the user, with what its pointers point to. */
struct wb__sim_told {
	struct wb_xport_event ev;
	struct wb_xport_conn_info info;
	char reason[WB__REASON_MAX];
	uint32_t lane; /* CANCELLED: whose; the book hears of it when the user does */
	uint64_t id;
	struct wb__sim_told *next;
};

struct wb__simx {
	struct wb__desk desk; /* first */
	struct wb_sim_net *net;
	struct wb__sim_node *node;
	char name[WB_XPORT_NAME_MAX];
	bool is_dead, is_listening, is_tx_due;
	uint32_t depth, piece_bytes, sockets;
	struct wb__sim_end *end; /* the newest first */
	struct wb__sim_told *head, **tail, *old;
	struct wb__sim_write *tx_head, **tx_tail;
	struct wb_xport_stats stats[WB_XPORT_RAILS_MAX]; /* refused connections: of the first */
};

enum wb__sim_what {
	WB__SIM_CONNECT,
	WB__SIM_WELCOME,
	WB__SIM_DOWN,
	WB__SIM_GRANT,
	WB__SIM_CANCEL,
	WB__SIM_REFUSE,
	WB__SIM_PIECE,
	WB__SIM_LAST,
	WB__SIM_OFFER, /* where the receiver takes it: the chunk and its trailer */
	WB__SIM_TAKEN /* to the source: it has */
};

struct wb__sim_item {
	struct wb__sim_ev e;
	struct wb__sim_link *link;
	int side; /* who gets it */
	enum wb__sim_what what;
	uint32_t socket;
	uint64_t op, off, number; /* number: of those of the link */
	bool is_again; /* WB__SIM_GRANT: the second of a doubled one */
	uint64_t flip_bit; /* WB__SIM_OFFER: in the chunk, UINT64_MAX = none */
	int code;
	struct wb_xport_chunk chunk;
	uint8_t trailer[WB_XPORT_TRAILER_BYTES];
	char text[WB__REASON_MAX]; /* WB__SIM_CONNECT: the dialer's name for us; WB__SIM_DOWN: why
				    */
	char peer[WB_XPORT_NAME_MAX];
	size_t bytes;
	uint8_t data[];
};

static inline struct wb__simx *wb__simx_of(struct wb_xport *x)
{
	return wb_container_of(x, struct wb__simx, desk.base);
}

/** wb__sim_tell - queue an event for the user of @x, with copies of what it points to. */
struct wb__sim_told *wb__sim_tell(struct wb__simx *x, const struct wb_xport_event *ev);
/** wb__sim_told_free - free a list of events.  NULL is allowed. */
void wb__sim_told_free(struct wb__sim_told *t);
/** wb__sim_end_create - one side of @l, with a number and a place in the book; NULL: no memory, or
 *  too many.  @peer: name of the other side. */
struct wb__sim_end *wb__sim_end_create(
	struct wb__simx *x, struct wb__sim_link *l, int side, const char *peer);
/** wb__sim_rail_of - the rail of this side that carries the socket. */
uint32_t wb__sim_rail_of(const struct wb__sim_end *e, uint32_t socket);
/** wb__sim_end_down - tell all that is owed, CONN_DOWN last, and free. */
void wb__sim_end_down(struct wb__sim_end *e, int code, const char *reason);
/** wb__sim_say_down - let the other end know, after all that was sent. */
void wb__sim_say_down(struct wb__sim_end *e);
/** wb__sim_item_make - something for @side of @l, with room for @bytes; never NULL. */
struct wb__sim_item *wb__sim_item_make(
	struct wb__sim_link *l, int side, enum wb__sim_what what, size_t bytes);
/** wb__sim_item_of - the same, about the grant @id of @socket, and on that. */
struct wb__sim_item *wb__sim_item_of(struct wb__sim_link *l, int side, enum wb__sim_what what,
	uint32_t socket, uint64_t id, size_t bytes);
/** wb__sim_theirs - the receiver's number of a grant that has @id in a slot of the acceptor @e. */
static inline uint64_t wb__sim_theirs(const struct wb__sim_end *e, uint32_t socket, uint64_t id)
{
	return e->theirs[socket * e->a.n_slot + wb__book_slot(id)];
}
/** wb__sim_item_send - takes @it; it arrives after a latency, faults allowing. */
void wb__sim_item_send(struct wb_sim_net *net, struct wb__sim_item *it);
/** wb__sim_refuse - answer the receiver's grant @id of @socket with @code. */
void wb__sim_refuse(struct wb__sim_end *e, uint32_t socket, uint64_t id, int code);
/** wb__sim_tx_add - queue a write. */
void wb__sim_tx_add(struct wb__simx *x, struct wb__sim_write *w);

#endif
