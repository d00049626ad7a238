"""Queues that are not this project's, a right one and wrong ones, to hold against `check_queue`."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from cupy_turbo.core.errors import QueueClosed, QueueEmpty, QueueFull


class StandardQueue:
    """The contract of `cupy_turbo.Queue` on top of `queue.Queue`, whose lock and conditions it borrows."""

    def __init__(self, capacity: int | None = None) -> None:
        self.inner: queue.Queue[Any] = queue.Queue(capacity or 0)
        self.asleep = {"not_empty": 0, "not_full": 0}
        self.closed = False

    def push(self, item: Any, *, timeout: float | None = None) -> None:
        with self.inner.mutex:
            self.sleep("not_full", self.has_room, timeout)
            self.put(item)

    def try_push(self, item: Any) -> None:
        with self.inner.mutex:
            self.put(item)

    def pop(self, *, timeout: float | None = None) -> Any:
        with self.inner.mutex:
            self.sleep("not_empty", lambda: len(self) > 0, timeout)
            return self.take()

    def try_pop(self) -> Any:
        with self.inner.mutex:
            return self.take()

    def close(self) -> None:
        with self.inner.mutex:
            self.end()

    def abort(self) -> list[Any]:
        with self.inner.mutex:
            items = list(self.inner.queue)
            self.inner.queue.clear()
            self.end()
            return items

    def statistics(self) -> SimpleNamespace:
        with self.inner.mutex:
            poppers, pushers = self.asleep["not_empty"], self.asleep["not_full"]
            return SimpleNamespace(
                length=len(self), poppers_waiting=poppers, pushers_waiting=pushers, closed=self.closed
            )

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                item = self.pop()
            except QueueClosed:
                return
            yield item

    def __len__(self) -> int:
        return len(self.inner.queue)

    # Under the lock.

    def has_room(self) -> bool:
        return not self.inner.maxsize or len(self) < self.inner.maxsize

    def put(self, item: Any) -> None:
        if self.closed:
            raise QueueClosed
        if not self.has_room():
            raise QueueFull
        self.inner.queue.append(item)
        self.inner.not_empty.notify()

    def take(self) -> Any:
        if not self.inner.queue:
            raise QueueClosed if self.closed else QueueEmpty
        self.inner.not_full.notify()
        return self.inner.queue.popleft()

    def end(self) -> None:
        self.closed = True
        self.inner.not_empty.notify_all()
        self.inner.not_full.notify_all()

    def sleep(self, which: str, is_ready: Callable[[], bool], timeout: float | None) -> None:
        condition: threading.Condition = getattr(self.inner, which)
        deadline = time.monotonic() + (threading.TIMEOUT_MAX / 2 if timeout is None else timeout)
        self.asleep[which] += 1
        while not is_ready() and not self.closed and time.monotonic() < deadline:
            condition.wait(deadline - time.monotonic())
        self.asleep[which] -= 1


class ClosesEmpty(StandardQueue):
    def close(self) -> None:
        self.abort()


class Stack(StandardQueue):
    def take(self) -> Any:
        self.inner.queue.rotate(1)
        return super().take()


class HasNoBottom(StandardQueue):
    def has_room(self) -> bool:
        return True


class TakesWhenClosed(StandardQueue):
    def put(self, item: Any) -> None:
        self.inner.queue.append(item)
        self.inner.not_empty.notify()


class LosesAborted(StandardQueue):
    def abort(self) -> list[Any]:
        super().abort()
        return []


class WakesOne(StandardQueue):
    def end(self) -> None:
        self.closed = True
        self.inner.not_empty.notify()
        self.inner.not_full.notify_all()


class ForgetsPushers(StandardQueue):
    def end(self) -> None:
        self.closed = True
        self.inner.not_empty.notify_all()


class SkipsNone(StandardQueue):
    def take(self) -> Any:
        item = super().take()
        return item if item is not None else self.take()


class StopsEarly(StandardQueue):
    def __iter__(self) -> Iterator[Any]:
        while len(self):
            yield self.pop()


class IgnoresTimeouts(StandardQueue):
    def pop(self, *, timeout: float | None = None) -> Any:
        try:
            return super().pop(timeout=timeout)
        except QueueEmpty:
            return None


WRONG_QUEUES = {
    ClosesEmpty: "what was pushed before close is still popped",
    Stack: "items leave in the order in which they came",
    HasNoBottom: "without room push raises QueueFull",
    TakesWhenClosed: "a closed or aborted queue takes nothing",
    LosesAborted: "abort hands back what is inside",
    WakesOne: "close and abort wake every popper",
    ForgetsPushers: "close and abort wake every pusher",
    SkipsNone: "None and every other false value is an item",
    StopsEarly: "iteration gives every item",
    IgnoresTimeouts: "without items pop raises QueueEmpty",
}
"""With the law that each breaks first."""
