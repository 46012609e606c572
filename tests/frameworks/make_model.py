# SPDX-License-Identifier: Apache-2.0
"""make_model.py KIND FOLDER   A tiny model with random weights, in BF16, as a checkpoint of Hugging Face's layout."""
import sys

SMALL = {"hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 128, "head_dim": 32,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 96, "decoder_sparse_step": 1,
       "mlp_only_layers": [], "norm_topk_prob": True}
# Latent attention, a shared expert, a router with a bias.
MLA = {"num_key_value_heads": 4, "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
       "v_head_dim": 32, "head_dim": 16, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
       "moe_intermediate_size": 96, "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_group": 2, "topk_group": 1, "topk_method": "noaux_tc",
       "scoring_func": "sigmoid",
       "rope_scaling": {"rope_type": "yarn", "type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64,
                        "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}}
MODELS = {"llama": ("Llama", SMALL, {"tie_word_embeddings": False}),
          "llama-tied": ("Llama", SMALL, {"tie_word_embeddings": True}),
          "qwen2": ("Qwen2", {k: v for k, v in SMALL.items() if k != "head_dim"}, {"tie_word_embeddings": False}),
          "qwen3": ("Qwen3", SMALL, {"tie_word_embeddings": False}),
          "qwen3-tied": ("Qwen3", SMALL, {"tie_word_embeddings": True}),
          "deepseek-v3": ("DeepseekV3", {**SMALL, **MLA}, {"tie_word_embeddings": False}),
          "qwen3-moe": ("Qwen3Moe", SMALL, {**MOE, "tie_word_embeddings": False}),
          # Layers for two pipeline stages of two virtual ones each.
          "llama-deep": ("Llama", {**SMALL, "num_hidden_layers": 4}, {"tie_word_embeddings": False}),
          "qwen3-moe-deep": ("Qwen3Moe", {**SMALL, "num_hidden_layers": 4}, {**MOE, "tie_word_embeddings": False}),
          # A vocabulary that nobody can cut in two: engines pad it, and trainers do in another way (matrix.py).
          "llama-odd": ("Llama", SMALL, {"vocab_size": 293, "tie_word_embeddings": False}),
          "qwen3-tied-odd": ("Qwen3", SMALL, {"vocab_size": 293, "tie_word_embeddings": True}),
          "qwen3-moe-odd": ("Qwen3Moe", SMALL, {**MOE, "vocab_size": 293, "tie_word_embeddings": False}),
          "deepseek-v3-odd": ("DeepseekV3", {**SMALL, **MLA}, {"vocab_size": 293, "tie_word_embeddings": False})}


def main(kind, folder):
    import torch
    import transformers

    name, base, more = MODELS[kind]
    torch.manual_seed(5)
    model = getattr(transformers, name + "ForCausalLM")(getattr(transformers, name + "Config")(**{**base, **more}))
    with torch.no_grad():
        for p in model.parameters():  # norms and biases too, so that none is like another
            p.copy_(torch.randn_like(p) * (0.1 if p.dim() > 1 else 0.5) + (p.dim() == 1))
    model.to(torch.bfloat16)
    for name, b in model.named_buffers():
        if name.endswith("e_score_correction_bias"):  # FP32, as in the checkpoints of DeepSeek; no expert stays without tokens
            b.data = b.float() + torch.arange(b.numel()) / 100
    model.save_pretrained(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
