"""Weights of a Llama on a device: which arrays there are, and which tensors go where in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cupy_turbo.core.dtypes import DType
from cupy_turbo.core.protocols import Array, Device
from cupy_turbo.models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Arrays of one decoder layer.

    Parameters
    ----------
    attn_norm : Array, (H,)
        Scale of the norm before attention.
    qkv : Array, ((num_heads + 2 num_kv_heads) D, H)
        Query rows, then key rows, then value rows.
    o : Array, (H, num_heads D)
        Output projection of attention.
    mlp_norm : Array, (H,)
        Scale of the norm before the feed-forward block.
    gate_up : Array, (2 F, H)
        Gate rows, then up rows.
    down : Array, (H, F)
        Output projection of the feed-forward block.
    """

    attn_norm: Array
    qkv: Array
    o: Array
    mlp_norm: Array
    gate_up: Array
    down: Array


@dataclass(frozen=True, slots=True)
class LlamaWeights:
    """Arrays of a whole network, all of one dtype.

    Parameters
    ----------
    embed : Array, (V, H)
        Embedding.
    layers : list of LayerWeights
        First to last.
    norm : Array, (H,)
        Scale of the last norm.
    lm_head : Array, (V, H)
        The array of `embed` itself if the configuration ties them.
    """

    embed: Array
    layers: list[LayerWeights]
    norm: Array
    lm_head: Array


def allocate_weights(config: ModelConfig, device: Device, dtype: DType) -> LlamaWeights:
    """Take the arrays of a network, not filled yet."""
    hidden, wide = config.hidden_size, config.intermediate_size
    query, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    embed = device.empty((config.vocab_size, hidden), dtype)
    layers = [
        LayerWeights(
            attn_norm=device.empty((hidden,), dtype),
            qkv=device.empty((query + 2 * kv, hidden), dtype),
            o=device.empty((hidden, query), dtype),
            mlp_norm=device.empty((hidden,), dtype),
            gate_up=device.empty((2 * wide, hidden), dtype),
            down=device.empty((hidden, wide), dtype),
        )
        for _ in range(config.num_layers)
    ]
    norm = device.empty((hidden,), dtype)
    lm_head = embed if config.tie_word_embeddings else device.empty((config.vocab_size, hidden), dtype)
    return LlamaWeights(embed, layers, norm, lm_head)


def weight_destinations(config: ModelConfig, weights: LlamaWeights) -> Iterator[tuple[str, Array]]:
    """Yield each tensor's Hugging Face name and the rows of the arrays that it fills, in the order of the network."""
    query, kv, wide = (
        config.num_heads * config.head_dim,
        config.num_kv_heads * config.head_dim,
        config.intermediate_size,
    )
    yield "model.embed_tokens.weight", weights.embed
    for index, layer in enumerate(weights.layers):
        prefix = f"model.layers.{index}."
        yield prefix + "input_layernorm.weight", layer.attn_norm
        yield prefix + "self_attn.q_proj.weight", layer.qkv[:query]
        yield prefix + "self_attn.k_proj.weight", layer.qkv[query : query + kv]
        yield prefix + "self_attn.v_proj.weight", layer.qkv[query + kv :]
        yield prefix + "self_attn.o_proj.weight", layer.o
        yield prefix + "post_attention_layernorm.weight", layer.mlp_norm
        yield prefix + "mlp.gate_proj.weight", layer.gate_up[:wide]
        yield prefix + "mlp.up_proj.weight", layer.gate_up[wide:]
        yield prefix + "mlp.down_proj.weight", layer.down
    yield "model.norm.weight", weights.norm
    if not config.tie_word_embeddings:
        yield "lm_head.weight", weights.lm_head
