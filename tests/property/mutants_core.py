"""Mistakes in Queue, Stream, Event, Context, the host's schedule and kernels, and the searches that must find them."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from cupy_turbo.core import context
from cupy_turbo.core.queue import Queue
from cupy_turbo.core.stream import Event, Stream
from cupy_turbo.core.waiters import Waiters
from cupy_turbo.device import open_device
from cupy_turbo.device.host import HostDevice
from cupy_turbo.device.host_schedule import Operation, Schedule
from cupy_turbo.device.host_streams import HostEventHandle, HostGraph
from cupy_turbo.device.source import KernelLibrary, kernel_folder
from cupy_turbo.testing import (
    DrawnPolicy,
    QueueProgram,
    StreamProgram,
    check_queue,
    check_stream_device,
    drawn_policies,
    queue_programs,
    stream_programs,
)
from tests.property.kernel_cases import WideHost
from tests.property.mutants import Mutant, few
from tests.property.test_context import Nesting
from tests.property.test_kernel_orders import check_orders

Patch = pytest.MonkeyPatch


# Searches.


@few(100)
@given(program=queue_programs())
def search_queue(program: QueueProgram) -> None:
    program.check(Queue)


def search_sleepers() -> None:
    check_queue(Queue, patience=0.3, max_examples=1)


@few(400)
@given(program=stream_programs(max_actions=12), policy=drawn_policies())
def search_streams(program: StreamProgram, policy: DrawnPolicy) -> None:
    program.check(open_device("host", policy=policy, workers=1), policy)


def search_stream_laws() -> None:
    check_stream_device(open_device("host"), patience=0.3, max_examples=1)


def search_contexts() -> None:
    class Search(Nesting):
        """Every example starts and ends with an empty stack, whatever a mistake has left there."""

        device = open_device("host")

        def __init__(self) -> None:
            context._frames.stack.clear()
            super().__init__()

    try:
        run_state_machine_as_test(Search, settings=few(100))
    finally:
        context._frames.stack.clear()


def search_orders(kernel: str, host: type[HostDevice]) -> Callable[[], None]:
    @few(12)
    @given(seed=st.integers(0, 2**16), policy=drawn_policies())
    def search(seed: int, policy: DrawnPolicy) -> None:
        check_orders(kernel, host, seed, policy)

    return search


# Queue.


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


# Stream, Event and the host's schedule.


def does_nothing(owner: type, name: str, patch: Patch) -> None:
    patch.setattr(owner, name, lambda *args, **keywords: None)


def second_record_is_ignored(patch: Patch) -> None:
    record = HostEventHandle.record
    patch.setattr(HostEventHandle, "record", lambda event, stream: event._record or record(event, stream))


def query_is_always_true(patch: Patch) -> None:
    patch.setattr(HostEventHandle, "query", lambda event: True)


def query_never_advances(patch: Patch) -> None:
    patch.setattr(Schedule, "advance", lambda schedule, target: target.is_done)


def policy_ignores_waits(patch: Patch) -> None:
    patch.setattr(Operation, "is_ready", True)


def newest_operation_first(patch: Patch) -> None:
    enqueue = Schedule.enqueue

    def enqueue_in_front(schedule: Any, stream: Any, operations: Sequence[Operation]) -> None:
        enqueue(schedule, stream, operations)
        if stream.capture is None:
            stream.pending.rotate(1)

    patch.setattr(Schedule, "enqueue", enqueue_in_front)


def sync_runs_one_operation(patch: Patch) -> None:
    def run_one(schedule: Any, is_reached: Callable[[], bool]) -> None:
        with schedule.changed:
            ready = schedule._ready()
            if ready and not is_reached():
                schedule._run_one(ready)

    patch.setattr(Schedule, "run_until", run_one)


def pinned_source_is_read_when_queued(patch: Patch) -> None:
    copy = HostDevice.copy

    def copy_early(device: Any, dst: Any, src: Any, *, stream: Stream) -> None:
        copy(device, dst, src.copy() if isinstance(src, np.ndarray) else src, stream=stream)

    patch.setattr(HostDevice, "copy", copy_early)


def last_owner_takes_its_work_along(patch: Patch) -> None:
    def drop(stream: Any) -> None:
        impl = stream._impl
        if impl is not None and sys.getrefcount(impl) <= 4 + 3 * bool(impl.pending):
            impl.device.schedule._streams.pop(impl.handle, None)
            for operation in impl.pending:
                operation.is_done = True

    patch.setattr(Stream, "__del__", drop, raising=False)


def capture_runs_at_once(patch: Patch) -> None:
    enqueue = Schedule.enqueue

    def enqueue_both(schedule: Any, stream: Any, operations: Sequence[Operation]) -> None:
        enqueue(schedule, stream, operations)
        if stream.capture is not None:
            captured, stream.capture = stream.capture, None
            enqueue(schedule, stream, [operation.copy() for operation in operations])
            stream.capture = captured

    patch.setattr(Schedule, "enqueue", enqueue_both)


def graph_changes_its_operations(change: Callable[[list[Any]], list[Any]], patch: Patch) -> None:
    init = HostGraph.__init__
    patch.setattr(HostGraph, "__init__", lambda graph, operations, *rest: init(graph, change(operations), *rest))


def failed_capture_runs(patch: Patch) -> None:
    """What was captured before the exception is queued when the capture ends."""
    from cupy_turbo.device import host_streams

    inner = host_streams.HostCapture.of

    def of(capture: Any, stream: Any) -> Any:
        from contextlib import contextmanager

        @contextmanager
        def run_after() -> Any:
            with inner(capture, stream) as captured:
                kept = stream.capture
                try:
                    yield captured
                except BaseException:
                    stream.capture = None
                    stream.device.schedule.enqueue(stream, kept)
                    stream.capture = kept
                    raise

        return run_after()

    patch.setattr(host_streams.HostCapture, "of", of)


# Context.


def one_too_many_is_left(patch: Patch) -> None:
    leave = context.Context.__exit__

    def leave_two(entered: Any, *exc: object) -> None:
        leave(entered, *exc)
        if context._frames.stack:
            context._frames.stack.pop().deactivate()

    patch.setattr(context.Context, "__exit__", leave_two)


def null_allocator_masks(patch: Patch) -> None:
    from tests.property import test_context

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


# Kernels: a device finds the mutated copy before the project's own file.


def kernel_is_changed(name: str, number: int, before: str, after: str, patch: Patch) -> None:
    """Replace occurrence `number` of `before` in ``<name>.cu`` by `after`."""
    parts = (kernel_folder() / f"{name}.cu").read_text(encoding="utf-8").split(before)
    assert len(parts) > number + 1, f"{name}.cu has no {before!r} number {number}"
    text = before.join(parts[: number + 1]) + after + before.join(parts[number + 1 :])
    folder = Path(tempfile.mkdtemp(prefix="mutant-"))
    atexit.register(shutil.rmtree, folder)
    (folder / f"{name}.cu").write_text(text, encoding="utf-8")
    init = KernelLibrary.__init__

    def with_mutant(library: Any, extra_folders: Sequence[Path | str] = ()) -> None:
        init(library, [folder, *extra_folders])

    patch.setattr(KernelLibrary, "__init__", with_mutant)


def no_barrier(name: str, number: int) -> Callable[[Patch], None]:
    return partial(kernel_is_changed, name, number, "__syncthreads();", ";")


def _queue(name: str, put_in: Callable[[Patch], None]) -> Mutant:
    return Mutant(name, "test_queue.py::test_programs", search_queue, put_in)


def _sleepers(name: str, put_in: Callable[[Patch], None]) -> Mutant:
    return Mutant(name, "test_conformance.py::test_our_queue", search_sleepers, put_in)


def _stream(name: str, put_in: Callable[[Patch], None]) -> Mutant:
    return Mutant(name, "test_stream.py::test_ordered_programs_with_drawn_schedules", search_streams, put_in)


def _stream_law(name: str, put_in: Callable[[Patch], None]) -> Mutant:
    return Mutant(name, "test_conformance.py::test_our_devices", search_stream_laws, put_in)


def _context(name: str, put_in: Callable[[Patch], None]) -> Mutant:
    return Mutant(name, "test_context.py::test_every_nesting", search_contexts, put_in)


def _order(name: str, kernel: str, put_in: Callable[[Patch], None], host: type[HostDevice] = HostDevice) -> Mutant:
    suite = f"test_kernel_orders.py::test_no_order_changes_a_bit[{kernel}]"
    return Mutant(name, suite, search_orders(kernel, host), put_in)


CORE_MUTANTS = [
    _queue("Queue.close drops the items", close_drops_the_items),
    _queue("Queue.abort loses the items", abort_loses_the_items),
    _queue("Queue.abort keeps the items", abort_keeps_the_items),
    _queue("Queue.abort does not close", abort_does_not_close),
    _queue("Queue is last in, first out", last_in_first_out),
    _queue("Queue.push after close is taken", push_after_close_is_taken),
    _queue("Queue holds one more than its capacity", capacity_is_one_too_large),
    _sleepers("Queue.close wakes one sleeper of many", close_notifies_one),
    _sleepers("Queue.push wakes nobody", partial(nobody_is_woken, "_not_empty")),
    _sleepers("Queue.pop wakes no pusher", partial(nobody_is_woken, "_not_full")),
    _stream("Stream.wait does nothing", partial(does_nothing, Stream, "wait")),
    _stream("Stream.sync does nothing", partial(does_nothing, Stream, "sync")),
    _stream("Event.record does nothing", partial(does_nothing, Event, "record")),
    _stream("Event.sync does nothing", partial(does_nothing, Event, "sync")),
    _stream("Device.synchronize does nothing", partial(does_nothing, HostDevice, "synchronize")),
    _stream("a second Event.record keeps the old one", second_record_is_ignored),
    _stream("Event.query is always true", query_is_always_true),
    _stream_law("Event.query never lets the device advance", query_never_advances),
    _stream("the policy ignores waits", policy_ignores_waits),
    _stream("a stream runs its newest operation first", newest_operation_first),
    _stream("a sync runs one operation", sync_runs_one_operation),
    _stream("a copy reads its pinned source when queued", pinned_source_is_read_when_queued),
    _stream("the last owner of a stream takes its work along", last_owner_takes_its_work_along),
    _stream("a capture runs its calls", capture_runs_at_once),
    _stream("a capture that fails runs its calls", failed_capture_runs),
    _stream("a graph leaves its last operation out", partial(graph_changes_its_operations, lambda all_: all_[:-1])),
    _stream("a graph runs in reverse", partial(graph_changes_its_operations, lambda all_: all_[::-1])),
    _context("Context leaves one too many", one_too_many_is_left),
    _context("a null allocator masks", null_allocator_masks),
    _context("the stack is the process's, not the thread's", stack_is_of_the_process),
    _context("an entry left early stays visible", left_entry_stays_visible),
    _order("sample.cu: no barrier after a bin is chosen", "sample", no_barrier("sample", 3)),
    _order("gemm_float32.cu: no barrier before a tile is refilled", "gemm_float32", no_barrier("gemm_float32", 1)),
    _order("gemm_large.cu: no barrier between sums and their sum", "gemm_large", no_barrier("gemm_large", 2)),
    _order("attention_prefill.cu: no barrier at a tile", "attention_prefill", no_barrier("attention_prefill", 0)),
    _order(
        "attention_decode.cu: no barrier of the groups", "attention_decode", no_barrier("attention_decode", 1), WideHost
    ),
    _order(
        "gather_rows.cu: two blocks write one row",
        "gather_rows",
        partial(
            kernel_is_changed,
            "gather_rows",
            0,
            "static_cast<long long>(blockIdx.x)",
            "static_cast<long long>(blockIdx.x / 2)",
        ),
    ),
]
