"""CUDA's ordering rules without CUDA: operations wait in streams, and a policy picks which of the allowed ones runs.

Nothing runs when it is queued. An operation runs at the latest when somebody must see its effect, after everything
that CUDA orders before it; so a missing wait is a wrong value for some policy and not a rare accident.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cupy_turbo.core.errors import DeviceError
from cupy_turbo.device.host_policies import Eager, Policy

if TYPE_CHECKING:
    from cupy_turbo.device.host_streams import HostStreamHandle
    from cupy_turbo.device.queued_work import Work

AddressRange = tuple[int, int]
"""Half-open range of addresses, bytes."""


class Failure:
    """An exception that an operation ended with, to be raised once to whoever waits for its effect."""

    __slots__ = ("delivered", "exception")

    def __init__(self, exception: Exception) -> None:
        self.exception = exception
        self.delivered = False


class Operation:
    """One thing for the device to do, in the order of its stream.

    Parameters
    ----------
    name : str
        What a timeline or an error calls it: a kernel's name, "copy", "fill", "record", "wait", …
    run : callable or None
        Does it. Holding its operands, it keeps them alive until it has run.
    reads, writes : sequence of (start, stop)
        Memory that it touches.
    after : Operation or None
        A record on any stream that it waits for.
    work : Work or None
        What the sanitizer calls it; also kept for the nodes of a graph.

    Attributes
    ----------
    stream : HostStreamHandle
        Where it was queued.
    number : int
        Its place in the order of queueing over all streams.
    is_done : bool
        It has run.
    time_ns : int
        When, on the host's monotonic clock.
    """

    __slots__ = ("after", "failure", "is_done", "name", "number", "reads", "run", "stream", "time_ns", "work", "writes")

    stream: HostStreamHandle
    number: int

    def __init__(
        self,
        name: str,
        run: Callable[[], None] | None = None,
        *,
        reads: Sequence[AddressRange] = (),
        writes: Sequence[AddressRange] = (),
        after: Operation | None = None,
        work: Work | None = None,
    ) -> None:
        self.name, self.run, self.reads, self.writes, self.after, self.work = name, run, reads, writes, after, work
        self.is_done = False
        self.failure: Failure | None = None
        self.time_ns = 0

    @property
    def is_ready(self) -> bool:
        """Whether nothing but its place in the stream holds it back."""
        return self.after is None or self.after.is_done

    def copy(self) -> Operation:
        """Return the same work, not yet queued."""
        return Operation(self.name, self.run, reads=self.reads, writes=self.writes, after=self.after, work=self.work)

    def __repr__(self) -> str:
        return f"Operation({self.name}, stream={self.stream.handle}, number={self.number})"


class Schedule:
    """The operations of one device that have been queued and have not run.

    Any thread may queue and wait. One of the waiting threads at a time is the runner; the lock is free while it runs
    an operation, so others go on queueing.

    Parameters
    ----------
    policy : Policy
        Picks the next operation.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        # Reentrant, because a finalizer may run while it is held. Never held around `run_until`.
        self.changed = threading.Condition()
        self._streams: dict[int, HostStreamHandle] = {}  # those with pending operations, by handle
        self._numbers = itertools.count()
        self._runner: int | None = None
        self._failures: list[Failure] = []

    def enqueue(self, stream: HostStreamHandle, operations: Sequence[Operation]) -> None:
        """Queue operations on a stream, or add them to what it captures."""
        with self.changed:
            if stream.capture is not None:
                stream.capture.extend(operations)
                return
            for operation in operations:
                operation.stream, operation.number = stream, next(self._numbers)
                stream.pending.append(operation)
                stream.latest = operation
            if stream.pending:
                self._streams[stream.handle] = stream
            last = stream.latest
        if isinstance(self.policy, Eager) and last is not None and self._runner != threading.get_ident():
            self.run_until(lambda: last.is_done)

    def run_until(self, is_reached: Callable[[], bool]) -> None:
        """Run operations, or let another thread run them, until `is_reached`."""
        with self.changed:
            while not is_reached():
                if self._runner is None:
                    self._run_one(self._ready())
                elif self._runner == threading.get_ident():
                    raise DeviceError("an operation of the host device waits for the device that runs it")
                else:
                    self.changed.wait(threading.TIMEOUT_MAX)  # one without a limit may not hear Ctrl-C

    def run_all(self) -> None:
        """Run everything that has been queued before this call, and raise the first failure nobody has seen."""
        with self.changed:
            last = [stream.pending[-1] for stream in self._streams.values()]
        self.run_until(lambda: all(operation.is_done for operation in last))
        with self.changed:
            unseen = next((failure for failure in self._failures if not failure.delivered), None)
        self.deliver(unseen)

    def advance(self, target: Operation) -> bool:
        """Run at most one operation that `target` needs; return whether `target` has run by now."""
        with self.changed:
            if not target.is_done and self._runner is None:
                needed = self._needed(target)
                self._run_one([head for head in self._ready() if head.number <= needed.get(head.stream.handle, -1)])
            return target.is_done

    def deliver(self, failure: Failure | None) -> None:
        """Raise a failure unless somebody has had it."""
        if failure is not None and not failure.delivered:
            failure.delivered = True
            raise failure.exception

    def pending(self) -> list[Operation]:
        """All operations that have not run, in the order of queueing."""
        with self.changed:
            every = (operation for stream in self._streams.values() for operation in stream.pending)
            return sorted(every, key=lambda operation: operation.number)

    def _ready(self) -> list[Operation]:
        heads = (stream.pending[0] for stream in self._streams.values())
        return sorted((head for head in heads if head.is_ready), key=lambda operation: operation.number)

    def _needed(self, target: Operation) -> dict[int, int]:
        """For each stream, the number of the last operation that must run before `target`."""
        needed: dict[int, int] = {}
        found = [target]
        while found:
            operation = found.pop()
            handle = operation.stream.handle
            if operation.is_done or needed.get(handle, -1) >= operation.number:
                continue
            done_before, needed[handle] = needed.get(handle, -1), operation.number
            found += [
                earlier.after
                for earlier in operation.stream.pending
                if done_before < earlier.number <= operation.number and earlier.after is not None
            ]
        return needed

    def _run_one(self, ready: Sequence[Operation]) -> None:
        """Let the policy choose and run its choice; the lock, held once by the caller, is free meanwhile."""
        # From here on a finalizer that waits for the device on this thread gets an error instead of a tangle.
        self._runner = threading.get_ident()
        try:
            operation = ready[self.policy.choose(ready)]
            self._run_unlocked(operation)
        finally:
            self._runner = None
            self.changed.notify_all()

    def _run_unlocked(self, operation: Operation) -> None:
        failure: Failure | None = None
        self.changed.release()
        try:
            if operation.run is not None:
                operation.run()
        except Exception as error:
            failure = Failure(error)
        except BaseException:  # Ctrl-C: it may or may not have run
            failure = Failure(DeviceError(f"{operation.name} was interrupted"))
            raise
        finally:
            self.changed.acquire()
            self._finish(operation, failure)

    def _finish(self, operation: Operation, failure: Failure | None) -> None:
        stream = operation.stream
        if len(stream.pending) == 1:
            del self._streams[stream.handle]
        stream.pending.popleft()
        if failure is not None:
            self._failures = [earlier for earlier in self._failures if not earlier.delivered] + [failure]
        inherited = operation.after.failure if operation.after is not None else None
        for candidate in (inherited, failure):  # its own failure is the better story
            if candidate is not None and not candidate.delivered:
                stream.failure = candidate
        if stream.failure is not None and stream.failure.delivered:
            stream.failure = None
        operation.failure, operation.time_ns, operation.is_done = stream.failure, time.perf_counter_ns(), True
        operation.run = operation.after = operation.work = None  # lets go of the operands and of older records
