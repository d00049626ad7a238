"""Vector clocks: which of the accesses to memory that streams have queued are ordered, and which only seem to be.

Pure bookkeeping: it knows numbers, addresses and names, no device. A stream counts what it is given. Its clock holds,
for every stream, how much of that stream's work runs before whatever comes next here. An event takes a copy of the
clock when it is recorded, a stream that waits for it adds that copy to its own, and a thread that waits adds it to the
host's: work that the host has seen finished comes before all that is queued later, by any thread.

**Source:** the vector clocks of PyTorch's CUDA sanitizer (`torch/cuda/_sanitizer.py`), by address range instead of by
pointer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from weakref import WeakSet

from cupy_turbo.device.interval_map import IntervalMap

Clock = dict[int, int]
"""Of each stream, by number: how many of its operations come before."""

_numbers = itertools.count(1)


class Origin(NamedTuple):
    """A line of source."""

    path: str
    line: int


class Access(NamedTuple):
    """What an operation does with a range of memory."""

    label: str
    """The kernel's name for it, "dst", "src" or "array"."""
    start: int
    stop: int
    writes: bool
    within: str = ""
    """The operation of a graph that does it."""
    origin: Origin | None = None
    """Where that operation was captured."""


class Queued(NamedTuple):
    """An operation that a stream was given."""

    name: str
    stream: StreamClock
    number: int
    origin: Origin | None


Mark = tuple[Queued, Access]


class Conflict(NamedTuple):
    """Two accesses to the same bytes, at least one of them a write, that nothing orders."""

    earlier: Mark
    later: Mark


class StreamClock:
    """What a stream has been given and has waited for.

    Parameters
    ----------
    label : str
        What a report calls it.
    domain : str
        The device whose device-wide wait covers it.
    """

    def __init__(self, label: str, domain: str) -> None:
        self.label, self.domain = label, domain
        self.number = next(_numbers)
        self.clock: Clock = {self.number: 0}
        self.download: Queued | None = None
        """What it was given last that writes memory of the host; kept here for whoever asks."""

    @property
    def count(self) -> int:
        """How many operations it was given."""
        return self.clock[self.number]


class EventClock:
    """What an event's latest record stands behind.

    Parameters
    ----------
    label : str
        What a report calls it.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self.clock: Clock | None = None
        self.origin: Origin | None = None
        self.waits: dict[int, tuple[int, Origin | None]] = {}
        """By stream: how much it had been given when it last waited here, and where that was."""


def merge(into: Clock, other: Clock) -> None:
    """Add to a clock what another one covers."""
    for stream, number in other.items():
        if into.get(stream, 0) < number:
            into[stream] = number


class RaceDetector:
    """Finds accesses that nothing orders, in the order in which operations are queued.

    Not safe for threads: the caller holds a lock.
    """

    def __init__(self) -> None:
        self.host: Clock = {}
        self.memory: IntervalMap[Mark] = IntervalMap()
        self.streams: WeakSet[StreamClock] = WeakSet()
        self.events: WeakSet[EventClock] = WeakSet()
        self._orphans: dict[str, Clock] = {}

    def add_stream(self, label: str, domain: str) -> StreamClock:
        """Know a stream."""
        stream = StreamClock(label, domain)
        self.streams.add(stream)
        return stream

    def add_event(self, label: str) -> EventClock:
        """Know an event, not recorded yet."""
        event = EventClock(label)
        self.events.add(event)
        return event

    def drop_stream(self, stream: StreamClock) -> None:
        """Know that a stream was destroyed; what it was given is still to be waited for, with its device."""
        merge(self._orphans.setdefault(stream.domain, {}), stream.clock)
        self.streams.discard(stream)

    def queue(self, name: str, stream: StreamClock, accesses: Sequence[Access], origin: Origin | None) -> Queued:
        """Add an operation to a stream, or find the first conflict that it would have.

        Raises
        ------
        RaceFound
            Nothing was changed then.
        """
        operation = Queued(name, stream, stream.count + 1, origin)
        conflict = self._find(operation, accesses)
        if conflict is not None:
            raise RaceFound(conflict)
        stream.clock[stream.number] = operation.number
        # Reads first: an operation that also writes the same bytes leaves the write.
        for access in accesses:
            if not access.writes:
                self.memory.read(access.start, access.stop, stream.number, (operation, access))
        for access in accesses:
            if access.writes:
                self.memory.write(access.start, access.stop, (operation, access))
        return operation

    def record(self, event: EventClock, stream: StreamClock, origin: Origin | None) -> None:
        """Let an event stand behind all that the stream was given."""
        event.clock, event.origin = dict(stream.clock), origin

    def wait(self, stream: StreamClock, event: EventClock, origin: Origin | None) -> bool:
        """Order what the stream gets from now on behind an event.

        Returns
        -------
        bool
            False if the stream had waited here before, worked on, and the event has never been recorded: no ring of
            buffers that is starting up does that, so the record is missing.
        """
        before = event.waits.get(stream.number)
        event.waits[stream.number] = (stream.count, origin)
        if event.clock is None:
            return before is None or before[0] == stream.count
        merge(stream.clock, event.clock)
        return True

    def device_clock(self, domain: str) -> Clock:
        """Return what a wait for a whole device covers if it starts now."""
        clock = dict(self._orphans.get(domain, {}))
        for stream in self.streams:
            if stream.domain == domain:
                merge(clock, stream.clock)
        return clock

    def reach(self, clock: Clock) -> None:
        """Note that the host has seen all of a clock finished."""
        merge(self.host, clock)

    def is_finished(self, operation: Queued) -> bool:
        """Whether the host has seen an operation finished."""
        return self.host.get(operation.stream.number, 0) >= operation.number

    def unfinished_write(self, start: int, stop: int) -> Mark | None:
        """Return a write to a range that the host has not seen finished."""
        for segment in self.memory.overlapping(start, stop):
            if segment.write is not None and not self.is_finished(segment.write[0]):
                return segment.write
        return None

    def events_behind(self, operation: Queued) -> list[EventClock]:
        """Return the events whose latest record stands behind an operation."""
        number, count = operation.stream.number, operation.number
        return [event for event in self.events if event.clock is not None and event.clock.get(number, 0) >= count]

    def _find(self, operation: Queued, accesses: Iterable[Access]) -> Conflict | None:
        clock, host = operation.stream.clock, self.host
        for access in accesses:
            for segment in self.memory.overlapping(access.start, access.stop):
                write = segment.write
                if write is not None and not _covers(clock, host, write[0]):
                    return Conflict(write, (operation, access))
                if access.writes:
                    for read in segment.reads.values():
                        if not _covers(clock, host, read[0]):
                            return Conflict(read, (operation, access))
        return None


def _covers(clock: Clock, host: Clock, earlier: Queued) -> bool:
    number, count = earlier.stream.number, earlier.number
    return clock.get(number, 0) >= count or host.get(number, 0) >= count


class RaceFound(Exception):  # noqa: N818 - what a detector is there for
    """An operation that may not be queued.

    Parameters
    ----------
    conflict : Conflict
        Why.
    """

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(conflict)
        self.conflict = conflict
