"""random_normal.cu against its oracle, and against the normal distribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.dtypes import FLOAT_TYPES, DType, c_name, float32
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.random_normal import random_normal
from cupy_turbo.testing import reference_sampling as reference
from cupy_turbo.testing.arrays import Guarded, assert_close
from cupy_turbo.testing.examples import examples


def run(device: Device, stream: Stream, size: int, dtype: DType, std: float, seed: int) -> np.ndarray:
    out = Guarded(device, size, dtype)
    random_normal(out.array, std=std, seed=seed, stream=stream)
    return out.fetch()


@settings(max_examples=examples(40))
@given(
    dtype=st.sampled_from(FLOAT_TYPES),
    size=st.integers(0, 600),
    std=st.floats(0.01, 10),
    seed=st.integers(0, 2**64 - 1),
)
def test_matches_the_oracle(device: Device, stream: Stream, dtype: DType, size: int, std: float, seed: int) -> None:
    assert_close(run(device, stream, size, dtype, std, seed), reference.random_normal(size, std, seed))


def test_the_distribution_is_normal(device: Device, stream: Stream) -> None:
    """Mean, variance, skewness and kurtosis within 5 standard errors at a fixed seed."""
    count = 200_000
    values = run(device, stream, count, float32, 1.0, seed=3).astype(np.float64)
    for power, expected, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((values**power).mean() - expected) < 5 * np.sqrt(variance / count), power
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 5 / np.sqrt(count)


def test_another_seed_gives_other_values(device: Device, stream: Stream) -> None:
    first, second = (run(device, stream, 4096, float32, 1.0, seed) for seed in (0, 2**63))
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(4096)


@pytest.mark.parametrize("dtype", FLOAT_TYPES, ids=str)
def test_values_do_not_depend_on_the_launch(device: Device, stream: Stream, dtype: DType) -> None:
    kernel = device.kernel("random_normal", TYPE=c_name(dtype))
    results = []
    for blocks, threads in ((1, 32), (5, 64), (40, 32)):
        out = Guarded(device, 1003, dtype)
        kernel(blocks, threads, (out.array, 1003, 0.5, 42), stream=stream)
        results.append(out.fetch().tobytes())
    assert results[0] == results[1] == results[2] == run(device, stream, 1003, dtype, 0.5, 42).tobytes()


def test_integers_are_refused(device: Device, stream: Stream) -> None:
    with pytest.raises(TypeError, match="random_normal: out is int32"):
        random_normal(device.empty((4,), np.int32), std=1.0, seed=0, stream=stream)
