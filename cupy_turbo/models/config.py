"""ModelConfig: the shapes and constants of a network, read from files nobody has vouched for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cupy_turbo.core.dtypes import FLOAT_TYPES, parse_dtype
from cupy_turbo.core.errors import CheckpointError, UnsupportedModelError
from cupy_turbo.core.shown import shown, shown_name
from cupy_turbo.models.config_fields import ConfigFields
from cupy_turbo.models.config_options import check_options
from cupy_turbo.models.rope_config import MAX_POSITION, RopeConfig, read_rope_config

ARCHITECTURES = {"LlamaForCausalLM": "llama", "MistralForCausalLM": "mistral"}
"""Supported `architectures` of a `config.json`, and the `model_type` that implies each."""

SUPPORTED_FAMILIES = "Llama 2, 3, 3.1, 3.2, SmolLM2, TinyLlama, Mistral without sliding window"
"""What people call the models that load, for messages."""

MAX_EOS_IDS = 16
"""End-of-sequence ids of one model; requests may add stop ids of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Shapes and constants of a Llama-family network.

    Parameters
    ----------
    architecture : str
        A key of `ARCHITECTURES`.
    vocab_size : int
        V, rows of the embedding; may exceed the tokenizer's vocabulary.
    hidden_size : int
        H, width of a token's vector.
    intermediate_size : int
        F, width of the feed-forward block.
    num_layers : int
        Decoder layers.
    num_heads, num_kv_heads : int
        Query heads and key/value heads; the first is a multiple of the second.
    head_dim : int
        D, 32 to 256 in steps of 8; need not be hidden_size / num_heads.
    rms_norm_eps : float
        Added to the mean square.
    max_position : int
        Longest context in tokens, as the checkpoint claims it.
    tie_word_embeddings : bool
        Whether the LM head is the embedding.
    rope : RopeConfig
        Rotary positions.
    eos_token_ids : tuple of int
        Ids that end an answer, from the configuration and the generation configuration.
    bos_token_id : int or None
        Id that begins a sequence.
    dtype : numpy.dtype
        Element type of the checkpoint: float32, float16 or bfloat16.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position: int
    tie_word_embeddings: bool
    rope: RopeConfig
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    dtype: np.dtype

    @classmethod
    def from_hf(
        cls,
        values: Mapping[str, object],
        *,
        source: str = "config.json",
        generation_config: Mapping[str, object] | None = None,
    ) -> ModelConfig:
        """Read a Hugging Face configuration, of transformers 4 or 5.

        Parameters
        ----------
        values : mapping
            The parsed `config.json`.
        source : str
            The file, as errors should name it.
        generation_config : mapping, optional
            The parsed `generation_config.json`; its end-of-sequence ids come first.

        Raises
        ------
        UnsupportedModelError
            If the network is one that would not be computed correctly; names the key, the value and what is supported.
        CheckpointError
            If a key is missing, wrongly typed, or out of any sane range.

        Examples
        --------
        >>> from cupy_turbo.checkpoint.presets import PRESETS
        >>> config = ModelConfig.from_hf(PRESETS["smollm2-135m"])
        >>> config.num_heads, config.num_kv_heads, config.head_dim
        (9, 3, 64)
        """
        fields = ConfigFields(values, source)
        architecture = _architecture(fields)
        max_position = fields.integer("max_position_embeddings", 1, MAX_POSITION)
        check_options(fields, architecture, max_position)
        vocab_size = fields.integer("vocab_size", 1, 1 << 20)
        hidden_size = fields.integer("hidden_size", 1, 1 << 17)
        num_heads = fields.integer("num_attention_heads", 1, 1 << 10)
        # transformers' own defaults where the key is absent: all heads for Llama, 8 for Mistral
        default_kv_heads = num_heads if architecture == "LlamaForCausalLM" else 8
        num_kv_heads = fields.integer("num_key_value_heads", 1, 1 << 10, default=default_kv_heads)
        if num_heads % num_kv_heads:
            raise fields.error("num_attention_heads", f"= {num_heads} is no multiple of {num_kv_heads} KV heads")
        return cls(
            architecture=architecture,
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            intermediate_size=fields.integer("intermediate_size", 1, 1 << 20),
            num_layers=fields.integer("num_hidden_layers", 1, 1 << 10),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=_head_dim(fields, hidden_size, num_heads),
            rms_norm_eps=fields.number("rms_norm_eps", 0, 1),
            max_position=max_position,
            tie_word_embeddings=fields.boolean("tie_word_embeddings", default=False),
            rope=read_rope_config(values, source, max_position),
            eos_token_ids=_eos_token_ids(fields, generation_config or {}, vocab_size),
            bos_token_id=fields.integer("bos_token_id", 0, vocab_size - 1) if fields.has("bos_token_id") else None,
            dtype=_dtype(fields),
        )

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return name and shape of every tensor that a checkpoint of this network must hold, in Hugging Face names."""
        hidden, wide = self.hidden_size, self.intermediate_size
        query, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, hidden)}
        for layer in range(self.num_layers):
            prefix = f"model.layers.{layer}."
            shapes[prefix + "input_layernorm.weight"] = (hidden,)
            shapes[prefix + "self_attn.q_proj.weight"] = (query, hidden)
            shapes[prefix + "self_attn.k_proj.weight"] = (kv, hidden)
            shapes[prefix + "self_attn.v_proj.weight"] = (kv, hidden)
            shapes[prefix + "self_attn.o_proj.weight"] = (hidden, query)
            shapes[prefix + "post_attention_layernorm.weight"] = (hidden,)
            shapes[prefix + "mlp.gate_proj.weight"] = (wide, hidden)
            shapes[prefix + "mlp.up_proj.weight"] = (wide, hidden)
            shapes[prefix + "mlp.down_proj.weight"] = (hidden, wide)
        shapes["model.norm.weight"] = (hidden,)
        if not self.tie_word_embeddings:
            shapes["lm_head.weight"] = (self.vocab_size, hidden)
        return shapes


def _architecture(fields: ConfigFields) -> str:
    names = fields.values.get("architectures")
    if names is None:
        kind = fields.values.get("model_type")
        names = [name for name, model_type in ARCHITECTURES.items() if model_type == kind] or [
            f"model_type {shown(kind)}"
        ]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise fields.error("architectures", f"must be a list of names, got {shown(names)}")
    if len(names) != 1 or names[0] not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"{fields.source}: architecture {', '.join(map(shown_name, names[:4]))} is not supported; "
            f"supported: {', '.join(ARCHITECTURES)} ({SUPPORTED_FAMILIES})"
        )
    return str(names[0])


def _head_dim(fields: ConfigFields, hidden_size: int, num_heads: int) -> int:
    if not fields.has("head_dim") and hidden_size % num_heads:
        raise fields.error(
            "head_dim", f"is missing, and hidden_size = {hidden_size} is no multiple of {num_heads} heads"
        )
    head_dim = fields.integer("head_dim", 1, 1 << 16, default=hidden_size // num_heads)
    if not 32 <= head_dim <= 256 or head_dim % 8:
        raise UnsupportedModelError(
            f"{fields.source}: head_dim {head_dim} is not supported; supported: 32 to 256 in steps of 8"
        )
    return head_dim


def _eos_token_ids(fields: ConfigFields, generation: Mapping[str, object], vocab_size: int) -> tuple[int, ...]:
    found: dict[int, None] = {}  # a dict keeps the order and drops repeats
    for values, source in ((generation, "generation_config.json beside "), (fields.values, "")):
        entry = values.get("eos_token_id")
        for token_id in entry if isinstance(entry, list) else [] if entry is None else [entry]:
            if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < vocab_size:
                raise CheckpointError(
                    f"{source}{fields.source}: eos_token_id must be ids from 0 to {vocab_size - 1}, got "
                    f"{shown(token_id)}"
                )
            found[token_id] = None
    if len(found) > MAX_EOS_IDS:
        raise fields.error("eos_token_id", f"has {len(found)} ids, the limit is {MAX_EOS_IDS}")
    return tuple(found)


def _dtype(fields: ConfigFields) -> np.dtype:
    name = fields.text("dtype", default=fields.text("torch_dtype", default="float32"))
    try:
        dtype = parse_dtype(name.removeprefix("torch."))
    except ValueError:
        dtype = np.dtype(np.void)
    if dtype not in FLOAT_TYPES:
        names = ", ".join(each.name for each in FLOAT_TYPES)
        raise UnsupportedModelError(f"{fields.source}: dtype {shown(name)} is not supported; supported: {names}")
    return dtype
