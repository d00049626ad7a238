"""Graph capture on a GPU: what is captured, what may go on beside it, and what an exception leaves behind."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from cupy_turbo.core.errors import DeviceError
from cupy_turbo.core.event import Event
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream

F32 = np.dtype(np.float32)
SIZE = 1024


@pytest.fixture(scope="module")
def device(cuda_device: Device) -> Device:
    return cuda_device


@pytest.fixture
def stream(device: Device) -> Stream:
    return Stream.create(device=device)


@pytest.fixture(scope="module")
def scale(device: Device) -> Any:
    kernel = device.kernel("scale", TYPE="float")

    def launch(y: Any, x: Any, by: float, on: Stream) -> None:
        kernel(SIZE // 128, 128, (y, x, SIZE, by, 0), stream=on)

    return launch


def test_a_graph_replays_copies_kernels_and_fills(device: Device, stream: Stream, scale: Any) -> None:
    inputs, outputs = device.pinned(SIZE, F32), device.pinned(SIZE, F32)
    x, y = device.empty(SIZE, F32), device.upload(np.ones(SIZE, F32))
    with device.capture(stream) as captured:
        device.copy(x, inputs, stream=stream)
        scale(x, x, 3.0, stream)
        device.copy(outputs, x, stream=stream)
        device.fill(y, 0, stream=stream)
    assert y.get()[0] == 1  # captured, not run
    other = Stream.create(device=device)
    for value, on in ((1, stream), (2, stream), (5, other)):
        inputs[:] = value
        captured.graph.launch(on)
        on.sync()
        assert outputs.tolist() == [3 * value] * SIZE
    assert y.get()[0] == 0


def test_streams_forked_and_joined_by_events_are_captured(device: Device, stream: Stream, scale: Any) -> None:
    side, forked, joined = Stream.create(device=device), Event.create(device=device), Event.create(device=device)
    x, y = device.upload(np.ones(SIZE, F32)), device.empty(SIZE, F32)
    with device.capture(stream) as captured:
        scale(x, x, 2.0, stream)
        forked.record(stream)
        side.wait(forked)
        scale(y, x, 10.0, side)
        joined.record(side)
        stream.wait(joined)
        scale(x, y, 1.0, stream)
    captured.graph.launch(stream)
    assert x.get().tolist() == [20] * SIZE


def test_a_graph_keeps_its_arrays(device: Device, stream: Stream, scale: Any) -> None:
    result = device.empty(SIZE, F32)
    x = device.upload(np.full(SIZE, 7, F32))
    with device.capture(stream) as captured:
        scale(result, x, 1.0, stream)
    del x
    others = [device.upload(np.zeros(SIZE, F32)) for _ in range(64)]
    captured.graph.launch(stream)
    assert result.get().tolist() == [7] * SIZE
    del others


def test_what_a_capture_refuses_does_not_spoil_it(device: Device, stream: Stream, scale: Any) -> None:
    x = device.upload(np.ones(SIZE, F32))
    dropped = device.upload(np.ones(SIZE, F32))
    with device.capture(stream) as captured:
        for use in (lambda: device.empty(1, F32), lambda: device.fetch(x), stream.sync, device.synchronize, x.get):
            with pytest.raises(DeviceError, match="while a graph is captured"):
                use()
        del dropped
        scale(x, x, 2.0, stream)
    captured.graph.launch(stream)
    assert x.get().tolist() == [2] * SIZE


def test_an_exception_in_a_capture_leaves_the_stream_usable(device: Device, stream: Stream, scale: Any) -> None:
    x, side, event = device.upload(np.ones(SIZE, F32)), Stream.create(device=device), Event.create(device=device)

    def fail() -> None:
        with device.capture(stream):
            scale(x, x, 2.0, stream)
            event.record(stream)
            side.wait(event)  # forked and never joined: CUDA reports that too, at the end of the capture
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    scale(x, x, 5.0, stream)
    assert x.get().tolist() == [5] * SIZE
    with device.capture(stream) as captured:
        scale(x, x, 2.0, stream)
    captured.graph.launch(stream)
    assert x.get().tolist() == [10] * SIZE


def test_a_spoilt_capture_is_an_error_and_leaves_the_stream_usable(device: Device, stream: Stream, scale: Any) -> None:
    x, side, event = device.upload(np.ones(SIZE, F32)), Stream.create(device=device), Event.create(device=device)

    def spoil() -> None:
        with device.capture(stream):
            event.record(stream)
            side.wait(event)
            scale(x, x, 2.0, side)

    with pytest.raises(DeviceError, match="Unjoined"):
        spoil()
    scale(x, x, 5.0, stream)
    assert x.get().tolist() == [5] * SIZE


def test_other_threads_work_beside_a_capture(device: Device, stream: Stream, scale: Any) -> None:
    """Allocating, copying and waiting for streams go on; waiting for the whole device waits for the capture to end."""
    x, log = device.upload(np.ones(SIZE, F32)), []

    def work() -> None:
        own = Stream.create(device=device)
        y = device.upload(np.full(SIZE, 2, F32))
        scale(y, y, 2.0, own)
        own.sync()
        event = Event.create(device=device)
        event.record(own)
        event.sync()
        log.append("work")
        assert y.get()[0] == 4
        log.append("get")

    thread = threading.Thread(target=work)
    with device.capture(stream) as captured:
        scale(x, x, 2.0, stream)
        thread.start()
        deadline = time.monotonic() + 10
        while log != ["work"] and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.05)  # long enough for a `get` that does not wait
        assert log == ["work"]
        scale(x, x, 2.0, stream)
    thread.join(10)
    assert log == ["work", "get"]
    captured.graph.launch(stream)
    assert x.get().tolist() == [4] * SIZE


def test_a_launch_of_a_graph_is_cheap(device: Device, stream: Stream, scale: Any) -> None:
    """Prints what it costs the host."""
    x = device.upload(np.zeros(SIZE, F32))
    with device.capture(stream) as captured:
        for _ in range(100):
            scale(x, x, 1.0, stream)
    for _ in range(10):
        captured.graph.launch(stream)
    stream.sync()
    start = time.perf_counter()
    for _ in range(100):
        captured.graph.launch(stream)
    spent = (time.perf_counter() - start) * 1e4
    stream.sync()
    print(f"\na graph of 100 kernels takes {spent:.1f} us of the host to launch")
