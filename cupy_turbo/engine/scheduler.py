"""Which tokens run next: a policy that reads aloud."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from cupy_turbo.engine.admission import blocks_needed
from cupy_turbo.engine.block_manager import BlockManager
from cupy_turbo.engine.request import Request
from cupy_turbo.engine.slots import SlotTable
from cupy_turbo.models.step import StepLimits


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Prompt tokens ``[start, stop)`` of a slot."""

    slot: int
    start: int
    stop: int


@dataclass(slots=True)
class Plan:
    """What the next step runs: one token of each decoding slot, then chunks of prompts."""

    decode_slots: np.ndarray
    prefills: list[PrefillChunk] = field(default_factory=list)
    admitted: list[int] = field(default_factory=list)

    @property
    def slots(self) -> list[int]:
        """Every slot that has a row in the step."""
        return [*self.decode_slots.tolist(), *(chunk.slot for chunk in self.prefills)]

    def __bool__(self) -> bool:
        return bool(len(self.decode_slots) or self.prefills)


class Scheduler:
    """First come, first served, with decode before prefill.

    Every decoding sequence runs one token in every step; what is left of the token budget goes to prompts that have
    begun, then to waiting requests in order of arrival. A request is admitted when a slot is free and the pool can
    promise it every block it may ever need, so nothing admitted is ever evicted. A request that must wait holds back
    those behind it.

    Parameters
    ----------
    limits : StepLimits
        Token budget of a step, block size.
    slots : SlotTable
        Live sequences.
    blocks : BlockManager
        The KV pool.

    Notes
    -----
    **Source:** continuous batching (Orca, Yu et al. 2022), mixed with prefill chunks (Sarathi, Agrawal et al. 2023).
    """

    def __init__(self, limits: StepLimits, slots: SlotTable, blocks: BlockManager) -> None:
        self._limits, self._slots, self._blocks = limits, slots, blocks
        self._waiting: deque[Request] = deque()
        self._prefilling: deque[int] = deque()

    @property
    def num_waiting(self) -> int:
        """Requests that hold no slot yet."""
        return len(self._waiting)

    def add(self, request: Request) -> None:
        """Queue a request behind those that wait."""
        self._waiting.append(request)

    def remove(self, request: Request) -> bool:
        """Take out a request that still waits; return whether it did."""
        try:
            self._waiting.remove(request)
        except ValueError:
            return False
        return True

    def drain_waiting(self) -> list[Request]:
        """Take out everything that waits."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def forget(self, slot: int) -> None:
        """Plan no more prompt tokens of a slot that has ended."""
        if slot in self._prefilling:
            self._prefilling.remove(slot)

    def blocks_needed(self, request: Request) -> int:
        """Return the blocks of a request at its longest; its last token is sampled but never attended to."""
        return blocks_needed(request.stop_position, self._limits.block_size)

    def schedule(self) -> Plan:
        """Plan the next step; an empty (false) plan means that nothing can run now."""
        plan = Plan(decode_slots=self._slots.decoding())
        budget = self._limits.max_num_tokens - len(plan.decode_slots)
        for slot in list(self._prefilling):
            budget -= self._plan_chunk(plan, slot, budget)
        while budget > 0 and self._waiting and self._can_admit(self._waiting[0]):
            slot = self._admit(self._waiting.popleft())
            plan.admitted.append(slot)
            budget -= self._plan_chunk(plan, slot, budget)
        return plan

    def _can_admit(self, request: Request) -> bool:
        return self._slots.num_free > 0 and self.blocks_needed(request) <= self._blocks.num_unpromised

    def _admit(self, request: Request) -> int:
        slot = self._slots.admit(request)
        self._blocks.promise(slot, self.blocks_needed(request))
        self._prefilling.append(slot)
        return slot

    def _plan_chunk(self, plan: Plan, slot: int, budget: int) -> int:
        """Plan as much of a slot's prompt as the budget holds; return the tokens taken."""
        start, prompt_len = int(self._slots.computed[slot]), int(self._slots.prompt_len[slot])
        stop = min(prompt_len, start + budget)
        if stop == start:
            return 0
        plan.prefills.append(PrefillChunk(slot, start, stop))
        if stop == prompt_len:
            self._prefilling.remove(slot)
        return stop - start
