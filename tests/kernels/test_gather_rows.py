"""gather_rows.cu against its oracle."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.dtypes import FLOAT_TYPES, DType
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.gather_rows import gather_rows
from cupy_turbo.testing import reference
from cupy_turbo.testing.arrays import Guarded
from cupy_turbo.testing.examples import examples


@settings(max_examples=examples(40))
@given(
    dtype=st.sampled_from(FLOAT_TYPES),
    count=st.integers(1, 20),
    hidden=st.sampled_from([1, 5, 16, 77, 1024]),
    rows=st.lists(st.integers(-2, 22) | st.sampled_from([2**31 - 1, -(2**31)]), max_size=12),
    seed=st.integers(0, 2**32 - 1),
)
def test_chosen_rows_are_copied_and_others_are_zero(
    device: Device, stream: Stream, dtype: DType, count: int, hidden: int, rows: list[int], seed: int
) -> None:
    x = np.random.default_rng(seed).normal(size=(count, hidden)).astype(dtype)
    chosen = np.array(rows, np.int32)
    out = Guarded(device, (len(rows), hidden), dtype)
    gather_rows(out.array, device.upload(x), device.upload(chosen), stream=stream)
    assert np.array_equal(out.fetch().astype(np.float64), reference.gather_rows(x, chosen))
