/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_VERBS_VERBS_H
#define WB_XPORT_VERBS_VERBS_H
/*
 * The verbs link: the receiver reads, by READs on reliable queue pairs (../README.md).
 *
 *	verbs.c		the link's table, and its loop side: devices, regions
 *	rail.c		what a rail has: completion queues, memory, a bounce buffer
 *	qp.c		one queue pair: made, connected, posted to, taken down
 *	lane.c		the queue pairs behind one socket, and the frames that make them
 *	give.c		the source: keys, ranges, sums
 *	window.c	the source: windows, by which a key is one queue pair's
 *	take.c		the receiver: a chunk cut into READs, and what comes of each
 *	host.c, memory.c, lib.c	devices and ports, registered memory, the library
 *
 * Flight.  The chunk of one grant, from WRITE until it is whole, or is given up and nothing of it
 * is under way any more.  Part.  One READ of a flight; it is on one queue pair, or on the lane's
 * list of parts that have to be posted again.  Parts of a flight are shown to the observer in the
 * order of the wire.
 *
 * Window.  The right to read one region by one queue pair, on devices that have windows (host.h).
 * The peer is told a window's key when the window is bound; without windows it is told the key of
 * the region.  A queue pair that binds windows must be able to send, so at the source it is then in
 * RTS.  It may nevertheless have no READ out, and the receiver's queue pair grants it nothing.
 *
 * Invariants: a queue pair has at most `depth` READs out, a number that both devices allow; a part
 * is freed when its flight has passed it; a flight ends when none of its parts is out; a queue pair
 * is destroyed before its parts are posted elsewhere; memory is let go when no part lands in it and
 * no window is bound to it; a queue pair that goes is in error before its windows go, and destroyed
 * after them.
 * Nothing here allocates or locks between GRANT and RELEASE.  Memory of a GPU is never touched
 * here: a part lands in it by a device, or goes from a slab by the grant's copy function.
 * Threads: a rail's, except the loop side of verbs.c.  Layer: xport (L2), internal.
 */
#include "xport/internal.h"
#include "xport/ranges.h"
#include "xport/verbs/host.h"

#define WB__READS_MAX 16 /* READs out, of a queue pair */
#define WB__BINDS_MAX 16 /* windows being bound, of a queue pair */
#define WB__PARTS 128 /* of a lane */
#define WB__SLABS 32 /* of a rail */
#define WB__SLAB_BYTES (64u << 10)
#define WB__RAIL_QPS 8192 /* queue pairs of a rail that read, or bind windows */
#define WB__CQ_ENTRIES 4096 /* of a rail and device; fewer where the device holds fewer */
#define WB__PART_MAX (1u << 20)
#define WB__PART_MIN (64u << 10)
/* wb_xport_run_min(): each range takes a READ, and the source's lane packs 8 KiB in about the time
 * that a rail needs for one (../README.md). */
#define WB__RUN_MIN 8192u
#define WB__DIRECT_MIN 2048u /* a shorter run of the landing goes by way of a slab */
/* Six retries are seven tries of 0.54 s.  A seventh retry is not possible, since rxe takes 7 for
 * endless.  A device may take up to four times as long as it was told, so there is a deadline of
 * our own. */
#define WB__QP_TIMEOUT 17
#define WB__QP_RETRIES 6
#define WB__READ_DEADLINE_NS (10 * WB_NS_PER_S)
/* A dead queue pair is made again after this time, which doubles each time that the queue pair
 * carried nothing: READs on a path that swallows them are missing for seconds. */
#define WB__REMAKE_NS (1 * WB_NS_PER_S)
#define WB__REMAKE_DOUBLE 5 /* how often it is doubled: up to 32 s */
#define WB__FIND_NS (1 * WB_NS_PER_S) /* how often to look whether devices are still there */

struct wb__lane;
struct wb__flight;

struct wb__part {
	struct wb__flight *f;
	/* In the free list, on a queue pair, or among those to be posted again. */
	struct wb__part *next;
	struct wb__part *after; /* next part of its flight */
	uint32_t region, bytes; /* region: the source's number of it; bytes: of this part */
	uint64_t off;
	uint8_t *to; /* where it lands: the landing, or a slab */
	struct wb__memory *memory; /* memory that it lands in, held; NULL: a slab */
	uint32_t seq;
	uint64_t posted_ns;
	bool is_done;
};

