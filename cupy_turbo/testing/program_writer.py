"""Writing programs whose accesses are all ordered, so that every allowed schedule gives the same bytes.

The writer keeps, for the host and each stream, the set of operations that happen before whatever comes next there. An
access to a buffer that such a set does not order is ordered first, in one of the ways that CUDA has. What must come of
the program is then simple: what running its calls one by one would give.
"""

from __future__ import annotations

from cupy_turbo.testing.stream_program import BUFFERS, StreamProgram, Work

WAYS_TO_ORDER = ("wait", "wait again", "event sync", "poll", "stream sync", "device sync")
MAX_STREAMS = 4
_HOST = -1  # stands for the host where a stream's number is asked for


class ProgramWriter:
    r"""A program in the making. Streams and events are numbers; one that is too large makes another.

    Parameters
    ----------
    ordered : bool
        False leaves out what would order racing accesses.

    Examples
    --------
    >>> writer = ProgramWriter()
    >>> writer.run([Work("d0", byte=1)], 0, "wait")
    >>> writer.run([Work("d0", byte=2)], 1, "wait")
    >>> print("\n".join(writer.program().calls))
    s0 = Stream.create(device=device)
    device.fill(d0, 1, stream=s0)
    s1 = Stream.create(device=device)
    e0 = Event.create(device=device)
    e0.record(s0)
    s1.wait(e0)
    device.fill(d0, 2, stream=s1)
    """

    def __init__(self, *, ordered: bool = True) -> None:
        self._ordered = ordered
        self._calls: list[str] = []
        self._bytes = dict(zip(BUFFERS, range(len(BUFFERS)), strict=True))  # what each must hold once all is done
        self._writer: dict[str, set[int]] = {name: set() for name in BUFFERS}
        self._readers: dict[str, set[int]] = {name: set() for name in BUFFERS}
        self._before: dict[int, set[int]] = {_HOST: set()}  # by stream: what happens before its next operation
        self._streams: list[int] = []  # alive
        self._recorded: dict[int, tuple[int, set[int]]] = {}  # by event: the record, and all that precedes it
        self._num_events = self._num_graphs = 0
        self._stream_of: list[int] = []  # by operation

    def program(self) -> StreamProgram:
        """Return what has been written."""
        return StreamProgram(tuple(self._calls), dict(self._bytes) if self._ordered else None)

    # Streams and events.

    def add_stream(self, priority: int) -> None:
        """Make another stream, unless there are many."""
        if len(self._streams) < MAX_STREAMS:
            number = len(self._before) - 1
            self._streams.append(number)
            self._before[number] = set()
            given = f"{priority}, " if priority else ""
            self._calls.append(f"s{number} = Stream.create({given}device=device)")

    def share_stream(self, stream: int) -> None:
        """Let another owner take a stream over, and the first go."""
        number = self._stream(stream)
        self._calls.append(f"s{number} = copy(s{number})")

    def drop_stream(self, stream: int) -> None:
        """Let a stream's last owner go, with work pending or not."""
        number = self._stream(stream)
        self._streams.remove(number)
        self._calls.append(f"del s{number}")

    def record(self, event: int, stream: int) -> None:
        """Record an event, for the first time or again."""
        self._record(self._event(event), self._stream(stream))

    def wait(self, stream: int, event: int) -> None:
        """Make a stream wait, for a record or for none."""
        self._wait(self._stream(stream), self._event(event))

    def query(self, event: int) -> None:
        """Ask an event; it must answer yes if the host knows, and yes twice if once."""
        number = self._event(event)
        record = self._recorded[number][0] if number in self._recorded else None
        if record is None or record in self._before[_HOST]:
            self._calls.append(f'assert e{number}.query(), "e{number} cannot be pending"')
        else:
            asked = f"e{number}.query()"
            self._calls.append(f'assert not {asked} or {asked}, "e{number} happened and is pending"')

    def sync_event(self, event: int) -> None:
        """Wait for an event."""
        self._sync_event(self._event(event))

    def sync_stream(self, stream: int) -> None:
        """Wait for a stream."""
        self._sync_stream(self._stream(stream))

    # Work.

    def run(self, work: list[Work], stream: int, way: str) -> None:
        """Queue operations on a stream."""
        number = self._stream(stream)
        for each in work:
            self._claim([each], number, way)
            self._calls.append(each.call(f"s{number}"))

    def run_captured(self, work: list[Work], capture_on: int, stream: int, times: int, way: str) -> None:
        """Capture operations, then launch the graph: the same as queueing them, as often as it is launched."""
        captured, launched = self._stream(capture_on), self._stream(stream)
        number, self._num_graphs = self._num_graphs, self._num_graphs + 1
        inside = [each.call(f"s{captured}") for each in work]
        self._calls.append(_block(f"with device.capture(s{captured}) as g{number}:", inside))
        for _ in range(times):
            self._claim(work, launched, way)
            self._calls.append(f"g{number}.graph.launch(s{launched})")

    def fail_in_capture(self, work: list[Work], stream: int) -> None:
        """End a capture with an exception; nothing of it runs."""
        number = self._stream(stream)
        inside = [*(each.call(f"s{number}") for each in work), "raise InterruptedError"]
        self._calls.append(_block(f"with suppress(InterruptedError), device.capture(s{number}):", inside))

    def copy_from_nobodys(self, target: str, byte: int, stream: int, way: str) -> None:
        """Copy from a pinned source whose last owner goes while the copy may be pending."""
        number = self._stream(stream)
        self._calls.append(f"source = device.pinned(64, np.uint8)\nsource[:] = {byte}")
        self._claim([Work(target, byte=byte)], number, way)
        self._calls.append(f"device.copy({target}, source, stream=s{number})\ndel source")

    def write_pinned(self, buffer: str, byte: int, way: str) -> None:
        """Write from the host, as soon as no copy that was queued before may still need the old bytes."""
        self._order(self._writer[buffer] | self._readers[buffer], _HOST, way)
        self._calls.append(f"{buffer}[:] = {byte}")
        self._bytes[buffer], self._writer[buffer], self._readers[buffer] = byte, set(), set()

    def read_pinned(self, buffer: str, way: str) -> None:
        """Look at a pinned buffer as soon as what was to be copied there has arrived."""
        self._order(self._writer[buffer], _HOST, way)
        if self._ordered:
            byte = self._bytes[buffer]
            self._calls.append(f'assert ({buffer} == {byte}).all(), f"{buffer} must hold {byte}, found {{{buffer}}}"')

    def read_back(self, buffer: str, source: str, stream: int, way: str) -> None:
        """Copy to a pinned buffer and look at it."""
        self.run([Work(buffer, source)], stream, way)
        self.read_pinned(buffer, way)

    # A number that was drawn, to one that exists.

    def _stream(self, choice: int) -> int:
        if choice >= len(self._streams):
            self.add_stream(0)
        return self._streams[min(choice, len(self._streams) - 1)]

    def _event(self, choice: int) -> int:
        return choice if choice < self._num_events else self._add_event()

    def _add_event(self) -> int:
        number, self._num_events = self._num_events, self._num_events + 1
        self._calls.append(f"e{number} = Event.create(device=device)")
        return number

    # Order.

    def _record(self, event: int, stream: int) -> None:
        operation = self._new_operation(stream)
        self._recorded[event] = operation, self._before[stream] | self._before[_HOST]
        self._calls.append(f"e{event}.record(s{stream})")

    def _wait(self, stream: int, event: int) -> None:
        self._before[stream] |= self._up_to(event)
        self._calls.append(f"s{stream}.wait(e{event})")

    def _sync_event(self, event: int) -> None:
        self._before[_HOST] |= self._up_to(event)
        self._calls += [f"e{event}.sync()", f'assert e{event}.query(), "e{event} was waited for"']

    def _sync_stream(self, stream: int) -> None:
        self._before[_HOST] |= self._before[stream]
        self._calls.append(f"s{stream}.sync()")

    def _sync_device(self) -> None:
        self._before[_HOST] |= set(range(len(self._stream_of)))
        self._calls.append("device.synchronize()")

    def _up_to(self, event: int) -> set[int]:
        return self._recorded[event][1] if event in self._recorded else set()

    def _claim(self, work: list[Work], stream: int, way: str) -> None:
        """Order one coming operation of `stream`, which does all of `work`, behind what it must follow."""
        read = {each.source for each in work if each.source is not None}
        written = {each.target for each in work}
        needed = set().union(*(self._writer[b] for b in read | written), *(self._readers[b] for b in written))
        self._order(needed, stream, way)
        operation = self._new_operation(stream)
        for each in work:
            self._bytes[each.target] = each.byte if each.source is None else self._bytes[each.source]
        for buffer in read:
            self._readers[buffer].add(operation)
        for buffer in written:
            self._writer[buffer], self._readers[buffer] = {operation}, set()

    def _order(self, needed: set[int], observer: int, way: str) -> None:
        """Make every operation of `needed` happen before what comes next on `observer`, where it does not already."""
        for operation in sorted(needed, reverse=True) if self._ordered else ():
            if operation in self._before[observer] | self._before[_HOST]:
                continue
            stream = self._stream_of[operation]
            if stream not in self._streams or way == "device sync":
                self._sync_device()
            elif way == "stream sync":
                self._sync_stream(stream)
            else:
                event = 0 if way == "wait again" and self._num_events else self._add_event()
                self._record(event, stream)
                if way.startswith("wait") and observer != _HOST:
                    self._wait(observer, event)
                elif way == "poll":
                    self._before[_HOST] |= self._up_to(event)
                    self._calls.append(f"wait_until(e{event}.query)")
                else:
                    self._sync_event(event)

    def _new_operation(self, stream: int) -> int:
        self._stream_of.append(stream)
        self._before[stream].add(len(self._stream_of) - 1)
        return len(self._stream_of) - 1


def _block(head: str, inside: list[str]) -> str:
    return "\n".join([head, *(f"    {line}" for line in inside)])
