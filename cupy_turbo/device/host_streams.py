"""What `Stream` and `Event` own on the host device, and the capture of a stream's work as a graph."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cupy_turbo.core import sanitizing
from cupy_turbo.core.errors import DeviceError
from cupy_turbo.core.shared_handle import handle_of
from cupy_turbo.device.host_schedule import Failure, Operation
from cupy_turbo.device.queued_work import Work

if TYPE_CHECKING:
    from cupy_turbo.core.stream import Stream
    from cupy_turbo.device.host import HostDevice

_handles = itertools.count(1)  # never used again, unlike a driver's: a stale handle is then always an error


class HostStreamHandle:
    """A stream of the host device.

    Work left on a dropped stream is not lost: the schedule owns it and runs it when its effect can be seen.

    Parameters
    ----------
    device : HostDevice
        Owner.
    priority : int
        Kept, and without effect: a policy decides the order.
    """

    def __init__(self, device: HostDevice, priority: int) -> None:
        self.device = device
        self.priority = priority
        self.handle = next(_handles)
        self.pending: deque[Operation] = deque()
        self.latest: Operation | None = None
        self.failure: Failure | None = None
        self.capture: list[Operation] | None = None

    def synchronize(self) -> None:
        """Run what was queued here before this call; raise its failure if nobody had it."""
        schedule = self.device.schedule
        self.refuse_capture("synchronized")
        last = self.latest
        if last is not None:
            schedule.run_until(lambda: last.is_done)
            schedule.deliver(last.failure)

    def wait(self, event: HostEventHandle) -> None:
        """Hold back later work until the event's latest record, as of now, has run."""
        if event.capture is not None and event.capture is self.capture:
            return  # recorded earlier on this very stream
        record = event.captured_record("waited for")
        if record is None or (record.is_done and record.failure is None):
            return
        self.refuse_capture("made to wait for work outside it")
        self.device.schedule.enqueue(self, [Operation("wait", after=record)])

    def note(self, operation: Operation, work: Work) -> None:
        """Describe an operation to the sanitizer, or to the graph being captured, before it is queued here."""
        operation.work = work
        if sanitizing.watch is not None and self.capture is None:
            sanitizing.watch.queue(self, work)

    def refuse_capture(self, what: str) -> None:
        """Raise if this stream is capturing."""
        if self.capture is not None:
            raise DeviceError(f"stream {self.handle} is being captured and cannot be {what}")


class HostEventHandle:
    """An event of the host device.

    Parameters
    ----------
    device : HostDevice
        Owner.
    timing : bool
        Whether `elapsed_since` may be asked.
    """

    def __init__(self, device: HostDevice, timing: bool) -> None:
        self.device = device
        self.timing = timing
        self.handle = next(_handles)
        self.capture: list[Operation] | None = None
        self._record: Operation | None = None

    @property
    def is_recorded(self) -> bool:
        """Whether it was ever recorded."""
        return self._record is not None or self.capture is not None

    def record(self, stream: HostStreamHandle) -> None:
        """Take the place behind all that is queued on the stream."""
        self.capture = stream.capture
        if stream.capture is None:
            record = Operation("record")
            self.device.schedule.enqueue(stream, [record])
            self._record = record

    def synchronize(self) -> None:
        """Run what the latest record depends on; raise a failure of it that nobody had."""
        record = self.captured_record("synchronized")
        if record is not None:
            self.device.schedule.run_until(lambda: record.is_done)
            self.device.schedule.deliver(record.failure)

    def query(self) -> bool:
        """Let the device advance by at most one operation; tell whether the latest record has run."""
        record = self.captured_record("queried")
        return record is None or self.device.schedule.advance(record)

    def elapsed_since(self, other: HostEventHandle) -> float:
        """Milliseconds of the host's clock from the other event's latest record to this one's."""
        end, start = self.captured_record("timed"), other.captured_record("timed")
        if end is None or start is None:
            raise ValueError("Event.elapsed_since(): an event was never recorded")
        return (end.time_ns - start.time_ns) / 1e6

    def captured_record(self, what: str) -> Operation | None:
        """Return the latest record, None if there is none; an event recorded in a capture has no time of its own."""
        if self.capture is not None:
            raise DeviceError(f"event {self.handle} was recorded in a capture and cannot be {what} outside it")
        return self._record


class HostGraph:
    """Operations of a captured stream, queued again by one call.

    Parameters
    ----------
    operations : list of Operation
        In the order in which they were captured; their arguments are prepared.
    """

    def __init__(self, operations: list[Operation]) -> None:
        self._operations = operations

    def launch(self, stream: Stream) -> None:
        """Queue every captured operation on `stream`."""
        target: Any = handle_of(stream, "Stream", "Graph.launch()")
        if sanitizing.watch is not None and target.capture is None:
            works = [operation.work for operation in self._operations if operation.work is not None]
            sanitizing.watch.launch(target, self, works)
        target.device.schedule.enqueue(target, [operation.copy() for operation in self._operations])


class HostCapture:
    """What ``with device.capture(stream) as captured`` gives."""

    def __init__(self) -> None:
        self._graph: HostGraph | None = None

    @property
    def graph(self) -> HostGraph:
        """The captured work.

        Raises
        ------
        DeviceError
            If the capture has not ended, or ended with an exception.
        """
        if self._graph is None:
            raise DeviceError("there is no graph: its capture has not ended, or ended with an exception")
        return self._graph

    @contextmanager
    def of(self, stream: HostStreamHandle) -> Iterator[HostCapture]:
        """Collect what `stream` is given in the ``with``; the stream is usable afterwards whatever happened."""
        stream.refuse_capture("captured again")
        operations: list[Operation] = []
        stream.capture = operations
        stream.device.capturing_threads.append(threading.get_ident())
        try:
            yield self
        finally:
            stream.device.capturing_threads.remove(threading.get_ident())
            stream.capture = None
        self._graph = HostGraph(operations)