struct wb__flight {
	struct wb__op *op; /* NULL: none */
	struct wb__part *first, **last; /* parts that are not shown yet */
	struct wb__at post; /* where the next part lands */
	uint64_t left; /* bytes that have not landed */
	uint32_t n_out; /* parts that may land */
	bool is_told; /* dead, and the user has heard CANCELLED */
	bool has_trailer;
	uint8_t trailer[WB_XPORT_TRAILER_BYTES];
};

enum wb__qp_state { WB__QP_NONE, WB__QP_MADE, WB__QP_UP, WB__QP_DEAD };

struct wb__qp {
	enum wb__qp_state state;
	struct ibv_qp *qp;
	uint32_t port, device, psn;
	struct wb__port_at at;
	bool has_number;
	uint32_t number; /* index in the rail's table; only if it reads or binds */
	uint32_t n_out; /* READs that are out, or windows that are being bound */
	/* source: when the last window was bound, or the first of those under way was posted */
	uint64_t bound_ns;
	/* depth: READs it may have out; 1 after a loss, until it has carried something */
	uint32_t depth, max_msg;
	/* dialer */
	uint32_t full_depth;
	struct wb__part *head, **tail; /* parts that are out, in order */
	uint32_t seq;
	uint64_t bytes_out;
	uint32_t n_chain; /* parts gathered and not posted yet: the last ones of the list */
	struct ibv_send_wr wr[WB__READS_MAX];
	struct ibv_sge sge[WB__READS_MAX];
};

struct wb__remote { /* a region of the source */
	uint64_t base, bytes; /* 0 = none */
	uint32_t key[WBP_BULK_QPS]; /* 0 = not by that queue pair */
};

enum wb__window_state {
	WB__WINDOW_NONE,
	WB__WINDOW_BINDING,
	WB__WINDOW_BOUND,
	WB__WINDOW_DENIED, /* the device has no more of them */
};

/* A window of one region, for one queue pair of a source. */
struct wb__window {
	enum wb__window_state state;
	bool is_left; /* BINDING: its memory is gone, so it goes as soon as it is bound */
	uint32_t key;
	struct ibv_mw *mw;
	struct wb__memory *memory; /* held, but for NONE */
};

/* What the peer knows of a region of ours. */
struct wb__told {
	uint64_t serial; /* 0 = nothing */
	uint32_t key[WBP_BULK_QPS]; /* by queue pair: key that it was given last */
};

struct wb__lane {
	struct wb__sock *s;
	struct wb__qp qp[WBP_BULK_QPS];
	struct { /* dialer: when a dead queue pair is made again; how often it carried nothing */
		uint64_t at_ns;
		uint32_t n_lost;
	} again_at[WBP_BULK_QPS];
	/* source */
	struct wb__giver give;
	struct wb__told *told; /* [WB__REGIONS_MAX] */
	struct wb__window *window; /* [WB__REGIONS_MAX][WBP_BULK_QPS]; NULL: no device has any */
	uint32_t n_denied; /* how many windows are DENIED */
	/* The peer's number of a queue pair that is answered once all keys are told; 0 = none. */
	uint32_t answer[WBP_BULK_QPS];
	uint32_t seen; /* queue pairs of the peer that we have heard of, a bit each */
	bool is_dirty; /* perhaps there is something to tell */
	/* receiver */
	struct wb__remote *remote; /* [WB__REGIONS_MAX] */
	/* flight: [n_slot]; now: the one whose ranges are coming in */
	struct wb__flight *flight, *now;
	struct wb__part *part, *free_part, *again, **again_tail;
	struct wb__taker take;
	uint32_t part_bytes;
};

struct wb__rail_qp {
	struct wb__lane *lane; /* NULL: free */
	uint32_t k;
	uint16_t gen;
};

struct wb__bounce {
	uint64_t object;
	struct ibv_mr *mr[WB__DEVICES_MAX];
};

struct wb__verbs_rail {
	struct wb__host *h;
	uint32_t port; /* the rail's own port */
	struct ibv_comp_channel *channel[WB__DEVICES_MAX];
	struct ibv_cq *cq[WB__DEVICES_MAX];
	bool is_armed[WB__DEVICES_MAX];
	/* Requests out, at most n_entry, so that no completion is lost. */
	uint32_t n_out[WB__DEVICES_MAX];
	uint32_t n_entry[WB__DEVICES_MAX]; /* entries that the completion queue holds */
	uint32_t turn[WB__PORTS_MAX]; /* by port: the turn of it that was looked at */
	struct wb__memory *known[WB__REGIONS_MAX]; /* held */
	struct wb_xport_region region[WB__REGIONS_MAX];
	struct wb__regions sources, landings;
	uint32_t n_known, n_pending, n_failed, n_gpu;
	struct wb__rail_qp *qp; /* [WB__RAIL_QPS] */
	uint32_t qp_hint;
	uint8_t *slab; /* [WB__SLABS] */
	uint8_t *free_slab[WB__SLABS];
	uint32_t n_slab;
	struct wb__bounce bounce[WB__DOMAINS_MAX];
	uint32_t n_bounce;
	uint64_t
		look_ns; /* when deadlines and dead queue pairs are looked at; UINT64_MAX = never */
	/* When to look whether devices are there; only the rail that hears their events. */
	uint64_t find_ns;
};

