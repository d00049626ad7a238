"""Matrix product of float32 operands for many rows."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.check import FLOAT32, check

_TILE = 64  # rows and columns of a block's tile
_THREADS = 64


def gemm_float32(out: Array, x: Array, weight: Array, *, stream: Stream) -> None:
    """Multiply many float32 rows by a transposed weight matrix, in tiles.

    Parameters
    ----------
    out : Array, (M, N) float32, written
        M <= 4,194,240.
    x : Array, (M, K) float32
    weight : Array, (N, K) float32
    stream : Stream
        What the launch is queued on.

    Raises
    ------
    ValueError, TypeError
        If shapes or dtypes do not match.

    Notes
    -----
    Float32 products are not rounded to TF32: tensor cores are not used.

    **Source:** ``kernels/gemm_float32.cu``.
    """
    dims = check("gemm_float32", x=(x, "M K", FLOAT32), weight=(weight, "N K", FLOAT32), out=(out, "M N", FLOAT32))
    if dims.M == 0 or dims.N == 0:
        return
    grid = (-(-dims.N // _TILE), -(-dims.M // _TILE))
    kernel = stream.device.kernel("gemm_float32")
    kernel(grid, _THREADS, (out, x, weight, dims.M, dims.N, dims.K), stream=stream)
