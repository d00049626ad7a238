"""Selection of rows."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.check import INT32, check
from cupy_turbo.ops.geometry import block_threads


def gather_rows(out: Array, x: Array, rows: Array, *, stream: Stream) -> None:
    """Copy chosen rows of a matrix.

    Parameters
    ----------
    out : Array, (M, H), written
        float32, float16 or bfloat16; must not overlap `x`.
    x : Array, (T, H), dtype of `out`
    rows : Array, (M,) int32
        Row of `x` for each row of `out`; one outside `x`, such as -1 for padding, gives zeros.
    stream : Stream
        What the launch is queued on.

    Notes
    -----
    **Source:** ``kernels/gather_rows.cu``.
    """
    dims = check("gather_rows", out=(out, "M H"), x=(x, "T H"), rows=(rows, "M", INT32))
    if dims.M == 0:
        return
    kernel = stream.device.kernel("gather_rows", TYPE=dims.type_name)
    kernel(
        dims.M, block_threads(stream, dims.H * out.dtype.itemsize // 16), (out, x, rows, dims.H, dims.T), stream=stream
    )
