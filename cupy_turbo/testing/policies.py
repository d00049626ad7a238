"""Schedules that a search makes up, and that it can write down: policies for the host device."""

from __future__ import annotations

import random
from collections.abc import Sequence

NUM_LAUNCH_ORDERS = 1 << 16
"""Orders of blocks and threads that a launch may be given, order 0 being theirs."""


class DrawnPolicy:
    """Leave every choice that CUDA leaves open to a source of random numbers, and write the choices down.

    That is: which stream's oldest operation runs next, and so when a copy reads its pinned source; and in which order
    the blocks of a launch, and the ready threads of a block, run. With hypothesis behind the source, a failure
    shrinks to a schedule that departs from the order of the calls as little as it can; `strategies.drawn_policies`
    gives such policies.

    Parameters
    ----------
    source : random.Random
        Asked once for each choice that is one.

    Attributes
    ----------
    choices : list of int
        Indices among the operations that were ready, where there was more than one.
    launch_seeds : list of int
        Order of each launch.

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
    >>> device.fetch(array).item(), policy
    (1, RecordedPolicy(choices=[1]))
    """

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self.choices: list[int] = []
        self.launch_seeds: list[int] = []

    def choose(self, ready: Sequence[object]) -> int:
        """Return an index into `ready`."""
        if len(ready) == 1:
            return 0
        self.choices.append(self._source.randint(0, len(ready) - 1))
        return self.choices[-1]

    def choose_launch_seed(self) -> int:
        """Return the seed of a launch's order of blocks and threads."""
        self.launch_seeds.append(self._source.randint(0, NUM_LAUNCH_ORDERS - 1))
        return self.launch_seeds[-1]

    def __repr__(self) -> str:
        """Write the schedule so far as code that repeats it."""
        return repr(RecordedPolicy(self.choices, self.launch_seeds))


class RecordedPolicy:
    """Repeat the choices of another policy; after the last of them, run everything in order.

    Parameters
    ----------
    choices, launch_seeds : sequence of int
        As `DrawnPolicy` wrote them down.

    Examples
    --------
    >>> from cupy_turbo import open_device
    >>> policy = RecordedPolicy(choices=[1, 0, 0])
    >>> policy
    RecordedPolicy(choices=[1])
    >>> open_device("host", policy=policy, workers=1).name
    'host'
    """

    def __init__(self, choices: Sequence[int] = (), launch_seeds: Sequence[int] = ()) -> None:
        self.choices, self.launch_seeds = _without_zeros(choices), _without_zeros(launch_seeds)
        self._choices, self._launch_seeds = iter(self.choices), iter(self.launch_seeds)

    def choose(self, ready: Sequence[object]) -> int:
        """Return an index into `ready`."""
        return 0 if len(ready) == 1 else next(self._choices, 0) % len(ready)

    def choose_launch_seed(self) -> int:
        """Return the seed of a launch's order of blocks and threads."""
        return next(self._launch_seeds, 0)

    def __repr__(self) -> str:
        given = {"choices": self.choices, "launch_seeds": self.launch_seeds}
        return f"RecordedPolicy({', '.join(f'{name}={values}' for name, values in given.items() if values)})"


def _without_zeros(values: Sequence[int]) -> list[int]:
    """Drop the zeros at the end: they are what happens anyway."""
    kept = list(values)
    while kept and kept[-1] == 0:
        kept.pop()
    return kept
