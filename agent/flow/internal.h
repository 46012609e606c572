/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FLOW_INTERNAL_H
#define WB_FLOW_INTERNAL_H
/*
 * Shared by flow.c (its life), progress.c (what others are shown of it), wants.c (whom to ask for
 * what), pairs.c (in which order), fetch.c (chunks on their way), mine.c (chunks from a worker of
 * this agent), asks.c (what others ask for), serve.c (answers), snap.c and stock.c (answers packed
 * ahead).  Not for others.
 *
 * The way of a chunk.  A want of an own worker waits in the queue of its pair (source worker, own
 * worker) or, when the source is of this agent, in that source's queue in `mine`.  A want whose
 * turn has come and whose limits allow it is started: it takes a flight of its kind and worker, if
 * it needs one a slot of its kind's pool, and a place in its pair's window.  The flight keeps these
 * until the chunk is installed and verified, or is to be asked for again.  At the source the grant
 * is an ask: it is queued by the agent that asks, or parked by its chunk while that is not there,
 * and then becomes a flight that answers.
 *
 * What an event costs.  A grant, refusal, arrival, lane or write event costs a few lists of the one
 * chunk that it is about, and the logarithm of the sources of one own worker; never a walk over
 * wants, pairs, asks, agents or flights.  Who waits for a chunk is found by its number once it is
 * verified (parked, mine_waiting).  What a chunk lands in is looked at once for each plan
 * (wb_local.shape).  Walks are left to what happens a few times in a transfer: a sink or source is
 * opened or closed, a worker is lost, a tick.
 *
 * Limits.  An own worker has 16 flights of each kind, a pair three chunks (on one host eight):
 * eight GPUs of an agent keep eight rails busy, and none takes what another needs.  Receive goes
 * before exchange, since trainers wait for it; only where trainers are too narrow to fill this
 * agent's ingress do both go side by side.  What comes through memory uses none of that ingress,
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

#define FLOW_IOV_MAX 8192 /* a chunk in more ranges than this goes through a slot */
/* Generation of the first ask of a sink: one for the sink, one for the try.  A greater one means
 * that the chunk was asked for before. */
#define FLOW_GEN_FIRST 2
#define FLOW_TRIES_MAX 4 /* wrong sums from one source until another is asked */
#define FLOW_WINDOW 3 /* chunks outstanding of a pair */
#define FLOW_WINDOW_LOCAL 8 /* the same on one host */
#define FETCH_REMOTE 3 /* kinds of fetches that leave the agent */
#define FETCH_OF_ONE 2 /* kinds that one other agent can be asked */
#define FLOW_FLIGHTS_MAX (WB_FLOW_GRANTS_MAX / FETCH_OF_ONE) /* of one own worker and kind */
/* Flights of an agent that answer: with one worker, and for each further one. */
#define FLOW_ANSWERS_MAX 256
#define FLOW_ANSWERS_MORE 64
#define FLOW_NONE UINT32_MAX

enum want_state { WANT_CLOSED, WANT_QUEUED, WANT_FLYING, WANT_DONE };

