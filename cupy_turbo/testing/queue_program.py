"""A program for a queue, with what each of its calls must give."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cupy_turbo.core import errors
from cupy_turbo.testing.stream_program import ProgramError

# What a program may do with ``queue``, by name; an item takes the place of ``{}``. Nothing that may wait for long.
_CALLS = {
    "push": "queue.push({}, timeout=0)",
    "try_push": "queue.try_push({})",
    "pop": "queue.pop(timeout=0)",
    "try_pop": "queue.try_pop()",
    "close": "queue.close()",
    "abort": "queue.abort()",
    "statistics": "(len(queue), queue.closed)",
}


@dataclass(frozen=True)
class QueueProgram:
    """Calls on one queue by one thread.

    Parameters
    ----------
    capacity : int or None
        Of the queue.
    calls : tuple of (str, object)
        An expression of ``queue``, and what it must give: a value, or the class of what it must raise.

    Examples
    --------
    >>> from cupy_turbo import Queue
    >>> program = write_queue_program(1, ["try_push", "try_push", "close", "try_pop", "try_pop"])
    >>> program.check(Queue)
    >>> print(program.as_python())
    from cupy_turbo import Queue
    from cupy_turbo.core.errors import QueueClosed, QueueFull
    from cupy_turbo.testing import outcome_of
    <BLANKLINE>
    queue = Queue(capacity=1)
    assert outcome_of(lambda: queue.try_push(0)) == None
    assert outcome_of(lambda: queue.try_push(1)) == QueueFull
    assert outcome_of(lambda: queue.close()) == None
    assert outcome_of(lambda: queue.try_pop()) == 0
    assert outcome_of(lambda: queue.try_pop()) == QueueClosed
    """

    capacity: int | None
    calls: tuple[tuple[str, Any], ...]

    def __len__(self) -> int:
        return len(self.calls)

    def check(self, factory: Callable[[int | None], Any]) -> None:
        """Make the calls on a new queue.

        Parameters
        ----------
        factory : callable
            Takes a capacity, None for no limit, and returns a queue.

        Raises
        ------
        ProgramError
            If a call gave something else; the message is a script that repeats it.
        """
        queue = factory(self.capacity)
        for number, (call, expected) in enumerate(self.calls):
            found = outcome_of(partial(eval, call, {"queue": queue}))
            if found != expected:
                reason = f"call {number + 1}, {call}, gave {_shown(found)} where {_shown(expected)} was due"
                raise ProgramError(f"{reason}\n\n{self.as_python()}", self)

    def as_python(self) -> str:
        """Write a script that does the same on this project's queue."""
        raised = sorted({expected.__name__ for _, expected in self.calls if isinstance(expected, type)})
        lines = ["from cupy_turbo import Queue"]
        lines += [f"from cupy_turbo.core.errors import {', '.join(raised)}"] if raised else []
        lines += ["from cupy_turbo.testing import outcome_of", "", f"queue = Queue(capacity={self.capacity})"]
        lines += [f"assert outcome_of(lambda: {call}) == {_shown(expected)}" for call, expected in self.calls]
        return "\n".join(lines)


def outcome_of(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or the class of the queue's exception that it raises.

    Examples
    --------
    >>> from cupy_turbo import Queue
    >>> outcome_of(Queue().try_pop)
    <class 'cupy_turbo.core.errors.QueueEmpty'>
    """
    try:
        return call()
    except (errors.QueueClosed, errors.QueueEmpty, errors.QueueFull) as error:
        return type(error)


def write_queue_program(capacity: int | None, names: Sequence[str]) -> QueueProgram:
    """Write the program of these calls, with what a deque with a lid would answer.

    Parameters
    ----------
    capacity : int or None
    names : sequence of str
        push, try_push, pop, try_pop, close, abort, statistics.

    Examples
    --------
    >>> write_queue_program(None, ["push", "abort"]).calls
    (('queue.push(0, timeout=0)', None), ('queue.abort()', [0]))
    """
    items: deque[int] = deque()
    is_closed, next_item = False, 0
    calls: list[tuple[str, Any]] = []
    for name in names:
        expected: Any = None
        if name in ("push", "try_push"):
            if is_closed:
                expected = errors.QueueClosed
            elif capacity is not None and len(items) >= capacity:
                expected = errors.QueueFull
            else:
                items.append(next_item)
        elif name in ("pop", "try_pop"):
            empty = errors.QueueClosed if is_closed else errors.QueueEmpty
            expected = items.popleft() if items else empty
        elif name == "abort":
            expected = list(items)
            items.clear()
        elif name == "statistics":
            expected = (len(items), is_closed)
        is_closed = is_closed or name in ("close", "abort")
        calls.append((_CALLS[name].format(next_item), expected))
        next_item += name in ("push", "try_push")
    return QueueProgram(capacity, tuple(calls))


def _shown(outcome: Any) -> str:
    return outcome.__name__ if isinstance(outcome, type) else repr(outcome)
