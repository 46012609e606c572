/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FLOW_INTERNAL_H
#define WB_FLOW_INTERNAL_H
/*
 * Shared by flow.c (life), wants.c (whom to ask for what), fetch.c (chunks on their way), serve.c
 * (sources).  Not for others.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "flow/flow.h"
#include "flow/walk.h"
#include "lane/lane.h"

#define FLOW_RUN_BYTES_MIN 2048 /* shorter ranges go through a slot */
#define FLOW_IOV_MAX 8192
#define FLOW_TRIES_MAX 4 /* wrong sums from one source before another is asked */
#define FLOW_WINDOW 3 /* chunks outstanding an edge */
#define FLOW_WINDOW_LOCAL 8 /* the same on one host */
#define FLOW_NONE UINT32_MAX

enum want_state { WANT_CLOSED, WANT_QUEUED, WANT_FLYING, WANT_DONE };

struct want_run {
	uint8_t state;
	uint8_t tries; /* at the present source */
	uint16_t sources_tried;
	bool is_last; /* it looks for anybody who has it: nobody can wait for it here */
	bool counted; /* in its sink's left_receive: a trainer has to stay for it */
	uint32_t gen;
	uint32_t src; /* plan worker asked now */
	uint32_t next; /* in an edge's queue */
};

struct want_list {
	uint32_t head, tail;
};

/* An edge: everything this agent asks of one other agent (or of itself: local). */
struct edge {
	struct want_list receive, exchange;
	uint32_t outstanding;
	bool is_full; /* was, and has not drained enough to be worth a wake-up of the source */
	uint32_t serving; /* send slots held for grants of that agent */
	uint64_t progress_ns;
};

enum flight_kind { FLIGHT_FETCH, FLIGHT_LOCAL, FLIGHT_SERVE, FLIGHT_SNAP, FLIGHT_CHECK };
enum flight_step { STEP_WAIT, STEP_WIRE, STEP_LANE, STEP_LANE_EXTRA, STEP_READ };

/* Why a worker is no source: it is lost, and all agents know and count alike; or only this agent
 * cannot dial its agent. */
#define FLOW_LOST 1u
#define FLOW_FOREIGN 2u

