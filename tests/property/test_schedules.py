"""What a schedule may and may not do, one law a test; races included, which the programs of test_stream.py have not."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Event, Stream
from cupy_turbo.device import open_device
from cupy_turbo.testing.threads import wait_until

SEEDS = st.integers(0, 2**16)
BYTES = np.dtype(np.uint8)


def outcomes_over_seeds(program: Callable[[Device], int]) -> set[int]:
    """What a program ends with under 30 random schedules of a host device."""
    found = set()
    for seed in range(30):
        device = open_device("host", policy="random", seed=seed)
        found.add(program(device))
        device.close()
    return found


def two_fills(*, waits: bool) -> Callable[[Device], int]:
    def program(device: Device) -> int:
        first, second, event = Stream.create(device=device), Stream.create(device=device), Event.create(device=device)
        array = device.empty(4, BYTES)
        device.fill(array, 1, stream=first)
        event.record(first)
        if waits:
            second.wait(event)
        device.fill(array, 2, stream=second)
        return int(device.fetch(array)[0])

    return program


@pytest.mark.races
def test_a_missing_wait_is_a_wrong_value_for_some_schedule() -> None:
    assert outcomes_over_seeds(two_fills(waits=False)) == {1, 2}
    assert outcomes_over_seeds(two_fills(waits=True)) == {2}


@pytest.mark.races
def test_a_wait_after_the_work_holds_nothing_back() -> None:
    def program(device: Device) -> int:
        first, second, event = Stream.create(device=device), Stream.create(device=device), Event.create(device=device)
        array = device.empty(4, BYTES)
        device.fill(array, 1, stream=first)
        event.record(first)
        device.fill(array, 2, stream=second)
        second.wait(event)
        return int(device.fetch(array)[0])

    assert outcomes_over_seeds(program) == {1, 2}


@pytest.mark.races
def test_work_after_a_record_is_not_part_of_it() -> None:
    def program(device: Device) -> int:
        first, second, event = Stream.create(device=device), Stream.create(device=device), Event.create(device=device)
        array = device.empty(4, BYTES)
        event.record(first)
        device.fill(array, 1, stream=first)
        second.wait(event)
        device.fill(array, 2, stream=second)
        return int(device.fetch(array)[0])

    assert outcomes_over_seeds(program) == {1, 2}


@pytest.mark.races
def test_one_seed_gives_one_schedule() -> None:
    def run(seed: int) -> int:
        device = open_device("host", policy="random", seed=seed)
        return two_fills(waits=False)(device)

    assert [run(seed) for seed in range(20)] == [run(seed) for seed in range(20)]


@pytest.mark.races
@pytest.mark.parametrize(("policy", "found"), [("fifo", 2), ("random", 2), ("eager", 1)])
def test_a_pinned_source_is_read_when_the_copy_runs(policy: str, found: int) -> None:
    """Rewriting a buffer that a pending copy reads gives the new bytes; `eager` has no pending copies."""
    device = open_device("host", policy=policy)
    stream, source, target = Stream.create(device=device), device.pinned(4, BYTES), device.empty(4, BYTES)
    source[:] = 1
    device.copy(target, source, stream=stream)
    source[:] = 2
    stream.sync()
    assert device.fetch(target).tolist() == [found] * 4


def test_a_pinned_source_rewritten_after_its_copy_gives_the_old_bytes(device: Device) -> None:
    stream, event = Stream.create(device=device), Event.create(device=device)
    source, target = device.pinned(4, BYTES), device.empty(4, BYTES)
    source[:] = 1
    device.copy(target, source, stream=stream)
    event.record(stream)
    event.sync()
    source[:] = 2
    assert device.fetch(target).tolist() == [1] * 4


@given(seed=SEEDS, num_steps=st.integers(1, 30))
def test_a_stream_runs_in_its_order(seed: int, num_steps: int) -> None:
    """Each copy hands the byte of the step before on; a single one out of order breaks the chain."""
    device = open_device("host", policy="random", seed=seed)
    stream, noise = Stream.create(device=device), Stream.create(device=device)
    chain = [device.empty(1, BYTES) for _ in range(num_steps + 1)]
    elsewhere = device.empty(1, BYTES)
    device.fill(chain[0], 42, stream=stream)
    for step in range(num_steps):
        device.fill(elsewhere, step, stream=noise)
        device.copy(chain[step + 1], chain[step], stream=stream)
    stream.sync()
    assert chain[-1].get().tolist() == [42]


def test_a_wait_counts_the_record_that_was_there(device: Device) -> None:
    """A later record of the same event does not move the wait: here it comes behind the waiting stream itself."""
    first, second = Stream.create(device=device), Stream.create(device=device)
    event, back = Event.create(device=device), Event.create(device=device)
    array = device.empty(4, BYTES)
    device.fill(array, 1, stream=first)
    event.record(first)
    second.wait(event)
    device.fill(array, 2, stream=second)
    back.record(second)
    first.wait(back)
    event.record(first)
    second.sync()
    assert array.get().tolist() == [2] * 4


def test_polling_an_event_comes_to_an_end(device: Device) -> None:
    first, second = Stream.create(device=device), Stream.create(device=device)
    array, target = device.empty(4, BYTES), device.pinned(4, BYTES)
    device.fill(array, 9, stream=first)
    filled, copied = Event.create(device=device), Event.create(device=device)
    filled.record(first)
    second.wait(filled)
    device.copy(target, array, stream=second)
    copied.record(second)
    wait_until(copied.query)
    assert target.tolist() == [9] * 4
    assert copied.query()
    assert filled.query()


def test_an_event_is_pending_again_after_its_next_record() -> None:
    device = open_device("host")  # a GPU may have run it by the time it is asked
    stream, event, array = Stream.create(device=device), Event.create(device=device), device.empty(4, BYTES)
    event.record(stream)
    event.sync()
    assert event.query()
    device.fill(array, 1, stream=stream)
    device.fill(array, 2, stream=stream)
    event.record(stream)
    assert not event.query()
    event.sync()
    assert event.query()


def test_dropping_the_last_owner_runs_what_is_pending(device: Device) -> None:
    stream, target, source = Stream.create(device=device), device.pinned(4, BYTES), device.empty(4, BYTES)
    device.fill(source, 5, stream=stream)
    device.copy(target, source, stream=stream)
    event = Event.create(device=device)
    event.record(stream)
    del stream, source
    gc.collect()
    event.sync()
    assert target.tolist() == [5] * 4


def test_a_stream_lives_as_long_as_any_owner(device: Device) -> None:
    stream, array = Stream.create(device=device), device.empty(4, BYTES)
    owners = [copy.copy(stream), copy.deepcopy(stream)]
    handle = stream.handle
    del stream
    for byte, owner in enumerate(owners):
        device.fill(array, byte, stream=owner)
        assert owner.handle == handle
    owners[1].sync()
    assert array.get().tolist() == [1] * 4


def test_dropping_an_event_does_not_undo_its_wait() -> None:
    def program(device: Device) -> int:
        first, second, event = Stream.create(device=device), Stream.create(device=device), Event.create(device=device)
        array = device.empty(4, BYTES)
        device.fill(array, 1, stream=first)
        event.record(first)
        second.wait(event)
        del event
        device.fill(array, 2, stream=second)
        return int(device.fetch(array)[0])

    assert outcomes_over_seeds(program) == {2}


def test_an_operand_dropped_while_its_copy_is_pending_is_kept(device: Device) -> None:
    stream, target = Stream.create(device=device), device.empty(4096, BYTES)
    for byte in range(20):
        source = device.pinned(4096, BYTES)
        source[:] = byte
        device.copy(target, source, stream=stream)
        del source
        device.pinned(4096, BYTES)[:] = 255  # would take the memory over if it were free
    assert device.fetch(target).tolist() == [19] * 4096


def test_a_graph_reads_its_sources_when_it_is_launched(device: Device) -> None:
    stream, source = Stream.create(device=device), device.pinned(4, BYTES)
    array, target = device.empty(4, BYTES), device.pinned(4, BYTES)
    source[:] = 1
    with device.capture(stream) as captured:
        device.copy(array, source, stream=stream)
        device.copy(target, array, stream=stream)
    stream.sync()
    target[:] = 0
    for byte in (2, 3):
        source[:] = byte
        captured.graph.launch(stream)
        stream.sync()
        assert target.tolist() == [byte] * 4


def test_a_capture_ends_with_an_exception_and_leaves_the_stream_usable(device: Device) -> None:
    stream, array = Stream.create(device=device), device.upload(np.zeros(4, BYTES))

    def fail_in_capture() -> None:
        with device.capture(stream):
            device.fill(array, 1, stream=stream)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_capture()
    stream.sync()
    assert array.get().tolist() == [0] * 4
    device.fill(array, 2, stream=stream)
    stream.sync()
    assert array.get().tolist() == [2] * 4


def test_priorities_are_kept(device: Device) -> None:
    for priority in (0, -1):
        stream = Stream.create(priority, device=device)
        stream.sync()
        assert stream.priority == priority
    Stream.create(-1000, device=device).sync()  # CUDA clamps it
    Stream.create(1000, device=device).sync()
