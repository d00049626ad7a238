"""Queue, Stream and Event together: a ring of phases between two threads, as the engine and its executor have it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cupy_turbo.core.protocols import Array, Device
from cupy_turbo.core.queue import Queue
from cupy_turbo.core.stream import Event, Stream
from cupy_turbo.testing.examples import examples
from cupy_turbo.testing.threads import Caller


@dataclass
class Phase:
    """Staging, device memory and results of one step under way."""

    staging: np.ndarray
    inputs: Array
    results: np.ndarray
    ready: Event
    fetched: Event
    expected: int | None = None


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    num_phases=st.integers(1, 3),
    num_steps=st.integers(0, 25),
    policy=st.sampled_from(["fifo", "eager", "random"]),
    seed=st.integers(0, 2**16),
)
def test_every_step_gets_its_own_bytes_back(
    open_test_device: Callable[..., Device], num_phases: int, num_steps: int, policy: str, seed: int
) -> None:
    """Staging is rewritten as soon as `fetched` allows it, and not a byte of another step is ever seen."""
    device = open_test_device(policy=policy, seed=seed)
    upload, compute = Stream.create(device=device), Stream.create(device=device)
    shared = device.empty(16, np.uint8)  # used by all steps, one after the other on the compute stream
    outbound: Queue[Phase] = Queue()
    inbound: Queue[Phase] = Queue()

    def execute() -> None:
        for phase in outbound:
            device.copy(phase.inputs, phase.staging, stream=upload)
            phase.ready.record(upload)
            compute.wait(phase.ready)
            device.copy(shared, phase.inputs, stream=compute)
            device.copy(phase.results, shared, stream=compute)
            phase.fetched.record(compute)
            inbound.push(phase)

    def make_phase() -> Phase:
        events = Event.create(device=device), Event.create(device=device)
        return Phase(device.pinned(16, np.uint8), device.empty(16, np.uint8), device.pinned(16, np.uint8), *events)

    phases = [make_phase() for _ in range(num_phases)]
    with Caller(execute) as executor:
        for phase in phases[1:]:
            inbound.push(phase)  # never run: its events are not recorded, and waiting for them is no wait
        phase = phases[0]
        for step in range(num_steps + num_phases):
            phase.staging[:] = phase.expected = step % 256
            outbound.push(phase)
            phase = inbound.pop(timeout=20)
            phase.fetched.sync()
            if phase.expected is not None:
                assert phase.results.tolist() == [phase.expected] * 16
        outbound.close()
    executor.result()
    device.close()
