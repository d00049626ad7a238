"""Laws of Stream, Event and graphs on a device, for every schedule that CUDA allows."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from cupy_turbo.core.protocols import Device
from cupy_turbo.testing.examples import examples
from tests.property.device_program import (
    NUM_BUFFERS,
    NUM_DEVICE_BUFFERS,
    WAYS_TO_ORDER,
    DeviceProgram,
    Work,
)

choices = st.integers(
    0, 5
)  # of a stream or an event, modulo how many there are: it stays valid while a failure shrinks
byte_values = st.integers(0, 255)
ways = st.sampled_from(WAYS_TO_ORDER)
device_buffers = st.integers(0, NUM_DEVICE_BUFFERS - 1)
pinned_buffers = st.integers(NUM_DEVICE_BUFFERS, NUM_BUFFERS - 1)
fills = st.builds(Work, device_buffers, byte=byte_values)
# One side of a copy is a device array, and the sides are not the same.
copies = st.one_of(
    st.builds(Work, device_buffers, st.integers(0, NUM_BUFFERS - 1)), st.builds(Work, pinned_buffers, device_buffers)
).filter(lambda work: work.target != work.source)
work_lists = st.lists(st.one_of(fills, copies), min_size=1, max_size=4)


class DrawnPolicy:
    """A host policy whose every choice hypothesis makes, and shrinks."""

    def __init__(self, source: random.Random) -> None:
        self.source = source

    def choose(self, ready: Sequence[object]) -> int:
        return self.source.randrange(len(ready))


class RaceFreePrograms(RuleBasedStateMachine):
    """A program whose accesses are all ordered gives the bytes of its calls run one by one."""

    open_test_device: Callable[..., Device]
    policy: str

    @initialize(source=st.randoms(use_true_random=False))
    def open(self, source: random.Random) -> None:
        options = {"policy": DrawnPolicy(source)} if self.policy == "drawn" else {"policy": self.policy}
        seed = source.randrange(2**16) if self.policy == "random" else 0
        self.device = type(self).open_test_device(**options, seed=seed)
        self.program = DeviceProgram(self.device)
        self.program.add_stream()
        self.program.add_event()

    def stream(self, choice: int) -> int:
        numbers = list(self.program.streams)
        return numbers[choice % len(numbers)]

    def event(self, choice: int) -> int:
        return choice % len(self.program.events)

    @precondition(lambda self: len(self.program.streams) < 4)
    @rule(priority=st.integers(-5, 0))
    def add_stream(self, priority: int) -> None:
        self.program.add_stream(priority)

    @rule(stream=choices)
    def share_stream(self, stream: int) -> None:
        self.program.share_stream(self.stream(stream))

    @precondition(lambda self: len(self.program.streams) > 1)
    @rule(stream=choices)
    def drop_stream(self, stream: int) -> None:
        self.program.drop_stream(self.stream(stream))

    @rule()
    def add_event(self) -> None:
        self.program.add_event()

    @rule(event=choices, stream=choices)
    def record(self, event: int, stream: int) -> None:
        self.program.record(self.event(event), self.stream(stream))

    @rule(stream=choices, event=choices)
    def wait(self, stream: int, event: int) -> None:
        self.program.wait(self.stream(stream), self.event(event))

    @rule(event=choices)
    def query(self, event: int) -> None:
        self.program.query(self.event(event))

    @rule(event=choices)
    def sync_event(self, event: int) -> None:
        self.program.sync_event(self.event(event))

    @rule(stream=choices)
    def sync_stream(self, stream: int) -> None:
        self.program.sync_stream(self.stream(stream))

    @rule(work=work_lists, stream=choices, way=ways)
    def run_work(self, work: list[Work], stream: int, way: str) -> None:
        self.program.run(work, self.stream(stream), way)

    @rule(work=work_lists, capture_on=choices, stream=choices, times=st.integers(0, 2), way=ways)
    def run_captured(self, work: list[Work], capture_on: int, stream: int, times: int, way: str) -> None:
        self.program.run_captured(work, self.stream(capture_on), self.stream(stream), times, way)

    @rule(work=work_lists, stream=choices)
    def fail_in_capture(self, work: list[Work], stream: int) -> None:
        self.program.fail_in_capture(work, self.stream(stream))

    @rule(buffer=device_buffers, byte=byte_values, stream=choices, way=ways)
    def copy_from_nobodys(self, buffer: int, byte: int, stream: int, way: str) -> None:
        self.program.copy_from_nobodys(buffer, byte, self.stream(stream), way)

    @rule(buffer=pinned_buffers, byte=byte_values, way=ways)
    def write_pinned(self, buffer: int, byte: int, way: str) -> None:
        self.program.write_pinned(buffer, byte, way)

    @rule(buffer=pinned_buffers, way=ways)
    def read_pinned(self, buffer: int, way: str) -> None:
        self.program.read_pinned(buffer, way)

    def teardown(self) -> None:
        if hasattr(self, "program"):
            self.program.check_all()
            self.device.close()


@pytest.mark.parametrize("policy", ["fifo", "eager", "random", "drawn"])
def test_race_free_programs(policy: str, device_kind: str, open_test_device: Callable[..., Device]) -> None:
    if device_kind == "cuda" and policy != "fifo":
        pytest.skip("a GPU has a policy of its own: one run of this test is enough")
    members = {"open_test_device": staticmethod(open_test_device), "policy": policy}
    machine = type("RaceFreePrograms", (RaceFreePrograms,), members)
    run_state_machine_as_test(machine, settings=settings(max_examples=examples(80), stateful_step_count=40))
