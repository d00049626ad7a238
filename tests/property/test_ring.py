"""BatchData and ModelExecutor against a pure model: any rows, failures and moves; every batch comes back, right."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from cupy_turbo.core.context import Context
from cupy_turbo.core.errors import QueueClosed
from cupy_turbo.core.queue import Queue
from cupy_turbo.core.stream import Stream
from cupy_turbo.engine.batch import BatchData
from cupy_turbo.engine.model_executor import ModelExecutor
from cupy_turbo.models.language_model import LanguageModel
from cupy_turbo.models.step import PADDING, StepLimits, TokenStatus
from cupy_turbo.testing.examples import examples
from tests.property.engine_machine import TOKENS, Stumbling
from tests.property.toy_model import ToyModel, next_token, open_toy_device

SLOTS, BLOCKS_PER_SLOT = 4, 4
LIMITS = StepLimits(max_num_seqs=SLOTS, max_num_tokens=32, max_model_len=BLOCKS_PER_SLOT * 16, block_size=16)


@dataclass
class Sequence:
    """What the model knows of a slot: its tokens, or that nothing is known because a step of it failed."""

    seed: int
    tokens: list[int] = field(default_factory=list)
    is_finished: bool = False
    is_undefined: bool = False


@dataclass
class Pushed:
    """A batch on its way: for each slot in it, what must come back; None where it is masked."""

    batch: BatchData
    failure: tuple[str, bool] | None
    expected: dict[int, tuple[int, int]] = field(default_factory=dict)


class Ring(RuleBasedStateMachine):
    """The test is the engine here: it fills batches by hand, pushes them and reads them back in order."""

    device_kind = "host"
    patience = 20.0

    @initialize(phases=st.integers(1, 3), policy=st.sampled_from(["fifo", "random"]), seed=st.integers(0, 2**16))
    def start(self, phases: int, policy: str, seed: int) -> None:
        self.device = open_toy_device(self.device_kind, policy=policy, seed=seed, workers=1)
        self.model = Planned(ToyModel(self.device, LIMITS, SLOTS * BLOCKS_PER_SLOT))
        self.inbound: Queue[BatchData] = Queue()
        self.outbound: Queue[BatchData] = Queue()
        context = Context(stream=Stream.create(device=self.device))
        self.executor = ModelExecutor(self.model, context, self.device.index, self.inbound, self.outbound)
        self.executor.start()
        self.free = deque(BatchData(self.device, LIMITS, phase=phase) for phase in range(phases))
        self.under_way: deque[Pushed] = deque()
        self.slots: dict[int, Sequence] = {}

    @precondition(lambda self: self.free)
    @rule(
        starting=st.dictionaries(
            st.integers(0, SLOTS - 1),
            st.tuples(st.lists(TOKENS, min_size=1, max_size=5), st.integers(0, 2**64 - 1)),
            max_size=SLOTS,
        ),
        resting=st.sets(st.integers(0, SLOTS - 1)),
        failure=st.none() | st.none() | st.tuples(st.sampled_from(["prepare", "forward", "unprepare"]), st.booleans()),
    )
    def push(
        self, starting: dict[int, tuple[list[int], int]], resting: set[int], failure: tuple[str, bool] | None
    ) -> None:
        """One token of some sequences, fed back on the device, and the whole prompts of new ones."""
        busy = {slot for pushed in self.under_way for slot in pushed.batch.held.tolist()}
        starting = {slot: given for slot, given in starting.items() if slot not in busy}
        going = [
            slot for slot in self.slots if slot not in resting | set(starting) and len(self.slots[slot].tokens) < 60
        ]
        if not (starting or going):
            return
        pushed = Pushed(self.free.popleft(), failure)
        batch = pushed.batch
        batch.clear()
        writer = RowWriter(batch)
        for slot in going:
            writer.decode(slot, len(self.slots[slot].tokens) - 1)
            self.expect(pushed, slot)
        batch.num_decode_rows = batch.num_rows
        for slot, (prompt, seed) in starting.items():
            writer.prefill(slot, prompt, seed)
            self.slots[slot] = Sequence(seed, list(prompt))
            self.expect(pushed, slot)
        batch.held = np.array([*going, *starting], np.int64)
        if failure is not None:
            for slot in batch.held.tolist():
                self.slots[slot].is_undefined = True
        self.model.plans.append(failure)
        self.under_way.append(pushed)
        self.inbound.push(batch)

    def expect(self, pushed: Pushed, slot: int) -> None:
        """Advance the model's sequence, and note what the executor must give for it."""
        sequence = self.slots[slot]
        if sequence.is_finished or sequence.is_undefined:
            sequence.tokens.append(0)  # its place in the sequence is planned all the same
            pushed.expected[slot] = PADDING, TokenStatus.MASKED
            return
        token = next_token(sequence.tokens, sequence.seed)
        sequence.is_finished = token < 0
        sequence.tokens.append(token)
        pushed.expected[slot] = token, TokenStatus.NON_FINITE if token < 0 else TokenStatus.RUNNING

    @precondition(lambda self: self.under_way)
    @rule()
    def pop(self) -> None:
        pushed = self.under_way.popleft()
        batch = self.outbound.pop(timeout=self.patience)
        assert batch is pushed.batch, "batches come back in the order in which they went"
        batch.fetched.sync()
        assert (batch.error is not None) == (pushed.failure is not None)
        if batch.error is None:
            rows = zip(
                batch.held.tolist(),
                batch.results.host["tokens"].tolist(),
                batch.results.host["status"].tolist(),
                strict=False,
            )
            got = {slot: (token, status) for slot, token, status in rows}
            assert got == {slot: (token, int(status)) for slot, (token, status) in pushed.expected.items()}
        else:
            self.device.synchronize()
        self.free.append(batch)

    @rule()
    def move(self) -> None:
        moved = self.executor.move()
        assert not self.executor
        self.executor = moved

    def teardown(self) -> None:
        if not hasattr(self, "device"):
            return
        self.inbound.close()  # what is queued still runs
        while self.under_way:
            self.pop()
        self.executor.stop()
        assert self.executor.error is None
        with pytest.raises(QueueClosed):
            self.outbound.pop(timeout=self.patience)
        self.device.close()


