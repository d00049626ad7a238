"""Laws of what a device keeps and shares, and of graphs."""

from __future__ import annotations

import gc
from copy import copy

from cupy_turbo.core.stream import Event, Stream
from cupy_turbo.testing.stream_bench import Bench, holds

_ROUNDS = 8  # of each law: a schedule may hide a mistake once


def _pinned_source(bench: Bench) -> None:
    stream, event, source, array = bench.stream(), bench.event(), bench.pinned(1), bench.array()
    bench.busy(stream)
    bench.device.copy(array, source, stream=stream)
    event.record(stream)
    event.sync()
    source[:] = 2
    holds(bench.device.fetch(array), 1)


def _operands(bench: Bench) -> None:
    stream, array = bench.stream(), bench.array()
    bench.busy(stream)
    for byte in range(20):
        source = bench.pinned(byte)
        bench.device.copy(array, source, stream=stream)
        del source
        bench.pinned(255)  # takes the memory over if it is free
    holds(bench.device.fetch(array), 19)


def _dropped(bench: Bench) -> None:
    for _ in range(_ROUNDS):
        stream, event = bench.stream(), bench.event()
        target = bench.result(stream, 11)
        event.record(stream)
        del stream
        gc.collect(0)
        event.sync()
        holds(target, 11)


def _shared(bench: Bench) -> None:
    stream, array = bench.stream(), bench.array()
    other = copy(stream)
    assert other == stream, "they are not equal"
    assert other.handle == stream.handle, "they have handles of their own"
    bench.busy(stream)
    bench.device.fill(array, 1, stream=stream)
    del stream
    bench.device.fill(array, 2, stream=other)
    other.sync()
    holds(bench.device.fetch(array), 2)


def _priorities(bench: Bench) -> None:
    for priority in (0, -1, -1000, 1000):
        stream, array = Stream.create(priority, device=bench.device), bench.array()
        bench.device.fill(array, 4, stream=stream)
        stream.sync()
        holds(bench.device.fetch(array), 4)


def _timing(bench: Bench) -> None:
    stream = bench.stream()
    start, stop = (Event.create(timing=True, device=bench.device) for _ in range(2))
    start.record(stream)
    bench.result(stream, 1)
    stop.record(stream)
    stop.sync()
    forwards, backwards = stop.elapsed_since(start), start.elapsed_since(stop)
    assert forwards >= 0 >= backwards, f"{forwards} and {backwards} ms"


def _capture(bench: Bench) -> None:
    stream, source, array, target = bench.stream(), bench.pinned(1), bench.array(), bench.pinned()
    with bench.device.capture(stream) as captured:
        bench.device.fill(array, 77, stream=stream)
        bench.device.copy(array, source, stream=stream)
        bench.device.copy(target, array, stream=stream)
    bench.device.synchronize()
    holds(target, 0)
    for byte, on in ((2, stream), (3, bench.stream())):
        source[:] = byte
        captured.graph.launch(on)
        on.sync()
        holds(target, byte)


def _failed_capture(bench: Bench) -> None:
    stream, array = bench.stream(), bench.array()
    try:
        with bench.device.capture(stream):
            bench.device.fill(array, 1, stream=stream)
            raise InterruptedError
    except InterruptedError:
        pass
    stream.sync()
    holds(bench.device.fetch(array), 0)
    bench.device.fill(array, 2, stream=stream)
    stream.sync()
    holds(bench.device.fetch(array), 2)


LAWS = {
    "a pinned source may be rewritten once its copy has run, and not a byte of the new is copied": _pinned_source,
    "a copy keeps its operands until it has run": _operands,
    "dropping a stream's last owner loses none of its work": _dropped,
    "copies of a stream are one stream": _shared,
    "any priority makes a stream": _priorities,
    "elapsed time is what lies between two records, negative backwards": _timing,
    "a capture runs nothing; a graph runs all of it in order at each launch, and reads its sources then": _capture,
    "an exception ends a capture, nothing of it runs, and the stream is usable": _failed_capture,
}
