"""The machine of `test_engine.py`: requests come, are cancelled and fail in any order, on any schedule."""

from __future__ import annotations

import random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cupy_turbo.models.language_model import LanguageModel
from cupy_turbo.models.step import Step
from cupy_turbo.testing.faults import Fault, Where, inject
from tests.property.stepped_engine import SteppedEngine, toy_config
from tests.property.toy_model import VOCAB_SIZE, open_toy_device

TOKENS = st.integers(0, VOCAB_SIZE - 1)
ARRIVALS = st.lists(st.tuples(st.lists(TOKENS, min_size=1, max_size=20), st.integers(1, 9)), max_size=4)


class Stumbling:
    """A model that raises when told to, before or after it has done a call's work."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self.next_failure: tuple[str, bool] | None = None

    def prepare(self, step: Step) -> None:
        self._call("prepare", step)

    def forward(self, step: Step) -> None:
        self._call("forward", step)

    def unprepare(self, step: Step) -> None:
        self._call("unprepare", step)

    def _call(self, name: str, step: Step) -> None:
        where, is_late = self.next_failure or ("", False)
        if where != name or is_late:
            getattr(self._model, name)(step)
        if where == name:
            self.next_failure = None
            raise RuntimeError(f"stumbled in {name}")


class EngineMachine(RuleBasedStateMachine):
    """Every accepted request ends once, and whoever was left alone has the tokens of a quiet run."""

    device_kind = "host"

    @initialize(
        phases=st.sampled_from([2, 1]),
        slots=st.sampled_from([5, 3, 6, 2, 1]),
        extra_tokens=st.sampled_from([0, 3, 20]),
        blocks=st.integers(4, 14),
        policy=st.sampled_from(["fifo", "random"]),
        seed=st.integers(0, 2**16),
        ends_early=st.booleans(),
    )
    def start(
        self, phases: int, slots: int, extra_tokens: int, blocks: int, policy: str, seed: int, ends_early: bool
    ) -> None:
        self.ends_early = ends_early
        self.device = open_toy_device(self.device_kind, policy=policy, seed=seed, workers=1)
        config = toy_config(slots=slots, tokens=slots + extra_tokens, blocks=blocks, phases=phases)
        chance = random.Random(seed)
        self.stumbling: Stumbling

        def wrap(model: LanguageModel) -> LanguageModel:
            self.stumbling = Stumbling(model)
            return self.stumbling

        self.stepped = SteppedEngine(self.device, config, wrap=wrap, is_late=lambda: chance.random() < 0.5)

    @rule(
        prompt=st.lists(TOKENS, min_size=1, max_size=24),
        max_tokens=st.integers(1, 24),
        seed=st.integers(0, 2**32),
        stop_ids=st.lists(TOKENS, max_size=2),
    )
    def submit(self, prompt: list[int], max_tokens: int, seed: int, stop_ids: list[int]) -> None:
        self.stepped.submit(prompt, max_tokens, seed, tuple(stop_ids))

    @precondition(lambda self: self.stepped.sent)
    @rule(pick=st.integers(0, 1000))
    def cancel(self, pick: int) -> None:
        sent = list(self.stepped.sent.values())[pick % len(self.stepped.sent)]
        sent.is_disturbed |= not sent.ends
        sent.request.cancel()

    @rule(times=st.integers(1, 8))
    def step(self, times: int) -> None:
        for _ in range(times):
            self.stepped.step()

    @rule(where=st.sampled_from(["prepare", "forward", "unprepare"]), is_late=st.booleans())
    def fail_next_step(self, where: str, is_late: bool) -> None:
        self.stumbling.next_failure = where, is_late

    @rule(
        where=st.sampled_from(["copy", "record", "wait", "kernel"]),
        call=st.integers(1, 8),
        arrivals=ARRIVALS,
    )
    def fail_a_call(self, where: Where, call: int, arrivals: list[tuple[list[int], int]]) -> None:
        """Others come while a step fails: in the batch behind it, or right after."""
        with inject(self.device, Fault(where=where, call=call)):
            self.stepped.step()
            for prompt, max_tokens in arrivals:
                self.stepped.submit(prompt, max_tokens, seed=call)
                self.stepped.step()

    @precondition(lambda self: self.device_kind == "host")
    @rule(
        name=st.sampled_from(["slot_init", "block_table_update", "toy_write", "toy_sample", "commit_tokens", "record"]),
        call=st.integers(1, 4),
        arrivals=ARRIVALS,
    )
    def fail_late(self, name: str, call: int, arrivals: list[tuple[list[int], int]]) -> None:
        """What fails when the device gets to it may end everybody who holds a slot until it is known."""
        with inject(self.device, Fault(where="run", name=name, call=call)):
            for prompt, max_tokens in [*arrivals, ([1], 1), ([2], 3)]:
                self.stepped.submit(prompt, max_tokens, seed=call)
                self.stepped.disturb_everybody()
                self.stepped.step()
        self.stepped.disturb_everybody()
        for _ in range(2):
            self.stepped.step()

    @invariant()
    def books_balance(self) -> None:
        if hasattr(self, "stepped"):
            self.stepped.engine._blocks.check_integrity()

    def teardown(self) -> None:
        if not hasattr(self, "stepped"):
            return
        if not self.ends_early:
            self.stepped.finish()
        for sent in self.stepped.sent.values():
            sent.is_disturbed |= not sent.ends
        self.stepped.close()
        self.stepped.check()
        self.device.close()
