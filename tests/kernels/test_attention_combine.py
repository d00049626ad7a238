"""attention_combine.cu against the formula, from results that no kernel has written."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.dtypes import FLOAT_TYPES, DType, float32
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.attention_combine import attention_combine
from cupy_turbo.ops.attention_decode import attention_decode_scratch
from cupy_turbo.testing.arrays import Guarded, assert_close
from cupy_turbo.testing.examples import examples


@settings(max_examples=examples(30))
@given(
    dtype=st.sampled_from(FLOAT_TYPES),
    head_dim=st.sampled_from([40, 256]),
    heads=st.integers(1, 4),
    contexts=st.lists(st.integers(0, 700), min_size=1, max_size=4),
    num_splits=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
)
def test_matches_the_formula(
    device: Device,
    stream: Stream,
    dtype: DType,
    head_dim: int,
    heads: int,
    contexts: list[int],
    num_splits: int,
    seed: int,
) -> None:
    rng, rows = np.random.default_rng(seed), len(contexts)
    partial = np.full(attention_decode_scratch(rows, heads, head_dim, num_splits), np.nan, float32)
    cells = rows * heads * num_splits
    sums = partial[: cells * head_dim].reshape(rows, heads, num_splits, head_dim)
    pairs = partial[cells * head_dim :].reshape(rows, heads, num_splits, 2)
    expected = np.zeros((rows, heads, head_dim))
    for row, context in enumerate(contexts):
        length = max(64, 64 * ceil(ceil(context / num_splits) / 64))  # tokens of a split
        used = ceil(context / length)
        sums[row, :, :used] = rng.normal(size=(heads, used, head_dim))
        pairs[row, :, :used] = rng.uniform([-200, 1], [200, 9], (heads, used, 2))
        if used:
            maxima, totals = np.moveaxis(pairs[row, :, :used].astype(np.float64), -1, 0)  # (heads, used) each
            weights = np.exp2(maxima - maxima.max(axis=1, keepdims=True))
            total = (weights * totals).sum(axis=1)
            expected[row] = np.einsum("hp,hpd->hd", weights, sums[row, :, :used]) / total[:, None]

    out = Guarded(device, (rows, heads * head_dim), dtype)
    state = (np.arange(rows, dtype=np.int32), np.zeros(rows, np.int32), np.array(contexts, np.int32))
    attention_combine(
        out.array,
        Guarded(device, partial.shape, float32, partial).array,
        *map(device.upload, state),
        head_dim=head_dim,
        num_splits=num_splits,
        stream=stream,
    )
    actual = out.fetch().reshape(expected.shape)
    for row in range(rows):
        assert_close(actual[row], expected[row])


def test_too_little_to_read_is_refused(device: Device, stream: Stream) -> None:
    out, partial = device.empty((2, 64), float32), device.empty((263,), float32)
    state = [device.upload(np.zeros(2, np.int32)) for _ in range(3)]
    with pytest.raises(ValueError, match="attention_combine: 2 rows and 263 partial results do not cover 2 tokens"):
        attention_combine(out, partial, *state, head_dim=64, num_splits=2, stream=stream)
