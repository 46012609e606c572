/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_predict.h"
#include "base/err.h"
#include "tests/common/fx_check.h"

struct fx_planned fx_planned_make(
	const char *trainer, const char *rollout, uint32_t engines, uint64_t rail)
{
	struct fx_planned p = {.d = NULL};
	struct wb_deploy_spec s = {.model = *wb_model_find("Qwen3-0.6B"),
		.engines = engines,
		.gpus_per_node = 8,
		.rail_bytes_per_s = rail};
	struct wb_err err = {0};
	struct wb_plan_input in;

	ck_assert(!wb_parallel_parse(trainer, &s.trainer, &err));
	ck_assert(!wb_parallel_parse(rollout, &s.rollout, &err));
	ck_assert_msg(!wb_deploy_create(&s, &p.d, &err), "%s", err.msg);
	in = wb_deploy_input(p.d);
	ck_assert_msg(!wb_plan_create(&in, &p.plan, &err), "%s", err.msg);
	p.in = (struct wb_predict_input){.plan = p.plan,
		.manifest = in.manifest,
		.layout = in.layout,
		.params = wb_predict_defaults()};
	return p;
}

void fx_planned_forget(struct fx_planned *p)
{
	wb_plan_destroy(p->plan);
	wb_deploy_destroy(p->d);
}
