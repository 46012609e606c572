/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_small.h"
#include "tests/common/fx_check.h"

#include "tests/common/fx_plan.h"

#include <string.h>

static struct wb_map *half(struct fx_small *s, bool is_rows, uint64_t i, enum wb_dtype norm)
{
	struct fx_map f = {.m = s->m};
	uint32_t w, n;

	w = is_rows ? fx_param(&f, "w", WB_BF16, 2048, 4096)
		    : fx_param(&f, "w", WB_BF16, 4096, 2048);
	n = fx_param(&f, "norm", norm, 0, 4096);
	if (is_rows)
		fx_copy(&f, w, "w", (struct fx_box){2048 * i, 2048, 0, 4096, 0, 0});
	else
		fx_copy(&f, w, "w", (struct fx_box){0, 4096, 2048 * i, 2048, 0, 0});
	fx_copy(&f, n, "norm", (struct fx_box){0, 1, 0, 4096, 0, 0});
	return fx_map_done(&f);
}

void fx_small_init(struct fx_small *s, enum wb_dtype rollout_norm)
{
	struct wb_tensor t[] = {
		fx_tensor("w", WB_BF16, 4096, 4096),
		fx_tensor("norm", WB_F32, 0, 4096),
		fx_tensor("lm_head", WB_BF16, 4096, 4096),
	};

	memset(s, 0, sizeof(*s));
	ck_assert(!wb_manifest_create(t, 3, &s->m, NULL));
	for (uint32_t i = 0; i < 2; i++) {
		s->layout[i] = half(s, true, i, WB_F32);
		s->layout[2 + i] = half(s, false, i, rollout_norm);
		s->worker[i] = (struct wb_plan_worker){WB_ROLE_TRAINER, i, 0, 0, 0, 1000000};
	}
	for (uint32_t i = 0; i < 4; i++)
		s->worker[2 + i] = (struct wb_plan_worker){
			WB_ROLE_ROLLOUT, 2 + i % 2, i / 2, 1 + i / 2, 1 + i / 2, 1000000};
	s->in = (struct wb_plan_input){.manifest = s->m,
		.layout = (const struct wb_map *const *)s->layout,
		.n_layout = 4,
		.worker = s->worker,
		.n_worker = 6};
}

void fx_small_finish(struct fx_small *s)
{
	for (int i = 0; i < 4; i++)
		wb_map_destroy(s->layout[i]);
	wb_manifest_destroy(s->m);
}

struct wb_plan *fx_small_plan(struct fx_small *s)
{
	struct wb_plan *p = NULL;

	fx_small_init(s, WB_BF16);
	ck_assert(!wb_plan_create(&s->in, &p, NULL));
	return p;
}
