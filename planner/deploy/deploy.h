/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PLANNER_DEPLOY_DEPLOY_H
#define WB_PLANNER_DEPLOY_DEPLOY_H
/*
 * A whole deployment as input for the planner: a model, the workers that train it and the engines
 * that serve it, placed on nodes.
 *
 * The trainer's workers fill nodes of gpus_per_node GPUs in the order of their ranks; engines begin
 * on the following node.  An engine that fits on one node is never on two: if the rest of a node is
 * too small for it, it begins on the next node.  The workers of an engine, or of the trainer, on
 * one node are a pod, or several pods of equal size: a pod is one agent, one exchange domain.  Each
 * worker has a NIC of its own.
 *
 * Workers that hold the same share one map.  Threads: any; a deployment does not change once it is
 * made.  Layer: planner/deploy (over planner).
 */
#include "planner/deploy/model.h"
#include "planner/deploy/parallel.h"
#include "planner/plan.h"

struct wb_deploy_spec {
	struct wb_model model;
	struct wb_parallel trainer, rollout; /* as parsed; rollout: of one engine */
	uint32_t engines;
	uint32_t gpus_per_node;
	uint64_t rail_bytes_per_s; /* of each NIC, each direction */
	/* Number of pods of an engine, or of the trainer, on a node; a side with fewer workers on
	 * the node has one pod for each worker.  It is at most the number of workers that the
	 * larger side has on a node, and must divide these into equal pods, of which only the last
	 * may be smaller.  0 = 1. */
	uint32_t pods;
	/* Pods of a node reach each other's memory; else the planner sees each pod as a node of its
	 * own. */
	bool shares_memory;
};

struct wb_deploy {
	struct wb_deploy_spec spec; /* its trainer and rollout as wb_parallel_fit() left them */
	struct wb_manifest *manifest; /* owned */
	struct wb_map **layout; /* owned: distinct maps, the trainer's first */
	uint32_t n_layout;
	struct wb_plan_worker *worker; /* owned: the trainer's by rank, then engine by engine */
	uint32_t n_trainer, n_worker;
	uint32_t n_node;
};

/**
 * wb_deploy_create - compute all workers of a deployment, and what each of them holds
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

/** wb_deploy_input - the input for the planner; points into @d. */
struct wb_plan_input wb_deploy_input(const struct wb_deploy *d);

#endif
