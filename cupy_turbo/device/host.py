"""The `host` device: the kernels compiled for this machine's processor, behind CUDA's ordering rules."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import DTypeLike

from cupy_turbo.core import sanitizing
from cupy_turbo.core.current_device import pop_device, push_device
from cupy_turbo.core.errors import DeviceError
from cupy_turbo.core.protocols import Array, DeviceStatistics, Shape, StreamHandle
from cupy_turbo.core.shared_handle import handle_of
from cupy_turbo.device.host_array import HostArray, aligned_memory
from cupy_turbo.device.host_compiler import load_kernel
from cupy_turbo.device.host_kernel import HostKernel
from cupy_turbo.device.host_policies import Policy, make_policy
from cupy_turbo.device.host_schedule import Operation, Schedule
from cupy_turbo.device.host_streams import HostCapture, HostEventHandle, HostStreamHandle
from cupy_turbo.device.machine import available_cores, free_and_total_memory
from cupy_turbo.device.queued_work import copy_work, domain_of, fill_work
from cupy_turbo.device.signature import parse_signature
from cupy_turbo.device.source import KernelLibrary

if TYPE_CHECKING:
    from cupy_turbo.core.stream import Stream


class HostDevice:
    """The processor of this machine as a device.

    Parameters
    ----------
    policy : {"fifo", "eager", "random"} or Policy
        Order of operations among those that CUDA allows.
    seed : int
        Of the `random` policy; if not 0, also of the order in which a launch's blocks, and a block's ready threads,
        run (`launch_seed`). A policy with a `choose_launch_seed` decides that for each launch instead.
    workers : int, optional
        OS threads that run blocks; default: all cores that this process may use.
    kernel_folders : sequence of paths
        Folders with more `.cu` files.

    Raises
    ------
    ValueError
        Unknown policy, or workers < 1.
    """

    name = "host"
    kind = "host"
    index = 0
    compute_capability = None

    def __init__(
        self,
        *,
        policy: str | Policy = "fifo",
        seed: int = 0,
        workers: int | None = None,
        kernel_folders: Sequence[Path | str] = (),
    ) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be >= 1, got {workers}")
        self.num_processors = workers or available_cores()
        self.launch_seed = seed
        self.schedule = Schedule(make_policy(policy, seed))
        self.capturing_threads: list[int] = []
        self._library = KernelLibrary(kernel_folders)
        self._kernels: dict[tuple[object, ...], HostKernel] = {}
        self._building: dict[tuple[object, ...], threading.RLock] = {}
        self._counting = threading.Lock()
        self._counts = {"device": 0, "device_bytes": 0, "pinned": 0, "pinned_bytes": 0}
        self._is_closed = False
        self.kernel_generation = 0
        self._process = os.getpid()

    @property
    def allocator(self) -> _Allocator:
        """`empty` as an `Allocator`."""
        return _Allocator(self.empty)

    @property
    def pinned_allocator(self) -> _Allocator:
        """`pinned` as a `PinnedAllocator`."""
        return _Allocator(self.pinned)

    def empty(self, shape: Shape, dtype: DTypeLike) -> HostArray:
        """Take an array that holds NaN, or 0x7B bytes if it is of integers."""
        return HostArray(self, self._allocate("device", shape, dtype, poison=True))

    def pinned(self, shape: Shape, dtype: DTypeLike) -> np.ndarray:
        """Take host memory, poisoned like `empty`."""
        return self._allocate("pinned", shape, dtype, poison=True)

    def _allocate(self, kind: str, shape: Shape, dtype: DTypeLike, *, poison: bool) -> np.ndarray:
        self._refuse("allocate")
        memory = aligned_memory(shape, np.dtype(dtype), poison=poison)
        with self._counting:
            self._counts[kind] += 1
            self._counts[f"{kind}_bytes"] += memory.nbytes
        if sanitizing.watch is not None:
            sanitizing.watch.allocated(memory, kind)
        return memory

    def stream_handle(self, priority: int) -> HostStreamHandle:
        """Make what a `Stream` owns."""
        self._refuse("make a stream")
        return HostStreamHandle(self, priority)

    def event_handle(self, timing: bool) -> HostEventHandle:
        """Make what an `Event` owns."""
        return HostEventHandle(self, timing)

    def kernel(self, name: str, **defines: str | int) -> HostKernel:
        """Compile ``kernels/<name>.cu`` with -D macros, once for each set of them; any thread may ask."""
        key = (name, *sorted(defines.items()))
        kernel = self._kernels.get(key)
        if kernel is None:
            # A lock for each variant: threads that want different ones compile at the same time.
            with self._building.setdefault(key, threading.RLock()):
                kernel = self._kernels.get(key) or self._load(name, defines)
                self._kernels[key] = kernel
        return kernel

    def _load(self, name: str, defines: dict[str, str | int]) -> HostKernel:
        source = self._library.read(name)
        signature = parse_signature(source.text, name, defines)
        return HostKernel(self, signature, load_kernel(source, self._library.include_folder, defines))

    def choose_launch_seed(self) -> int:
        """Return what decides the order of the coming launch's blocks and threads; 0: in order."""
        choose = getattr(self.schedule.policy, "choose_launch_seed", None)
        return self.launch_seed if choose is None else int(choose())

    def copy(self, dst: Array | np.ndarray, src: Array | np.ndarray, *, stream: Stream) -> None:
        """Queue a copy of equal bytes between contiguous arrays; a host array is read when the copy runs."""
        if isinstance(dst, np.ndarray) and isinstance(src, np.ndarray):
            raise TypeError("copy takes at least one device array, got two NumPy arrays")
        target, target_range = self._bytes_of("dst", dst)
        source, source_range = self._bytes_of("src", src)
        if target.size != source.size:
            raise ValueError(f"copy: dst has {target.size} bytes, src has {source.size}")
        if not target.flags.writeable:
            raise ValueError("copy: dst is read-only")
        queue = self.stream_of(stream, "copy")
        operation = Operation("copy", lambda: np.copyto(target, source), reads=(source_range,), writes=(target_range,))
        if sanitizing.watch is not None or queue.capture is not None:
            queue.note(operation, copy_work(dst, src))
        self.schedule.enqueue(queue, [operation])

    def fill(self, array: Array, byte: int, *, stream: Stream) -> None:
        """Queue the setting of every byte, 0 <= byte <= 255."""
        if not 0 <= byte <= 255:
            raise ValueError(f"fill takes a byte, 0 to 255, got {byte}")
        target, target_range = self._bytes_of("array", array)
        queue = self.stream_of(stream, "fill")
        operation = Operation("fill", lambda: target.fill(byte), writes=(target_range,))
        if sanitizing.watch is not None or queue.capture is not None:
            queue.note(operation, fill_work(array))
        self.schedule.enqueue(queue, [operation])

    def _bytes_of(self, what: str, array: Array | np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
        """View an operand as bytes; the view keeps it alive."""
        if not isinstance(array, (HostArray, np.ndarray)):
            raise TypeError(f"{what} is {type(array).__name__}, not an array of this device or a NumPy array")
        if isinstance(array, HostArray) and array.device is not self:
            raise ValueError(f"{what} lives on another device, {array.device.name}")
        if not array.flags.c_contiguous:
            raise ValueError(f"{what} is not contiguous")
        memory = array.memory if isinstance(array, HostArray) else array
        address = memory.__array_interface__["data"][0]
        return memory.reshape(-1).view(np.uint8), (address, address + memory.nbytes)

    def stream_of(self, stream: Stream, call: str) -> HostStreamHandle:
        """Return the handle of a stream of this device; ValueError if it is null or another device's."""
        target: StreamHandle = handle_of(stream, "Stream", call)
        if not isinstance(target, HostStreamHandle) or target.device is not self:
            raise ValueError(f"{call}: the stream belongs to another device, {target.device.name}")
        return target

    def upload(self, host_array: np.ndarray) -> HostArray:
        """Copy to a new device array."""
        host_array = np.asarray(host_array)
        memory = self._allocate("device", host_array.shape, host_array.dtype, poison=False)
        memory[...] = host_array
        return HostArray(self, memory)

    def fetch(self, array: Array) -> np.ndarray:
        """Wait for the whole device, then copy to a new host array."""
        if not isinstance(array, HostArray) or array.device is not self:
            raise TypeError(f"fetch takes an array of this device, got {array!r}")
        self.synchronize()
        return array.memory.copy()

    def capture(self, stream: Stream) -> AbstractContextManager[HostCapture]:
        """Record what the stream is given inside, instead of running it; allocating or waiting inside is an error."""
        return HostCapture().of(self.stream_of(stream, "capture()"))

    def synchronize(self) -> None:
        """Wait for all work on the device; raise the first failure that nobody has had."""
        self._refuse("wait")
        if sanitizing.watch is None:
            self.schedule.run_all()
        else:
            sanitizing.watch.synchronize_device(domain_of(self), self.schedule.run_all)

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of this machine, or of the container's limit."""
        return free_and_total_memory()

    def statistics(self) -> DeviceStatistics:
        """Count allocations since the device was opened."""
        counts = self._counts
        return DeviceStatistics(
            device_allocations=counts["device"],
            device_bytes=counts["device_bytes"],
            pinned_allocations=counts["pinned"],
            pinned_bytes=counts["pinned_bytes"],
        )

    def reload_kernels(self) -> None:
        """Forget compiled kernels, so that edited files are read again."""
        self._kernels.clear()
        self.kernel_generation += 1

    def close(self) -> None:
        """Run what is pending and refuse further allocations; idempotent. A failure nobody waited for is dropped."""
        if not self._is_closed and self._process == os.getpid():
            if sanitizing.watch is not None:
                sanitizing.watch.close_device(domain_of(self))
            with suppress(DeviceError):
                self.schedule.run_all()
        self._is_closed = True

    def _refuse(self, what: str) -> None:
        """Raise where a GPU would fail: in a capture, after close, in a forked child."""
        if self.capturing_threads and threading.get_ident() in self.capturing_threads:
            raise DeviceError(f"cannot {what} while this thread captures a stream")
        if self._is_closed:
            raise DeviceError(f"cannot {what}: the device is closed")
        if self._process != os.getpid():
            raise DeviceError(f"cannot {what}: the device was opened in process {self._process}, before a fork")

    def __enter__(self) -> Self:
        push_device(self)
        return self

    def __exit__(self, *exc: object) -> None:
        pop_device(self)

    def __repr__(self) -> str:
        return f"HostDevice({self.num_processors} cores, {len(self.schedule.pending())} operations pending)"


class _Allocator:
    """`allocate` as a bound method of the device."""

    def __init__(self, allocate: Any) -> None:
        self.allocate = allocate
