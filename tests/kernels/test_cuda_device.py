"""The `cuda` device on a GPU: that CUDA and CuPy do what tests/unit/device only sees being asked of them."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import numpy as np
import pytest

from cupy_turbo.core.context import Context
from cupy_turbo.core.dtypes import bfloat16, float16, float32
from cupy_turbo.core.event import Event
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.device import nvrtc

LONG = 100_000_000  # cycles, about 50 ms
INT32 = np.dtype(np.int32)
C_NAMES = {float32: "float", float16: "half", bfloat16: "bf16"}


@pytest.fixture(scope="module")
def device(cuda_device: Device) -> Device:
    return cuda_device


def test_facts(device: Device) -> None:
    assert device.compute_capability is not None
    assert device.compute_capability >= (8, 0)
    assert device.num_processors > 0
    free, total = device.memory()
    assert 0 < free <= total
    print(f"\n{device!r}: {device.compute_capability}, {device.num_processors} processors, {free:,} of {total:,} bytes")


@pytest.mark.parametrize("dtype", list(C_NAMES), ids=str)
def test_a_kernel_reads_every_kind_of_argument(device: Device, stream: Stream, dtype: np.dtype) -> None:
    x = np.linspace(-2, 2, 1000).astype(dtype)
    y = device.empty(1000, dtype)
    # A float64 for `by`, or 4 bytes for `offset`, would give another result.
    arguments = (y, device.upload(x), 999, 0.5, 3 << 32)
    device.kernel("scale", TYPE=C_NAMES[dtype])(math.ceil(1000 / 128), 128, arguments, stream=stream)
    expected = (np.float32(0.5) * x.astype(np.float32) + np.float32(3)).astype(dtype)
    np.testing.assert_array_equal(device.fetch(y)[:999], expected[:999])


def test_an_empty_grid_launches_nothing(device: Device, stream: Stream) -> None:
    y = device.upload(np.full(4, 7, np.float32))
    device.kernel("scale", TYPE="float")(0, 128, (y, y, 4, 2.0, 0), stream=stream)
    assert y.get().tolist() == [7, 7, 7, 7]


def test_a_cached_cubin_is_loaded_without_the_compiler(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    device.kernel("reverse")
    device.reload_kernels()
    monkeypatch.setattr(nvrtc, "compile", None)
    assert device.kernel("reverse").name == "reverse"


@pytest.mark.parametrize("count", [10, 12_000, 25_000])  # the last two are 47 and 98 KiB
def test_large_shared_memory(device: Device, stream: Stream, count: int) -> None:
    values = np.arange(count, dtype=np.float32)
    array = device.upload(values)
    device.kernel("reverse")(1, 256, (array, count), shared_bytes=4 * count, stream=stream)
    np.testing.assert_array_equal(array.get(), values[::-1])


def test_too_much_shared_memory_names_the_kernel(device: Device, stream: Stream) -> None:
    array = device.empty(4, float32)
    with pytest.raises(ValueError, match=r"reverse: shared_bytes 400000 with 0 static bytes exceeds the \d+ of"):
        device.kernel("reverse")(1, 256, (array, 4), shared_bytes=400_000, stream=stream)
    device.synchronize()


def test_streams_are_independent_and_events_order_them(device: Device, spin: Any) -> None:
    first, second = Stream.create(device=device), Stream.create(priority=-1, device=device)
    assert second.priority < first.priority
    out, copied, event = device.upload(np.zeros(1, INT32)), device.pinned(1, INT32), Event.create(device=device)
    second.wait(event)  # never recorded: no wait
    device.copy(copied, out, stream=second)
    second.sync()
    spin(out, LONG, 9, first)
    event.record(first)
    assert not event.query()
    device.copy(copied, out, stream=second)  # not ordered: overtakes
    second.sync()
    assert copied[0] == 0
    assert not event.query()
    second.wait(event)
    device.copy(copied, out, stream=second)
    second.sync()
    assert copied[0] == 9
    assert event.query()


def test_waiting_lets_other_python_threads_run(device: Device, stream: Stream, spin: Any) -> None:
    beats, stop, event = [0], threading.Event(), Event.create(device=device)

    def beat() -> None:
        while not stop.wait(0.001):
            beats[0] += 1

    thread = threading.Thread(target=beat)
    thread.start()
    for wait in (event.sync, stream.sync, device.synchronize):
        before = beats[0]
        spin(device.empty(1, INT32), LONG, 1, stream)
        event.record(stream)
        wait()
        assert beats[0] - before >= 5
    stop.set()
    thread.join()


def test_elapsed_time(device: Device, stream: Stream, spin: Any) -> None:
    start, stop = Event.create(timing=True, device=device), Event.create(timing=True, device=device)
    start.record(stream)
    stream.sync()
    with pytest.raises(ValueError, match="never recorded"):
        stop.elapsed_since(start)
    spin(device.empty(1, INT32), LONG, 1, stream)
    stop.record(stream)
    stop.sync()
    assert 10 < stop.elapsed_since(start) < 1000  # 100 million cycles at 0.1 to 10 GHz
    assert start.elapsed_since(stop) < 0


def test_plain_cupy_code_follows_the_context(device: Device, stream: Stream, spin: Any) -> None:
    cupy = pytest.importorskip("cupy")
    out = device.upload(np.zeros(4, INT32))
    before = cupy.cuda.get_current_stream().ptr
    with Context(stream=stream):
        assert cupy.cuda.get_current_stream().ptr == stream.handle
        spin(out, LONG, 3, stream)
        doubled = out * 2  # queued behind `spin`, without a wait
    stream.sync()
    assert cupy.cuda.get_current_stream().ptr == before
    assert cupy.asnumpy(doubled).tolist() == [6, 0, 0, 0]
    assert cupy.cuda.Stream.from_external(stream).ptr == stream.handle
    wide = device.upload(np.arange(4).astype(bfloat16)).astype(cupy.float32) + 1
    assert cupy.asnumpy(wide).tolist() == [1, 2, 3, 4]


def test_launches_are_cheap(device: Device, stream: Stream) -> None:
    """Prints what a launch costs the host; a claim about speed belongs to the benchmarks."""
    array, kernel = device.empty(1024, float32), device.kernel("scale", TYPE="float")
    arguments = (array, array, 1024, 1.0, 0)
    for _ in range(100):
        kernel(8, 128, arguments, stream=stream)
    stream.sync()
    start = time.perf_counter()
    for _ in range(1000):
        kernel(8, 128, arguments, stream=stream)
    launch = (time.perf_counter() - start) * 1e3
    stream.sync()
    host = device.pinned(1024, float32)
    start = time.perf_counter()
    for _ in range(1000):
        device.copy(array, host, stream=stream)
    copy = (time.perf_counter() - start) * 1e3
    stream.sync()
    print(f"\na launch with 5 arguments takes {launch:.1f} us of the host, a copy {copy:.1f} us")
