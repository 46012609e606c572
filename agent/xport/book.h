/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_BOOK_H
#define WB_XPORT_BOOK_H
/*
 * The book of a transport: who may connect, from which memory, and what is owed on each connection.
 *
 * Every transport promises the same (xport.h): epochs, regions that stay while a write uses them,
 * connections whose numbers do not come back soon, at most `depth` grants at once, and one end for
 * each grant, write and connection.  Those promises are kept here.  What is left to a transport is
 * to carry words (GRANT, CANCEL, the answer) and bytes to the other side, and to say what came.
 *
 * Lanes.  A connection has lanes: the sockets of tcp, the queue pairs of a network card.  Each lane
 * has slots, and a slot is the place of one grant.  The number of a grant is made of its slot and
 * of how often that was used; the receiver chooses it and the source answers with it.  The book
 * relies on no order between lanes: whatever comes is found by lane and number.
 *
 * Revoke before use again.  A slot, and the landing of its grant, belong to the other side until
 * it has answered; a cancelled grant keeps its slot until wb__book_ended(WB__RETIRED).  When a
 * connection goes down, the transport first makes sure that nothing moves any more (sockets closed,
 * queue pairs destroyed) and then calls wb__book_down(): only that makes LOST and WRITE_DONE of
 * what is left.
 *
 * What a user asks for goes in two steps: wb__book_grant(), _cancel(), _write() and _refuse() check
 * it and fill in an entry, and change nothing that counts; when the word is on its way
 * wb__book_commit() makes it true, and when it could not be sent wb__book_abandon() forgets it.
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
 * a lock of its own.  Events are filled in where the caller has zeroed them and set .conn, .at_ns
 * and .rail.
 * Layer: xport (L2), internal.
 */
#include "xport/op.h"
#include "xport/regions.h"

#define WB__EPOCHS_MAX 64
#define WB__REASON_MAX 320
#define WB__TAG_SHIFT 30 /* wb_conn_t: tag above, how often the place was used, place */
#define WB__LANE_SHIFT 48 /* wb_xport_event.grant: lane above, number of the grant below */

/* ---- connections ------------------------------------------------------------------------------
 */

enum wb__conn_state {
	WB__C_OPENING, /* not both sides are ready */
	WB__C_UP,
	WB__C_CLOSING, /* no more is begun; bytes may still move */
	WB__C_DYING, /* nothing moves; the user is being told */
};

/* What the source knows of a slot. */
enum wb__ask_state {
	WB__ASK_NONE,
	WB__ASK_OPEN, /* the user has to answer */
	WB__ASK_ANSWERED, /* with a write that is not over */
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
	uint64_t load[WB_XPORT_SOCKETS_MAX]; /* bytes asked for, of each lane */
	uint32_t outstanding; /* slots in use */
	uint32_t turn; /* lane that is next among equals */
	uint16_t *free_slot; /* a stack of n_slot for each lane */
	uint16_t n_free[WB_XPORT_SOCKETS_MAX];
	/* source */
	struct wb__ask *ask; /* [n_lane * n_slot] */
	/* its end */
	int code;
	char reason[WB__REASON_MAX];
	uint32_t told; /* ops looked at while dying */
	struct wb__account *next; /* dying */
};

struct wb__region {
	bool is_used;
	uint32_t refs; /* writes */
	struct wb_xport_region r;
};

struct wb__book {
	uint32_t conns_max;
	uint32_t tag; /* wb_xport_opts.tag: in the upper bits of connections' numbers */
	const char *via; /* of connections that say nothing else */
	bool needs_regions; /* WB_XPORT_CAP_REGIONS */
	bool moves_gpu; /* WB_XPORT_CAP_GPU */
	struct wb_xport_epoch epoch[WB__EPOCHS_MAX];
	uint32_t n_epoch;
	struct wb__region region[WB__REGIONS_MAX];
	uint32_t n_region; /* highest used + 1 */
	struct wb__regions by_address; /* those that are sources */
	struct wb__regions of_gpu; /* those that the CPU must not touch */
	struct wb__account **conn; /* [conn_cap]; grows to conns_max */
	uint32_t n_conn, conn_cap, conn_hint, conn_gen;
	struct wb__account *dying, **dying_tail;
};

/** wb__book_init - an empty book, in zeroed memory.  @caps: WB_XPORT_CAP_* of the transport. */
void wb__book_init(struct wb__book *b, uint32_t conns_max, uint32_t caps);
/** wb__book_finish - wipe the keys, free the table.  Accounts are the caller's: finish them too. */
void wb__book_finish(struct wb__book *b);

