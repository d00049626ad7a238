"""Real shapes for random weights: performance needs shapes, not meaning."""

from __future__ import annotations

import os
from pathlib import Path

from cupy_turbo.checkpoint.checkpoint import Checkpoint
from cupy_turbo.checkpoint.folder import read_folder_config
from cupy_turbo.core.errors import CheckpointError
from cupy_turbo.core.shown import shown_name
from cupy_turbo.models.config import ModelConfig

DEMO_FOLDER = Path(__file__).parents[1] / "assets" / "demo"
"""The demo model that is part of the package."""

_LLAMA_3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}

PRESETS: dict[str, dict[str, object]] = {
    "tiny": {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 1024,
        "hidden_size": 64,
        "intermediate_size": 176,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
    },
    "smollm2-135m": {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000,
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
    },
    "llama-3.2-1b": {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {**_LLAMA_3_ROPE, "factor": 32.0},
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
    },
    "llama-3.1-8b": {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {**_LLAMA_3_ROPE, "factor": 8.0},
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    },
}
"""Hugging Face configurations by the name that follows ``random:``."""


def open_random(name: str) -> Checkpoint:
    """Open a model whose weights are drawn when it is loaded.

    Parameters
    ----------
    name : str
        A key of `PRESETS`, or a path to a folder with a `config.json`.

    Raises
    ------
    CheckpointError
        If there is no such preset and no such folder.
    UnsupportedModelError
        If the folder's network is not supported.

    Notes
    -----
    No id ends an answer: random weights would end it anywhere, and a benchmark wants all its tokens.
    """
    if name in PRESETS:
        config = ModelConfig.from_hf(PRESETS[name], source=f"random:{name}")
    elif os.path.isfile(file := Path(os.path.expanduser(name)) / "config.json"):
        config = read_folder_config(file.parent)
    else:
        raise CheckpointError(
            f"random:{shown_name(name)} is neither a preset ({', '.join(PRESETS)}) nor a folder with a config.json"
        )
    return Checkpoint(
        config=config,
        generation_config={},
        tensors={},
        tokenizer_source=DEMO_FOLDER,
        path=None,
        is_random=True,
    )
