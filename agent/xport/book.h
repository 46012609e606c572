/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_BOOK_H
#define WB_XPORT_BOOK_H
/*
 * The book of a transport: who may connect, from which memory, and what is owed on each connection.
 *
 * Every transport promises the same (xport.h): epochs, regions that stay while a write uses them,
 * connections whose numbers do not come back soon, at most `depth` grants at once, and one end for
 * each grant, write and connection.  The book keeps these promises.  A transport only has to carry
 * words (GRANT, CANCEL, the answer) and bytes to the other side, and to say what came from there.
 *
 * Lanes.  A connection has lanes: the sockets of tcp, the queue pairs of a network card.  Each lane
 * has slots, and a slot is the place of one grant.  The number of a grant consists of its slot and
 * of how often that was used; the receiver chooses it, and the source answers with it.  The book
 * relies on no order between lanes: whatever comes is found by lane and number.
 *
 * Revoke before use again.  A slot, and the landing of its grant, belong to the other side until
 * it has answered; a cancelled grant keeps its slot until wb__book_ended(WB__RETIRED).  When a
 * connection goes down, the transport first makes sure that nothing moves any more (sockets closed,
 * queue pairs destroyed) and then calls wb__book_down(): only that makes LOST and WRITE_DONE of
 * what is left.
 *
 * What a user asks for takes two steps: wb__book_grant(), _cancel(), _write() and _refuse() check
 * it and fill in an entry, and change nothing that counts; when the word is on its way
 * wb__book_commit() makes it count, and when it could not be sent wb__book_abandon() forgets it.
 * There is one entry at a time.
 *
 * Invariants, asserted here:
 *  - outstanding <= depth, and is the number of slots in use; a dialer's free slots are all others;
 *  - a slot is used again only when it is free, by a number that it did not have before;
 *  - each op that the user waits for ends once: OUT -> FREE; OUT -> CANCELLING -> CANCELLED ->
 * FREE;
 *  - a region is not let go while a write holds it;
 *  - a connection goes OPENING -> UP -> CLOSING -> DYING, may skip, and never goes back;
 *  - its number is free only when CONN_DOWN has been told.
 *
 * Pure: no socket, thread, lock, clock or log, and no allocation but for a new connection.  All of
 * it belongs to one thread, the loop's; a transport whose rails look into `epoch` guards that with
 * a lock of its own.  Functions fill in events that the caller has zeroed, and whose .conn, .at_ns
 * and .rail it has set.
 * Layer: xport (L2), internal.
 */
#include "xport/op.h"
#include "xport/regions.h"

#define WB__EPOCHS_MAX 64
#define WB__REASON_MAX 320
#define WB__TAG_SHIFT 30 /* wb_conn_t, from the top: tag, a count, place in the table */
/* wb_xport_event.grant: the lane is above, the number of the grant below */
#define WB__LANE_SHIFT 48

/* ---- connections ------------------------------------------------------------------------------
 */

enum wb__conn_state {
	WB__C_OPENING, /* one side is not ready yet, or both */
	WB__C_UP,
	WB__C_CLOSING, /* no more is begun; bytes may still move */
	WB__C_DYING, /* nothing moves; the user is being told */
};

/* What the source knows of a slot. */
enum wb__ask_state {
	WB__ASK_NONE,
	WB__ASK_OPEN, /* the user has to answer */
	WB__ASK_ANSWERED, /* it was answered with a write that is not over */
};
struct wb__ask {
	uint64_t id, bytes;
	enum wb__ask_state state;
};

/* One side of a connection.  A transport has it as the first member of its own. */
struct wb__account {
	wb_conn_t id;
	enum wb__conn_state state;
	bool was_announced; /* the user knows the number */
	struct wb_xport_conn_info info;
	uint32_t n_lane, n_slot; /* slots of each lane */
	struct wb__op *op; /* [n_lane * n_slot] */
	/* dialer */
	uint64_t load[WB_XPORT_SOCKETS_MAX]; /* by lane: bytes asked for and not over */
	uint32_t outstanding; /* slots in use */
	uint32_t turn; /* lane that is first among equally loaded ones */
	uint16_t *free_slot; /* a stack of n_slot for each lane */
	uint16_t n_free[WB_XPORT_SOCKETS_MAX];
	/* source */
	struct wb__ask *ask; /* [n_lane * n_slot] */
	/* its end */
	int code;
	char reason[WB__REASON_MAX];
	uint32_t told; /* how many ops were looked at while dying */
	struct wb__account *next; /* next in the list of dying connections */
};

struct wb__region {
	bool is_used;
	uint32_t refs; /* writes that use it */
	struct wb_xport_region r;
};

