"""Memory of the host device is as far away from Python as a GPU's."""

from __future__ import annotations

import operator
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from cupy_turbo.core.errors import DeviceError
from cupy_turbo.core.stream import Stream
from cupy_turbo.device import open_device
from cupy_turbo.device.host import HostDevice


@pytest.fixture
def device() -> HostDevice:
    return HostDevice()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_floats_start_as_nan(device: HostDevice, dtype: type) -> None:
    assert np.isnan(device.empty((3, 4), dtype).get().astype(np.float64)).all()
    assert np.isnan(device.pinned(5, dtype).astype(np.float64)).all()


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.uint64])
def test_integers_start_as_7b(device: HostDevice, dtype: type) -> None:
    assert (device.empty(7, dtype).get().view(np.uint8) == 0x7B).all()


def test_allocations_are_aligned_and_counted(device: HostDevice) -> None:
    for size in (1, 3, 257):
        assert device.empty(size, np.uint8).pointer % 256 == 0
    device.pinned((2, 3), np.float32)
    device.upload(np.zeros(2, np.int64))
    statistics = device.statistics()
    assert (statistics.device_allocations, statistics.device_bytes) == (4, 1 + 3 + 257 + 16)
    assert (statistics.pinned_allocations, statistics.pinned_bytes) == (1, 24)


def test_views_share_memory(device: HostDevice) -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    array, stream = device.upload(values), Stream.create(device=device)
    device.fill(array[1][2], 0, stream=stream)
    values[1][2] = 0
    np.testing.assert_array_equal(array.get(), values)
    np.testing.assert_array_equal(array[-1, 1:, :2].get(), values[-1, 1:, :2])
    np.testing.assert_array_equal(array.reshape(6, 4)[5].get(), values.reshape(6, 4)[5])
    np.testing.assert_array_equal(array.reshape((-1,)).view(np.int32).get(), values.reshape(-1).view(np.int32))
    assert array[0, 1, 2].shape == ()
    assert array[0, 1, 2].get() == values[0, 1, 2]
    assert not array[:, 1:].flags.c_contiguous
    assert len(array) == 2


@pytest.mark.parametrize(
    "key", [slice(None, None, 2), slice(None, None, -1), [0, 1], None, np.array([0]), True, 0.0, "x"], ids=repr
)
def test_only_integers_and_plain_slices_index(device: HostDevice, key: object) -> None:
    with pytest.raises(TypeError, match="integers and slices of step 1"):
        device.empty((4, 4), np.float32)[key]


def test_a_reshape_never_copies(device: HostDevice) -> None:
    with pytest.raises(ValueError, match="not contiguous"):
        device.empty((4, 4), np.float32)[:, :2].reshape(8)


READS: list[Callable[..., object]] = [
    np.asarray, list, bool, float, int, operator.index, np.sum, np.sqrt, operator.neg, operator.not_,
    lambda a: a + 1, lambda a: 1 + a, lambda a: a * a, lambda a: np.float32(2) * a, lambda a: np.ones(1) + a,
    lambda a: a == a, lambda a: a != 0, lambda a: a < 1, lambda a: a @ a, lambda a: 1 in a, lambda a: a / 2,
    lambda a: operator.setitem(a, 0, 1), lambda a: operator.iadd(a, 1), lambda a: np.copyto(np.empty(1), a),
]  # fmt: skip


@pytest.mark.parametrize("read", READS)
def test_python_cannot_read_it(device: HostDevice, read: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match=r"\.get\(\) or device\.fetch"):
        read(device.empty(1, np.float32))


def test_copies_are_checked_before_they_are_queued(device: HostDevice) -> None:
    stream, array, other = Stream.create(device=device), device.empty(4, np.float32), open_device("host")
    read_only = np.zeros(4, np.float32)
    read_only.flags.writeable = False
    for dst, src, error, message in (
        (array, np.zeros(3, np.float32), ValueError, "dst has 16 bytes, src has 12"),
        (array, np.zeros(8, np.float32)[::2], ValueError, "src is not contiguous"),
        (np.zeros(4, np.float32), np.zeros(4, np.float32), TypeError, "at least one device array"),
        (read_only, array, ValueError, "read-only"),
        (array, [0.0] * 4, TypeError, "src is list"),
        (array, other.empty(4, np.float32), ValueError, "another device"),
    ):
        with pytest.raises(error, match=message):
            device.copy(dst, src, stream=stream)  # type: ignore[arg-type]
    for byte in (-1, 256):
        with pytest.raises(ValueError, match="0 to 255"):
            device.fill(array, byte, stream=stream)
    with pytest.raises(ValueError, match="another device"):
        device.fill(array, 0, stream=Stream.create(device=other))
    assert device.schedule.pending() == []


def test_a_closed_device_allocates_nothing(device: HostDevice) -> None:
    stream, array = Stream.create(device=device), device.empty(4, np.uint8)
    device.fill(array, 3, stream=stream)
    device.close()
    device.close()
    assert array.memory.tolist() == [3] * 4  # what was pending has run
    for call in (lambda: device.empty(1, np.uint8), lambda: device.pinned(1, np.uint8), device.synchronize):
        with pytest.raises(DeviceError, match="closed"):
            call()


def test_memory_is_plausible(device: HostDevice) -> None:
    free, total = device.memory()
    assert 0 < free <= total


def test_options_are_checked_by_name() -> None:
    with pytest.raises(ValueError, match="auto, host, cuda or cuda:N, got 'hosts'"):
        open_device("hosts")
    with pytest.raises(ValueError, match="no option 'polcy'; it has: policy, seed, workers, kernel_folders"):
        open_device("host", polcy="eager")
    with pytest.raises(ValueError, match="fifo, eager, random"):
        open_device("host", policy="lifo")
    with pytest.raises(ValueError, match="workers must be >= 1, got 0"):
        open_device("host", workers=0)