class Planned(Stumbling):
    """Stumbles as planned for each batch, in their order."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__(model)
        self.plans: deque[tuple[str, bool] | None] = deque()

    def prepare(self, step: object) -> None:
        self.next_failure = self.plans.popleft()
        super().prepare(step)  # type: ignore[arg-type]


class RowWriter:
    """Writes rows into a batch, as `BatchFiller` does for the engine."""

    def __init__(self, batch: BatchData) -> None:
        self.batch, self.fields = batch, batch.inputs.host
        self.fields["query_start"][0] = 0

    def decode(self, slot: int, position: int) -> None:
        self._row(slot, [-slot - 1], position)
        if position % LIMITS.block_size == 0:
            self._block(slot, position // LIMITS.block_size)

    def prefill(self, slot: int, prompt: list[int], seed: int) -> None:
        self._row(slot, prompt, 0)
        self._block(slot, 0)
        entry = self.batch.num_inits
        self.batch.num_inits += 1
        values = {"slots": slot, "seed": seed, "stop_position": 1000, "stop_ids": PADDING, "temperature": 0}
        for name, value in {**values, "top_k": 0, "top_p": 1, "min_p": 0}.items():
            self.fields[f"init_{name}"][entry] = value

    def _row(self, slot: int, tokens: list[int], start: int) -> None:
        batch, fields, row, first = self.batch, self.fields, self.batch.num_rows, self.batch.num_tokens
        batch.num_rows, batch.num_tokens, batch.num_samples = row + 1, first + len(tokens), row + 1
        fields["perm"][row] = fields["sample_slots"][row] = slot
        fields["token_ids"][first : batch.num_tokens] = tokens
        fields["token_rows"][first : batch.num_tokens] = row
        fields["positions"][first : batch.num_tokens] = np.arange(start, start + len(tokens))
        fields["query_start"][row + 1] = batch.num_tokens
        fields["sample_tokens"][row] = batch.num_tokens - 1
        fields["context_len"][row] = fields["sample_positions"][row] = start + len(tokens)

    def _block(self, slot: int, index: int) -> None:
        entry = self.batch.num_updates
        self.batch.num_updates += 1
        # Each slot has blocks of its own, so that only rows and slots can get mixed up here.
        for name, value in (("slots", slot), ("indices", index), ("blocks", slot * BLOCKS_PER_SLOT + index)):
            self.fields[f"update_{name}"][entry] = value


def test_ring(device_kind: str) -> None:
    machine = type("Ring", (Ring,), {"device_kind": device_kind})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples(40), stateful_step_count=25, deadline=None)
    )
