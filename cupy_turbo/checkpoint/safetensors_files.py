"""Tensors of one or many safetensors files, listed from their headers and read on demand."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Protocol

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from cupy_turbo.checkpoint.checkpoint import NO_DTYPE, TensorSpec
from cupy_turbo.checkpoint.json_file import read_json_object
from cupy_turbo.checkpoint.model_file import find_model_file
from cupy_turbo.core.dtypes import bfloat16, float16, float32
from cupy_turbo.core.errors import CheckpointError
from cupy_turbo.core.shown import shown, shown_name, shown_text

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_DTYPES = {"F32": float32, "F16": float16, "BF16": bfloat16}
_LFS_POINTER = b"version https://git-lfs"


class _Slice(Protocol):
    """What the safetensors library returns for a tensor that it has not read."""

    def get_shape(self) -> list[int]: ...

    def get_dtype(self) -> str: ...


def list_safetensors(folder: Path) -> dict[str, TensorSpec]:
    """Return the tensors of a folder's safetensors, read from the headers alone.

    Parameters
    ----------
    folder : path
        With `model.safetensors`, or `model.safetensors.index.json` and the files that it names.

    Raises
    ------
    CheckpointError
        If neither is there; if a file is cut short, longer than its header says, no safetensors, or a link that leads
        out of the folder; if the index names a file outside the folder, or disagrees with the files on what is where.

    Notes
    -----
    The safetensors library checks header and file against each other before it maps the file.
    """
    if find_model_file(folder / SINGLE_FILE) is not None:
        return _list_file(folder / SINGLE_FILE)
    if find_model_file(folder / INDEX_FILE) is None:
        raise CheckpointError(_nothing_found(folder))
    placed = _read_index(folder / INDEX_FILE)
    found: dict[str, TensorSpec] = {}
    for file in sorted(set(placed.values())):
        tensors = _list_file(folder / file)
        promised = {name for name, where in placed.items() if where == file}
        different = sorted(promised ^ tensors.keys())
        if different:
            raise CheckpointError(
                f"{folder / file} and {INDEX_FILE} disagree on {len(different)} tensors, for example "
                f"{shown_name(different[0])}"
            )
        found |= tensors
    return found


def _read_index(path: Path) -> dict[str, str]:
    placed = read_json_object(path).get("weight_map")
    if not isinstance(placed, dict) or not placed:
        raise CheckpointError(f"{path}: weight_map must be an object that says which file holds each tensor")
    for name, file in placed.items():
        # a plain name only: an index from elsewhere must not reach files outside its folder
        if not isinstance(file, str) or not re.fullmatch(r"[^\x00-\x1f]+\.safetensors", file) or not _is_plain(file):
            raise CheckpointError(
                f"{path}: {shown(name)} is said to be in {shown(file)}, which is no file of this folder"
            )
    return placed


def _is_plain(file: str) -> bool:
    return PurePosixPath(file).name == file and PureWindowsPath(file).name == file


def _list_file(path: Path) -> dict[str, TensorSpec]:
    if find_model_file(path) is None:
        raise CheckpointError(f"{path} does not exist")
    try:
        with safe_open(path, framework="numpy") as opened:
            return {name: _spec(path, name, opened.get_slice(name)) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise CheckpointError(_cannot_read(path, error)) from error


def _spec(path: Path, name: str, stored: _Slice) -> TensorSpec:
    code = str(stored.get_dtype())

    def read_rows(start: int, stop: int) -> npt.NDArray[np.generic]:
        # Opened anew for each read: a mapping that stayed open would keep every page it touched resident, and the
        # process would grow by the size of the file.
        try:
            with safe_open(path, framework="numpy") as opened:
                rows: npt.NDArray[np.generic] = opened.get_slice(name)[start:stop]
                return rows
        except (OSError, SafetensorError) as error:
            raise CheckpointError(_cannot_read(path, error)) from error

    return TensorSpec(name, tuple(stored.get_shape()), _DTYPES.get(code, NO_DTYPE), code, str(path), read_rows)


def _cannot_read(path: Path, error: Exception) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
            return f"{path} is a Git LFS pointer, not the file itself; fetch it with `git lfs pull`"
    return f"{path} is cut short, damaged, or no safetensors file: {shown_text(str(error))}"


def _nothing_found(folder: Path) -> str:
    others = sorted(path.name for path in folder.glob("*") if path.suffix in (".bin", ".pth", ".pt", ".gguf"))
    hint = f"; it has {', '.join(others[:4])}" if others else ""
    if any(name.endswith(".gguf") for name in others):
        hint += " (name the .gguf file itself to load it)"
    elif others:
        hint += " (pickled weights are not read: they can run code; convert them to safetensors)"
    return f"{folder} has neither {SINGLE_FILE} nor {INDEX_FILE}{hint}"
