"""Deltas of the block table."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.check import INT32, check


def block_table_update(block_table: Array, slots: Array, indices: Array, blocks: Array, *, stream: Stream) -> None:
    """Write new entries into the persistent block table.

    Parameters
    ----------
    block_table : Array, (S, MB) int32, written
    slots, indices, blocks : Array, (U,) int32
        ``block_table[slot, index] = block``; no place is named twice. An entry whose slot or index lies outside the
        table, such as slot -1 for an unused one, does nothing.
    stream : Stream
        What the launch is queued on.

    Notes
    -----
    **Source:** ``kernels/block_table_update.cu``.
    """
    dims = check(
        "block_table_update",
        block_table=(block_table, "S MB", INT32),
        slots=(slots, "U", INT32),
        indices=(indices, "U", INT32),
        blocks=(blocks, "U", INT32),
    )
    if dims.U == 0:
        return
    kernel = stream.device.kernel("block_table_update")
    kernel(-(-dims.U // 128), 128, (block_table, slots, indices, blocks, dims.U, dims.S, dims.MB), stream=stream)
