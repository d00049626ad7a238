"""Programs for a device that hypothesis writes: free of races, so that every allowed schedule gives the same bytes.

The program keeps, for the host and each stream, the set of operations that happen before whatever comes next there. An
access to a buffer that such a set does not order is ordered first, in one of the ways that CUDA has. What remains to
check is simple: every buffer holds what running the calls one by one would have put there.
"""

from __future__ import annotations

import copy
import gc
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Event, Stream
from tests.property.threads import wait_until

NUM_DEVICE_BUFFERS, NUM_PINNED_BUFFERS = 3, 2
NUM_BUFFERS = NUM_DEVICE_BUFFERS + NUM_PINNED_BUFFERS
BUFFER_SHAPE, BUFFER_TYPE = (64,), np.dtype(np.uint8)
WAYS_TO_ORDER = ("wait", "event sync", "poll", "stream sync", "device sync")
HOST = -1  # stands for the host where a stream's number is asked for


@dataclass(frozen=True)
class Work:
    """One operation: fill buffer `target` with `byte`, or copy buffer `source` to it."""

    target: int
    source: int | None = None
    byte: int = 0


class DeviceProgram:
    """Calls on a device, and what must come of them."""

    def __init__(self, device: Device) -> None:
        self.device = device
        initial = [np.full(BUFFER_SHAPE, number, BUFFER_TYPE) for number in range(NUM_BUFFERS)]
        pinned = [device.pinned(BUFFER_SHAPE, BUFFER_TYPE) for _ in range(NUM_PINNED_BUFFERS)]
        self.buffers: list[Any] = [device.upload(array) for array in initial[:NUM_DEVICE_BUFFERS]] + pinned
        for buffer, array in zip(pinned, initial[NUM_DEVICE_BUFFERS:], strict=True):
            buffer[:] = array
        self.bytes = list(range(NUM_BUFFERS))  # what each must hold once all is done
        self.writer: list[set[int]] = [set() for _ in range(NUM_BUFFERS)]
        self.readers: list[set[int]] = [set() for _ in range(NUM_BUFFERS)]
        self.streams: dict[int, Stream] = {}
        self.events: dict[int, Event] = {}
        self.before: dict[int, set[int]] = {HOST: set()}  # by stream number: what happens before its next operation
        self.recorded: dict[int, tuple[int, set[int]]] = {}  # by event: the record itself and all that precedes it
        self.stream_of: list[int] = []  # by operation
        self.happened: set[int] = set()  # events that have answered "happened" since their record

    # Streams and events, by number.

    def add_stream(self, priority: int = 0) -> int:
        number = len(self.before)
        self.streams[number] = Stream.create(priority, device=self.device)
        self.before[number] = set()
        return number

    def share_stream(self, number: int) -> None:
        """Another owner takes the stream over, and the first goes."""
        self.streams[number] = copy.copy(self.streams[number])

    def drop_stream(self, number: int) -> None:
        """The last owner goes, with work pending or not."""
        del self.streams[number]
        gc.collect(0)

    def add_event(self) -> int:
        number = len(self.events)
        self.events[number] = Event.create(device=self.device)
        return number

    def record(self, event: int, stream: int) -> None:
        operation = self._new_operation(stream)
        self.recorded[event] = operation, self.before[stream] | self.before[HOST]
        self.happened.discard(event)
        self.events[event].record(self.streams[stream])

    def wait(self, stream: int, event: int) -> None:
        self.before[stream] |= self._up_to(event)
        self.streams[stream].wait(self.events[event])

    def sync_event(self, event: int) -> None:
        self.events[event].sync()
        self.before[HOST] |= self._up_to(event)
        assert self.query(event), "an event that was waited for has happened"

    def sync_stream(self, stream: int) -> None:
        self.streams[stream].sync()
        self.before[HOST] |= self.before[stream]

    def sync_device(self) -> None:
        self.device.synchronize()
        self.before[HOST] |= set(range(len(self.stream_of)))

    def query(self, event: int) -> bool:
        answer = self.events[event].query()
        record = self.recorded[event][0] if event in self.recorded else None
        if record is None or record in self.before[HOST] or event in self.happened:
            assert answer, "never recorded, or known to have happened: it cannot be pending"
        if answer:
            self.happened.add(event)
            self.before[HOST] |= self._up_to(event)
        return answer

    def _up_to(self, event: int) -> set[int]:
        return self.recorded[event][1] if event in self.recorded else set()

    # Work.

    def run(self, work: list[Work], stream: int, way: str) -> None:
        """Queue operations on a stream."""
        for each in work:
            self._claim([each], stream, way)
            self._queue(each, self.streams[stream])

    def run_captured(self, work: list[Work], capture_on: int, stream: int, times: int, way: str) -> None:
        """Capture operations, then launch the graph: the same as queueing them, as often as it is launched."""
        with self.device.capture(self.streams[capture_on]) as captured:
            for each in work:
                self._queue(each, self.streams[capture_on])
        for _ in range(times):
            self._claim(work, stream, way)
            captured.graph.launch(self.streams[stream])

    def fail_in_capture(self, work: list[Work], stream: int) -> None:
        """An exception ends a capture; nothing of it runs."""
        try:
            with self.device.capture(self.streams[stream]):
                for each in work:
                    self._queue(each, self.streams[stream])
                raise InterruptedError
        except InterruptedError:
            pass

    def copy_from_nobodys(self, target: int, byte: int, stream: int, way: str) -> None:
        """Copy from a pinned source whose last owner goes while the copy may be pending."""
        source = self.device.pinned(BUFFER_SHAPE, BUFFER_TYPE)
        source[:] = byte
        self._claim([Work(target, byte=byte)], stream, way)
        self.device.copy(self.buffers[target], source, stream=self.streams[stream])

    def write_pinned(self, buffer: int, byte: int, way: str) -> None:
        """Write from the host, as soon as no copy that was queued before may still need the old bytes."""
        self._order(self.writer[buffer] | self.readers[buffer], HOST, way)
        self.buffers[buffer][:] = byte
        self.bytes[buffer], self.writer[buffer], self.readers[buffer] = byte, set(), set()

    def read_pinned(self, buffer: int, way: str) -> None:
        self._order(self.writer[buffer], HOST, way)
        self._check(buffer, self.buffers[buffer])

    def check_all(self) -> None:
        self.sync_device()
        for number, buffer in enumerate(self.buffers):
            self._check(number, buffer if isinstance(buffer, np.ndarray) else self.device.fetch(buffer))

    def _check(self, number: int, found: np.ndarray) -> None:
        assert np.array_equal(found, np.full(BUFFER_SHAPE, self.bytes[number], BUFFER_TYPE)), (
            f"buffer {number} must hold {self.bytes[number]}, found {found}"
        )

    def _queue(self, work: Work, stream: Stream) -> None:
        target = self.buffers[work.target]
        if work.source is None:
            self.device.fill(target, work.byte, stream=stream)
        else:
            self.device.copy(target, self.buffers[work.source], stream=stream)

    def _claim(self, work: list[Work], stream: int, way: str) -> None:
        """Order one coming operation of `stream`, which does all of `work`, behind what it must follow."""
        read = {each.source for each in work if each.source is not None}
        written = {each.target for each in work}
        needed = set().union(*(self.writer[b] for b in read | written), *(self.readers[b] for b in written))
        self._order(needed, stream, way)
        operation = self._new_operation(stream)
        for each in work:
            self.bytes[each.target] = each.byte if each.source is None else self.bytes[each.source]
        for buffer in read:
            self.readers[buffer].add(operation)
        for buffer in written:
            self.writer[buffer], self.readers[buffer] = {operation}, set()

    def _order(self, needed: set[int], observer: int, way: str) -> None:
        """Make every operation of `needed` happen before what comes next on `observer`, where it does not already."""
        for operation in sorted(needed, reverse=True):
            if operation in self.before[observer] | self.before[HOST]:
                continue
            stream = self.stream_of[operation]
            if stream not in self.streams or way == "device sync":
                self.sync_device()
            elif way == "stream sync":
                self.sync_stream(stream)
            else:
                event = self.add_event()
                self.record(event, stream)
                if way == "wait" and observer != HOST:
                    self.wait(observer, event)
                elif way == "poll":
                    wait_until(lambda event=event: self.query(event))
                else:
                    self.sync_event(event)

    def _new_operation(self, stream: int) -> int:
        self.stream_of.append(stream)
        self.before[stream].add(len(self.stream_of) - 1)
        return len(self.stream_of) - 1
