"""Who last wrote and who has since read each byte of an address space, kept by ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Generic, TypeVar

M = TypeVar("M")


class Segment(Generic[M]):
    """A range of bytes that share one history.

    Parameters
    ----------
    start, stop : int
        Addresses, half-open.
    write : M or None
        Mark of the last write.
    reads : dict of int to M
        Mark of the last read since that write, by the stream that read.
    """

    __slots__ = ("reads", "start", "stop", "write")

    def __init__(self, start: int, stop: int, write: M | None = None, reads: dict[int, M] | None = None) -> None:
        self.start, self.stop, self.write = start, stop, write
        self.reads: dict[int, M] = {} if reads is None else reads


class IntervalMap(Generic[M]):
    """Segments in the order of their addresses, without overlap; memory that nobody touched has none.

    Notes
    -----
    A read splits segments at its ends. A write makes one segment of all that it covers, so a map stays as large as
    what the running programme distinguishes, however long it runs.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._segments: list[Segment[M]] = []

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment[M]]:
        return iter(self._segments)

    def overlapping(self, start: int, stop: int) -> list[Segment[M]]:
        """Return the segments that share a byte with [start, stop), lowest address first."""
        first, last = self._span(start, stop)
        return self._segments[first:last]

    def read(self, start: int, stop: int, stream: int, mark: M) -> None:
        """Note a read of [start, stop) by a stream."""
        first, last = self._span(start, stop)
        if last - first == 1:  # the usual case: the same array as before
            segment = self._segments[first]
            if segment.start == start and segment.stop == stop:
                segment.reads[stream] = mark
                return
        position = start
        for segment in self._cut(start, stop):
            if position < segment.start:
                self._insert(Segment(position, segment.start, None, {stream: mark}))
            segment.reads[stream] = mark
            position = segment.stop
        if position < stop:
            self._insert(Segment(position, stop, None, {stream: mark}))

    def write(self, start: int, stop: int, mark: M) -> None:
        """Note a write of [start, stop): the history before it is over."""
        first, last = self._span(start, stop)
        if last - first == 1:  # the usual case: the same array as before
            segment = self._segments[first]
            if segment.start == start and segment.stop == stop:
                segment.write, segment.reads = mark, {}
                return
        self.erase(start, stop)
        self._insert(Segment(start, stop, mark))

    def erase(self, start: int, stop: int) -> None:
        """Forget [start, stop)."""
        if start < stop:
            self._cut(start, stop)
            first, last = self._span(start, stop)
            del self._starts[first:last], self._segments[first:last]

    def _span(self, start: int, stop: int) -> tuple[int, int]:
        """Return the indices, half-open, of the segments that share a byte with a range."""
        first = bisect_right(self._starts, start)
        if first and self._segments[first - 1].stop > start:
            first -= 1
        return first, bisect_left(self._starts, stop, first)

    def _cut(self, start: int, stop: int) -> list[Segment[M]]:
        """Split segments at both ends of a range; return those inside it."""
        first, last = self._span(start, stop)
        if first < last:
            self._split(first, start)
            first, last = self._span(start, stop)
            self._split(last - 1, stop)
        return self._segments[first:last]

    def _split(self, index: int, address: int) -> None:
        segment = self._segments[index]
        if segment.start < address < segment.stop:
            self._insert(Segment(address, segment.stop, segment.write, dict(segment.reads)))
            segment.stop = address

    def _insert(self, segment: Segment[M]) -> None:
        index = bisect_left(self._starts, segment.start)
        self._starts.insert(index, segment.start)
        self._segments.insert(index, segment)
