/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PLANNER_DEPLOY_MODEL_H
#define WB_PLANNER_DEPLOY_MODEL_H
/*
 * Models, described by their hyperparameters, and the checkpoint tensors that follow from these.
 *
 * Fields are named as in a Hugging Face config.json, if it has a word for them.  Lengths are in
 * elements.  Threads: any; a model does not change.  Layer: planner/deploy (over planner).
 */
#include "planner/map.h"

struct wb_err;

#define WB_MODEL_NAME_MAX 95
#define WB_MODEL_LAYERS_MAX 4096
#define WB_MODEL_LENGTH_MAX (1u << 24) /* of each length */

enum wb_arch {
	WB_ARCH_QWEN3 = 1, /* dense, GQA, RMS norms of query and key heads */
	WB_ARCH_QWEN3_MOE, /* the same attention, experts */
	WB_ARCH_DEEPSEEK_V3, /* MLA, experts, a router with a correction bias: Kimi-K2, Moonlight */
};

struct wb_model {
	char name[WB_MODEL_NAME_MAX + 1];
	enum wb_arch arch;
	enum wb_dtype dtype; /* of the weights; the router's correction bias is F32 */
	uint32_t layers, hidden, vocab;
	uint32_t heads, kv_heads;
	uint32_t head_dim; /* 0 with MLA */
	uint32_t intermediate; /* of a dense MLP */
	uint32_t experts, moe_intermediate; /* routed experts a layer; 0 = dense model */
	uint32_t shared_experts; /* one MLP of this many times moe_intermediate */
	uint32_t first_dense_layers; /* layers before this one have no experts */
	/* MLA: q_lora_rank 0 = the query is projected in one step. */
	uint32_t q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
	uint32_t mtp_layers; /* multi-token prediction layers after the last one, 0 or 1 */
	bool tie_word_embeddings;
	bool stores_tied_lm_head; /* tied, but the checkpoint has lm_head.weight nevertheless */
};

/* Models that are built in. */
extern const struct wb_model wb_models[];
extern const uint32_t wb_n_model;

/** wb_model_find - the built-in model called @name, or NULL.  "Qwen/Qwen3-32B" is found too. */
const struct wb_model *wb_model_find(const char *name);

/** wb_model_is_moe - has @layer experts?  MTP layers are those from model->layers on. */
bool wb_model_is_moe(const struct wb_model *m, uint32_t layer);

/**
 * wb_model_check - are the hyperparameters those of a model?
 * Returns 0, or -EINVAL with a sentence that names the field as config.json does.
 */
int wb_model_check(const struct wb_model *m, struct wb_err *err);

/**
 * wb_model_manifest - the tensors of the model's checkpoint, in the order of its files
 * @m:		has passed wb_model_check()
 * @out:	release with wb_manifest_destroy()
 * Returns 0; -ENOMEM; -EINVAL when there are more tensors than a manifest may hold.
 */
int wb_model_manifest(const struct wb_model *m, struct wb_manifest **out, struct wb_err *err);

#endif
