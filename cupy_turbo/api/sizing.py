"""How much of the device a model may take: steps, sequences, and the KV pool that is left."""

from __future__ import annotations

import logging

import numpy as np

from cupy_turbo.core.errors import InvalidRequestError
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.shown import shown
from cupy_turbo.engine.config import EngineConfig
from cupy_turbo.models.config import ModelConfig
from cupy_turbo.models.kv_cache import kv_block_bytes
from cupy_turbo.models.rope_config import MAX_POSITION
from cupy_turbo.models.step import StepLimits

_log = logging.getLogger("cupy_turbo")

HOST_KV_BYTES = 1 << 30
"""KV pool of the host device: a laptop's memory is not ours to fill."""

GRAPH_RESERVE_BYTES = 512 << 20
"""Left free on a GPU for captured graphs, loaded kernels and the driver."""


MAX_SEQS = 1 << 14
MAX_BATCHED_TOKENS = 1 << 20


def check_integer(name: str, value: object, low: int, high: int) -> None:
    """Raise InvalidRequestError, naming the option, unless the value is an integer in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidRequestError(
            f"{name} must be an integer from {low} to {high}, got {shown(value)}", parameter=name, value=value
        )


def choose_limits(
    config: ModelConfig,
    device: Device,
    *,
    max_model_len: int | None,
    max_num_seqs: int | None,
    max_num_batched_tokens: int | None,
    block_size: int,
) -> StepLimits:
    """Fill in what the user left open and refuse what the model cannot do.

    Raises
    ------
    InvalidRequestError
        Naming the option, its value and the limit.
    """
    for name, value, largest in (
        ("max_model_len", max_model_len, MAX_POSITION),
        ("max_num_seqs", max_num_seqs, MAX_SEQS),
        ("max_num_batched_tokens", max_num_batched_tokens, MAX_BATCHED_TOKENS),
    ):
        if value is not None:
            check_integer(name, value, 1, largest)
    check_integer("block_size", block_size, 16, 128)
    longest = config.max_position
    if config.rope.type == "dynamic":  # the base grows with the length that the table is built for
        longest = int(longest * config.rope.factor)
    if max_model_len is None:
        max_model_len = config.max_position
    elif max_model_len > longest:
        raise InvalidRequestError(
            f"max_model_len is {max_model_len}, but the model's positions end at {longest}",
            parameter="max_model_len",
            value=max_model_len,
        )
    seqs = (256 if device.kind == "cuda" else 64) if max_num_seqs is None else max_num_seqs
    tokens = max_num_batched_tokens
    if tokens is None:
        tokens = max(seqs, 8192 if device.kind == "cuda" else 512)
    limits = StepLimits(max_num_seqs=seqs, max_num_tokens=tokens, max_model_len=max_model_len, block_size=block_size)
    engine_config(limits, num_blocks=1, phases=1)  # checks the ranges before anything is allocated
    return limits


def engine_config(limits: StepLimits, *, num_blocks: int, phases: int) -> EngineConfig:
    """Return the engine's settings for these limits.

    Raises
    ------
    InvalidRequestError
        Where a size is out of range.
    """
    try:
        return EngineConfig(
            max_model_len=limits.max_model_len,
            max_num_seqs=limits.max_num_seqs,
            max_num_batched_tokens=limits.max_num_tokens,
            block_size=limits.block_size,
            num_blocks=num_blocks,
            phases=phases,
        )
    except ValueError as error:
        raise InvalidRequestError(str(error), parameter="engine options", value=limits) from None


def choose_num_blocks(
    config: ModelConfig, limits: StepLimits, dtype: np.dtype, device: Device, *, gpu_memory_utilization: float
) -> int:
    """Blocks of the KV pool, after weights and workspace have been taken.

    At most what `max_num_seqs` sequences of full length can use. On a GPU, the share of the card that
    `gpu_memory_utilization` allows minus what is used already; on the host, `HOST_KV_BYTES` or one full sequence.

    Raises
    ------
    InvalidRequestError
        If not even one block fits.
    """
    block_bytes = kv_block_bytes(config, limits.block_size, dtype)
    useful = limits.max_num_seqs * limits.max_blocks_per_seq
    free, total = device.memory()
    if device.kind == "cuda":
        budget = int(total * gpu_memory_utilization) - (total - free) - GRAPH_RESERVE_BYTES
    else:
        budget = min(free // 2, max(HOST_KV_BYTES, limits.max_blocks_per_seq * block_bytes))
    num_blocks = min(useful, budget // block_bytes)
    if num_blocks < 1:
        raise InvalidRequestError(
            f"no KV block fits: one takes {block_bytes:,} bytes, and {max(budget, 0):,} are left of {total:,} at "
            f"gpu_memory_utilization={gpu_memory_utilization}; raise it, free the device or lower "
            "max_num_batched_tokens",
            parameter="gpu_memory_utilization",
            value=gpu_memory_utilization,
        )
    if num_blocks < limits.max_blocks_per_seq:
        _log.warning(
            "the KV pool holds %d tokens, less than max_model_len = %d: longer requests will be refused",
            num_blocks * limits.block_size,
            limits.max_model_len,
        )
    return num_blocks