/* What the transport has as its own; the loop's. */
struct wb__verbs {
	struct wb__host host;
	struct wb__memory *memory[WB__REGIONS_MAX];
};

/** wb__verbs_of - what the transport has as its own. */
static inline struct wb__verbs *wb__verbs_of(const struct wb__xport_stream *x)
{
	return x->own;
}
/** wb__verbs_rail - what a rail has as its own; NULL before it is open. */
static inline struct wb__verbs_rail *wb__verbs_rail(const struct wb__rail *r)
{
	return r->link;
}

/* Commands of the loop to a rail (wb__cmd.n), about the memory in .p. */
enum { WB__MEM_COMES = 1, WB__MEM_IS, WB__MEM_GOES };

/** wb__verbs_rail_open, wb__verbs_rail_close, wb__verbs_command, wb__verbs_rail_poll,
 * wb__verbs_rail_arm, wb__verbs_rail_event - entries of struct wb__link_ops. */
int wb__verbs_rail_open(struct wb__rail *r);
void wb__verbs_rail_close(struct wb__rail *r);
void wb__verbs_command(struct wb__rail *r, const struct wb__cmd *c);
bool wb__verbs_rail_poll(struct wb__rail *r);
bool wb__verbs_rail_arm(struct wb__rail *r);
void wb__verbs_rail_event(struct wb__rail *r, uint32_t mark);
/** wb__verbs_look_at - the rail is to look at its deadlines at @ns, or before. */
void wb__verbs_look_at(struct wb__rail *r, uint64_t ns);
/** wb__verbs_landing - memory of @object that has all of [@p, @p + @bytes) and that devices may
 * write, or NULL.  It is not held for the caller. */
struct wb__memory *wb__verbs_landing(
	struct wb__verbs_rail *vr, uint64_t object, const void *p, size_t bytes);
/** wb__verbs_bounce - registration of the rail's slabs for @object on @device, or NULL. */
struct ibv_mr *wb__verbs_bounce(struct wb__verbs_rail *vr, uint64_t object, uint32_t device);

/* qp.c */
/** wb__qp_make - make queue pair @k on port @port, in the domain of the lane's object, ready to be
 * connected.  @is_reader: it gets a number of the rail's, and its completions go to @l; else others
 * may read by it, and it can do no more.  0; negative: all is as before. */
int wb__qp_make(struct wb__lane *l, uint32_t k, uint32_t port, bool is_reader);
/** wb__qp_connect - connect it to what the peer's frame says.  0 or negative; then it may be made
 * anew.  May take a second if the peer's address is on no network of the port: the kernel asks for
 * it there. */
int wb__qp_connect(struct wb__lane *l, uint32_t k, const struct wb__frame *peer);
/** wb__qp_frame - what the peer has to know of the queue pair; number 0: it is not there. */
struct wb__frame wb__qp_frame(const struct wb__lane *l, uint32_t k);
/** wb__qp_kill - destroy the queue pair: when this returns nothing lands or is read by it any more.
 * Returns its parts, in order, which are then the caller's. */
struct wb__part *wb__qp_kill(struct wb__lane *l, uint32_t k);
/** wb__qp_add - gather a READ, to be posted by wb__qp_ring(); there must be room (n_out <
 * depth). */
void wb__qp_add(struct wb__lane *l, uint32_t k, struct wb__part *p, uint32_t lkey);
/** wb__qp_ring - post the READs that were gathered: 0, or an errno of the device. */
int wb__qp_ring(struct wb__lane *l, uint32_t k);