/* ---- epochs -----------------------------------------------------------------------------------
 */

/** wb__book_epoch_find - the epoch of that identity, or NULL.  Valid until the next add or remove.
 */
const struct wb_xport_epoch *wb__book_epoch_find(
	const struct wb__book *b, const struct wb_epoch_id *id);
/** wb__book_epoch_named - the same, as the other side of a connection names it: by its object's
 *  hash.  */
const struct wb_xport_epoch *wb__book_epoch_named(
	const struct wb__book *b, uint64_t object, uint64_t term, uint64_t number);
/** wb__book_epoch_known - is @e known already?  1 = as it is, 0 = no, -EEXIST = with another key
 *  or encryption. */
int wb__book_epoch_known(
	const struct wb__book *b, const struct wb_xport_epoch *e, struct wb_err *err);
/** wb__book_epoch_put - remember @e, which is not known: 0 or -ENOSPC. */
int wb__book_epoch_put(struct wb__book *b, const struct wb_xport_epoch *e, struct wb_err *err);
/** wb__book_epoch_forget - wipe it: 0 or -ENOENT.  Its connections stay; close those of
 *  wb__book_of_epoch(). */
int wb__book_epoch_forget(struct wb__book *b, const struct wb_epoch_id *id);

/* ---- regions ----------------------------------------------------------------------------------
 */

/** wb__region_check - does the record make sense?  0, or -EINVAL with the field that does not. */
int wb__region_check(const struct wb_xport_region *r, struct wb_err *err);
/** wb__region_is_source - may writes be from it? */
static inline bool wb__region_is_source(const struct wb_xport_region *r)
{
	return r->direction != WB_XPORT_LANDING && (r->fd >= 0 || r->gpu.is_there);
}
/** wb__book_region_put - give the region a number: 0, -EINVAL (wb__region_check()), -ENOSPC.
 *  Descriptors are kept as they are, and nothing is done with them. */
int wb__book_region_put(
	struct wb__book *b, const struct wb_xport_region *r, uint32_t *id, struct wb_err *err);
/** wb__book_region_get - the region of that number, or NULL. */
const struct wb_xport_region *wb__book_region_get(const struct wb__book *b, uint32_t id);
/** wb__book_region_drop - 0, -ENOENT, or -EBUSY while a write holds it. */
int wb__book_region_drop(struct wb__book *b, uint32_t id);
/** wb__book_in_regions - does each range lie in a region of @object? */
bool wb__book_in_regions(
	struct wb__book *b, uint64_t object, const struct iovec *iov, uint32_t n_iov);

/* ---- the table of connections -----------------------------------------------------------------
 */

/** wb__book_open - give @c (zeroed) a number, its ops and its slots: 0, -ENOSPC (conns_max),
 *  -ENOMEM.  @info: all but .conn; n_lane * n_slot >= info->depth.  End it with wb__book_down() or
 *  wb__book_drop(); then wb__account_finish(). */
int wb__book_open(struct wb__book *b, struct wb__account *c, const struct wb_xport_conn_info *info,
	uint32_t n_lane, uint32_t n_slot);
/** wb__account_finish - free what hangs on it, not @c itself.  Again: nothing. */
void wb__account_finish(struct wb__account *c);
/** wb__book_drop - take it out of the table untold: the user never knew it, or closes it all. */
void wb__book_drop(struct wb__book *b, struct wb__account *c);
/** wb__book_get - the connection of that number, or NULL. */
struct wb__account *wb__book_get(const struct wb__book *b, wb_conn_t id);
/** wb__book_next - the connections, one a call, from *at = 0 on; NULL: no more.  The one that was
 *  given may be closed or dropped before the next call. */
struct wb__account *wb__book_next(const struct wb__book *b, uint32_t *at);
/** wb__book_of_epoch - the same, only those of that epoch. */
struct wb__account *wb__book_of_epoch(
	const struct wb__book *b, const struct wb_epoch_id *id, uint32_t *at);

/** wb__book_up - both sides are ready: CONN_UP for the user.  It was OPENING. */
void wb__book_up(struct wb__account *c, struct wb_xport_event *ev);
/** wb__book_close - no more is begun; the first code and reason stay.  false: it was closing. */
bool wb__book_close(struct wb__account *c, int code, const char *reason);
/** wb__book_down - nothing of it moves any more, and what is left ends as LOST or WRITE_DONE.  It
 *  was closed before. */
