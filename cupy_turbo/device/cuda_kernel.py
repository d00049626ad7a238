"""Kernels of a GPU: compile once, load, launch. Every launch of this package goes through `CudaKernel.__call__`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from cupy_turbo.core import sanitizing
from cupy_turbo.core.errors import DeviceError, DeviceLostError, SanitizerError
from cupy_turbo.core.protocols import LaunchSize
from cupy_turbo.core.shared_handle import handle_of
from cupy_turbo.core.stream import Stream
from cupy_turbo.device import nvrtc
from cupy_turbo.device.cache import DiskCache, cache_key
from cupy_turbo.device.gpu import Gpu, Owner
from cupy_turbo.device.launch_size import block_extent, grid_extent
from cupy_turbo.device.queued_work import kernel_work
from cupy_turbo.device.signature import Signature, parse_signature
from cupy_turbo.device.source import KernelLibrary

if TYPE_CHECKING:
    from cupy_turbo.device.cuda import CudaDevice

_SHARED_BYTES = 48 * 1024  # of a block, static and dynamic, without asking

Key = tuple[str, tuple[tuple[str, str | int], ...]]


class CudaKernel(Owner):
    """A kernel loaded on one GPU.

    Parameters
    ----------
    device : CudaDevice
        Where it runs.
    gpu : Gpu
        The connection to it.
    raw : cupy.RawKernel
        The loaded function; its `attributes` tell registers and local memory.
    signature : Signature
        What converts the arguments: CuPy by itself would send a Python float as float64.
    """

    def __init__(self, device: CudaDevice, gpu: Gpu, raw: Any, signature: Signature) -> None:
        super().__init__(gpu, raw)
        self.name = signature.name
        self.signature = signature
        self._device = device
        self._pointers = [i for i, parameter in enumerate(signature.parameters) if parameter.kind == "pointer"]
        self._static_bytes: int = gpu.call(lambda: raw.shared_size_bytes)
        self._allowed_bytes = _SHARED_BYTES - self._static_bytes

    def __call__(
        self, grid: LaunchSize, block: LaunchSize, args: Sequence[object], *, shared_bytes: int = 0, stream: Stream
    ) -> None:
        """Queue one launch; see `Kernel`."""
        handle: Any = handle_of(stream, "Stream", f"kernel {self.name}")
        if handle.device is not self._device:
            raise ValueError(f"kernel {self.name} is on {self._device.name}, the stream on {handle.device.name}")
        grid, block = grid_extent(self.name, grid), block_extent(self.name, block)
        arguments = self.signature.convert(args)
        self._check_arrays(arguments)
        if 0 in grid:
            return  # CuPy would launch one block
        try:
            if shared_bytes > self._allowed_bytes:
                self._allow_shared(shared_bytes)
            if sanitizing.watch is not None or handle.nodes is not None:
                handle.note(kernel_work(self.signature, arguments))
            self._gpu.call(self.raw, grid, block, arguments, shared_mem=shared_bytes, stream=handle.raw)
        except (DeviceLostError, SanitizerError):
            raise
        except DeviceError as error:
            launch = f"kernel {self.name}, grid {grid}, block {block}, {shared_bytes} bytes of dynamic shared memory"
            raise DeviceError(f"{launch}: {error}") from error.__cause__
        if (operands := self._gpu.capture) is not None:
            operands.extend(arguments)

    def _check_arrays(self, arguments: Sequence[object]) -> None:
        for index in self._pointers:
            value = arguments[index]
            if value is not None and not self._device.owns(value):
                parameter = self.signature.parameters[index]
                place = getattr(value, "device", type(value).__name__)
                raise TypeError(f"{self.name}: {parameter} takes an array on {self._device.name}, got one on {place}")

    def _allow_shared(self, shared_bytes: int) -> None:
        """Ask CUDA for more dynamic shared memory than a kernel gets by itself."""
        limit = self._device.max_shared_bytes
        if shared_bytes + self._static_bytes > limit:
            raise ValueError(
                f"{self.name}: shared_bytes {shared_bytes} with {self._static_bytes} static bytes exceeds the {limit} "
                f"of a block on {self._device.name}"
            )

        def allow() -> None:
            self.raw.max_dynamic_shared_size_bytes = shared_bytes

        self._gpu.call(allow)
        self._allowed_bytes = shared_bytes


class CudaKernels:
    """The kernels of one device, each compiled at its first use, once whoever asks.

    Parameters
    ----------
    device : CudaDevice
        Where they run.
    gpu : Gpu
        The connection to it.
    library : KernelLibrary
        Where the sources are.
    architecture : str
        What to compile for, e.g. "sm_90".
    """

    def __init__(self, device: CudaDevice, gpu: Gpu, library: KernelLibrary, architecture: str) -> None:
        self._device = device
        self._gpu = gpu
        self._library = library
        self._architecture = architecture
        self._cache = DiskCache()
        self._lock = threading.Lock()
        self._kernels: dict[Key, Future[CudaKernel]] = {}

    def get(self, name: str, defines: dict[str, str | int]) -> CudaKernel:
        """Return a kernel; a second thread that asks for one being compiled waits for it."""
        key = (name, tuple(sorted(defines.items())))
        future = self._kernels.get(key)
        if future is None:
            with self._lock:
                future = self._kernels.get(key)
                is_ours = future is None
                if future is None:
                    future = self._kernels[key] = Future()
            if is_ours:
                self._fulfil(future, key, lambda: self._build(name, defines))
        return future.result()

    def clear(self) -> None:
        """Forget all kernels, so that edited files are read again."""
        with self._lock:
            self._kernels.clear()

    def _fulfil(self, future: Future[CudaKernel], key: Key, build: Callable[[], CudaKernel]) -> None:
        try:
            future.set_result(build())
        except BaseException as error:
            with self._lock:
                self._kernels.pop(key, None)  # the next call tries again, perhaps with an edited file
            future.set_exception(error)

    def _build(self, name: str, defines: dict[str, str | int]) -> CudaKernel:
        source = self._library.read(name)
        signature = parse_signature(source.text, name, defines)
        options = [f"-D{macro}={value}" for macro, value in sorted(defines.items())]
        include = self._library.include_folder
        version = ".".join(map(str, nvrtc.version()))
        key = cache_key("nvrtc", version, self._architecture, *nvrtc.BASE_OPTIONS, *options, name, source.digest)

        def make() -> bytes:
            return nvrtc.compile(source.text, source.path.name, options, self._architecture, include=include)[0]

        path = self._cache.fetch(key, ".cubin", make)
        raw = self._gpu.call(lambda: self._gpu.cupy.RawModule(path=str(path)).get_function(name))
        return CudaKernel(self._device, self._gpu, raw, signature)
