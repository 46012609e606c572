/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PREDICT_INTERNAL_H
#define WB_PREDICT_INTERNAL_H
/*
 * Shared by events.c (what happens when), rails.c (bytes between agents), lanes.c (bytes inside of
 * one), agents.c (flows and their loops) and predict.c (begin, end, figures).  One thread.
 *
 * What a callback cannot return is noted in model.rc, and ends the prediction: flows are stopped,
 * and what is under way comes to its end, as in an agent.  So no event may be lost for lack of
 * memory: whoever makes an object that has events reserves room for them.
 */
#include "base/clock.h"
#include "flow/flow.h"
#include "lane/kind.h"
#include "predict/predict.h"

/* First the events of an agent's loop, then those of the models. */
enum event_kind {
	EV_OPEN, /* the step is reached: sinks and sources open */
	EV_GRANT, /* .p: struct op */
	EV_ARRIVED, /* .p: struct op */
	EV_WRITTEN, /* .p: struct op */
	EV_REFUSED, /* .p: struct op */
	EV_LANE, /* .p: struct model_lane */
	EV_TICK, /* the flow asked to be called */
	EV_LACK, /* a question has reached the receivers */
	EV_LACKED, /* their answers are here */
	EV_LOOP, /* a loop is free for the next of its events */
	EV_RAIL, /* a rail is free for the next piece; .at: which */
	EV_PIECE, /* .p: struct op; a piece of it is there */
};

struct event {
	double s; /* when */
	uint64_t order; /* order of events at the same time */
	enum event_kind kind;
	uint32_t at; /* agent, or rail */
	void *p;
};

/* A chunk that one agent asks another for, until both have seen its end, and its bytes on a rail.
 */
struct op {
	struct op *prev, *next; /* list of all ops */
	uint64_t cookie, serve_cookie;
	struct wb_xport_chunk chunk;
	uint32_t reader, source; /* agents */
	wb_conn_t conn; /* number of the way, at both ends */
	uint32_t out, into; /* numbers of the model's paths that carry it */
	int code;
	uint8_t trailer[WB_XPORT_TRAILER_BYTES];
	uint8_t refs; /* ends that are still to be told */
	bool is_queued; /* for its next piece */
	struct op *behind; /* the next op in the rail's queue */
	uint64_t left, coming; /* bytes to leave, to arrive */
	uint32_t flying; /* pieces */
};

struct rail { /* one direction of a worker's rail, or of its path through memory */
	double bytes_per_s; /* of payload */
	double free_s, busy_s;
	struct op *head, *tail; /* for the sending direction: ops with a piece to send */
	bool is_due;
};

struct model_lane {
	struct wb_lane lane;
	struct model *m;
	uint32_t agent, worker; /* of the plan */
	double free_s, busy_s;
	uint32_t head, n_done; /* of job[], a ring of depth: oldest, and how many may be reaped */
	struct wb_lane_job *job; /* owned */
};

struct model_agent {
	struct wb_xport x; /* its calls come to rails.c */
	struct model *m;
	uint32_t domain;
	struct wb_member *member; /* owned, n */
	uint32_t n;
	struct wb_local *local; /* owned */
	struct wb_slots slots;
	struct wb_flow_env env;
	struct wb_flow *flow; /* owned */
	struct wb_image **image; /* owned, n; NULL entries, or NULL = no worker is staged */
	struct wb_place *place; /* owned: zeros, as no byte moves */
	struct model_lane *lane; /* owned, n */
	/* owned: what other agents still lack of its trainers' bytes; NULL = none is asked */
	uint64_t *lack;
	uint32_t n_lack;
	double loop_free_s, loop_busy_s, tick_s; /* tick_s: 0 = none is due */
	uint32_t n_tick; /* EV_TICK under way */
	struct event *queue; /* owned: events that wait for the loop, a ring */
	size_t q_head, q_n, q_cap;
	uint64_t n_event;
};

struct model_clock {
	struct wb_clock clock; /* first */
	const struct model *m;
};

