"""Host memory that pending copies read: nobody sees the host write it, but its bytes are seen to differ afterwards."""

from __future__ import annotations

import ctypes
import zlib
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from cupy_turbo.device.queued_work import address_range, memory_owner
from cupy_turbo.device.race_detector import Access, Queued, RaceDetector

_MAX_PENDING = 256
_WHOLE_BYTES, _PIECES, _PIECE_BYTES = 4 << 20, 64, 4096


class _Source(NamedTuple):
    operation: Queued
    owner: ref[Any]
    start: int
    stop: int
    checksum: int


class HostSources:
    """Checksums of the host memory that pending copies read, until the host has seen the copy finished.

    Notes
    -----
    A source above 4 MiB is checked in 64 pieces. The last 256 copies are kept. Memory that copies also write is left
    out from then on: its bytes may change by rights.
    """

    def __init__(self) -> None:
        self._pending: deque[_Source] = deque(maxlen=_MAX_PENDING)

    def copied(self, operation: Queued, dst: Any, src: Any, accesses: Iterable[Access], detector: RaceDetector) -> None:
        """Take note of a copy that `operation` makes; `accesses` are all that it does."""
        if isinstance(dst, np.ndarray):
            start, stop = address_range(dst)
            kept = [source for source in self._pending if source.stop <= start or stop <= source.start]
            self._pending = deque(kept, maxlen=_MAX_PENDING)
        if not isinstance(src, np.ndarray) or not src.nbytes:
            return
        start, stop = address_range(src)
        is_written = any(access.writes and access.start < stop and start < access.stop for access in accesses)
        if is_written or detector.unfinished_write(start, stop) is not None:
            return
        try:
            owner = ref(memory_owner(src)[0])
        except TypeError:
            return
        self._pending.append(_Source(operation, owner, start, stop, checksum(start, stop)))

    def rewritten(self, detector: RaceDetector) -> tuple[Queued, str] | None:
        """Return a finished copy whose source has changed meanwhile; forget all that have finished."""
        found, kept = None, []
        for source in self._pending:
            if not detector.is_finished(source.operation):
                kept.append(source)
                continue
            owner = source.owner()  # held while its memory is read
            if owner is not None and checksum(source.start, source.stop) != source.checksum:
                found = found or source
        self._pending = deque(kept, maxlen=_MAX_PENDING)
        return None if found is None else (found.operation, f"of {found.stop - found.start} bytes at {found.start:#x}")


def checksum(start: int, stop: int) -> int:
    """CRC of host memory by address; of 64 pieces of it if it is large."""
    memory = memoryview((ctypes.c_char * (stop - start)).from_address(start)).cast("B")
    if stop - start <= _WHOLE_BYTES:
        return zlib.crc32(memory)
    total, last = 0, stop - start - _PIECE_BYTES
    for piece in range(_PIECES):  # the first at the start, the last at the end
        offset = piece * last // (_PIECES - 1)
        total = zlib.crc32(memory[offset : offset + _PIECE_BYTES], total)
    return total
