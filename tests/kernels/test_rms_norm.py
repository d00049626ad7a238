"""rms_norm.cu against its oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.dtypes import FLOAT_TYPES, DType, bfloat16, float32
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.rms_norm import rms_norm
from cupy_turbo.testing import reference
from cupy_turbo.testing.arrays import Guarded, assert_close
from cupy_turbo.testing.examples import examples

EPS = 1e-5


def draw(dtype: DType, tokens: int, hidden: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(tokens, hidden)) * 10.0 ** rng.uniform(-2, 2, (tokens, 1))
    return x.astype(dtype), rng.normal(size=hidden).astype(dtype)


@settings(max_examples=examples(40))
@given(
    dtype=st.sampled_from(FLOAT_TYPES),
    tokens=st.integers(0, 7),
    hidden=st.integers(1, 300) | st.sampled_from([576, 1024, 4096, 8199, 16384]),
    seed=st.integers(0, 2**32 - 1),
)
def test_matches_the_oracle(device: Device, stream: Stream, dtype: DType, tokens: int, hidden: int, seed: int) -> None:
    x, weight = draw(dtype, tokens, hidden, seed)
    out = Guarded(device, x.shape, dtype)
    rms_norm(out.array, device.upload(x), device.upload(weight), eps=EPS, stream=stream)
    actual, expected = out.fetch(), reference.rms_norm(x, weight, EPS)
    for token in range(tokens):
        assert_close(actual[token], expected[token])


@pytest.mark.parametrize("dtype", FLOAT_TYPES, ids=str)
def test_the_result_may_replace_the_input(device: Device, stream: Stream, dtype: DType) -> None:
    x, weight = draw(dtype, 3, 130, seed=1)
    inout = Guarded(device, x.shape, dtype, x)
    rms_norm(inout.array, inout.array, device.upload(weight), eps=EPS, stream=stream)
    assert_close(inout.fetch(), reference.rms_norm(x, weight, EPS))


def test_a_vector_of_zeros_stays_zero(device: Device, stream: Stream) -> None:
    out = Guarded(device, (1, 64), float32)
    zeros, weight = device.upload(np.zeros((1, 64), np.float32)), device.upload(np.ones(64, np.float32))
    rms_norm(out.array, zeros, weight, eps=EPS, stream=stream)
    assert not out.fetch().any()


def test_mismatched_arguments_are_named(device: Device, stream: Stream) -> None:
    x, weight = device.empty((2, 8), float32), device.empty((8,), bfloat16)
    with pytest.raises(TypeError, match="rms_norm: weight is bfloat16, but out is float32"):
        rms_norm(x, x, weight, eps=EPS, stream=stream)
