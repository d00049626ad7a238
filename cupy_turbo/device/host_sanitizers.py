"""Kernels and their runtime built for AddressSanitizer and UndefinedBehaviorSanitizer, if the environment asks for it.

``CUPY_TURBO_HOST_SANITIZE=address,undefined`` is read once a process. A finding ends the process with the sanitizer's
report. AddressSanitizer must be in the process before Python is: `tools/host_sanitize.sh` starts one so.
"""

from __future__ import annotations

import ctypes
import functools
import os

import numpy as np

from cupy_turbo.core.errors import DeviceUnavailableError

VARIABLE = "CUPY_TURBO_HOST_SANITIZE"

MAX_FRAME_BYTES = 128 << 10
"""Of one function of a kernel: redzones make frames several times larger."""

_STACK_BYTES = 256 << 10  # of a fiber

REDZONE_BYTES = 2048
"""On each side of an array. More than 1024: NumPy keeps small pieces of memory for itself, poisoned as they were."""

_KNOWN = ("address", "undefined")


@functools.cache
def sanitizers() -> tuple[str, ...]:
    """Return what `CUPY_TURBO_HOST_SANITIZE` names: "address", "undefined", both or nothing.

    Raises
    ------
    DeviceUnavailableError
        For any other name.
    """
    value = os.environ.get(VARIABLE, "")
    names = {name.strip() for name in value.split(",")} - {""}
    if unknown := sorted(names.difference(_KNOWN)):
        raise DeviceUnavailableError(f"{VARIABLE}={value}: {unknown[0]!r} is none of {', '.join(_KNOWN)}")
    return tuple(sorted(names))


def sanitizer_flags(compiler: str) -> list[str]:
    """Return the compiler's flags, behind all others.

    Parameters
    ----------
    compiler : str
        What it says of itself.

    Raises
    ------
    DeviceUnavailableError
        If it is not g++; or AddressSanitizer is wanted in a process that was started without it.
    """
    if not sanitizers():
        return []
    if "clang" in compiler:
        raise DeviceUnavailableError(f"{VARIABLE} needs g++, and the C++ compiler is {compiler}: set CXX=g++")
    flags = [f"-fsanitize={','.join(sanitizers())}", "-fno-omit-frame-pointer", "-g1"]
    if "undefined" in sanitizers():
        flags.append("-fsanitize=float-cast-overflow")  # not in "undefined", and another value than CUDA's
    if "address" in sanitizers():
        if _address_sanitizer() is None:
            raise DeviceUnavailableError(
                f"{VARIABLE}=address needs AddressSanitizer in the process before Python: start it with "
                "LD_PRELOAD=$(g++ -print-file-name=libasan.so), as tools/host_sanitize.sh does"
            )
        flags.append("-fsanitize-sections=turbo_shared")
    # -O1: -O3 takes several times as long to compile, and removes accesses before they are checked.
    return [*flags, "-fno-sanitize-recover=all", "-O1", "-DTURBO_SANITIZED", f"-DTURBO_STACK_BYTES={_STACK_BYTES}"]


def compiler_environment() -> dict[str, str]:
    """Return the environment for the compiler, which is not what is to be watched."""
    return {name: value for name, value in os.environ.items() if not (name == "LD_PRELOAD" and sanitizers())}


@functools.cache
def _address_sanitizer() -> ctypes.CDLL | None:
    process = ctypes.CDLL(None)
    return process if hasattr(process, "__asan_poison_memory_region") else None


def redzone_bytes() -> int:
    """Return how many bytes an array has to leave free on each side: 0 without AddressSanitizer."""
    return REDZONE_BYTES if "address" in sanitizers() else 0


def poison_around(buffer: np.ndarray, memory: np.ndarray) -> None:
    """Make a kernel's use of the rest of an array's buffer an error; the allocator lifts that when it is freed.

    Parameters
    ----------
    buffer : numpy.ndarray
        Bytes, more than 1024.
    memory : numpy.ndarray
        The part of it that the kernels may use.
    """
    process = _address_sanitizer()
    if process is None or "address" not in sanitizers():
        return
    start, stop = buffer.ctypes.data, buffer.ctypes.data + buffer.nbytes
    first, last = memory.ctypes.data, memory.ctypes.data + memory.nbytes
    for low, high in ((start, first), (last, stop)):
        process.__asan_poison_memory_region(ctypes.c_void_p(low), ctypes.c_size_t(high - low))
