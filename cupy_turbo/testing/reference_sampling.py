"""NumPy oracles of the operations that pick tokens and of those that draw random numbers.

Arguments are host arrays. Shapes: R rows, V vocabulary, S slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
UInt64 = NDArray[np.uint64]

MASKED, NON_FINITE = -1, -2
"""What `argmax` and `sample` give for a row that is masked, and for one whose logits are useless."""


def philox4x32(key: int, *counter: Any) -> UInt64:
    """Return the four 32-bit words of Philox4x32-10 for every counter, (4, ...) uint64.

    Parameters
    ----------
    key : int
        64 bits.
    *counter : int or ndarray
        Four 32-bit words, broadcast against each other.

    Notes
    -----
    **Source:** Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"; the check value below is Random123's.

    Examples
    --------
    >>> [f"{int(word):08x}" for word in philox4x32(0, 0, 0, 0, 0)]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    low, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    words = [np.asarray(word).astype(np.uint64) for word in counter]
    keys = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        first, second = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [
            (second >> low) ^ words[1] ^ np.uint64(keys[0]),
            second & mask,
            (first >> low) ^ words[3] ^ np.uint64(keys[1]),
            first & mask,
        ]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(np.broadcast_arrays(*words))


def random_normal(size: int, std: float, seed: int) -> Float64:
    """Return `size` normal variates of mean 0, each a function of the seed and its index (Box-Muller).

    Examples
    --------
    >>> random_normal(5, 1.0, seed=1)[:3].tolist() == random_normal(3, 1.0, seed=1).tolist()
    True
    """
    group = np.arange(-(-size // 4), dtype=np.uint64)
    words = philox4x32(seed, group & np.uint64(0xFFFFFFFF), group >> np.uint64(32), 0, 1)
    uniform = ((words >> np.uint64(9)).astype(np.float64) + 0.5) * 2.0**-23
    radius, angle = np.sqrt(-2.0 * np.log(uniform[0::2])), 2.0 * np.pi * uniform[1::2]  # (2, groups) each
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)])  # (2 of a pair, 2 pairs, groups)
    variates: Float64 = std * pairs.transpose(2, 1, 0).reshape(-1)[:size]
    return variates


def argmax(logits: NDArray[np.float32], sample_slots: Int32, finished: Int32, vocab_limit: int) -> Int32:
    """Return every row's most likely token, the lowest index among equals; else `MASKED` or `NON_FINITE`.

    Examples
    --------
    >>> logits = np.array([[1, 3, 3], [np.nan, 0, 0], [0, 1, 9]], np.float32)
    >>> argmax(logits, np.array([0, 0, -1], np.int32), np.zeros(1, np.int32), vocab_limit=3).tolist()
    [1, -2, -1]
    """
    tokens = np.full(len(logits), MASKED, np.int32)
    for row, slot in enumerate(sample_slots):
        if slot < 0 or finished[slot]:
            continue
        used = logits[row, :vocab_limit]
        useless = np.isnan(used).any() or used.max() == -np.inf
        tokens[row] = NON_FINITE if useless else used.argmax()
    return tokens


def sampling_weights(
    logits: NDArray[np.float32], temperature: float, top_k: int, top_p: float, min_p: float
) -> Float64:
    """Return every token's weight against the likeliest, 0 for the tokens that are filtered out, (V,).

    Parameters
    ----------
    logits : ndarray, (V,) float32
        Finite, or minus infinity but for one at least.
    temperature : float
        Below 1e-5: greedy.
    top_k : int
        0 or less: off.
    top_p, min_p : float
        1 and 0: off.

    Notes
    -----
    The scaled logits are float32, as transformers has them; tokens that tie with the last one kept are kept.

    **Source:** transformers' logits warpers Temperature, TopK, TopP and MinP, in this order.

    Examples
    --------
    >>> sampling_weights(np.log(np.array([4, 2, 1, 1], np.float32)), 1.0, 3, 1.0, 0.0).round(6).tolist()
    [1.0, 0.5, 0.25, 0.25]
    >>> sampling_weights(np.log(np.array([4, 2, 1, 1], np.float32)), 1.0, 0, 0.5, 0.0).round(6).tolist()
    [1.0, 0.0, 0.0, 0.0]
    """
    if temperature < 1e-5:
        greedy: Float64 = (np.arange(len(logits)) == logits.argmax()).astype(np.float64)
        return greedy
    scaled = (logits / np.float32(temperature)).astype(np.float64)
    weights: Float64 = np.exp(scaled - scaled.max())
    if 0 < top_k < len(scaled):
        weights[scaled < np.sort(scaled)[-top_k]] = 0.0
    if top_p < 1.0:
        _, value = np.unique(-scaled, return_inverse=True)  # 0 for the greatest
        mass = np.bincount(value, weights / weights.sum())
        greater = np.concatenate([[0.0], np.cumsum(mass)[:-1]])[value]  # probability of the tokens above each
        weights[(greater >= top_p) & (value > 0)] = 0.0
    weights[weights < min_p] = 0.0
    return weights


def race_speeds(weights: Float64, seed: int, position: int) -> Float64:
    """Return ``weight / exponential variate`` of every token, (V,): the fastest is the one that `sample` draws."""
    tokens = np.arange(len(weights))
    words = philox4x32(seed, position, np.arange(-(-len(weights) // 4)), 0, 0)[tokens % 4, tokens // 4]
    uniform = np.minimum((words.astype(np.float64) + 0.5) * 2.0**-32, 1.0 - 2.0**-24)
    speeds: Float64 = weights / -np.log1p(-uniform)
    return speeds


def commit_tokens(
    tokens: Int32,
    sample_slots: Int32,
    sample_positions: Int32,
    last_tokens: Int32,
    finished: Int32,
    stop_position: Int32,
    stop_ids: Int32,
) -> tuple[Int32, Int32, Int32, Int32]:
    """Return (result_tokens, result_status, last_tokens, finished) as the operation leaves them.

    Examples
    --------
    >>> ints = lambda *values: np.array(values, np.int32)
    >>> state = dict(last_tokens=ints(0), finished=ints(0), stop_position=ints(9), stop_ids=ints(2, -1)[None])
    >>> [array.tolist() for array in commit_tokens(ints(2, 5), ints(0, -1), ints(4, 0), **state)]
    [[2, -1], [2, 0], [2], [2]]
    """
    result_tokens, status = np.full(len(tokens), MASKED, np.int32), np.zeros(len(tokens), np.int32)
    last_tokens, finished = last_tokens.copy(), finished.copy()
    for row, slot in enumerate(sample_slots):
        if slot < 0 or finished[slot]:
            continue
        token = result_tokens[row] = tokens[row]
        if token < 0:
            status[row] = 4
        elif token in stop_ids[slot]:
            status[row] = 2
        else:
            status[row] = 3 if sample_positions[row] + 1 >= stop_position[slot] else 1
        if token >= 0:
            last_tokens[slot] = token
        if status[row] > 1:
            finished[slot] = status[row]
    return result_tokens, status, last_tokens, finished
