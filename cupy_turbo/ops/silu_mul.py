"""The gated activation of the feed-forward block."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.check import check
from cupy_turbo.ops.geometry import block_threads


def silu_mul(out: Array, gate_up: Array, *, stream: Stream) -> None:
    """Compute ``silu(gate) * up``.

    Parameters
    ----------
    out : Array, (T, F), written
        float32, float16 or bfloat16; must not overlap `gate_up`.
    gate_up : Array, (T, 2F), dtype of `out`
        Gate in the first F columns, up in the others.
    stream : Stream
        What the launch is queued on.

    Notes
    -----
    **Source:** ``kernels/silu_mul.cu`` (Shazeer 2020).
    """
    dims = check("silu_mul", out=(out, "T F"), gate_up=(gate_up, "T 2F"))
    if dims.T == 0 or dims.F == 0:
        return
    vectors = -(-dims.F * out.dtype.itemsize // 16)
    threads = block_threads(stream, vectors, cuda=256)
    # A GPU gets a thread a vector, so that even one token spreads over its multiprocessors; a fiber gets more to do.
    chunks = 1 if stream.device.kind == "host" else min(-(-vectors // threads), 65535)
    kernel = stream.device.kernel("silu_mul", TYPE=dims.type_name)
    kernel((dims.T, chunks), threads, (out, gate_up, dims.F), stream=stream)
