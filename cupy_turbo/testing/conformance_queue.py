"""`check_queue`: what a queue must do to take the place of this project's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

from cupy_turbo.core.errors import QueueClosed, QueueEmpty, QueueFull
from cupy_turbo.testing.conformance import check_laws, search
from cupy_turbo.testing.queue_program import QueueProgram, outcome_of
from cupy_turbo.testing.threads import PATIENCE, Caller, wait_until

Factory = Callable[[int | None], Any]


class _Maker:
    """The factory under test, how patient to be with it, and how hard to search."""

    def __init__(self, factory: Factory, patience: float, max_examples: int) -> None:
        self.factory, self.patience, self.max_examples = factory, patience, max_examples
        self.made: list[Any] = []

    def __call__(self, *items: Any, capacity: int | None = None) -> Any:
        queue = self.factory(capacity)
        self.made.append(queue)
        for item in items:
            queue.push(item)
        return queue

    def sleepers(self, queue: Any, kind: str, functions: list[Callable[[], Any]]) -> list[Caller]:
        """Start calls that must all wait."""
        calls = [Caller(function) for function in functions]
        wait_until(lambda: getattr(queue.statistics(), kind) == len(calls), self.patience)
        return calls

    def outcomes(self, calls: list[Caller]) -> list[Any]:
        return [outcome_of(partial(call.result, self.patience)) for call in calls]


def check_queue(factory: Factory, *, patience: float = PATIENCE, max_examples: int = 100) -> None:
    """Hold a queue against the laws of `cupy_turbo.Queue`.

    Parameters
    ----------
    factory : callable
        Takes a capacity, None for no limit, and returns a new queue with the methods of `Queue`. It raises this
        project's `QueueClosed`, `QueueEmpty` and `QueueFull`, and has the fields `length`, `poppers_waiting`,
        `pushers_waiting` and `closed` in what its `statistics()` returns.
    patience : float, seconds
        After which a call that should have returned counts as stuck.
    max_examples : int
        Random programs to try, >= 1.

    Raises
    ------
    ConformanceError
        Names the first law that is broken.

    Notes
    -----
    Needs the extra ``test``.

    Examples
    --------
    >>> from cupy_turbo import Queue
    >>> check_queue(Queue, max_examples=10)
    >>> class Stack(Queue):
    ...     def try_pop(self):
    ...         return self._items.pop()
    ...     pop = lambda self, *, timeout=None: self.try_pop()
    >>> check_queue(Stack)
    Traceback (most recent call last):
    cupy_turbo.testing.conformance.ConformanceError: Stack breaks the law: items leave in the order in which they came
    [2, 1, 0] where [0, 1, 2] was due
    """
    maker = _Maker(factory, patience, max_examples)
    try:
        check_laws(getattr(factory, "__name__", repr(factory)), _LAWS, maker)
    finally:
        for queue in maker.made:  # let go of whoever is stuck
            with suppress(Exception):
                queue.abort()


def _same(found: Any, due: Any) -> None:
    assert found == due, f"{found} where {due} was due"


def _order(make: _Maker) -> None:
    queue = make(0, 1, 2)
    _same([queue.pop(timeout=0), queue.try_pop(), queue.pop()], [0, 1, 2])


def _anything(make: _Maker) -> None:
    queue = make(None, 0, "")
    _same([queue.try_pop() for _ in range(3)], [None, 0, ""])


def _drain(make: _Maker) -> None:
    queue = make(0, 1)
    queue.close()
    _same([outcome_of(queue.try_pop) for _ in range(3)], [0, 1, QueueClosed])
    _same(outcome_of(queue.pop), QueueClosed)


def _refusal(make: _Maker) -> None:
    for end in ("close", "abort"):
        queue = make()
        getattr(queue, end)()
        _same([outcome_of(partial(push, 1)) for push in (queue.push, queue.try_push)], [QueueClosed] * 2)
        _same((len(queue), queue.closed), (0, True))


def _hand_back(make: _Maker) -> None:
    queue = make(0, 1, 2)
    _same(queue.pop(), 0)
    _same(list(queue.abort()), [1, 2])
    _same(outcome_of(queue.try_pop), QueueClosed)


def _again(make: _Maker) -> None:
    queue = make(0)
    queue.close()
    queue.close()
    _same([list(queue.abort()), list(queue.abort())], [[0], []])
    queue.close()


def _iteration(make: _Maker) -> None:
    queue = make(0, 1)
    with Caller(lambda: list(queue)) as call:
        queue.push(2)
        queue.close()
        _same(call.result(make.patience), [0, 1, 2])


def _limits(make: _Maker) -> None:
    queue = make(0, 1, capacity=2)
    full = [outcome_of(lambda: queue.push(9, timeout=0.01)), outcome_of(lambda: queue.try_push(9))]
    _same([*full, len(queue)], [QueueFull, QueueFull, 2])
    _same([queue.try_pop(), queue.try_pop()], [0, 1])
    _same([outcome_of(lambda: queue.pop(timeout=0.01)), outcome_of(queue.try_pop)], [QueueEmpty] * 2)
    queue.push(3, timeout=0)
    _same(queue.pop(timeout=0), 3)


def _popper_sleeps(make: _Maker) -> None:
    queue = make()
    calls = make.sleepers(queue, "poppers_waiting", [queue.pop] * 3)
    for item in range(3):
        queue.push(item)
    _same(sorted(map(str, make.outcomes(calls))), ["0", "1", "2"])


def _pusher_sleeps(make: _Maker) -> None:
    queue = make(0, capacity=1)
    calls = make.sleepers(queue, "pushers_waiting", [partial(queue.push, item) for item in (1, 2)])
    _same(len(queue), 1)
    _same(sorted([queue.pop(timeout=make.patience) for _ in range(3)]), [0, 1, 2])
    _same(make.outcomes(calls), [None, None])


def _wake_poppers(make: _Maker) -> None:
    for end in ("close", "abort"):
        queue = make()
        calls = make.sleepers(queue, "poppers_waiting", [queue.pop] * 3)
        getattr(queue, end)()
        _same(make.outcomes(calls), [QueueClosed] * 3)


def _wake_pushers(make: _Maker) -> None:
    for end, kept in (("close", [0]), ("abort", [])):
        queue = make(0, capacity=1)
        calls = make.sleepers(queue, "pushers_waiting", [partial(queue.push, 1)] * 3)
        getattr(queue, end)()
        _same(make.outcomes(calls), [QueueClosed] * 3)
        _same(list(queue), kept)


def _programs(make: _Maker) -> None:
    from cupy_turbo.testing.strategies import queue_programs

    def test(program: QueueProgram) -> None:
        program.check(make.factory)

    search(test, make.max_examples, program=queue_programs())


def _crowd(make: _Maker) -> None:
    for capacity, end in ((None, "close"), (1, "close"), (2, "abort")):
        queue = make(capacity=capacity)
        _check_crowd(make, queue, end)


def _check_crowd(make: _Maker, queue: Any, end: str) -> None:
    def produce(producer: int) -> int:
        """Push until refused; return how many were taken."""
        for number in range(40):
            if outcome_of(partial(queue.push, (producer, number))) is QueueClosed:
                return number
        return 40

    consumers = [Caller(lambda: list(queue)) for _ in range(3)]
    producers = [Caller(partial(produce, p)) for p in range(3)]
    handed_back = list(queue.abort()) if end == "abort" else []
    taken = [producer.result(make.patience) for producer in producers]
    queue.close()
    piles = [*(consumer.result(make.patience) for consumer in consumers), handed_back]
    _same(
        Counter(chain.from_iterable(piles)),
        Counter((p, number) for p, count in enumerate(taken) for number in range(count)),
    )
    for pile in piles:
        for p in range(3):
            numbers = [number for producer, number in pile if producer == p]
            _same(numbers, sorted(numbers))


_LAWS = {
    "items leave in the order in which they came": _order,
    "None and every other false value is an item": _anything,
    "what was pushed before close is still popped, and then QueueClosed is raised": _drain,
    "a closed or aborted queue takes nothing: push raises QueueClosed": _refusal,
    "abort hands back what is inside, oldest first, and nothing of it can be popped": _hand_back,
    "close and abort may be called again, in any order": _again,
    "iteration gives every item and ends when the queue is closed and drained": _iteration,
    "without room push raises QueueFull in time, without items pop raises QueueEmpty, and nothing changes": _limits,
    "every push wakes a popper that waits": _popper_sleeps,
    "a queue never holds more than its capacity, and every pop wakes a pusher that waits": _pusher_sleeps,
    "close and abort wake every popper with QueueClosed": _wake_poppers,
    "close and abort wake every pusher with QueueClosed, and take none of their items": _wake_pushers,
    "on one thread it answers every call as a deque with a lid does": _programs,
    "among many threads no item is lost or doubled, and each producer's items keep their order": _crowd,
}
