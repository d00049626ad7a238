"""Normal variates."""

from __future__ import annotations

from cupy_turbo.core.dtypes import FLOAT_TYPES, c_name
from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream


def random_normal(out: Array, *, std: float, seed: int, stream: Stream) -> None:
    """Fill an array with normal variates of mean 0.

    Parameters
    ----------
    out : Array, any shape, written
        float32, float16 or bfloat16.
    std : float
        Standard deviation, >= 0.
    seed : int
        0 to 2^64 - 1. The value at a flat index depends on the seed and that index only; devices may differ in the
        last bits.
    stream : Stream
        What the launch is queued on.

    Raises
    ------
    TypeError
        If `out` is of another dtype.

    Notes
    -----
    Variates reach 5.8 standard deviations: the uniform variates behind them have 23 bits.

    **Source:** ``kernels/random_normal.cu`` (Box & Muller 1958; Salmon et al. 2011).
    """
    if out.dtype not in FLOAT_TYPES:
        raise TypeError(f"random_normal: out is {out.dtype}, expected one of {', '.join(map(str, FLOAT_TYPES))}")
    if out.size == 0:
        return
    threads = 32 if stream.device.kind == "host" else 256
    blocks = min(-(-out.size // (4 * threads)), 16 * stream.device.num_processors)
    kernel = stream.device.kernel("random_normal", TYPE=c_name(out.dtype))
    kernel(blocks, threads, (out, out.size, std, seed), stream=stream)
