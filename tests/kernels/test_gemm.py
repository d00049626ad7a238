"""The choice among the matrix products: every number of rows gives the right result on every device."""

from __future__ import annotations

import numpy as np
import pytest

from cupy_turbo.core.dtypes import DType, bfloat16, float16, float32
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.gemm import SMALL_ROWS_16_BIT, SMALL_ROWS_FLOAT32, gemm
from cupy_turbo.testing import reference_gemm
from cupy_turbo.testing.arrays import Guarded, assert_close

ROWS = (0, 1, SMALL_ROWS_16_BIT, SMALL_ROWS_16_BIT + 1, SMALL_ROWS_FLOAT32, SMALL_ROWS_FLOAT32 + 1, 70)


@pytest.mark.parametrize("m", ROWS)
@pytest.mark.parametrize("dtype", [float32, float16, bfloat16], ids=str)
@pytest.mark.parametrize("is_logits", [False, True])
def test_matches_the_oracle(device: Device, stream: Stream, m: int, dtype: DType, is_logits: bool) -> None:
    rng = np.random.default_rng(m)
    x, weight = rng.normal(size=(m, 264)).astype(dtype), rng.normal(size=(77, 264)).astype(dtype)
    out = Guarded(device, (m, 77), float32 if is_logits else dtype)
    gemm(out.array, device.upload(x), device.upload(weight), stream=stream)
    assert_close(out.fetch(), reference_gemm.gemm(x, weight))


def test_mismatched_arguments_are_named(device: Device, stream: Stream) -> None:
    for m in (1, 70):
        x, weight = device.empty((m, 8), bfloat16), device.empty((3, 8), float32)
        with pytest.raises(TypeError, match="weight is float32, but x is bfloat16"):
            gemm(device.empty((m, 3), bfloat16), x, weight, stream=stream)
