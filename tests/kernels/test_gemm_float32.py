"""gemm_float32.cu against its oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.dtypes import bfloat16, float32
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.gemm_float32 import gemm_float32
from cupy_turbo.testing.arrays import Guarded, assert_close
from cupy_turbo.testing.examples import examples
from cupy_turbo.testing.reference_gemm import gemm


def run(device: Device, stream: Stream, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Multiply, with NaN around every array."""
    out = Guarded(device, (len(x), len(weight)), float32)
    operands = [Guarded(device, values.shape, float32, values).array for values in (x, weight)]
    gemm_float32(out.array, *operands, stream=stream)
    return out.fetch()


@settings(max_examples=examples(30))
@given(m=st.integers(0, 140), n=st.integers(0, 140), k=st.integers(0, 70), seed=st.integers(0, 2**32 - 1))
def test_matches_the_oracle(device: Device, stream: Stream, m: int, n: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, weight = rng.normal(size=(m, k)).astype(float32), rng.normal(size=(n, k)).astype(float32)
    assert_close(run(device, stream, x, weight), gemm(x, weight))


def test_a_result_has_the_same_bits_in_any_matrix(device: Device, stream: Stream) -> None:
    rng = np.random.default_rng(3)
    x, weight = rng.normal(size=(70, 200)).astype(float32), rng.normal(size=(65, 200)).astype(float32)
    whole = run(device, stream, x, weight)
    part = run(device, stream, x[60:], weight[10:20])
    assert np.array_equal(part.view(np.uint32), whole[60:, 10:20].view(np.uint32))


def test_products_are_not_rounded_to_a_shorter_type(device: Device, stream: Stream) -> None:
    x = np.full((9, 4), 1.0 + 2.0**-23, float32)  # the last bit of float32
    assert np.array_equal(run(device, stream, x, np.eye(4, dtype=float32)), x)


def test_other_types_are_refused(device: Device, stream: Stream) -> None:
    x, weight = device.empty((9, 8), bfloat16), device.empty((3, 8), bfloat16)
    with pytest.raises(TypeError, match="gemm_float32: x is bfloat16, expected float32"):
        gemm_float32(device.empty((9, 3), float32), x, weight, stream=stream)
