/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FLOW_INTERNAL_H
#define WB_FLOW_INTERNAL_H
/*
 * Shared by flow.c (life), progress.c (what others are shown of it), wants.c (whom to ask for
 * what), pairs.c (in which order), fetch.c (chunks on their way), mine.c (those from a worker of
 * this agent), asks.c (what others ask for), serve.c (answers), snap.c and stock.c (answers packed
 * ahead).  Not for others.
 *
 * The way of a chunk.  A want of an own worker waits in the queue of its pair (source worker, own
 * worker), or, where the source is of this agent, in that source's queue in `mine`.  What is live
 * and within its limits is started: it takes a flight of its kind and worker, where it needs one a
 * slot of its kind's pool, and a place in its pair's window.  The flight has it until it is
 * installed and verified, or is to be asked for again.  At the source it is an ask, queued by the
 * agent that asks and parked by its chunk while that is not there, and then a flight that answers.
 *
 * What an event costs.  Grant, refusal, arrival, lane, write: a few lists of the one chunk that it
 * is about, and the logarithm of the sources of one own worker; never a walk over wants, pairs,
 * asks, agents or flights.  A chunk that is verified finds who waits for it by its number (parked,
 * mine_waiting).  What a chunk lands in is looked at once a plan (wb_local.shape).  Walks are left
 * to what happens a few times a transfer: a sink or source is opened or closed, a worker is lost, a
 * tick.
 *
 * Limits.  An own worker has 16 flights of each kind, a pair three chunks (on one host eight):
 * eight GPUs of an agent have eight rails busy, and none takes what another needs. Receive goes
 * before exchange, since trainers wait for it; only where trainers are too narrow to fill this
 * agent's ingress both go side by side.  What comes through memory takes nothing of that ingress,
 * and waits for neither.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "flow/flow.h"
#include "flow/lists.h"
#include "flow/walk.h"
#include "lane/lane.h"

#define FLOW_IOV_MAX 8192 /* a chunk in more ranges goes through a slot */
/* Of the first ask of a sink: one is the sink's, one the try's.  Who says more comes back. */
#define FLOW_GEN_FIRST 2
#define FLOW_TRIES_MAX 4 /* wrong sums from one source before another is asked */
#define FLOW_WINDOW 3 /* chunks outstanding a pair */
#define FLOW_WINDOW_LOCAL 8 /* the same on one host */
#define FETCH_REMOTE 3 /* kinds of fetches that leave the agent */
#define FETCH_OF_ONE 2 /* those of them that one other agent can be asked */
#define FLOW_FLIGHTS_MAX (WB_FLOW_GRANTS_MAX / FETCH_OF_ONE) /* of one own worker and kind */
#define FLOW_ANSWERS_MAX 256 /* flights of an agent that answer; and so many for each GPU more: */
#define FLOW_ANSWERS_MORE 64
#define FLOW_NONE UINT32_MAX

enum want_state { WANT_CLOSED, WANT_QUEUED, WANT_FLYING, WANT_DONE };

struct want_run {
	uint8_t state;
	uint8_t tries; /* at the present source */
	uint16_t sources_tried;
	bool is_last; /* it looks for anybody who has it: nobody can wait for it here */
	bool counted; /* in its sink's left_receive: a trainer has to stay for it */
	bool waits_slot; /* its last try found none, though its shape alone needs none */
	uint32_t gen;
	uint32_t src; /* plan worker asked now */
	uint32_t next; /* in a queue */
};

struct want_list {
	uint32_t head, tail;
};

