# SPDX-License-Identifier: Apache-2.0
"""make_model.py KIND FOLDER   A tiny model with random weights, in BF16, as a checkpoint of Hugging Face's layout."""
import sys

SMALL = {"hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 128, "head_dim": 32,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 96, "decoder_sparse_step": 1,
       "mlp_only_layers": [], "norm_topk_prob": True}
MODELS = {"llama": ("Llama", SMALL, {"tie_word_embeddings": False}),
          "llama-tied": ("Llama", SMALL, {"tie_word_embeddings": True}),
          "qwen2": ("Qwen2", {k: v for k, v in SMALL.items() if k != "head_dim"}, {"tie_word_embeddings": False}),
          "qwen3": ("Qwen3", SMALL, {"tie_word_embeddings": False}),
          "qwen3-tied": ("Qwen3", SMALL, {"tie_word_embeddings": True}),
          "qwen3-moe": ("Qwen3Moe", SMALL, {**MOE, "tie_word_embeddings": False})}


def main(kind, folder):
    import torch
    import transformers

    name, base, more = MODELS[kind]
    torch.manual_seed(5)
    model = getattr(transformers, name + "ForCausalLM")(getattr(transformers, name + "Config")(**base, **more))
    with torch.no_grad():
        for p in model.parameters():  # norms and biases too, so that none is like another
            p.copy_(torch.randn_like(p) * (0.1 if p.dim() > 1 else 0.5) + (p.dim() == 1))
    model.to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
