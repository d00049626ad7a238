"""A CUDA runtime that only keeps a record, for what the `cuda` device decides by itself: order, refusals, errors.

Whether CUDA then does what it is told is tested on a GPU, in tests/kernels.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from cupy_turbo.core.stream import Stream
from cupy_turbo.device.cuda import CudaDevice
from cupy_turbo.device.gpu import Gpu
from cupy_turbo.device.source import KernelLibrary


class RecordedError(RuntimeError):
    """As CuPy's: an error with a status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError{status}: for the test")
        self.status = status


class RecordedRuntime:
    """`cupy.cuda.runtime` by name: `calls` records every call, `failures[name]` are the statuses of the next ones."""

    CUDARuntimeError = RecordedError
    streamCaptureModeRelaxed = 2  # noqa: N815 - CuPy's name

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.failures: dict[str, list[int]] = defaultdict(list)
        self.pinned_elsewhere: set[int] = set()
        self.unfinished: set[int] = set()
        self._buffers: list[Any] = []

    def record(self, name: str, *args: Any) -> None:
        self.calls.append((name, *args))
        if self.failures[name]:
            raise RecordedError(self.failures[name].pop(0))

    def names(self) -> list[str]:
        return [call[0] for call in self.calls]

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.record(name, *args)

    def getDevice(self) -> int:  # noqa: N802
        return 0

    def deviceGetAttribute(self, number: int, index: int) -> int:  # noqa: N802
        return {16: 132, 75: 9, 76: 0, 97: 227 << 10}[number]

    def memGetInfo(self) -> tuple[int, int]:  # noqa: N802
        return 1000, 4000

    def malloc(self, nbytes: int) -> int:
        self.record("malloc", nbytes)
        self._buffers.append(ctypes.create_string_buffer(nbytes))
        return ctypes.addressof(self._buffers[-1])

    def hostAlloc(self, nbytes: int, flags: int) -> int:  # noqa: N802
        self.record("hostAlloc", nbytes)
        self._buffers.append(ctypes.create_string_buffer(nbytes))
        return ctypes.addressof(self._buffers[-1])

    def pointerGetAttributes(self, pointer: int) -> Any:  # noqa: N802
        self.record("pointerGetAttributes", pointer)
        return SimpleNamespace(type=1 if pointer in self.pinned_elsewhere else 0)

    def eventQuery(self, handle: int) -> int:  # noqa: N802
        return 600 if handle in self.unfinished else (self.failures["eventQuery"] or [0])[0]


class RecordedStream:
    priority = 0

    def __init__(self, runtime: RecordedRuntime, **options: Any) -> None:
        self.runtime, self.options, self.ptr = runtime, options, id(self)

    def begin_capture(self, mode: int) -> None:
        self.runtime.record("begin_capture", mode)

    def end_capture(self) -> Any:
        self.runtime.record("end_capture")
        return SimpleNamespace(
            upload=lambda stream: self.runtime.record("upload"), launch=lambda stream: self.runtime.record("graph")
        )


class RecordedKernel:
    """`cupy.RawKernel` by name."""

    shared_size_bytes = 1024
    max_dynamic_shared_size_bytes = 0

    def __init__(self, runtime: RecordedRuntime) -> None:
        self.runtime = runtime

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int, stream: Any) -> None:
        self.runtime.record("launch", grid, block, list(args), shared_mem)


@pytest.fixture
def runtime() -> RecordedRuntime:
    return RecordedRuntime()


@pytest.fixture
def gpu(runtime: RecordedRuntime) -> Gpu:
    real = pytest.importorskip("cupy")  # its arrays need no GPU as long as nobody computes with them

    def make_event(**options: Any) -> Any:
        event = SimpleNamespace(record=lambda stream: runtime.record("record"))
        event.ptr = id(event)
        return event

    cuda = SimpleNamespace(
        runtime=runtime,
        Device=lambda index: nullcontext(),
        Stream=lambda **options: RecordedStream(runtime, **options),
        Event=make_event,
        UnownedMemory=real.cuda.UnownedMemory,
        MemoryPointer=real.cuda.MemoryPointer,
    )
    loaded = SimpleNamespace(get_function=lambda name: RecordedKernel(runtime))
    cupy = SimpleNamespace(cuda=cuda, ndarray=real.ndarray, RawModule=lambda path: loaded)
    return Gpu(cupy, 0, (RecordedError,))


@pytest.fixture
def cuda(gpu: Gpu, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    monkeypatch.setenv("CUPY_TURBO_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "scale.cu").write_text(
        'extern "C" __global__ void scale(float* y, const TYPE* x, int n, float by, unsigned long long seed) {\n'
        "    if (threadIdx.x < n) y[threadIdx.x] = by * float(x[threadIdx.x]) + seed;\n}\n"
    )
    return CudaDevice(gpu, KernelLibrary([tmp_path]))


@pytest.fixture
def stream(cuda: CudaDevice) -> Stream:
    return Stream.create(device=cuda)
