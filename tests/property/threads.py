"""Threads whose calls can be waited for, so that no test sleeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

# Seconds after which a thread that should have answered counts as stuck: long, for the machine may be busy.
PATIENCE = 20.0


def wait_until(condition: Callable[[], bool]) -> None:
    """Return once the condition holds; fail if it does not for `PATIENCE` seconds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("a thread that should have answered is stuck")
        time.sleep(0.0002)  # yields; the outcome does not depend on it


class Caller:
    """A call on a thread of its own, started at once. Leaving the ``with`` joins it."""

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

    def result(self) -> Any:
        """What the call returned, or its exception raised here."""
        self._thread.join(PATIENCE)
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
