/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_GEOMETRY_H
#define TESTS_GEOMETRY_H
/*
 * Source maps of whole deployments from a model's hyperparameters and parallel settings, without
 * weights and without extraction: the rules by which Megatron and FSDP2 trainers and vLLM and
 * SGLang rollouts cut a checkpoint, written down a second time.  Asserts instead of returning
 * errors.
 */
#include "planner/plan.h"

struct geo_model {
	char arch[24];
	uint64_t layers, hidden, heads, kv_heads, head_dim, q_lora, kv_lora, nope, rope, v_dim;
	uint64_t inter, moe_inter, experts, shared, dense_layers, vocab;
	bool is_tied;
};

struct geo_setting {
	const char *title, *model;
	/* Trainers: n_fsdp ranks of FSDP2, or Megatron with expert tensor parallelism 1. */
	uint32_t n_fsdp, tp, pp, cp, ep, dp, last_layers; /* layers of the last stage; 0: even */
	/* Rollouts: attention over attn_tp of the tp_r ranks, experts over all of them. */
	uint32_t tp_r, attn_tp, engines;
	bool is_dense_whole; /* dense MLP on every rank */
	uint32_t per_node; /* workers of a node, which is one exchange domain */
	uint64_t rail_bytes_per_s;
};

/* The paper's deployments (a)-(d), (e) a dense one, and small ones. */
extern const struct geo_setting geo_settings[];
extern const uint32_t geo_n_setting;
const struct geo_setting *geo_setting(const char *title);

struct geometry {
	struct geo_model model;
	struct wb_manifest *m;
	struct wb_map **layout; /* trainers' first */
	struct wb_plan_worker *worker;
	uint32_t n_trainer, n_trainer_layout;
	struct wb_plan_input in;
};

/** geo_make - @models: path of models.json. */
void geo_make(struct geometry *g, const struct geo_setting *s, const char *models);
void geo_finish(struct geometry *g);

/** geo_set_pairs - distinct (holders, needers): classes without regard to the type. */
uint32_t geo_set_pairs(const struct wb_plan *p);

#endif