struct wb__book {
	uint32_t conns_max;
	uint32_t tag; /* wb_xport_opts.tag: in the upper bits of connections' numbers */
	const char *via; /* wb_xport_conn_info.via of connections that set none */
	bool needs_regions; /* WB_XPORT_CAP_REGIONS */
	bool moves_gpu; /* WB_XPORT_CAP_GPU */
	struct wb_xport_epoch epoch[WB__EPOCHS_MAX];
	uint32_t n_epoch;
	struct wb__region region[WB__REGIONS_MAX];
	uint32_t n_region; /* greatest number in use, + 1 */
	struct wb__regions by_address; /* regions that are sources */
	struct wb__regions of_gpu; /* regions that the CPU must not touch */
	struct wb__account **conn; /* [conn_cap]; grows to conns_max */
	uint32_t n_conn, conn_cap, conn_hint, conn_gen;
	struct wb__account *dying, **dying_tail;
};

/** wb__book_init - an empty book, in zeroed memory.  @caps: WB_XPORT_CAP_* of the transport. */
void wb__book_init(struct wb__book *b, uint32_t conns_max, uint32_t caps);
/** wb__book_finish - wipe the keys and free the table.  Accounts are the caller's, who finishes
 * them too. */
void wb__book_finish(struct wb__book *b);

/* ---- epochs -----------------------------------------------------------------------------------
 */

/** wb__book_epoch_find - the epoch of that identity, or NULL.  Valid until the next add or remove.
 */
const struct wb_xport_epoch *wb__book_epoch_find(
	const struct wb__book *b, const struct wb_epoch_id *id);
/** wb__book_epoch_named - the same by what the other side of a connection says, which names the
 * object by its hash. */
const struct wb_xport_epoch *wb__book_epoch_named(
	const struct wb__book *b, uint64_t object, uint64_t term, uint64_t number);
/** wb__book_epoch_known - is @e known already?  1: just so; 0: no; -EEXIST: with another key or
 * encryption. */
int wb__book_epoch_known(
	const struct wb__book *b, const struct wb_xport_epoch *e, struct wb_err *err);
/** wb__book_epoch_put - remember @e, which must not be known: 0 or -ENOSPC. */
int wb__book_epoch_put(struct wb__book *b, const struct wb_xport_epoch *e, struct wb_err *err);
/** wb__book_epoch_forget - forget an epoch and wipe its key: 0 or -ENOENT.  Its connections stay:
 * the caller closes those of wb__book_of_epoch(). */
int wb__book_epoch_forget(struct wb__book *b, const struct wb_epoch_id *id);

/* ---- regions ----------------------------------------------------------------------------------
 */

/** wb__region_check - does the record make sense?  0, or -EINVAL with a sentence that names the
 * field that does not. */
int wb__region_check(const struct wb_xport_region *r, struct wb_err *err);
/** wb__region_is_source - may it be written from? */
static inline bool wb__region_is_source(const struct wb_xport_region *r)
{
	return r->direction != WB_XPORT_LANDING && (r->fd >= 0 || r->gpu.is_there);
}
/** wb__book_region_put - give the region a number: 0, -EINVAL (wb__region_check()), -ENOSPC.  Its
 * descriptors are stored, and nothing else is done with them. */
int wb__book_region_put(
	struct wb__book *b, const struct wb_xport_region *r, uint32_t *id, struct wb_err *err);
/** wb__book_region_get - the region of that number, or NULL. */
const struct wb_xport_region *wb__book_region_get(const struct wb__book *b, uint32_t id);
/** wb__book_region_drop - forget a region: 0, -ENOENT, or -EBUSY while a write holds it. */
int wb__book_region_drop(struct wb__book *b, uint32_t id);
/** wb__book_in_regions - does each range lie in a source region of @object? */
bool wb__book_in_regions(
	struct wb__book *b, uint64_t object, const struct iovec *iov, uint32_t n_iov);

/* ---- the table of connections -----------------------------------------------------------------
 */

/** wb__book_open - give @c (zeroed) a number, its ops and its slots: 0, -ENOSPC (conns_max),
 *  -ENOMEM.  @info: all but .conn; n_lane * n_slot >= info->depth.  End it with wb__book_down() or
 *  wb__book_drop(); then wb__account_finish(). */
int wb__book_open(struct wb__book *b, struct wb__account *c, const struct wb_xport_conn_info *info,
	uint32_t n_lane, uint32_t n_slot);
/** wb__account_finish - free what hangs on it, not @c itself.  Calling it again does nothing. */
void wb__account_finish(struct wb__account *c);
/** wb__book_drop - take the connection out of the table without an event: the user never knew it,
 * or closes everything. */
void wb__book_drop(struct wb__book *b, struct wb__account *c);
/** wb__book_get - the connection of that number, or NULL. */
struct wb__account *wb__book_get(const struct wb__book *b, wb_conn_t id);
/** wb__book_next - walk over the connections, one with each call, from *at = 0 on; NULL: no more.
 * The one that was returned may be closed or dropped before the next call. */
struct wb__account *wb__book_next(const struct wb__book *b, uint32_t *at);
/** wb__book_of_epoch - the same, but only connections of that epoch. */
struct wb__account *wb__book_of_epoch(
	const struct wb__book *b, const struct wb_epoch_id *id, uint32_t *at);