/* One chunk on its way: the only thing rail and lane threads see. */
struct wb_flight {
	struct wb_flow *flow;
	struct wb_flight *next; /* free list, or list of waiting grants */
	enum flight_kind kind;
	enum flight_step step;
	uint32_t want; /* fetch, local */
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

struct flight_pool {
	struct wb_flight *all, *free;
	uint32_t n, n_free;
	void *memory; /* boxes, iovs, scratch of all flights */
};

/* A trainer worker's snapshot on its way. */
struct snap {
	const struct wb_image *image; /* NULL = served from parameters */
	uint8_t *base;
	uint32_t next, n_out; /* of image->chunk */
	int rc;
	bool is_told;
};

struct wb_flow {
	struct wb_flow_opts o;
	struct wb_local *local;
	const struct wb_plan *plan;
	struct wbk_sum_keys keys;
	struct want_run *want; /* one a local->want */
	struct edge *edge; /* one a domain */
	uint32_t n_domain, next_edge;
	struct flight_pool fetch, serve, snaps, checks;
	struct snap *snap; /* by local worker; NULL = no snapshots */
	struct wb_flight *waiting; /* grants not yet answerable, oldest first */
	struct wbk_sum *sum; /* the trainer's sum of each chunk, by global chunk number */
	uint8_t *sum_known;
	uint8_t **have; /* by local worker: chunk installed and verified, or in its image */
	uint8_t *lost; /* by plan worker: FLOW_LOST, FLOW_FOREIGN */
	bool has_lost, has_last; /* any of them; a want that is_last, perhaps over */
	struct wbk_sum **copies; /* by local worker, to read back: sum over all copies of a chunk */
	uint8_t *source_open; /* by local worker */
	struct sink {
		bool open, received, failed;
		const uint8_t *feed;
		uint32_t left_receive, left;
		/* Reading back: all that is installed was read and is right; the pass under way. */
		bool clean;
		uint32_t pass, check_next; /* 0 = none; of local->want */
	} * sink; /* by local worker */
	uint32_t receive_pending; /* RECEIVE chunks of open sinks not yet asked for */
	bool exchange_early; /* trainers' egress is the narrow place: let exchange fill the rest */
	bool stopping;
	uint32_t n_pass;
	uint64_t version; /* WB_FAULT_ANY = not known */
	struct wb_flow_stats stats;
};

static inline uint32_t chunk_id(const struct wb_flow *f, uint32_t cls, uint32_t chunk)
{
	return f->plan->cls[cls].chunk_base + chunk;
}

int wb__flow_pool_init(struct wb_flow *f, struct flight_pool *p, uint32_t n, enum flight_kind kind);
struct wb_flight *wb__flow_flight_get(struct flight_pool *p);
void wb__flow_flight_put(struct wb_flight *fl);
void wb__flow_slot_put(struct wb_flight *fl);
/* Trailer: lane sums, flags, generation, transfer. */
void wb__flow_trailer_write(
	const struct wb_flow *f, struct wbk_sum sum, uint32_t gen, uint8_t *out);
/* 0; WB_ESTALE for another transfer; *has_sum tells whether the source summed. */
int wb__flow_trailer_read(
	const struct wb_flow *f, const uint8_t *in, struct wbk_sum *sum, bool *has_sum);

/* Faults on demand at @place; a flip changes one bit of the @bytes at @p. */
unsigned wb__flow_fault(struct wb_flow *f, enum wb_fault_place place, void *p, uint64_t bytes);
void wb__flow_fetch_pump(struct wb_flow *f);
void wb__flow_fetch_xport(struct wb_flight *fl, const struct wb_xport_event *ev);
void wb__flow_fetch_lane(struct wb_flight *fl, const struct wb_lane_job *job);
/* A lane did not take the flight's job: full, so that it is given again, or the try has failed. */
void wb__flow_fetch_park(struct wb_flight *fl, int code);
/* Submit what was parked, or let it go with its sink. */
void wb__flow_fetch_unpark(struct wb_flow *f);
/* The chunk counts as installed. */
void wb__flow_fetch_ok(struct wb_flight *fl, bool has_sum);
/* It does not: the same source a few times, then another. */
void wb__flow_fetch_retry(struct wb_flight *fl, int code, bool next_source);
void wb__flow_announce(struct wb_flow *f, uint32_t worker);
/* check.c: what was installed is read back, where that is wanted. */
void wb__flow_mismatch(struct wb_flow *f, enum wb_flow_place place, uint32_t src, uint32_t worker,
	const struct wb_flight *fl);
void wb__flow_misplace(struct wb_flight *fl);
void wb__flow_installed(struct wb_flight *fl, bool has_sum);
int wb__flow_read(struct wb_flight *fl);
void wb__flow_read_done(struct wb_flight *fl, const struct wb_lane_job *job);
/* All of the sink has been read and is right; else a pass over it begins. */
bool wb__flow_check_is_clean(struct wb_flow *f, uint32_t worker);
void wb__flow_check_pump(struct wb_flow *f);
void wb__flow_check_lane(struct wb_flight *fl, const struct wb_lane_job *job);
void wb__flow_serve_pump(struct wb_flow *f);
void wb__flow_serve_xport(struct wb_flight *fl, const struct wb_xport_event *ev);
void wb__flow_serve_lane(struct wb_flight *fl, const struct wb_lane_job *job);
void wb__flow_snap_pump(struct wb_flow *f);
void wb__flow_snap_lane(struct wb_flight *fl, const struct wb_lane_job *job);
/* Where a chunk lies in the image of @worker; NULL = it has none or not this chunk. */
void *wb__flow_image_at(const struct wb_flow *f, uint32_t worker, uint32_t id);
/* Boxes and, where possible, memory ranges of the flight's chunk.  1 direct, 0 slot, -errno. */
int wb__flow_flight_shape(struct wb_flight *fl, bool all);
int wb__flow_flight_lane(struct wb_flight *fl, bool pack, bool sums);

#endif
