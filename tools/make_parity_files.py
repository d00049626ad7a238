"""Make the files of tests/parity: tiny random Llamas with transformers' logits, and its rotary tables.

    pip install torch transformers        # made with torch 2.13 (CPU) and transformers 5.24
    python tools/make_parity_files.py tests/parity

Each model folder gets `config.json`, `model.safetensors` (float32) and `logits.npz`: for prompt i, `ids_i` (T,) int32,
`logits_i` (T, V) float32 of every position, and `greedy_i` (12,) int32, the greedy continuation. `rope.npz` has, for
each scaling, the configuration as transformers was given it (JSON), positions (P,), and `cos` and `sin` (P, D / 2)
float32.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

COMMON = {"attn_implementation": "eager", "initializer_range": 0.15, "bos_token_id": 1, "eos_token_id": 2}

MODELS = {
    # 2 heads of 48 in a hidden size of 64; no grouping
    "head_dim_differs": {
        **COMMON,
        "vocab_size": 517,
        "hidden_size": 64,
        "intermediate_size": 120,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 48,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    # 3 query heads on 1 KV head; 1021 is prime
    "grouped_odd_vocabulary": {
        **COMMON,
        "vocab_size": 1021,
        "hidden_size": 96,
        "intermediate_size": 160,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    },
    # prompts reach past twice the original context, where an ignored scaling shows
    "llama3_rope_untied": {
        **COMMON,
        "vocab_size": 300,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    },
}
PROMPT_LENGTHS = {"head_dim_differs": (1, 5, 40), "grouped_odd_vocabulary": (2, 17, 33), "llama3_rope_untied": (3, 100)}
NUM_GREEDY = 12

ROPES = {
    "default": {"rope_theta": 10000.0},
    "default_5": {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    "linear": {"rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "dynamic": {"rope_theta": 10000.0, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
    "llama3": {
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
    "yarn": {
        "rope_theta": 10000.0,
        "rope_scaling": {"type": "yarn", "factor": 16.0, "original_max_position_embeddings": 2048},
    },
    "yarn_5": {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 32.0,
            "beta_fast": 24.0,
            "beta_slow": 2.0,
            "mscale": 1.0,
            "mscale_all_dim": 0.7,
            "truncate": False,
            "original_max_position_embeddings": 2048,
        }
    },
}
ROPE_SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32,
    "hidden_size": 128,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 4096,
}
POSITIONS = (0, 1, 2, 3, 17, 100, 1023, 2048, 4095, 8191, 8999)


def make_model(name: str, folder: Path, seed: int) -> None:
    """Draw the weights, save them, and save what transformers computes from them."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**MODELS[name])).float().eval()
    for parameter_name, parameter in model.named_parameters():
        if "norm" in parameter_name:  # a scale of 1 everywhere would hide a norm that is left out or swapped
            parameter.data.uniform_(0.5, 1.5)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    arrays: dict[str, np.ndarray] = {}
    for index, length in enumerate(PROMPT_LENGTHS[name]):
        prompt = torch.randint(3, model.config.vocab_size, (1, length))
        ids = prompt
        with torch.no_grad():
            for _ in range(NUM_GREEDY):  # the whole text again for each token: nothing depends on a cache
                ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
            logits = model(prompt).logits[0]
        arrays[f"ids_{index}"] = prompt[0].numpy().astype(np.int32)
        arrays[f"logits_{index}"] = logits.numpy().astype(np.float32)
        arrays[f"greedy_{index}"] = ids[0, length:].numpy().astype(np.int32)
    np.savez_compressed(folder / "logits.npz", **arrays)


def make_rope_tables(path: Path) -> None:
    """Ask transformers for cosines and sines of every scaling."""
    positions = torch.tensor([POSITIONS])
    arrays: dict[str, np.ndarray] = {"positions": np.array(POSITIONS, np.int32)}
    for name, rope in ROPES.items():
        values = {**ROPE_SHAPE, **rope}
        given = json.dumps(values)  # LlamaConfig edits the nested object in place
        cos, sin = LlamaRotaryEmbedding(LlamaConfig(**values))(torch.zeros(1), positions)
        half = ROPE_SHAPE["head_dim"] // 2
        arrays[f"{name}_config"] = np.array(given)
        arrays[f"{name}_cos"] = cos[0, :, :half].numpy()
        arrays[f"{name}_sin"] = sin[0, :, :half].numpy()
    np.savez_compressed(path, **arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    torch.set_num_threads(1)
    for seed, name in enumerate(MODELS):
        make_model(name, folder / name, seed)
    make_rope_tables(folder / "rope.npz")


if __name__ == "__main__":
    main()
