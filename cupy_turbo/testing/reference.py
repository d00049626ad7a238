"""NumPy float64 oracles of the operations that move and transform activations.

Arguments are host arrays in the order of the operation's; results are new arrays in float64, not rounded unless said.
Shapes: T tokens, H hidden, R rows, S slots, D head size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Floats = NDArray[Any]
Int32 = NDArray[np.int32]
Fields = dict[str, NDArray[Any]]


def gather_rows(x: Floats, rows: Int32) -> Float64:
    """Return ``x[rows]``, zeros for a row outside `x`.

    Examples
    --------
    >>> gather_rows(np.eye(2), np.array([1, -1, 0], np.int32)).tolist()
    [[0.0, 1.0], [0.0, 0.0], [1.0, 0.0]]
    """
    inside = (rows >= 0) & (rows < len(x))
    return np.where(inside[:, None], x[np.where(inside, rows, 0)].astype(np.float64), 0.0)


def embedding(table: Floats, token_ids: Int32, last_tokens: Int32) -> Float64:
    """Return the table's row of every token; a negative id stands for ``last_tokens[-id - 1]``.

    Examples
    --------
    >>> embedding(np.array([[1.0], [2.0]]), np.array([0, -2], np.int32), np.array([0, 1], np.int32)).tolist()
    [[1.0], [2.0]]
    """
    slots = -1 - token_ids
    known = (slots >= 0) & (slots < len(last_tokens))
    fed_back = np.where(known, last_tokens[np.where(known, slots, 0)], -1)
    return gather_rows(table, np.where(token_ids >= 0, token_ids, fed_back).astype(np.int32))


def rms_norm(x: Floats, weight: Floats, eps: float) -> Float64:
    """Return ``x * weight / sqrt(mean(x ** 2) + eps)``, the mean over the last axis.

    Examples
    --------
    >>> rms_norm(np.array([[3.0, 4.0]]), np.array([1.0, 2.0]), eps=0.0).round(3).tolist()
    [[0.849, 2.263]]
    """
    wide = x.astype(np.float64)
    scale = 1.0 / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + eps)
    normed: Float64 = wide * scale * weight.astype(np.float64)
    return normed


def add_rms_norm(residual: Floats, x: Floats, weight: Floats, eps: float) -> tuple[Floats, Float64]:
    """Return ``residual + x`` in the dtype of `residual`, and its norm.

    Examples
    --------
    >>> total, normed = add_rms_norm(np.full((1, 2), 1.0), np.full((1, 2), 2.0), np.ones(2), eps=0.0)
    >>> total.tolist(), normed.tolist()
    ([[3.0, 3.0]], [[1.0, 1.0]])
    """
    total = (residual.astype(np.float64) + x.astype(np.float64)).astype(residual.dtype)
    return total, rms_norm(total, weight, eps)


def silu_mul(gate_up: Floats) -> Float64:
    """Return ``silu(gate) * up``, the two halves of the last axis.

    Examples
    --------
    >>> silu_mul(np.array([[0.0, 1.0, 5.0, 2.0]])).round(3).tolist()
    [[0.0, 1.462]]
    """
    gate, up = np.split(gate_up.astype(np.float64), 2, axis=-1)
    with np.errstate(over="ignore"):  # exp(-gate) may be infinite; the quotient is then 0
        activated: Float64 = gate / (1.0 + np.exp(-gate)) * up
    return activated


def rotate(heads: Floats, cos_sin: Floats) -> Float64:
    """Rotate vectors in halves: element i pairs with element i + D/2.

    Parameters
    ----------
    heads : ndarray, (..., heads, D)
    cos_sin : ndarray, (..., D)
        D/2 cosines, then D/2 sines.

    Examples
    --------
    >>> rotate(np.array([[1.0, 0.0]]), np.array([0.0, 1.0])).tolist()   # a quarter turn
    [[0.0, 1.0]]
    """
    low, high = np.split(heads.astype(np.float64), 2, axis=-1)
    cos, sin = np.split(cos_sin.astype(np.float64)[..., None, :], 2, axis=-1)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def rope_kv_write(
    qkv: Floats,
    k_cache: Floats,
    v_cache: Floats,
    cos_sin: Floats,
    positions: Int32,
    token_rows: Int32,
    perm: Int32,
    finished: Int32,
    block_table: Int32,
    num_heads: int,
) -> tuple[Float64, Float64, Float64]:
    """Return `qkv`, `k_cache` and `v_cache` as the operation leaves them.

    Parameters
    ----------
    qkv : ndarray, (T, (Hq + 2 Hkv) * D)
    k_cache, v_cache : ndarray, (blocks, Hkv, block_size, D)
    cos_sin : ndarray, (positions, D)
    positions, token_rows : ndarray, (T,)
    perm : ndarray, (R,)
    finished : ndarray, (S,)
    block_table : ndarray, (S, max_blocks)
    num_heads : int
        Hq.
    """
    qkv, k_cache, v_cache = (array.astype(np.float64) for array in (qkv, k_cache, v_cache))
    num_blocks, kv_heads, block_size, head_dim = k_cache.shape
    heads = qkv.reshape(len(qkv), num_heads + 2 * kv_heads, head_dim)
    for token, (row, position) in enumerate(zip(token_rows, positions, strict=True)):
        slot = perm[row] if row >= 0 else -1
        if slot < 0 or finished[slot] or not 0 <= position < min(len(cos_sin), block_table.shape[1] * block_size):
            continue
        block, offset = block_table[slot, position // block_size], position % block_size
        if not 0 <= block < num_blocks:
            continue
        rotated = rotate(heads[token, : num_heads + kv_heads], cos_sin[position])
        heads[token, :num_heads] = rotated[:num_heads]
        k_cache[block, :, offset] = rotated[num_heads:]
        v_cache[block, :, offset] = heads[token, num_heads + kv_heads :]
    return qkv, k_cache, v_cache


def block_table_update(block_table: Int32, slots: Int32, indices: Int32, blocks: Int32) -> Int32:
    """Return the table with its deltas applied; entries outside it do nothing.

    Examples
    --------
    >>> table = np.zeros((1, 2), np.int32)
    >>> block_table_update(table, np.array([0, -1]), np.array([1, 0]), np.array([7, 9])).tolist()
    [[0, 7]]
    """
    updated = block_table.copy()
    for slot, index, block in zip(slots, indices, blocks, strict=True):
        if 0 <= slot < updated.shape[0] and 0 <= index < updated.shape[1]:
            updated[slot, index] = block
    return updated


def slot_init(fields: Fields, slots: Int32, entries: Fields) -> Fields:
    """Return per-slot fields with the entries scattered into `slots`, and ``finished`` cleared there.

    Examples
    --------
    >>> fields = {"top_k": np.zeros(3, np.int32), "finished": np.ones(3, np.int32)}
    >>> after = slot_init(fields, np.array([2, -1]), {"top_k": np.array([40, 9])})
    >>> after["top_k"].tolist(), after["finished"].tolist()
    ([0, 0, 40], [1, 1, 0])
    """
    updated = {name: field.copy() for name, field in fields.items()}
    used = (slots >= 0) & (slots < len(updated["finished"]))
    for name, values in entries.items():
        updated[name][slots[used]] = values[used]
    updated["finished"][slots[used]] = 0
    return updated
