"""Attention of chunks of new tokens without tensor cores: float32, odd head sizes, and the host."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.attention_arguments import attention_arguments, power_of_two
from cupy_turbo.ops.check import INT32, check

_THREADS = 128
_HOST_BLOCKS = 8  # of a head and row: a block costs more to start than a short query to compute


def attention_prefill_simt(
    out: Array,
    qkv: Array,
    k_cache: Array,
    v_cache: Array,
    block_table: Array,
    perm: Array,
    query_start: Array,
    context_len: Array,
    *,
    num_heads: int,
    first_row: int,
    num_rows: int,
    max_query_len: int,
    scale: float,
    lanes: int | None = None,
    stream: Stream,
) -> None:
    """Let every new token of some rows attend to its sequence up to itself, on the float units.

    Parameters
    ----------
    out, qkv, k_cache, v_cache, block_table, perm, query_start, context_len : Array
        As `attention_prefill`.
    num_heads, first_row, num_rows, max_query_len : int
        As `attention_prefill`.
    scale : float
        As `attention_prefill`.
    lanes : {1, 8, 16}, optional
        Threads that share a query. By default what suits the device: 1 on the host, else as many as it takes for a
        query to fit their registers.
    stream : Stream
        What the launch is queued on.

    Raises
    ------
    ValueError, TypeError
        If shapes, dtypes or rows do not match.

    Notes
    -----
    **Source:** ``kernels/attention_prefill_simt.cu``.
    """
    name = "attention_prefill_simt"
    args = attention_arguments(name, out, qkv, k_cache, v_cache, block_table, perm, context_len, num_heads)
    prefill_rows(name, args.rows, query_start, first_row, num_rows)
    if args.tokens == 0 or num_rows == 0 or max_query_len == 0:
        return
    if lanes is None:
        chunks = args.head_dim * out.dtype.itemsize // 16
        lanes = 1 if stream.device.kind == "host" else max(8, power_of_two(-(-chunks // 4)))
    threads = 1 if lanes == 1 else _THREADS
    blocks = min(max_query_len, _HOST_BLOCKS) if lanes == 1 else -(-max_query_len * lanes // threads)
    kernel = stream.device.kernel(
        name, TYPE=args.type_name, HEAD_DIM=args.head_dim, BLOCK_SIZE=args.block_size, LANES=lanes
    )
    arrays = (out, qkv, k_cache, v_cache, block_table, perm, query_start, context_len)
    sizes = (first_row, num_heads, args.num_kv_heads, args.max_blocks, scale)
    kernel((blocks, num_heads, num_rows), threads, (*arrays, *sizes), stream=stream)


def prefill_rows(op: str, rows: int, query_start: Array, first_row: int, num_rows: int) -> None:
    """Check the rows of a prefill: `query_start` has one entry more than them, and the range lies within.

    Raises
    ------
    ValueError, TypeError
        If they do not match.
    """
    dims = check(op, query_start=(query_start, "R+1", INT32))
    if rows != dims.R:
        raise ValueError(f"{op}: query_start has {dims.R + 1} entries, expected {rows + 1}: one a row and the end")
    if first_row < 0 or num_rows < 0 or first_row + num_rows > rows:
        raise ValueError(f"{op}: rows {first_row} to {first_row + num_rows} are not within the {rows} rows")
