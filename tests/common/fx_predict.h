/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_PREDICT_H
#define WB_TESTS_FX_PREDICT_H
/*
 * A planned deployment of Qwen3-0.6B (1.19 GB with its tied embedding), to be predicted.
 */
#include "planner/deploy/deploy.h"
#include "predict/predict.h"

struct fx_planned {
	struct wb_deploy *d;
	struct wb_plan *plan;
	struct wb_predict_input in; /* with the defaults of all parameters */
};

/** fx_planned_make - @trainer to @engines of @rollout, spelled as `wbctl simulate` takes them, on
 *  nodes of eight GPUs with @rail bytes a second each.  The caller forgets it. */
struct fx_planned fx_planned_make(
	const char *trainer, const char *rollout, uint32_t engines, uint64_t rail);
/** fx_planned_forget - free what fx_planned_make made. */
void fx_planned_forget(struct fx_planned *p);

#endif
