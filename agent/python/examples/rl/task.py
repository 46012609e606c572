# SPDX-License-Identifier: Apache-2.0
"""What is learned: to count.  The prompt is a digit; each token of the answer should be one more than the one before it,
modulo 10.  The reward is a rule, so that no reward model and no data are needed."""
import torch

DIGITS, BEGIN, VOCABULARY = 10, 10, 16
ANSWER = 6  # tokens
PROMPTS, SAMPLES = 16, 8  # of a batch: answers to one prompt are compared with each other


def model(hidden, layers):
    """A small Qwen3 with random weights, in FP32; the same on every process."""
    import transformers

    torch.manual_seed(0)
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, head_dim=hidden // 4, max_position_embeddings=64,
        tie_word_embeddings=False, bos_token_id=BEGIN, eos_token_id=None, pad_token_id=None))


def prompts(number):
    """Token ids of batch `number`, SAMPLES rows for each prompt."""
    how = torch.Generator().manual_seed(number)
    digits = torch.randint(DIGITS, (PROMPTS, 1), generator=how)
    return torch.cat([torch.full_like(digits, BEGIN), digits], 1).repeat_interleave(SAMPLES, 0)


def rewards(prompt, answer):
    """1 or 0 for each token of the answers."""
    before = torch.cat([prompt[:, -1:], answer[:, :-1]], 1)
    return (answer == (before + 1) % DIGITS).float()
