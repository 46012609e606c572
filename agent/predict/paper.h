/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PREDICT_PAPER_H
#define WB_PREDICT_PAPER_H
/*
 * The flow of the paper "WeightBridge: An Efficient Weight Transfer Library for Reinforcement
 * Learning" (its section 3.2), over our plan: to compare what we do with what it says it did.
 *
 * A transfer is cut into equal rounds, each of which carries its part of every route.  A round goes
 * through three stages, RECEIVE, EXTERNAL and INTERNAL, which all workers begin together; memory is
 * for two rounds, so that two are under way at a time.  A trainer goes on when it has packed its
 * last round; an engine stops when its first round has come.  README.md says what that explains of
 * the paper's figures, and what it does not.
 *
 * Rails are fluid: what is under way at one of them shares its rate evenly.  A worker's two ends of
 * a message are not tied together, which matters only where a stage is far from balanced.
 *
 * Pure; threads: any.  Layer: predict (L4).
 */
#include "predict/predict.h"

struct wb_predict_paper {
	double bound_s; /* the plan's bound of a node's rails (T_min) */
	double ewtt_s, agst_s;
	double trainer_s; /* trainers go on */
	double engine_s; /* engines stop */
	uint32_t rounds;
	uint32_t peers[WB_STAGES]; /* most workers that one sends to, or takes from, in a round */
	double control_s; /* of all rounds together, before their stages; in part beside others */
	struct wb_predict_busy busiest; /* rail; of: plan worker */
};

/** wb_predict_paper - carry the plan out in rounds.  Staging is not looked at.  0; -EINVAL when a
 *  rail's rate is unknown, or memory for two rounds makes too many of them; -ENOMEM. */
int wb_predict_paper(
	const struct wb_predict_input *in, struct wb_predict_paper *out, struct wb_err *err);

#endif
