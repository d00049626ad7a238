"""The `cuda` device: CuPy's streams, events, memory and kernels behind the `Device` protocol.

The only file that imports CuPy, and only when a device is opened.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cupy_turbo.core import sanitizing
from cupy_turbo.core.current_device import pop_device, push_device
from cupy_turbo.core.errors import DeviceError, DeviceUnavailableError
from cupy_turbo.core.protocols import Array, DeviceStatistics, Shape
from cupy_turbo.core.shared_handle import handle_of
from cupy_turbo.core.stream import Stream
from cupy_turbo.device import nvrtc
from cupy_turbo.device.cuda_kernel import CudaKernel, CudaKernels
from cupy_turbo.device.cuda_memory import CudaMemory
from cupy_turbo.device.cuda_stream import CudaCapture, CudaEvent, CudaStream, capture_graph
from cupy_turbo.device.gpu import Gpu, Owner
from cupy_turbo.device.queued_work import domain_of
from cupy_turbo.device.source import KernelLibrary

_MULTIPROCESSORS, _CAPABILITY_MAJOR, _CAPABILITY_MINOR, _MAX_SHARED_BYTES = 16, 75, 76, 97  # cudaDeviceAttr

_opening = threading.Lock()


def open_cuda(index: int = 0, *, kernel_folders: Sequence[Path | str] = ()) -> CudaDevice:
    """Open a GPU.

    Parameters
    ----------
    index : int, >= 0
        Number of the GPU among those that CUDA shows.
    kernel_folders : sequence of Path or str, optional
        Folders with more `.cu` files, searched before the project's own.

    Raises
    ------
    DeviceUnavailableError
        If CuPy, NVRTC, a driver new enough or that GPU is missing; one sentence with the remedy.
    """
    with _opening:
        gpu = _connect(index)
    return CudaDevice(gpu, KernelLibrary(kernel_folders))


@functools.cache
def _connect(index: int) -> Gpu:
    """Connect this process to a GPU, once: what its context has lost or is capturing concerns all who use it."""
    try:
        import cupy
    except ImportError as error:
        reason = str(error).strip().splitlines()[0]
        raise DeviceUnavailableError(f"CuPy cannot be imported ({reason}): {nvrtc.REMEDY}") from None
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        versions = runtime.driverGetVersion(), runtime.runtimeGetVersion()
        raise DeviceUnavailableError(explain_no_gpu(*versions, str(error))) from None
    if not 0 <= index < count:
        visible = ", ".join(f"cuda:{number}" for number in range(count)) or "none"
        raise DeviceUnavailableError(
            f"cuda:{index} does not exist; CUDA shows {visible} (CUDA_VISIBLE_DEVICES can hide GPUs)"
        )
    return Gpu(cupy, index, (runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError))


def explain_no_gpu(driver: int, needed: int, error: str) -> str:
    """Say in one sentence why CUDA shows no GPU, and what to do.

    Parameters
    ----------
    driver, needed : int
        CUDA versions, such as 12090 for 12.9: what the driver supports (0 without one) and what CuPy was built for.
    error : str
        CUDA's own message.
    """
    if driver == 0:
        return "no NVIDIA driver was found: install one (nvidia-smi shows it), or use device='host'"
    if driver // 1000 < needed // 1000:
        return (
            f"the NVIDIA driver supports CUDA {driver // 1000}.{driver % 1000 // 10} but CuPy here is built for CUDA "
            f"{needed // 1000}: update the driver, or install for CUDA {driver // 1000}: {nvrtc.REMEDY}"
        )
    return f"no usable GPU ({error}): see nvidia-smi and CUDA_VISIBLE_DEVICES, or use device='host'"


class _Allocator:
    """One of a device's two sources of memory, as `Context` takes it."""

    def __init__(self, allocate: Callable[[Shape, DTypeLike], Any]) -> None:
        self.allocate = allocate


class _Activation:
    """A GPU and a stream of it as CuPy's current ones, inside a ``with``.

    Not a generator: one that is suspended in the executor's thread would be finished by a forked child's garbage
    collection, on a thread that never entered it.
    """

    def __init__(self, gpu: Any, stream: Any) -> None:
        self._entries = (gpu, stream)

    def __enter__(self) -> None:
        for entry in self._entries:
            entry.__enter__()

    def __exit__(self, *exc: object) -> None:
        for entry in reversed(self._entries):
            entry.__exit__(*exc)


