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
 * Flight.  The chunk of one grant from WRITE until it is whole, or is given up and nothing of it is
 * under way.  Part.  One READ of a flight; it is on one queue pair, or on the lane's list of those
 * that have to be posted again.  Parts of a flight are shown to the observer in the order of the
 * wire.
 *
 * Window.  The right to read a region by one queue pair, where the device has such (host.h); else
 * the key that is told is the region's.  A key is told when its window is bound.  Who binds has to
 * be able to ask, so a source's queue pair is then in RTS, but may have no READ out, and a
 * receiver's grants nothing.
 *
 * Invariants: a queue pair has at most `depth` READs out, which both devices allow; a part is freed
 * when its flight has passed it; a flight ends when none of its parts is out; a queue pair is
 * destroyed before its parts are posted elsewhere; memory is let go when no part lands in it and no
 * window is bound to it; a queue pair that goes is in error before its windows go, and destroyed
 * after them.
 * Nothing here allocates or locks between GRANT and RELEASE.  Memory of a GPU is never touched
 * here: a part lands in it by a device, or goes from a slab by the grant's copy function.
 * Threads: a rail's, but for verbs.c's loop side.  Layer: xport (L2), internal.
 */
#include "xport/internal.h"
#include "xport/ranges.h"
#include "xport/verbs/host.h"

#define WB__READS_MAX 16 /* out, of a queue pair */
#define WB__BINDS_MAX 16 /* windows under way, of a queue pair */
#define WB__PARTS 128 /* of a lane */
#define WB__SLABS 32 /* of a rail */
#define WB__SLAB_BYTES (64u << 10)
#define WB__RAIL_QPS 8192 /* that read, or bind windows */
#define WB__CQ_ENTRIES 4096 /* of a rail and device; fewer where the device holds fewer */
#define WB__PART_MAX (1u << 20)
#define WB__PART_MIN (64u << 10)
/* wb_xport_run_min(): each range takes a READ, and the source's lane packs 8 KiB in about the time
 * that a rail needs for one (../README.md). */
#define WB__RUN_MIN 8192u
#define WB__DIRECT_MIN 2048u /* a shorter run of the landing goes by way of a slab */
/* What rxe takes for endless is 7.  Seven tries of 0.54 s, and a deadline of our own: a device may
 * take up to four times as long as it was told. */
#define WB__QP_TIMEOUT 17
#define WB__QP_RETRIES 6
#define WB__READ_DEADLINE_NS (10 * WB_NS_PER_S)
/* A dead queue pair is tried again after this, and after twice as long each time that it carries
 * nothing: what is posted to a way that swallows it is missing for seconds. */
#define WB__REMAKE_NS (1 * WB_NS_PER_S)
#define WB__REMAKE_DOUBLE 5 /* times: 32 s */
#define WB__FIND_NS (1 * WB_NS_PER_S) /* are devices still there? */

struct wb__lane;
struct wb__flight;

struct wb__part {
	struct wb__flight *f;
	struct wb__part *next; /* free, on a queue pair, or to be posted again */
	struct wb__part *after; /* of its flight */
	uint32_t region, bytes; /* of the source */
	uint64_t off;
	uint8_t *to; /* landing or slab */
	struct wb__memory *memory; /* that it lands in, held; NULL: a slab */
	uint32_t seq;
	uint64_t posted_ns;
	bool is_done;
};

