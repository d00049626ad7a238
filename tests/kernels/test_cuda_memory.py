"""Arrays on a GPU: up, down, between streams, and what becomes of memory that nobody owns any more."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from cupy_turbo.core.dtypes import bfloat16, float16, float32
from cupy_turbo.core.errors import DeviceError
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream

LONG = 100_000_000  # cycles, about 50 ms
INT32 = np.dtype(np.int32)


@pytest.fixture(scope="module")
def device(cuda_device: Device) -> Device:
    return cuda_device


@pytest.mark.parametrize("dtype", [bfloat16, float16, float32, INT32, np.dtype(np.uint64)], ids=str)
def test_arrays_go_up_and_down(device: Device, dtype: np.dtype) -> None:
    values = np.arange(24).astype(dtype).reshape(2, 3, 4)
    array = device.upload(values[:, ::-1])
    assert array.dtype == dtype
    np.testing.assert_array_equal(device.fetch(array), values[:, ::-1])
    np.testing.assert_array_equal(array[1, 1:].get(), values[:, ::-1][1, 1:])
    assert device.fetch(device.empty((0, 4), dtype)).shape == (0, 4)


def test_get_waits_for_whatever_stream_writes_the_array(device: Device, stream: Stream, spin: Any) -> None:
    for read in (lambda a: a.get(), lambda a: a[:1].get(), lambda a: np.array([int(a[0])]), lambda a: device.fetch(a)):
        out = device.upload(np.zeros(2, INT32))
        spin(out, LONG, 5, stream)
        assert read(out)[0] == 5
    out = device.upload(np.zeros(2, INT32))
    spin(out, LONG, 5, stream)
    assert repr(out) == "array([5, 0], dtype=int32)"


def test_arrays_of_other_owners_can_be_copied(device: Device, stream: Stream) -> None:
    cupy, cupyx = pytest.importorskip("cupy"), pytest.importorskip("cupyx")
    pinned, pooled = cupyx.empty_pinned((8,), np.float32), cupy.zeros(8, np.float32)
    cupy.cuda.Device().synchronize()
    pinned[:] = 4
    device.copy(pooled, pinned, stream=stream)
    device.synchronize()
    assert cupy.asnumpy(pooled).tolist() == [4] * 8
    pooled[:] = 5
    device.synchronize()
    device.copy(pinned[4:], pooled[:4], stream=stream)
    stream.sync()
    assert pinned.tolist() == [4] * 4 + [5] * 4
    with pytest.raises(TypeError, match=r"device\.pinned"):
        device.copy(pooled, np.ones(8, np.float32), stream=stream)


def test_a_copy_does_not_wait_for_the_host(device: Device, stream: Stream, spin: Any) -> None:
    source, target = device.pinned(1 << 20, INT32), device.empty(1 << 20, INT32)
    source[:] = 1
    spin(target, LONG, 0, stream)
    device.copy(target, source, stream=stream)
    source[:] = 2  # read when the copy runs
    assert device.fetch(target)[-1] == 2


def test_dropped_memory_outlives_the_work_that_uses_it(device: Device, stream: Stream, spin: Any) -> None:
    results = []
    for value in range(8):
        out = device.upload(np.zeros(1 << 20, INT32))
        spin(out, LONG // 10, value + 100, stream)
        del out  # the next upload must not be given this memory while `spin` can still write to it
        fresh = device.upload(np.full(1 << 20, value, INT32))
        time.sleep(0.01)
        results.append(int(device.fetch(fresh)[0]))
    assert results == list(range(8))


def test_dropped_memory_comes_back(device: Device) -> None:
    before = device.memory()[0]
    array = device.empty(1 << 28, np.uint8)
    assert device.memory()[0] <= before - (1 << 28)
    del array
    assert device.memory()[0] >= before - (1 << 22)


def test_steady_work_allocates_nothing(device: Device, stream: Stream) -> None:
    host, array = device.pinned(1024, float32), device.empty(1024, float32)
    kernel = device.kernel("scale", TYPE="float")
    before, free = device.statistics(), device.memory()[0]
    for _ in range(200):
        device.copy(array, host, stream=stream)
        kernel(8, 128, (array, array, 1024, 1.0, 0), stream=stream)
        device.copy(host, array, stream=stream)
        device.fill(array, 0, stream=stream)
    stream.sync()
    assert device.statistics() == before
    assert device.memory()[0] == free


def test_out_of_memory_is_an_error_with_numbers(device: Device) -> None:
    total = device.memory()[1]
    with pytest.raises(DeviceError, match=rf"cannot allocate {2 * total:,} bytes: [\d,]+ of {total:,} are free"):
        device.empty(2 * total, np.uint8)
    assert device.upload(np.ones(1)).get()[0] == 1
