/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PLANNER_PLAN_H
#define WB_PLANNER_PLAN_H
/*
 * Routing plans: which worker sends which part of the checkpoint to whom.
 *
 * Segments are lattice boxes of one tensor on which the set of holders (trainer workers that have
 * every element; if some have it exactly, only these) and the set of needers (rollout workers that
 * want it) do not change.  All segments with the same holders, needers and wire dtype form one
 * class: a virtual buffer, the segments' row-major wire images one after the other in (tensor, row,
 * col) order, cut into a grid of chunk_bytes (the last chunk is shorter).  Grid and chunk numbers
 * are the same in every stage.
 *
 * Routes cover a class's grid:
 *	RECEIVE   trainer worker -> rollout worker of the node that takes the chunk first
 *	EXTERNAL  rollout worker -> rollout worker of another node
 *	INTERNAL  rollout worker -> rollout worker of the same node, through memory
 * A domain is one agent's workers.  A node is one or more domains that reach each other's memory,
 * on one host; an agent whose memory others do not reach is a node of its own, wherever it runs.
 *
 * Every needer's node gets each chunk over the network exactly once (RECEIVE or EXTERNAL).  From
 * the worker that took it, every other domain of the node in which it is needed gets it once, by an
 * INTERNAL route between domains (wb_route_is_near()), and every other needer gets it by an
 * INTERNAL route inside its domain, from the worker that has it there.  RECEIVE routes of a class
 * partition its grid, so trainers together send each needed byte once.  An exception is a class
 * that more than WB_SPREAD_NODES nodes need: trainers send it once for every WB_SPREAD_NODES of
 * these nodes, if that does not make the transfer longer; else the worker that receives a chunk
 * would have to talk to all of them.  The source of an EXTERNAL route is the RECEIVE destination of
 * the same chunk, the source of a near route is the worker that took the chunk from the network,
 * and the source of a route inside a domain is the worker that took it from outside: each route
 * waits only for earlier ones, and no chunk waits in a circle.
 *
 * The bytes of a RECEIVE or EXTERNAL route go by two rails, which are named: src_rail and dst_rail,
 * rails of workers in the source's and the destination's domain.  They are the two workers' own,
 * except when a rollout worker's rail is too slow for what only that worker needs: then another
 * rollout worker of the domain lends its rail, to receive these bytes and to pass them on to other
 * nodes.  A RECEIVE inside a node goes through memory, and loads no rail.
 * Inside the domain nothing changes: the destination has the chunk, and INTERNAL brings it to
 * others.  Rails are lent only if the input says so and all rates are known, and only so much that
 * the busiest rail ends as early as if any of the node's domains could receive anything.
 *
 * A needer whose parameter cannot give back the wire value bit for bit (F32 checkpoint, BF16
 * parameter) is never a source.  Such needers are in a class of their own, a direct class: every
 * one of them receives the whole grid from the trainers.  When other workers need the same bytes
 * exactly, wb_class.primary of the direct class names their class, which has the same segments.
 *
 * Pure: no I/O, no clock, no threads; deterministic: equal input gives equal bytes and digest.
 * Format: planner/FORMAT.md.  Source: the WeightBridge paper, section 3.2 ("Globally Optimized
 * Weight Transfer"), lower bound equation 1.  Layer: planner (L1).
 */
#include "planner/map.h"
#include "proto/words.h"

#include <stdbool.h>

#define WB_WORKERS_MAX 16384
#define WB_CHUNK_BYTES_MIN (256u << 10) /* least that the planner chooses */
/* Least that a caller may ask for: small models in simulations */
#define WB_CHUNK_BYTES_LEAST 1024u
#define WB_CHUNK_BYTES_MAX (16u << 20)
#define WB_SPREAD_NODES 32 /* most nodes that get a chunk which trainers send once */
#define WB_PEERS_GOAL 64 /* above it the planner tries to find a plan with fewer peers */
/* Slots of a pool that keep an edge busy: one filled, one on the wire, one drained. */
#define WB_POOL_DEPTH 3

