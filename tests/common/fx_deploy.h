/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FX_DEPLOY_H
#define TESTS_FX_DEPLOY_H
/*
 * Random deployments for the planner: a manifest, trainer and rollout layouts that cut, stack,
 * fuse, transpose, reverse, stride, repeat, copy and cast its tensors, and workers in engines and
 * domains.  Every tensor is held by trainers; some are needed by nobody.  Equal seeds give equal
 * deployments.  Everything asserts instead of returning errors.
 */
#include "base/hash.h"
#include "planner/plan.h"

/* Of a mixed one: layouts of one role, and workers of both. */
#define FX_DEPLOY_LAYOUTS 4
#define FX_DEPLOY_WORKERS 16

struct fx_deploy {
	struct wb_manifest *m;
	struct wb_map **layout; /* trainers' first */
	struct wb_plan_worker *worker; /* trainers first */
	struct wb_plan_input in;
	uint32_t n_trainer_layout, n_trainer;
	uint64_t n_elem, *base; /* elements of the checkpoint; number of a tensor's first */
	struct wb_rng rng; /* what made it; tests go on with it */
};

struct fx_deploy_opts {
	uint64_t seed;
	uint32_t n_tensor, side_max; /* rows and columns are 1..side_max */
	uint32_t trainers_max, rollouts_max; /* layouts of each role */
	bool is_plain; /* no steps, casts or repeats */
	bool shares_memory; /* two domains of rollouts are a node */
	/* Parameters of two tensors, also interleaved, trainers that round, domains of both roles,
	 * rails of all rates, which are lent, and small chunks. */
	bool is_mixed;
};

/** fx_deploy_random - make one.  Release with fx_deploy_finish(). */
void fx_deploy_random(struct fx_deploy *d, const struct fx_deploy_opts *o);
/** fx_deploy_mixed - a small one that is mixed; how many tensors it has is the seed's, too. */
void fx_deploy_mixed(struct fx_deploy *d, uint64_t seed);
void fx_deploy_finish(struct fx_deploy *d);
/** fx_deploy_map - the map of a worker; belongs to @d. */
const struct wb_map *fx_deploy_map(const struct fx_deploy *d, uint32_t worker);

#endif
