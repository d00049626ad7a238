"""The sampler: temperature, top-k, top-p, min-p."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.check import FLOAT32, INT32, UINT64, check

MAX_VOCAB = 1 << 18
"""Tokens whose masses, 2^44 each at most, add up in 64 bits."""

GREEDY_TEMPERATURE = 1e-5
"""Below it, a row takes its most likely token; as vLLM does."""


def sample(
    tokens: Array,
    logits: Array,
    sample_slots: Array,
    sample_positions: Array,
    finished: Array,
    temperature: Array,
    top_k: Array,
    top_p: Array,
    min_p: Array,
    seed: Array,
    *,
    vocab_limit: int,
    stream: Stream,
) -> None:
    """Draw a token for every row from its filtered distribution.

    Parameters
    ----------
    tokens : Array, (R,) int32, written
        -1 for a masked row; -2 for a row whose first `vocab_limit` logits hold a NaN, or nothing above minus infinity.
    logits : Array, (R, V) float32
        V <= 262,144.
    sample_slots : Array, (R,) int32
        Slot of the row, whose parameters apply; -1 masks it.
    sample_positions : Array, (R,) int32
        Index that the token gets in its sequence.
    finished : Array, (S,) int32
        Not zero masks the slot's row.
    temperature : Array, (S,) float32
        >= 0; below 1e-5 the row is greedy, as `argmax`.
    top_k : Array, (S,) int32
        Tokens to keep; 0 or less, or at least `vocab_limit`: all.
    top_p : Array, (S,) float32
        In (0, 1]; keeps the fewest most likely tokens that together reach it.
    min_p : Array, (S,) float32
        In [0, 1]; keeps tokens at least this times as likely as the likeliest.
    seed : Array, (S,) uint64
        Key of the draws.
    vocab_limit : int
        Tokens from here on are never drawn; 1 to V.
    stream : Stream
        What the launch is queued on.

    Raises
    ------
    ValueError
        If `vocab_limit` is out of range or V too large.

    Notes
    -----
    Filters apply in the order of transformers' warpers: temperature, top-k, top-p (of what top-k kept), min-p. Tokens
    that tie with the last one kept are kept too, and the likeliest always is. A draw depends on seed, position and
    logits only: not on the row, the batch or the launch.

    **Source:** ``kernels/sample.cu``.
    """
    dims = check(
        "sample",
        tokens=(tokens, "R", INT32),
        logits=(logits, "R V", FLOAT32),
        sample_slots=(sample_slots, "R", INT32),
        sample_positions=(sample_positions, "R", INT32),
        finished=(finished, "S", INT32),
        temperature=(temperature, "S", FLOAT32),
        top_k=(top_k, "S", INT32),
        top_p=(top_p, "S", FLOAT32),
        min_p=(min_p, "S", FLOAT32),
        seed=(seed, "S", UINT64),
    )
    if not 1 <= vocab_limit <= dims.V:
        raise ValueError(f"sample: vocab_limit is {vocab_limit}, must be from 1 to {dims.V}, the width of logits")
    if dims.V > MAX_VOCAB:
        raise ValueError(f"sample: logits have {dims.V} columns, at most {MAX_VOCAB} are supported")
    if dims.R == 0:
        return
    threads = _threads(stream, vocab_limit)
    arrays = (tokens, logits, sample_slots, sample_positions, finished, temperature, top_k, top_p, min_p, seed)
    stream.device.kernel("sample")(dims.R, threads, (*arrays, dims.V, vocab_limit), stream=stream)


def _threads(stream: Stream, vocab_limit: int) -> int:
    """Return a power of two, as the kernel deals its histogram out evenly; one thread has four logits to read."""
    largest = 32 if stream.device.kind == "host" else 1024
    return min(largest, max(32, 1 << (-(-vocab_limit // 4) - 1).bit_length()))
