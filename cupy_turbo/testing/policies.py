"""Schedules that a search makes up, and that it can write down: policies for the host device."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

NUM_LAUNCH_ORDERS = 1 << 16
"""Orders of blocks and threads that a launch may be given, order 0 being theirs."""


class _Ready(Protocol):
    @property
    def stream(self) -> Any:
        """Where the operation was queued; has a `handle`."""


class _Ranking:
    """Streams have ranks, and the first in rank goes first unless a choice says otherwise.

    So a search that shrinks needs few numbers for a schedule, and they hold while the program around them shrinks.
    """

    def __init__(self) -> None:
        self._streams: list[int] = []  # by rank

    def _decide(self, kind: str, bound: int) -> int:
        """Return a number from 0 to `bound` - 1."""
        raise AssertionError

    def choose(self, ready: Sequence[_Ready]) -> int:
        """Return an index into `ready`."""
        if len(ready) == 1:
            return 0
        handles = [operation.stream.handle for operation in ready]
        for handle in handles:
            if handle not in self._streams:
                ahead_of = self._decide("ranks", len(self._streams) + 1)
                self._streams.insert(len(self._streams) - ahead_of, handle)
        choice = self._decide("choices", len(ready) + 1)
        return choice - 1 if choice else handles.index(min(handles, key=self._streams.index))

    def choose_launch_seed(self) -> int:
        """Return the seed of a launch's order of blocks and threads."""
        return self._decide("launch_seeds", NUM_LAUNCH_ORDERS)


class RecordedPolicy(_Ranking):
    """Repeat the decisions of another policy; after the last of them, decide 0.

    Parameters
    ----------
    choices : sequence of int
        Where several operations are ready: the index of one plus 1, or 0 for that of the stream that ranks first.
    ranks : sequence of int
        For each new stream, ahead of how many of those before it ranks. 0 is behind all.
    launch_seeds : sequence of int
        Order of each launch's blocks and threads; 0 is their own.

    Examples
    --------
    >>> from cupy_turbo import open_device
    >>> policy = RecordedPolicy(ranks=[0, 1, 0])
    >>> policy
    RecordedPolicy(ranks=[0, 1])
    >>> open_device("host", policy=policy, workers=1).name
    'host'
    """

    def __init__(
        self, *, choices: Sequence[int] = (), ranks: Sequence[int] = (), launch_seeds: Sequence[int] = ()
    ) -> None:
        super().__init__()
        given = {"choices": choices, "ranks": ranks, "launch_seeds": launch_seeds}
        self._given = {kind: _without_zeros(values) for kind, values in given.items()}
        self._left: dict[str, Iterator[int]] = {kind: iter(values) for kind, values in self._given.items()}

    def _decide(self, kind: str, bound: int) -> int:
        return next(self._left[kind], 0) % bound

    def __repr__(self) -> str:
        given = [f"{kind}={values}" for kind, values in self._given.items() if values]
        return f"RecordedPolicy({', '.join(given)})"


class DrawnPolicy(_Ranking):
    """Leave every decision that CUDA leaves open to a source of random numbers, and write the decisions down.

    That is: which stream's oldest operation runs next, and so when a copy reads its pinned source; and in which order
    the blocks of a launch, and the ready threads of a block, run. With hypothesis behind the source, a failure
    shrinks to a schedule that departs little from running stream after stream; `drawn_policies` gives such policies.

    Parameters
    ----------
    source : random.Random
        Asked for each decision.

    Notes
    -----
    Which blocks run at the same time is up to the operating system unless the device has one worker.

    Examples
    --------
    >>> import random
    >>> import numpy as np
    >>> from cupy_turbo import Stream, open_device
    >>> from cupy_turbo.device.sanitize import unsanitized
    >>> policy = DrawnPolicy(random.Random(0))
    >>> device = open_device("host", policy=policy)
    >>> first, second = Stream.create(device=device), Stream.create(device=device)
    >>> array = device.empty(1, np.uint8)
    >>> with unsanitized():
    ...     device.fill(array, 1, stream=first)
    ...     device.fill(array, 2, stream=second)      # nothing orders it behind the other: a race, on purpose
    >>> device.fetch(array).item(), policy.recorded()
    (1, RecordedPolicy(ranks=[0, 1]))
    """

    def __init__(self, source: random.Random) -> None:
        super().__init__()
        self._source = source
        self._decided: dict[str, list[int]] = {"choices": [], "ranks": [], "launch_seeds": []}

    def _decide(self, kind: str, bound: int) -> int:
        self._decided[kind].append(self._source.randint(0, bound - 1))
        return self._decided[kind][-1]

    def recorded(self) -> RecordedPolicy:
        """Return a policy that repeats what was decided so far."""
        return RecordedPolicy(**self._decided)

    def __repr__(self) -> str:
        """Write the schedule so far as code that repeats it."""
        return repr(self.recorded())


def _without_zeros(values: Sequence[int]) -> list[int]:
    """Drop the zeros at the end: they are what happens anyway."""
    kept = list(values)
    while kept and kept[-1] == 0:
        kept.pop()
    return kept