/* lane.c */
/** wb__lane_open, wb__lane_close, wb__lane_on_frame - entries of struct wb__link_ops. */
int wb__lane_open(struct wb__sock *s);
void wb__lane_close(struct wb__sock *s);
int wb__lane_on_frame(struct wb__sock *s, const struct wb__frame *f);
/** wb__lane - the lane of a socket; NULL before the socket is up. */
static inline struct wb__lane *wb__lane(const struct wb__sock *s)
{
	return s->link;
}
/** wb__lane_n_up - how many of its queue pairs are up. */
uint32_t wb__lane_n_up(const struct wb__lane *l);
/** wb__lane_lost - queue pair @k is over, with @code and @why: its parts go to the other ones; when
 * there is none the socket fails.  @is_ours: no rail is to blame, and the socket fails in any
 * case. */
void wb__lane_lost(struct wb__lane *l, uint32_t k, int code, const char *why, bool is_ours);
/** wb__lane_ports - port @port has changed: queue pairs on it are lost if it is down, or has
 * another GID; if it is up, those that belong on it go back there. */
void wb__lane_ports(struct wb__lane *l, uint32_t port);
/** wb__rail_ports - ports that a rail's queue pairs use while all ports are up, a bit each.  Any
 * thread. */
uint32_t wb__rail_ports(const struct wb__rail *r);
/** wb__lane_look - look at deadlines of READs and windows, and at queue pairs to be made anew.
 * Returns when to look again, UINT64_MAX = never. */
uint64_t wb__lane_look(struct wb__lane *l, uint64_t now);

/* give.c */
/** wb__give_open - make what a source's lane needs: 0 or -ENOMEM.  Release with wb__give_close(),
 * when its queue pairs are gone. */
int wb__give_open(struct wb__lane *l);
void wb__give_close(struct wb__lane *l);
/** wb__give_idle, wb__give_begin, wb__give_payload - entries of struct wb__link_ops. */
int wb__give_idle(struct wb__sock *s);
int wb__give_begin(struct wb__sock *s);
int wb__give_payload(struct wb__sock *s, uint32_t *budget);

/* window.c.  If l->window is NULL, wb__window_close(), _leave() and _look() find nothing to do. */
/** wb__window_key - write the key by which queue pair @k, which is UP, reads @m to @key; 0: the
 * device has no more windows (which was logged).  @m must have the device in by_window.  false: not
 * yet; the socket becomes ready when there is more to know.  Allocates. */
bool wb__window_key(struct wb__lane *l, uint32_t k, struct wb__memory *m, uint32_t *key);
/** wb__window_bound - a completion of queue pair @k says that the window of @region is bound. */
void wb__window_bound(struct wb__lane *l, uint32_t k, uint32_t region);
/** wb__window_leave - @region goes away: when its memory is let go, nobody reads it by a window of
 * this lane any more. */
void wb__window_leave(struct wb__lane *l, uint32_t region);
/** wb__window_close - destroy the windows of queue pair @k, which is in error. */
void wb__window_close(struct wb__lane *l, uint32_t k);
/** wb__window_look - as wb__lane_look(), for a source's lane. */
uint64_t wb__window_look(struct wb__lane *l, uint64_t now);

/* take.c */
/** wb__take_open - make what a receiver's lane needs: 0 or -ENOMEM.  Release with wb__take_close(),
 * when its queue pairs are gone. */
int wb__take_open(struct wb__lane *l);
void wb__take_close(struct wb__lane *l);
/** wb__take_begin, wb__take_payload - entries of struct wb__link_ops. */
int wb__take_begin(struct wb__sock *s);
int wb__take_payload(struct wb__sock *s, uint32_t *budget);
/** wb__take_table, wb__take_trailer - handle these two frames of the source. */
int wb__take_table(struct wb__sock *s, const struct wb__frame *f);
int wb__take_trailer(struct wb__sock *s, const struct wb__frame *f);
/** wb__take_memory - handle MEMORY or UNREGION of the source. */
int wb__take_memory(struct wb__sock *s, const struct wb__frame *f);
/** wb__take_revoke - the user takes a grant back.  True: nothing of it moves; false:
 * wb__sock_cancelled() follows. */
bool wb__take_revoke(struct wb__sock *s, struct wb__op *op);
/** wb__take_upto - parts of queue pair @k up to number @seq are over. */
void wb__take_upto(struct wb__lane *l, uint32_t k, uint32_t seq);
/** wb__take_again - these parts have lost their queue pair: wb__take_pump() is to post them
 * again. */
void wb__take_again(struct wb__lane *l, struct wb__part *list);
/** wb__take_pump - post parts again that have to be, as far as queue pairs have room. */
void wb__take_pump(struct wb__lane *l);

#endif
