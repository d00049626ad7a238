"""`Queue`: how results travel between threads; closing it ends the loops on both sides."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from cupy_turbo.core.errors import QueueClosed, QueueEmpty, QueueFull
from cupy_turbo.core.waiters import Waiters, deadline_after

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatistics:
    """What a queue holds, has moved and who waits for it, at one moment.

    ``pushed == popped + aborted + length`` always.

    Parameters
    ----------
    length : int
        Items in it.
    poppers_waiting, pushers_waiting : int
        Threads blocked in `Queue.pop` and in `Queue.push`.
    pushed, popped, aborted : int
        Items taken in, given out, and handed back by `Queue.abort`, since it was made.
    closed : bool
        Whether it takes no more items.

    Examples
    --------
    >>> queue = Queue()
    >>> queue.push("a")
    >>> queue.statistics().length, queue.statistics().poppers_waiting
    (1, 0)
    """

    length: int
    poppers_waiting: int
    pushers_waiting: int
    pushed: int
    popped: int
    aborted: int
    closed: bool


class Queue(Generic[T]):
    """First in, first out, for any number of pushing and popping threads.

    ``for item in queue`` pops until the queue is closed and drained.

    Parameters
    ----------
    capacity : int, optional
        Most items it holds, >= 1; `push` waits while it is full. None sets no limit.

    Raises
    ------
    ValueError
        If `capacity` is not a positive whole number.

    Notes
    -----
    Two endings: after `close` what is inside can still be popped; `abort` hands it back to its caller instead.
    Either wakes every thread that waits here. An empty queue is false, as any Python container: test for None by name.

    **Source:** TurboMind `engine/queue.h`; differs in that items queued before `close` are still delivered, a push
    after it raises, and there are timeouts, a capacity and `abort`.

    Examples
    --------
    >>> queue = Queue()
    >>> queue.push(1)
    >>> queue.push(2)
    >>> queue.close()
    >>> list(queue)
    [1, 2]
    >>> queue.pop()
    Traceback (most recent call last):
    cupy_turbo.core.errors.QueueClosed: the queue is closed and drained
    """

    def __init__(self, capacity: int | None = None) -> None:
        if capacity is not None and (isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1):
            raise ValueError(f"capacity must be a whole number >= 1, or None for no limit, got {capacity!r}")
        self.capacity = capacity
        self._items: deque[T] = deque()
        self._closed = False
        self._pushed = self._popped = self._aborted = 0
        # Re-entrant: the garbage collector may run, inside any of the sections below, a destructor that closes us.
        self._lock = threading.RLock()
        self._not_empty = Waiters(self._lock)
        self._not_full = Waiters(self._lock)

    def push(self, item: T, *, timeout: float | None = None) -> None:
        """Add an item at the back, waiting while the queue is full.

        Parameters
        ----------
        item : T
            May be anything, None included.
        timeout : float, seconds, optional
            Longest wait, >= 0. None waits until a `pop`, `close` or `abort`.

        Raises
        ------
        QueueFull
            If there was no room in time; the item was not taken.
        QueueClosed
            If the queue is closed or aborted, also while this call waits; the item was not taken.

        Examples
        --------
        >>> queue = Queue(capacity=1)
        >>> queue.push("a", timeout=0.5)
        >>> len(queue)
        1
        """
        deadline = deadline_after(timeout)
        with self._lock:
            while True:
                try:
                    return self._put(item)
                except QueueFull:
                    if not self._not_full.sleep(deadline):
                        raise

    def try_push(self, item: T) -> None:
        """Add an item at the back, or raise `QueueFull` at once; otherwise as `push`.

        Examples
        --------
        >>> queue = Queue()
        >>> queue.try_push("a")
        """
        with self._lock:
            self._put(item)

    def pop(self, *, timeout: float | None = None) -> T:
        """Remove and return the oldest item, waiting until there is one.

        Parameters
        ----------
        timeout : float, seconds, optional
            Longest wait, >= 0. None waits until a `push`, `close` or `abort`; Ctrl-C interrupts it.

        Returns
        -------
        T

        Raises
        ------
        QueueEmpty
            If nothing arrived in time; the queue is unchanged.
        QueueClosed
            If the queue is closed and drained, or was aborted.

        Examples
        --------
        >>> Queue().pop(timeout=0.01)
        Traceback (most recent call last):
        cupy_turbo.core.errors.QueueEmpty: the queue is empty
        """
        deadline = deadline_after(timeout)
        with self._lock:
            while True:
                try:
                    return self._take()
                except QueueEmpty:
                    if not self._not_empty.sleep(deadline):
                        raise

    def try_pop(self) -> T:
        """Remove and return the oldest item, or raise `QueueEmpty` at once; otherwise as `pop`.

        Examples
        --------
        >>> queue = Queue()
        >>> queue.push("a")
        >>> queue.try_pop()
        'a'
        """
        with self._lock:
            return self._take()

    def close(self) -> None:
        """Take no more items; what is inside can still be popped. Idempotent.

        Wakes every waiting pusher, and every popper that finds nothing, with `QueueClosed`.

        Examples
        --------
        >>> queue = Queue()
        >>> queue.close()
        >>> queue.closed
        True
        """
        with self._lock:
            self._closed = True
            self._not_empty.notify_all()
            self._not_full.notify_all()

    def abort(self) -> list[T]:
        """Take no more items and hand back what is inside. Idempotent.

        Wakes every waiting pusher and popper with `QueueClosed`.

        Returns
        -------
        list of T
            The items nobody popped, oldest first: now the caller's to finish. Empty the second time.

        Examples
        --------
        >>> queue = Queue()
        >>> queue.push("a")
        >>> queue.abort(), queue.abort()
        (['a'], [])
        """
        with self._lock:
            items = list(self._items)
            self._items.clear()
            self._aborted += len(items)
            self.close()
            return items

    @property
    def closed(self) -> bool:
        """Whether it takes no more items."""
        return self._closed

    def statistics(self) -> QueueStatistics:
        """Look at everything at one moment.

        Returns
        -------
        QueueStatistics

        Examples
        --------
        >>> Queue().statistics().pushed
        0
        """
        with self._lock:
            return QueueStatistics(
                length=len(self._items),
                poppers_waiting=self._not_empty.count,
                pushers_waiting=self._not_full.count,
                pushed=self._pushed,
                popped=self._popped,
                aborted=self._aborted,
                closed=self._closed,
            )

    def __iter__(self) -> Iterator[T]:
        while True:
            try:
                item = self.pop()
            except QueueClosed:
                return
            yield item

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"Queue({len(self._items)} items, capacity={self.capacity}{state})"

    # The non-blocking core, under the lock: the one place that says what push and pop mean.

    def _put(self, item: T) -> None:
        if self._closed:
            raise QueueClosed("push() on a closed queue")
        if self.capacity is not None and len(self._items) >= self.capacity:
            raise QueueFull(f"the queue holds its capacity of {self.capacity}")
        self._items.append(item)
        self._pushed += 1
        self._not_empty.notify()

    def _take(self) -> T:
        if not self._items:
            raise QueueClosed("the queue is closed and drained") if self._closed else QueueEmpty("the queue is empty")
        item = self._items.popleft()
        self._popped += 1
        self._not_full.notify()
        return item
