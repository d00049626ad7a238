"""Rotary positions, and the write of keys and values into the paged cache."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.check import FLOAT32, INT32, check
from cupy_turbo.ops.geometry import block_threads


def rope_kv_write(
    qkv: Array,
    k_cache: Array,
    v_cache: Array,
    cos_sin: Array,
    positions: Array,
    token_rows: Array,
    perm: Array,
    finished: Array,
    block_table: Array,
    *,
    num_heads: int,
    stream: Stream,
) -> None:
    """Rotate queries in place; write rotated keys, and values, to the token's place in the cache.

    Parameters
    ----------
    qkv : Array, (T, (Hq + 2 Hkv) * D), queries written
        float32, float16 or bfloat16. Queries of all heads, then keys, then values; keys stay unrotated here.
    k_cache, v_cache : Array, (NB, Hkv, BS, D), dtype of `qkv`, written
        D even.
    cos_sin : Array, (P, D) float32
        By position: D/2 cosines, then D/2 sines.
    positions : Array, (T,) int32
        Index of the token in its sequence.
    token_rows : Array, (T,) int32
        Row of the token, -1 for padding.
    perm : Array, (R,) int32
        Slot of the row, -1 for padding.
    finished : Array, (S,) int32
        Not zero: the slot's sequence has ended.
    block_table : Array, (S, MB) int32
        Block of each BS tokens of a slot's sequence.
    num_heads : int
        Hq, a multiple of Hkv.
    stream : Stream
        What the launch is queued on.

    Raises
    ------
    ValueError
        If the widths do not fit together, or D is odd.

    Notes
    -----
    A masked token (padding, ended sequence, or a position or block outside the tables) leaves everything as it is.

    **Source:** ``kernels/rope_kv_write.cu`` (Su et al. 2021; Kwon et al. 2023).
    """
    dims = check(
        "rope_kv_write",
        qkv=(qkv, "T W"),
        k_cache=(k_cache, "NB Hkv BS D"),
        v_cache=(v_cache, "NB Hkv BS D"),
        cos_sin=(cos_sin, "P D", FLOAT32),
        positions=(positions, "T", INT32),
        token_rows=(token_rows, "T", INT32),
        perm=(perm, "R", INT32),
        finished=(finished, "S", INT32),
        block_table=(block_table, "S MB", INT32),
    )
    kv_heads, head_dim = dims.Hkv, dims.D
    if (num_heads + 2 * kv_heads) * head_dim != dims.W:
        raise ValueError(
            f"rope_kv_write: qkv has {dims.W} columns, expected (num_heads + 2 * {kv_heads}) * {head_dim} = "
            f"{(num_heads + 2 * kv_heads) * head_dim} for num_heads = {num_heads}"
        )
    if head_dim % 2:
        raise ValueError(f"rope_kv_write: head_dim is {head_dim}, must be even: the halves of a head rotate in pairs")
    if dims.T == 0:
        return
    # A rotation takes two vectors, a value one; with the narrow path of an odd D, threads just take more turns.
    items = (num_heads + 3 * kv_heads) * head_dim * qkv.dtype.itemsize // 32
    threads = block_threads(stream, items, cuda=128)
    chunks = 1 if stream.device.kind == "host" else max(1, -(-items // threads))
    sizes = (num_heads, kv_heads, head_dim, dims.BS, dims.NB, dims.MB, dims.P)
    arrays = (qkv, k_cache, v_cache, cos_sin, positions, token_rows, perm, finished, block_table)
    kernel = stream.device.kernel("rope_kv_write", TYPE=dims.type_name)
    kernel((dims.T, chunks), threads, (*arrays, *sizes), stream=stream)
