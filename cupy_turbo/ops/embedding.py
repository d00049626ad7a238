"""Token embedding."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.check import INT32, check
from cupy_turbo.ops.geometry import block_threads


def embedding(out: Array, table: Array, token_ids: Array, last_tokens: Array, *, stream: Stream) -> None:
    """Look up the embedding of every token.

    Parameters
    ----------
    out : Array, (T, H), written
        float32, float16 or bfloat16.
    table : Array, (V, H), dtype of `out`
    token_ids : Array, (T,) int32
        ``id >= 0`` takes ``table[id]``; ``-slot - 1`` takes ``table[last_tokens[slot]]``, a token that the host need
        not have seen. Anything outside the table gives zeros.
    last_tokens : Array, (S,) int32
        What each slot sampled last.
    stream : Stream
        What the launch is queued on.

    Notes
    -----
    **Source:** ``kernels/embedding.cu``.
    """
    dims = check(
        "embedding",
        out=(out, "T H"),
        table=(table, "V H"),
        token_ids=(token_ids, "T", INT32),
        last_tokens=(last_tokens, "S", INT32),
    )
    if dims.T == 0:
        return
    kernel = stream.device.kernel("embedding", TYPE=dims.type_name)
    threads = block_threads(stream, dims.H * out.dtype.itemsize // 16)
    kernel(dims.T, threads, (out, table, token_ids, last_tokens, dims.H, dims.V, dims.S), stream=stream)
