/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FLOW_FLOW_H
#define WB_FLOW_FLOW_H
/*
 * The bytes of one transfer on their way through one agent.
 *
 * A flow fetches the chunks that its open sinks (local rollout workers) want, and answers the
 * grants of other agents from its open sources (local trainer workers; rollout workers once a chunk
 * is installed and verified).  It is a state machine: the owner hands it transport and lane events
 * and is told when a sink has its receive stage, has everything, or cannot go on.
 *
 * A chunk lands in a slot and is assembled by a lane, or, where memory is mapped here and the
 * ranges are long, lands in the parameters themselves.  Either way its sum is compared with the
 * trainer's, which travels in the trailer.
 *
 * Threads: loop thread; observers run on rail threads and touch only their flight.  Layer: L3.
 */
#include "flow/image.h"
#include "flow/local.h"
#include "flow/slots.h"
#include "kernels/kernels.h"
#include "xport/xport.h"

struct wb_flow;
struct wb_lane_job;

/* In which place bytes were found that differ from the trainer's. */
enum wb_flow_place {
	WB_FLOW_WIRE, /* on arrival, in the parameters, where they went directly */
	WB_FLOW_SLOT, /* on arrival, or in the slot they landed in */
	WB_FLOW_RELAY, /* when they were packed again, to be passed on */
	WB_FLOW_INSTALL, /* read back from parameters or a staging area */
	WB_FLOW_PLACES,
};
#define WB_FLOW_NO_RAIL UINT32_MAX
/* Grants that a worker may have out, at one other agent or at all together, half of them for each
 * of the two kinds that other agents are asked for; more where wb_flow_opts.window asks for more.
 */
#define WB_FLOW_GRANTS_MAX 32

struct wb_flow_mismatch {
	enum wb_flow_place place;
	uint32_t src, dst; /* plan workers: who was asked; whose memory it is */
	uint32_t cls, chunk, rail; /* rail: WB_FLOW_NO_RAIL: none was involved */
	const char *param; /* first parameter of dst that the chunk has a part of; borrowed */
};

/** wb_flow_place_name - the place's word in logs and metrics; "?": there is no such place.
 * Static. */
const char *wb_flow_place_name(enum wb_flow_place p);

struct wb_flow_env {
	void *ctx;
	struct wb_xport *xport; /* borrowed */
	const struct wb_clock *clock;
	struct wb_fault *fault; /* borrowed; NULL = none */
	/* The connection from the rails of plan worker @src, of another agent, to those of plan
	 * worker @dst, of this one.  It may carry bytes of other workers, to which these rails are
	 * lent.  0 = not up: the owner dials, and reports wb_flow_conn_up().  @may_miss: meanwhile
	 * the chunk goes another way, so nobody is given up only because this connection cannot be
	 * had. */
	wb_conn_t (*conn)(void *ctx, uint32_t dst, uint32_t src, bool may_miss);
	/* Can agent @domain never be dialled from here?  Then its rollout workers are no sources,
	 * and their chunks come from trainers.  May be NULL: there is no such agent. */
	bool (*is_foreign)(void *ctx, uint32_t domain);
	/* All RECEIVE chunks of the sink are verified. */
	void (*on_received)(void *ctx, struct wb_flow *f, uint32_t worker);
	/* All chunks of the sink are installed and verified. */
	void (*on_complete)(void *ctx, struct wb_flow *f, uint32_t worker);
	/* The snapshot of a trainer worker is taken (@rc 0), or could not be (< 0); said once. */
	void (*on_snapped)(void *ctx, struct wb_flow *f, uint32_t worker, int rc);
	/* Little is left of what the plan has a trainer worker here send, and it would fit into the
	 * worker's share of the slots: ask others what they lack (wb_flow_stock()).  Only of
	 * workers that send far (wb_flow_sends_far()).  Said once for each worker and a few times
	 * more.  Must not call into the flow.  NULL is allowed: workers stay until their source is
	 * closed. */
	void (*on_few)(void *ctx, struct wb_flow *f);
	/* Bytes did not have the trainer's sum; they are asked for again.  May be NULL. */
	void (*on_mismatch)(void *ctx, struct wb_flow *f, const struct wb_flow_mismatch *m);
	/* The sink cannot be completed; said once. */
	void (*on_failed)(void *ctx, struct wb_flow *f, uint32_t worker, const struct wb_err *err);
};

struct wb_flow_opts {
	struct wb_local *local; /* borrowed, outlives the flow */
	struct wb_slots *slots; /* borrowed, shared by the flows of an agent */
	const struct wb_flow_env *env; /* borrowed */
	uint64_t transfer;
	uint64_t sum_seed; /* the same at every agent of the transfer */
	bool sums; /* false: no checksums (benchmarks) */
	/* With sums: each chunk is read back where it was installed, at once, and again when all
	 * chunks are installed. */
	bool read_back;
	/* Grants that one worker may have outstanding at one other; 0 = 3, or 8 if bytes stay on
	 * one host. */
	uint32_t window;
	/* A receive edge is given up after this long without progress; 0 = never. */
	uint64_t stall_ns;
};

