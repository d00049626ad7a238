"""The paged KV pool: blocks of tokens that sequences hold through their block tables."""

from __future__ import annotations

import numpy as np

from cupy_turbo.core.protocols import Array, Device
from cupy_turbo.models.config import ModelConfig


def kv_block_bytes(config: ModelConfig, block_size: int, dtype: np.dtype) -> int:
    """Bytes of one block over all layers, keys and values together."""
    return 2 * config.num_layers * config.num_kv_heads * block_size * config.head_dim * dtype.itemsize


class KVCache:
    """Keys and values of every layer, taken once at start.

    Parameters
    ----------
    device : Device
        Where the pool lives.
    config : ModelConfig
        Layers, KV heads and head size.
    num_blocks, block_size : int
        Blocks in the pool, tokens in a block.
    dtype : numpy.dtype
        Element type, the model's.

    Notes
    -----
    Layout: (layers, 2, blocks, kv_heads, block_size, head_dim). **Source:** vLLM (PagedAttention, Kwon et al. 2023).
    """

    def __init__(
        self, device: Device, config: ModelConfig, *, num_blocks: int, block_size: int, dtype: np.dtype
    ) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        shape = (config.num_layers, 2, num_blocks, config.num_kv_heads, block_size, config.head_dim)
        pool = device.empty(shape, dtype)
        self.layers: list[tuple[Array, Array]] = [(pool[i][0], pool[i][1]) for i in range(config.num_layers)]
