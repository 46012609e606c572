/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FX_SMALL_H
#define TESTS_FX_SMALL_H
/* One small deployment, whose plan is worked out by hand and kept as a golden file. */
#include "planner/plan.h"

/* Two trainers hold rows, four rollouts (two domains of two) need columns; a norm everybody has;
 * an lm_head that nobody loads. */
struct fx_small {
	struct wb_manifest *m;
	struct wb_map *layout[4]; /* two of trainers, two of rollouts */
	struct wb_plan_worker worker[6];
	struct wb_plan_input in;
};

/** fx_small_init - rollouts hold the norm as @rollout_norm; the trainers' is F32. */
void fx_small_init(struct fx_small *s, enum wb_dtype rollout_norm);
/** fx_small_finish - free maps and manifest. */
void fx_small_finish(struct fx_small *s);
/** fx_small_plan - the same, whose rollouts round the norm, and its plan: wb_plan_destroy(). */
struct wb_plan *fx_small_plan(struct fx_small *s);

#endif
