"""A device in plain CuPy, as somebody else would write it: only what the stream suite needs, and no care for speed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from cupy_turbo.core.stream import Stream

_ANY_DIRECTION = 4  # cudaMemcpyDefault: the driver knows which side is where


class PlainStream:
    """What a `Stream` owns."""

    def __init__(self, device: PlainCupy, priority: int) -> None:
        self.device, self.priority = device, priority
        self.raw = device.cupy.cuda.Stream(non_blocking=True, priority=priority)
        self.handle = self.raw.ptr

    def synchronize(self) -> None:
        self.raw.synchronize()

    def wait(self, event: PlainEvent) -> None:
        self.raw.wait_event(event.raw)


class PlainEvent:
    """What an `Event` owns."""

    def __init__(self, device: PlainCupy, timing: bool) -> None:
        self.device, self.timing = device, timing
        self.raw = device.cupy.cuda.Event(disable_timing=not timing)
        self.handle = self.raw.ptr

    def record(self, stream: PlainStream) -> None:
        self.raw.record(stream.raw)

    def synchronize(self) -> None:
        self.raw.synchronize()

    def query(self) -> bool:
        return bool(self.raw.done)

    def elapsed_since(self, other: PlainEvent) -> float:
        return float(self.device.cupy.cuda.get_elapsed_time(other.raw, self.raw))


class PlainCupy:
    """The GPU that CuPy is on."""

    name, kind, index = "plain CuPy", "cuda", 0

    def __init__(self) -> None:
        import cupy
        import cupyx

        self.cupy, self.cupyx = cupy, cupyx
        self._operands: list[Any] = []  # of copies, until the device has run them

    def empty(self, shape: Any, dtype: Any) -> Any:
        return self.cupy.empty(shape, dtype)

    def pinned(self, shape: Any, dtype: Any) -> np.ndarray:
        memory: np.ndarray = self.cupyx.empty_pinned(shape, dtype)
        return memory

    def stream_handle(self, priority: int) -> PlainStream:
        return PlainStream(self, priority)

    def event_handle(self, timing: bool) -> PlainEvent:
        return PlainEvent(self, timing)

    def copy(self, dst: Any, src: Any, *, stream: Stream) -> None:
        self._operands.append((dst, src))
        addresses = [each.ctypes.data if isinstance(each, np.ndarray) else each.data.ptr for each in (dst, src)]
        self.cupy.cuda.runtime.memcpyAsync(*addresses, dst.nbytes, _ANY_DIRECTION, stream.handle)

    def fill(self, array: Any, byte: int, *, stream: Stream) -> None:
        self._operands.append(array)
        self.cupy.cuda.runtime.memsetAsync(array.data.ptr, byte, array.nbytes, stream.handle)

    def upload(self, host_array: np.ndarray) -> Any:
        array = self.cupy.asarray(host_array)
        self.cupy.cuda.get_current_stream().synchronize()
        return array

    def fetch(self, array: Any) -> np.ndarray:
        self.synchronize()
        found: np.ndarray = self.cupy.asnumpy(array)
        return found

    @contextmanager
    def capture(self, stream: Stream) -> Iterator[SimpleNamespace]:
        raw = stream._impl.raw  # type: ignore[union-attr]
        captured = SimpleNamespace(graph=None)
        raw.begin_capture()
        try:
            yield captured
        finally:
            graph = raw.end_capture()
        captured.graph = SimpleNamespace(launch=lambda on: graph.launch(on._impl.raw))

    def synchronize(self) -> None:
        self.cupy.cuda.runtime.deviceSynchronize()

    def __repr__(self) -> str:
        return "PlainCupy()"
