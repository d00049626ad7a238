"""Residual addition fused with root-mean-square normalisation."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.check import check
from cupy_turbo.ops.geometry import block_threads


def add_rms_norm(out: Array, residual: Array, x: Array, weight: Array, *, eps: float, stream: Stream) -> None:
    """Add `x` to the residual and normalise the sum.

    Parameters
    ----------
    out : Array, (T, H), written
        float32, float16 or bfloat16; may be `x` itself, must not be `residual`.
    residual : Array, (T, H), dtype of `out`, read and written
        Becomes ``residual + x``, rounded to its dtype; the rounded sum is what is normalised.
    x : Array, (T, H), dtype of `out`
    weight : Array, (H,), dtype of `out`
    eps : float
        > 0, added to the mean square; in units of residual².
    stream : Stream
        What the launch is queued on.

    Notes
    -----
    **Source:** ``kernels/add_rms_norm.cu`` (Zhang & Sennrich 2019; fused as in TurboMind).
    """
    dims = check("add_rms_norm", out=(out, "T H"), residual=(residual, "T H"), x=(x, "T H"), weight=(weight, "H"))
    if dims.T == 0:
        return
    kernel = stream.device.kernel("add_rms_norm", TYPE=dims.type_name)
    threads = block_threads(stream, dims.H * x.dtype.itemsize // 16)
    kernel(dims.T, threads, (out, residual, x, weight, dims.H, eps), stream=stream)
