/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PLANNER_DEPLOY_DEPLOY_H
#define WB_PLANNER_DEPLOY_DEPLOY_H
/*
 * A whole deployment, ready to be planned: a model, the workers that train it and the engines that
 * serve it, on nodes.
 *
 * The trainer's workers fill nodes of gpus_per_node GPUs in the order of their ranks; engines begin
 * on the node after.  An engine that fits on one node is never on two: it begins on the next node
 * where what is left is too little.  The workers of an engine, or of the trainer, on one node are a
 * pod, or several of as many workers: a pod is one agent, one exchange domain.  Each worker has a
 * NIC of its own.
 *
 * Workers that hold the same have one map.  Threads: any; a deployment does not change once it is
 * made.  Layer: planner/deploy (over planner).
 */
#include "planner/deploy/model.h"
#include "planner/deploy/parallel.h"
#include "planner/plan.h"

struct wb_deploy_spec {
	struct wb_model model;
	struct wb_parallel trainer, rollout; /* as parsed; of one engine */
	uint32_t engines;
	uint32_t gpus_per_node;
	uint64_t rail_bytes_per_s; /* of each NIC, each direction */
	/* Of an engine, or the trainer, on a node; of a side with fewer workers there one each.  No
	 * more than the larger side has workers there, and a number into which equal pods, but for
	 * a smaller last one, divide them.  0 = 1. */
	uint32_t pods;
	/* Pods of a node reach each other's memory; else each is a node of its own to the planner.
	 */
	bool shares_memory;
};

struct wb_deploy {
	struct wb_deploy_spec spec; /* its sides as wb_parallel_fit() left them */
	struct wb_manifest *manifest; /* owned */
	struct wb_map **layout; /* owned: distinct maps, the trainer's first */
	uint32_t n_layout;
	struct wb_plan_worker *worker; /* owned: the trainer's by rank, then engine by engine */
	uint32_t n_trainer, n_worker;
	uint32_t n_node;
};

/**
 * wb_deploy_create - all workers of a deployment and what each of them holds
 * @spec:	borrowed for the call
 * @out:	release with wb_deploy_destroy()
 * Returns 0; -EINVAL with a sentence that names what does not fit and what would; -E2BIG when the
 * maps would have more than WB_OPS_MAX ops in all, more workers than a plan may have, or the like;
 * -ENOMEM.
 */
int wb_deploy_create(const struct wb_deploy_spec *spec, struct wb_deploy **out, struct wb_err *err);
void wb_deploy_destroy(struct wb_deploy *d);

/** wb_deploy_map - the map of trainer rank @rank, or of rank @rank of an engine.  Borrowed. */
const struct wb_map *wb_deploy_map(const struct wb_deploy *d, enum wb_role role, uint32_t rank);

/** wb_deploy_input - what the planner is to be given; points into @d. */
struct wb_plan_input wb_deploy_input(const struct wb_deploy *d);

#endif
