"""Kernels as shared objects: the system's C++ compiler, the emulation library, and the disk cache around both."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cupy_turbo.core.errors import CompileError, DeviceUnavailableError
from cupy_turbo.device.cache import DiskCache, cache_key
from cupy_turbo.device.host_sanitizers import MAX_FRAME_BYTES as MAX_SANITIZED_FRAME_BYTES
from cupy_turbo.device.host_sanitizers import compiler_environment, sanitizer_flags, sanitizers
from cupy_turbo.device.source import KernelSource, kernel_folder

REMEDY = "install one (Debian, Ubuntu: apt-get install g++) or set CXX to its path"

# No -ffast-math: NaN must survive. -fno-strict-aliasing: kernels reinterpret vectors freely, as CUDA allows.
_FLAGS = shlex.split(
    "-std=c++17 -O3 -march=native -fPIC -shared -pthread -fvisibility=hidden -fno-exceptions -fno-math-errno "
    "-fno-strict-aliasing -fno-trapping-math -ffp-contract=fast -Wno-unknown-pragmas"
)
MAX_FRAME_BYTES = 32 << 10
"""Of one function of a kernel: a fiber has 64 KiB of stack, and no guard page of its own."""

MAX_STATIC_SHARED_BYTES = 48 << 10
"""Of one block, in `__shared__` variables: what CUDA's compiler allows on any GPU."""

_RUNTIME_FILES = (
    "host_runtime.cpp",
    "host_fibers.cpp",
    "host_faults.cpp",
    "host_collectives.cpp",
    "host_matrix.cpp",
)
_RUNTIME_HEADERS = ("host_switch.h", "host_fibers.h", "host_meeting.h")


@functools.cache
def find_compiler() -> tuple[str, ...]:
    """Return the command of the C++ compiler: `CXX` if set, else g++, clang++ or c++.

    Raises
    ------
    DeviceUnavailableError
        If there is none.
    """
    configured = shlex.split(os.environ.get("CXX", ""))
    if configured:
        if shutil.which(configured[0]) is None:
            raise DeviceUnavailableError(f"CXX={os.environ['CXX']} is not a C++ compiler: unset it to use g++")
        return tuple(configured)
    for name in ("g++", "clang++", "c++"):
        if shutil.which(name) is not None:
            return (name,)
    raise DeviceUnavailableError(f"no C++ compiler, which runs the kernels on the host device, was found: {REMEDY}")


@functools.cache
def compiler_version() -> str:
    """Return what the compiler says of itself, in one line."""
    command = [*find_compiler(), "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]


@functools.cache
def _target() -> str:
    """Return what -march=native means here: a shared cache must not carry objects to another processor."""
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        features = re.search(r"^(?:flags|Features)\s*:.*$", cpuinfo, re.MULTILINE)
        model = re.search(r"^(?:model name|CPU part)\s*:.*$", cpuinfo, re.MULTILINE)
    except OSError:
        features = model = None
    return " ".join([platform.machine(), *(found.group() for found in (model, features) if found)])


def extra_flags() -> tuple[str, ...]:
    """Return the flags for every kernel from `CUPY_TURBO_HOST_FLAGS`, for example ``-fsanitize=undefined``."""
    return tuple(shlex.split(os.environ.get("CUPY_TURBO_HOST_FLAGS", "")))


def _compile(name: str, flags: Sequence[str], text: str) -> bytes:
    """Compile `text` to a shared object; CompileError holds the compiler's message."""
    with tempfile.TemporaryDirectory(prefix="cupy_turbo-") as folder:
        output = Path(folder) / "object.so"
        command = [*find_compiler(), *flags, "-x", "c++", "-", "-o", str(output)]
        environment = compiler_environment()
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, env=environment)
        if done.returncode != 0:
            raise CompileError(f"{name} does not compile for the host device:\n{done.stderr[:8000].rstrip()}")
        return output.read_bytes()


def _cached_object(cache: DiskCache, name: str, flags: Sequence[str], text: str, digest: str) -> Path:
    key = cache_key("host", digest, shlex.join([*find_compiler(), *flags]), compiler_version(), _target())
    return cache.fetch(key, ".so", lambda: _compile(name, flags, text))


def _machine_flags() -> list[str]:
    # A shadow stack would refuse to switch fibers.
    return ["-fcf-protection=none"] if platform.machine() in ("x86_64", "AMD64") else []


