"""Root-mean-square normalisation."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.check import check
from cupy_turbo.ops.geometry import block_threads


def rms_norm(out: Array, x: Array, weight: Array, *, eps: float, stream: Stream) -> None:
    """Scale every token's vector to unit root mean square, then by a weight.

    Parameters
    ----------
    out : Array, (T, H), written
        float32, float16 or bfloat16; may be `x` itself.
    x : Array, (T, H), dtype of `out`
    weight : Array, (H,), dtype of `out`
    eps : float
        > 0, added to the mean square; in units of x².
    stream : Stream
        What the launch is queued on.

    Notes
    -----
    **Source:** ``kernels/rms_norm.cu`` (Zhang & Sennrich 2019).
    """
    dims = check("rms_norm", out=(out, "T H"), x=(x, "T H"), weight=(weight, "H"))
    if dims.T == 0:
        return
    kernel = stream.device.kernel("rms_norm", TYPE=dims.type_name)
    kernel(dims.T, block_threads(stream, dims.H * x.dtype.itemsize // 16), (out, x, weight, dims.H, eps), stream=stream)