void wb__book_down(struct wb__book *b, struct wb__account *c);
/** wb__book_tell - one more event of those that are down.  *ended: the connection whose last this
 *  was, out of the table and the caller's to free when the event's sentence is no longer needed;
 *  else NULL.  false: nothing to tell.  Of a connection that was never announced the event is
 *  REJECTED without a number. */
bool wb__book_tell(struct wb__book *b, struct wb_xport_event *ev, struct wb__account **ended);

/* ---- what the user asks for -------------------------------------------------------------------
 */

enum wb__entry_kind { WB__ENTRY_GRANT = 1, WB__ENTRY_CANCEL, WB__ENTRY_WRITE, WB__ENTRY_REFUSE };

/* Something to be sent, then committed or abandoned. */
struct wb__entry {
	enum wb__entry_kind kind;
	struct wb__account *c;
	struct wb__op *op; /* all but REFUSE; the grant or write is filled in */
	uint32_t lane;
	uint64_t id; /* number of the grant, on this lane */
	const struct wb_xport_chunk *chunk; /* GRANT: borrowed from the caller */
	int code; /* REFUSE */
};

/** wb__book_grant - as wb_xport_grant(), but for a full queue of the transport. */
int wb__book_grant(
	struct wb__book *b, wb_conn_t conn, const struct wb_xport_grant *g, struct wb__entry *out);
/** wb__book_cancel - as wb_xport_cancel(); of several with this cookie one that is not cancelled.
 */
int wb__book_cancel(struct wb__book *b, wb_conn_t conn, uint64_t cookie, struct wb__entry *out);
/** wb__book_write - as wb_xport_write(); the regions are held at once. */
int wb__book_write(
	struct wb__book *b, wb_conn_t conn, const struct wb_xport_write *w, struct wb__entry *out);
/** wb__book_refuse - as wb_xport_refuse(). */
int wb__book_refuse(
	struct wb__book *b, wb_conn_t conn, uint64_t grant, int code, struct wb__entry *out);
/** wb__book_commit - it is on its way. */
void wb__book_commit(struct wb__book *b, const struct wb__entry *e);
/** wb__book_abandon - it could not be sent: as if it had not been asked for. */
void wb__book_abandon(struct wb__book *b, const struct wb__entry *e);

/* ---- what the other side says -----------------------------------------------------------------
 */

/* How a grant ended at the receiver. */
enum wb__end {
	WB__ARRIVED, /* the caller adds the trailer */
	WB__REFUSED, /* the caller adds the code */
	WB__CANCELLED, /* nothing lands any more, but the source has not answered */
	WB__RETIRED, /* has heard CANCELLED before; now the source has answered: the slot is free */
};

/** wb__book_lane - of an op of @c. */
static inline uint32_t wb__book_lane(const struct wb__account *c, const struct wb__op *op)
{
	return (uint32_t)(op - c->op) / c->n_slot;
}
/** wb__book_slot - of the grant with this number, on its lane. */
static inline uint32_t wb__book_slot(uint64_t id)
{
	return (uint32_t)(id & 0xffff);
}
/** wb__book_op - the op of a number that the other side named on @lane, while the grant or write
 *  is in its slot; else NULL.  Safe with any number. */
struct wb__op *wb__book_op(const struct wb__account *c, uint32_t lane, uint64_t id);
/** wb__book_ended - a grant ended.  true: @ev is filled in, and owed to the user. */
bool wb__book_ended(
	struct wb__account *c, struct wb__op *op, enum wb__end end, struct wb_xport_event *ev);
/** wb__book_asked - a grant came on @lane.  1 = @ev is the GRANT; 0 = the connection is not up,
 *  nobody is told; -EPROTO = the slot is in use or there is none: the peer breaks the rules. */
int wb__book_asked(struct wb__account *c, uint32_t lane, uint64_t id,
	const struct wb_xport_chunk *chunk, struct wb_xport_event *ev);
/** wb__book_gone - a grant was cancelled by the receiver.  true: it was open, @ev is GRANT_GONE,
 * and the caller answers it with a refusal of -ECANCELED. */
bool wb__book_gone(struct wb__account *c, uint32_t lane, uint64_t id, struct wb_xport_event *ev);
/** wb__book_written - a write is over, its memory not used any more: @ev is WRITE_DONE. */
void wb__book_written(struct wb__book *b, struct wb__account *c, struct wb__op *op, int code,
	struct wb_xport_event *ev);

#endif
