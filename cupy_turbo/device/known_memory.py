"""Which memory is whose, and which is nobody's any more."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any
from weakref import ref

import numpy as np

from cupy_turbo.core.errors import SanitizerError
from cupy_turbo.device.interval_map import IntervalMap
from cupy_turbo.device.queued_work import address_range, memory_owner
from cupy_turbo.device.race_detector import Origin
from cupy_turbo.device.race_report import Block
from cupy_turbo.device.source_line import describe


class KnownMemory:
    """Allocations that operations have used, by their owners, and the ranges whose owner has gone.

    Parameters
    ----------
    gone : deque of callable
        Where to put what is due when an owner goes. A collector may destroy it in any thread and at any moment, so
        nothing else is done then.
    """

    def __init__(self, gone: deque[Callable[[], None]]) -> None:
        self._gone = gone
        self._blocks: dict[int, tuple[ref[Any], Block]] = {}
        self._freed: IntervalMap[Block] = IntervalMap()
        self._newly_freed: list[tuple[int, int]] = []

    @property
    def blocks(self) -> Iterable[Block]:
        """Allocations that are alive."""
        return [block for _, block in self._blocks.values()]

    def add(self, array: Any, kind: str, origin: Origin | None) -> tuple[int, int]:
        """Take up a new allocation; return its range."""
        start, stop = address_range(array)
        self._freed.erase(start, stop)
        if start < stop:
            self._own(memory_owner(array)[0], Block(start, stop, kind, origin))
        return start, stop

    def know(self, array: Any) -> None:
        """Take up an operand of an operation.

        Raises
        ------
        SanitizerError
            If its memory was freed.
        """
        owner, is_owner = memory_owner(array)
        if id(owner) in self._blocks:  # the usual case
            return
        start, stop = address_range(array)
        if is_owner:
            first = _first_address(owner, start)
            kind = "host" if isinstance(array, np.ndarray) else "device"
            block = Block(first, max(stop, first + getattr(owner, "nbytes", 0)), kind, None)
            self._freed.erase(block.start, block.stop)
            self._own(owner, block)
            return
        for segment in self._freed.overlapping(start, stop):
            freed = segment.write
            assert freed is not None
            raise SanitizerError(
                f"an array at {start:#x} to {stop:#x} is used, but that memory was freed: its owner is gone, "
                f"{freed.stop - freed.start} {freed.kind} bytes taken at {describe(freed.origin)}; keep the array that "
                "owns the memory as long as views of it are used"
            )

    def take_freed(self) -> list[tuple[int, int]]:
        """Return the ranges whose owners went since the last call."""
        freed, self._newly_freed = self._newly_freed, []
        return freed

    def release(self, pointer: int) -> None:
        """Forget that the allocation at an address was freed."""
        for segment in self._freed.overlapping(pointer, pointer + 1):
            assert segment.write is not None
            self._freed.erase(segment.write.start, segment.write.stop)

    def _own(self, owner: Any, block: Block) -> None:
        key = id(owner)
        lost = functools.partial(self._gone.append, functools.partial(self._lose, key))
        try:
            self._blocks[key] = ref(owner, lambda _: lost()), block
        except TypeError:  # bytes and the like tell nobody that they go
            return

    def _lose(self, key: int) -> None:
        _, block = self._blocks.pop(key)
        self._freed.write(block.start, block.stop, block)
        self._newly_freed.append((block.start, block.stop))


def _first_address(owner: Any, default: int) -> int:
    """First address of what owns memory, where that can be asked."""
    if hasattr(owner, "__array_interface__"):
        return int(owner.__array_interface__["data"][0])
    return int(getattr(owner, "pointer", default))