/*
 * Fetches are of four kinds, by the source that a want has at present, and each kind has flights,
 * limits and slots of its own: a pair is of one kind, since its source is a trainer or is not, and
 * of this node or is not. That no cycle of waits exists follows from their order:
 *
 * - FETCH_RECEIVE, a trainer worker of another agent is asked.  It answers from parameters or an
 *   image, without regard to anything that arrives anywhere.  So receives end, and what they hold
 *   comes back.
 * - FETCH_EXCHANGE, a rollout worker of another node is asked, which answers when it has the chunk
 *   itself.  By the plan, and by what remap_lost() makes of it, it gets that from a trainer: a
 *   receive there, which waits for nothing that an exchange holds.  Once somebody is lost, one may
 *   be asked that has to exchange the chunk itself, and has no slot for that: then it parks no ask
 *   for it, and the asker holds nothing while it waits (wb__flow_ask_readiness()).  So exchanges
 *   end.
 * - FETCH_NEAR, a rollout worker of another agent of this node is asked, whose memory is shared.
 *   By the plan it takes the chunk from the network, by a receive or an exchange.  Those wait for
 *   no near fetch while nobody is lost.  Once somebody is, an exchange may be asked of a worker
 *   that has its chunk from its node: then an agent parks no ask of its node, and the asker holds
 *   nothing while it waits (wb__flow_ask_readiness()).  So near fetches end, and hold up no other.
 * - FETCH_LOCAL, a worker of this agent is the source.  It begins when the source has the chunk:
 *   nothing but lanes is waited for while a flight is held.  Near fetches share its slots, and
 *   leave it half of them.
 *
 * The kinds that leave the agent share the grants of its connections.  An own worker is the sink
 * of one flow at a time, and has no more exchanges under way than its part of half a connection's
 * grants: the other half is for receives, whatever is parked at the source.
 *
 * With one pool, or one window to an agent that has both trainers and rollouts, exchanges that are
 * parked at others could hold what these others' chunks need to be received here: all engines would
 * wait for each other.
 */
enum fetch_kind { FETCH_RECEIVE, FETCH_EXCHANGE, FETCH_NEAR, FETCH_LOCAL, FETCH_KINDS };

/* What one worker of this agent asks of one worker of another (pairs.h). */
struct pair {
	struct want_list queue;
	uint32_t n_all, n_asked; /* its share: wants that came here, and those that went on */
	uint32_t outstanding; /* grants that have not ended */
	uint32_t next; /* of those that are held for the same agent */
	bool is_live, is_held;
	bool is_full; /* was, and has not drained enough to be worth a wake-up of the source */
};

/* All that is asked of one other agent, of one kind. */
struct asking {
	uint32_t outstanding;
	uint64_t progress_ns;
	/* The source had no room for a grant: not asked before then; how long it was waited the
	 * last time; and since when, without a chunk.  0 = it had. */
	uint64_t busy_until_ns, backoff_ns, busy_ns;
};

/* What it takes to answer; the first also until it is known. */
enum serve_kind { SERVE_FLIGHT, SERVE_SLOT, SERVE_KINDS };

/* A grant of another agent, until it is answered. */
enum ask_state { ASK_FREE, ASK_PARKED, ASK_QUEUED };
struct ask {
	enum ask_state state;
	enum serve_kind kind; /* queued */
	wb_conn_t conn;
	uint64_t grant;
	uint32_t worker, cls, chunk, gen; /* worker: local index */
	uint32_t domain; /* who asks */
	uint32_t next, prev; /* free, or in the queue of that agent */
};

/* An edge: everything this agent asks of one other agent, and that one of this. */
struct edge {
	struct asking ask[FETCH_REMOTE];
	uint32_t held_pair; /* the first of those that wait until it can be asked */
	struct want_list serve[SERVE_KINDS]; /* of asks that can be answered */
	uint32_t n_ask; /* grants of that agent which are not answered */
	uint32_t n_ask_exchange; /* those of them that ask a rollout worker */
	uint32_t held[SERVE_KINDS]; /* flights and send slots for those that are */
	bool is_near; /* another agent of this node */
};

enum source_state { SOURCE_NOT_YET, SOURCE_OPEN, SOURCE_CLOSED };

enum flight_kind { FLIGHT_FETCH, FLIGHT_LOCAL, FLIGHT_SERVE, FLIGHT_SNAP, FLIGHT_CHECK };
enum flight_step { STEP_WAIT, STEP_WIRE, STEP_LANE, STEP_LANE_EXTRA, STEP_READ };

/* Why a worker is no source: it is lost, and all agents know and count alike; or only this agent
 * cannot dial its agent. */
#define FLOW_LOST 1u
#define FLOW_FOREIGN 2u

