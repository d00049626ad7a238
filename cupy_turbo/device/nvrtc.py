"""Compile CUDA C++ to machine code with NVRTC: no CuPy, and no GPU.

NVRTC is called directly because CuPy adds flags of its own (`-ftz=true`, `-arch` of the present GPU), which would make
the same file mean something else here than in the compile test that runs without a GPU.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cupy_turbo.core.errors import CompileError, DeviceUnavailableError

REMEDY = "pip install 'cupy_turbo[cuda12]' (driver 525 or newer) or 'cupy_turbo[cuda13]' (driver 580 or newer)"

# -v asks ptxas for registers and spills; line numbers cost nothing at run time and let a profiler and
# compute-sanitizer name the line.
BASE_OPTIONS = ("--std=c++17", "-lineinfo", "--ptxas-options=-v")

# Kernels use 16-byte asynchronous copies and bfloat16 `mma`, which begin with this compute capability.
OLDEST_CAPABILITY = (8, 0)


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """What ptxas reports for one kernel; sizes in bytes per thread, shared memory in bytes per block."""

    kernel: str
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int


@functools.cache
def _bindings() -> Any:
    """Import NVRTC's bindings; DeviceUnavailableError says what to install where they or the library are missing."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()  # the first call loads the shared library
    except (ImportError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DeviceUnavailableError(f"NVRTC, CUDA's run-time compiler, is missing ({reason}): {REMEDY}") from None
    return nvrtc


def version() -> tuple[int, int]:
    """Return NVRTC's (major, minor) version; DeviceUnavailableError if it is not installed."""
    _, major, minor = _bindings().nvrtcVersion()
    return int(major), int(minor)


def architecture(capability: tuple[int, int]) -> str:
    """Return the newest architecture that this NVRTC knows and that a GPU of this compute capability runs.

    Parameters
    ----------
    capability : (major, minor)
        Compute capability, e.g. (9, 0).

    Returns
    -------
    str
        E.g. "sm_90". Machine code runs on the same major version and an equal or higher minor one.

    Raises
    ------
    DeviceUnavailableError
        If the GPU is older than the kernels need, or newer than this NVRTC.
    """
    major, minor = capability
    if capability < OLDEST_CAPABILITY:
        raise DeviceUnavailableError(
            f"the GPU has compute capability {major}.{minor}; the kernels need 8.0 or newer: use device='host'"
        )
    nvrtc = _bindings()
    known = nvrtc.nvrtcGetSupportedArchs()[1]
    usable = [arch for arch in known if 10 * major <= arch <= 10 * major + minor]
    if not usable:
        newest = ".".join(map(str, version()))
        raise DeviceUnavailableError(f"NVRTC {newest} is too old for compute capability {major}.{minor}: {REMEDY}")
    return f"sm_{max(usable)}"


def compile(
    source: str, name: str, options: Sequence[str] = (), arch: str = "sm_90", *, include: Path | None = None
) -> tuple[bytes, str]:
    """Compile one source file to a cubin. Safe to call from several threads.

    Parameters
    ----------
    source : str
        CUDA C++ text.
    name : str
        Name of the file in messages and line tables.
    options : sequence of str
        Compiler options besides `BASE_OPTIONS`, such as "-DTYPE=bf16".
    arch : str
        Real architecture, "sm_80" or newer.
    include : Path, optional
        The folder whose headers may be included. There is no other: kernels use no CUDA headers.

    Returns
    -------
    (bytes, str)
        The cubin, and the log with warnings and ptxas's figures (see `resource_usage`).

    Raises
    ------
    CompileError
        With the compiler's log, if it refuses the source or an option.
    DeviceUnavailableError
        If NVRTC is not installed.
    """
    nvrtc = _bindings()
    flags = [*BASE_OPTIONS, f"--gpu-architecture={arch}", *options]
    if include is not None:
        flags.append(f"--include-path={include}")
    error, program = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], [])
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC could not start on {name}: {error.name}")
    try:
        (error,) = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
        log = _read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).rstrip(b" \0\n").decode()
        if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            detail = log or error.name
            raise CompileError(
                f"{name} does not compile for {arch} with {' '.join(options) or 'no defines'}:\n{detail}"
            )
        return _read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _read(get_size: Any, get_bytes: Any, program: Any) -> bytes:
    """Fetch one of NVRTC's results: ask for its size, let NVRTC fill a buffer of that size."""
    _, size = get_size(program)
    buffer = bytes(size)  # the bindings write into the bytes object itself, as NVIDIA's own samples do
    get_bytes(program, buffer)
    return buffer


_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def resource_usage(log: str) -> list[ResourceUsage]:
    """Read ptxas's figures out of a log of `compile`, one entry per kernel, in the order of the log."""
    usages = []
    for section in re.split(r"(?=Compiling entry function)", log)[1:]:
        entry, frame, used = _ENTRY.search(section), _FRAME.search(section), _USED.search(section)
        if entry is None or frame is None or used is None:
            raise CompileError(f"ptxas's figures are not in the form this reader knows:\n{section}")
        stack, stores, loads = map(int, frame.groups())
        usages.append(ResourceUsage(entry[1], int(used[1]), stack, stores, loads, int(used[2] or 0)))
    return usages