def _kernel_flags() -> list[str]:
    limit = f"frame-larger-than={MAX_SANITIZED_FRAME_BYTES if sanitizers() else MAX_FRAME_BYTES}"
    as_error = "-Werror=frame-larger-than" if "clang" in compiler_version() else f"-Werror={limit}"
    return ["-fno-plt", f"-W{limit}", as_error, *sanitizer_flags(compiler_version()), *extra_flags()]


class LaunchRequest(ctypes.Structure):
    """`Request` of host_runtime.cpp."""

    _fields_ = (
        ("entry", ctypes.c_uint64),
        ("static_place", ctypes.c_uint64),
        ("static_bytes", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("max_workers", ctypes.c_uint32),
    )


class LaunchReport(ctypes.Structure):
    """`Report` of host_fibers.h."""

    _fields_ = (("block", ctypes.c_uint32 * 3), ("thread", ctypes.c_uint32 * 3), ("reason", ctypes.c_char * 232))


@functools.cache
def load_runtime() -> ctypes.CDLL:
    """Build, once, the library that runs blocks, and make its symbols visible to kernels."""
    folder = Path(__file__).parent
    sources = [(folder / name).read_text(encoding="utf-8") for name in (*_RUNTIME_HEADERS, *_RUNTIME_FILES)]
    headers = kernel_folder() / "include"
    shared = [path.read_text(encoding="utf-8") for path in sorted(headers.glob("*.cuh"))]
    flags = [*_FLAGS, *_machine_flags(), f"-I{headers}", f"-I{folder}", *sanitizer_flags(compiler_version())]
    text = "".join(f'#include "{name}"\n' for name in _RUNTIME_FILES)
    path = _cached_object(DiskCache(), "the runtime", flags, text, cache_key(*sources, *shared))
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL | os.RTLD_NOW)
    library.turbo_find_shared.argtypes = (ctypes.c_void_p, ctypes.c_uint64 * 2)
    library.turbo_find_shared.restype = None
    library.turbo_launch.argtypes = (ctypes.POINTER(LaunchRequest), ctypes.c_char_p, ctypes.POINTER(LaunchReport))
    library.turbo_launch.restype = ctypes.c_int
    return library


@dataclass(frozen=True, slots=True)
class HostObject:
    """A loaded kernel.

    Parameters
    ----------
    entry : int
        Address of its `turbo_entry`.
    static_place, static_bytes : int
        Where its `__shared__` variables are: the number of their thread-local segment; see host_runtime.cpp.
    library : ctypes.CDLL
        Keeps the code mapped.
    """

    entry: int
    static_place: int
    static_bytes: int
    library: ctypes.CDLL


def load_kernel(source: KernelSource, include: Path, defines: Mapping[str, str | int]) -> HostObject:
    """Compile a kernel for the host device, or find it in the cache, and load it.

    Parameters
    ----------
    source : KernelSource
        The `.cu` file.
    include : Path
        Folder of the headers.
    defines : mapping
        The `-D` macros.

    Raises
    ------
    CompileError
        With the compiler's message; or more static shared memory than CUDA allows.
    DeviceUnavailableError
        If there is no compiler.
    """
    runtime = load_runtime()
    macros = [f"-D{name}={value}" for name, value in sorted(defines.items())]
    flags = [*_FLAGS, *_machine_flags(), *_kernel_flags(), f"-I{include}", *macros]
    # From standard input, so that what is compiled is what was hashed, under the file's own name in messages.
    text = f'#line 1 "{source.path}"\n{source.text}'
    path = _cached_object(DiskCache(), source.path.name, flags, text, source.digest)
    library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    entry = ctypes.cast(library.turbo_entry, ctypes.c_void_p).value
    assert entry is not None
    found = (ctypes.c_uint64 * 2)()
    runtime.turbo_find_shared(entry, found)
    static_place, static_bytes = found
    if static_bytes > MAX_STATIC_SHARED_BYTES:
        raise CompileError(
            f"{source.path.name}: {static_bytes} bytes of __shared__ variables exceed {MAX_STATIC_SHARED_BYTES}: "
            "use TURBO_DYNAMIC_SHARED"
        )
    return HostObject(entry, static_place, static_bytes, library)
