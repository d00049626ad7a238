"""Matrix product with a weight matrix: the kernel that suits the number of rows."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.check import FLOAT32
from cupy_turbo.ops.gemm_float32 import gemm_float32
from cupy_turbo.ops.gemm_large import gemm_large
from cupy_turbo.ops.gemm_small import gemm_small

# Most rows for which streaming the weights through the float units is limited by memory: a 16-bit weight costs as many
# conversions as products.
SMALL_ROWS_16_BIT = 4
SMALL_ROWS_FLOAT32 = 8


def gemm(out: Array, x: Array, weight: Array, *, stream: Stream) -> None:
    """Multiply rows by a transposed weight matrix: ``out = x @ weight.T``.

    Parameters
    ----------
    out : Array, (M, N), written
        Dtype of `x`, or float32 (logits).
    x : Array, (M, K)
        float32, float16 or bfloat16.
    weight : Array, (N, K), dtype of `x`
        As checkpoints store it.
    stream : Stream
        What the launch is queued on.

    Raises
    ------
    ValueError, TypeError
        If shapes or dtypes do not match.

    Notes
    -----
    Sums are kept in float32. On a GPU few rows stream the weights (`gemm_small`), more use tensor cores (`gemm_large`)
    or, in float32, tiles of the float units (`gemm_float32`); the host has only one kind of unit, which `gemm_small`
    keeps busy for any number of rows.
    """
    rows = x.shape[0]
    if stream.device.kind == "host" or rows <= (SMALL_ROWS_FLOAT32 if x.dtype == FLOAT32 else SMALL_ROWS_16_BIT):
        gemm_small(out, x, weight, stream=stream)
    elif x.dtype == FLOAT32:
        gemm_float32(out, x, weight, stream=stream)
    else:
        gemm_large(out, x, weight, stream=stream)
