/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PREDICT_PREDICT_H
#define WB_PREDICT_PREDICT_H
/*
 * One transfer of a plan, carried out by the agents' own flow over modelled hardware.
 *
 * Times are seconds from the trainers' call.  EWTT: until the last engine continues.  AGST: how
 * long a worker is stopped, the mean of all workers (the names are from the paper's section 4.1).
 *
 * The same input gives the same times on every machine.  Blocks for as long as the agents' loops
 * would be busy together.  Threads: any; calls are independent.  Layer: predict (L4).
 */
#include "planner/plan.h"
#include "predict/params.h"

struct wb_predict_input {
	const struct wb_plan *plan; /* every worker's rail has a rate */
	const struct wb_manifest *manifest;
	const struct wb_map *const *layout; /* those from which the plan was made */
	struct wb_predict_params params;
	bool trainer_staged, rollout_staged; /* in host memory */
};

/* Kinds of resources of which the busiest is named, for the sentence that says what limits a
 * transfer. */
enum wb_predict_part {
	WB_PREDICT_OUT,
	WB_PREDICT_IN,
	WB_PREDICT_LANE,
	WB_PREDICT_LOOP,
	WB_PREDICT_PARTS
};

struct wb_predict_busy {
	double s; /* seconds of work */
	uint32_t of; /* plan worker; for the loop, domain */
};

struct wb_predict_engine {
	double received_s; /* when nothing more comes from trainers */
	double complete_s; /* when everything is verified */
};

/* What moved when: bytes that arrived in each of n spans of time. */
#define WB_PREDICT_SPANS 256
struct wb_predict_line {
	double span_s;
	uint32_t n;
	uint64_t bytes[WB_STAGES][WB_PREDICT_SPANS];
};

/* The chunk that came last over the network, or through memory: for which the end of the transfer
 * waited. */
struct wb_predict_tail {
	double s;
	uint32_t src, dst; /* plan workers */
	enum wb_stage stage;
};

struct wb_predict_result {
	double bound_s; /* the plan's lower bound by a node's rails (T_min), with their full rate */
	double ewtt_s, agst_s;
	double trainer_s; /* when the last trainer continues */
	/* AGST if no trainer continued before all engines have what trainers send */
	double agst_stay_s;
	/* When all that trainers have still to send fits into their slots, and AGST if they
	 * continued then. */
	double early_s, agst_early_s;
	double moved_s; /* when the last chunk came from a trainer */
	struct wb_predict_busy busiest[WB_PREDICT_PARTS];
	uint64_t events, loop_events_max; /* of all agents; of the agent with the most */
	uint64_t resent, refused;
	struct wb_predict_line line;
	struct wb_predict_tail tail;
	uint32_t n_engine;
	struct wb_predict_engine *engine; /* owned */
};

/** wb_predict - simulate the transfer.  @out: release with wb_predict_finish().  0; -EINVAL when a
 * rail's rate is unknown or slots do not fit; -EDEADLK when nothing moves any more, which would be
 * a bug of the flow, with what each worker waits for; -ENOMEM. */
int wb_predict(
	const struct wb_predict_input *in, struct wb_predict_result *out, struct wb_err *err);
/** wb_predict_finish - free what wb_predict() made; also allowed after a failure; a second call
 * does nothing. */
void wb_predict_finish(struct wb_predict_result *r);
/** wb_predict_part_name - "rail out", "rail in", "lane" or "loop".  Static. */
const char *wb_predict_part_name(enum wb_predict_part p);

#endif
