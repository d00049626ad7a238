"""Threads whose calls can be waited for, so that no test sleeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 20.0
"""Seconds after which a thread that should have answered counts as stuck: long, for the machine may be busy."""


def wait_until(condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Return once a condition holds.

    Parameters
    ----------
    condition : callable
        Asked again and again.
    patience : float, seconds
        Longest wait, > 0.

    Raises
    ------
    AssertionError
        If it does not hold in time.

    Examples
    --------
    >>> wait_until(lambda: True)
    """
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("a thread that should have answered is stuck")
        time.sleep(0.0002)  # yields; the outcome does not depend on it


class Caller:
    """A call on a thread of its own, started at once. Leaving the ``with`` joins it.

    Parameters
    ----------
    function : callable
        Called without arguments.

    Attributes
    ----------
    outcome : object
        What it returned or raised; None until then.

    Examples
    --------
    >>> from cupy_turbo import Queue
    >>> queue = Queue()
    >>> call = Caller(queue.pop)
    >>> queue.push("a")
    >>> call.result()
    'a'
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self.outcome: Any = None
        self._function = function
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.outcome = self._function()
        except BaseException as error:  # KeyboardInterrupt is one of the things that tests send here
            self.outcome = error

    @property
    def done(self) -> bool:
        """Whether the call has ended."""
        return not self._thread.is_alive()

    def result(self, patience: float = PATIENCE) -> Any:
        """Return what the call returned, or raise here what it raised there; AssertionError if it is stuck."""
        self._thread.join(patience)
        assert self.done, "the call is stuck"
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *exc: object) -> None:
        if exc == (None, None, None):
            self._thread.join(PATIENCE)
            assert self.done, "the call is stuck"
