"""The engine against a pure model: any arrivals, cancels, stops and failures, on any schedule that CUDA allows."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from cupy_turbo.testing.examples import examples
from cupy_turbo.testing.faults import Fault, inject
from tests.property.engine_machine import EngineMachine
from tests.property.stepped_engine import SteppedEngine, toy_config
from tests.property.toy_model import open_toy_device


def test_engine(device_kind: str) -> None:
    machine = type("EngineMachine", (EngineMachine,), {"device_kind": device_kind})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples(60), stateful_step_count=20, deadline=None)
    )


def test_a_late_failure_ends_all_who_hold_a_slot() -> None:
    """What the batch behind it did is not known: its rows may have written into the blocks of others."""
    device = open_toy_device("host")
    stepped = SteppedEngine(device, toy_config(slots=2, tokens=8, blocks=8, phases=2))
    first = stepped.submit([1], 20, seed=2)
    stepped.step()
    with inject(device, Fault(where="run", name="toy_sample")):
        stepped.step()  # pushes the step that fails
        behind = stepped.submit([2], 20, seed=4)
        waiting = stepped.submit([3], 5, seed=6)
        stepped.step()  # pushes a step with `behind` in it, and reads the failed one
    assert [event.finish_reason for event in (*first.ends, *behind.ends)] == ["error", "error"]
    first.is_disturbed = behind.is_disturbed = True
    stepped.finish()
    assert waiting.ends
    stepped.close()
    stepped.check()
    device.close()