/* What the planner is told of a worker. */
struct wb_plan_worker {
	enum wb_role role;
	uint32_t layout; /* index into the layouts */
	uint32_t engine; /* rollouts: engine number, dense from 0; trainers: 0 */
	uint32_t domain; /* exchange domain number, dense from 0: one for each agent */
	/* Node number, dense from 0: domains of one node exchange through memory.  All workers of a
	 * domain have the same. */
	uint32_t node;
	uint64_t rail_bytes_per_s; /* of this worker's rail, each direction; 0 = unknown: equal */
};

struct wb_plan_input {
	const struct wb_manifest *manifest;
	const struct wb_map *const *layout; /* distinct maps */
	uint32_t n_layout;
	const struct wb_plan_worker *worker; /* trainers first is not required */
	uint32_t n_worker;
	const char *const *worker_name; /* names for sentences; NULL, or NULL entries: "worker 3" */
	/* Slot budget of one worker, all pools together; 0 = no limit. */
	uint64_t trainer_buffer_bytes, rollout_buffer_bytes;
	/* 0 = the planner chooses: 4..16 MiB, the more the more bytes a worker has to send or take
	 * and the more slots it has; down to 256 KiB when the budget or the model is small.  Else a
	 * multiple of 64 within WB_CHUNK_BYTES_LEAST..MAX. */
	uint32_t chunk_bytes;
	/* Rails may be lent, since all members can read such a plan.  Needs all rates. */
	bool lends_rails;
};

struct wb_segment {
	uint32_t class_id, tensor;
	uint64_t row, col;
	uint32_t n_row, n_col, row_step, col_step;
	uint64_t wire_off; /* bytes from the start of the class's virtual buffer */
};

struct wb_class {
	uint32_t seg_begin, seg_end; /* into segment[] */
	uint32_t holder_begin, holder_end; /* into member[]: ascending worker numbers */
	uint32_t needer_begin, needer_end;
	uint32_t dtype; /* wire dtype */
	uint32_t n_chunk;
	uint64_t bytes;
	/* Number of chunks of all classes before this one: global number of its first chunk */
	uint32_t chunk_base;
	/* Number of this class; for a direct class, of the class with the same bytes */
	uint32_t primary;
	uint32_t is_direct; /* 1: every needer receives everything from holders, none is a source */
	uint32_t pad;
};

enum wb_stage { WB_STAGE_RECEIVE = 0, WB_STAGE_EXTERNAL = 1, WB_STAGE_INTERNAL = 2, WB_STAGES };

struct wb_route {
	uint32_t class_id;
	uint32_t chunk_begin, chunk_end; /* chunk numbers inside the class */
	uint32_t stage; /* enum wb_stage */
	uint16_t src, dst; /* worker numbers */
	/* Workers whose rails carry it; for INTERNAL equal to src and dst */
	uint16_t src_rail, dst_rail;
};

_Static_assert(WB_WORKERS_MAX <= UINT16_MAX, "a route has worker numbers of 16 bits");

struct wb_plan {
	struct wb_digest digest, manifest;
	/* True: only what one agent has (parts.h): segments only of the classes of its workers, and
	 * routes from and to these workers.  False: the whole plan. */
	bool is_part;
	uint32_t domain; /* the agent's domain, if is_part */
	uint32_t chunk_bytes;
	uint32_t n_worker, n_layout, n_class, n_segment, n_member, n_route, n_chunk;
	struct wb_plan_worker *worker; /* owned */
	struct wb_digest *layout; /* owned: digests of the layouts, in input order */
	struct wb_class *cls; /* owned */
	struct wb_segment *segment; /* owned */
	uint32_t *member; /* owned */
	struct wb_route *route; /* owned; sorted by (stage, dst, class, chunk_begin) */
	/* Minimum slot bytes of one worker of each role that this plan can run with: WB_POOL_DEPTH
	 * chunks for each pool.  Trainers have one pool (send); rollouts have receive and, if the
	 * plan has exchange routes, exchange in and exchange out. */
	uint64_t trainer_slot_min_bytes, rollout_slot_min_bytes;
	/* Lower bounds in ns when every rail rate is known, else 0.  worker_bound_ns considers that
	 * only holders send, and that any rail of a node may receive what the node needs, once.  If
	 * a node has trainers and rollouts, what it both holds and needs goes through memory and
	 * counts for no rail. */
	uint64_t node_bound_ns, worker_bound_ns;
	uint64_t model_bytes; /* bytes that at least one rollout needs, each counted once */
	uint64_t delivered_bytes; /* bytes that all rollout workers need together */
};

