"""Device memory of the host device: a NumPy array that behaves as if it were out of reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike

from cupy_turbo.core.handles import Shape
from cupy_turbo.device.host_sanitizers import poison_around, redzone_bytes

if TYPE_CHECKING:
    from cupy_turbo.device.host import HostDevice

ALIGNMENT = 256
"""Bytes; what a CUDA allocation guarantees."""


def aligned_memory(shape: Shape, dtype: np.dtype[Any], *, poison: bool) -> np.ndarray:
    """Return a new array at a multiple of 256 bytes.

    Parameters
    ----------
    shape : int or sequence of int
        Extents, >= 0.
    dtype : numpy.dtype
        Element type.
    poison : bool
        Fill it with NaN (floating types) or 0x7B bytes, so that reading what nobody wrote shows.
    """
    extents = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(extent) for extent in shape)
    if any(extent < 0 for extent in extents):
        raise ValueError(f"an array cannot have a negative extent, got shape {extents}")
    nbytes = int(np.prod(extents, dtype=np.int64)) * dtype.itemsize
    redzone = redzone_bytes()
    buffer = np.empty(nbytes + ALIGNMENT + 2 * redzone, np.uint8)
    offset = -(buffer.ctypes.data + redzone) % ALIGNMENT + redzone
    memory = buffer[offset : offset + nbytes]
    if redzone:
        poison_around(buffer, memory)
    if poison:
        # bfloat16 is a NumPy extension type of kind "V"; 0xFF bytes are NaN in every floating type.
        memory.fill(0xFF if dtype.kind in "fV" else 1 if dtype.kind == "b" else 0x7B)
    return memory.view(dtype).reshape(extents)


class HostArray:
    """An array of the host device; Python sees its elements only through `get`.

    Reading it as if it were a NumPy array would work here, without the wait that a GPU needs, and fail there; so it
    is refused.

    Parameters
    ----------
    device : HostDevice
        Owner.
    memory : numpy.ndarray
        The elements.
    """

    __slots__ = ("__weakref__", "device", "memory", "pointer")
    __hash__ = object.__hash__

    def __init__(self, device: HostDevice, memory: np.ndarray) -> None:
        self.device = device
        self.memory = memory
        self.pointer: int = memory.__array_interface__["data"][0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis."""
        return self.memory.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.memory.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.memory.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.memory.size

    @property
    def nbytes(self) -> int:
        """Size of the elements in bytes."""
        return self.memory.nbytes

    @property
    def flags(self) -> Any:
        """NumPy's layout flags; `flags.c_contiguous` is what a launch asks."""
        return self.memory.flags

    @property
    def address_range(self) -> tuple[int, int]:
        """First address, and the one behind the last, of a contiguous array."""
        return self.pointer, self.pointer + self.memory.nbytes

    def __len__(self) -> int:
        return len(self.memory)

    def __getitem__(self, key: object) -> HostArray:
        """View by integers and slices of step 1."""
        for part in key if isinstance(key, tuple) else (key,):
            is_slice = isinstance(part, slice) and part.step in (None, 1)
            if not is_slice and (not isinstance(part, (int, np.integer)) or isinstance(part, bool)):
                raise TypeError(f"a device array takes integers and slices of step 1, got {part!r}")
        # A trailing Ellipsis makes NumPy return a view of one element instead of its value.
        parts: Any = (*key, ...) if isinstance(key, tuple) else (key, ...)
        return HostArray(self.device, self.memory[parts])

    def reshape(self, *shape: Any) -> HostArray:
        """View with another shape of the same size; never copies."""
        if not self.memory.flags.c_contiguous:
            raise ValueError("reshape of an array that is not contiguous would copy it")
        return HostArray(self.device, self.memory.reshape(*shape))

    def view(self, dtype: DTypeLike) -> HostArray:
        """View with another element type."""
        return HostArray(self.device, self.memory.view(dtype))

    def get(self) -> np.ndarray:
        """Wait for the whole device, then copy to a new host array."""
        return self.device.fetch(self)

    def __repr__(self) -> str:
        return f"HostArray(shape={self.shape}, dtype={self.dtype}, device={self.device.name})"

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError("a device array is not readable from Python: use .get() or device.fetch(array) for a copy")

    __array__ = __array_ufunc__ = __array_function__ = __iter__ = __bool__ = __setitem__ = _refuse
    __int__ = __float__ = __index__ = __complex__ = __contains__ = __eq__ = __ne__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __abs__ = __invert__ = _refuse
    __add__ = __radd__ = __iadd__ = __sub__ = __rsub__ = __isub__ = __mul__ = __rmul__ = __imul__ = _refuse
    __truediv__ = __rtruediv__ = __itruediv__ = __floordiv__ = __mod__ = __pow__ = __matmul__ = __rmatmul__ = _refuse
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = _refuse