struct model {
	struct model_clock clock;
	struct wb_predict_input in;
	double now;
	struct event *heap; /* owned: room for all that is reserved */
	size_t n_heap, cap_heap, n_reserved;
	bool is_stopping; /* flows begin nothing new; what is under way ends */
	uint64_t order;
	struct model_agent *agent; /* owned */
	uint32_t n_agent;
	struct rail *out, *into; /* owned: by plan worker, rails, and then paths through memory */
	uint64_t *unsent; /* owned, by plan worker: bytes that a trainer has still to send */
	/* owned, by plan worker: when these first fitted into its slots; < 0: not yet */
	double *early_s;
	uint32_t *left_received, *left_complete, n_engine; /* owned, by engine: workers */
	struct op *ops; /* all there are */
	double *trainer_s; /* owned, by plan worker: all that trainers send is in their snapshots,
			    * or slots; 0 = not so */
	double moved_s;
	struct wb_predict_line line;
	struct wb_predict_tail tail;
	struct wb_predict_engine *engine; /* the result's */
	uint64_t n_event;
	int rc; /* first failure of a callback, which cannot return it */
};

/** wb__predict_reserve - reserve room for @n more events at a time; 0 or -ENOMEM.
 * wb__predict_unreserve - these events cannot come any more. */
int wb__predict_reserve(struct model *m, size_t n);
void wb__predict_unreserve(struct model *m, size_t n);
/** wb__predict_at - add an event at time @s; room must have been reserved. */
void wb__predict_at(struct model *m, double s, enum event_kind kind, uint32_t at, void *p);
/** wb__predict_next - move the first event to @out, and set the model's time to its time; false:
 * there is none. */
bool wb__predict_next(struct model *m, struct event *out);

/** wb__predict_conn - the number of the connection from the rail of plan worker @src to that of
 * @dst; all are up. */
wb_conn_t wb__predict_conn(const struct model *m, uint32_t dst, uint32_t src);
/** wb__predict_xport - the operations of an agent's rails. */
extern const struct wb_xport_ops wb__predict_xport;
/** wb__predict_rails - make the rails, and the counts about trainers.  0, -EINVAL or -ENOMEM. */
int wb__predict_rails(struct model *m, struct wb_err *err);
/** wb__predict_rail - rail @at is free: send its next piece. */
void wb__predict_rail(struct model *m, uint32_t at);
/** wb__predict_piece - a piece of @op has arrived. */
void wb__predict_piece(struct model *m, struct op *op);
/** wb__predict_op_put - one end of @op has been told; the last call frees it. */
void wb__predict_op_put(struct model *m, struct op *op);
/** wb__predict_arrived - @n bytes of a chunk of @stage from @src have reached @dst. */
void wb__predict_arrived(
	struct model *m, enum wb_stage stage, uint32_t src, uint32_t dst, uint64_t n);
/** wb__predict_rails_finish - free the rails, and what is on its way. */
void wb__predict_rails_finish(struct model *m);

/** wb__predict_lane_init - make a lane of plan worker @worker in agent @agent.  0 or -ENOMEM. */
int wb__predict_lane_init(struct model_lane *l, struct model *m, uint32_t agent, uint32_t worker);
/** wb__predict_lane_done - the lane's oldest job has ended. */
void wb__predict_lane_done(struct model_lane *l);

/** wb__predict_agents - make all agents of the plan, each with its flow.  0 or negative. */
int wb__predict_agents(struct model *m, struct wb_err *err);
/** wb__predict_event - give @e to its agent, as soon as the agent's loop is free. */
void wb__predict_event(struct model *m, struct event *e);
/** wb__predict_agents_stop - flows begin nothing new. */
void wb__predict_agents_stop(struct model *m);
/** wb__predict_agents_finish - free the agents; no event may come any more. */
void wb__predict_agents_finish(struct model *m);
/** wb__predict_is_host - is @wire in the host memory of a worker of @a? */
bool wb__predict_is_host(const struct model_agent *a, const void *wire);

/** wb__predict_fail - a callback failed with @rc; the first one counts, and 0 does not. */
static inline void wb__predict_fail(struct model *m, int rc)
{
	if (!m->rc)
		m->rc = rc;
}

/** wb__predict_us - convert microseconds to seconds. */
static inline double wb__predict_us(double us)
{
	return us * 1e-6;
}

#endif