struct wb_flow_stats {
	uint64_t bytes[WB_STAGES]; /* received and verified, by stage */
	uint64_t sent_bytes;
	/* Chunks: verified; asked for again; with a wrong sum; grants refused, by this agent or by
	 * others. */
	uint32_t chunks, resent, mismatched, refused;
	uint64_t first_write_ns; /* when the first parameter byte could change; 0 = never */
};

/** wb_flow_create - a flow of @o->transfer with no sink and no source open yet; what @o points to
 *  is borrowed until wb_flow_destroy().  0 or -ENOMEM. */
int wb_flow_create(const struct wb_flow_opts *o, struct wb_flow **out, struct wb_err *err);
/** wb_flow_destroy - only when wb_flow_is_idle(). */
void wb_flow_destroy(struct wb_flow *f);
/** wb_flow_stop - begin no new work; what is under way ends.  wb_flow_is_idle() becomes true
 * through events. */
void wb_flow_stop(struct wb_flow *f);
/** wb_flow_is_idle - no rail, no lane and no transport has anything of it: it may be destroyed. */
bool wb_flow_is_idle(const struct wb_flow *f);
/** wb_flow_transfer - number of its transfer. */
uint64_t wb_flow_transfer(const struct wb_flow *f);
/** wb_flow_set_version - the caller's version number, for faults that name one. */
void wb_flow_set_version(struct wb_flow *f, int64_t version);

/** wb_flow_open_source - a trainer worker's parameters may be read from now on. */
void wb_flow_open_source(struct wb_flow *f, uint32_t worker);
/**
 * wb_flow_open_image - take a snapshot of a trainer worker and serve from it
 * @image, @base: layout, and image->bytes of memory (both borrowed for the flow's life)
 * A chunk is served as soon as it is in the image; on_snapped says when the parameters may change.
 * Chunks that the plan has other sources send are refused.  0 or -ENOMEM.
 */
int wb_flow_open_image(
	struct wb_flow *f, uint32_t worker, const struct wb_image *image, void *base);
/** wb_flow_image_is_whole - the flow does not need the worker's parameters any more. */
bool wb_flow_image_is_whole(const struct wb_flow *f, uint32_t worker);
/**
 * wb_flow_stock - let a trainer worker go before all has been sent: take a late snapshot of what
 *	others lack of it, in slots
 * @worker: an open source without image
 * @id, @n: global chunk numbers, ascending, each once; may be none
 * A chunk that is in a slot is served from there, the others from the parameters until these may
 * change: on_snapped says when, once, with 0.  From then on a chunk that is in no slot is refused.
 * The slots come back when the source is closed or the flow stops.  When a chunk cannot be packed
 * the stock ends silently, and all is served from the parameters as before.
 * 0; -ENOSPC: more than the worker's share of the slots, see on_few; -EBUSY: the source is closed,
 * has an image already, or another worker's stock is being packed (one after the other, since
 * answers go on beside it); -EINVAL: a chunk that the worker does not have; -ENOMEM.
 */
int wb_flow_stock(struct wb_flow *f, uint32_t worker, const uint32_t *id, uint32_t n);
/** wb_flow_sends_far - has anything that trainer worker @worker sent gone by a transport that
 * leaves the host?  Else a stock would help nobody (stock.c). */
bool wb_flow_sends_far(const struct wb_flow *f, uint32_t worker);
/* A chunk that is lacked: the plan worker that it is to come from, and its global number. */
#define WB_FLOW_LACK(worker, id) ((uint64_t)(worker) << 32 | (id))
/**
 * wb_flow_lacking - what local rollout worker @worker lacks and waits for from trainer workers of
 *	agent @domain
 * @out: WB_FLOW_LACK of each, in no order; room for @cap
 * Returns how many there are, which may be more than @cap.  A sink that has failed lacks nothing.
 */
uint32_t wb_flow_lacking(
	const struct wb_flow *f, uint32_t worker, uint32_t domain, uint64_t *out, uint32_t cap);
/** wb_flow_was_opened - the sink of local worker @worker has been opened. */
bool wb_flow_was_opened(const struct wb_flow *f, uint32_t worker);
/** wb_flow_has_lost - plan worker @w was lost (wb_flow_lose_worker()). */
bool wb_flow_has_lost(const struct wb_flow *f, uint32_t w);
/** wb_flow_close_source - refuse further grants to the worker, and ask for nothing more that would
 * land in its memory, not even to repair what is found damaged.  What is under way may still read:
 * wb_flow_source_busy(). */
void wb_flow_close_source(struct wb_flow *f, uint32_t worker);
/** wb_flow_source_busy - something under way still reads the memory of local worker @worker. */
bool wb_flow_source_busy(const struct wb_flow *f, uint32_t worker);
/** wb_flow_cut_source - drop the connections of those who still read from the worker. */
void wb_flow_cut_source(struct wb_flow *f, uint32_t worker);
/** wb_flow_cut_worker - the same, and drop also the connections from which something may still land
 * in the worker's memory: after CONN_DOWN nothing does. */
