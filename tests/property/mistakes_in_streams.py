"""Mistakes in Stream, Event, the host's schedule and kernels, each put in by a function of a pytest.MonkeyPatch."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cupy_turbo.core.stream import Stream
from cupy_turbo.device.host import HostDevice
from cupy_turbo.device.host_schedule import Operation, Schedule
from cupy_turbo.device.host_streams import HostCapture, HostEventHandle, HostGraph
from cupy_turbo.device.source import KernelLibrary, kernel_folder

Patch = pytest.MonkeyPatch


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
    capture_of = HostCapture.of

    @contextmanager
    def of(capture: Any, stream: Any) -> Iterator[HostCapture]:
        with capture_of(capture, stream) as captured:
            try:
                yield captured
            except BaseException:
                operations, stream.capture = stream.capture, None
                stream.device.schedule.enqueue(stream, operations)
                stream.capture = operations
                raise

    patch.setattr(HostCapture, "of", of)


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