/* One chunk on its way: the only thing rail and lane threads see. */
struct wb_flight {
	struct wb_flow *flow;
	struct flight_pool *pool;
	struct wb_flight *next; /* free list, or list of those that wait for a lane or rail */
	enum flight_kind kind;
	enum flight_step step;
	uint32_t want, src; /* fetch, local; plan worker that is asked */
	uint32_t worker; /* local index: destination of a fetch, source of a serve */
	uint32_t cls, chunk, gen, domain;
	uint64_t bytes;
	wb_conn_t conn;
	uint64_t grant;
	uint32_t slot; /* WB_SLOT_NONE = direct */
	void *wire; /* the chunk in an image, instead of a slot; NULL = none */
	uint32_t n_box, n_iov, rail;
	bool in_use;
	bool gone; /* the asker took the grant back */
	bool is_packed; /* a serve with a slot: the chunk is in it */
	/* A serve from the parameters whose sum is taken before, or was known (serve.c): a lane has
	 * it or is to have it; @sum is the sum. */
	bool is_summing, is_summed;
	int refusal; /* a serve that ends with this code; 0 = none */
	bool is_parked; /* a fetch whose lane was full: the next pump submits @step again */
	bool misplaced; /* by WB_FAULT */
	bool is_relay; /* a serve whose trailer was known, and written, before it began */
	struct wbk_box *box; /* owned by the pool: boxes_max */
	struct iovec *iov; /* FLOW_IOV_MAX */
	uint32_t *scratch; /* boxes_max */
	struct wb_walk walk;
	struct wbk_sum sum; /* what was seen here */
	uint8_t trailer[WB_XPORT_TRAILER_BYTES];
};

struct flight_list {
	struct wb_flight *head, *tail;
};

struct flight_pool {
	struct wb_flight *all, *free;
	uint32_t n, n_free;
	void *memory; /* boxes, iovs, scratch of all flights */
};

/* A trainer worker's snapshot on its way: all that it is to send, taken at the beginning into
 * memory of its own; or a stock of what is left, taken late into slots (stock.c). */
struct snap {
	const struct wb_image *image; /* NULL = served from parameters */
	uint8_t *base;
	uint32_t next, n_out; /* of image->chunk */
	int rc;
	bool is_told;
	/* A stock alone: */
	struct wb_image *stock; /* owned: the image, in which a chunk has its place when packed */
	uint32_t *slot; /* owned, by image->chunk, of the first `next` */
	bool is_over; /* nobody is served from it any more: it goes with its last reader */
};

struct wb_flow {
	struct wb_flow_opts o;
	struct wb_local *local;
	const struct wb_plan *plan;
	struct wbk_sum_keys keys;
	struct want_run *want; /* one a local->want */
	struct edge *edge; /* one a domain */
	uint32_t n_domain;
	struct pair *pair; /* by own worker, then by plan worker */
	uint32_t n_asker; /* own workers that pairs are of: all, or 0 where nobody wants anything */
	struct wb_least *live[FETCH_REMOTE]; /* by own worker: plan workers of live pairs */
	struct wb_turns
		asking[FETCH_REMOTE]; /* own workers that have live pairs and flights left */
	struct wb_turns holding; /* domains with held pairs, perhaps over */
	uint32_t *n_flying[FETCH_REMOTE]; /* by own worker: flights, at most flights_max */
	uint32_t flights_max[FETCH_KINDS];
	bool is_filling; /* pairs are put in order afterwards */
	struct want_list *mine; /* by local worker: queued wants it is the source of */
	struct wb_keyed mine_waiting; /* those of chunks that it does not have yet: chunk_key() */
	struct flight_list waiting; /* fetches with is_parked, oldest first */
	struct flight_pool fetch[FETCH_KINDS], serve, snaps, checks;
	struct snap *snap; /* by local worker; NULL = no snapshots */
	uint32_t n_stock; /* of these, in slots */
	/* What trainer workers here are to send by the plan, and have not (stock.c): chunks. */
	struct few {
		uint32_t *left; /* owned, by local worker */
		uint32_t *planned; /* owned, likewise */
		uint32_t n_said, said; /* that it is little: how often, and how much it was */
	} few;
	struct ask *ask;
	uint32_t n_ask, n_ask_used, ask_share, ask_free; /* share: of one agent */
	struct wb_keyed parked; /* asks for chunks that are not there yet: chunk_key() */
	struct wb_keyed by_conn; /* all asks */
	struct wb_turns serving[SERVE_KINDS]; /* domains with asks in that queue */
	struct flight_list unsent; /* answers that wait for a lane or rail, oldest first */
	struct wbk_sum *sum; /* the trainer's sum of each chunk, by global chunk number */
	uint8_t *sum_known;
	uint8_t *is_summing; /* a lane sums it for all who ask for it (serve.c) */
	uint8_t **have; /* by local worker: chunk installed and verified, or in its image */
	uint8_t *lost; /* by plan worker: FLOW_LOST, FLOW_FOREIGN */
	bool has_lost, has_last; /* any of them; a want that is_last, perhaps over */
	struct moved {
		uint64_t in, out; /* bytes */
	} * moved; /* by local worker */
	uint64_t created_ns;
	struct wbk_sum **copies; /* by local worker, to read back: sum over all copies of a chunk */
	uint8_t *source_open; /* by local worker: enum source_state */
	struct sink {
		bool open, received, failed;
		const uint8_t *feed;
		uint32_t left_receive, left;
		/* Reading back: all that is installed was read and is right; the pass under way. */
		bool clean;
		uint32_t pass, check_next; /* 0 = none; of local->want, FLOW_NONE at the end */
	} * sink; /* by local worker */
	uint32_t receive_pending; /* RECEIVE chunks of open sinks not yet asked for */
	bool exchange_early; /* trainers' egress is the narrow place: let exchange fill the rest */
	bool stopping;
	bool is_pumping; /* what comes up meanwhile is seen by the same pump */
	unsigned due; /* DUE_*: what may be able to go on since the last pump */
	uint32_t n_pass;
	uint64_t version; /* WB_FAULT_ANY = not known */
	struct wb_flow_stats stats;
};

