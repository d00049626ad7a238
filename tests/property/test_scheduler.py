"""The scheduler's laws: within the budget, each slot once, chunks without gaps, first come first served, all served."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.queue import Queue
from cupy_turbo.engine.block_manager import BlockManager
from cupy_turbo.engine.request import Request
from cupy_turbo.engine.scheduler import Plan, Scheduler
from cupy_turbo.engine.slots import SlotTable
from cupy_turbo.models.step import StepLimits
from cupy_turbo.testing.examples import examples


@dataclass(frozen=True)
class Arrival:
    """A request that comes at a step; `early` ends it that many tokens before its length, as a stop id would."""

    step: int
    prompt_len: int
    max_tokens: int
    early: int


ARRIVALS = st.lists(
    st.builds(Arrival, st.integers(0, 12), st.integers(1, 40), st.integers(1, 12), st.integers(0, 12)),
    min_size=1,
    max_size=12,
)


class Run:
    """A scheduler whose plans are carried out at once; what it does is checked at every step."""

    def __init__(self, arrivals: list[Arrival], slots: int, tokens: int, blocks: int, block_size: int) -> None:
        limits = StepLimits(max_num_seqs=slots, max_num_tokens=tokens, max_model_len=64, block_size=block_size)
        self.limits, self.slots, self.blocks = limits, SlotTable(slots), BlockManager(blocks, slots)
        self.scheduler = Scheduler(limits, self.slots, self.blocks)
        self.arrivals = sorted(arrivals, key=lambda arrival: arrival.step)
        self.arrival_of: dict[Request, Arrival] = {}
        self.admitted: list[Request] = []
        self.now = 0

    def step(self) -> None:
        while self.arrivals and self.arrivals[0].step <= self.now:
            arrival = self.arrivals.pop(0)
            made = request(str(len(self.arrival_of)), arrival)
            self.arrival_of[made] = arrival
            self.scheduler.add(made)
        plan = self.scheduler.schedule()
        assert bool(plan) == bool(self.slots.num_held), "somebody holds a slot and nothing runs, or the reverse"
        assert self.slots.num_held or not self.scheduler.num_waiting, "an empty engine lets somebody wait"
        self.check(plan)
        self.carry_out(plan)
        self.now += 1

    def check(self, plan: Plan) -> None:
        slots = [*plan.decode_slots.tolist(), *(chunk.slot for chunk in plan.prefills)]
        assert len(slots) == len(set(slots)), "a slot has two rows"
        tokens = len(plan.decode_slots) + sum(chunk.stop - chunk.start for chunk in plan.prefills)
        assert tokens <= self.limits.max_num_tokens, "the budget is exceeded"
        for chunk in plan.prefills:
            assert chunk.start == self.slots.computed[chunk.slot], "a chunk leaves a gap or repeats"
            assert chunk.start < chunk.stop <= self.slots.prompt_len[chunk.slot]
        for slot in np.flatnonzero(self.slots.live).tolist():
            if self.slots.computed[slot] >= self.slots.prompt_len[slot]:
                assert slot in plan.decode_slots, "a decoding sequence was left out"
        for slot in plan.admitted:
            made = self.slots.requests[slot]
            assert made is not None
            self.admitted.append(made)

    def carry_out(self, plan: Plan) -> None:
        self.slots.computed[plan.decode_slots] += 1
        for chunk in plan.prefills:
            self.slots.computed[chunk.slot] = chunk.stop
        for slot in self.slots.held():
            needed = -(-int(self.slots.computed[slot]) // self.limits.block_size)
            while len(self.blocks.owned(slot)) < needed:
                self.blocks.take(slot)  # asserts that it was promised
            made = self.slots.requests[slot]
            assert made is not None
            last = max(made.num_prompt_tokens, made.stop_position - 1 - self.arrival_of[made].early)
            if self.slots.computed[slot] >= last:
                self.end(slot)

    def end(self, slot: int) -> None:
        self.slots.live[slot] = False
        self.scheduler.forget(slot)
        self.blocks.release(slot)
        self.slots.release(slot)


def request(name: str, arrival: Arrival) -> Request:
    return Request(
        request_id=name,
        prompt_ids=np.zeros(arrival.prompt_len, np.int32),
        stop_position=arrival.prompt_len + arrival.max_tokens,
        stop_ids=(),
        temperature=0.0,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        seed=0,
        events=Queue(),
    )


@settings(max_examples=examples(150))
@given(
    arrivals=ARRIVALS,
    slots=st.integers(1, 5),
    extra_tokens=st.sampled_from([0, 1, 7, 60]),
    extra_blocks=st.sampled_from([0, 1, 5]),
    block_size=st.sampled_from([16, 32]),
)
def test_everybody_is_served_in_order(
    arrivals: list[Arrival], slots: int, extra_tokens: int, extra_blocks: int, block_size: int
) -> None:
    blocks = -(-52 // block_size) + extra_blocks  # enough for the longest alone
    run = Run(list(arrivals), slots, slots + extra_tokens, blocks, block_size)
    # Alone, one token a step at worst: nobody waits longer than all the work there is.
    bound = 13 + sum(arrival.prompt_len + arrival.max_tokens for arrival in arrivals)
    for _ in range(bound):
        run.step()
    assert [int(made.request_id) for made in run.admitted] == list(range(len(arrivals)))
    assert run.slots.num_held == 0
    assert run.blocks.num_free == run.blocks.num_unpromised == blocks
    run.blocks.check_integrity()
