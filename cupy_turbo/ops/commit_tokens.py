"""What becomes of sampled tokens."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.check import INT32, check


def commit_tokens(
    result_tokens: Array,
    result_status: Array,
    tokens: Array,
    sample_slots: Array,
    sample_positions: Array,
    last_tokens: Array,
    finished: Array,
    stop_position: Array,
    stop_ids: Array,
    *,
    stream: Stream,
) -> None:
    """Keep every row's token for the next step, and decide which sequences end with it.

    Parameters
    ----------
    result_tokens, result_status : Array, (R,) int32, written
        The token and what it means: 0 masked (token -1), 1 running, 2 a stop id, 3 the sequence has reached
        `stop_position`, 4 no finite logits (token -2).
    tokens : Array, (R,) int32
        As `argmax` or `sample` wrote them.
    sample_slots : Array, (R,) int32
        Slot of the row, -1 for none; all others different.
    sample_positions : Array, (R,) int32
        Index that the token gets in its sequence.
    last_tokens : Array, (S,) int32, written
        The token, where there is one.
    finished : Array, (S,) int32, written
        Not zero on entry masks the row; becomes the status if that is above 1.
    stop_position : Array, (S,) int32
        Tokens that the sequence may have.
    stop_ids : Array, (S, N) int32
        Unused entries are -1.
    stream : Stream
        What the launch is queued on.

    Notes
    -----
    **Source:** ``kernels/commit_tokens.cu`` (TurboMind's StopCriteria).
    """
    dims = check(
        "commit_tokens",
        result_tokens=(result_tokens, "R", INT32),
        result_status=(result_status, "R", INT32),
        tokens=(tokens, "R", INT32),
        sample_slots=(sample_slots, "R", INT32),
        sample_positions=(sample_positions, "R", INT32),
        last_tokens=(last_tokens, "S", INT32),
        finished=(finished, "S", INT32),
        stop_position=(stop_position, "S", INT32),
        stop_ids=(stop_ids, "S N", INT32),
    )
    arrays = (result_tokens, result_status, tokens, sample_slots, sample_positions)
    state = (last_tokens, finished, stop_position, stop_ids)
    if dims.R == 0:
        return
    kernel = stream.device.kernel("commit_tokens")
    kernel(-(-dims.R // 32), 32, (*arrays, *state, dims.R, dims.N), stream=stream)
