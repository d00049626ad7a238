"""What each call of a Queue does; the laws that hold for every order of calls are in tests/property."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from cupy_turbo.core.errors import QueueClosed, QueueEmpty, QueueFull
from cupy_turbo.core.queue import Queue
from cupy_turbo.testing.threads import Caller, wait_until


def test_first_in_first_out() -> None:
    queue: Queue[int] = Queue()
    for item in range(5):
        queue.push(item)
    assert [queue.pop() for _ in range(5)] == [0, 1, 2, 3, 4]


def test_any_object_is_an_item() -> None:
    queue: Queue[object] = Queue()
    items = [None, False, [], QueueEmpty("as an item")]
    for item in items:
        queue.push(item)
    assert [queue.pop() for _ in items] == items


def test_try_pop_and_try_push_do_not_wait() -> None:
    queue: Queue[int] = Queue(capacity=1)
    with pytest.raises(QueueEmpty):
        queue.try_pop()
    queue.try_push(1)
    with pytest.raises(QueueFull, match="capacity of 1"):
        queue.try_push(2)
    assert queue.try_pop() == 1


def test_close_lets_what_is_inside_be_popped() -> None:
    queue: Queue[int] = Queue()
    queue.push(1)
    queue.close()
    queue.close()
    assert queue.closed
    with pytest.raises(QueueClosed):
        queue.push(2)
    with pytest.raises(QueueClosed):
        queue.try_push(2)
    assert queue.pop() == 1
    with pytest.raises(QueueClosed):
        queue.pop(timeout=0)
    with pytest.raises(QueueClosed):
        queue.try_pop()


def test_abort_hands_back_what_is_inside() -> None:
    queue: Queue[int] = Queue()
    queue.push(1)
    queue.push(2)
    assert queue.abort() == [1, 2]
    assert queue.abort() == []
    assert queue.closed
    queue.close()
    with pytest.raises(QueueClosed):
        queue.pop(timeout=0)


def test_abort_after_close_hands_back_the_rest() -> None:
    queue: Queue[int] = Queue()
    queue.push(1)
    queue.push(2)
    queue.close()
    assert queue.pop() == 1
    assert queue.abort() == [2]


def test_a_loop_ends_when_closed_and_drained() -> None:
    queue: Queue[int] = Queue()
    with Caller(lambda: list(queue)) as consumer:
        queue.push(1)
        queue.push(2)
        wait_until(lambda: queue.statistics().poppers_waiting == 1)
        queue.close()
    assert consumer.result() == [1, 2]


def test_an_exception_in_the_loop_is_not_taken_for_the_end() -> None:
    queue: Queue[int] = Queue()
    queue.push(1)

    def loop() -> None:
        for _ in queue:
            raise QueueClosed("from the body")

    with pytest.raises(QueueClosed, match="from the body"):
        loop()


@pytest.mark.parametrize("timeout", [0, 0.0, 0.02])
def test_timeouts_run_out(timeout: float) -> None:
    queue: Queue[int] = Queue(capacity=1)
    start = time.monotonic()
    with pytest.raises(QueueEmpty):
        queue.pop(timeout=timeout)
    queue.push(1)
    with pytest.raises(QueueFull):
        queue.push(2, timeout=timeout)
    assert time.monotonic() - start >= 2 * timeout
    assert queue.abort() == [1]


@pytest.mark.parametrize("timeout", [math.inf, 1e12, 30])
def test_long_timeouts_wait(timeout: float) -> None:
    queue: Queue[int] = Queue()
    with Caller(lambda: queue.pop(timeout=timeout)) as popper:
        wait_until(lambda: queue.statistics().poppers_waiting == 1)
        queue.push(7)
    assert popper.result() == 7


@pytest.mark.parametrize("timeout", [-1, -0.001, math.nan])
def test_impossible_timeouts_are_refused_before_anything_happens(timeout: float) -> None:
    queue: Queue[int] = Queue()
    with pytest.raises(ValueError, match="timeout must be >= 0"):
        queue.push(1, timeout=timeout)
    with pytest.raises(ValueError, match="timeout must be >= 0"):
        queue.pop(timeout=timeout)
    assert len(queue) == 0


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True, "3", math.inf])
def test_impossible_capacities_are_refused(capacity: object) -> None:
    with pytest.raises(ValueError, match="capacity must be a whole number >= 1"):
        Queue(capacity)  # type: ignore[arg-type]


def test_statistics_are_a_frozen_moment() -> None:
    queue: Queue[int] = Queue()
    for item in range(4):
        queue.push(item)
    queue.pop()
    seen = queue.statistics()
    queue.abort()
    assert dataclasses.asdict(seen) == {
        "length": 3,
        "poppers_waiting": 0,
        "pushers_waiting": 0,
        "pushed": 4,
        "popped": 1,
        "aborted": 0,
        "closed": False,
    }
    assert dataclasses.replace(seen, length=0, aborted=3, closed=True) == queue.statistics()
    with pytest.raises(dataclasses.FrozenInstanceError):
        seen.length = 5  # type: ignore[misc]


def test_repr_and_len_are_one_honest_line() -> None:
    queue: Queue[int] = Queue(capacity=3)
    queue.push(1)
    assert (len(queue), repr(queue)) == (1, "Queue(1 items, capacity=3)")
    queue.close()
    assert repr(queue) == "Queue(1 items, capacity=3, closed)"


def interrupt_when(condition: Callable[[], bool]) -> None:
    wait_until(condition)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(params=[True, False], ids=["interrupting", "restarting"])
def _sigint_mode(request: pytest.FixtureRequest) -> Iterator[None]:
    """A library may install SIGINT with SA_RESTART, and the kernel then resumes a wait that has no timeout."""
    signal.siginterrupt(signal.SIGINT, request.param)
    yield
    signal.siginterrupt(signal.SIGINT, True)


@pytest.mark.usefixtures("_sigint_mode")
@pytest.mark.parametrize("timeout", [None, 60])
def test_ctrl_c_interrupts_a_pop_on_the_main_thread(timeout: float | None) -> None:
    assert threading.current_thread() is threading.main_thread()
    queue: Queue[int] = Queue()
    interrupt = Caller(lambda: interrupt_when(lambda: queue.statistics().poppers_waiting == 1))
    with interrupt, pytest.raises(KeyboardInterrupt):
        queue.pop(timeout=timeout)
    assert queue.statistics().poppers_waiting == 0
    queue.push(1)
    assert queue.pop() == 1


@pytest.mark.usefixtures("_sigint_mode")
def test_ctrl_c_interrupts_a_push_on_the_main_thread() -> None:
    queue: Queue[int] = Queue(capacity=1)
    queue.push(1)
    interrupt = Caller(lambda: interrupt_when(lambda: queue.statistics().pushers_waiting == 1))
    with interrupt, pytest.raises(KeyboardInterrupt):
        queue.push(2)
    assert queue.abort() == [1]
    assert queue.statistics().pushers_waiting == 0


def test_an_interrupted_popper_passes_its_wake_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C may come after the notification for an item and before the item was taken: another sleeper must get it."""
    queue: Queue[int] = Queue()
    condition = queue._not_empty._condition
    real_wait, first_has_woken = condition.wait, threading.Event()

    def wait(timeout: float | None = None) -> bool:
        woken = real_wait(timeout)
        if not first_has_woken.is_set():
            first_has_woken.set()
            raise KeyboardInterrupt
        return woken

    monkeypatch.setattr(condition, "wait", wait)
    with Caller(queue.pop) as first, Caller(queue.pop) as second:
        wait_until(lambda: queue.statistics().poppers_waiting == 2)
        queue.push(1)
        wait_until(lambda: first.done and second.done)
    outcomes = [first.outcome, second.outcome]
    assert 1 in outcomes
    assert any(isinstance(outcome, KeyboardInterrupt) for outcome in outcomes)


def test_a_destructor_may_close_the_queue_that_is_in_use() -> None:
    """The collector can run anywhere, also under the queue's own lock; a thread must not wait for itself."""

    class ClosesOnDrop:
        def __init__(self, queue: Queue[object]) -> None:
            self.queue = queue

        def __del__(self) -> None:
            self.queue.close()

    queue: Queue[object] = Queue()

    def drop_under_the_lock() -> None:
        owner = ClosesOnDrop(queue)
        with queue._lock:
            del owner

    with Caller(drop_under_the_lock) as dropper:
        wait_until(lambda: dropper.done)
    assert queue.closed
