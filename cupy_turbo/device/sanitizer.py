"""What the stream sanitizer does when a device tells it something; `sanitize` switches it on."""

from __future__ import annotations

import functools
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np

from cupy_turbo.core.errors import SanitizerError
from cupy_turbo.device.host_sources import HostSources
from cupy_turbo.device.known_memory import KnownMemory
from cupy_turbo.device.queued_work import Work, address_range, domain_of
from cupy_turbo.device.race_detector import Access, Clock, EventClock, Queued, RaceDetector, RaceFound, StreamClock
from cupy_turbo.device.race_report import host_race_error, race_error
from cupy_turbo.device.source_line import describe, find_origin

_log = logging.getLogger("cupy_turbo")


class Sanitizer:
    """What is known of all streams, events and memory since it was switched on; `sanitize` makes one.

    Attributes
    ----------
    findings : list of str
        What is suspect but not proved wrong, in the order in which it was found: a stream that waits again for an
        event which was never recorded, a stream that was destroyed with a copy to the host that nobody waited for.
    num_operations : int
        Operations checked, those of graphs included.
    num_holders : int
        How many want it on: each `sanitize` that was entered and not left, and the environment.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: the collector may destroy a stream while it is held
        self._gone: deque[Callable[[], None]] = deque()
        self.findings: list[str] = []
        self.num_operations = 0
        self.num_holders = 0
        self.memory = KnownMemory(self._gone)
        self.forget()

    def forget(self) -> None:
        """Start anew: what was queued before is not known any more."""
        with self._lock:
            self._detector = RaceDetector()
            self._streams: WeakKeyDictionary[Any, StreamClock] = WeakKeyDictionary()
            self._events: WeakKeyDictionary[Any, EventClock] = WeakKeyDictionary()
            self._ends: dict[int, ref[Any]] = {}
            self._graphs: WeakKeyDictionary[object, tuple[Access, ...]] = WeakKeyDictionary()
            self._abandoned: list[Queued] = []
            self._sources = HostSources()

    # What devices tell; see `core.sanitizing.Watch`.

    def queue(self, stream: Any, work: Work) -> None:
        """Check work and take note of it, before it is queued."""
        with self._lock:
            self._know(work.operands)
            self._queue(stream, work.name, work.accesses, (work,))

    def launch(self, stream: Any, graph: object, works: Sequence[Work]) -> None:
        """Check all that a graph will do as one operation of the stream."""
        with self._lock:
            accesses = self._graphs.get(graph)
            if accesses is None:
                for work in works:
                    self._know(work.operands)
                accesses = self._graphs[graph] = _accesses_of(works)
            self._queue(stream, "graph", accesses, works)

    def record(self, event: Any, stream: Any) -> None:
        """Take note of a record."""
        with self._lock:
            self._detector.record(self._event(event), self._stream(stream), find_origin())

    def wait(self, stream: Any, event: Any) -> None:
        """Take note of a wait."""
        with self._lock:
            waiter, awaited, origin = self._stream(stream), self._event(event), find_origin()
            if not self._detector.wait(waiter, awaited, origin):
                self._find(
                    f"{waiter.label} waits again at {describe(origin)} for {awaited.label}, which was never recorded: "
                    "such a wait holds nothing back"
                )

    def synchronize_stream(self, stream: Any) -> None:
        """Wait for a stream; the host has then seen all of it."""
        with self._lock:
            clock = dict(self._stream(stream).clock)
        self._reach_after(stream.synchronize, clock)

    def synchronize_event(self, event: Any) -> None:
        """Wait for an event; the host has then seen what is before it."""
        with self._lock:
            clock = self._event(event).clock
        self._reach_after(event.synchronize, clock or {})

    def query(self, event: Any) -> bool:
        """Ask an event; a yes is as good as a wait."""
        with self._lock:
            clock = self._event(event).clock
        answer = bool(event.query())
        if answer and clock:
            self._reach(clock)
        return answer

    def synchronize_device(self, domain: str, wait: Callable[[], None]) -> None:
        """Wait for a device; the host has then seen all that was queued there."""
        with self._lock:
            self._bury()
            clock = self._detector.device_clock(domain)
        self._reach_after(wait, clock)

    def allocated(self, array: object, kind: str) -> None:
        """Start a new history of memory that a device gave out."""
        with self._lock:
            self._bury()
            start, stop = self.memory.add(array, kind, find_origin())
            self._detector.memory.erase(start, stop)

    def released(self, pointer: int) -> None:
        """Stop telling that memory is freed: from now on it may be anybody's."""
        with self._lock:
            self._bury()
            self.memory.release(pointer)

    def host_access(self, array: np.ndarray) -> None:
        """Check that the host, about to use an array, has waited for what writes it.

        Raises
        ------
        StreamRaceError
            If it has not.
        """
        with self._lock:
            self._bury()
            start, stop = address_range(array)
            write = self._detector.unfinished_write(start, stop)
            if write is not None:
                raise host_race_error(write, start, stop, find_origin(), self._detector, self.memory.blocks)

    def close_device(self, domain: str | None = None) -> None:
        """Name the streams, of one device or of all, that were destroyed with copies to the host nobody waited for."""
        with self._lock:
            self._bury()
            abandoned, self._abandoned = self._abandoned, []
            for operation in abandoned:
                if domain not in (None, operation.stream.domain):
                    self._abandoned.append(operation)
                elif not self._detector.is_finished(operation):
                    self._find(
                        f"{operation.stream.label} was destroyed, and nobody waited for its copy to the host, queued "
                        f"at {describe(operation.origin)}: what was read there may be older bytes"
                    )

    # What follows is called with the lock held.

    def _queue(self, stream: Any, name: str, accesses: tuple[Access, ...], works: Sequence[Work]) -> None:
        clock = self._stream(stream)
        self.num_operations += len(works)
        origin = find_origin() if name == "graph" else works[0].origin
        try:
            operation = self._detector.queue(name, clock, accesses, origin)
        except RaceFound as found:
            raise race_error(found.conflict, self._detector, self.memory.blocks) from None
        for work in works:
            if work.name == "copy":
                dst, src = work.operands
                if isinstance(dst, np.ndarray):
                    clock.download = operation
                self._sources.copied(operation, dst, src, accesses, self._detector)

    def _know(self, operands: Sequence[Any]) -> None:
        self._bury()
        for array in operands:
            self.memory.know(array)

    def _stream(self, handle: Any) -> StreamClock:
        clock = self._streams.get(handle)
        if clock is None:
            self._bury()
            device = handle.device
            clock = self._detector.add_stream(f"Stream({device.name}, handle={handle.handle:#x})", domain_of(device))
            self._streams[handle] = clock
            end = functools.partial(self._gone.append, functools.partial(self._drop_stream, id(handle), clock))
            self._ends[id(handle)] = ref(handle, lambda _: end())
        return clock

    def _drop_stream(self, key: int, clock: StreamClock) -> None:
        self._ends.pop(key, None)
        self._detector.drop_stream(clock)
        if clock.download is not None:
            self._abandoned.append(clock.download)

    def _event(self, handle: Any) -> EventClock:
        clock = self._events.get(handle)
        if clock is None:
            clock = self._detector.add_event(f"Event({handle.device.name}, handle={handle.handle:#x})")
            if handle.is_recorded:  # before this began: what it stands behind is not known, and needs no order
                clock.clock = {}
            self._events[handle] = clock
        return clock

    def _bury(self) -> None:
        """Do what is due for streams and memory that are gone."""
        while self._gone:
            self._gone.popleft()()
        for start, stop in self.memory.take_freed():
            self._detector.memory.erase(start, stop)

    def _find(self, finding: str) -> None:
        self.findings.append(finding)
        _log.warning("stream sanitizer: %s", finding)

    # Called without it.

    def _reach_after(self, wait: Callable[[], None], clock: Clock) -> None:
        try:
            wait()
        finally:  # what raises here is the failure of an operation, which has run for all that
            self._reach(clock)

    def _reach(self, clock: Clock) -> None:
        with self._lock:
            self._detector.reach(clock)
            rewritten = self._sources.rewritten(self._detector)
        if rewritten is not None:
            operation, label = rewritten
            raise SanitizerError(
                f"the host wrote the source of copy {label} while it was pending: what was copied is the old bytes, "
                f"the new ones or some of each\n  queued on {operation.stream.label} at {describe(operation.origin)}\n"
                f"  missing  {operation.stream.label}.sync(), or the sync of an event behind the copy, before the "
                "host writes"
            )


def _accesses_of(works: Sequence[Work]) -> tuple[Access, ...]:
    """Collect what a graph's nodes do, each range once: they run in order, so one name for it will do."""
    found: dict[tuple[int, int, bool], Access] = {}
    for work in works:
        for access in work.accesses:
            named = access._replace(within=work.name, origin=work.origin)
            found.setdefault((access.start, access.stop, access.writes), named)
    # A range that is written too needs no read: the write conflicts with all that the read conflicts with.
    return tuple(
        access for (start, stop, writes), access in found.items() if writes or (start, stop, True) not in found
    )
