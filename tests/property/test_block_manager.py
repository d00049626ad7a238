"""The KV pool's bookkeeping: nothing is owned twice, nothing is lost, promises never exceed the pool."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cupy_turbo.engine.block_manager import BlockManager
from cupy_turbo.testing.examples import examples

SLOTS, BLOCKS = 4, 11


class Blocks(RuleBasedStateMachine):
    """Any order of promises, takes and releases keeps used + free == total."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = BlockManager(BLOCKS, SLOTS)
        self.promised: dict[int, int] = {}
        self.taken: dict[int, list[int]] = {}

    @precondition(lambda self: len(self.promised) < SLOTS and self.manager.num_unpromised > 0)
    @rule(pick=st.integers(0, 100))
    def promise(self, pick: int) -> None:
        slot = min(set(range(SLOTS)) - set(self.promised))
        count = 1 + pick % self.manager.num_unpromised
        self.manager.promise(slot, count)
        self.promised[slot], self.taken[slot] = count, []

    @precondition(lambda self: any(len(self.taken[s]) < n for s, n in self.promised.items()))
    @rule(pick=st.integers(0, 100))
    def take(self, pick: int) -> None:
        growing = [s for s, n in self.promised.items() if len(self.taken[s]) < n]
        slot = growing[pick % len(growing)]
        index, block = self.manager.take(slot)
        assert index == len(self.taken[slot])
        assert all(block not in blocks for blocks in self.taken.values())
        self.taken[slot].append(block)

    @precondition(lambda self: self.promised)
    @rule(pick=st.integers(0, 100))
    def release(self, pick: int) -> None:
        slot = sorted(self.promised)[pick % len(self.promised)]
        self.manager.release(slot)
        del self.promised[slot], self.taken[slot]

    @invariant()
    def nothing_lost(self) -> None:
        self.manager.check_integrity()
        assert self.manager.num_free == BLOCKS - sum(map(len, self.taken.values()))
        assert self.manager.num_unpromised == BLOCKS - sum(self.promised.values())
        for slot, blocks in self.taken.items():
            assert self.manager.owned(slot) == tuple(blocks)


TestBlocks = Blocks.TestCase
TestBlocks.settings = settings(max_examples=examples(50), stateful_step_count=40)


def test_a_slot_gets_no_more_than_it_was_promised():
    manager = BlockManager(4, 1)
    manager.promise(0, 1)
    manager.take(0)
    with pytest.raises(AssertionError):
        manager.take(0)
