"""Kernel signatures, parsed from the `.cu` file: the one truth about how arguments are passed.

A launcher that takes types from the Python values is wrong in silence: a Python float travels as float64 and a kernel
that wants float reads zeros. So every argument is converted to what the kernel's own text declares.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import ml_dtypes
import numpy as np

from cupy_turbo.core.dtypes import c_name, from_c_name
from cupy_turbo.core.protocols import Array

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)[ \t]+([^\n]+?)[ \t]*$", re.MULTILINE)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_ENTRY = r'extern\s+"C"\s+__global__\s[^;{{}}]*?\b{name}\s*\('
_IGNORED = {"__restrict__", "__restrict", "__grid_constant__", "struct"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel parameter.

    Parameters
    ----------
    name : str
        As the kernel spells it.
    kind : {"pointer", "scalar"}
        How it is passed.
    dtype : numpy.dtype or None
        Type of the scalar or of the pointee; None for `void*`, which takes an array of any type.
    is_const : bool
        For a pointer: the kernel only reads through it.
    """

    name: str
    kind: Literal["pointer", "scalar"]
    dtype: np.dtype | None
    is_const: bool

    def __str__(self) -> str:
        type_name = "void" if self.dtype is None else c_name(self.dtype)
        if self.kind == "scalar":
            return f"{type_name} {self.name}"
        return f"{'const ' if self.is_const else ''}{type_name}* {self.name}"


@dataclass(frozen=True, slots=True)
class Signature:
    """Name and parameters of a kernel.

    Parameters
    ----------
    name : str
        The entry.
    parameters : tuple of Parameter
        In order.
    """

    name: str
    parameters: tuple[Parameter, ...]

    def convert(self, args: Sequence[object]) -> list[np.generic | Array | None]:
        """Return `args` as the kernel takes them: NumPy scalars of the exact type, arrays, None for a null pointer.

        Raises
        ------
        TypeError
            Wrong number of arguments, a float for an integer, an array of another dtype, a host array.
        OverflowError
            A number that its parameter cannot hold.
        ValueError
            An array that is not C-contiguous: a kernel sees an address and no strides.
        """
        if len(args) != len(self.parameters):
            wanted = ", ".join(map(str, self.parameters))
            raise TypeError(f"{self.name} takes {len(self.parameters)} arguments ({wanted}), got {len(args)}")
        return [
            self._scalar(parameter, value) if parameter.kind == "scalar" else self._pointer(parameter, value)
            for parameter, value in zip(self.parameters, args, strict=True)
        ]

    def _scalar(self, parameter: Parameter, value: object) -> np.generic:
        dtype = parameter.dtype
        assert dtype is not None, parameter
        kind, low, high = _range(dtype)
        if kind == "integer":
            if not isinstance(value, (int, np.integer, np.bool_)):
                raise TypeError(f"{self.name}: {parameter} takes an integer, got {value!r}")
            if not low <= int(value) <= high:
                raise OverflowError(f"{self.name}: {parameter} holds {low} to {high}, got {value}")
        elif kind == "bool":
            if not isinstance(value, (bool, np.bool_)):
                raise TypeError(f"{self.name}: {parameter} takes a bool, got {value!r}")
        else:
            if not isinstance(value, (int, float, np.integer, np.floating)):
                raise TypeError(f"{self.name}: {parameter} takes a number, got {value!r}")
            if not low <= value <= high and (isinstance(value, int) or math.isfinite(value)):
                raise OverflowError(f"{self.name}: {parameter} holds finite values up to {high:g}, got {value!r}")
        scalar: np.generic = dtype.type(value)
        return scalar

    def _pointer(self, parameter: Parameter, value: object) -> Array | None:
        if value is None:
            return None
        if isinstance(value, np.ndarray):
            raise TypeError(
                f"{self.name}: {parameter} takes a device array, got a NumPy array: device.upload(array) makes one"
            )
        dtype, flags = getattr(value, "dtype", None), getattr(value, "flags", None)
        if dtype is None or flags is None:
            raise TypeError(f"{self.name}: {parameter} takes a device array or None, got {value!r}")
        if parameter.dtype is not None and dtype != parameter.dtype:
            raise TypeError(f"{self.name}: {parameter} takes {parameter.dtype} elements, got an array of {dtype}")
        if not flags.c_contiguous:
            raise ValueError(f"{self.name}: {parameter} takes a C-contiguous array: a kernel sees no strides")
        return value  # type: ignore[return-value]


@functools.cache
def _range(dtype: np.dtype) -> tuple[str, float, float]:
    """Kind of a scalar, and its least and greatest finite value; cached, for a launch asks once an argument."""
    if dtype.kind in "iu":
        integers = np.iinfo(dtype)
        return "integer", integers.min, integers.max
    if dtype.kind == "b":
        return "bool", 0, 1
    greatest = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    return "float", -greatest, greatest


def parse_signature(text: str, name: str, defines: Mapping[str, str | int]) -> Signature:
    """Parse `extern "C" __global__ void name(...)`.

    Parameters
    ----------
    text : str
        Content of the `.cu` file.
    name : str
        The entry to find.
    defines : mapping
        The `-D` macros; with the file's own object-like `#define`s they are replaced in types.

    Raises
    ------
    ValueError
        No such entry, or a parameter type that has no NumPy counterpart.
    """
    text = _COMMENT.sub(" ", text).replace("\\\n", " ")
    macros = dict(_MACRO.findall(text)) | {k: str(v) for k, v in defines.items()}
    entry = re.search(_ENTRY.format(name=re.escape(name)), text)
    if entry is None:
        raise ValueError(f'{name}.cu has no extern "C" __global__ void {name}(...)')
    depth, stop = 1, entry.end()
    while stop < len(text) and depth:
        depth += {"(": 1, ")": -1}.get(text[stop], 0)
        stop += 1
    declarations = [part.strip() for part in text[entry.end() : stop - 1].split(",")]
    if declarations in ([""], ["void"]):
        return Signature(name, ())
    return Signature(name, tuple(_parameter(name, declaration, macros) for declaration in declarations))


def _expand(text: str, macros: Mapping[str, str]) -> str:
    for _ in range(8):  # a macro may stand for another one
        expanded = _IDENTIFIER.sub(lambda match: macros.get(match.group(), match.group()), text)
        if expanded == text:
            break
        text = expanded
    return text


def _parameter(kernel: str, declaration: str, macros: Mapping[str, str]) -> Parameter:
    head, match = declaration, re.search(r"([A-Za-z_]\w*)\s*$", declaration)
    if match is not None:
        head = declaration[: match.start()]
    words = [word for word in re.findall(r"\w+|\*", _expand(head, macros)) if word not in _IGNORED]
    pointers = words.count("*")
    if match is None or pointers > 1 or not words:
        raise ValueError(f"{kernel}: parameter {declaration!r} is neither a scalar nor a plain pointer")
    before = words[: words.index("*")] if pointers else words
    type_name = " ".join(word for word in before if word != "const")
    try:
        dtype = None if type_name == "void" and pointers else from_c_name(type_name)
    except ValueError as error:
        raise ValueError(f"{kernel}: parameter {declaration!r}: {error}") from None
    return Parameter(match.group(1), "pointer" if pointers else "scalar", dtype, bool(pointers) and "const" in before)
