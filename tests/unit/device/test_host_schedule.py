"""The lazy model of streams: who runs what, when, and who hears of a failure. Its laws are in tests/property."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from cupy_turbo.core.errors import DeviceError
from cupy_turbo.core.stream import Event, Stream
from cupy_turbo.device.host import HostDevice
from cupy_turbo.device.host_schedule import Operation


class Bench:
    """A device whose operations are Python functions that log their name."""

    def __init__(self, policy: object = "fifo") -> None:
        self.device = HostDevice(policy=policy)  # type: ignore[arg-type]
        self.log: list[str] = []

    def stream(self) -> Stream:
        return Stream.create(device=self.device)

    def event(self, timing: bool = False) -> Event:
        return Event.create(timing, device=self.device)

    def call(self, stream: Stream, name: str, function: Callable[[], None] | None = None) -> None:
        def run() -> None:
            self.log.append(name)
            if function is not None:
                function()

        self.device.schedule.enqueue(self.device.stream_of(stream, name), [Operation(name, run)])

    def fail(self, stream: Stream, name: str) -> None:
        def run() -> None:
            raise ArithmeticError(name)

        self.call(stream, name, run)


class Latest:
    """Runs the youngest operation that may run."""

    def __init__(self) -> None:
        self.offered: list[list[str]] = []

    def choose(self, ready: Sequence[Operation]) -> int:
        self.offered.append([operation.name for operation in ready])
        return len(ready) - 1


def test_nothing_runs_before_somebody_must_see_it() -> None:
    bench = Bench()
    first, second = bench.stream(), bench.stream()
    bench.call(first, "a")
    bench.call(second, "b")
    bench.call(first, "c")
    assert bench.log == []
    assert [operation.name for operation in bench.device.schedule.pending()] == ["a", "b", "c"]
    second.sync()
    assert bench.log == ["a", "b"]  # fifo over all streams, and no further than asked
    bench.device.synchronize()
    assert bench.log == ["a", "b", "c"]


def test_eager_runs_at_once() -> None:
    bench = Bench("eager")
    bench.call(bench.stream(), "a")
    assert bench.log == ["a"]


def test_a_policy_sees_the_heads_of_streams_that_may_run() -> None:
    policy = Latest()
    bench = Bench(policy)
    first, second, third = bench.stream(), bench.stream(), bench.stream()
    event = bench.event()
    bench.call(first, "a1")
    event.record(first)
    second.wait(event)
    bench.call(second, "b1")
    bench.call(third, "c1")
    bench.call(third, "c2")
    second.sync()
    assert bench.log == ["c1", "c2", "a1", "b1"]
    assert policy.offered == [["a1", "c1"], ["a1", "c2"], ["a1"], ["record"], ["wait"], ["b1"]]


def test_a_query_advances_what_it_asks_about_by_one_operation() -> None:
    bench = Bench()
    first, second, other = bench.stream(), bench.stream(), bench.stream()
    before, asked = bench.event(), bench.event()
    bench.call(other, "unrelated")
    bench.call(first, "a")
    before.record(first)
    bench.call(first, "later")
    second.wait(before)
    asked.record(second)
    answers = [asked.query() for _ in range(4)]  # a, record, wait, record
    assert answers == [False, False, False, True]
    assert bench.log == ["a"]


@pytest.mark.parametrize("is_stream_dropped", [True, False])
def test_operands_live_until_they_are_used_and_no_longer(is_stream_dropped: bool) -> None:
    bench = Bench()
    stream = bench.stream()
    source = np.full(4, 7, np.uint8)
    target = bench.device.empty(4, np.uint8)
    alive = weakref.ref(source)
    bench.device.copy(target, source, stream=stream)
    del source
    if is_stream_dropped:
        del stream
    gc.collect()
    assert alive() is not None
    assert target.get().tolist() == [7] * 4
    gc.collect()
    assert alive() is None


def test_operations_know_what_they_touch() -> None:
    bench = Bench()
    stream, array = bench.stream(), bench.device.empty((2, 8), np.float32)
    bench.device.copy(array[0], array[1], stream=stream)
    bench.device.fill(array[1], 0, stream=stream)
    copy, fill = bench.device.schedule.pending()
    start = array.pointer
    assert (copy.reads, copy.writes) == (((start + 32, start + 64),), ((start, start + 32),))
    assert (fill.reads, fill.writes) == ((), ((start + 32, start + 64),))


def test_a_failure_is_raised_once_where_its_effect_is_awaited() -> None:
    bench = Bench()
    stream, innocent = bench.stream(), bench.stream()
    bench.fail(stream, "bad")
    bench.call(stream, "after")
    innocent.sync()
    with pytest.raises(ArithmeticError, match="bad"):
        stream.sync()
    assert bench.log == ["bad", "after"]  # later work runs
    stream.sync()
    bench.device.synchronize()


def test_a_failure_travels_along_events() -> None:
    bench = Bench()
    compute, copy = bench.stream(), bench.stream()
    earlier, done, fetched = bench.event(), bench.event(), bench.event()
    earlier.record(compute)
    bench.fail(compute, "bad")
    done.record(compute)
    bench.device.schedule.run_until(done._impl.query)  # type: ignore[union-attr] # it has happened before the wait
    copy.wait(done)
    fetched.record(copy)
    earlier.sync()
    with pytest.raises(ArithmeticError, match="bad"):
        fetched.sync()
    done.sync()  # raised once
    compute.sync()


def test_a_failure_nobody_awaited_is_raised_by_a_wait_for_the_device() -> None:
    bench = Bench()
    bench.fail(bench.stream(), "bad")
    array = bench.device.empty(1, np.uint8)
    with pytest.raises(ArithmeticError, match="bad"):
        array.get()
    array.get()


def test_ctrl_c_in_an_operation_wedges_nothing() -> None:
    bench = Bench()
    stream = bench.stream()

    def interrupt() -> None:
        raise KeyboardInterrupt

    bench.call(stream, "interrupted", interrupt)
    bench.call(stream, "after")
    with pytest.raises(KeyboardInterrupt):
        stream.sync()
    with pytest.raises(DeviceError, match="interrupted was interrupted"):
        stream.sync()
    assert bench.log == ["interrupted", "after"]


def test_other_threads_queue_while_an_operation_runs() -> None:
    bench = Bench()
    running, release = threading.Event(), threading.Event()
    slow, quick = bench.stream(), bench.stream()

    def block() -> None:
        running.set()
        assert release.wait(60)

    bench.call(slow, "slow", block)
    runner = threading.Thread(target=slow.sync)
    runner.start()
    assert running.wait(60)
    bench.call(quick, "quick")  # would deadlock if the lock were held by the runner
    assert not quick._impl.pending[0].is_done  # type: ignore[union-attr]
    waiter = threading.Thread(target=quick.sync)
    waiter.start()
    release.set()
    runner.join(60)
    waiter.join(60)
    assert not runner.is_alive()
    assert not waiter.is_alive()
    assert bench.log == ["slow", "quick"]


def test_an_operation_that_waits_for_its_own_device_is_an_error() -> None:
    bench = Bench()
    stream = bench.stream()
    bench.call(stream, "selfish", stream.sync)
    with pytest.raises(DeviceError, match="waits for the device that runs it"):
        stream.sync()


def test_events_time_the_host_clock() -> None:
    bench = Bench()
    stream, start, stop = bench.stream(), bench.event(timing=True), bench.event(timing=True)
    start.record(stream)
    bench.call(stream, "work", lambda: time.sleep(0.002))
    stop.record(stream)
    stop.sync()
    assert stop.elapsed_since(start) >= 2
    assert start.elapsed_since(stop) <= -2


class TestCapture:
    def test_a_graph_repeats_what_was_captured(self) -> None:
        bench = Bench()
        captured_on, launched_on = bench.stream(), bench.stream()
        event = bench.event()
        with bench.device.capture(captured_on) as captured:
            bench.call(captured_on, "a")
            event.record(captured_on)
            captured_on.wait(event)  # on the same stream: nothing to add
            bench.call(captured_on, "b")
        bench.device.synchronize()
        assert bench.log == []
        for _ in range(2):
            captured.graph.launch(launched_on)
        launched_on.sync()
        assert bench.log == ["a", "b"] * 2

    def test_what_a_gpu_forbids_in_a_capture_is_an_error(self) -> None:
        bench = Bench()
        stream, other = bench.stream(), bench.stream()
        outside, inside = bench.event(), bench.event()
        bench.call(other, "x")
        outside.record(other)
        forbidden: list[Callable[[], object]] = [
            lambda: bench.device.empty(1, np.uint8),
            lambda: bench.device.pinned(1, np.uint8),
            lambda: bench.device.upload(np.zeros(1)),
            bench.device.synchronize,
            stream.sync,
            lambda: stream.wait(outside),
            inside.sync,
            inside.query,
            lambda: other.wait(inside),
            lambda: bench.device.capture(stream).__enter__(),
        ]
        with bench.device.capture(stream) as captured:
            inside.record(stream)
            for call in forbidden:
                with pytest.raises(DeviceError):
                    call()
            with pytest.raises(DeviceError, match="has not ended"):
                _ = captured.graph
            bench.call(stream, "kept")
        captured.graph.launch(stream)
        stream.sync()
        assert bench.log == ["x", "kept"]

    def test_other_threads_go_on(self) -> None:
        bench = Bench()
        stream = bench.stream()
        allocated = []
        with bench.device.capture(stream):
            thread = threading.Thread(target=lambda: allocated.append(bench.device.empty(4, np.uint8).get()))
            thread.start()
            thread.join(60)
        assert len(allocated) == 1

    def test_an_exception_leaves_the_stream_usable(self) -> None:
        bench = Bench()
        stream = bench.stream()
        capture = bench.device.capture(stream)
        captured = capture.__enter__()
        bench.call(stream, "lost")
        error = ZeroDivisionError()
        assert not capture.__exit__(ZeroDivisionError, error, None)
        with pytest.raises(DeviceError, match="ended with an exception"):
            _ = captured.graph
        bench.call(stream, "next")
        stream.sync()
        assert bench.log == ["next"]
        bench.device.empty(1, np.uint8)


def test_handles_are_never_used_again() -> None:
    bench = Bench()
    handles = [bench.stream().handle for _ in range(100)] + [bench.event().handle for _ in range(100)]
    assert len(set(handles)) == 200
    assert 0 not in handles


def test_a_forked_child_is_told() -> None:
    bench = Bench()
    child = os.fork()
    if child == 0:
        try:
            bench.device.empty(1, np.uint8)
        except DeviceError as error:
            os._exit(0 if "before a fork" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
