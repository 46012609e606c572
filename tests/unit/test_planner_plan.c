/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of small deployments by hand: classes, routes, refusals, encoding. */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/binding.h"
#include "planner/plan.h"
#include "tests/common/fx_plan.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1024 * 1024u)

/* Two trainers hold rows, four rollouts (two domains of two) need columns; a norm everybody has;
 * an lm_head that nobody loads. */
struct small {
	struct wb_manifest *m;
	struct wb_map *layout[4]; /* two of trainers, two of rollouts */
	struct wb_plan_worker worker[6];
	struct wb_plan_input in;
};

static struct wb_map *half(struct small *s, bool is_rows, uint64_t i, enum wb_dtype norm)
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

static void small_init(struct small *s, enum wb_dtype rollout_norm)
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

static void small_finish(struct small *s)
{
	for (int i = 0; i < 4; i++)
		wb_map_destroy(s->layout[i]);
	wb_manifest_destroy(s->m);
}

START_TEST(row_shards_meet_column_shards)
{
	struct small s;
	struct wb_plan *p = NULL;
	struct wb_err err = {0};

	small_init(&s, WB_F32);
	ck_assert_msg(!wb_plan_create(&s.in, &p, &err), "%s", err.msg);
	ck_assert_uint_eq(p->n_class, 5); /* 2 x 2 quarters and the norm */
	ck_assert_uint_eq(p->n_segment, 5);
	ck_assert_uint_eq(p->model_bytes, 4096 * 4096 * 2 + 4096 * 4);
	ck_assert_uint_eq(p->delivered_bytes, 2 * 4096 * 4096 * 2 + 4 * 4096 * 4);
	/* A domain's two workers take half the model each, at 1 MB/s; as do the two trainers. */
	ck_assert_uint_eq(p->worker_bound_ns, (p->model_bytes / 2) * 1000);
	ck_assert_uint_eq(p->node_bound_ns, p->worker_bound_ns);
	wb_plan_destroy(p);
	small_finish(&s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("planner_plan");
	TCase *c = tcase_create("plan");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, c);
	tcase_add_test(c, row_shards_meet_column_shards);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
