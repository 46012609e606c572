/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random small models, shared at random: what is refused says why, and what is not can be planned,
 * which needs every rollout parameter to be whole and every needed element to be held.
 */
#include "base/base.h"
#include "base/err.h"
#include "base/hash.h"
#include "planner/deploy/deploy.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPLOYMENTS 3000
#define FITTING_MIN 300 /* of them have to be more than refusals */

static struct wb_rng rng;

static uint32_t one_of(const uint32_t *v, uint32_t n)
{
	return v[wb_rng_below(&rng, n)];
}
#define ONE_OF(...) one_of((uint32_t[]){__VA_ARGS__}, WB_ARRAY_SIZE(((uint32_t[]){__VA_ARGS__})))

static struct wb_model random_model(void)
{
	struct wb_model m = {.name = "random",
		.arch = ONE_OF(WB_ARCH_QWEN3, WB_ARCH_QWEN3_MOE, WB_ARCH_DEEPSEEK_V3),
		.dtype = ONE_OF(WB_BF16, WB_F16, WB_F32),
		.layers = ONE_OF(2, 3, 4, 6, 6),
		.hidden = ONE_OF(8, 24, 24),
		.vocab = ONE_OF(5, 64, 100, 129, 300),
		.heads = ONE_OF(4, 8, 12, 24, 24),
		.intermediate = ONE_OF(8, 24, 24, 48)};

	m.tie_word_embeddings = ONE_OF(0, 1);
	m.stores_tied_lm_head = m.tie_word_embeddings && ONE_OF(0, 1);
	if (m.arch != WB_ARCH_QWEN3) {
		m.experts = ONE_OF(4, 6, 8, 24, 24);
		m.moe_intermediate = ONE_OF(8, 12, 24);
	}
	if (m.arch != WB_ARCH_DEEPSEEK_V3) {
		m.kv_heads = ONE_OF(1, 2, 4, 4, 12);
		m.head_dim = ONE_OF(2, 4, 5);
		return m;
	}
	m.kv_heads = m.heads;
	m.shared_experts = ONE_OF(0, 1, 2);
	m.first_dense_layers = ONE_OF(0, 1, 2);
	m.q_lora_rank = ONE_OF(0, 6);
	m.kv_lora_rank = ONE_OF(4, 6);
	m.qk_nope_head_dim = ONE_OF(2, 4);
	m.qk_rope_head_dim = ONE_OF(2, 3);
	m.v_head_dim = ONE_OF(2, 4);
	m.mtp_layers = ONE_OF(0, 1);
	return m;
}

static void add(char *text, size_t bytes, const char *word, uint32_t n)
{
	size_t at = strlen(text);

	if (n)
		snprintf(text + at, bytes - at, "%s%s%" PRIu32, text[at - 1] == ':' ? "" : ",",
			word, n);
}

static void random_trainer(char *text, size_t bytes)
{
	if (ONE_OF(0, 1)) {
		snprintf(text, bytes, "megatron:");
		add(text, bytes, "tp", ONE_OF(0, 2, 2, 3, 4, 8));
		add(text, bytes, "pp", ONE_OF(0, 0, 2, 3));
		add(text, bytes, "cp", ONE_OF(0, 0, 0, 2));
		add(text, bytes, "ep", ONE_OF(0, 0, 2, 4, 6));
		add(text, bytes, "dp", ONE_OF(0, 0, 0, 2, 3));
		add(text, bytes, "last", ONE_OF(0, 0, 0, 0, 2));
		return;
	}
	snprintf(text, bytes, "%s:%" PRIu32 "%s%s", ONE_OF(0, 1) ? "fsdp2" : "transformers",
		ONE_OF(1, 2, 3, 5, 7, 16), ONE_OF(0, 0, 1) ? ",stacked" : "",
		ONE_OF(0, 0, 0, 1) ? ",masters" : "");
}

static void random_rollout(char *text, size_t bytes)
{
	bool is_vllm = ONE_OF(0, 1);

	snprintf(text, bytes, is_vllm ? "vllm:" : "sglang:");
	add(text, bytes, "tp", ONE_OF(0, 2, 2, 3, 4, 4, 8, 12));
	add(text, bytes, "pp", ONE_OF(0, 0, 0, 2, 3));
	add(text, bytes, "dp", ONE_OF(0, 0, 2));
	add(text, bytes, "ep", ONE_OF(0, 0, 2, 4, 8));
	add(text, bytes, "last", ONE_OF(0, 0, 0, 0, 2));
	add(text, bytes, "dense_tp", is_vllm ? 0 : ONE_OF(0, 0, 1));
}

static void plan_and_check(const struct wb_deploy *d, const char *trainer, const char *rollout)
{
	struct wb_plan_input in = wb_deploy_input(d);
	struct wb_err err = {0};
	struct wb_plan *p = NULL;

	for (uint32_t w = 0; w < d->n_worker; w++) {
		const struct wb_plan_worker *x = &d->worker[w];

		ck_assert(x->layout < d->n_layout);
		ck_assert(d->spec.shares_memory ? x->node < d->n_node : x->node == x->domain);
	}
	if (wb_plan_create(&in, &p, &err) < 0 || wb_plan_check(p, d->manifest, in.layout, &err) < 0)
		ck_abort_msg("%s to %s: %s", trainer, rollout, err.msg);
	wb_plan_destroy(p);
}

START_TEST(what_fits_can_be_planned)
{
	uint32_t fitting = 0;

	for (uint32_t i = 0; i < DEPLOYMENTS; i += (uint32_t)fx_step()) {
		struct wb_deploy_spec s = {.model = random_model(),
			.engines = ONE_OF(1, 2, 3),
			.gpus_per_node = ONE_OF(1, 2, 3, 4, 8),
			.rail_bytes_per_s = 1000000,
			.pods = ONE_OF(0, 1, 2, 3),
			.shares_memory = ONE_OF(0, 1)};
		char trainer[128] = "", rollout[128] = "";
		struct wb_deploy *d = NULL;
		struct wb_err err = {0};
		int rc;

		random_trainer(trainer, sizeof(trainer));
		random_rollout(rollout, sizeof(rollout));
		rc = wb_parallel_parse(trainer, &s.trainer, &err);
		if (rc == 0)
			rc = wb_parallel_parse(rollout, &s.rollout, &err);
		if (rc == 0)
			rc = wb_deploy_create(&s, &d, &err);
		if (rc < 0) {
			ck_assert(rc == -EINVAL && err.msg[0] && !d);
			continue;
		}
		fitting++;
		plan_and_check(d, trainer, rollout);
		wb_deploy_destroy(d);
	}
	printf("%" PRIu32 " of %d fit\n", fitting, DEPLOYMENTS);
	ck_assert_uint_ge(fitting, FITTING_MIN / (uint32_t)fx_step());
}
END_TEST

int main(void)
{
	const char *seed = getenv("WB_SEED");
	Suite *s = suite_create("planner_deploy_random");
	TCase *c = tcase_create("random");

	rng.state = seed ? strtoull(seed, NULL, 0) : 1;
	printf("seed %" PRIu64 " (WB_SEED=)\n", rng.state);
	suite_add_tcase(s, c);
	tcase_add_test(c, what_fits_can_be_planned);
	return fx_run(s);
}
