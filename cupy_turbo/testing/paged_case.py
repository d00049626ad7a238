"""Random sequences in a paged cache that holds NaN wherever attention must not look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupy_turbo.core.dtypes import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedCase:
    """Arguments of an attention operation, as host arrays. Shapes: T tokens, R rows, S slots, D head size.

    Parameters
    ----------
    qkv : ndarray, (T, (Hq + 2 * Hkv) * D)
        Queries; the keys' and values' part is NaN, because attention reads those from the cache.
    k_cache, v_cache : ndarray, (NB, Hkv, block size, D)
        NaN but for the tokens of the rows, in scattered blocks.
    block_table : ndarray, (S, MB) int32
        Entries past the end of a sequence point at a block of NaN.
    perm : ndarray, (R,) int32
    finished : ndarray, (S,) int32
    query_start : ndarray, (R + 1,) int32
    context_len : ndarray, (R,) int32
    num_heads : int
    """

    qkv: NDArray[Any]
    k_cache: NDArray[Any]
    v_cache: NDArray[Any]
    block_table: NDArray[np.int32]
    perm: NDArray[np.int32]
    finished: NDArray[np.int32]
    query_start: NDArray[np.int32]
    context_len: NDArray[np.int32]
    num_heads: int

    @property
    def head_dim(self) -> int:
        """D."""
        return int(self.k_cache.shape[3])

    @property
    def scale(self) -> float:
        """The usual factor of the scores."""
        return float(self.head_dim**-0.5)

    def queries(self, start: int, stop: int) -> NDArray[Any]:
        """Return the fused projections of some tokens."""
        return self.qkv[start:stop]


def draw_paged_case(
    dtype: DType,
    *,
    head_dim: int,
    block_size: int,
    num_kv_heads: int,
    ratio: int,
    rows: Sequence[tuple[int, int]],
    seed: int,
    masked: Sequence[int] = (),
) -> PagedCase:
    """Draw sequences with normally distributed queries, keys and values.

    Parameters
    ----------
    dtype : numpy.dtype
        float32, float16 or bfloat16.
    head_dim, block_size, num_kv_heads : int
    ratio : int
        Query heads a key-value head.
    rows : sequence of (queries, context)
        New tokens of each row, and all its tokens, those included.
    seed : int
        Of everything drawn.
    masked : sequence of int
        Rows that are padding: their slot is -1.

    Examples
    --------
    >>> case = draw_paged_case(np.dtype(np.float32), head_dim=8, block_size=4, num_kv_heads=1, ratio=2,
    ...                        rows=[(1, 5), (3, 3)], seed=0)
    >>> case.qkv.shape, case.block_table.shape, case.query_start.tolist(), case.context_len.tolist()
    ((4, 32), (3, 3), [0, 1, 4], [5, 3])
    >>> int(np.isfinite(case.k_cache).sum()) == (5 + 3) * 8
    True
    """
    rng = np.random.default_rng(seed)
    num_slots, num_heads = len(rows) + 1, ratio * num_kv_heads
    blocks_of = [-(-context // block_size) for _, context in rows]
    width = max(blocks_of, default=0) + 1
    num_blocks = sum(blocks_of) + 1
    order = rng.permutation(num_blocks).astype(np.int32)
    poisoned, free = order[0], list(order[1:])
    block_table = np.full((num_slots, width), poisoned, np.int32)
    slots = rng.permutation(num_slots)[: len(rows)].astype(np.int32)
    caches = np.full((2, num_blocks, num_kv_heads, block_size, head_dim), np.nan, dtype)
    for slot, count, (_, context) in zip(slots, blocks_of, rows, strict=True):
        block_table[slot, :count] = [free.pop() for _ in range(count)]
        tokens = rng.normal(size=(2, context, num_kv_heads, head_dim)).astype(dtype)
        for token in range(context):
            caches[:, block_table[slot, token // block_size], :, token % block_size] = tokens[:, token]
    lengths = [length for length, _ in rows]
    qkv = np.full((sum(lengths), (num_heads + 2 * num_kv_heads) * head_dim), np.nan, dtype)
    qkv[:, : num_heads * head_dim] = rng.normal(size=(len(qkv), num_heads * head_dim)).astype(dtype)
    slots[list(masked)] = -1
    return PagedCase(
        qkv=qkv,
        k_cache=caches[0],
        v_cache=caches[1],
        block_table=block_table,
        perm=slots,
        finished=np.zeros(num_slots, np.int32),
        query_start=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
        context_len=np.array([context for _, context in rows], np.int32),
        num_heads=num_heads,
    )
