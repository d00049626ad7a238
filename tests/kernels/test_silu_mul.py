"""silu_mul.cu against its oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.dtypes import FLOAT_TYPES, DType, float32
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.silu_mul import silu_mul
from cupy_turbo.testing import reference
from cupy_turbo.testing.arrays import Guarded, assert_close
from cupy_turbo.testing.examples import examples


@settings(max_examples=examples(40))
@given(
    dtype=st.sampled_from(FLOAT_TYPES),
    tokens=st.integers(0, 7),
    width=st.integers(1, 300) | st.sampled_from([1536, 5003]),
    seed=st.integers(0, 2**32 - 1),
)
def test_matches_the_oracle(device: Device, stream: Stream, dtype: DType, tokens: int, width: int, seed: int) -> None:
    gate_up = (4 * np.random.default_rng(seed).normal(size=(tokens, 2 * width))).astype(dtype)
    out = Guarded(device, (tokens, width), dtype)
    silu_mul(out.array, device.upload(gate_up), stream=stream)
    assert_close(out.fetch(), reference.silu_mul(gate_up))


def test_large_gates_saturate(device: Device, stream: Stream) -> None:
    gates = np.array([-1e30, -200.0, -88.0, 0.0, 88.0, 1e30], np.float32)
    gate_up = np.concatenate([gates, np.ones(6, np.float32)])[None]
    out = Guarded(device, (1, 6), float32)
    silu_mul(out.array, device.upload(gate_up), stream=stream)
    expected = [0.0, 0.0, 0.0, 0.0, 88.0, 1e30]
    np.testing.assert_allclose(out.fetch()[0], expected, rtol=1e-6, atol=1e-35)


def test_a_gate_without_its_half_is_an_error(device: Device, stream: Stream) -> None:
    with pytest.raises(ValueError, match=r"gate_up has shape \(1, 7\), expected \(T, 2F\): F is 4 in out"):
        silu_mul(device.empty((1, 4), float32), device.empty((1, 7), float32), stream=stream)
