"""What this installation can do here: the text of `cupy-turbo info`."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

from cupy_turbo import __version__
from cupy_turbo.checkpoint.presets import PRESETS
from cupy_turbo.core.errors import CupyTurboError
from cupy_turbo.device import nvrtc, open_device
from cupy_turbo.device.cache import cache_folder
from cupy_turbo.device.host_compiler import compiler_version
from cupy_turbo.device.machine import available_cores, has_nvidia_gpu
from cupy_turbo.models.config import ARCHITECTURES, SUPPORTED_FAMILIES

_GIB = 2**30
_VARIABLES = {
    "CUPY_TURBO_CACHE_DIR": "folder of compiled kernels",
    "CUPY_TURBO_HOST_FLAGS": "more flags for the C++ compiler",
    "CUPY_TURBO_HOST_SANITIZE": "address,undefined: sanitizers for host kernels; see tools/host_sanitize.sh",
    "CXX": "the C++ compiler",
    "CUDA_VISIBLE_DEVICES": "GPUs that CUDA shows",
    "HF_HOME": "folder of downloaded models",
    "HF_HUB_OFFLINE": "1: never download",
}


def describe_installation() -> str:
    """Return devices, compilers, caches, supported models and environment variables, one fact a line.

    Opens every GPU that CUDA shows; nothing that is missing is an error, and its remedy is part of the text.
    """
    sections = {
        f"cupy_turbo {__version__}": _versions(),
        "devices": _devices(),
        "compilers": _compilers(),
        "caches": _caches(),
        "models": _models(),
        "environment": _environment(),
    }
    return "\n".join(
        line for title, facts in sections.items() for line in (title, *(f"  {name:<26}{fact}" for name, fact in facts))
    )


def _versions() -> Iterator[tuple[str, str]]:
    yield "python", f"{platform.python_version()} on {platform.platform()}"
    for package in ("numpy", "tokenizers", "safetensors", "gguf", "cupy-cuda12x", "cupy-cuda13x"):
        yield package, _installed(package)


def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _devices() -> Iterator[tuple[str, str]]:
    yield "host", f"{available_cores()} cores"
    index = 0
    while True:
        try:
            with_gpu = open_device(f"cuda:{index}")
        except CupyTurboError as error:
            if index == 0:
                yield "cuda", f"not usable{', though this machine has a GPU' if has_nvidia_gpu() else ''}: {error}"
                yield "auto", "is host here, since cuda is not usable"
            return
        try:
            free, total = with_gpu.memory()
            major, minor = with_gpu.compute_capability or (0, 0)
            memory = f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB free"
            gpu = f"compute capability {major}.{minor}, {with_gpu.num_processors} multiprocessors, {memory}"
            yield with_gpu.name, gpu
        finally:
            with_gpu.close()
        index += 1


def _compilers() -> Iterator[tuple[str, str]]:
    yield "C++ (host)", _or_remedy(compiler_version)
    yield "NVRTC (cuda)", _or_remedy(lambda: "{}.{}".format(*nvrtc.version()))


def _or_remedy(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except CupyTurboError as error:
        return f"missing: {error}"


def _caches() -> Iterator[tuple[str, str]]:
    folder = cache_folder()
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    yield "compiled kernels", f"{folder} ({len(sizes)} files, {sum(sizes) / 1e6:.1f} MB; may be deleted at any time)"
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    yield "downloaded models", str(home / "hub")


def _models() -> Iterator[tuple[str, str]]:
    yield "families", SUPPORTED_FAMILIES
    yield "architectures", ", ".join(ARCHITECTURES)
    yield "forms", "'demo', a folder with safetensors, a .gguf file, a Hugging Face id, random:PRESET"
    yield "presets", ", ".join(PRESETS)


def _environment() -> Iterator[tuple[str, str]]:
    for name, meaning in _VARIABLES.items():
        yield name, f"{os.environ.get(name, 'not set')} ({meaning})"
