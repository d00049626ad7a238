"""Programs of streams, events and buffers that may race, and an oracle that says where: paths in a graph, no clocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from random import Random

import numpy as np

from cupy_turbo.core.errors import StreamRaceError
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Event, Stream

NUM_STREAMS, NUM_EVENTS, NUM_BUFFERS, BUFFER_SIZE = 3, 2, 3, 8
PINNED = 2  # number of the buffer that is memory of the host; the others are the device's
Range = tuple[int, int, int]  # buffer, start, stop


@dataclass(frozen=True)
class Fill:
    """Set bytes of a device buffer."""

    stream: int
    target: Range
    byte: int


@dataclass(frozen=True)
class Copy:
    """Copy as many bytes from one buffer to another."""

    stream: int
    target: Range
    source: Range


@dataclass(frozen=True)
class Launch:
    """Launch a graph of fills and copies, whose own streams do not matter."""

    stream: int
    work: tuple[Fill | Copy, ...]


@dataclass(frozen=True)
class Record:
    event: int
    stream: int


@dataclass(frozen=True)
class Wait:
    stream: int
    event: int


@dataclass(frozen=True)
class SyncEvent:
    event: int


@dataclass(frozen=True)
class SyncStream:
    stream: int


@dataclass(frozen=True)
class SyncDevice:
    pass


Work = Fill | Copy | Launch
Step = Work | Record | Wait | SyncEvent | SyncStream | SyncDevice


def random_range(random: Random, buffer: int, size: int) -> Range:
    start = random.randint(0, BUFFER_SIZE - size)
    return buffer, start, start + size


def random_work(random: Random) -> Fill | Copy:
    stream, size = random.randrange(NUM_STREAMS), random.randint(1, BUFFER_SIZE)
    if random.random() < 0.5:
        return Fill(stream, random_range(random, random.randrange(PINNED), size), random.randrange(256))
    target, source = random.sample(range(NUM_BUFFERS), 2)
    return Copy(stream, random_range(random, target, size), random_range(random, source, size))


def random_step(random: Random) -> Step:
    stream, event = random.randrange(NUM_STREAMS), random.randrange(NUM_EVENTS)
    kind = random.choices(["work", "graph", "record", "wait", "event", "stream", "device"], [8, 1, 4, 4, 1, 1, 0.5])[0]
    if kind == "work":
        return random_work(random)
    if kind == "graph":
        return Launch(stream, tuple(random_work(random) for _ in range(random.randint(1, 3))))
    return {
        "record": Record(event, stream),
        "wait": Wait(stream, event),
        "event": SyncEvent(event),
        "stream": SyncStream(stream),
        "device": SyncDevice(),
    }[kind]


def bits(where: Range) -> int:
    """Bytes of all buffers, as bits."""
    buffer, start, stop = where
    return ((1 << stop) - (1 << start)) << (buffer * BUFFER_SIZE)


def read_and_written(work: Work) -> tuple[int, int]:
    """Bytes that an operation reads, and those that it writes."""
    if isinstance(work, Launch):
        parts = [read_and_written(each) for each in work.work]
        return reduce(or_, (read for read, _ in parts), 0), reduce(or_, (written for _, written in parts), 0)
    return (bits(work.source) if isinstance(work, Copy) else 0), bits(work.target)


class Oracle:
    """Every call is a node; an edge goes from what a node must follow. Two operations are ordered if a path joins them.

    The calls that wait on the host are a chain, and whatever is queued after one of them follows it.
    """

    def __init__(self) -> None:
        self.before: list[list[int]] = []  # edges, by node
        self.work: dict[int, tuple[Work, int, int]] = {}  # and the bytes read and written, by node
        self.last: dict[int, int] = {}  # node, by stream
        self.record: dict[int, int] = {}  # node, by event
        self.host: int | None = None

    def conflicts(self, work: Work) -> list[Work]:
        """What a coming operation would race with."""
        read, written = read_and_written(work)
        ordered = self._reachable(self._before_stream(work.stream))
        return [
            earlier
            for node, (earlier, was_read, was_written) in self.work.items()
            if node not in ordered and (was_written & (read | written) or was_read & written)
        ]

    def add(self, step: Step) -> None:
        if isinstance(step, (SyncEvent, SyncStream, SyncDevice)):
            if isinstance(step, SyncDevice):
                seen = list(self.last.values())
            else:
                place = self.record.get(step.event) if isinstance(step, SyncEvent) else self.last.get(step.stream)
                seen = [] if place is None else [place]
            self.host = self._node(seen + ([] if self.host is None else [self.host]))
            return
        edges = self._before_stream(step.stream)
        if isinstance(step, Wait) and step.event in self.record:
            edges.append(self.record[step.event])
        node = self.last[step.stream] = self._node(edges)
        if isinstance(step, Record):
            self.record[step.event] = node
        elif not isinstance(step, Wait):
            self.work[node] = (step, *read_and_written(step))

    def _before_stream(self, stream: int) -> list[int]:
        return [node for node in (self.last.get(stream), self.host) if node is not None]

    def _node(self, edges: list[int]) -> int:
        self.before.append(edges)
        return len(self.before) - 1

    def _reachable(self, nodes: list[int]) -> set[int]:
        found: set[int] = set()
        while nodes:
            node = nodes.pop()
            if node not in found:
                found.add(node)
                nodes += self.before[node]
        return found


class Run:
    """A program's calls on a device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        byte = np.dtype(np.uint8)
        self.buffers = [device.upload(np.full(BUFFER_SIZE, number, byte)) for number in range(PINNED)]
        self.buffers.append(device.pinned(BUFFER_SIZE, byte))
        self.buffers[PINNED][:] = PINNED
        self.streams = [Stream.create(device=device) for _ in range(NUM_STREAMS)]
        self.events = [Event.create(device=device) for _ in range(NUM_EVENTS)]

    def do(self, step: Step) -> None:
        match step:
            case Launch(stream, work):
                with self.device.capture(self.streams[stream]) as captured:
                    for each in work:
                        self.queue(each, self.streams[stream])
                captured.graph.launch(self.streams[stream])
            case Fill(stream) | Copy(stream):
                self.queue(step, self.streams[stream])
            case Record(event, stream):
                self.events[event].record(self.streams[stream])
            case Wait(stream, event):
                self.streams[stream].wait(self.events[event])
            case SyncEvent(event):
                self.events[event].sync()
            case SyncStream(stream):
                self.streams[stream].sync()
            case SyncDevice():
                self.device.synchronize()

    def races(self, step: Step) -> StreamRaceError | None:
        """Do a step; return the sanitizer's refusal, if any."""
        try:
            self.do(step)
        except StreamRaceError as error:
            return error
        return None

    def queue(self, work: Fill | Copy, stream: Stream) -> None:
        if isinstance(work, Fill):
            self.device.fill(self.part(work.target), work.byte, stream=stream)
        else:
            self.device.copy(self.part(work.target), self.part(work.source), stream=stream)

    def part(self, where: Range):
        buffer, start, stop = where
        return self.buffers[buffer][start:stop]

    def contents(self) -> list[list[int]]:
        """All bytes at the end."""
        self.device.synchronize()
        return [(b if isinstance(b, np.ndarray) else self.device.fetch(b)).tolist() for b in self.buffers]
