"""Matrix product of few rows: the weights pass by once."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.gemm_arguments import gemm_arguments

_THREADS = 128
_STAGES = {1: 8, 2: 6, 4: 4}  # of a thread's ring, by rows of weight: some 112 to 192 bytes in flight
_RESIDENT = {1: 8, 2: 6, 4: 4}  # blocks that a processor holds, by rows of weight: registers and shared memory
_LARGEST_TILE = {1: 4, 32: 8}  # rows of x at a time, by lanes; more would not fit the registers
_HOST_BLOCKS = 8  # for each core: enough to even out, few enough to start quickly


def gemm_small(
    out: Array, x: Array, weight: Array, *, lanes: int | None = None, rows: int | None = None, stream: Stream
) -> None:
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
    rows : {1, 2, 4}, optional
        Rows of `weight` that those threads handle at a time. By default as many as leave every processor seven units
        of work: more share what is done to `x`, fewer spread better.
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
    processors = stream.device.num_processors
    if rows is None:
        rows = 4 if lanes == 1 or args.n >= 28 * processors else 2 if args.n >= 14 * processors else 1
    tile = min(_LARGEST_TILE[lanes], 1 << (args.m - 1).bit_length())
    units = -(-args.n // rows)
    if lanes == 1:
        threads, shared, blocks = 1, 0, min(units, _HOST_BLOCKS * processors)
    else:
        threads, shared = _THREADS, 16 * _STAGES[rows] * rows * _THREADS if args.is_aligned else 0
        blocks = min(-(-units * lanes // threads), _RESIDENT[rows] * processors)
    kernel = stream.device.kernel(
        "gemm_small",
        TYPE=args.type_name,
        OUT=args.out_name,
        TILE_M=tile,
        ROWS=rows,
        LANES=lanes,
        STAGES=_STAGES[rows],
        ALIGNED=int(args.is_aligned),
    )
    kernel(blocks, threads, (out, x, weight, args.m, args.n, args.k), shared_bytes=shared, stream=stream)
