/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FX_RANDOM_H
#define TESTS_FX_RANDOM_H
/*
 * Random deployments for the planner: a checkpoint, layouts of trainers and rollouts (slices,
 * fused, turned, repeated, cast), and workers that have them.  Equal seeds give equal deployments.
 * Everything asserts instead of returning errors.
 */
#include "base/hash.h"
#include "planner/plan.h"

#define FX_RANDOM_LAYOUTS 4 /* of one role */
#define FX_RANDOM_WORKERS 16

struct fx_random {
	struct wb_rng rng;
	struct wb_manifest *m;
	struct wb_map *layout[2 * FX_RANDOM_LAYOUTS + 1];
	struct wb_plan_worker worker[FX_RANDOM_WORKERS];
	struct wb_plan_input in;
	uint32_t n_trainer_layout, n_trainer;
	uint64_t n_elem, base[16]; /* elements of the checkpoint; number of a tensor's first */
};

/** fx_random_init - make the deployment of @seed.  Release with fx_random_finish(). */
void fx_random_init(struct fx_random *d, uint64_t seed);
void fx_random_finish(struct fx_random *d);
/** fx_random_map - the map of a worker; belongs to @d. */
const struct wb_map *fx_random_map(const struct fx_random *d, uint32_t worker);

#endif
