"""Streams, events and graphs of a GPU, around the CuPy objects that own them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cupy_turbo.core import sanitizing
from cupy_turbo.core.errors import DeviceError
from cupy_turbo.core.shared_handle import handle_of
from cupy_turbo.core.stream import Stream
from cupy_turbo.device.gpu import Gpu, Owner
from cupy_turbo.device.queued_work import Work

if TYPE_CHECKING:
    from cupy_turbo.device.cuda import CudaDevice


class _Handle(Owner):
    """What a `Stream`, an `Event` or a graph's holder owns, on its device."""

    def __init__(self, device: CudaDevice, gpu: Gpu, raw: Any) -> None:
        super().__init__(gpu, raw)
        self._device = device

    @property
    def device(self) -> CudaDevice:
        """Where it lives."""
        return self._device


class CudaStream(_Handle):
    """A non-blocking `cupy.cuda.Stream`, as `raw`. CUDA finishes its queued work before it destroys it."""

    def __init__(self, device: CudaDevice, gpu: Gpu, raw: Any) -> None:
        super().__init__(device, gpu, raw)
        self.handle: int = raw.ptr
        self.priority: int = raw.priority
        self.nodes: list[Work] | None = None  # what the capture of this stream has so far

    def note(self, work: Work) -> None:
        """Describe work to the sanitizer, or to the graph being captured, before it is queued here."""
        if self.nodes is not None:
            self.nodes.append(work)
        elif sanitizing.watch is not None:
            sanitizing.watch.queue(self, work)

    def synchronize(self) -> None:
        """Wait until all that is queued here has run; other Python threads run meanwhile."""
        self._gpu.check_can("wait for a stream")
        self._gpu.call(self._gpu.runtime.streamSynchronize, self.handle)

    def wait(self, event_handle: CudaEvent) -> None:
        """Hold back later work until the event's latest record; a no-op if there is none."""
        self._gpu.call(self._gpu.runtime.streamWaitEvent, self.handle, event_handle.handle)


class CudaEvent(_Handle):
    """A `cupy.cuda.Event`, as `raw`."""

    def __init__(self, device: CudaDevice, gpu: Gpu, raw: Any, *, timing: bool) -> None:
        super().__init__(device, gpu, raw)
        self.handle: int = raw.ptr
        self.timing = timing
        self.is_recorded = False

    def record(self, stream_handle: CudaStream) -> None:
        """Happen when all that is queued on the stream so far has run."""
        self._gpu.call(self._gpu.runtime.eventRecord, self.handle, stream_handle.handle)
        self.is_recorded = True

    def synchronize(self) -> None:
        """Wait for the latest record; at once if there is none. Other Python threads run meanwhile."""
        self._gpu.check_can("wait for an event")
        self._gpu.call(self._gpu.runtime.eventSynchronize, self.handle)

    def query(self) -> bool:
        """Tell whether the latest record has happened; true if there is none."""
        return bool(self._gpu.call(self._gpu.query_event, self.handle))

    def elapsed_since(self, other: CudaEvent) -> float:
        """Milliseconds from the other event to this one; ValueError if either was never recorded."""
        if not (self.is_recorded and other.is_recorded):
            raise ValueError("elapsed_since() of an event that was never recorded")
        return float(self._gpu.call(self._gpu.runtime.eventElapsedTime, other.handle, self.handle))


class CudaGraph(_Handle):
    """An instantiated `cupy.cuda.Graph`, as `raw`, with the arrays that its nodes use."""

    def __init__(self, device: CudaDevice, gpu: Gpu, raw: Any, operands: list[object], nodes: list[Work]) -> None:
        super().__init__(device, gpu, raw)
        self._operands = operands
        self._nodes = nodes

    def launch(self, stream: Stream) -> None:
        """Queue all of it on a stream, with the addresses it was captured with."""
        handle: Any = handle_of(stream, "Stream", "Graph.launch()")
        if handle.nodes is not None:
            handle.nodes.extend(self._nodes)
        elif sanitizing.watch is not None:
            sanitizing.watch.launch(handle, self, self._nodes)
        self._gpu.call(self.raw.launch, handle.raw)


class CudaCapture:
    """What a ``with device.capture(stream)`` gives: `graph`, once it was left without an exception."""

    def __init__(self) -> None:
        self._graph: CudaGraph | None = None

    @property
    def graph(self) -> CudaGraph:
        """The captured work."""
        if self._graph is None:
            raise DeviceError("there is no graph: the capture has not ended, or ended with an exception")
        return self._graph


@contextlib.contextmanager
def capture_graph(device: CudaDevice, gpu: Gpu, stream: CudaStream) -> Iterator[CudaCapture]:
    """Record what `stream` is given inside; see `Device.capture`.

    Notes
    -----
    CUDA's relaxed mode: in the thread-local one, the garbage collector freeing some other library's array in this
    thread would invalidate the capture. What a capture must not do, allocate and wait, `Gpu.check_can` refuses.
    """
    gpu.check_can("start another capture")
    captured = CudaCapture()
    with gpu.exclusive:
        gpu.call(stream.raw.begin_capture, gpu.runtime.streamCaptureModeRelaxed)
        operands = gpu.capture = []
        nodes = stream.nodes = []
        try:
            yield captured
        except BaseException:
            gpu.capture = stream.nodes = None
            with contextlib.suppress(DeviceError):  # it ends the capture even when it reports that it was spoilt
                gpu.call(stream.raw.end_capture)
            raise
        gpu.capture = stream.nodes = None
        raw = gpu.call(stream.raw.end_capture)
        gpu.call(raw.upload, stream.raw)
    captured._graph = CudaGraph(device, gpu, raw, operands, nodes)
