/* SPDX-License-Identifier: Apache-2.0 */
/* The models that are built in: hyperparameters as their config.json publishes them, in BF16. */
#include "base/base.h"
#include "planner/deploy/model.h"

#include <string.h>

/* clang-format off */
const struct wb_model wb_models[] = {
	{.name = "Moonlight-16B-A3B", .arch = WB_ARCH_DEEPSEEK_V3, .dtype = WB_BF16,
		.layers = 27, .hidden = 2048, .vocab = 163840, .heads = 16, .kv_heads = 16,
		.intermediate = 11264, .experts = 64, .moe_intermediate = 1408,
		.shared_experts = 2, .first_dense_layers = 1, .kv_lora_rank = 512,
		.qk_nope_head_dim = 128, .qk_rope_head_dim = 64, .v_head_dim = 128},
	{.name = "Qwen3-30B-A3B", .arch = WB_ARCH_QWEN3_MOE, .dtype = WB_BF16,
		.layers = 48, .hidden = 2048, .vocab = 151936, .heads = 32, .kv_heads = 4,
		.head_dim = 128, .intermediate = 6144, .experts = 128, .moe_intermediate = 768},
	{.name = "Qwen3-235B-A22B", .arch = WB_ARCH_QWEN3_MOE, .dtype = WB_BF16,
		.layers = 94, .hidden = 4096, .vocab = 151936, .heads = 64, .kv_heads = 4,
		.head_dim = 128, .intermediate = 12288, .experts = 128, .moe_intermediate = 1536},
	/* Published with FP8 blocks; trained and served in BF16 here. */
	{.name = "Kimi-K2-Instruct", .arch = WB_ARCH_DEEPSEEK_V3, .dtype = WB_BF16,
		.layers = 61, .hidden = 7168, .vocab = 163840, .heads = 64, .kv_heads = 64,
		.intermediate = 18432, .experts = 384, .moe_intermediate = 2048,
		.shared_experts = 1, .first_dense_layers = 1, .q_lora_rank = 1536,
		.kv_lora_rank = 512, .qk_nope_head_dim = 128, .qk_rope_head_dim = 64,
		.v_head_dim = 128},
	{.name = "Qwen3-32B", .arch = WB_ARCH_QWEN3, .dtype = WB_BF16,
		.layers = 64, .hidden = 5120, .vocab = 151936, .heads = 64, .kv_heads = 8,
		.head_dim = 128, .intermediate = 25600},
	{.name = "Qwen3-0.6B", .arch = WB_ARCH_QWEN3, .dtype = WB_BF16,
		.layers = 28, .hidden = 1024, .vocab = 151936, .heads = 16, .kv_heads = 8,
		.head_dim = 128, .intermediate = 3072, .tie_word_embeddings = true,
		.stores_tied_lm_head = true},
};
/* clang-format on */
const uint32_t wb_n_model = WB_ARRAY_SIZE(wb_models);

const struct wb_model *wb_model_find(const char *name)
{
	const char *slash = strrchr(name, '/');

	for (uint32_t i = 0; i < wb_n_model; i++)
		if (!strcmp(wb_models[i].name, slash ? slash + 1 : name))
			return &wb_models[i];
	return NULL;
}
