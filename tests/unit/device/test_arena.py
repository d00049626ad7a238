"""An arena crosses the bus in one copy, and its views lie where both sides expect them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from cupy_turbo.core.stream import Stream
from cupy_turbo.device.arena import Arena
from cupy_turbo.device.host import HostDevice

FIELDS = {
    "ids": ((5,), np.dtype(np.int32)),
    "none": ((0, 3), np.dtype(np.float32)),
    "seed": ((3,), np.dtype(np.uint64)),
    "table": ((7, 9), np.dtype(ml_dtypes.bfloat16)),
}


@pytest.fixture
def device() -> HostDevice:
    return HostDevice()


def test_fields_are_typed_and_aligned(device: HostDevice) -> None:
    arena = Arena(device, FIELDS)
    assert arena.nbytes % 256 == 0
    for name, (shape, dtype) in FIELDS.items():
        assert arena.host[name].shape == arena.device[name].shape == shape
        assert arena.host[name].dtype == arena.device[name].dtype == dtype
        assert arena.host[name].ctypes.data % 256 == 0
        assert arena.device[name].pointer % 256 == 0  # type: ignore[attr-defined]
    statistics = device.statistics()
    assert (statistics.device_allocations, statistics.pinned_allocations) == (1, 1)


def test_one_copy_each_way(device: HostDevice) -> None:
    arena, stream = Arena(device, FIELDS), Stream.create(device=device)
    for number, field in enumerate(arena.host.values()):
        field[...] = number + 1
    arena.upload(stream)
    assert [operation.name for operation in device.schedule.pending()] == ["copy"]
    for number, (name, field) in enumerate(arena.host.items()):
        assert (arena.device[name].get() == number + 1).all()
        field[...] = 0
    arena.download(stream)
    stream.sync()
    for number, field in enumerate(arena.host.values()):
        assert (field == number + 1).all()


def test_an_empty_arena_is_allowed(device: HostDevice) -> None:
    arena, stream = Arena(device, {}), Stream.create(device=device)
    arena.upload(stream)
    stream.sync()
    assert arena.nbytes == 0