/** wb__book_up - both sides are ready: @ev becomes CONN_UP.  The connection must be OPENING. */
void wb__book_up(struct wb__account *c, struct wb_xport_event *ev);
/** wb__book_close - begin no more on the connection; the first code and reason stay.  false: it was
 * closing already. */
bool wb__book_close(struct wb__account *c, int code, const char *reason);
/** wb__book_down - nothing of the connection moves any more: what is left of it ends as LOST or
 * WRITE_DONE.  It must be CLOSING. */
void wb__book_down(struct wb__book *b, struct wb__account *c);
/** wb__book_tell - fill in one more event of connections that are down.  *ended: the connection
 * whose last event this was; it is out of the table, and the caller frees it when the event's
 * sentence is no longer needed; else NULL.  false: nothing to tell.  The end of a connection that
 * was never announced is told as REJECTED, without a number. */
bool wb__book_tell(struct wb__book *b, struct wb_xport_event *ev, struct wb__account **ended);

/* ---- what the user asks for -------------------------------------------------------------------
 */

enum wb__entry_kind { WB__ENTRY_GRANT = 1, WB__ENTRY_CANCEL, WB__ENTRY_WRITE, WB__ENTRY_REFUSE };

/* Something to be sent, then committed or abandoned. */
struct wb__entry {
	enum wb__entry_kind kind;
	struct wb__account *c;
	struct wb__op *op; /* all but REFUSE: the grant or write, filled in */
	uint32_t lane;
	uint64_t id; /* number of the grant, on this lane */
	const struct wb_xport_chunk *chunk; /* GRANT: borrowed from the caller */
	int code; /* REFUSE */
};

/** wb__book_grant - as wb_xport_grant(), except that the transport's own queue is not looked at. */
int wb__book_grant(
	struct wb__book *b, wb_conn_t conn, const struct wb_xport_grant *g, struct wb__entry *out);
/** wb__book_cancel - as wb_xport_cancel(); if several grants have this cookie, the first that is
 * not over. */
int wb__book_cancel(struct wb__book *b, wb_conn_t conn, uint64_t cookie, struct wb__entry *out);
/** wb__book_write - as wb_xport_write(); the regions are held from now on. */
int wb__book_write(
	struct wb__book *b, wb_conn_t conn, const struct wb_xport_write *w, struct wb__entry *out);
/** wb__book_refuse - as wb_xport_refuse(). */
int wb__book_refuse(
	struct wb__book *b, wb_conn_t conn, uint64_t grant, int code, struct wb__entry *out);
/** wb__book_commit - the entry's word is on its way. */
void wb__book_commit(struct wb__book *b, const struct wb__entry *e);
/** wb__book_abandon - the entry's word could not be sent: as if it had not been asked for. */
void wb__book_abandon(struct wb__book *b, const struct wb__entry *e);

/* ---- what the other side says -----------------------------------------------------------------
 */

/* How a grant ended at the receiver. */
enum wb__end {
	WB__ARRIVED, /* the caller adds the trailer */
	WB__REFUSED, /* the caller adds the code */
	WB__CANCELLED, /* nothing lands any more, but the source has not answered */
	/* The user heard CANCELLED before; now the source has answered, and the slot is free. */
	WB__RETIRED,
};

/** wb__book_lane - the lane of an op of @c. */
static inline uint32_t wb__book_lane(const struct wb__account *c, const struct wb__op *op)
{
	return (uint32_t)(op - c->op) / c->n_slot;
}
/** wb__book_slot - the slot on its lane of the grant with this number. */
static inline uint32_t wb__book_slot(uint64_t id)
{
	return (uint32_t)(id & 0xffff);
}
/** wb__book_op - the op of number @id, which the other side named on @lane, while that grant or
 * write is in its slot; else NULL.  Safe with any number. */
struct wb__op *wb__book_op(const struct wb__account *c, uint32_t lane, uint64_t id);
/** wb__book_ended - a grant ended.  true: @ev is filled in, and must be given to the user. */
bool wb__book_ended(
	struct wb__account *c, struct wb__op *op, enum wb__end end, struct wb_xport_event *ev);
/** wb__book_asked - a grant came on @lane.  1: @ev is the GRANT; 0: the connection is not up, and
 * nobody is told; -EPROTO: the slot is in use or does not exist: the peer breaks the rules. */
int wb__book_asked(struct wb__account *c, uint32_t lane, uint64_t id,
	const struct wb_xport_chunk *chunk, struct wb_xport_event *ev);
/** wb__book_gone - the receiver has cancelled a grant.  true: it was open, @ev is GRANT_GONE, and
 * the caller answers the grant with a refusal of -ECANCELED. */
bool wb__book_gone(struct wb__account *c, uint32_t lane, uint64_t id, struct wb_xport_event *ev);
/** wb__book_written - a write is over, and its memory is not used any more: @ev is WRITE_DONE. */
void wb__book_written(struct wb__book *b, struct wb__account *c, struct wb__op *op, int code,
	struct wb_xport_event *ev);

#endif
