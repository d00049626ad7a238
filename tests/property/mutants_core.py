"""The mutants of Queue, Stream, Event, Context, the host's schedule and kernels, and the searches that find them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from cupy_turbo.core import context
from cupy_turbo.core.queue import Queue
from cupy_turbo.core.stream import Event, Stream
from cupy_turbo.device import open_device
from cupy_turbo.device.host import HostDevice
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
from tests.property import mistakes_in_queue as queue
from tests.property import mistakes_in_streams as streams
from tests.property.kernel_cases import WideHost
from tests.property.mutants import Mutant, few
from tests.property.test_context import Nesting
from tests.property.test_kernel_orders import check_orders

Patch = pytest.MonkeyPatch


@few(100)
@given(program=queue_programs())
def search_queue(program: QueueProgram) -> None:
    program.check(Queue)


def search_sleepers() -> None:
    check_queue(Queue, patience=0.3, max_examples=1)


@few(400)
@given(program=stream_programs(max_actions=20), policy=drawn_policies())
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


def _queue(name: str, put_in: Callable[[Patch], None]) -> Mutant:
    return Mutant(name, "test_queue.py::test_programs", search_queue, put_in)


def _sleepers(name: str, put_in: Callable[[Patch], None]) -> Mutant:
    return Mutant(name, "test_conformance.py::test_right_queues", search_sleepers, put_in)


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
    _queue("Queue.close drops the items", queue.close_drops_the_items),
    _queue("Queue.abort loses the items", queue.abort_loses_the_items),
    _queue("Queue.abort keeps the items", queue.abort_keeps_the_items),
    _queue("Queue.abort does not close", queue.abort_does_not_close),
    _queue("Queue is last in, first out", queue.last_in_first_out),
    _queue("Queue.push after close is taken", queue.push_after_close_is_taken),
    _queue("Queue holds one more than its capacity", queue.capacity_is_one_too_large),
    _sleepers("Queue.close wakes one sleeper of many", queue.close_notifies_one),
    _sleepers("Queue.push wakes nobody", partial(queue.nobody_is_woken, "_not_empty")),
    _sleepers("Queue.pop wakes no pusher", partial(queue.nobody_is_woken, "_not_full")),
    _stream("Stream.wait does nothing", partial(streams.does_nothing, Stream, "wait")),
    _stream("Stream.sync does nothing", partial(streams.does_nothing, Stream, "sync")),
    _stream("Event.record does nothing", partial(streams.does_nothing, Event, "record")),
    _stream("Event.sync does nothing", partial(streams.does_nothing, Event, "sync")),
    _stream("Device.synchronize does nothing", partial(streams.does_nothing, HostDevice, "synchronize")),
    _stream("a second Event.record keeps the old one", streams.second_record_is_ignored),
    _stream("Event.query is always true", streams.query_is_always_true),
    _stream_law("Event.query never lets the device advance", streams.query_never_advances),
    _stream("the policy ignores waits", streams.policy_ignores_waits),
    _stream("a stream runs its newest operation first", streams.newest_operation_first),
    _stream("a sync runs one operation", streams.sync_runs_one_operation),
    _stream("a copy reads its pinned source when queued", streams.pinned_source_is_read_when_queued),
    _stream("the last owner of a stream takes its work along", streams.last_owner_takes_its_work_along),
    _stream("a capture runs its calls", streams.capture_runs_at_once),
    _stream("a capture that fails runs its calls", streams.failed_capture_runs),
    _stream(
        "a graph leaves its last operation out", partial(streams.graph_changes_its_operations, lambda all_: all_[:-1])
    ),
    _stream("a graph runs in reverse", partial(streams.graph_changes_its_operations, lambda all_: all_[::-1])),
    _context("Context leaves one too many", queue.one_too_many_is_left),
    _context("a null allocator masks", queue.null_allocator_masks),
    _context("the stack is the process's, not the thread's", queue.stack_is_of_the_process),
    _context("an entry left early stays visible", queue.left_entry_stays_visible),
    _order("sample.cu: no barrier after a bin is chosen", "sample", streams.no_barrier("sample", 3)),
    _order(
        "gemm_float32.cu: no barrier before a tile is refilled", "gemm_float32", streams.no_barrier("gemm_float32", 1)
    ),
    _order("gemm_large.cu: no barrier between sums and their sum", "gemm_large", streams.no_barrier("gemm_large", 2)),
    _order(
        "attention_prefill.cu: no barrier at a tile", "attention_prefill", streams.no_barrier("attention_prefill", 0)
    ),
    _order(
        "attention_decode.cu: no barrier of the groups",
        "attention_decode",
        streams.no_barrier("attention_decode", 1),
        WideHost,
    ),
    _order(
        "gather_rows.cu: two blocks write one row",
        "gather_rows",
        partial(
            streams.kernel_is_changed,
            "gather_rows",
            0,
            "static_cast<long long>(blockIdx.x)",
            "static_cast<long long>(blockIdx.x / 2)",
        ),
    ),
]
