"""NumPy float64 oracles of attention over a paged cache.

Arguments are host arrays in the order of the operation's. Shapes: T tokens, R rows, S slots, D head size, Hq query
heads, Hkv key-value heads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Floats = NDArray[Any]
Int32 = NDArray[np.int32]


def attention(queries: Floats, keys: Floats, values: Floats, scale: float) -> Float64:
    """Return causal attention, (L, Hq, D), of L queries that are the last of C tokens.

    Parameters
    ----------
    queries : ndarray, (L, Hq, D)
    keys, values : ndarray, (C, Hkv, D)
        Head h reads key-value head ``h // (Hq / Hkv)``.
    scale : float
        Factor of the scores.

    Examples
    --------
    >>> keys = np.zeros((2, 1, 1))
    >>> attention(np.ones((2, 2, 1)), keys, np.array([[[2.0]], [[4.0]]]), scale=1.0)[:, :, 0].tolist()
    [[2.0, 2.0], [3.0, 3.0]]
    """
    length, context, ratio = len(queries), len(keys), queries.shape[1] // keys.shape[1]
    wide_keys = np.repeat(keys.astype(np.float64), ratio, axis=1)  # (C, Hq, D)
    wide_values = np.repeat(values.astype(np.float64), ratio, axis=1)
    scores = np.einsum("qhd,khd->hqk", queries.astype(np.float64), wide_keys) * scale
    positions = np.arange(context - length, context)
    scores[:, positions[:, None] < np.arange(context)] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    result: Float64 = np.einsum("hqk,khd->qhd", weights, wide_values)
    return result


def paged(cache: Floats, blocks: Int32, length: int) -> Floats:
    """Return the first `length` tokens of a sequence, (length, Hkv, D), from a cache (NB, Hkv, block size, D)."""
    block_size = cache.shape[2]
    needed = blocks[: -(-length // block_size)]
    tokens = cache[needed].transpose(0, 2, 1, 3).reshape(-1, cache.shape[1], cache.shape[3])
    return tokens[:length]


def _query_heads(qkv: Floats, cache: Floats) -> Floats:
    """Return the queries of a fused projection, (T, Hq, D)."""
    heads = qkv.shape[1] // cache.shape[3] - 2 * cache.shape[1]
    return qkv.reshape(len(qkv), heads + 2 * cache.shape[1], cache.shape[3])[:, :heads]


def attention_prefill(
    qkv: Floats,
    k_cache: Floats,
    v_cache: Floats,
    block_table: Int32,
    perm: Int32,
    query_start: Int32,
    context_len: Int32,
    *,
    first_row: int,
    num_rows: int,
    scale: float,
) -> dict[int, Float64]:
    """Return, for each row that is neither padding nor empty, the result of its queries, (L, Hq, D)."""
    queries = _query_heads(qkv, k_cache)
    results = {}
    for row in range(first_row, first_row + num_rows):
        start, stop = query_start[row : row + 2]
        if perm[row] >= 0 and stop > start:
            blocks = block_table[perm[row]]
            keys, values = (paged(cache, blocks, context_len[row]) for cache in (k_cache, v_cache))
            results[row] = attention(queries[start:stop], keys, values, scale)
    return results


def attention_decode(
    qkv: Floats,
    k_cache: Floats,
    v_cache: Floats,
    block_table: Int32,
    perm: Int32,
    finished: Int32,
    context_len: Int32,
    *,
    num_rows: int,
    scale: float,
) -> Float64:
    """Return the result of every row's token, (num_rows, Hq, D), zeros where the row is masked."""
    queries = _query_heads(qkv, k_cache)
    out = np.zeros((num_rows, *queries.shape[1:]))
    for row in range(num_rows):
        if perm[row] >= 0 and finished[perm[row]] == 0 and context_len[row] > 0:
            blocks = block_table[perm[row]]
            keys, values = (paged(cache, blocks, context_len[row]) for cache in (k_cache, v_cache))
            out[row] = attention(queries[row : row + 1], keys, values, scale)[0]
    return out