struct want_run {
	uint8_t state;
	uint8_t tries; /* failed tries at the present source */
	uint16_t sources_tried;
	bool is_last; /* it is asked of anybody who may have it: nobody may wait for it here */
	bool counted; /* counts in its sink's left_receive: a trainer has to stay for it */
	/* Its last try needed a slot and found none, though its shape needs none. */
	bool waits_slot;
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

/* What one worker of this agent asks of one worker of another agent (pairs.h). */
struct pair {
	struct want_list queue;
	/* Its share: wants that came into its queue; those that have been asked for. */
	uint32_t n_all, n_asked;
	uint32_t outstanding; /* grants that have not ended */
	uint32_t next; /* next pair that is held for the same agent */
	bool is_live, is_held;
	/* Its window was full, and has not drained enough to be worth waking the source. */
	bool is_full;
};

/* All that is asked of one other agent, of one kind. */
struct asking {
	uint32_t outstanding;
	uint64_t progress_ns;
	/* The source had no room for a grant: busy_until_ns: it is not asked before then;
	 * backoff_ns: the last wait; busy_ns: since when it has had no room and brought no chunk.
	 * 0 = it had room. */
	uint64_t busy_until_ns, backoff_ns, busy_ns;
};

/* What it takes to answer: a flight, or also a slot.  SERVE_FLIGHT too while that is not known. */
enum serve_kind { SERVE_FLIGHT, SERVE_SLOT, SERVE_KINDS };

/* A grant of another agent, until it is answered. */
enum ask_state { ASK_FREE, ASK_PARKED, ASK_QUEUED };
struct ask {
	enum ask_state state;
	enum serve_kind kind; /* while queued: in which queue */
	wb_conn_t conn;
	uint64_t grant;
	uint32_t worker, cls, chunk, gen; /* worker: local index */
	uint32_t domain; /* agent that asks */
	uint32_t next, prev; /* in the free list, or in that agent's queue */
};

/* An edge: all that this agent asks of one other agent, and that the other asks of this one. */
struct edge {
	struct asking ask[FETCH_REMOTE];
	uint32_t held_pair; /* first of the pairs that wait until the agent can be asked */
	struct want_list serve[SERVE_KINDS]; /* asks that can be answered */
	uint32_t n_ask; /* grants of that agent that are not answered yet */
	uint32_t n_ask_exchange; /* how many of them ask a rollout worker */
	uint32_t held[SERVE_KINDS]; /* flights and send slots in use for answers to it */
	bool is_near; /* another agent of this node */
};

enum source_state { SOURCE_NOT_YET, SOURCE_OPEN, SOURCE_CLOSED };

enum flight_kind { FLIGHT_FETCH, FLIGHT_LOCAL, FLIGHT_SERVE, FLIGHT_SNAP, FLIGHT_CHECK };
enum flight_step { STEP_WAIT, STEP_WIRE, STEP_LANE, STEP_LANE_EXTRA, STEP_READ };

/* Why a worker is no source: it is lost, which all agents know and count alike; or only this agent
 * cannot dial the worker's agent. */
#define FLOW_LOST 1u
#define FLOW_FOREIGN 2u

/* One chunk on its way: the only thing of a flow that rail and lane threads see. */
struct wb_flight {
	struct wb_flow *flow;
	struct flight_pool *pool;
	struct wb_flight *next; /* free list, or list of those that wait for a lane or rail */
	enum flight_kind kind;
	enum flight_step step;
	uint32_t want, src; /* want: fetch and local only; src: plan worker that is asked */
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
	bool is_packed; /* a serve with a slot: the chunk is packed in it */
	/* A serve from the parameters whose sum is taken before it is written (serve.c):
	 * is_summing: a lane has it, or is to have it; is_summed: @sum is the sum, which may have
	 * been known already. */
	bool is_summing, is_summed;
	int refusal; /* a serve that ends with this code; 0 = none */
	bool is_parked; /* a fetch whose lane was full: the next pump submits @step again */
	bool misplaced; /* by WB_FAULT */
	bool is_relay; /* a serve whose trailer was known, and written, before it began */
	struct wbk_box *box; /* owned by the pool: boxes_max */
	struct iovec *iov; /* FLOW_IOV_MAX */
	uint32_t *scratch; /* boxes_max */
	struct wb_walk walk;
	struct wbk_sum sum; /* of the bytes that were seen here */
	uint8_t trailer[WB_XPORT_TRAILER_BYTES];
};

struct flight_list {
	struct wb_flight *head, *tail;
};

struct flight_pool {
	struct wb_flight *all, *free;
	uint32_t n, n_free;
	void *memory; /* boxes, iovs, scratch of all flights; wb_pages_alloc() */
	size_t memory_bytes;
};

/* A trainer worker's snapshot being taken: all that it is to send, packed at the beginning into
 * memory of its own.  Or a stock of what is left, packed late into slots (stock.c). */
struct snap {
	const struct wb_image *image; /* NULL = served from parameters */
	uint8_t *base;
	/* Indices of image->chunk: next to pack; how many are with the lane. */
	uint32_t next, n_out;
	int rc;
	bool is_told;
	/* Of a stock only: */
	struct wb_image *stock; /* owned: same as image; a chunk has an offset once it is packed */
	uint32_t *slot; /* owned, by image->chunk: slots of the first `next` */
	bool is_over; /* nobody is served from it any more: it is freed after its last reader */
};

struct wb_flow {
	struct wb_flow_opts o;
	struct wb_local *local;
	const struct wb_plan *plan;
	struct wbk_sum_keys keys;
	struct want_run *want; /* one for each local->want */
	struct edge *edge; /* one for each domain */
	uint32_t n_domain;
	struct pair *pair; /* by own worker, then by plan worker */
	uint32_t n_asker; /* own workers that have pairs: all, or 0 when nobody wants anything */
	struct wb_least *live[FETCH_REMOTE]; /* by own worker: plan workers of live pairs */
	struct wb_turns
		asking[FETCH_REMOTE]; /* own workers that have live pairs and flights left */
	struct wb_turns holding; /* domains with held pairs, some perhaps without any more */
	uint32_t *n_flying[FETCH_REMOTE]; /* by own worker: flights, at most flights_max */
	uint32_t flights_max[FETCH_KINDS];
	bool is_filling; /* pairs only fill, and are put in order afterwards */
	struct want_list *mine; /* by local worker: queued wants whose source it is */
	/* Such wants of chunks that the source does not have yet: chunk_key(). */
	struct wb_keyed mine_waiting;
	struct flight_list waiting; /* fetches with is_parked, oldest first */
	struct flight_pool fetch[FETCH_KINDS], serve, snaps, checks;
	struct snap *snap; /* by local worker; NULL = no snapshots */
	uint32_t n_stock; /* how many of these are stocks */
	/* Chunks that trainer workers here are to send by the plan, and have not sent (stock.c). */
	struct few {
		uint32_t *left; /* owned, by local worker */
		uint32_t *planned; /* owned, likewise */
		bool *is_far; /* owned, likewise: wb_flow_sends_far() */
		/* n_said: how often on_few was called; said: how much was left then */
		uint32_t n_said, said;
	} few;
	struct ask *ask;
	uint32_t n_ask, n_ask_used, ask_share, ask_free; /* ask_share: most asks of one agent */
	struct wb_keyed parked; /* asks for chunks that are not there yet, by chunk_key() */
	struct wb_keyed by_conn; /* all asks, by connection */
	struct wb_turns serving[SERVE_KINDS]; /* domains with asks in that queue */
	struct flight_list unsent; /* answers that wait for a lane or rail, oldest first */
	struct wbk_sum *sum; /* the trainer's sum of each chunk, by global chunk number */
	uint8_t *sum_known;
	/* By global chunk number: a lane sums it for all who ask for it (serve.c). */
	uint8_t *is_summing;
	uint8_t **have; /* by local worker and chunk: installed and verified, or in its image */
	uint8_t *lost; /* by plan worker: FLOW_LOST, FLOW_FOREIGN */
	bool has_lost, has_last; /* a worker is lost; a want is, or was, is_last */
	struct moved {
		uint64_t in, out; /* bytes */
	} * moved; /* by local worker */
	uint64_t created_ns;
	/* By local worker, to read back: by chunk, the sum over all its copies. */
	struct wbk_sum **copies;
	uint8_t *source_open; /* by local worker: enum source_state */
	struct sink {
		bool open, received, failed;
		const uint8_t *feed;
		uint32_t left_receive, left;
		/* Reading back.  clean: all that is installed was read and is right; pass: number
		 * of the pass under way, 0 = none; check_next: next want of the pass, FLOW_NONE at
		 * its end. */
		bool clean;
		uint32_t pass, check_next; /* 0 = none; of local->want, FLOW_NONE at the end */
	} * sink; /* by local worker */
	uint32_t receive_pending; /* queued wants whose source is a trainer */
	/* Trainers cannot fill this agent's ingress: exchange may use the rest. */
	bool exchange_early;
	bool stopping;
	bool is_pumping; /* wb__flow_pump() runs, and will see what comes up meanwhile */
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

/* Key by which those wait who need chunk @id of local worker @worker. */
static inline uint64_t chunk_key(uint32_t worker, uint32_t id)
{
	return (uint64_t)worker << 32 | id;
}

/* Must nothing land in the memory of local worker @worker any more?  Its sink was dropped, or
 * somebody else is about to change that memory, or it may be gone. */
static inline bool sink_is_over(const struct wb_flow *f, uint32_t worker)
{
	return f->stopping || f->sink[worker].failed || f->source_open[worker] == SOURCE_CLOSED;
}

/** wb__flow_flights_max - how many flights of @kind each of an agent's @n workers may have at once:
 * a window at least.  Exchanges, and near fetches, of all workers together use no more than half of
 * a connection's grants (one each, if there are more workers than that). */
uint32_t wb__flow_flights_max(enum fetch_kind kind, uint32_t window, uint32_t n);
/** wb__flow_pool_init - make @n flights of a kind, with their lists.  0 or -ENOMEM; either way
 * wb_flow_destroy() frees what there is. */
int wb__flow_pool_init(struct wb_flow *f, struct flight_pool *p, uint32_t n, enum flight_kind kind);
/** wb__flow_pool_finish - free it; no flight may be in use.  Does nothing when it was freed or
 * never made. */
void wb__flow_pool_finish(struct flight_pool *p);
/** wb__flow_flight_get - take out a flight without slot and boxes; the caller sets its want, worker
 * and chunk.  NULL = all are in use. */
struct wb_flight *wb__flow_flight_get(struct flight_pool *p);
/** wb__flow_wait - put @fl at the end of a list of flights that wait. */
void wb__flow_wait(struct flight_list *l, struct wb_flight *fl);
/** wb__flow_flight_put - the flight has ended: it goes back to its pool, and its slot to the slots.
 * No rail and no lane has it any more. */
void wb__flow_flight_put(struct wb_flight *fl);
/** wb__flow_slot_put - give its slot back, if it has one. */
void wb__flow_slot_put(struct wb_flight *fl);
/* Trailer: lane sums, flags, generation, transfer. */
void wb__flow_trailer_write(
	const struct wb_flow *f, struct wbk_sum sum, uint32_t gen, uint8_t *out);
/* Returns 0; WB_ESTALE: it is of another transfer; WB_ECKSUM: this flow has sums, and the source
 * did not sum. */
int wb__flow_trailer_read(const struct wb_flow *f, const uint8_t *in, struct wbk_sum *sum);

/* Faults on demand at @place; a flip changes one bit of the @bytes at @p.  Returns WB_FAULT_* bits
 * of what is to happen, 0 = nothing. */
unsigned wb__flow_fault(struct wb_flow *f, enum wb_fault_place place, void *p, uint64_t bytes);

/* What an event may have made possible. */
enum {
	DUE_SERVE = 1, /* there is room, or a chunk that others asked for */
	DUE_FETCH = 2, /* there is room, or a source */
	DUE_SNAP = 4, /* a lane is free for snapshots */
	DUE_CHECK = 8, /* a lane is free for passes over sinks */
	DUE_FEW = 16, /* less is left to send */
};

/**
 * wb__flow_pump - do whatever can go on now; called at the end of each event, and nowhere else
 * @due: what can go on, beside what handlers have noted in f->due
 * Handlers only note what can go on, so that none is entered from within another.  Every function
 * of flow.h that changes anything ends with this call.
 */
void wb__flow_pump(struct wb_flow *f, unsigned due);
/** wb__flow_fetch_pump - start whatever wants can be started.  Called by wb__flow_pump() only. */
void wb__flow_fetch_pump(struct wb_flow *f);
/* mine.c: start whatever can be of wants whose source is a worker of this agent.  True: a want went
 * to another queue, so call again. */
bool wb__flow_mine_pump(struct wb_flow *f);
/* Look again at all wants that wait for a chunk of a worker here. */
void wb__flow_mine_review(struct wb_flow *f);
/** wb__flow_fetch_flight - a flight for a new try of want @i; NULL = none is free. */
struct wb_flight *wb__flow_fetch_flight(struct wb_flow *f, uint32_t i, enum fetch_kind kind);
/** wb__flow_fetch_start - ask for want @i over @conn; the want stays in its queue.  0: it is on its
 * way; -EAGAIN: no flight or slot is free, or the transport has no room; -ENOTCONN; any other
 * error: it can never be asked for. */
int wb__flow_fetch_start(struct wb_flow *f, uint32_t i, enum fetch_kind kind, wb_conn_t conn);
/** wb__flow_fetch_is_busy - has agent @domain had no room for grants, and is it too early to ask
 * again? */
bool wb__flow_fetch_is_busy(const struct wb_flow *f, uint32_t domain, enum fetch_kind kind);
/** wb__flow_fetch_started - want @i, which has left its queue, is on its way. */
void wb__flow_fetch_started(struct wb_flow *f, uint32_t i);
/* Submit to a lane: from the slot, or the image, into the parameters.  0, -EAGAIN (lane full) or
 * negative. */
int wb__flow_fetch_assemble(struct wb_flight *fl);
/** wb__flow_fetch_xport - the transport says what became of a grant: the chunk arrived, it was
 * refused, or its connection is gone. */
void wb__flow_fetch_xport(struct wb_flight *fl, const struct wb_xport_event *ev);
/** wb__flow_fetch_lane - a lane has ended a job of a fetch, at whatever step. */
void wb__flow_fetch_lane(struct wb_flight *fl, const struct wb_lane_job *job);
/* A lane did not take the flight's job.  @code -EAGAIN: it was full, and the job is submitted again
 * later; else the try has failed. */
void wb__flow_fetch_park(struct wb_flight *fl, int code);
/* Submit parked jobs again; flights whose sink is over end instead. */
void wb__flow_fetch_unpark(struct wb_flow *f);
/* The flight's chunk counts as installed; the flight ends. */
void wb__flow_fetch_ok(struct wb_flight *fl);
/* It does not count: ask the same source again, a few times, then (or at once with @next_source)
 * another. */
void wb__flow_fetch_retry(struct wb_flight *fl, int code, bool next_source);
/** wb__flow_announce - tell the environment, once each, when the worker's sink needs no trainer any
 * more, and when it is complete. */
void wb__flow_announce(struct wb_flow *f, uint32_t worker);
/* check.c: installed chunks are read back where that is wanted.  This counts bytes that were wrong,
 * and tells env->on_mismatch. */
void wb__flow_mismatch(struct wb_flow *f, enum wb_flow_place place, uint32_t src, uint32_t worker,
	const struct wb_flight *fl);
/** wb__flow_misplace - WB_FAULT misplace: put bytes of the chunk where other bytes of it belong.
 * Once a chunk is damaged, so is each further try. */
void wb__flow_misplace(struct wb_flight *fl);
/** wb__flow_installed - the chunk is in the parameters and its sum was right: it counts now, or is
 * read back first. */
void wb__flow_installed(struct wb_flight *fl);
/** wb__flow_read - submit the sum over all copies of the chunk in the parameters.  0, -EAGAIN (lane
 *  full) or negative. */
int wb__flow_read(struct wb_flight *fl);
/** wb__flow_read_done - the sum that wb__flow_read() submitted is here: the chunk counts, or is
 * asked for again. */
void wb__flow_read_done(struct wb_flight *fl, const struct wb_lane_job *job);
/* Has all of the sink been read, and is it right?  If not, a pass over it begins. */
bool wb__flow_check_is_clean(struct wb_flow *f, uint32_t worker);
/** wb__flow_check_pump - submit more of what passes over sinks have left to read. */
void wb__flow_check_pump(struct wb_flow *f);
/** wb__flow_check_lane - a lane has ended a job of such a pass; a wrong chunk is asked for
 * again. */
void wb__flow_check_lane(struct wb_flight *fl, const struct wb_lane_job *job);
/* asks.c */
/** wb__flow_asks_init - make room for what other agents may ask.  0 or -ENOMEM; call
 * wb__flow_asks_finish() in either case. */
int wb__flow_asks_init(struct wb_flow *f);
void wb__flow_asks_finish(struct wb_flow *f);
/** wb__flow_ask_queue - put ask @i, which is in no list, at the end of its agent's queue of that
 * kind. */
void wb__flow_ask_queue(struct wb_flow *f, uint32_t i, enum serve_kind kind);
/** wb__flow_ask_unqueue - take the ask out of that queue again; the caller sets its state. */
void wb__flow_ask_unqueue(struct wb_flow *f, uint32_t i);
/** wb__flow_ask_park - take the ask out of its queue; it waits until its worker has the chunk. */
void wb__flow_ask_park(struct wb_flow *f, uint32_t i);
/* The ask is answered, or nobody waits for the answer: take it out of all lists, and free it. */
void wb__flow_ask_free(struct wb_flow *f, uint32_t i);
/* Local worker @worker has chunk @id, or nobody should wait for it there: the next pumps look again
 * at all who waited for it. */
void wb__flow_wake(struct wb_flow *f, uint32_t worker, uint32_t id);
/* A source was opened, closed or lost: look again at all who wait, and refuse at once what is
 * refused now. */
void wb__flow_review(struct wb_flow *f);
/* serve.c.  Can a chunk be answered for?  1: yes; 0: not yet; < 0: never. */
int wb__flow_readiness(const struct wb_flow *f, uint32_t worker, uint32_t cls, uint32_t chunk);
/** wb__flow_ask_readiness - the same for an ask.  -EBUSY: not yet, and meanwhile the asker is to
 * hold nothing, but to ask again. */
int wb__flow_ask_readiness(const struct wb_flow *f, const struct ask *a);
/** wb__flow_serve_pump - answer what can be answered; agents take turns.  Called by wb__flow_pump()
 * only. */
void wb__flow_serve_pump(struct wb_flow *f);
/** wb__flow_serve_xport - a write has ended, and with it the flight, whether it went well or
 * not. */
void wb__flow_serve_xport(struct wb_flight *fl, const struct wb_xport_event *ev);
/** wb__flow_serve_lane - the chunk is packed or summed: write it, or refuse it when it is not what
 * was installed. */
void wb__flow_serve_lane(struct wb_flight *fl, const struct wb_lane_job *job);
/** wb__flow_snap_pump - submit more chunks of snapshots, and tell the environment which snapshots
 * are done. */
void wb__flow_snap_pump(struct wb_flow *f);
/** wb__flow_snap_lane - a chunk of a snapshot is in its image, with its sum; or the snapshot has
 *  failed. */
void wb__flow_snap_lane(struct wb_flight *fl, const struct wb_lane_job *job);
/** wb__flow_snaps_init - make room for snapshots; does nothing when it was called before.  0 or
 * -ENOMEM. */
int wb__flow_snaps_init(struct wb_flow *f);
/* Where chunk @id lies in the image of @worker.  NULL: there is no image, or the chunk is not in
 * it, or (a stock) not yet. */
void *wb__flow_image_at(const struct wb_flow *f, uint32_t worker, uint32_t id);

/** wb__flow_snap_of - the snapshot that trainer worker @worker is served from; NULL = none. */
static inline const struct snap *wb__flow_snap_of(const struct wb_flow *f, uint32_t worker)
{
	const struct snap *s = f->snap ? &f->snap[worker] : NULL;

	return s && s->image && !s->is_over ? s : NULL;
}

/** wb__flow_reads_on - may chunks that are not in the snapshot still be read from the
 * parameters? */
static inline bool wb__flow_reads_on(const struct snap *s)
{
	return s->stock && !s->is_told;
}

/* stock.c */
/** wb__flow_few_opened - trainer worker @worker is open: all that it is to send is left to send. */
void wb__flow_few_opened(struct wb_flow *f, uint32_t worker);
/** wb__flow_few_sent - one chunk less is left to send of local worker @worker; @is_far: it went
 * by a transport that leaves the host. */
void wb__flow_few_sent(struct wb_flow *f, uint32_t worker, bool is_far);
/** wb__flow_few_pump - call on_few when little is left.  Called by wb__flow_pump() only. */
void wb__flow_few_pump(struct wb_flow *f);
/** wb__flow_stock_slot - take a slot for the next chunk of a stock.  Returns its memory; NULL: none
 * is free. */
void *wb__flow_stock_slot(struct wb_flow *f, struct snap *s);
/** wb__flow_stock_packed - chunk @id is packed, and lies at @at. */
void wb__flow_stock_packed(struct wb_flow *f, struct snap *s, uint32_t id, const void *at);
/** wb__flow_stock_is_free - nothing reads the parameters of @worker any more. */
bool wb__flow_stock_is_free(const struct wb_flow *f, uint32_t worker);
/** wb__flow_stock_drop - nobody is served from the stock of @worker any more, if it has one. */
void wb__flow_stock_drop(struct wb_flow *f, uint32_t worker);
/** wb__flow_stock_reap - give back the slots of stocks that were dropped and are not read any
 * more. */
void wb__flow_stock_reap(struct wb_flow *f);
/** wb__flow_stock_finish - give back the slots of all stocks; nothing is read any more. */
void wb__flow_stock_finish(struct wb_flow *f);
/* How a chunk goes: through a slot, whatever carries it; directly from or into the parameters; or
 * through a slot only because this connection's transport wants longer ranges, which another may
 * not. */
enum { FLOW_BY_SLOT, FLOW_DIRECT, FLOW_TOO_SHORT };
/** wb__flow_flight_shape - find the boxes and, where possible, memory ranges of the flight's chunk;
 * its bytes and connection are set.  Returns one of the above, or -errno. */
int wb__flow_flight_shape(struct wb_flight *fl, bool all);
/* Find the boxes only: 0 or -errno. */
int wb__flow_flight_boxes(struct wb_flight *fl, bool all);
/** wb__flow_flight_lane - submit the flight's boxes to its worker's lane, to copy between the
 * parameters and the flight's slot or image (WB_LANE_SUM: only read the parameters).  @sums: also
 * sum, if the object has sums.  0, -EAGAIN (lane full) or negative. */
int wb__flow_flight_lane(struct wb_flight *fl, enum wb_lane_kind kind, bool sums);

#endif