class CudaDevice:
    """One GPU; see `Device` for its verbs.

    Parameters
    ----------
    gpu : Gpu
        The process's connection to it.
    library : KernelLibrary
        Where kernel sources are.

    Notes
    -----
    Arrays are `cupy.ndarray`s, bfloat16 ones included (CuPy 14 takes `ml_dtypes.bfloat16`). Waiting spins and releases
    the GIL: a sleeping wait wakes tens of microseconds late, as long as a step of a small model can afford.
    """

    kind = "cuda"

    def __init__(self, gpu: Gpu, library: KernelLibrary) -> None:
        self._gpu = gpu
        self.name = gpu.name
        self.index = gpu.index
        self._is_closed = False
        self.kernel_generation = 0
        major, minor = self._attribute(_CAPABILITY_MAJOR), self._attribute(_CAPABILITY_MINOR)
        self.compute_capability: tuple[int, int] | None = (major, minor)
        self.num_processors = self._attribute(_MULTIPROCESSORS)
        self.max_shared_bytes = self._attribute(_MAX_SHARED_BYTES)
        self._kernels = CudaKernels(self, gpu, library, nvrtc.architecture((major, minor)))
        self._memory = CudaMemory(gpu, Owner(gpu, gpu.call(gpu.cupy.cuda.Stream, non_blocking=True)))
        self.allocator = _Allocator(self.empty)
        self.pinned_allocator = _Allocator(self.pinned)

    def _attribute(self, number: int) -> int:
        return int(self._gpu.call(self._gpu.runtime.deviceGetAttribute, number, self.index))

    def _require_open(self) -> None:
        if self._is_closed:
            raise DeviceError(f"{self.name} is closed")

    def _stream(self, stream: Stream, call: str) -> CudaStream:
        self._require_open()
        handle = handle_of(stream, "Stream", call)
        if not isinstance(handle, CudaStream) or handle.device is not self:
            raise ValueError(f"{call} on {self.name} got a stream of another device, {handle.device.name}")
        return handle

    def empty(self, shape: Shape, dtype: DTypeLike) -> Array:
        """Take an array with undefined contents, straight from the driver: rarely, and in large pieces."""
        self._require_open()
        array: Array = self._memory.empty(shape, dtype)
        return array

    def pinned(self, shape: Shape, dtype: DTypeLike) -> np.ndarray:
        """Take page-locked host memory with undefined contents."""
        self._require_open()
        return self._memory.pinned(shape, dtype)

    def stream_handle(self, priority: int) -> CudaStream:
        """Make what a `Stream` owns: a stream that does not synchronise with the default stream."""
        self._require_open()
        raw = self._gpu.call(self._gpu.cupy.cuda.Stream, non_blocking=True, priority=priority)
        return CudaStream(self, self._gpu, raw)

    def event_handle(self, timing: bool) -> CudaEvent:
        """Make what an `Event` owns."""
        self._require_open()
        raw = self._gpu.call(self._gpu.cupy.cuda.Event, disable_timing=not timing)
        return CudaEvent(self, self._gpu, raw, timing=timing)

    def kernel(self, name: str, **defines: str | int) -> CudaKernel:
        """Compile ``kernels/<name>.cu`` with -D macros, once for each set of them; any thread may ask."""
        self._require_open()
        return self._kernels.get(name, defines)

    def copy(self, dst: Array | np.ndarray, src: Array | np.ndarray, *, stream: Stream) -> None:
        """Queue a copy of equal bytes between contiguous arrays; host arrays must be pinned."""
        self._memory.copy(dst, src, self._stream(stream, "copy()"))

    def fill(self, array: Array, byte: int, *, stream: Stream) -> None:
        """Queue the setting of every byte, 0 <= byte <= 255."""
        self._memory.fill(array, byte, self._stream(stream, "fill()"))

    def upload(self, host_array: np.ndarray) -> Array:
        """Copy any host array to a new device array, and wait."""
        self._require_open()
        array: Array = self._memory.upload(host_array)
        return array

    def fetch(self, array: Array) -> np.ndarray:
        """Wait for the whole device, then copy to a new host array."""
        return self._memory.fetch(array)

    def owns(self, array: object) -> bool:
        """Whether it is a CuPy array in this GPU's memory."""
        return self._memory.owns(array)

    def capture(self, stream: Stream) -> AbstractContextManager[CudaCapture]:
        """Record what the stream is given inside, instead of running it; allocating or waiting inside is an error."""
        return capture_graph(self, self._gpu, self._stream(stream, "capture()"))

    def activate(self, stream_handle: CudaStream) -> AbstractContextManager[None]:
        """Make a stream CuPy's current one on this thread, so that plain CuPy code follows it."""
        cuda = self._gpu.cupy.cuda
        return _Activation(cuda.Device(self.index), stream_handle.raw)

    def synchronize(self) -> None:
        """Wait for all work on the GPU, whoever queued it."""
        self._gpu.synchronize()

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes, after freeing what nobody owns any more."""
        self._gpu.collect()
        free, total = self._gpu.call(self._gpu.runtime.memGetInfo)
        return int(free), int(total)

    def statistics(self) -> DeviceStatistics:
        """Count allocations since the device was opened."""
        return self._memory.statistics()

    def reload_kernels(self) -> None:
        """Forget compiled kernels, so that edited files are read again."""
        self._kernels.clear()
        self.kernel_generation += 1

    def close(self) -> None:
        """Wait for all work and free what nobody owns any more; idempotent. Arrays that are still owned stay valid."""
        if self._is_closed:
            return
        if self._gpu.capture is not None:
            raise DeviceError(f"{self.name} cannot be closed while a graph is captured")
        self._is_closed = True
        if sanitizing.watch is not None:
            sanitizing.watch.close_device(domain_of(self))
        self._kernels.clear()
        with suppress(DeviceError):  # a lost device, or a forked child's, has nothing left to wait for
            self._gpu.synchronize()
            self._memory.forget_copies()
            self._gpu.collect()

    def __enter__(self) -> CudaDevice:
        push_device(self)
        return self

    def __exit__(self, *exc: object) -> None:
        pop_device(self)

    def __repr__(self) -> str:
        return f"CudaDevice({self.name}{', closed' if self._is_closed else ''})"
