"""Attention of chunks of new tokens over the paged cache: the kernel that suits device and type."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.attention_arguments import attention_arguments
from cupy_turbo.ops.attention_prefill_simt import attention_prefill_simt, prefill_rows
from cupy_turbo.ops.check import FLOAT32

_QUERIES = 64  # of a block, 16 a warp
_THREADS = 128


def attention_prefill(
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
    use_tensor_cores: bool | None = None,
    stream: Stream,
) -> None:
    """Let every new token of some rows attend to its sequence up to itself.

    Parameters
    ----------
    out : Array, (T, Hq * D), written
        float32, float16 or bfloat16; tokens of other rows, and of padding rows, are left alone.
    qkv : Array, (T, (Hq + 2 * Hkv) * D), dtype of `out`
        Rotated queries first; keys and values are read from the cache, where this step's are too.
    k_cache, v_cache : Array, (NB, Hkv, block size, D), dtype of `out`
        D a multiple of 8 from 8 to 256. Nothing beyond `context_len` is read.
    block_table : Array, (S, MB) int32
        Blocks of each slot, in order.
    perm : Array, (R,) int32
        Slot of the row; -1 skips it.
    query_start : Array, (R + 1,) int32
        First token of each row.
    context_len : Array, (R,) int32
        Tokens of the sequence; the row's L queries are its last L.
    num_heads : int
        Hq, a multiple of Hkv.
    first_row, num_rows : int
        Rows to handle.
    max_query_len : int
        At least the largest L of those rows.
    scale : float
        Factor of the scores, usually ``D ** -0.5``.
    use_tensor_cores : bool, optional
        By default on a GPU for 16-bit types where D is a multiple of 16. The host emulates them, slowly.
    stream : Stream
        What the launch is queued on.

    Raises
    ------
    ValueError, TypeError
        If shapes, dtypes or rows do not match, or tensor cores are asked for what they cannot do.

    Notes
    -----
    **Source:** ``kernels/attention_prefill.cu`` (FlashAttention-2 with a block table).
    """
    name = "attention_prefill"
    args = attention_arguments(name, out, qkv, k_cache, v_cache, block_table, perm, context_len, num_heads)
    prefill_rows(name, args.rows, query_start, first_row, num_rows)
    is_possible = out.dtype != FLOAT32 and args.head_dim % 16 == 0
    if use_tensor_cores and not is_possible:
        reason = f"{out.dtype} with head_dim {args.head_dim}"
        raise ValueError(f"{name}: tensor cores take float16 or bfloat16 and head_dim % 16 == 0, not {reason}")
    if use_tensor_cores is None:
        use_tensor_cores = is_possible and stream.device.kind == "cuda"
    arrays = (out, qkv, k_cache, v_cache, block_table, perm, query_start, context_len)
    if not use_tensor_cores:
        attention_prefill_simt(
            *arrays,
            num_heads=num_heads,
            first_row=first_row,
            num_rows=num_rows,
            max_query_len=max_query_len,
            scale=scale,
            stream=stream,
        )
        return
    if args.tokens == 0 or num_rows == 0 or max_query_len == 0:
        return
    keys = 64 if args.head_dim <= 128 else 32  # of a tile, as in the kernel
    shared = 2 * (args.head_dim + 8) * (_QUERIES + 4 * keys)
    grid = (-(-max_query_len // _QUERIES), num_heads, num_rows)
    kernel = stream.device.kernel(name, TYPE=args.type_name, HEAD_DIM=args.head_dim, BLOCK_SIZE=args.block_size)
    sizes = (first_row, num_heads, args.num_kv_heads, args.max_blocks, scale)
    kernel(grid, _THREADS, (*arrays, *sizes), shared_bytes=shared, stream=stream)
