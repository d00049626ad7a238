"""Matrix product of few rows: the weights pass by once."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.gemm_arguments import gemm_arguments

_THREADS = 256
_LARGEST_TILE = {1: 4, 32: 8}  # rows of x at a time, by lanes; more would not fit the registers
_HOST_BLOCKS = 8  # for each core: enough to even out, few enough to start quickly


def gemm_small(out: Array, x: Array, weight: Array, *, lanes: int | None = None, stream: Stream) -> None:
    """Multiply few rows by a transposed weight matrix, reading the weights once for every eight of them.

    Parameters
    ----------
    out : Array, (M, N), written
        Dtype of `x`, or float32.
    x : Array, (M, K)
        float32, float16 or bfloat16; any M, but made for M <= 8.
    weight : Array, (N, K), dtype of `x`
    lanes : {1, 32}, optional
        Threads that share a row of `weight`. By default what suits the device: a warp on a GPU, 1 on the host, where
        a sum over a warp costs more than a row.
    stream : Stream
        What the launch is queued on.

    Raises
    ------
    ValueError, TypeError
        If shapes or dtypes do not match.

    Notes
    -----
    A row of `out` has the same bits whatever M is.

    **Source:** ``kernels/gemm_small.cu``.
    """
    args = gemm_arguments("gemm_small", out, x, weight)
    if args.m == 0 or args.n == 0:
        return
    if lanes is None:
        lanes = 1 if stream.device.kind == "host" else 32
    tile = min(_LARGEST_TILE[lanes], 1 << (args.m - 1).bit_length())
    rows = 4 if lanes == 1 else 1 if tile == 1 else 2  # rows of weight that a group of lanes handles at a time
    stages = 8 if rows == 1 else 6
    units = -(-args.n // rows)
    if lanes == 1:
        threads, shared, blocks = 1, 0, min(units, _HOST_BLOCKS * stream.device.num_processors)
    else:
        threads, shared = _THREADS, 16 * stages * rows * _THREADS if args.is_aligned else 0
        resident = 4 if rows == 1 else 3  # blocks that a processor holds, by shared memory
        blocks = min(-(-units * lanes // threads), resident * stream.device.num_processors)
    kernel = stream.device.kernel(
        "gemm_small",
        TYPE=args.type_name,
        OUT=args.out_name,
        TILE_M=tile,
        ROWS=rows,
        LANES=lanes,
        STAGES=stages,
        ALIGNED=int(args.is_aligned),
    )
    kernel(blocks, threads, (out, x, weight, args.m, args.n, args.k), shared_bytes=shared, stream=stream)
