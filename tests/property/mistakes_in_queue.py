"""Mistakes in Queue and Context, each put in by a function of a pytest.MonkeyPatch."""

from __future__ import annotations

from typing import Any

import pytest

from cupy_turbo.core import context
from cupy_turbo.core.queue import Queue
from cupy_turbo.core.waiters import Waiters
from tests.property import test_context

Patch = pytest.MonkeyPatch


def close_drops_the_items(patch: Patch) -> None:
    close = Queue.close
    patch.setattr(Queue, "close", lambda queue: (close(queue), queue._items.clear()))


def abort_loses_the_items(patch: Patch) -> None:
    abort = Queue.abort
    patch.setattr(Queue, "abort", lambda queue: abort(queue) and [])


def abort_keeps_the_items(patch: Patch) -> None:
    patch.setattr(Queue, "abort", lambda queue: (queue.close(), list(queue._items))[1])


def abort_does_not_close(patch: Patch) -> None:
    def abort(queue: Any) -> list[Any]:
        items = list(queue._items)
        queue._items.clear()
        return items

    patch.setattr(Queue, "abort", abort)


def last_in_first_out(patch: Patch) -> None:
    take = Queue._take

    def take_newest(queue: Any) -> Any:
        queue._items.rotate(1)
        item = take(queue)
        return item

    patch.setattr(Queue, "_take", take_newest)


def push_after_close_is_taken(patch: Patch) -> None:
    put = Queue._put

    def put_anyway(queue: Any, item: Any) -> None:
        queue._closed, closed = False, queue._closed
        try:
            put(queue, item)
        finally:
            queue._closed = closed

    patch.setattr(Queue, "_put", put_anyway)


def capacity_is_one_too_large(patch: Patch) -> None:
    init = Queue.__init__
    patch.setattr(Queue, "__init__", lambda queue, capacity=None: init(queue, capacity and capacity + 1))


def close_notifies_one(patch: Patch) -> None:
    init = Waiters.__init__

    def notify_one(waiters: Any, lock: Any) -> None:
        init(waiters, lock)
        waiters.notify_all = waiters.notify

    patch.setattr(Waiters, "__init__", notify_one)


def nobody_is_woken(which: str, patch: Patch) -> None:
    init = Queue.__init__

    def deafened(queue: Any, capacity: int | None = None) -> None:
        init(queue, capacity)
        getattr(queue, which).notify = lambda: None

    patch.setattr(Queue, "__init__", deafened)


def one_too_many_is_left(patch: Patch) -> None:
    leave = context.Context.__exit__

    def leave_two(entered: Any, *exc: object) -> None:
        leave(entered, *exc)
        if context._frames.stack:
            context._frames.stack.pop().deactivate()

    patch.setattr(context.Context, "__exit__", leave_two)


def null_allocator_masks(patch: Patch) -> None:
    def innermost() -> Any:
        for frame in reversed(context._frames.stack):
            if not frame.left:
                if frame.allocator is None:
                    break
                return frame.allocator
        raise ValueError

    patch.setitem(test_context.KINDS, "allocator", innermost)


def stack_is_of_the_process(patch: Patch) -> None:
    patch.setattr(context, "_frames", type("Frames", (), {"stack": []})())


def left_entry_stays_visible(patch: Patch) -> None:
    """An entry that is left while others lie above it is seen until those are left."""

    def leave(entered: Any, *exc: object) -> None:
        stack = context._frames.stack
        frame = next((frame for frame in reversed(stack) if frame.context is entered), None)
        if frame is None:
            raise RuntimeError(f"{entered!r} was left on a thread that did not enter it")
        if frame is stack[-1]:
            stack.pop().deactivate()

    patch.setattr(context.Context, "__exit__", leave)
