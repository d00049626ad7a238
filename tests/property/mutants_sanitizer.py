"""Mistakes in the stream sanitizer, and the search that must find them: it and the oracle differ on some program."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from cupy_turbo.core.errors import SanitizerError
from cupy_turbo.device import open_device
from cupy_turbo.device import race_detector as detector
from cupy_turbo.device.interval_map import IntervalMap, Segment
from cupy_turbo.device.race_detector import RaceDetector
from cupy_turbo.device.sanitize import sanitize, unsanitized
from cupy_turbo.device.sanitizer import Sanitizer
from tests.property.mutants import Mutant
from tests.property.racy_program import Step, random_step
from tests.property.test_sanitizer import accepted

Patch = pytest.MonkeyPatch


class DisagreementError(AssertionError):
    """A program of which the sanitizer and the oracle think differently; no step of it can be left out."""

    def __init__(self, program: list[Step], reason: Exception) -> None:
        super().__init__(f"{program}: {reason}")
        self.program = program


def disagreement(program: list[Step]) -> Exception | None:
    with unsanitized(), sanitize() as sanitizer:
        try:
            accepted(program, open_device("host"), sanitizer)
        except (AssertionError, SanitizerError) as error:
            sanitizer.findings.clear()
            return error
    return None


def search_programs() -> None:
    random = Random(0)
    for _ in range(300):
        program = [random_step(random) for _ in range(30)]
        if disagreement(program) is not None:
            raise smallest(program)


def smallest(program: list[Step]) -> DisagreementError:
    """Leave out steps, the last first, as long as the two disagree on what is left."""
    for index in reversed(range(len(program))):
        shorter = program[:index] + program[index + 1 :]
        if disagreement(shorter) is not None:
            program = shorter
    reason = disagreement(program)
    assert reason is not None
    return DisagreementError(program, reason)


def a_wait_orders_nothing(patch: Patch) -> None:
    patch.setattr(RaceDetector, "wait", lambda *_: True)


def a_record_goes_on_counting(patch: Patch) -> None:
    def record(self: Any, event: Any, stream: Any, origin: Any) -> None:
        event.clock = stream.clock

    patch.setattr(RaceDetector, "record", record)


def a_wait_of_the_host_orders_nothing(patch: Patch) -> None:
    patch.setattr(RaceDetector, "reach", lambda *_: None)


def the_sync_of_an_event_is_missed(patch: Patch) -> None:
    patch.setattr(Sanitizer, "synchronize_event", lambda self, event: event.synchronize())


def the_sync_of_a_device_is_missed(patch: Patch) -> None:
    patch.setattr(Sanitizer, "synchronize_device", lambda self, domain, wait: wait())


def reads_exclude_each_other(patch: Patch) -> None:
    find = RaceDetector._find
    patch.setattr(
        RaceDetector, "_find", lambda self, op, accesses: find(self, op, [a._replace(writes=True) for a in accesses])
    )


def reads_exclude_no_write(patch: Patch) -> None:
    patch.setattr(IntervalMap, "read", lambda *_: None)


def one_reader_is_remembered(patch: Patch) -> None:
    read = IntervalMap.read

    def read_alone(self: Any, start: int, stop: int, stream: int, mark: Any) -> None:
        for segment in self.overlapping(start, stop):
            segment.reads = {}
        read(self, start, stop, stream, mark)

    patch.setattr(IntervalMap, "read", read_alone)


def ranges_are_compared_by_their_starts(patch: Patch) -> None:
    def overlapping(self: Any, start: int, stop: int) -> list[Segment[Any]]:
        return [segment for segment in self if segment.start == start]

    patch.setattr(IntervalMap, "overlapping", overlapping)


def the_latest_operation_is_not_counted(patch: Patch) -> None:
    def covers(clock: Any, host: Any, earlier: Any) -> bool:
        number, count = earlier.stream.number, earlier.number
        return bool(clock.get(number, 0) >= count - 1 or host.get(number, 0) >= count)

    patch.setattr(detector, "_covers", covers)


def a_graph_is_its_first_node(patch: Patch) -> None:
    launch = Sanitizer.launch
    patch.setattr(Sanitizer, "launch", lambda self, stream, graph, works: launch(self, stream, graph, works[:1]))


_SUITE = "test_sanitizer.py::test_dense_programs"

SANITIZER_MUTANTS = [
    Mutant(f"sanitizer: {put_in.__name__.replace('_', ' ')}", _SUITE, search_programs, put_in)
    for put_in in (
        a_wait_orders_nothing,
        a_record_goes_on_counting,
        a_wait_of_the_host_orders_nothing,
        the_sync_of_an_event_is_missed,
        the_sync_of_a_device_is_missed,
        reads_exclude_each_other,
        reads_exclude_no_write,
        one_reader_is_remembered,
        ranges_are_compared_by_their_starts,
        the_latest_operation_is_not_counted,
        a_graph_is_its_first_node,
    )
]
