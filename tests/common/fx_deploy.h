/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FX_DEPLOY_H
#define TESTS_FX_DEPLOY_H
/*
 * Random deployments: a manifest, trainer and rollout layouts that cut, stack, transpose, reverse,
 * stride, repeat, copy and cast its tensors, and workers in engines and domains.  Every tensor is
 * held by trainers; some are needed by nobody.
 */
#include "planner/plan.h"

struct fx_deploy {
	struct wb_manifest *m;
	struct wb_map **layout; /* trainers' first */
	struct wb_plan_worker *worker;
	struct wb_plan_input in;
};

struct fx_deploy_opts {
	uint64_t seed;
	uint32_t n_tensor, side_max; /* rows and columns are 1..side_max */
	uint32_t trainers_max, rollouts_max; /* layouts of each role */
	bool is_plain; /* no steps, casts or repeats */
	bool shares_memory; /* two domains of rollouts are a node */
};

void fx_deploy_random(struct fx_deploy *d, const struct fx_deploy_opts *o);
void fx_deploy_finish(struct fx_deploy *d);

#endif
