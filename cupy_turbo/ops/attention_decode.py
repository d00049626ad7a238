"""Attention of one new token a sequence over the paged cache, split along the sequence."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.attention_arguments import attention_arguments, power_of_two
from cupy_turbo.ops.attention_combine import attention_combine
from cupy_turbo.ops.check import FLOAT32, INT32, check

_THREADS = 128
_MAX_HEADS = 8  # query heads of a block: their queries and sums live in registers


def attention_decode_scratch(rows: int, heads: int, head_dim: int, splits: int) -> int:
    """Return how many float32 `attention_decode` needs in `partial`.

    Examples
    --------
    >>> attention_decode_scratch(rows=2, heads=4, head_dim=64, splits=8)
    4224
    """
    return rows * heads * splits * (head_dim + 2)


def attention_decode(
    out: Array,
    qkv: Array,
    k_cache: Array,
    v_cache: Array,
    block_table: Array,
    perm: Array,
    finished: Array,
    context_len: Array,
    partial: Array,
    *,
    num_heads: int,
    num_rows: int,
    num_splits: int,
    scale: float,
    lanes: int | None = None,
    stream: Stream,
) -> None:
    """Let the single token of every row attend to its sequence.

    Parameters
    ----------
    out : Array, (T, Hq * D), written
        float32, float16 or bfloat16; token i belongs to row i. Zeros for a row that is masked.
    qkv : Array, (T, (Hq + 2 * Hkv) * D), dtype of `out`
        Rotated queries first; keys and values are read from the cache, where this step's are too.
    k_cache, v_cache : Array, (NB, Hkv, block size, D), dtype of `out`
        D a multiple of 8 from 8 to 256. Nothing beyond `context_len` is read.
    block_table : Array, (S, MB) int32
        Blocks of each slot, in order.
    perm : Array, (R,) int32
        Slot of the row; -1 masks it.
    finished : Array, (S,) int32
        Not zero masks the slot's row.
    context_len : Array, (R,) int32
        Tokens of the sequence, this one included; 0 masks the row.
    partial : Array, (at least `attention_decode_scratch`,) float32, overwritten
        Results of the splits; needs no initial value.
    num_heads : int
        Hq, a multiple of Hkv.
    num_rows : int
        Rows to handle, the first ones; at most T and R.
    num_splits : int
        >= 1; a sequence is cut into up to this many pieces of at least 64 tokens. It fixes the launch, so that one
        CUDA graph serves any lengths; pieces without tokens exit at once.
    scale : float
        Factor of the scores, usually ``D ** -0.5``.
    lanes : int, optional
        Threads that share a token, a power of two up to 32. By default what suits the device: 1 on the host, else one
        for every 16 bytes.
    stream : Stream
        What the launches are queued on.

    Raises
    ------
    ValueError, TypeError
        If shapes or dtypes do not match, or `partial` is too small.

    Notes
    -----
    **Source:** ``kernels/attention_decode.cu``, ``kernels/attention_combine.cu`` (Flash-Decoding with a block table).
    """
    name = "attention_decode"
    args = attention_arguments(name, out, qkv, k_cache, v_cache, block_table, perm, context_len, num_heads)
    state = {"block_table": (block_table, "S MB", INT32), "finished": (finished, "S", INT32)}
    check(name, **state, partial=(partial, "P", FLOAT32))
    if not 0 <= num_rows <= min(args.rows, args.tokens):
        raise ValueError(f"{name}: num_rows is {num_rows}, must be from 0 to {min(args.rows, args.tokens)}")
    if num_splits < 1:
        raise ValueError(f"{name}: num_splits is {num_splits}, must be at least 1")
    scratch = attention_decode_scratch(num_rows, num_heads, args.head_dim, num_splits)
    if partial.size < scratch:
        raise ValueError(f"{name}: partial has {partial.size} elements, needs {scratch}")
    if num_rows == 0:
        return

    chunks = args.head_dim * out.dtype.itemsize // 16
    if lanes is None:
        lanes = 1 if stream.device.kind == "host" else min(32, power_of_two(chunks))
    own = -(-chunks // lanes)  # 16-byte chunks of a token that one lane holds
    ratio = num_heads // args.num_kv_heads
    heads = min(ratio, _MAX_HEADS if lanes == 1 else _MAX_HEADS // own)
    keys, stages = (4, 3) if heads * own <= 4 else (2, 4)  # of a step, while registers last; steps in the ring
    threads = 1 if lanes == 1 else _THREADS
    ring = 0 if lanes == 1 else stages * keys * own * 2 * 16 * threads
    kernel = stream.device.kernel(
        name,
        TYPE=args.type_name,
        HEAD_DIM=args.head_dim,
        BLOCK_SIZE=args.block_size,
        HEADS=heads,
        LANES=lanes,
        KEYS=keys,
        STAGES=stages,
    )
    arrays = (partial, qkv, k_cache, v_cache, block_table, perm, finished, context_len)
    sizes = (num_heads, args.num_kv_heads, args.max_blocks, scale)
    grid = (num_splits, args.num_kv_heads * -(-ratio // heads), num_rows)
    shared = max(ring, threads // lanes * heads * (args.head_dim + 2) * 4)
    kernel(grid, threads, (*arrays, *sizes), shared_bytes=shared, stream=stream)
    attention_combine(
        out[:num_rows],
        partial,
        perm,
        finished,
        context_len,
        head_dim=args.head_dim,
        num_splits=num_splits,
        stream=stream,
    )
