"""Who owns which KV block, and how many are promised."""

from __future__ import annotations


class BlockManager:
    """Hands out KV blocks to slots; a slot's whole need is promised before its first block is given.

    A promise is arithmetic only: blocks are taken from the free list one at a time as tokens arrive. Since promises
    never exceed the pool, a running sequence can always grow, so none ever has to be evicted.

    Parameters
    ----------
    num_blocks : int
        Blocks in the pool, >= 1.
    num_slots : int
        Owners.

    Notes
    -----
    Invariant: used + free == total, and no block has two owners. **Source:** vLLM's block manager, with admission by
    worst case in place of preemption.
    """

    def __init__(self, num_blocks: int, num_slots: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._owned: list[list[int]] = [[] for _ in range(num_slots)]
        self._promised = [0] * num_slots
        self._total_promised = 0

    @property
    def num_free(self) -> int:
        """Blocks that no slot owns."""
        return len(self._free)

    @property
    def num_unpromised(self) -> int:
        """Blocks that could be promised to a new sequence."""
        return self.num_blocks - self._total_promised

    def owned(self, slot: int) -> tuple[int, ...]:
        """Blocks of a slot in the order of its tokens."""
        return tuple(self._owned[slot])

    def promise(self, slot: int, count: int) -> None:
        """Reserve `count` blocks for a slot that has none; at most `num_unpromised`."""
        assert not self._promised[slot] and not self._owned[slot], slot
        assert count <= self.num_unpromised, (count, self.num_unpromised)
        self._promised[slot] = count
        self._total_promised += count

    def take(self, slot: int) -> tuple[int, int]:
        """Give the slot its next block; return the block's place in the slot's table row, and the block."""
        owned = self._owned[slot]
        assert len(owned) < self._promised[slot], (slot, len(owned), self._promised[slot])
        block = self._free.pop()
        owned.append(block)
        return len(owned) - 1, block

    def release(self, slot: int) -> None:
        """Take back all blocks of a slot and its promise."""
        self._free.extend(reversed(self._owned[slot]))
        self._owned[slot].clear()
        self._total_promised -= self._promised[slot]
        self._promised[slot] = 0

    def check_integrity(self) -> None:
        """Raise AssertionError unless every block is free or has exactly one owner."""
        owned = [block for blocks in self._owned for block in blocks]
        assert sorted(owned + self._free) == list(range(self.num_blocks)), (owned, self._free)
        assert self._total_promised == sum(self._promised) <= self.num_blocks
