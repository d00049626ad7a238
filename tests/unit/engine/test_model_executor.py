"""The executor: every batch comes back, in order, with its events recorded, whatever the model does."""

from __future__ import annotations

import copy
import gc
import threading

import pytest

from cupy_turbo.core.context import Context, current_stream
from cupy_turbo.core.errors import QueueClosed
from cupy_turbo.core.queue import Queue
from cupy_turbo.core.stream import Stream
from cupy_turbo.engine.batch import BatchData
from cupy_turbo.engine.model_executor import ModelExecutor
from cupy_turbo.models.step import Step, StepLimits

LIMITS = StepLimits(max_num_seqs=2, max_num_tokens=4, max_model_len=32, block_size=16)


class CopyModel:
    """Publishes its token ids as results; fails on a step with 3 tokens."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def prepare(self, step: Step) -> None:
        self.calls.append(f"prepare {step.num_tokens}")
        if step.num_tokens == 3:
            raise RuntimeError("the model fell over")

    def forward(self, step: Step) -> None:
        stream = current_stream()
        stream.device.copy(step.results.device["tokens"], step.view("token_ids", 2), stream=stream)

    def unprepare(self, step: Step) -> None:
        self.calls.append("unprepare")


@pytest.fixture
def ring(device):
    """An executor that is not started yet, its queues and two batches."""
    inbound: Queue[BatchData] = Queue()
    outbound: Queue[BatchData] = Queue()
    executor = ModelExecutor(CopyModel(), Context(stream=Stream.create(device=device)), device.index, inbound, outbound)
    batches = [BatchData(device, LIMITS, phase=phase) for phase in range(2)]
    yield executor, inbound, outbound, batches
    executor.stop()


def test_batches_come_back_in_order_with_their_results(ring):
    executor, inbound, outbound, batches = ring
    executor.start()
    for round_ in range(3):
        for batch in batches:
            batch.inputs.host["token_ids"][:2] = 10 * round_ + batch.phase, 5
            inbound.push(batch)
        for batch in batches:
            assert outbound.pop() is batch
            batch.fetched.sync()
            assert batch.results.host["tokens"].tolist() == [10 * round_ + batch.phase, 5]


def test_a_failing_step_travels_in_its_batch(ring):
    executor, inbound, outbound, (first, second) = ring
    executor.start()
    first.num_tokens = 3
    inbound.push(first)
    inbound.push(second)
    assert outbound.pop() is first
    assert str(first.error) == "the model fell over"
    first.fetched.sync()  # recorded all the same: nobody waits for ever
    assert outbound.pop() is second
    assert second.error is None


def test_closing_inbound_drains_it_and_closes_outbound(ring):
    executor, inbound, outbound, batches = ring
    for batch in batches:
        inbound.push(batch)
    executor.start()
    executor.stop()
    executor.stop()
    assert not executor.is_running
    assert [outbound.pop(), outbound.pop()] == batches
    with pytest.raises(QueueClosed):
        outbound.pop()


def test_an_empty_executor_is_false_and_inert():
    executor = ModelExecutor()
    assert not executor
    executor.stop()
    for call in (executor.start, executor.move):
        with pytest.raises(ValueError, match="empty"):
            call()


def test_it_starts_once(ring):
    executor = ring[0]
    executor.start()
    with pytest.raises(RuntimeError, match="once"):
        executor.start()


def test_it_moves_while_running_and_cannot_be_copied(ring):
    executor, inbound, outbound, (batch, _) = ring
    executor.start()
    moved = executor.move()
    assert moved
    assert not executor
    for copier in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="move"):
            copier(moved)
    inbound.push(batch)
    assert outbound.pop() is batch
    moved.stop()


def test_dropping_a_running_executor_drains_and_joins(device):
    inbound: Queue[BatchData] = Queue()
    outbound: Queue[BatchData] = Queue()
    executor = ModelExecutor(CopyModel(), Context(stream=Stream.create(device=device)), device.index, inbound, outbound)
    executor.start()
    batch = BatchData(device, LIMITS, phase=0)
    inbound.push(batch)
    del executor
    gc.collect()
    assert outbound.pop() is batch
    assert not [thread for thread in threading.enumerate() if thread.name == "cupy_turbo-executor"]


def test_arguments_come_together_or_not_at_all(device):
    with pytest.raises(ValueError, match="together"):
        ModelExecutor(CopyModel())
    with pytest.raises(ValueError, match="stream"):
        ModelExecutor(CopyModel(), Context(), 0, Queue(), Queue())
    with pytest.raises(ValueError, match="device_id"):
        ModelExecutor(CopyModel(), Context(stream=Stream.create(device=device)), 7, Queue(), Queue())


def test_a_batch_cannot_be_copied(device):
    batch = BatchData(device, LIMITS, phase=0)
    for copier in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="one owner"):
            copier(batch)
