"""Greedy sampling."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.check import FLOAT32, INT32, check
from cupy_turbo.ops.geometry import block_threads


def argmax(
    tokens: Array, logits: Array, sample_slots: Array, finished: Array, *, vocab_limit: int, stream: Stream
) -> None:
    """Take the most likely token of every row.

    Parameters
    ----------
    tokens : Array, (R,) int32, written
        Lowest index among equals; -1 for a masked row; -2 for a row whose first `vocab_limit` logits hold a NaN, or
        nothing above minus infinity.
    logits : Array, (R, V) float32
    sample_slots : Array, (R,) int32
        Slot of the row; -1 masks it.
    finished : Array, (S,) int32
        Not zero masks the slot's row.
    vocab_limit : int
        Tokens from here on are never taken; 1 to V.
    stream : Stream
        What the launch is queued on.

    Raises
    ------
    ValueError
        If `vocab_limit` is out of range.

    Notes
    -----
    **Source:** ``kernels/argmax.cu``.
    """
    dims = check(
        "argmax",
        tokens=(tokens, "R", INT32),
        logits=(logits, "R V", FLOAT32),
        sample_slots=(sample_slots, "R", INT32),
        finished=(finished, "S", INT32),
    )
    if not 1 <= vocab_limit <= dims.V:
        raise ValueError(f"argmax: vocab_limit is {vocab_limit}, must be from 1 to {dims.V}, the width of logits")
    if dims.R == 0:
        return
    threads = block_threads(stream, -(-vocab_limit // 4))
    arrays = (tokens, logits, sample_slots, finished)
    stream.device.kernel("argmax")(dims.R, threads, (*arrays, dims.V, vocab_limit), stream=stream)
