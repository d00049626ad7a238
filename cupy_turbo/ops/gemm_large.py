"""Matrix product of 16-bit operands on tensor cores, and the choice of its tile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from cupy_turbo.core.protocols import Array, Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.check import FLOAT32
from cupy_turbo.ops.gemm_arguments import gemm_arguments


@dataclass(frozen=True, slots=True)
class Tile:
    """Tile of one block: its rows and columns of the result, depth of a stage, warps along each, stages of the ring."""

    rows: int
    columns: int
    depth: int
    warps_m: int
    warps_n: int
    warps_k: int
    stages: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps_m * self.warps_n * self.warps_k

    @property
    def stage_bytes(self) -> int:
        """Shared memory of one stage of the ring."""
        return 2 * (self.rows + self.columns) * self.depth

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block: the ring, in whose place the sums leave at the end."""
        return max(self.stages * self.stage_bytes, 4 * self.warps_k * self.rows * (self.columns + 8))

    @property
    def define(self) -> str:
        """Value of the macro ``TILE``."""
        sizes = (self.rows, self.columns, self.depth, self.warps_m, self.warps_n, self.warps_k, self.stages)
        return ",".join(map(str, sizes))

    def seconds(self, m: int, n: int, k: int, processors: int) -> float:
        """Estimate the time of a product on a GPU with this many processors, to rank tiles.

        The busiest processor has the longest queue of blocks; a block costs what its operations or its operands, which
        come from L2, take, whichever is more. Larger warp tiles use tensor cores better, rereading shared memory less.
        """
        blocks = -(-m // self.rows) * -(-n // self.columns)
        warp_rows, warp_columns = self.rows // self.warps_m, self.columns // self.warps_n
        efficiency = warp_rows * warp_columns / (warp_rows * warp_columns + 16 * (warp_rows + warp_columns))
        arithmetic = 2 * self.rows * self.columns * k / (_OPERATIONS * efficiency)
        traffic = 2 * (self.rows + self.columns) * k / _L2_BYTES
        return -(-blocks // processors) * max(arithmetic, traffic)


# Per second and processor, H200: mma.sync issues 62 % of its 989 TFLOP/s; L2 hands out some 6 TB/s in all.
_OPERATIONS = 4.7e12
_L2_BYTES = 45e9

TILES = (
    Tile(128, 256, 64, 2, 4, 1, 3),
    Tile(128, 128, 64, 2, 2, 1, 3),
    Tile(64, 128, 64, 1, 4, 1, 4),
    Tile(64, 64, 128, 1, 2, 2, 3),
    Tile(64, 32, 128, 1, 1, 4, 6),
    Tile(32, 64, 128, 1, 2, 2, 4),
    Tile(32, 32, 256, 1, 1, 4, 4),
    Tile(16, 64, 128, 1, 2, 2, 5),
    Tile(16, 32, 256, 1, 1, 4, 6),
)
"""Large tiles do more with what they load; small ones give every processor work when rows are few."""


@lru_cache(maxsize=4096)
def choose_tile(m: int, n: int, k: int, *, processors: int, shared_limit: int) -> Tile:
    """Return the tile with the shortest estimated time, its ring cut to the shared memory of a block.

    Parameters
    ----------
    m, n, k : int
        Sizes of the product.
    processors : int
        Of the GPU.
    shared_limit : int, bytes
        Dynamic shared memory that a block may have.

    Examples
    --------
    >>> choose_tile(2048, 28672, 4096, processors=132, shared_limit=232448).define
    '128,256,64,2,4,1,3'
    >>> choose_tile(64, 4096, 4096, processors=132, shared_limit=232448).define
    '64,32,128,1,1,4,6'
    """
    fitting = [replace(tile, stages=min(tile.stages, shared_limit // tile.stage_bytes)) for tile in TILES]
    possible = [tile for tile in fitting if tile.stages >= 2 and tile.shared_bytes <= shared_limit]
    return min(possible, key=lambda tile: tile.seconds(m, n, k, processors))


def shared_limit(device: Device) -> int:
    """Bytes of dynamic shared memory that a block of this device may have."""
    major, minor = device.compute_capability or (9, 0)
    if (major, minor) in ((8, 0), (8, 7)):
        return 163 * 1024
    return 227 * 1024 if major in (9, 10) else 99 * 1024


def gemm_large(out: Array, x: Array, weight: Array, *, tile: Tile | None = None, stream: Stream) -> None:
    """Multiply many 16-bit rows by a transposed weight matrix on tensor cores.

    Parameters
    ----------
    out : Array, (M, N), written
        Dtype of `x`, or float32.
    x : Array, (M, K)
        float16 or bfloat16.
    weight : Array, (N, K), dtype of `x`
    tile : Tile, optional
        By default `choose_tile` of the shape and device.
    stream : Stream
        What the launch is queued on.

    Raises
    ------
    ValueError, TypeError
        If shapes or dtypes do not match.

    Notes
    -----
    **Source:** ``kernels/gemm_large.cu``.
    """
    args = gemm_arguments("gemm_large", out, x, weight)
    if x.dtype == FLOAT32:
        raise TypeError("gemm_large: x is float32, expected float16 or bfloat16; use gemm_float32")
    if args.m == 0 or args.n == 0:
        return
    device = stream.device
    if tile is None:
        limit = shared_limit(device)
        tile = choose_tile(args.m, args.n, args.k, processors=device.num_processors, shared_limit=limit)
    kernel = device.kernel(
        "gemm_large", TYPE=args.type_name, OUT=args.out_name, TILE=tile.define, ALIGNED=int(args.is_aligned)
    )
    blocks = -(-args.m // tile.rows) * -(-args.n // tile.columns)
    operands = (out, x, weight, args.m, args.n, args.k)
    kernel(blocks, tile.threads, operands, shared_bytes=tile.shared_bytes, stream=stream)
