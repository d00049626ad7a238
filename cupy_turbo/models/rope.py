"""The table of cosines and sines by which kernels turn queries and keys."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from cupy_turbo.models.config import ModelConfig
from cupy_turbo.models.rope_config import RopeConfig

_ROWS_AT_ONCE = 4096  # bounds the float64 intermediates: a 131,072-token table is built in a few MB


def rope_table(config: ModelConfig, max_position: int) -> npt.NDArray[np.float32]:
    """Cosines and sines of every position, in the layout that `ops.rope_kv_write` reads.

    Parameters
    ----------
    config : ModelConfig
        Its `rope` and `head_dim`.
    max_position : int
        P, positions to cover, > 0. The dynamic type stretches its frequencies to this length once, where transformers
        stretches them again whenever a text grows: it is exact for contexts up to `rope.original_max_position`.

    Returns
    -------
    ndarray of float32, (P, D)
        First D / 2 cosines, then D / 2 sines, both times the attention factor.

    Notes
    -----
    Frequencies and angles are rounded to float32 as transformers rounds them, because its models were trained so: at
    position 100,000 that moves an angle by up to 0.004.
    """
    half = config.head_dim // 2
    frequencies = inverse_frequencies(config.rope, config.head_dim, max_position).astype(np.float32)  # (D / 2,)
    table = np.empty((max_position, config.head_dim), np.float32)
    for start in range(0, max_position, _ROWS_AT_ONCE):
        rows = table[start : start + _ROWS_AT_ONCE]
        positions = np.arange(start, start + len(rows), dtype=np.float32)
        angles = (positions[:, None] * frequencies).astype(np.float64)  # (rows, D / 2)
        rows[:, :half] = np.cos(angles) * config.rope.attention_factor
        rows[:, half:] = np.sin(angles) * config.rope.attention_factor
    return table


def inverse_frequencies(rope: RopeConfig, head_dim: int, max_position: int) -> npt.NDArray[np.float64]:
    """Angle in radians that each pair of dimensions turns per position.

    Parameters
    ----------
    rope : RopeConfig
        The scaling.
    head_dim : int
        D, even.
    max_position : int
        Longest context in tokens; only the dynamic type depends on it.

    Returns
    -------
    ndarray of float64, (D / 2,)

    Notes
    -----
    **Source:** Su et al. 2021 (RoPE); Chen et al. 2023 (linear); bloc97 2023 (dynamic NTK); Llama 3.1 (llama3); Peng et
    al. 2023 (YaRN). Details as in transformers' `modeling_rope_utils.py`.
    """
    theta = rope.theta
    if rope.type == "dynamic":
        original = rope.original_max_position
        stretch = rope.factor * max(max_position, original) / original - (rope.factor - 1)
        theta *= stretch ** (head_dim / (head_dim - 2))
    plain = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)  # (D / 2,)
    if rope.type == "factors":
        return plain / np.asarray(rope.frequency_factors, np.float64)
    if rope.type == "linear":
        return plain / rope.factor
    if rope.type == "llama3":
        turns = rope.original_max_position * plain / (2 * math.pi)  # over the original context
        keep = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    elif rope.type == "yarn":
        keep = 1 - _yarn_ramp(rope, head_dim)
    else:
        return plain
    keep = np.clip(keep, 0, 1)
    return plain * keep + plain / rope.factor * (1 - keep)


def _yarn_ramp(rope: RopeConfig, head_dim: int) -> npt.NDArray[np.float64]:
    """How far each frequency is interpolated: 0 for those of many turns, 1 for those of few. (D / 2,)."""

    def dimension_of(turns: float) -> float:
        return head_dim * math.log(rope.original_max_position / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = dimension_of(rope.beta_fast), dimension_of(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001  # as transformers does: a step instead of a division by zero
    return np.clip((np.arange(head_dim // 2) - low) / (high - low), 0, 1)