/*
 * Counts that must agree, asserted where they change:
 *  - a want is QUEUED exactly while it is in a queue, FLYING while a flight has it;
 *    receive_pending counts the queued ones whose source is a trainer;
 *  - sink.left counts wants of an open sink that are not DONE, left_receive those that are counted;
 *  - a flight is in its pool's free list or in use, and ends with the transport only at STEP_WIRE;
 *  - asking.outstanding and pair.outstanding count grants that have not ended, n_flying flights
 *    of fetches; the queue of a pair holds n_all - n_asked;
 *  - edge.n_ask and n_ask_used count asks that are not answered, n_ask_exchange those of rollouts,
 *    edge.held what the answers hold;
 *  - an ask that is QUEUED is in one queue, one that is PARKED in the table by its chunk.
 */

/* Each flight of the fetch pools, in use or not. */
#define for_fetches(f, fl)                                                                         \
	for (int k_ = 0; k_ < FETCH_KINDS; k_++)                                                   \
		for (struct wb_flight *fl = (f)->fetch[k_].all;                                    \
			fl < (f)->fetch[k_].all + (f)->fetch[k_].n; fl++)

/** chunk_id - number of a chunk among all chunks of the plan. */
static inline uint32_t chunk_id(const struct wb_flow *f, uint32_t cls, uint32_t chunk)
{
	return f->plan->cls[cls].chunk_base + chunk;
}

/* Each want of local worker @worker. */
#define for_wants(f, worker, i)                                                                    \
	for (uint32_t i = (f)->local->want_first[worker]; i != FLOW_NONE;                          \
		i = (f)->local->want_same[i])

/* A chunk of a worker of this agent: those who wait for it do so by this. */
static inline uint64_t chunk_key(uint32_t worker, uint32_t id)
{
	return (uint64_t)worker << 32 | id;
}

/* Nothing lands in the memory of local worker @worker any more: it was dropped, somebody else is
 * about to change that memory, or it may be gone. */
static inline bool sink_is_over(const struct wb_flow *f, uint32_t worker)
{
	return f->stopping || f->sink[worker].failed || f->source_open[worker] == SOURCE_CLOSED;
}

/** wb__flow_flights_max - flights of @kind that each of an agent's @n workers may have at once: a
 *  window at least, and exchanges, or near fetches, of all of them no more than half of a
 * connection's grants (one each, where there are more workers than that). */