/**
 * wb_plan_create - prove coverage, and make a plan
 * Returns 0; WB_EPLAN when the input cannot be served (the sentence lists all violations: a needed
 * tensor range without holder, a parameter written twice, an unknown cast, a buffer below the
 * minimum, with worker, parameter and range; cut at the sentence's length with "and N more");
 * -EINVAL for bad numbers; -ENOMEM; -E2BIG (more pieces than a plan may have, or maps whose ops lie
 * across each other so that planning would take minutes: the sentence says where).  Release with
 * wb_plan_destroy().
 */
int wb_plan_create(const struct wb_plan_input *in, struct wb_plan **out, struct wb_err *err);
void wb_plan_destroy(struct wb_plan *p);
/** wb_plan_encode - append a whole plan in version 1, which is what its digest is made from; the
 * same plan gives the same bytes on every machine.  0, -ENOMEM or -E2BIG, as @out's error. */
int wb_plan_encode(const struct wb_plan *p, struct wb_buf *out);
/** wb_plan_decode - read a whole plan, by wb_plan_encode() or packed (parts.h).  0, -EBADMSG,
 *  -ENOMEM; untrusted input; every index is checked. */
int wb_plan_decode(const void *p, size_t bytes, struct wb_plan **out, struct wb_err *err);
/** wb_plan_check - prove again, from a whole plan and the layouts, what wb_plan_create() promises
 * (volumes, coverage, acyclic stages).  0, or WB_EPLAN with the first fault. */
int wb_plan_check(const struct wb_plan *p, const struct wb_manifest *m,
	const struct wb_map *const *layout, struct wb_err *err);

/** wb_plan_bound_by - what sets the greater of a plan's two bounds, in words; NULL = unknown. */
const char *wb_plan_bound_by(const struct wb_plan *p);

/** wb_route_is_near - does the route go from one domain to another of the same node?  Then its
 * bytes go through memory, whatever its stage is. */
static inline bool wb_route_is_near(const struct wb_plan *p, const struct wb_route *r)
{
	const struct wb_plan_worker *a = &p->worker[r->src], *b = &p->worker[r->dst];

	return a->node == b->node && a->domain != b->domain;
}

/** wb_route_is_inside - does the route stay inside a node, and load no rail? */
static inline bool wb_route_is_inside(const struct wb_plan *p, const struct wb_route *r)
{
	return p->worker[r->src].node == p->worker[r->dst].node;
}

/** wb_class_has_member - is @worker a holder or a needer of class @k of @p? */
bool wb_class_has_member(const struct wb_plan *p, const struct wb_class *k, uint32_t worker);

/* Chunk c of a class covers wire bytes [c * chunk_bytes, +wb_chunk_bytes()). */
static inline uint64_t wb_chunk_len(const struct wb_plan *p, const struct wb_class *k, uint32_t c)
{
	uint64_t at = (uint64_t)c * p->chunk_bytes;

	return k->bytes - at < p->chunk_bytes ? k->bytes - at : p->chunk_bytes;
}

/**
 * wb_plan_explain - append a whole plan as text or JSON: bytes by rail, domain and stage, bounds
 * and what sets them, rounds, memory, expected time, classes
 * @m:		names of tensors, or NULL
 * @worker_name: name of each worker; NULL, or NULL entries: "worker 3"
 * Returns 0, -ENOMEM or -E2BIG (the buffer's cap).
 */
int wb_plan_explain(const struct wb_plan *p, const struct wb_manifest *m,
	const char *const *worker_name, bool as_json, struct wb_buf *out);

struct wb_plan_summary {
	uint64_t messages; /* chunks that go from one worker to another, in all stages */
	uint64_t near_bytes; /* bytes to another agent of the same node, through memory */
	/* Most workers to which one worker sends, or from which it takes, over the network */
	uint32_t peers_max;
	/* Time that the rail which ends last needs for its bytes; 0 = a rate is unknown */
	uint64_t busiest_ns;
};

/** wb_plan_summarize - what a whole plan costs, in a few numbers.  0 or -ENOMEM. */
int wb_plan_summarize(const struct wb_plan *p, struct wb_plan_summary *out);

#endif
