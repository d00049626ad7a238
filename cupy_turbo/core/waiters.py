"""Threads that sleep until a queue has what they need."""

from __future__ import annotations

import threading
import time


class Waiters:
    """A condition of a lock that counts who sleeps on it.

    Parameters
    ----------
    lock : threading.RLock
        Held by the caller of every method.

    Examples
    --------
    >>> lock = threading.RLock()
    >>> waiters = Waiters(lock)
    >>> with lock:
    ...     waiters.sleep(deadline_after(0)), waiters.count
    (False, 0)
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._condition = threading.Condition(lock)
        self.count = 0
        self.notify = self._condition.notify
        self.notify_all = self._condition.notify_all

    def sleep(self, deadline: float | None) -> bool:
        """Wait for a notification or the deadline; false, without waiting, if the deadline has passed.

        A caller looks again at what it waits for after true: it may have been woken by the deadline.
        """
        # Never a wait without a timeout: where a library has installed SIGINT with SA_RESTART, the kernel resumes such
        # a wait and Ctrl-C is lost; a timed one returns and Python raises KeyboardInterrupt.
        remaining = threading.TIMEOUT_MAX if deadline is None else deadline - time.monotonic()
        if remaining <= 0:
            return False
        remaining = min(remaining, threading.TIMEOUT_MAX)
        self.count += 1
        try:
            self._condition.wait(remaining)
        except BaseException:
            # Ctrl-C may come just after a notification, which then belongs to somebody else who sleeps.
            self._condition.notify()
            raise
        finally:
            self.count -= 1
        return True


def deadline_after(timeout: float | None) -> float | None:
    """Turn a timeout in seconds, >= 0, into a time of the monotonic clock; None stays None.

    Raises
    ------
    ValueError
        If it is negative or NaN.

    Examples
    --------
    >>> deadline_after(None) is None, deadline_after(3600) > time.monotonic()
    (True, True)
    >>> deadline_after(-1)
    Traceback (most recent call last):
    ValueError: timeout must be >= 0 seconds, or None to wait without a limit, got -1
    """
    if timeout is None:
        return None
    if not timeout >= 0:  # written so that NaN fails too
        raise ValueError(f"timeout must be >= 0 seconds, or None to wait without a limit, got {timeout!r}")
    return time.monotonic() + timeout