void wb_flow_cut_worker(struct wb_flow *f, uint32_t worker);
/** wb_flow_mark_installed - a rollout worker already holds the version (feeds).  @sums: an earlier
 * flow whose sums are taken over if it has the same plan and seed, or NULL. */
void wb_flow_mark_installed(struct wb_flow *f, uint32_t worker, const struct wb_flow *sums);

/**
 * wb_flow_open_sink - fetch everything a rollout worker wants
 * @feed: NULL, or by plan worker: not 0 = fetch from this one, whatever the plan's routes say.
 *	Others are asked only for what none of these gives.  Borrowed for the flow's life.
 */
void wb_flow_open_sink(struct wb_flow *f, uint32_t worker, const uint8_t *feed);
/** wb_flow_uses - does anything under way touch the memory of local worker @worker? */
bool wb_flow_uses(const struct wb_flow *f, uint32_t worker);
/** wb_flow_drop_sink - stop fetching for a worker; grants that are out are taken back. */
void wb_flow_drop_sink(struct wb_flow *f, uint32_t worker);
/** wb_flow_sink_received - local worker @worker needs nothing of trainers any more. */
bool wb_flow_sink_received(const struct wb_flow *f, uint32_t worker);
/** wb_flow_sink_complete - all that local worker @worker wants is installed and verified. */
bool wb_flow_sink_complete(const struct wb_flow *f, uint32_t worker);
/** wb_flow_lose_worker - plan worker @w is no source any more, and its share goes to others.  It is
 * no reader either: when all workers of an agent are lost, its connections are dropped. */
void wb_flow_lose_worker(struct wb_flow *f, uint32_t w);

/* Events.  The owner finds the flow by the event's cookie (a flight of the flow) or, for grants, by
 * the transfer. */
void wb_flow_on_grant(struct wb_flow *f, const struct wb_xport_event *ev);
/** wb_flow_on_xport - an event with a cookie, which tells the flow that it is for. */
void wb_flow_on_xport(const struct wb_xport_event *ev);
/** wb_flow_on_lane - a lane job of a flow has ended; its cookie tells which flow. */
void wb_flow_on_lane(const struct wb_lane_job *job);
/** wb_flow_conn_up - one more connection to the agent of @domain is up. */
void wb_flow_conn_up(struct wb_flow *f, uint32_t domain);
/** wb_flow_grant_gone - the asker took the grant back.  Grant numbers count for each connection. */
void wb_flow_grant_gone(struct wb_flow *f, wb_conn_t conn, uint64_t grant);
/** wb_flow_conn_down - the connection is gone, so nobody waits for answers to its grants any
 * more. */
void wb_flow_conn_down(struct wb_flow *f, wb_conn_t conn);
/** wb_flow_tick - look at deadlines; returns when to call again (ns, the env's clock), 0 =
 * never. */
uint64_t wb_flow_tick(struct wb_flow *f, uint64_t now_ns);

/** wb_flow_get_stats - a copy of what has been counted so far. */
void wb_flow_get_stats(const struct wb_flow *f, struct wb_flow_stats *out);
/* How much of what the plan gives it one local worker has done. */
struct wb_flow_progress {
	/* in_bytes: installed and verified; in_planned: all that its sink wants, 0 = it was not
	 * opened */
	uint64_t in_bytes, in_planned;
	/* Read from it, also by workers of this agent; bytes that are sent again count again. */
	uint64_t out_bytes;
	/* By the plan's routes; after losses, and in feeds, it may send other bytes. */
	uint64_t out_planned;
	uint64_t age_ns; /* since wb_flow_create() */
};

/* The source that a sink waits for the most. */
struct wb_flow_lack {
	/* Plan worker; the worker's own number: all chunks are here, and its lane has them. */
	uint32_t src;
	/* How many are still to come from it (from the own lane: to be installed). */
	uint32_t chunks;
	bool is_held; /* it cannot be asked: not connected, or it has no room for more */
};

/** wb_flow_get_progress - progress of local worker @worker.  Reads counters only, so it is
 * cheap. */
void wb_flow_get_progress(const struct wb_flow *f, uint32_t worker, struct wb_flow_progress *out);
/** wb_flow_lacks - the source of which an open sink lacks most.  False: it lacks nothing, or is not
 * open.  Walks over the worker's sources, and perhaps its wants: for pages that people look at. */
bool wb_flow_lacks(const struct wb_flow *f, uint32_t worker, struct wb_flow_lack *out);
/** wb_flow_worker_sum - sum of the chunk sums of all classes that @worker is a member of (its
 * content digest). */
struct wbk_sum wb_flow_worker_sum(const struct wb_flow *f, uint32_t worker);
/** wb_flow_waiting_for - what the sink waits for, for a sentence ("chunk 3 of class 1 from worker
 * 2, receive stage"), into @out, which it returns; "" = nothing. */
const char *wb_flow_waiting_for(struct wb_flow *f, uint32_t worker, char *out, size_t cap);

#endif
