"""One GPU as this process sees it: guarded calls into CUDA, and memory that is freed only when nothing can use it."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from cupy_turbo.core import sanitizing
from cupy_turbo.core.errors import DeviceError, DeviceLostError

_SUCCESS, _OUT_OF_MEMORY, _NOT_READY = 0, 2, 600

# After one of these every later call in the process fails too: the CUDA context is gone. cudaError_t and CUresult agree
# on the numbers: unloading, ECC, NVLink, contained, illegal address, timeout, context destroyed, assert, stack,
# instruction, alignment, address space, program counter, launch failure, tensor memory, MPS, external device, unknown.
STICKY = frozenset({4, 214, 220, 226, 700, 702, 709, 710, *range(714, 720), 721, 810, 911, 999})


class Allocation:
    """A piece of CUDA memory. Dropping it does not free it: it becomes garbage that `Gpu.collect` frees.

    So queued work may go on using memory whose last Python owner is gone, and the garbage collector, which may run in
    any thread and inside a graph capture, never calls CUDA.
    """

    __slots__ = ("__weakref__", "_garbage", "_release", "nbytes", "pointer")

    def __init__(self, pointer: int, nbytes: int, release: Callable[[int], None], garbage: deque[Any]) -> None:
        self.pointer = pointer
        self.nbytes = nbytes
        self._release = release
        self._garbage = garbage

    def __del__(self) -> None:
        self._garbage.append((self._release, self.pointer))


class PinnedAllocation(Allocation):
    """A piece of page-locked host memory, which NumPy sees as bytes."""

    __slots__ = ()

    @property
    def __array_interface__(self) -> dict[str, object]:
        """Describe the bytes to `numpy.asarray`, whose result keeps this object alive."""
        return {"version": 3, "typestr": "|u1", "shape": (self.nbytes,), "data": (self.pointer, False)}


class Owner:
    """Owner of a CuPy object that destroys something of CUDA's with itself: a stream, an event, a graph, a module.

    In a forked child and after a sticky error CUDA can destroy nothing, and CuPy would report that from a destructor,
    where nobody can catch it and everybody has to read it: the object is then never destroyed.

    Parameters
    ----------
    gpu : Gpu
        Where it lives.
    raw : object
        CuPy's object.
    """

    def __init__(self, gpu: Gpu, raw: Any) -> None:
        self._gpu = gpu
        self.raw = raw

    def __del__(self, keep: Any = ctypes.pythonapi.Py_IncRef, py_object: Any = ctypes.py_object) -> None:
        if not self._gpu.is_usable:
            keep(py_object(self.raw))


class _Thread(threading.local):
    """What belongs to one thread: the operands that its graph capture keeps alive, None outside a capture."""

    capture: list[object] | None = None


class Gpu:
    """The process's connection to one GPU; every CUDA call of this package goes through it.

    Parameters
    ----------
    cupy : module
        CuPy, imported by the caller.
    index : int
        Number of the GPU.
    errors : tuple of exception types
        What CuPy raises for a CUDA error; each has `status`, the number of the error.

    Attributes
    ----------
    exclusive : RLock
        Held by a graph capture and by whoever waits for the whole device: CUDA forbids the second during the first,
        even from another thread.
    """

    def __init__(self, cupy: Any, index: int, errors: tuple[type[Exception], ...]) -> None:
        self.cupy = cupy
        self.runtime = cupy.cuda.runtime
        self.index = index
        self.name = f"cuda:{index}"
        self.exclusive = threading.RLock()
        self._errors = errors
        self._unusable: DeviceError | None = None
        self._thread = _Thread()
        self._garbage: deque[tuple[Callable[[int], None], int]] = deque()
        os.register_at_fork(after_in_child=self._leave_forked_child)

    @property
    def is_usable(self) -> bool:
        """Whether CUDA can still be called: not after a sticky error, nor in a forked child."""
        return self._unusable is None

    def _leave_forked_child(self) -> None:
        self._unusable = DeviceError(
            f"{self.name} was opened before this process was forked, and CUDA does not survive a fork: start processes "
            "with multiprocessing's 'spawn' method, or fork before the first device is opened"
        )

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call CUDA with this GPU current, and raise its errors as this package's.

        Raises
        ------
        DeviceLostError
            After an error that no later call survives.
        DeviceError
            For any other CUDA error, and in a process forked after CUDA was first used.
        """
        if self._unusable is not None:
            raise type(self._unusable)(str(self._unusable))  # a fresh one: the traceback belongs to this call
        try:
            if self.runtime.getDevice() == self.index:
                return function(*args, **kwargs)
            with self.cupy.cuda.Device(self.index):
                return function(*args, **kwargs)
        except self._errors as error:
            raise self._failure(error) from error

    def _failure(self, error: Any) -> DeviceError:
        if error.status not in STICKY:
            return DeviceError(f"{self.name}: {error}")
        lost = DeviceLostError(
            f"{self.name} is lost: {error}; nothing on it works until the process is started anew "
            "(compute-sanitizer names the kernel and the line)"
        )
        self._unusable = lost
        return lost

    @property
    def capture(self) -> list[object] | None:
        """The operands that this thread's graph capture keeps alive, or None outside a capture."""
        return self._thread.capture

    @capture.setter
    def capture(self, operands: list[object] | None) -> None:
        self._thread.capture = operands

    def check_can(self, what: str) -> None:
        """Raise DeviceError where a call would hang or spoil a capture: unusable, or this thread captures a graph."""
        if self._unusable is not None:
            raise type(self._unusable)(str(self._unusable))
        if self.capture is not None:
            raise DeviceError(f"{self.name}: cannot {what} while a graph is captured; do it before the capture")

    def query_event(self, handle: int) -> bool:
        """Tell whether an event has happened; to be run by `call`, for CuPy would report an error as "not yet"."""
        status = self.runtime.eventQuery(handle)
        if status not in (_SUCCESS, _NOT_READY):
            raise self.runtime.CUDARuntimeError(status)
        return bool(status == _SUCCESS)

    def synchronize(self) -> None:
        """Wait for all work on the GPU."""
        self.check_can("wait for the device")
        if sanitizing.watch is None:
            self._wait_for_all()
        else:
            sanitizing.watch.synchronize_device(self.name, self._wait_for_all)

    def _wait_for_all(self) -> None:
        with self.exclusive:
            self.call(self.runtime.deviceSynchronize)

    def allocate(self, nbytes: int) -> Allocation:
        """Take device memory, nbytes > 0, straight from the driver: no pool, so no reuse across streams."""
        return self._take(Allocation, self.runtime.malloc, (nbytes,), self.runtime.free)

    def pin(self, nbytes: int) -> PinnedAllocation:
        """Take page-locked host memory, nbytes > 0."""
        allocation = self._take(PinnedAllocation, self.runtime.hostAlloc, (nbytes, 0), self.runtime.freeHost)
        assert isinstance(allocation, PinnedAllocation)
        return allocation

    def _take(
        self, kind: type[Allocation], take: Callable[..., int], args: tuple[int, ...], release: Callable[[int], None]
    ) -> Allocation:
        self.check_can("allocate")
        self.collect()
        try:
            pointer = self.call(take, *args)
        except DeviceError as error:
            if getattr(error.__cause__, "status", None) != _OUT_OF_MEMORY:
                raise
            gc.collect()  # a notebook's previous model may live on in a reference cycle
            self.collect()
            try:
                pointer = self.call(take, *args)
            except DeviceError as again:
                raise self._out_of_memory(kind, args[0], again) from again.__cause__
        return kind(pointer, args[0], release, self._garbage)

    def _out_of_memory(self, kind: type[Allocation], nbytes: int, error: DeviceError) -> DeviceError:
        if getattr(error.__cause__, "status", None) != _OUT_OF_MEMORY:
            return error
        if kind is PinnedAllocation:
            return DeviceError(f"the host cannot pin {nbytes:,} bytes; ask for less or raise `ulimit -l`")
        free, total = self.call(self.runtime.memGetInfo)
        return DeviceError(f"{self.name} cannot allocate {nbytes:,} bytes: {free:,} of {total:,} are free")

    def collect(self) -> None:
        """Free the memory whose last owner is gone, after all queued work, which may still use it."""
        if not self._garbage:
            return
        self.check_can("free memory")
        with self.exclusive:
            self.synchronize()
            while self._garbage:
                release, pointer = self._garbage.popleft()
                self.call(release, pointer)
                if sanitizing.watch is not None:
                    sanitizing.watch.released(pointer)
