"""Clocks and ranges by themselves: no device, no stream, only numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.device.interval_map import IntervalMap
from cupy_turbo.device.race_detector import Access, Conflict, RaceDetector, RaceFound, StreamClock
from cupy_turbo.testing.examples import examples

SIZE = 24
ranges = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(sorted).filter(lambda pair: pair[0] < pair[1])
notes = st.tuples(st.sampled_from(["read", "write", "erase"]), ranges, st.integers(1, 3))


@dataclass
class Byte:
    """What an interval map must know of one address."""

    write: int | None = None
    reads: dict[int, int] = field(default_factory=dict)


@settings(max_examples=examples(100))
@given(st.lists(notes, max_size=30))
def test_ranges_are_what_single_bytes_would_be(program: list[tuple[str, tuple[int, int], int]]) -> None:
    found: IntervalMap[int] = IntervalMap()
    expected: dict[int, Byte] = {}
    for mark, (what, (start, stop), stream) in enumerate(program):
        for address in range(start, stop):
            if what == "read":
                expected.setdefault(address, Byte()).reads[stream] = mark
            elif what == "write":
                expected[address] = Byte(mark)
            else:
                expected.pop(address, None)
        if what == "read":
            found.read(start, stop, stream, mark)
        elif what == "write":
            found.write(start, stop, mark)
        else:
            found.erase(start, stop)
    kept = {address: Byte(s.write, s.reads) for s in found for address in range(s.start, s.stop)}
    assert kept == expected
    segments = list(found)
    assert all(before.stop <= after.start for before, after in pairwise(segments))
    for start in range(SIZE):
        for stop in range(start + 1, SIZE + 1):
            overlapping = [s for s in segments if s.start < stop and start < s.stop]
            assert found.overlapping(start, stop) == overlapping


def test_a_write_joins_what_it_covers() -> None:
    memory: IntervalMap[int] = IntervalMap()
    for start in range(0, 100, 10):
        memory.read(start, start + 5, 1, start)
    memory.write(0, 100, 1)
    assert len(memory) == 1


class Programme:
    """A detector with two streams and an event, in short words."""

    def __init__(self) -> None:
        self.detector = RaceDetector()
        self.first = self.detector.add_stream("first", "device")
        self.second = self.detector.add_stream("second", "device")
        self.event = self.detector.add_event("event")

    def use(self, stream: StreamClock, *accesses: tuple[int, int, bool]) -> None:
        operands = [Access(f"x{start}", start, stop, writes) for start, stop, writes in accesses]
        self.detector.queue("use", stream, operands, None)

    def record(self, stream: StreamClock) -> None:
        self.detector.record(self.event, stream, None)

    def wait(self, stream: StreamClock) -> bool:
        return self.detector.wait(stream, self.event, None)

    def conflict(self, stream: StreamClock, *accesses: tuple[int, int, bool]) -> Conflict:
        with pytest.raises(RaceFound) as caught:
            self.use(stream, *accesses)
        return caught.value.conflict


WRITE, READ = (0, 8, True), (0, 8, False)


@pytest.mark.parametrize(("before", "after"), [(WRITE, WRITE), (WRITE, READ), (READ, WRITE)])
def test_conflicts_need_order(before: tuple[int, int, bool], after: tuple[int, int, bool]) -> None:
    programme = Programme()
    programme.use(programme.first, before)
    conflict = programme.conflict(programme.second, after)
    assert (conflict.earlier[0].stream, conflict.later[0].stream) == (programme.first, programme.second)
    programme.use(programme.first, after)  # its own stream is in order, and the refused operation left no trace


def test_two_reads_need_none() -> None:
    programme = Programme()
    programme.use(programme.first, READ)
    programme.use(programme.second, READ)


def test_only_shared_bytes_count() -> None:
    programme = Programme()
    programme.use(programme.first, (0, 8, True))
    programme.use(programme.second, (8, 16, True))
    conflict = programme.conflict(programme.second, (7, 9, True))
    assert conflict.earlier[1].stop == 8


def test_a_record_and_a_wait_order() -> None:
    programme = Programme()
    programme.use(programme.first, WRITE)
    programme.record(programme.first)
    programme.wait(programme.second)
    programme.use(programme.second, WRITE)
    programme.conflict(programme.first, WRITE)  # the other way round is another matter


def test_what_comes_after_the_record_is_not_covered() -> None:
    programme = Programme()
    programme.record(programme.first)
    programme.use(programme.first, WRITE)
    programme.wait(programme.second)
    programme.conflict(programme.second, READ)


def test_a_wait_takes_the_record_of_its_time() -> None:
    programme = Programme()
    programme.wait(programme.second)
    programme.use(programme.first, WRITE)
    programme.record(programme.first)
    programme.conflict(programme.second, READ)


def test_order_passes_through_a_third_stream() -> None:
    programme = Programme()
    third, onward = programme.detector.add_stream("third", "device"), programme.detector.add_event("onward")
    programme.use(programme.first, WRITE)
    programme.record(programme.first)
    programme.wait(third)
    programme.detector.record(onward, third, None)
    programme.detector.wait(programme.second, onward, None)
    programme.use(programme.second, WRITE)


def test_what_the_host_has_seen_comes_before_all_that_follows() -> None:
    programme = Programme()
    programme.use(programme.first, WRITE)
    programme.detector.reach(dict(programme.first.clock))
    programme.use(programme.second, WRITE)
    programme.use(programme.first, (8, 16, True))
    programme.detector.reach(programme.detector.device_clock("another device"))
    programme.conflict(programme.second, (8, 16, True))
    programme.detector.reach(programme.detector.device_clock("device"))
    programme.use(programme.second, (8, 16, True))


def test_a_wait_for_the_device_covers_a_stream_that_is_gone() -> None:
    programme = Programme()
    programme.use(programme.first, WRITE)
    programme.detector.drop_stream(programme.first)
    programme.conflict(programme.second, WRITE)
    programme.detector.reach(programme.detector.device_clock("device"))
    programme.use(programme.second, WRITE)


def test_all_readers_must_be_waited_for() -> None:
    programme = Programme()
    third = programme.detector.add_stream("third", "device")
    programme.use(programme.first, READ)
    programme.use(third, READ)
    programme.record(programme.first)
    programme.wait(programme.second)
    assert programme.conflict(programme.second, WRITE).earlier[0].stream is third


def test_one_operation_does_not_conflict_with_itself() -> None:
    programme = Programme()
    programme.use(programme.first, READ, WRITE, (4, 12, True))
    assert programme.conflict(programme.second, READ).earlier[1].writes


def test_forgotten_memory_is_new() -> None:
    programme = Programme()
    programme.use(programme.first, WRITE)
    programme.detector.memory.erase(0, 8)
    programme.use(programme.second, WRITE)


def test_the_first_round_of_a_ring_may_wait_for_what_was_not_recorded() -> None:
    programme = Programme()
    assert programme.wait(programme.second)
    assert programme.wait(programme.first)
    assert programme.wait(programme.second), "nothing was done in between: still the first round"
    programme.use(programme.second, WRITE)
    assert not programme.wait(programme.second), "the second round waits for an event that nobody records"
    programme.record(programme.second)
    programme.use(programme.second, WRITE)
    assert programme.wait(programme.second)
