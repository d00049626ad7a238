"""The sanitizer refuses what races and nothing else, and says what a person needs to mend it."""

from __future__ import annotations

import ctypes
import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core import sanitizing
from cupy_turbo.core.errors import SanitizerError, StreamRaceError
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.sanitizing import SanitizerWarning
from cupy_turbo.core.stream import Event, Stream
from cupy_turbo.device import open_device
from cupy_turbo.device.arena import Arena
from cupy_turbo.device.sanitize import Sanitizer, sanitize, unsanitized
from cupy_turbo.testing.examples import examples
from tests.property.racy_program import (
    BUFFER_SIZE,
    NUM_BUFFERS,
    NUM_EVENTS,
    NUM_STREAMS,
    PINNED,
    Copy,
    Fill,
    Launch,
    Oracle,
    Record,
    Run,
    Step,
    SyncDevice,
    SyncEvent,
    SyncStream,
    Wait,
    random_step,
)

BYTES = np.dtype(np.uint8)
streams, events = st.integers(0, NUM_STREAMS - 1), st.integers(0, NUM_EVENTS - 1)


@st.composite
def single_works(draw: st.DrawFn) -> Fill | Copy:
    """A fill or a copy of any bytes."""
    size = draw(st.integers(1, BUFFER_SIZE))
    starts = st.integers(0, BUFFER_SIZE - size)
    if draw(st.booleans()):
        start = draw(starts)
        return Fill(draw(streams), (draw(st.integers(0, PINNED - 1)), start, start + size), draw(st.integers(0, 255)))
    target, source = draw(st.permutations(range(NUM_BUFFERS)))[:2]
    to, frm = draw(starts), draw(starts)
    return Copy(draw(streams), (target, to, to + size), (source, frm, frm + size))


works = st.one_of(
    single_works(), st.builds(Launch, streams, st.lists(single_works(), min_size=1, max_size=3).map(tuple))
)
orders = st.one_of(
    *[st.builds(Record, events, streams), st.builds(Wait, streams, events)] * 3,
    st.builds(SyncEvent, events),
    st.builds(SyncStream, streams),
    st.builds(SyncDevice),
)
# A length first: lists by themselves are short on average, and a minimum would keep failures long.
programs = st.integers(1, 50).flatmap(lambda n: st.lists(st.one_of(works, orders), min_size=n, max_size=n))


def accepted(program: list[Step], device: Device, sanitizer: Sanitizer) -> list[Step]:
    """Run a program under the sanitizer and return the steps it let pass; they must be those that the oracle lets."""
    run, oracle, passed = Run(device), Oracle(), []
    for step in program:
        races = oracle.conflicts(step) if isinstance(step, (Fill, Copy, Launch)) else []
        error = run.races(step)
        assert bool(races) == (error is not None), (step, races, error)
        if error is None:
            oracle.add(step)
            passed.append(step)
        else:
            assert error.earlier in {type(race).__name__.lower().replace("launch", "graph") for race in races}
    run.contents()
    sanitizer.findings.clear()  # a random program waits for events that it never records
    return passed


@settings(max_examples=examples(100))
@given(program=programs)
def test_a_step_is_refused_exactly_if_no_path_orders_it(program: list[Step], device_kind: str) -> None:
    with sanitize() as sanitizer:
        device = open_device(device_kind)
        accepted(program, device, sanitizer)
        device.close()


def test_dense_programs(device_kind: str) -> None:
    """More of the same, longer and more evenly spread than hypothesis writes them."""
    random = Random(0)
    with sanitize() as sanitizer:
        for _ in range(examples(300)):
            device = open_device(device_kind)
            accepted([random_step(random) for _ in range(30)], device, sanitizer)
            device.close()


