"""What a device is: the verbs that everything above the `device` package is written against. No back end, no CuPy.

Memory and handles are described in `core.handles`; import all of them from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike

from cupy_turbo.core.handles import Allocator as Allocator
from cupy_turbo.core.handles import Array as Array
from cupy_turbo.core.handles import EventHandle as EventHandle
from cupy_turbo.core.handles import PinnedAllocator as PinnedAllocator
from cupy_turbo.core.handles import Shape as Shape
from cupy_turbo.core.handles import StreamHandle as StreamHandle

if TYPE_CHECKING:
    from cupy_turbo.core.stream import Stream

LaunchSize = int | Sequence[int]


@runtime_checkable
class Kernel(Protocol):
    """A compiled kernel.

    Examples
    --------
    >>> from cupy_turbo.device import open_device
    >>> kernel = open_device("host").kernel("silu_mul", TYPE="float")
    >>> isinstance(kernel, Kernel), kernel.name
    (True, 'silu_mul')
    """

    @property
    def name(self) -> str:
        """Name of the file and of the entry in it."""

    def __call__(
        self, grid: LaunchSize, block: LaunchSize, args: Sequence[object], *, shared_bytes: int = 0, stream: Stream
    ) -> None:
        """Queue one launch; a zero in `grid` returns at once.

        Parameters
        ----------
        grid, block : int or 1 to 3 int
            Blocks, and threads of each block.
        args : sequence
            In the order of the kernel's parameters and converted by its signature. A number must fit its parameter;
            an array must have the pointee's dtype, be C-contiguous and live on the stream's device; None is a null
            pointer.
        shared_bytes : int, default 0
            Dynamic shared memory of a block.
        stream : Stream
            What it is queued on.

        Raises
        ------
        TypeError, OverflowError
            If an argument does not fit, naming kernel and parameter.
        """


@runtime_checkable
class Graph(Protocol):
    """Captured work that one call queues again.

    Examples
    --------
    >>> from cupy_turbo.core.stream import Stream
    >>> from cupy_turbo.device import open_device
    >>> device = open_device("host")
    >>> stream, array = Stream.create(device=device), device.empty(4, np.uint8)
    >>> with device.capture(stream) as captured:
    ...     device.fill(array, 7, stream=stream)
    >>> captured.graph.launch(stream)
    >>> array.get().tolist()
    [7, 7, 7, 7]
    """

    def launch(self, stream: Stream) -> None:
        """Queue all of it on a stream, with the addresses it was captured with."""


class GraphCapture(Protocol):
    """What ``with device.capture(stream) as captured`` gives; see `Graph`.

    Examples
    --------
    >>> from cupy_turbo.core.stream import Stream
    >>> from cupy_turbo.device import open_device
    >>> device = open_device("host")
    >>> with device.capture(Stream.create(device=device)) as captured:
    ...     pass
    >>> isinstance(captured.graph, Graph)
    True
    """

    @property
    def graph(self) -> Graph:
        """The captured work, once the ``with`` was left without an exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStatistics:
    """Allocations of a device since it was opened; frees are not subtracted.

    Parameters
    ----------
    device_allocations, device_bytes : int
        Device memory.
    pinned_allocations, pinned_bytes : int
        Pinned host memory.

    Examples
    --------
    >>> from cupy_turbo.device import open_device
    >>> device = open_device("host")
    >>> before = device.statistics()
    >>> array = device.empty((16,), np.float32)
    >>> device.statistics().device_allocations - before.device_allocations
    1
    """

    device_allocations: int
    device_bytes: int
    pinned_allocations: int
    pinned_bytes: int


@runtime_checkable
class Device(Protocol):
    """A place with memory, streams and kernels; `cupy_turbo.device.open_device` opens one.

    ``with device:`` makes it the thread's current device and does not close it. A device may also have
    ``activate(stream_handle)``, a context manager that `Context` enters around the code that runs on that stream.

    Examples
    --------
    >>> from cupy_turbo.core.stream import Stream
    >>> from cupy_turbo.device import open_device
    >>> device = open_device("host")
    >>> isinstance(device, Device)
    True
    >>> source, target = device.pinned((4,), np.float32), device.empty((4,), np.float32)
    >>> source[:] = 1.5
    >>> stream = Stream.create(device=device)
    >>> device.copy(target, source, stream=stream)
    >>> device.fetch(target).tolist()
    [1.5, 1.5, 1.5, 1.5]
    """

    @property
    def name(self) -> str:
        """``"host"``, or ``"cuda:0"`` and so on."""

    @property
    def kind(self) -> str:
        """``"host"`` or ``"cuda"``."""

    @property
    def index(self) -> int:
        """Number of the GPU, 0 on `host`."""

    @property
    def compute_capability(self) -> tuple[int, int] | None:
        """(major, minor), None on `host`."""

    @property
    def num_processors(self) -> int:
        """Multiprocessors, or cores on `host`."""

    @property
    def allocator(self) -> Allocator:
        """`empty` as an `Allocator`."""

    @property
    def pinned_allocator(self) -> PinnedAllocator:
        """`pinned` as a `PinnedAllocator`."""

    def empty(self, shape: Shape, dtype: DTypeLike) -> Array:
        """Take an array; on `host` it holds NaN (0x7B bytes in integers), so that reading it shows."""

    def pinned(self, shape: Shape, dtype: DTypeLike) -> np.ndarray:
        """Take pinned host memory."""

    def stream_handle(self, priority: int) -> StreamHandle:
        """Make what a `Stream` owns."""

    def event_handle(self, timing: bool) -> EventHandle:
        """Make what an `Event` owns."""

    def kernel(self, name: str, **defines: str | int) -> Kernel:
        """Compile ``kernels/<name>.cu`` with -D macros, once for each set of them; any thread may ask."""

    def copy(self, dst: Array | np.ndarray, src: Array | np.ndarray, *, stream: Stream) -> None:
        """Queue a copy of equal bytes between contiguous arrays, keeping both alive until it has run.

        A pinned source is read when the copy runs: written before that, it gives the new bytes.
        """

    def fill(self, array: Array, byte: int, *, stream: Stream) -> None:
        """Queue the setting of every byte, 0 <= byte <= 255."""

    def upload(self, host_array: np.ndarray) -> Array:
        """Copy to a new device array, and wait."""

    def fetch(self, array: Array) -> np.ndarray:
        """Wait for the whole device, then copy to a new host array."""

    def capture(self, stream: Stream) -> AbstractContextManager[GraphCapture]:
        """Record what the stream is given inside, instead of running it; allocating or waiting inside is an error."""

    def synchronize(self) -> None:
        """Wait for all work on the device."""

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes."""

    def statistics(self) -> DeviceStatistics:
        """Count allocations since the device was opened."""

    @property
    def kernel_generation(self) -> int:
        """How often `reload_kernels` was called: a graph captured before holds kernels of an older generation."""

    def reload_kernels(self) -> None:
        """Forget compiled kernels, so that edited files are read again."""

    def close(self) -> None:
        """Wait for all work and let go; idempotent."""

    def __enter__(self) -> Device:
        """Make this the thread's current device."""

    def __exit__(self, *exc: object) -> None:
        """Make the one before current again."""
