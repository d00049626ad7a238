"""gemm_small.cu against its oracle, with one lane a row (as on the host) and with a warp (as on a GPU)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.dtypes import DType, bfloat16, float16, float32
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.gemm_small import gemm_small
from cupy_turbo.testing.arrays import Guarded, assert_close
from cupy_turbo.testing.examples import examples
from cupy_turbo.testing.reference_gemm import gemm

TYPES = [(float32, float32), (bfloat16, bfloat16), (float16, float32)]  # of the operands, of the result
LANES = [1, 32]


def draw(dtype: DType, m: int, n: int, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(n, k)).astype(dtype)


def run(device: Device, stream: Stream, x: np.ndarray, weight: np.ndarray, out_dtype: DType, lanes: int) -> np.ndarray:
    """Multiply, with NaN around every array."""
    out = Guarded(device, (len(x), len(weight)), out_dtype)
    operands = [Guarded(device, values.shape, values.dtype, values).array for values in (x, weight)]
    gemm_small(out.array, *operands, lanes=lanes, stream=stream)
    return out.fetch()


@settings(max_examples=examples(60))
@given(
    types=st.sampled_from(TYPES),
    lanes=st.sampled_from(LANES),
    m=st.sampled_from([0, 1, 3, 4, 9]),
    n=st.integers(0, 70),
    k8=st.integers(0, 80) | st.sampled_from([256, 288, 600]),
    seed=st.integers(0, 2**32 - 1),
)
def test_matches_the_oracle(
    device: Device, stream: Stream, types: tuple[DType, DType], lanes: int, m: int, n: int, k8: int, seed: int
) -> None:
    x, weight = draw(types[0], m, n, 8 * k8, seed)
    assert_close(run(device, stream, x, weight, types[1], lanes), gemm(x, weight))


@settings(max_examples=examples(20))
@given(
    dtype=st.sampled_from([float32, bfloat16]),
    lanes=st.sampled_from(LANES),
    n=st.integers(1, 9),
    k=st.integers(1, 300),
    seed=st.integers(0, 2**32 - 1),
)
def test_rows_may_have_any_length(
    device: Device, stream: Stream, dtype: DType, lanes: int, n: int, k: int, seed: int
) -> None:
    x, weight = draw(dtype, 3, n, k, seed)
    assert_close(run(device, stream, x, weight, dtype, lanes), gemm(x, weight))


@pytest.mark.parametrize("lanes", LANES)
def test_a_row_has_the_same_bits_in_any_batch(device: Device, stream: Stream, lanes: int) -> None:
    x, weight = draw(bfloat16, 9, 33, 1000, seed=5)
    together = run(device, stream, x, weight, float32, lanes)
    for row in range(len(x)):
        alone = run(device, stream, x[row : row + 1], weight, float32, lanes)
        assert np.array_equal(alone[0].view(np.uint32), together[row].view(np.uint32))


@pytest.mark.parametrize("lanes", LANES)
def test_a_nan_stays_in_its_row_and_an_infinity_in_its_column(device: Device, stream: Stream, lanes: int) -> None:
    x, weight = draw(float32, 4, 10, 136, seed=1)
    x[2, 135], weight[7, 0] = np.nan, np.inf
    out = run(device, stream, x, weight, float32, lanes)
    assert np.isnan(out[2]).all()
    assert np.isinf(np.delete(out, 2, axis=0)[:, 7]).all()
    assert np.isfinite(np.delete(np.delete(out, 2, axis=0), 7, axis=1)).all()


def test_mismatched_arguments_are_named(device: Device, stream: Stream) -> None:
    x, weight = device.empty((2, 8), bfloat16), device.empty((3, 8), bfloat16)
    with pytest.raises(ValueError, match=r"gemm_small: out has shape \(2, 4\), expected \(M, N\): N is 3 in weight"):
        gemm_small(device.empty((2, 4), bfloat16), x, weight, stream=stream)
    with pytest.raises(ValueError, match="K is 8 in x"):
        gemm_small(device.empty((2, 3), bfloat16), x, device.empty((3, 9), bfloat16), stream=stream)
    with pytest.raises(TypeError, match="gemm_small: out is float16, expected bfloat16, as x, or float32"):
        gemm_small(device.empty((2, 3), float16), x, weight, stream=stream)
