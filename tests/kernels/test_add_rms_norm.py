"""add_rms_norm.cu against its oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.dtypes import FLOAT_TYPES, DType
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.add_rms_norm import add_rms_norm
from cupy_turbo.testing import reference
from cupy_turbo.testing.arrays import Guarded, assert_close

EPS = 1e-6


@settings(max_examples=40)
@given(
    dtype=st.sampled_from(FLOAT_TYPES),
    tokens=st.integers(0, 7),
    hidden=st.integers(1, 300) | st.sampled_from([576, 4096, 8199]),
    seed=st.integers(0, 2**32 - 1),
)
def test_matches_the_oracle(device: Device, stream: Stream, dtype: DType, tokens: int, hidden: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    residual, x = rng.normal(size=(2, tokens, hidden)).astype(dtype)
    weight = rng.normal(size=hidden).astype(dtype)
    out, total = Guarded(device, x.shape, dtype), Guarded(device, x.shape, dtype, residual)
    add_rms_norm(out.array, total.array, device.upload(x), device.upload(weight), eps=EPS, stream=stream)
    expected_total, expected = reference.add_rms_norm(residual, x, weight, EPS)
    assert_close(total.fetch(), expected_total)
    assert_close(out.fetch(), expected)


@pytest.mark.parametrize("dtype", FLOAT_TYPES, ids=str)
def test_the_result_may_replace_the_addend(device: Device, stream: Stream, dtype: DType) -> None:
    rng = np.random.default_rng(2)
    residual, x = rng.normal(size=(2, 5, 129)).astype(dtype)
    weight = rng.normal(size=129).astype(dtype)
    inout, total = Guarded(device, x.shape, dtype, x), Guarded(device, x.shape, dtype, residual)
    add_rms_norm(inout.array, total.array, inout.array, device.upload(weight), eps=EPS, stream=stream)
    expected_total, expected = reference.add_rms_norm(residual, x, weight, EPS)
    assert_close(total.fetch(), expected_total)
    assert_close(inout.fetch(), expected)


@pytest.mark.parametrize("dtype", FLOAT_TYPES, ids=str)
def test_what_is_normalised_is_the_rounded_sum(device: Device, stream: Stream, dtype: DType) -> None:
    """The next layer adds to the rounded residual: a norm of the unrounded sum would be of another vector."""
    tiny = float(np.finfo(np.float32).eps) if dtype.itemsize == 4 else 2.0**-12
    residual, x = np.ones((1, 8), dtype), np.full((1, 8), tiny / 4, dtype)  # rounds away
    residual[0, 0] = 0
    out, total = Guarded(device, (1, 8), dtype), Guarded(device, (1, 8), dtype, residual)
    weight = device.upload(np.ones(8, dtype))
    add_rms_norm(out.array, total.array, device.upload(x), weight, eps=EPS, stream=stream)
    assert np.array_equal(total.fetch()[0, 1:], residual[0, 1:])
    assert_close(out.fetch(), reference.rms_norm(total.fetch(), np.ones(8), EPS))
