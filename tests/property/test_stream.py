"""Programs for a device, under every schedule that CUDA allows: they give one outcome, or print how they did not."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.device import open_device
from cupy_turbo.testing import DrawnPolicy, ProgramError, StreamProgram, drawn_policies, stream_programs
from cupy_turbo.testing.examples import examples
from tests.property.mutants import few


def run_script(program: StreamProgram, policy: object) -> Any:
    """Run what a program prints as, in a world of its own; return the outcome."""
    scope: dict[str, Any] = {}
    exec(program.as_python(policy), scope)
    return scope["outcome"]


@pytest.mark.parametrize("policy", ["fifo", "eager", "random"])
def test_ordered_programs(policy: str, device_kind: str, open_test_device: Callable[..., Device]) -> None:
    if device_kind == "cuda" and policy != "fifo":
        pytest.skip("a GPU has a policy of its own: one run of this test is enough")

    @settings(max_examples=examples(100))
    @given(program=stream_programs(with_kernels=True), seed=st.integers(0, 2**16))
    def check(program: StreamProgram, seed: int) -> None:
        device = open_test_device(policy=policy, seed=seed)
        program.check(device)
        device.close()

    check()


@settings(max_examples=examples(250))
@given(program=stream_programs(with_kernels=True), policy=drawn_policies())
def test_ordered_programs_with_drawn_schedules(program: StreamProgram, policy: DrawnPolicy) -> None:
    program.check(open_device("host", policy=policy, workers=1), policy)


@pytest.mark.races
@settings(max_examples=examples(100))
@given(program=stream_programs(ordered=False, with_kernels=True), policy=drawn_policies())
def test_the_printed_script_has_the_outcome_of_what_printed_it(program: StreamProgram, policy: DrawnPolicy) -> None:
    """Races included, whose outcome is the schedule's: the script repeats the schedule."""
    outcome = program.check(open_device("host", policy=policy, workers=1), policy)
    assert run_script(program, policy) == outcome


@pytest.mark.races
def test_a_failure_shrinks_to_a_short_script_that_fails_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    @few(300, shrinks=True)
    @given(program=stream_programs(max_actions=15), policy=drawn_policies())
    def check(program: StreamProgram, policy: DrawnPolicy) -> None:
        program.check(open_device("host", policy=policy, workers=1), policy)

    monkeypatch.setattr(Stream, "wait", lambda stream, event: None)
    with pytest.raises(ProgramError) as caught:
        check()
    reason, _, script = str(caught.value).partition("\n\n")
    assert "must hold" in reason
    assert len(caught.value.program) <= 14
    with pytest.raises(AssertionError):
        exec(script, {})
    monkeypatch.undo()
    exec(script, {})


def test_a_recorded_launch_order_is_repeated(device_kind: str) -> None:
    """Every launch has an order of its own, drawn when it runs."""
    if device_kind != "host":
        pytest.skip("a GPU orders blocks itself")

    def orders(policy: object) -> list[list[int]]:
        from tests.kernels.probe import PROBES

        device = open_device("host", policy=policy, workers=1, kernel_folders=[PROBES])
        stream, kernel, found = Stream.create(device=device), device.kernel("order"), []
        for _ in range(4):
            blocks, threads = device.empty(7, np.int32), device.empty(192, np.int32)
            kernel(7, 96, (blocks, threads, device.upload(np.zeros(3, np.int32))), stream=stream)
            found.append([*device.fetch(blocks).tolist(), *device.fetch(threads).tolist()])
        return found

    drawn = DrawnPolicy(random.Random(5))
    found = orders(drawn)
    assert len({tuple(order) for order in found}) == 4
    assert orders(drawn.recorded()) == found