@settings(max_examples=examples(50))
@given(program=programs, seed=st.integers(0, 1000))
def test_what_it_lets_pass_ends_alike_under_every_schedule(program: list[Step], seed: int) -> None:
    with sanitize() as sanitizer:
        clean = accepted(program, open_device("host"), sanitizer)
    with unsanitized():
        outcomes = [contents(clean, policy, seed) for policy in ("fifo", "eager", "random")]
    assert outcomes[0] == outcomes[1] == outcomes[2]


def contents(program: list[Step], policy: str, seed: int = 0) -> list[list[int]]:
    run = Run(open_device("host", policy=policy, seed=seed))
    for step in program:
        run.do(step)
    return run.contents()


def test_what_it_refuses_often_ends_otherwise_under_another_schedule() -> None:
    """Not always: the bytes may be equal, or overwritten. But a report is no hair-splitting."""
    random, num_racy, num_different = Random(1), 0, 0
    while num_racy < 40:
        program = [random_step(random) for _ in range(12)]
        oracle, is_racy = Oracle(), False
        for step in program:
            is_racy |= isinstance(step, (Fill, Copy, Launch)) and bool(oracle.conflicts(step))
            oracle.add(step)
        if is_racy:
            num_racy += 1
            with unsanitized():
                expected = contents(program, "fifo")
                num_different += any(contents(program, "random", seed) != expected for seed in range(12))
    assert num_different >= num_racy / 2


@pytest.fixture(autouse=True)
def start_from_off() -> Iterator[None]:
    """Let no sanitizer that the environment has switched on look on."""
    with unsanitized():
        yield


@pytest.fixture
def pair(device: Device) -> Iterator[SimpleNamespace]:
    """Two streams, an event and a device buffer, under the sanitizer."""
    with sanitize() as sanitizer:
        yield SimpleNamespace(
            device=device,
            first=Stream.create(device=device),
            second=Stream.create(device=device),
            event=Event.create(device=device),
            array=device.empty(64, BYTES),
            pinned=device.pinned(64, BYTES),
            sanitizer=sanitizer,
        )
        device.synchronize()


def test_a_report_names_operations_streams_bytes_lines_and_the_wait(pair: SimpleNamespace) -> None:
    pair.device.fill(pair.array[:32], 1, stream=pair.first)
    pair.event.record(pair.first)
    with pytest.raises(StreamRaceError) as caught:
        pair.device.copy(pair.pinned[:24], pair.array[16:40], stream=pair.second)
    error = caught.value
    assert (error.earlier, error.later) == ("fill", "copy")
    second, event = f"handle={pair.second.handle:#x}", f"handle={pair.event.handle:#x}"
    assert second in error.remedy and event in error.remedy and "pair.event.record(pair.first)" in error.remedy
    text = str(error)
    here = Path(__file__).name
    assert "fill writes bytes 16 to 32 of 'array': bytes 16 to 32 of 64 device bytes" in text
    assert "copy reads bytes 0 to 16 of 'src': bytes 16 to 32 of 64 device bytes" in text
    assert text.count(f"{here}:") >= 4  # both operations, the record, and where the memory was taken
    assert "pair.device.copy(pair.pinned[:24]" in text
    pair.second.wait(pair.event)
    pair.device.copy(pair.pinned[:24], pair.array[16:40], stream=pair.second)  # the device is as usable as before
    pair.second.sync()
    assert pair.pinned[:16].tolist() == [1] * 16


def test_a_wait_before_the_record_is_pointed_out(pair: SimpleNamespace) -> None:
    pair.second.wait(pair.event)
    pair.device.fill(pair.array, 1, stream=pair.first)
    pair.event.record(pair.first)
    with pytest.raises(StreamRaceError, match="a wait sees earlier records only"):
        pair.device.fill(pair.array, 2, stream=pair.second)


