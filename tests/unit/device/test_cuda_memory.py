"""Arrays of the `cuda` device without a GPU: what they are, how copies are queued, what is refused."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from cupy_turbo.core.dtypes import bfloat16
from cupy_turbo.core.stream import Stream
from cupy_turbo.device import open_device
from cupy_turbo.device.cuda import CudaDevice

F32 = np.dtype(np.float32)


def test_arrays_are_cupys_and_their_views_too(cuda: CudaDevice) -> None:
    cupy = pytest.importorskip("cupy")
    array = cuda.empty((4, 8), bfloat16)
    for view, shape in (
        (array, (4, 8)),
        (array[1:3], (2, 8)),
        (array.reshape(2, -1), (2, 16)),
        (array.view("u2"), (4, 8)),
    ):
        assert isinstance(view, cupy.ndarray)
        assert view.shape == shape
        assert cuda.owns(view)
    assert array.dtype == bfloat16
    assert cuda.empty((0, 3), F32).nbytes == 0
    with pytest.raises(ValueError, match="negative"):
        cuda.empty((-1,), F32)


def test_allocations_are_counted(cuda: CudaDevice) -> None:
    held = cuda.empty((4,), F32), cuda.pinned((8,), np.int64), cuda.upload(np.ones(2, F32))
    counts = cuda.statistics()
    assert (counts.device_allocations, counts.device_bytes) == (2, 24)
    assert (counts.pinned_allocations, counts.pinned_bytes) == (1, 64)
    del held


def test_copies_between_own_arrays_track_nothing(cuda: CudaDevice, stream: Stream, runtime: Any) -> None:
    device, pinned = cuda.empty((4, 4), F32), cuda.pinned((4, 4), F32)
    runtime.calls.clear()
    cuda.copy(device, pinned, stream=stream)
    cuda.copy(pinned[1:2].reshape(-1), device[2], stream=stream)
    cuda.copy(device[0], device[1], stream=stream)
    cuda.fill(device[3], 0x7F, stream=stream)
    assert runtime.calls == [
        ("memcpyAsync", device.data.ptr, pinned.ctypes.data, 64, 1, stream.handle),
        ("memcpyAsync", pinned.ctypes.data + 16, device.data.ptr + 32, 16, 2, stream.handle),
        ("memcpyAsync", device.data.ptr, device.data.ptr + 16, 16, 3, stream.handle),
        ("memsetAsync", device.data.ptr + 48, 0x7F, 16, stream.handle),
    ]


def test_an_array_of_somebody_else_is_kept_until_its_copy_is_done(
    cuda: CudaDevice, stream: Stream, runtime: Any
) -> None:
    device, foreign = cuda.empty((4,), F32), np.zeros(4, F32)
    runtime.pinned_elsewhere = {foreign.ctypes.data}
    references = sys.getrefcount(foreign)
    cuda.copy(device, foreign, stream=stream)
    assert sys.getrefcount(foreign) > references
    runtime.unfinished = {cuda._memory._borrowed[0][0].raw.ptr}
    other = np.zeros(4, F32)
    runtime.pinned_elsewhere = {other.ctypes.data}
    cuda.copy(device, other, stream=stream)
    assert sys.getrefcount(foreign) > references
    runtime.unfinished = set()
    cuda.copy(device, other, stream=stream)
    assert sys.getrefcount(foreign) == references


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda device: (device.empty(4, F32), np.zeros(4, F32)),
            TypeError,
            r"pageable .* device\.pinned\(shape, dtype\)",
        ),
        (
            lambda device: (device.empty(4, F32), device.pinned(3, F32)),
            ValueError,
            r"copy of 12 bytes \(3,\) float32 to 16",
        ),
        (lambda device: (device.empty((4, 4), F32)[:, 0], device.pinned(4, F32)), ValueError, "not C-contiguous"),
        (lambda device: (device.empty((4, 4), F32).T, device.pinned((4, 4), F32)), ValueError, "not C-contiguous"),
        (lambda device: (np.zeros(4, F32), np.zeros(4, F32)), TypeError, "two NumPy arrays"),
        (lambda device: (device.empty(4, F32), [0.0] * 4), TypeError, "copy source: .* got list"),
        (lambda device: (device.empty(4, F32), open_device("host").empty(4, F32)), TypeError, "copy source"),
    ],
)
def test_what_cannot_be_copied(
    cuda: CudaDevice, stream: Stream, runtime: Any, make: Any, error: type[Exception], message: str
) -> None:
    dst, src = make(cuda)
    with pytest.raises(error, match=message):
        cuda.copy(dst, src, stream=stream)
    assert "memcpyAsync" not in runtime.names()


def test_a_read_only_destination_is_refused(cuda: CudaDevice, stream: Stream) -> None:
    pinned = cuda.pinned(4, F32)
    pinned.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        cuda.copy(pinned, cuda.empty(4, F32), stream=stream)
    cuda.copy(cuda.empty(4, F32), pinned, stream=stream)