uint32_t wb__flow_flights_max(enum fetch_kind kind, uint32_t window, uint32_t n);
/** wb__flow_pool_init - @n flights of a kind with their lists.  0 or -ENOMEM; wb_flow_destroy()
 *  frees what there is. */
int wb__flow_pool_init(struct wb_flow *f, struct flight_pool *p, uint32_t n, enum flight_kind kind);
/** wb__flow_pool_finish - free it; no flight is in use.  Again, or of none: nothing. */
void wb__flow_pool_finish(struct flight_pool *p);
/** wb__flow_flight_get - a flight without slot and boxes, whose want, worker and chunk the caller
 *  sets; NULL = all are in use. */
struct wb_flight *wb__flow_flight_get(struct flight_pool *p);
/** wb__flow_wait - at the end of a list of those that wait. */
void wb__flow_wait(struct flight_list *l, struct wb_flight *fl);
/** wb__flow_flight_put - it has ended: back to its pool, with its slot.  No rail and no lane has it
 *  any more. */
void wb__flow_flight_put(struct wb_flight *fl);
/** wb__flow_slot_put - give its slot back, if it has one. */
void wb__flow_slot_put(struct wb_flight *fl);
/* Trailer: lane sums, flags, generation, transfer. */
void wb__flow_trailer_write(
	const struct wb_flow *f, struct wbk_sum sum, uint32_t gen, uint8_t *out);
/* 0; WB_ESTALE for another transfer; WB_ECKSUM: this flow has sums, and the source did not sum. */
int wb__flow_trailer_read(const struct wb_flow *f, const uint8_t *in, struct wbk_sum *sum);

/* Faults on demand at @place; a flip changes one bit of the @bytes at @p. */
unsigned wb__flow_fault(struct wb_flow *f, enum wb_fault_place place, void *p, uint64_t bytes);

/* What an event may have made possible. */
enum {
	DUE_SERVE = 1, /* room, or a chunk that others asked for */
	DUE_FETCH = 2, /* room, or a source */
	DUE_SNAP = 4, /* a lane, for snapshots */
	DUE_CHECK = 8, /* a lane, for passes over sinks */
	DUE_FEW = 16, /* less is left to send */
};

/**
 * wb__flow_pump - at the end of each event, and nowhere else: whatever can go on now
 * @due: beside what handlers have noted in f->due
 * Handlers only note it, so that none is entered from within another.  Every function of flow.h
 * that changes anything ends with it.
 */
void wb__flow_pump(struct wb_flow *f, unsigned due);
/** wb__flow_fetch_pump - start whatever can start of what is wanted.  Only of wb__flow_pump(). */
void wb__flow_fetch_pump(struct wb_flow *f);
/* mine.c: what can begin, of what workers of this agent are the sources of; false: nothing was put
 * into another queue. */
bool wb__flow_mine_pump(struct wb_flow *f);
/* All that wait for a chunk here are looked at again. */
void wb__flow_mine_review(struct wb_flow *f);
/** wb__flow_fetch_flight - a flight for want @i, which it makes a new try; NULL = none is free. */
struct wb_flight *wb__flow_fetch_flight(struct wb_flow *f, uint32_t i, enum fetch_kind kind);
/** wb__flow_fetch_start - ask for want @i over @conn; it stays in its queue.  0: it is on its way;
 *  -EAGAIN: no slot, or no room in the transport; -ENOTCONN; else it can never be. */
int wb__flow_fetch_start(struct wb_flow *f, uint32_t i, enum fetch_kind kind, wb_conn_t conn);
/** wb__flow_fetch_is_busy - agent @domain had no room for grants, and is not to be asked yet. */
bool wb__flow_fetch_is_busy(const struct wb_flow *f, uint32_t domain, enum fetch_kind kind);
/** wb__flow_fetch_started - want @i, out of its queue, is on its way. */
void wb__flow_fetch_started(struct wb_flow *f, uint32_t i);
/* From the slot, or the image, into the parameters. */
int wb__flow_fetch_assemble(struct wb_flight *fl);
/** wb__flow_fetch_xport - the transport's answer to a grant: it arrived, was refused, or its
 *  connection is gone. */