def test_a_graph_does_what_its_nodes_do(pair: SimpleNamespace) -> None:
    with pair.device.capture(pair.first) as captured:
        pair.device.fill(pair.array, 1, stream=pair.first)
    pair.device.fill(pair.array, 2, stream=pair.second)  # a capture has run nothing yet
    with pytest.raises(StreamRaceError, match=r"graph \(fill\) writes") as caught:
        captured.graph.launch(pair.first)
    assert "captured at" in str(caught.value)
    pair.second.sync()
    captured.graph.launch(pair.first)
    with pytest.raises(StreamRaceError, match="nothing orders fill and graph"):
        pair.device.fill(pair.array, 2, stream=pair.second)


def test_a_graph_captured_before_is_known_too(device: Device) -> None:
    stream, other, array = Stream.create(device=device), Stream.create(device=device), device.empty(64, BYTES)
    with device.capture(stream) as captured:
        device.fill(array, 1, stream=stream)
    with sanitize():
        captured.graph.launch(stream)
        with pytest.raises(StreamRaceError, match="nothing orders fill and graph"):
            device.fill(array, 2, stream=other)


def test_a_query_that_says_yes_orders(pair: SimpleNamespace) -> None:
    pair.device.fill(pair.array, 1, stream=pair.first)
    pair.event.record(pair.first)
    while not pair.event.query():
        pass
    pair.device.fill(pair.array, 2, stream=pair.second)


def test_a_query_that_says_no_does_not() -> None:
    device = open_device("host")  # where an event is pending for certain
    with sanitize():
        first, second, event = Stream.create(device=device), Stream.create(device=device), Event.create(device=device)
        array = device.empty(4, BYTES)
        for byte in range(3):
            device.fill(array, byte, stream=first)
        event.record(first)
        assert not event.query()
        with pytest.raises(StreamRaceError):
            device.fill(array, 2, stream=second)


def test_memory_that_is_taken_again_starts_clean(pair: SimpleNamespace) -> None:
    """NumPy and drivers give the same addresses out again; what the last owner did there is over."""
    for _ in range(20):
        scratch = pair.device.empty(1 << 16, BYTES)
        pair.device.fill(scratch, 1, stream=pair.first)
        pair.device.synchronize()
        del scratch
        scratch = pair.device.empty(1 << 16, BYTES)
        pair.device.fill(scratch, 1, stream=pair.second)
        del scratch


def test_a_source_that_the_host_rewrites_too_early_is_found_at_the_wait(pair: SimpleNamespace) -> None:
    pair.pinned[:] = 1
    pair.device.copy(pair.array, pair.pinned, stream=pair.first)
    pair.event.record(pair.first)
    pair.pinned[3] = 2
    with pytest.raises(SanitizerError, match=r"the host wrote the source of copy of 64 bytes.*while it was pending"):
        pair.event.sync()
    pair.pinned[:] = 3  # in time, now
    pair.device.copy(pair.array, pair.pinned, stream=pair.first)
    pair.first.sync()


def test_a_source_that_copies_write_may_change(pair: SimpleNamespace) -> None:
    pair.pinned[:] = 1
    other = pair.device.empty(64, BYTES)
    pair.device.fill(pair.array, 2, stream=pair.first)
    pair.device.copy(other, pair.pinned, stream=pair.first)
    pair.device.copy(pair.pinned, pair.array, stream=pair.first)  # changes it after the copy has read it
    pair.device.copy(other, pair.pinned, stream=pair.first)  # reads what is not there yet
    pair.first.sync()


def test_the_host_looks_at_results_after_the_wait_only(device: Device) -> None:
    arena = Arena(device, {"tokens": ((4,), np.dtype(np.int32))})
    with sanitize():
        stream, fetched = Stream.create(device=device), Event.create(device=device)
        arena.host["tokens"][:] = 1
        arena.upload(stream)
        arena.download(stream)
        fetched.record(stream)
        with pytest.raises(StreamRaceError, match=r"Event.*\.sync\(\), before the host reads it"):
            arena.host["tokens"]
        fetched.sync()
        assert arena.host["tokens"].tolist() == [1] * 4


