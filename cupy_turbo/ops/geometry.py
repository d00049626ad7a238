"""Launch sizes that suit a device: many threads on a GPU, one warp of fibers on the host."""

from __future__ import annotations

from cupy_turbo.core.stream import Stream


def block_threads(stream: Stream, items: int, *, host: int = 32, cuda: int = 1024) -> int:
    """Threads of a block with `items` pieces of work: whole warps, at most `host` or `cuda` by the kind of device.

    Parameters
    ----------
    stream : Stream
        Its device decides.
    items : int
        Pieces of work of one block, such as vectors of a row.
    host, cuda : int
        Largest number of threads, a multiple of 32. A thread of the host device is a fiber, and each barrier switches
        through all of them.
    """
    limit = host if stream.device.kind == "host" else cuda
    return min(limit, max(32, -(-items // 32) * 32))