void wb__flow_fetch_xport(struct wb_flight *fl, const struct wb_xport_event *ev);
/** wb__flow_fetch_lane - a lane's answer about a fetch, whatever step that is at. */
void wb__flow_fetch_lane(struct wb_flight *fl, const struct wb_lane_job *job);
/* A lane did not take the flight's job: full, so that it is given again, or the try has failed. */
void wb__flow_fetch_park(struct wb_flight *fl, int code);
/* Submit what was parked, or let it go with its sink. */
void wb__flow_fetch_unpark(struct wb_flow *f);
/* The chunk counts as installed. */
void wb__flow_fetch_ok(struct wb_flight *fl);
/* It does not: the same source a few times, then another. */
void wb__flow_fetch_retry(struct wb_flight *fl, int code, bool next_source);
/** wb__flow_announce - tell the environment, once each, that the worker's sink needs no trainer any
 *  more and that it is complete. */
void wb__flow_announce(struct wb_flow *f, uint32_t worker);
/* check.c: what was installed is read back, where that is wanted. */
void wb__flow_mismatch(struct wb_flow *f, enum wb_flow_place place, uint32_t src, uint32_t worker,
	const struct wb_flight *fl);
/** wb__flow_misplace - WB_FAULT misplace: put bytes of the chunk where others of it belong; once
 *  damaged, each try is. */
void wb__flow_misplace(struct wb_flight *fl);
/** wb__flow_installed - the chunk is in the parameters and its sum was right: it counts, or is read
 *  back first. */
void wb__flow_installed(struct wb_flight *fl);
/** wb__flow_read - submit the sum over all copies of the chunk in the parameters.  0, -EAGAIN (lane
 *  full) or negative. */
int wb__flow_read(struct wb_flight *fl);
/** wb__flow_read_done - that sum is here: the chunk counts, or is asked for again. */
void wb__flow_read_done(struct wb_flight *fl, const struct wb_lane_job *job);
/* All of the sink has been read and is right; else a pass over it begins. */
bool wb__flow_check_is_clean(struct wb_flow *f, uint32_t worker);
/** wb__flow_check_pump - read more of what passes over sinks have left to read. */
void wb__flow_check_pump(struct wb_flow *f);
/** wb__flow_check_lane - a lane's answer in such a pass; a chunk that is wrong is asked for again.
 *  */
void wb__flow_check_lane(struct wb_flight *fl, const struct wb_lane_job *job);
/* asks.c */
/** wb__flow_asks_init - room for what other agents may ask.  0 or -ENOMEM; wb__flow_asks_finish()
 *  in either case. */
int wb__flow_asks_init(struct wb_flow *f);
void wb__flow_asks_finish(struct wb_flow *f);
/** wb__flow_ask_queue - ask @i, in no list, waits at the end of its agent's queue of that kind. */
void wb__flow_ask_queue(struct wb_flow *f, uint32_t i, enum serve_kind kind);
/** wb__flow_ask_unqueue - take it out of that queue again; its state is the caller's to set. */
void wb__flow_ask_unqueue(struct wb_flow *f, uint32_t i);
/** wb__flow_ask_park - out of its queue, to wait until its worker has the chunk. */
void wb__flow_ask_park(struct wb_flow *f, uint32_t i);
/* Answered, or nobody waits for the answer: out of all lists. */
void wb__flow_ask_free(struct wb_flow *f, uint32_t i);
/* Local worker @worker has chunk @id, or will not wait for it like others: who waited for it here
 * is looked at again, by the next pumps. */
void wb__flow_wake(struct wb_flow *f, uint32_t worker, uint32_t id);
/* A source was opened, closed, lost: the same for all, and what is refused now is. */
void wb__flow_review(struct wb_flow *f);
/* serve.c.  1: can be answered; 0: not yet; < 0: never. */
int wb__flow_readiness(const struct wb_flow *f, uint32_t worker, uint32_t cls, uint32_t chunk);
/** wb__flow_ask_readiness - the same of an ask; -EBUSY: not yet, and the asker is to hold nothing
 *  while it waits, but to ask again. */