def test_a_view_of_freed_memory_is_refused(device_kind: str) -> None:
    if device_kind == "cuda":
        pytest.skip("a view that does not own is made here with ctypes, for the host")
    device = open_device("host")
    with sanitize():
        stream, array, source = (
            Stream.create(device=device),
            device.empty(1 << 16, BYTES),
            device.pinned(1 << 16, BYTES),
        )
        address = source.__array_interface__["data"][0]
        stale = np.ctypeslib.as_array((ctypes.c_uint8 * (1 << 16)).from_address(address))
        device.copy(array, stale, stream=stream)
        stream.sync()
        del source
        gc.collect()
        with pytest.raises(
            SanitizerError, match="that memory was freed: its owner is gone, 65536 pinned bytes taken at"
        ):
            device.copy(array, stale, stream=stream)


def test_waiting_twice_for_what_is_never_recorded_is_a_finding(device: Device) -> None:
    stream, event, array = Stream.create(device=device), Event.create(device=device), device.empty(4, BYTES)
    watching = sanitize()
    sanitizer = watching.__enter__()
    stream.wait(event)
    device.fill(array, 1, stream=stream)
    assert sanitizer.findings == []
    stream.wait(event)
    assert len(sanitizer.findings) == 1 and f"handle={event.handle:#x}" in sanitizer.findings[0]
    with pytest.warns(SanitizerWarning, match="which was never recorded"):
        watching.__exit__(None, None, None)


def test_an_event_recorded_before_is_not_never_recorded(device: Device) -> None:
    stream, event, array = Stream.create(device=device), Event.create(device=device), device.empty(4, BYTES)
    event.record(stream)
    with warnings.catch_warnings(), sanitize():
        warnings.simplefilter("error")
        for _ in range(3):
            stream.wait(event)
            device.fill(array, 1, stream=stream)


@pytest.mark.parametrize("is_waited_for", [False, True])
def test_a_stream_dropped_with_a_copy_to_the_host_is_a_finding(device: Device, is_waited_for: bool) -> None:
    with warnings.catch_warnings(record=True) as caught, sanitize():
        warnings.simplefilter("always")
        # All memory first: taking some may free some, for which a GPU is waited for.
        array, scratch, pinned = device.empty(4, BYTES), device.empty(4, BYTES), device.pinned(4, BYTES)
        stream, other = Stream.create(device=device), Stream.create(device=device)
        device.fill(array, 1, stream=stream)
        device.copy(pinned, array, stream=stream)
        del stream
        gc.collect()
        if is_waited_for:
            device.synchronize()
        device.fill(scratch, 1, stream=other)
        other.sync()  # on host this lets the older work run, and then the stream is gone
        gc.collect()
    found = [str(warning.message) for warning in caught if warning.category is SanitizerWarning]
    assert len(found) == (not is_waited_for)
    assert all("nobody waited for its copy to the host" in finding for finding in found)


def test_streams_dropped_with_work_for_the_device_only_are_fine(device: Device) -> None:
    with warnings.catch_warnings(), sanitize():
        warnings.simplefilter("error")
        array = device.empty(4, BYTES)
        for byte in range(3):
            stream = Stream.create(device=device)
            device.fill(array, byte, stream=stream)
            del stream
            device.synchronize()


def test_it_is_off_outside_and_knows_nothing_of_what_came_before(device: Device) -> None:
    first, second, array = Stream.create(device=device), Stream.create(device=device), device.empty(4, BYTES)
    assert sanitizing.watch is None
    device.fill(array, 1, stream=first)
    device.fill(array, 1, stream=second)
    with sanitize() as outer:
        device.fill(array, 1, stream=first)
        with sanitize() as inner, pytest.raises(StreamRaceError):
            device.fill(array, 1, stream=second)
        assert inner is outer and sanitizing.watch is outer
        with unsanitized():
            assert sanitizing.watch is None
            device.fill(array, 1, stream=second)
        device.fill(array, 1, stream=second)  # begun anew
    assert sanitizing.watch is None
    device.fill(array, 1, stream=first)
