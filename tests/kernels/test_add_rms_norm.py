"""add_rms_norm.cu against its oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.dtypes import FLOAT_TYPES, DType, bfloat16, float16
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.add_rms_norm import add_rms_norm
from cupy_turbo.testing import reference
from cupy_turbo.testing.arrays import Guarded, assert_close
from cupy_turbo.testing.examples import examples

EPS = 1e-6


@settings(max_examples=examples(40))
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


@pytest.mark.parametrize(("dtype", "addend"), [(float16, 0.99 * 2.0**-11), (bfloat16, 0.99 * 2.0**-8)], ids=str)
def test_what_is_normalised_is_the_rounded_sum(device: Device, stream: Stream, dtype: DType, addend: float) -> None:
    """The next layer adds to the rounded residual: the norm of the sum before rounding is of another vector."""
    ones = np.ones((1, 8), dtype)
    out, total = Guarded(device, (1, 8), dtype), Guarded(device, (1, 8), dtype, ones)
    x, weight = device.upload(np.full((1, 8), addend, dtype)), device.upload(np.ones(8, dtype))
    add_rms_norm(out.array, total.array, x, weight, eps=EPS, stream=stream)
    assert np.array_equal(total.fetch(), ones)
    assert np.array_equal(out.fetch(), ones)
