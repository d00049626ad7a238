"""Activations of one forward pass, taken once and reused by every step."""

from __future__ import annotations

import numpy as np

from cupy_turbo.core.protocols import Array, Device
from cupy_turbo.models.config import ModelConfig
from cupy_turbo.models.step import StepLimits
from cupy_turbo.ops.attention_decode import attention_decode_scratch


def decode_splits(num_rows: int, num_kv_heads: int) -> int:
    """KV splits of decode attention: enough blocks to fill a GPU, and no more, since each writes a partial result."""
    return max(1, min(32, 1024 // (num_rows * num_kv_heads)))


class Workspace:
    """Every intermediate of `Llama.forward`, sized for the largest step.

    Parameters
    ----------
    device : Device
        Where the buffers live.
    config : ModelConfig
        Widths.
    limits : StepLimits
        T = max_num_tokens rows of activations, R = max_num_seqs rows of logits.
    dtype : numpy.dtype
        Activation type; logits and attention partials are float32.

    Notes
    -----
    One workspace serves all phases: the steps of one compute stream run one after the other.
    """

    def __init__(self, device: Device, config: ModelConfig, limits: StepLimits, dtype: np.dtype) -> None:
        tokens, rows = limits.max_num_tokens, limits.max_num_seqs
        query_width = config.num_heads * config.head_dim
        qkv_width = query_width + 2 * config.num_kv_heads * config.head_dim
        float32 = np.dtype(np.float32)

        def take(count: int, width: int, kind: np.dtype = dtype) -> Array:
            return device.empty((count, width), kind)

        self.residual = take(tokens, config.hidden_size)
        self.normed = take(tokens, config.hidden_size)
        self.projected = take(tokens, config.hidden_size)
        self.qkv = take(tokens, qkv_width)
        self.attended = take(tokens, query_width)
        self.gate_up = take(tokens, 2 * config.intermediate_size)
        self.activated = take(tokens, config.intermediate_size)
        self.selected = take(rows, config.hidden_size)
        self.logits = take(rows, config.vocab_size, float32)
        self.sampled = device.empty((rows,), np.dtype(np.int32))
        scratch = max(
            attention_decode_scratch(
                count, config.num_heads, config.head_dim, decode_splits(count, config.num_kv_heads)
            )
            for count in range(1, rows + 1)
        )
        self.attention_partial = device.empty((scratch,), float32)
