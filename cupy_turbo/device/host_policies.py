"""In which of the orders that CUDA allows a host device runs its operations."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cupy_turbo.device.host_schedule import Operation


class Policy(Protocol):
    """Decides which of the operations that CUDA would allow next runs next."""

    def choose(self, ready: Sequence[Operation]) -> int:
        """Return an index into `ready`: at most one operation a stream, in the order of queueing, never empty."""


class Fifo:
    """Run operations in the order in which they were queued, over all streams."""

    def choose(self, ready: Sequence[Operation]) -> int:
        """Return 0: the oldest."""
        return 0


class Eager(Fifo):
    """Run every operation when it is queued, so that an error points at the line that caused it."""


class Random:
    """Run operations in an order drawn from a seed.

    Parameters
    ----------
    seed : int
        Same seed and same calls, same order.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def choose(self, ready: Sequence[Operation]) -> int:
        """Return any index."""
        return self._random.randrange(len(ready))


def make_policy(policy: str | Policy, seed: int) -> Policy:
    """Return the policy of that name, or `policy` itself.

    Raises
    ------
    ValueError
        Unknown name; the message lists those that exist.
    """
    if not isinstance(policy, str):
        return policy
    makers: dict[str, Callable[[], Policy]] = {"fifo": Fifo, "eager": Eager, "random": lambda: Random(seed)}
    if policy not in makers:
        raise ValueError(f"policy must be {', '.join(makers)} or an object with choose(), got {policy!r}")
    return makers[policy]()
