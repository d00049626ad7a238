"""The second half of decode attention: what the splits of a sequence found becomes one result."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.check import FLOAT32, INT32, check


def attention_combine(
    out: Array,
    partial: Array,
    perm: Array,
    finished: Array,
    context_len: Array,
    *,
    head_dim: int,
    num_splits: int,
    stream: Stream,
) -> None:
    """Merge the results of the splits; `attention_decode` calls it.

    Parameters
    ----------
    out : Array, (T, Hq * D), written
        float32, float16 or bfloat16; zeros for a row that is masked.
    partial : Array, (at least T * Hq * num_splits * (D + 2),) float32
        Written by the kernel ``attention_decode`` for these T rows.
    perm, finished, context_len : Array
        As `attention_decode`; at least T rows.
    head_dim : int
        D, a multiple of 8.
    num_splits : int
        As it was for the first half: it says where the splits lie.
    stream : Stream
        What the launch is queued on.

    Raises
    ------
    ValueError, TypeError
        If shapes or dtypes do not match, or an array is too small.

    Notes
    -----
    **Source:** ``kernels/attention_combine.cu``.
    """
    name = "attention_combine"
    dims = check(
        name,
        out=(out, "T Q"),
        partial=(partial, "P", FLOAT32),
        perm=(perm, "R", INT32),
        finished=(finished, "S", INT32),
        context_len=(context_len, "R", INT32),
    )
    if head_dim < 8 or head_dim % 8 != 0 or dims.Q % head_dim != 0:
        raise ValueError(f"{name}: out has {dims.Q} columns, not a multiple of head_dim {head_dim}, a multiple of 8")
    heads = dims.Q // head_dim
    if dims.R < dims.T or dims.T * heads * num_splits * (head_dim + 2) > dims.P:
        raise ValueError(f"{name}: {dims.R} rows and {dims.P} partial results do not cover {dims.T} tokens")
    if dims.T == 0:
        return
    threads = 1 if stream.device.kind == "host" else -(-head_dim // 128) * 32  # four dimensions a thread
    kernel = stream.device.kernel(name, TYPE=dims.type_name, HEAD_DIM=head_dim)
    kernel((heads, dims.T), threads, (out, partial, perm, finished, context_len, num_splits), stream=stream)
