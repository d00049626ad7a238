"""Random weights of real shapes, drawn on the device: for measuring, where only the shapes matter."""

from __future__ import annotations

import dataclasses

from cupy_turbo.core.dtypes import DType
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.models.config import ModelConfig
from cupy_turbo.models.llama_weights import LlamaWeights, allocate_weights
from cupy_turbo.ops.random_normal import random_normal

STANDARD_DEVIATION = 0.02
"""What Llama models start their training from."""


def random_weights(config: ModelConfig, device: Device, dtype: DType, seed: int) -> LlamaWeights:
    """Take and fill the arrays of a network: matrices normal around 0, norms 1.

    Parameters
    ----------
    config : ModelConfig
        Shapes.
    device : Device
        Where the arrays are and the numbers are drawn.
    dtype : numpy.dtype
        Element type: float32, float16 or bfloat16.
    seed : int
        From 0; the same seed gives the same weights on every device, and each array has a stream of numbers of its own.
    """
    weights = allocate_weights(config, device, dtype)
    stream = Stream.create(device=device)
    ones = device.pinned((config.hidden_size,), dtype)
    ones[:] = 1
    layers = [getattr(layer, field.name) for layer in weights.layers for field in dataclasses.fields(layer)]
    heads = [] if config.tie_word_embeddings else [weights.lm_head]
    for index, array in enumerate([weights.embed, *layers, weights.norm, *heads]):
        if array.ndim == 1:
            device.copy(array, ones, stream=stream)
        else:
            random_normal(array, std=STANDARD_DEVIATION, seed=((seed << 16) + index) % (1 << 64), stream=stream)
    stream.sync()
    return weights
