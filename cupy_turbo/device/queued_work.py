"""An operation as the sanitizer and a graph's nodes know it: its name, what it touches, the arrays, the line."""

from __future__ import annotations

import array as buffers
import mmap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cupy_turbo.device.race_detector import Access, Origin
from cupy_turbo.device.source_line import find_origin

if TYPE_CHECKING:
    from cupy_turbo.device.signature import Signature

_OWNERS = (np.ndarray, bytes, bytearray, buffers.array, mmap.mmap)


class Work(NamedTuple):
    """One kernel launch, copy or fill."""

    name: str
    accesses: tuple[Access, ...]
    operands: tuple[Any, ...]
    """The arrays; in a graph this is what keeps them alive."""
    origin: Origin | None


def kernel_work(signature: Signature, arguments: Sequence[object]) -> Work:
    """Describe a launch: `const T*` is read, `T*` is written (and maybe read)."""
    accesses, operands = [], []
    for parameter, argument in zip(signature.parameters, arguments, strict=True):
        if parameter.kind == "pointer" and argument is not None:
            operands.append(argument)
            start, stop = address_range(argument)
            if start < stop:
                accesses.append(Access(parameter.name, start, stop, not parameter.is_const))
    return Work(signature.name, tuple(accesses), tuple(operands), find_origin())


def copy_work(dst: Any, src: Any) -> Work:
    """Describe a copy."""
    accesses = _accesses("src", src, writes=False) + _accesses("dst", dst, writes=True)
    return Work("copy", tuple(accesses), (dst, src), find_origin())


def fill_work(array: Any) -> Work:
    """Describe a fill."""
    return Work("fill", tuple(_accesses("array", array, writes=True)), (array,), find_origin())


def domain_of(device: Any) -> str:
    """Name what a wait for a whole device covers: a GPU, whoever has opened it, or one host device."""
    return str(device.name) if device.kind == "cuda" else f"host {id(device):x}"


def address_range(array: Any) -> tuple[int, int]:
    """Return the first address of an array, of the host or of a device, and the one behind its last."""
    if isinstance(array, np.ndarray):
        start = array.__array_interface__["data"][0]
    elif hasattr(array, "pointer"):  # the host device's
        start = array.pointer
    else:  # CuPy's
        start = array.data.ptr
    return start, start + array.nbytes


def memory_owner(array: Any) -> tuple[Any, bool]:
    """Return what keeps an array's memory alive, and whether that is known to own it.

    A view made from a bare address (`__array_interface__`, ctypes' `from_address`, CuPy's `UnownedMemory`) has nothing
    that owns.
    """
    owner = getattr(array, "memory", array)  # the host device's arrays wrap NumPy's
    if not isinstance(owner, np.ndarray):
        memory = array.data.mem
        allocation = getattr(memory, "_owner", None)
        if allocation is not None:
            return allocation, True
        return memory, type(memory).__name__ != "UnownedMemory"
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    if isinstance(owner, memoryview):  # what NumPy keeps of ctypes' objects and other buffers
        owner = owner.obj
    is_ctypes_own = bool(getattr(owner, "_b_needsfree_", False))
    return owner, is_ctypes_own or isinstance(owner, _OWNERS) or (
        hasattr(owner, "nbytes") and hasattr(owner, "pointer")
    )


def _accesses(label: str, array: Any, *, writes: bool) -> list[Access]:
    start, stop = address_range(array)
    return [Access(label, start, stop, writes)] if stop > start else []
