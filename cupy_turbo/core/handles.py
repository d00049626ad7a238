"""Protocols of what a device hands out: memory, and the handles that streams and events own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike

if TYPE_CHECKING:
    from cupy_turbo.core.protocols import Device

Shape = int | Sequence[int]


@runtime_checkable
class Array(Protocol):
    """Device memory with a shape and a dtype; Python sees its elements only through `get`.

    Examples
    --------
    >>> from cupy_turbo.device import open_device
    >>> array = open_device("host").upload(np.arange(6, dtype=np.int32).reshape(2, 3))
    >>> isinstance(array, Array), array.shape, array[1].get().tolist()
    (True, (2, 3), [3, 4, 5])
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""

    @property
    def ndim(self) -> int:
        """Number of axes."""

    @property
    def size(self) -> int:
        """Number of elements."""

    @property
    def nbytes(self) -> int:
        """Size of the elements in bytes."""

    def __getitem__(self, key: Any) -> Array:
        """View by integers and step-1 slices; whether it is contiguous is checked where it is used."""

    def reshape(self, *shape: Any) -> Array:
        """View with another shape of the same size."""

    def view(self, dtype: DTypeLike) -> Array:
        """View with another element type."""

    def get(self) -> np.ndarray:
        """Wait for the whole device, then copy to a new host array."""


@runtime_checkable
class Allocator(Protocol):
    """A source of device memory.

    Examples
    --------
    >>> from cupy_turbo.device import open_device
    >>> open_device("host").allocator.allocate((2, 2), np.float32).nbytes
    16
    """

    def allocate(self, shape: Shape, dtype: DTypeLike) -> Array:
        """Take an array with undefined contents."""


@runtime_checkable
class PinnedAllocator(Protocol):
    """A source of pinned host memory, which a GPU copies from and to by itself.

    Examples
    --------
    >>> from cupy_turbo.device import open_device
    >>> open_device("host").pinned_allocator.allocate((3,), np.int64).nbytes
    24
    """

    def allocate(self, shape: Shape, dtype: DTypeLike) -> np.ndarray:
        """Take an array with undefined contents."""


@runtime_checkable
class StreamHandle(Protocol):
    """The one underlying stream that copies of a `Stream` share; dropping the last owner never drops queued work.

    Examples
    --------
    >>> from cupy_turbo.device import open_device
    >>> isinstance(open_device("host").stream_handle(0), StreamHandle)
    True
    """

    @property
    def device(self) -> Device:
        """Where it lives."""

    @property
    def handle(self) -> int:
        """``cudaStream_t``, or a number of its own that is not zero."""

    @property
    def priority(self) -> int:
        """Lower is more urgent."""

    def synchronize(self) -> None:
        """Wait until all that is queued here has run."""

    def wait(self, event_handle: Any) -> None:
        """Hold back later work until the event's latest record has happened; a no-op if there is none."""


@runtime_checkable
class EventHandle(Protocol):
    """The one underlying event that copies of an `Event` share.

    Examples
    --------
    >>> from cupy_turbo.device import open_device
    >>> isinstance(open_device("host").event_handle(False), EventHandle)
    True
    """

    @property
    def device(self) -> Device:
        """Where it lives."""

    @property
    def handle(self) -> int:
        """``cudaEvent_t``, or a number of its own that is not zero."""

    @property
    def timing(self) -> bool:
        """Whether it keeps the time at which it happened."""

    def record(self, stream_handle: Any) -> None:
        """Happen when all that is queued on the stream so far has run."""

    def synchronize(self) -> None:
        """Wait until the latest record has happened; at once if there is none."""

    def query(self) -> bool:
        """Tell whether the latest record has happened; true if there is none."""

    def elapsed_since(self, other: Any) -> float:
        """Milliseconds from the other event to this one, both timing and happened; ValueError if never recorded."""
