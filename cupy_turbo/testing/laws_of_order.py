"""Laws of streams and events: what runs before what, and who sees it."""

from __future__ import annotations

from itertools import pairwise

from cupy_turbo.testing.stream_bench import Bench, holds
from cupy_turbo.testing.threads import wait_until

_ROUNDS = 8  # of each law: a schedule may hide a mistake once


def _order(bench: Bench) -> None:
    stream, noise = bench.stream(), bench.stream()
    chain = [bench.array() for _ in range(9)]
    bench.device.fill(chain[0], 42, stream=stream)
    for before, after in pairwise(chain):
        bench.device.fill(bench.array(), 1, stream=noise)
        bench.device.copy(after, before, stream=stream)
    holds(bench.device.fetch(chain[-1]), 42)


def _stream_sync(bench: Bench) -> None:
    for _ in range(_ROUNDS):
        stream = bench.stream()
        target = bench.result(stream, 6)
        stream.sync()
        holds(target, 6)


def _device_sync(bench: Bench) -> None:
    for _ in range(_ROUNDS):
        targets = [bench.result(bench.stream(), 7) for _ in range(3)]
        bench.device.synchronize()
        for target in targets:
            holds(target, 7)
        targets = [bench.result(bench.stream(), 8) for _ in range(3)]
        bench.device.fetch(bench.array())
        for target in targets:
            holds(target, 8)


def _event_sync(bench: Bench) -> None:
    for _ in range(_ROUNDS):
        stream, event = bench.stream(), bench.event()
        target = bench.result(stream, 5)
        event.record(stream)
        event.sync()
        holds(target, 5)
        assert event.query(), "query() is false afterwards"


def _wait(bench: Bench) -> None:
    for _ in range(_ROUNDS):
        first, second, event, array = bench.stream(), bench.stream(), bench.event(), bench.array()
        bench.busy(first)
        bench.device.fill(array, 1, stream=first)
        event.record(first)
        second.wait(event)
        bench.device.fill(array, 2, stream=second)
        holds(bench.device.fetch(array), 2)


def _never_recorded(bench: Bench) -> None:
    stream, event, array = bench.stream(), bench.event(), bench.array()
    assert event.query(), "query() is false"
    event.sync()
    stream.wait(event)
    bench.device.fill(array, 3, stream=stream)
    stream.sync()
    holds(bench.device.fetch(array), 3)


def _later_record(bench: Bench) -> None:
    first, second, event, back = bench.stream(), bench.stream(), bench.event(), bench.event()
    array = bench.array()
    bench.device.fill(array, 1, stream=first)
    event.record(first)
    second.wait(event)
    bench.device.fill(array, 2, stream=second)
    back.record(second)
    first.wait(back)
    event.record(first)  # behind the stream that waits
    second.sync()
    holds(bench.device.fetch(array), 2)


def _second_record(bench: Bench) -> None:
    for _ in range(_ROUNDS):
        stream, event = bench.stream(), bench.event()
        event.record(stream)
        event.sync()
        target = bench.result(stream, 9)
        event.record(stream)
        event.sync()
        holds(target, 9)


def _query(bench: Bench) -> None:
    for _ in range(_ROUNDS):
        first, second, filled, copied = bench.stream(), bench.stream(), bench.event(), bench.event()
        array, target = bench.array(), bench.pinned()
        bench.busy(first)
        bench.device.fill(array, 9, stream=first)
        filled.record(first)
        second.wait(filled)
        bench.device.copy(target, array, stream=second)
        copied.record(second)
        wait_until(copied.query, bench.patience)
        holds(target, 9)
        assert copied.query(), "it is pending again"
        assert filled.query(), "what it waited for is pending"


LAWS = {
    "synchronize and fetch wait for every stream of the device": _device_sync,
    "work of one stream runs in the order in which it was queued": _order,
    "Stream.sync returns when all that was queued there has run": _stream_sync,
    "Event.sync returns when what was queued before the record has run": _event_sync,
    "a wait holds back what is queued after it until the recorded work has run": _wait,
    "an event that was never recorded has happened, and holds nothing back": _never_recorded,
    "a wait is for the latest record before it: later ones do not move it": _later_record,
    "a second record replaces the first": _second_record,
    "polling an event ends; once it says that the event has happened, the work is done, and it says so again": _query,
}
