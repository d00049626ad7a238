"""Arrays of a GPU: taking, copying, filling and reading them."""

from __future__ import annotations

import math
import operator
import threading
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cupy_turbo.core import sanitizing
from cupy_turbo.core.protocols import Array, DeviceStatistics, Shape
from cupy_turbo.device.cuda_stream import CudaStream
from cupy_turbo.device.gpu import Allocation, Gpu, Owner
from cupy_turbo.device.queued_work import copy_work, fill_work

_REGISTERED_HOST, _MANAGED = 1, 3  # cudaMemoryType


class CudaMemory:
    """Memory of one opened device.

    Parameters
    ----------
    gpu : Gpu
        The connection to the GPU.
    transfers : Owner
        A `cupy.cuda.Stream` for the copies that wait; never the default stream, which other libraries use.

    Notes
    -----
    Memory taken here is freed only after the whole device has been waited for (`Gpu.collect`), so the copies of a
    steady step keep nothing alive and allocate nothing. Arrays of other owners (plain CuPy, torch's pinned tensors) are
    kept until an event behind the copy has happened; a capture keeps every operand in its graph.
    """

    def __init__(self, gpu: Gpu, transfers: Owner) -> None:
        self._gpu = gpu
        self._transfers = transfers
        self._array_type = _device_array_type(gpu, transfers)
        self._lock = threading.Lock()
        self._borrowed: deque[tuple[Owner, tuple[object, ...]]] = deque()
        self._statistics = DeviceStatistics(device_allocations=0, device_bytes=0, pinned_allocations=0, pinned_bytes=0)

    def empty(self, shape: Shape, dtype: DTypeLike) -> Any:
        """Take an array with undefined contents."""
        cuda = self._gpu.cupy.cuda
        extents, kind, nbytes = _layout(shape, dtype)
        allocation = self._gpu.allocate(nbytes) if nbytes else None
        pointer = allocation.pointer if allocation else 0
        memory = cuda.UnownedMemory(pointer, nbytes, allocation, self._gpu.index)
        self._count(device=nbytes)
        array = self._array_type(extents, kind, memptr=cuda.MemoryPointer(memory, 0))
        if sanitizing.watch is not None:
            sanitizing.watch.allocated(array, "device")
        return array

    def pinned(self, shape: Shape, dtype: DTypeLike) -> np.ndarray:
        """Take page-locked host memory with undefined contents."""
        extents, kind, nbytes = _layout(shape, dtype)
        if not nbytes:
            return np.empty(extents, kind)
        allocation = self._gpu.pin(nbytes)
        self._count(pinned=nbytes)
        array = np.asarray(allocation).view(kind).reshape(extents)
        if sanitizing.watch is not None:
            sanitizing.watch.allocated(array, "pinned")
        return array

    def copy(self, dst: Array | np.ndarray, src: Array | np.ndarray, stream: CudaStream) -> None:
        """Queue a copy; see `Device.copy`."""
        if isinstance(dst, np.ndarray) and isinstance(src, np.ndarray):
            raise TypeError("copy takes at least one device array, got two NumPy arrays")
        target, target_is_ours = self._address(dst, "destination")
        source, source_is_ours = self._address(src, "source")
        if dst.nbytes != src.nbytes:
            raise ValueError(
                f"copy of {src.nbytes} bytes {src.shape} {src.dtype} to {dst.nbytes} {dst.shape} {dst.dtype}"
            )
        if not dst.nbytes:
            return
        if sanitizing.watch is not None or stream.nodes is not None:
            stream.note(copy_work(dst, src))
        # The direction is told, not guessed by the driver: to device 1, to host 2, on the device 3.
        direction = (not isinstance(dst, np.ndarray)) + 2 * (not isinstance(src, np.ndarray))
        self._gpu.call(self._gpu.runtime.memcpyAsync, target, source, dst.nbytes, direction, stream.handle)
        self._keep((dst, src), target_is_ours and source_is_ours, stream)

    def fill(self, array: Any, byte: int, stream: CudaStream) -> None:
        """Queue the setting of every byte; see `Device.fill`."""
        if not 0 <= byte <= 255:
            raise ValueError(f"fill takes a byte, 0 to 255, got {byte}")
        if isinstance(array, np.ndarray):
            raise TypeError("fill takes a device array, got a NumPy array")
        pointer, is_ours = self._address(array, "destination")
        if array.nbytes:
            if sanitizing.watch is not None or stream.nodes is not None:
                stream.note(fill_work(array))
            self._gpu.call(self._gpu.runtime.memsetAsync, pointer, byte, array.nbytes, stream.handle)
            self._keep((array,), is_ours, stream)

    def upload(self, host_array: np.ndarray) -> Any:
        """Copy to a new device array, and wait."""
        host = np.asarray(host_array, order="C")
        array = self.empty(host.shape, host.dtype)
        if host.nbytes:
            stream = self._transfers.raw.ptr
            self._gpu.call(self._gpu.runtime.memcpyAsync, array.data.ptr, host.ctypes.data, host.nbytes, 1, stream)
            self._gpu.call(self._gpu.runtime.streamSynchronize, stream)
        return array

    def fetch(self, array: Any) -> np.ndarray:
        """Wait for the whole device, then copy to a new host array."""
        if not self.owns(array):
            raise TypeError(f"fetch takes an array on {self._gpu.name}, got {type(array).__name__}")
        self._gpu.synchronize()
        host: np.ndarray = self._gpu.call(array.get, self._transfers.raw)
        return host

    def owns(self, array: Any) -> bool:
        """Whether it is a CuPy array in this GPU's memory."""
        if type(array) is self._array_type:  # made for this GPU only
            return True
        return isinstance(array, self._gpu.cupy.ndarray) and array.data.device_id == self._gpu.index

    def statistics(self) -> DeviceStatistics:
        """Count allocations since the device was opened."""
        return self._statistics

    def forget_copies(self) -> None:
        """Drop the operands of copies, once the device was waited for."""
        with self._lock:
            self._borrowed.clear()

    def _address(self, array: Any, side: str) -> tuple[int, bool]:
        """Address of a copy's operand, and whether its memory was taken here; refuses what cannot be copied."""
        if not isinstance(array, np.ndarray):
            if not self.owns(array):
                place = getattr(array, "device", type(array).__name__)
                raise TypeError(f"copy {side}: an array on {self._gpu.name} or a NumPy array is needed, got {place}")
            _check_contiguous(array, side)
            return array.data.ptr, isinstance(getattr(array.data.mem, "_owner", None), Allocation)
        _check_contiguous(array, side)
        if side == "destination" and not array.flags.writeable:
            raise ValueError("copy destination is read-only")
        owner: Any = array
        while isinstance(owner, np.ndarray):
            owner = owner.base
        address: int = array.__array_interface__["data"][0]
        is_ours = isinstance(owner, Allocation)
        if array.nbytes and not is_ours:
            kind = self._gpu.call(self._gpu.runtime.pointerGetAttributes, address).type
            if kind not in (_REGISTERED_HOST, _MANAGED):
                raise TypeError(
                    f"copy {side}: {array.nbytes} bytes of pageable host memory, which CUDA does not copy in the "
                    "background: take the array from device.pinned(shape, dtype)"
                )
        return address, is_ours

    def _keep(self, operands: tuple[object, ...], are_ours: bool, stream: CudaStream) -> None:
        captured = self._gpu.capture
        if captured is not None:
            captured.extend(operands)
        elif not are_ours:
            with self._lock:
                while self._borrowed and self._gpu.call(self._gpu.query_event, self._borrowed[0][0].raw.ptr):
                    self._borrowed.popleft()
                event = Owner(self._gpu, self._gpu.call(self._gpu.cupy.cuda.Event, disable_timing=True))
                self._gpu.call(event.raw.record, stream.raw)
                self._borrowed.append((event, operands))

    def _count(self, *, device: int = 0, pinned: int = 0) -> None:
        with self._lock:
            before = self._statistics
            self._statistics = DeviceStatistics(
                device_allocations=before.device_allocations + (device > 0),
                device_bytes=before.device_bytes + device,
                pinned_allocations=before.pinned_allocations + (pinned > 0),
                pinned_bytes=before.pinned_bytes + pinned,
            )


def _layout(shape: Shape, dtype: DTypeLike) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Normalise a shape and a dtype; also the size in bytes."""
    extents = (shape,) if isinstance(shape, int) else tuple(map(operator.index, shape))
    if any(extent < 0 for extent in extents):
        raise ValueError(f"shape must not be negative, got {extents}")
    kind = np.dtype(dtype)
    return extents, kind, math.prod(extents) * kind.itemsize


def _check_contiguous(array: Any, side: str) -> None:
    if not array.flags.c_contiguous:
        raise ValueError(f"copy {side} of shape {array.shape} is not C-contiguous: a copy moves one run of bytes")


def _device_array_type(gpu: Gpu, transfers: Owner) -> Any:
    """Make the array class of a device."""
    base: Any = gpu.cupy.ndarray

    class DeviceArray(base):  # type: ignore[misc]
        """A `cupy.ndarray` whose `get` waits for the whole device.

        CuPy's own waits for the current stream only, which says nothing of the streams that write this array.
        """

        def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
            if stream is None:
                gpu.synchronize()
                stream = transfers.raw
            return gpu.call(super().get, stream, order, out, blocking)

    return DeviceArray
