/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PREDICT_PAPER_H
#define WB_PREDICT_PAPER_H
/*
 * The flow of the paper "WeightBridge: An Efficient Weight Transfer Library for Reinforcement
 * Learning" (its section 3.2), over our plan: for comparing what we do with what the paper reports.
 *
 * A transfer is cut into equal rounds, each of which carries its part of every route.  A round goes
 * through three stages, RECEIVE, EXTERNAL and INTERNAL, which all workers begin together; there is
 * memory for two rounds, so two are under way at a time.  A trainer continues when it has packed
 * its last round; an engine stops when its first round has arrived.  README.md says which of the
 * paper's figures this explains, and which it does not.
 *
 * Rails are fluid: everything under way on a rail shares its rate evenly.  A worker's two ends of a
 * message are not tied together, which matters only where a stage is far from balanced.
 *
 * Pure; threads: any.  Layer: predict (L4).
 */
#include "predict/predict.h"

struct wb_predict_paper {
	double bound_s; /* the plan's lower bound by a node's rails (T_min) */
	double ewtt_s, agst_s;
	double trainer_s; /* when trainers continue */
	double engine_s; /* when engines stop */
	uint32_t rounds;
	/* Most workers to which one sends, or from which it takes, in a round */
	uint32_t peers[WB_STAGES];
	/* Time before the stages, of all rounds together; partly concurrent with other stages */
	double control_s;
	struct wb_predict_busy busiest; /* a rail; of: its plan worker */
};

/** wb_predict_paper - simulate the plan in rounds.  Staging is ignored.  0; -EINVAL when a rail's
 * rate is unknown, or memory for two rounds makes too many of them; -ENOMEM. */
int wb_predict_paper(
	const struct wb_predict_input *in, struct wb_predict_paper *out, struct wb_err *err);

#endif
