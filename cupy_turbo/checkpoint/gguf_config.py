"""Metadata of a GGUF file, rewritten as a Hugging Face configuration: one set of checks serves both."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from cupy_turbo.core.errors import CheckpointError, UnsupportedModelError
from cupy_turbo.core.shown import shown, shown_name
from cupy_turbo.models.config import SUPPORTED_FAMILIES, ModelConfig
from cupy_turbo.models.config_fields import ConfigFields
from cupy_turbo.models.rope_config import RopeConfig

_REQUIRED = {
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
}
_OPTIONAL = {
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rope_theta": "rope.freq_base",
    "sliding_window": "attention.sliding_window",
}
# They say what other keys or the tensors say too, or nothing about the arithmetic.
_HARMLESS = {
    *("vocab_size", "rope.dimension_count", "attention.value_length", "rope.scaling.finetuned", "tensor_data_layout"),
    *("rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length", "rope.scaling.attn_factor"),
    *("rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "rope.scale_linear", "attention.causal"),
    *("expert_count", "expert_used_count", "embedding_length_out"),
}
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


def read_gguf_config(
    metadata: Mapping[str, object],
    source: str,
    *,
    vocab_size: int,
    is_tied: bool,
    dtype_name: str,
    frequency_factors: tuple[float, ...],
) -> ModelConfig:
    """Read the configuration of a `llama` architecture GGUF file.

    Parameters
    ----------
    metadata : mapping
        As `read_gguf_header` returns it.
    source : str
        The file, as errors should name it.
    vocab_size : int
        Rows of the embedding.
    is_tied : bool
        Whether the file has no `output.weight`.
    dtype_name : str
        Element type that fits the file's tensors best.
    frequency_factors : tuple of float
        The file's `rope_freqs.weight`: how llama.cpp writes the scaling of Llama 3.1 and later. Empty if there is none.

    Raises
    ------
    UnsupportedModelError
        If the architecture, or a key of it, is not known.
    CheckpointError
        If a key is missing, wrongly typed or out of range; keys are named as in `config.json`.
    """
    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        raise UnsupportedModelError(
            f"{source}: GGUF architecture {shown(architecture)} is not supported; supported: llama "
            f"({SUPPORTED_FAMILIES})"
        )
    own = {key.removeprefix("llama."): value for key, value in metadata.items() if key.startswith("llama.")}
    _check_keys(own, source)
    values: dict[str, object] = {name: own[key] for name, key in (_REQUIRED | _OPTIONAL).items() if key in own}
    values |= {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": vocab_size,
        "tie_word_embeddings": is_tied,
        "dtype": dtype_name,
        "eos_token_id": [metadata[key] for name in _END_KEYS if (key := f"tokenizer.ggml.{name}") in metadata],
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "rope_scaling": _rope_scaling(ConfigFields(own, f"{source}: llama")),
    }
    config = ModelConfig.from_hf(values, source=f"{source} (metadata, under the names of config.json)")
    for key in ("attention.value_length", "rope.dimension_count"):
        if own.get(key, config.head_dim) != config.head_dim:
            raise UnsupportedModelError(
                f"{source}: llama.{key} = {shown(own[key])} is not supported; "
                f"supported: the head size, {config.head_dim}"
            )
    if frequency_factors:
        config = dataclasses.replace(config, rope=_with_factors(config, frequency_factors, source))
    return config


def _check_keys(own: Mapping[str, object], source: str) -> None:
    unknown = sorted(own.keys() - set(_REQUIRED.values()) - set(_OPTIONAL.values()) - _HARMLESS)
    if unknown:
        raise UnsupportedModelError(
            f"{source}: metadata keys that are not known: llama.{', llama.'.join(map(shown_name, unknown[:8]))}"
        )
    for key, neutral in {"expert_count": 0, "expert_used_count": 0, "attention.causal": True}.items():
        if own.get(key, neutral) != neutral:
            raise UnsupportedModelError(
                f"{source}: llama.{key} = {shown(own[key])} is not supported; supported: {neutral}"
            )


def _rope_scaling(fields: ConfigFields) -> dict[str, object] | None:
    kind = fields.text("rope.scaling.type", default="none")
    if kind == "none" and fields.has("rope.scale_linear"):  # what files of 2023 wrote
        return {"rope_type": "linear", "factor": fields.number("rope.scale_linear", 1, 1e6)}
    if kind == "none":
        return None
    factor = fields.number("rope.scaling.factor", 1, 1e6)
    if kind != "yarn":
        return {"rope_type": kind, "factor": factor}
    # llama.cpp multiplies its own factor into the one of the paper
    attention = fields.number("rope.scaling.attn_factor", 1e-6, 1e6, default=1) * (1 + 0.1 * math.log(factor))
    return {
        "rope_type": "yarn",
        "factor": factor,
        "attention_factor": attention,
        "original_max_position_embeddings": fields.values.get("rope.scaling.original_context_length"),
        "beta_fast": fields.values.get("rope.scaling.yarn_beta_fast"),
        "beta_slow": fields.values.get("rope.scaling.yarn_beta_slow"),
    }


def _with_factors(config: ModelConfig, factors: tuple[float, ...], source: str) -> RopeConfig:
    if config.rope.type != "default":
        raise UnsupportedModelError(f"{source} has rope_freqs.weight and rope scaling {config.rope.type} as well")
    if len(factors) != config.head_dim // 2 or not all(math.isfinite(each) and each > 0 for each in factors):
        raise CheckpointError(f"{source}: rope_freqs.weight must be {config.head_dim // 2} finite factors above 0")
    return RopeConfig(type="factors", theta=config.rope.theta, frequency_factors=factors)