struct wb__flight {
	struct wb__op *op; /* NULL: none */
	struct wb__part *first, **last; /* that are not shown yet */
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
	uint32_t number; /* in the rail's table: of one that reads or binds */
	uint32_t n_out; /* READs, or windows that are being bound */
	uint64_t bound_ns; /* source: when the last was, or the first of those out was posted */
	uint32_t depth, max_msg; /* depth: 1 after a loss, until it has carried something */
	/* dialer */
	uint32_t full_depth;
	struct wb__part *head, **tail; /* out, in order */
	uint32_t seq;
	uint64_t bytes_out;
	uint32_t n_chain; /* gathered, not rung yet: those at the end of the list */
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

/* Of one region, for one queue pair of a source. */
struct wb__window {
	enum wb__window_state state;
	bool is_left; /* BINDING: goes when it is bound, its memory is gone */
	uint32_t key;
	struct ibv_mw *mw;
	struct wb__memory *memory; /* held, but for NONE */
};

/* What the peer knows of a region of ours. */
struct wb__told {
	uint64_t serial; /* 0 = nothing */
	uint32_t key[WBP_BULK_QPS]; /* that it was given last */
};

struct wb__lane {
	struct wb__sock *s;
	struct wb__qp qp[WBP_BULK_QPS];
	struct { /* dialer: when a dead one is tried again, and how often it carried nothing */
		uint64_t at_ns;
		uint32_t n_lost;
	} again_at[WBP_BULK_QPS];
	/* source */
	struct wb__giver give;
	struct wb__told *told; /* [WB__REGIONS_MAX] */
	struct wb__window *window; /* [WB__REGIONS_MAX][WBP_BULK_QPS]; NULL: no device has any */
	uint32_t n_denied; /* of them */
	uint32_t answer[WBP_BULK_QPS]; /* owed when all is told: the peer's number */
	uint32_t seen; /* queue pairs of the peer that we heard of, bit by bit */
	bool is_dirty; /* perhaps there is something to tell */
	/* receiver */
	struct wb__remote *remote; /* [WB__REGIONS_MAX] */
	struct wb__flight *flight, *now; /* [n_slot]; the one whose ranges come */
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
	uint32_t port; /* its own */
	struct ibv_comp_channel *channel[WB__DEVICES_MAX];
	struct ibv_cq *cq[WB__DEVICES_MAX];
	bool is_armed[WB__DEVICES_MAX];
	uint32_t n_out[WB__DEVICES_MAX]; /* at most n_entry, so that no completion is lost */
	uint32_t n_entry[WB__DEVICES_MAX]; /* that the completion queue holds */
	uint32_t turn[WB__PORTS_MAX]; /* of ports, that were looked at */
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
		look_ns; /* deadlines and dead queue pairs are looked at then; UINT64_MAX = never */
	uint64_t find_ns; /* devices are looked for then; of the rail that hears their events */
};

/* Of the transport; the loop's. */
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

/* Commands of the loop to a rail, about the memory in .p */
enum { WB__MEM_COMES = 1, WB__MEM_IS, WB__MEM_GOES };

/** wb__verbs_rail_open, wb__verbs_rail_close, wb__verbs_command, wb__verbs_rail_poll,
 * wb__verbs_rail_arm, wb__verbs_rail_event - entries of struct wb__link_ops. */
int wb__verbs_rail_open(struct wb__rail *r);
void wb__verbs_rail_close(struct wb__rail *r);
void wb__verbs_command(struct wb__rail *r, const struct wb__cmd *c);
bool wb__verbs_rail_poll(struct wb__rail *r);
bool wb__verbs_rail_arm(struct wb__rail *r);
void wb__verbs_rail_event(struct wb__rail *r, uint32_t mark);
/** wb__verbs_look_at - the rail looks at its deadlines at @ns, or before. */
void wb__verbs_look_at(struct wb__rail *r, uint64_t ns);
/** wb__verbs_landing - memory of @object with all of [@p, @p + @bytes) that devices may write, or
 *  NULL.  Not held. */
struct wb__memory *wb__verbs_landing(
	struct wb__verbs_rail *vr, uint64_t object, const void *p, size_t bytes);
/** wb__verbs_bounce - the key of the rail's slabs for @object on @device: of the device's, or NULL.
 */
struct ibv_mr *wb__verbs_bounce(struct wb__verbs_rail *vr, uint64_t object, uint32_t device);

/* qp.c */
/** wb__qp_make - a queue pair on port @port in @object's domain, able to be connected.  @is_reader:
 *  it gets a number of the rail's, and its completions go to @l; else others may read by it, and
 *  no more.  0 or negative: it is as before. */
int wb__qp_make(struct wb__lane *l, uint32_t k, uint32_t port, bool is_reader);
/** wb__qp_connect - to what the peer's frame says.  0 or negative; it may be made anew then.  May
 * take a second where the peer's address is on no network of the port: the kernel asks for it
 * there. */
int wb__qp_connect(struct wb__lane *l, uint32_t k, const struct wb__frame *peer);
/** wb__qp_frame - what the peer has to know of it; of one that is not there: number 0. */
struct wb__frame wb__qp_frame(const struct wb__lane *l, uint32_t k);
/** wb__qp_kill - destroy it: when this returns nothing lands or is read by it.  Its parts are the
 *  caller's, in order, from what is returned on. */
struct wb__part *wb__qp_kill(struct wb__lane *l, uint32_t k);
/** wb__qp_add - gather a READ; there is room (n_out < depth). */
void wb__qp_add(struct wb__lane *l, uint32_t k, struct wb__part *p, uint32_t lkey);
/** wb__qp_ring - post what was gathered: 0, or an errno of the device. */
int wb__qp_ring(struct wb__lane *l, uint32_t k);

/* lane.c */
/** wb__lane_open, wb__lane_close, wb__lane_on_frame - entries of struct wb__link_ops. */
int wb__lane_open(struct wb__sock *s);
void wb__lane_close(struct wb__sock *s);
int wb__lane_on_frame(struct wb__sock *s, const struct wb__frame *f);
/** wb__lane - of a socket; NULL before it is up. */
static inline struct wb__lane *wb__lane(const struct wb__sock *s)
{
	return s->link;
}
/** wb__lane_n_up - how many of its queue pairs are up. */
uint32_t wb__lane_n_up(const struct wb__lane *l);
/** wb__lane_lost - queue pair @k is over, because of @code and @why: its parts go to the others;
 *  without any the socket fails.  @is_ours: no rail's fault, the socket fails in any case. */
void wb__lane_lost(struct wb__lane *l, uint32_t k, int code, const char *why, bool is_ours);
/** wb__lane_ports - ports have changed: what is on one that is down, or has another GID, is lost.
 */
void wb__lane_ports(struct wb__lane *l, uint32_t port);
/** wb__rail_ports - those that a rail's queue pairs go by while all are up, a bit each.  Any
 * thread.
 */
uint32_t wb__rail_ports(const struct wb__rail *r);
/** wb__lane_look - deadlines of its READs and windows, and queue pairs to be made anew; when to
 * look again. */
uint64_t wb__lane_look(struct wb__lane *l, uint64_t now);

/* give.c */
/** wb__give_open - what a source's lane needs: 0 or -ENOMEM.  Release with wb__give_close(), its
 *  queue pairs are gone then. */
int wb__give_open(struct wb__lane *l);
void wb__give_close(struct wb__lane *l);
/** wb__give_idle, wb__give_begin, wb__give_payload - entries of struct wb__link_ops. */
int wb__give_idle(struct wb__sock *s);
int wb__give_begin(struct wb__sock *s);
int wb__give_payload(struct wb__sock *s, uint32_t *budget);

/* window.c; a lane whose l->window is NULL has nothing to close, leave or look at */
/** wb__window_key - the key by which queue pair @k, which is UP, reads @m, into @key; 0: the device
 *  has no more windows (it was logged).  @m is in use by_window on its device.  false: not yet; the
 *  socket is made ready when there is more to know.  Allocates. */
bool wb__window_key(struct wb__lane *l, uint32_t k, struct wb__memory *m, uint32_t *key);
/** wb__window_bound - a completion of queue pair @k says so of @region's. */
void wb__window_bound(struct wb__lane *l, uint32_t k, uint32_t region);
/** wb__window_leave - @region goes: nobody reads it by a window of this lane when its memory is let
 *  go. */
void wb__window_leave(struct wb__lane *l, uint32_t region);
/** wb__window_close - those of queue pair @k, which is in error. */
void wb__window_close(struct wb__lane *l, uint32_t k);
/** wb__window_look - as wb__lane_look(), of a source's lane. */
uint64_t wb__window_look(struct wb__lane *l, uint64_t now);

/* take.c */
/** wb__take_open - what a receiver's lane needs: 0 or -ENOMEM.  Release with wb__take_close(), its
 *  queue pairs are gone then. */
int wb__take_open(struct wb__lane *l);
void wb__take_close(struct wb__lane *l);
/** wb__take_begin, wb__take_payload - entries of struct wb__link_ops. */
int wb__take_begin(struct wb__sock *s);
int wb__take_payload(struct wb__sock *s, uint32_t *budget);
/** wb__take_table, wb__take_trailer - those frames. */
int wb__take_table(struct wb__sock *s, const struct wb__frame *f);
int wb__take_trailer(struct wb__sock *s, const struct wb__frame *f);
/** wb__take_memory - MEMORY or UNREGION of the source. */
int wb__take_memory(struct wb__sock *s, const struct wb__frame *f);
/** wb__take_revoke - the user takes a grant back: true when nothing of it moves. */
bool wb__take_revoke(struct wb__sock *s, struct wb__op *op);
/** wb__take_upto - parts of queue pair @k are over, up to number @seq. */
void wb__take_upto(struct wb__lane *l, uint32_t k, uint32_t seq);
/** wb__take_again - a list of parts whose queue pair is gone: to be posted by wb__take_pump(). */
void wb__take_again(struct wb__lane *l, struct wb__part *list);
/** wb__take_pump - post those, as far as queue pairs have room. */
void wb__take_pump(struct wb__lane *l);

#endif