int wb__flow_ask_readiness(const struct wb_flow *f, const struct ask *a);
/** wb__flow_serve_pump - answer what can be answered, agents in turns.  Only of wb__flow_pump(). */
void wb__flow_serve_pump(struct wb_flow *f);
/** wb__flow_serve_xport - a write has ended, which ends the flight, well or not. */
void wb__flow_serve_xport(struct wb_flight *fl, const struct wb_xport_event *ev);
/** wb__flow_serve_lane - the chunk is packed: it is written, or refused when it is not what was
 *  installed. */
void wb__flow_serve_lane(struct wb_flight *fl, const struct wb_lane_job *job);
/** wb__flow_snap_pump - submit more of the snapshots; of those that are done, tell the environment.
 *  */
void wb__flow_snap_pump(struct wb_flow *f);
/** wb__flow_snap_lane - a chunk of a snapshot is in its image, with its sum; or the snapshot has
 *  failed. */
void wb__flow_snap_lane(struct wb_flight *fl, const struct wb_lane_job *job);
/** wb__flow_snaps_init - room for snapshots, once a flow; 0 or -ENOMEM. */
int wb__flow_snaps_init(struct wb_flow *f);
/* Where a chunk lies in the image of @worker; NULL = it has none or not this chunk, or, in a stock,
 * not yet. */
void *wb__flow_image_at(const struct wb_flow *f, uint32_t worker, uint32_t id);

/** wb__flow_snap_of - the snapshot that trainer worker @worker is served from; NULL = none. */
static inline const struct snap *wb__flow_snap_of(const struct wb_flow *f, uint32_t worker)
{
	const struct snap *s = f->snap ? &f->snap[worker] : NULL;

	return s && s->image && !s->is_over ? s : NULL;
}

/** wb__flow_reads_on - chunks that are not in the snapshot may be had from the parameters still. */
static inline bool wb__flow_reads_on(const struct snap *s)
{
	return s->stock && !s->is_told;
}

/* stock.c */
/** wb__flow_few_opened - trainer worker @worker is open: what it is to send is left. */
void wb__flow_few_opened(struct wb_flow *f, uint32_t worker);
/** wb__flow_few_sent - one chunk less of that of local worker @worker. */
void wb__flow_few_sent(struct wb_flow *f, uint32_t worker);
/** wb__flow_few_pump - say so when little is left.  Only of wb__flow_pump(). */
void wb__flow_few_pump(struct wb_flow *f);
/** wb__flow_stock_slot - a slot for the next chunk of a stock, its memory; NULL: none is free. */
void *wb__flow_stock_slot(struct wb_flow *f, struct snap *s);
/** wb__flow_stock_packed - chunk @id lies in @at. */
void wb__flow_stock_packed(struct wb_flow *f, struct snap *s, uint32_t id, const void *at);
/** wb__flow_stock_is_free - nothing reads the parameters of @worker any more. */
bool wb__flow_stock_is_free(const struct wb_flow *f, uint32_t worker);
/** wb__flow_stock_drop - nobody is served from the stock of @worker any more, if it has one. */
void wb__flow_stock_drop(struct wb_flow *f, uint32_t worker);
/** wb__flow_stock_reap - give back the slots of what was dropped and is not read any more. */
void wb__flow_stock_reap(struct wb_flow *f);
/** wb__flow_stock_finish - give all of them back: nothing is read any more. */
void wb__flow_stock_finish(struct wb_flow *f);
/* How a chunk goes: through a slot whatever carries it, from and into the parameters, or through a
 * slot because the transport of its connection wants longer ranges, which another may not. */
enum { FLOW_BY_SLOT, FLOW_DIRECT, FLOW_TOO_SHORT };
/** wb__flow_flight_shape - boxes and, where possible, memory ranges of the flight's chunk, which
 * has its bytes and connection.  As above, or -errno. */
int wb__flow_flight_shape(struct wb_flight *fl, bool all);
/* The boxes alone: 0 or -errno. */
int wb__flow_flight_boxes(struct wb_flight *fl, bool all);
/** wb__flow_flight_lane - submit the flight's boxes to its worker's lane, between the parameters
 *  and the flight's wire image (WB_LANE_SUM: the parameters alone); @sums: and sum, where the
 *  object has sums.  0, -EAGAIN (lane full) or negative. */
int wb__flow_flight_lane(struct wb_flight *fl, enum wb_lane_kind kind, bool sums);

#endif
