"""Shape and dtype checks of operations, with dimensions named once and verified across arguments."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from cupy_turbo.core.dtypes import FLOAT_TYPES, c_name
from cupy_turbo.core.protocols import Array

INT32 = np.dtype(np.int32)
UINT64 = np.dtype(np.uint64)
FLOAT32 = np.dtype(np.float32)

ArraySpec = tuple[Array, str] | tuple[Array, str, np.dtype]
"""An array, its dimensions, and its dtype; without one it is of the operation's element type."""

_DIMENSION = re.compile(r"(?P<factor>\d+)?(?P<name>[A-Za-z]\w*)(?:\+(?P<extra>\d+))?|(?P<size>\d+)")


class Dims:
    """Sizes that `check` found, as attributes: ``dims.T``; and the element type of the operation.

    Parameters
    ----------
    sizes : dict
        Size of each named dimension.
    dtype : numpy.dtype or None
        Element type shared by the arguments that were given without a dtype; None if there were none.
    """

    __slots__ = ("_sizes", "dtype")

    def __init__(self, sizes: dict[str, int], dtype: np.dtype | None) -> None:
        self._sizes = sizes
        self.dtype = dtype

    def __getattr__(self, name: str) -> int:
        try:
            return self._sizes[name]
        except KeyError:
            raise AttributeError(f"no dimension {name!r} among {sorted(self._sizes)}") from None

    def __repr__(self) -> str:
        return "Dims({}, dtype={})".format(", ".join(f"{k}={v}" for k, v in self._sizes.items()), self.dtype)

    @property
    def type_name(self) -> str:
        """C name of the element type, for ``-D TYPE=``."""
        assert self.dtype is not None, "no argument was given without a dtype"
        return c_name(self.dtype)


def check(op: str, /, **arrays: ArraySpec) -> Dims:
    """Check the arguments of an operation against their declared dimensions and dtypes.

    Parameters
    ----------
    op : str
        Name of the operation, for messages.
    **arrays : (Array, str) or (Array, str, numpy.dtype)
        By argument name: the array, its dimensions separated by spaces, its dtype. A dimension is a name (``T``), a
        number (``32``), a multiple of a name (``2F``), or a name plus a number (``R+1``). The first use of a name
        binds it. Without a dtype the array must be float32, float16 or bfloat16, and the same as every other such
        array of the call.

    Returns
    -------
    Dims
        The bound sizes and the element type.

    Raises
    ------
    ValueError
        If a shape does not match; says what bound the dimension.
    TypeError
        If a dtype does not match.

    Examples
    --------
    >>> x = np.zeros((3, 8), np.float32)
    >>> dims = check("rms_norm", out=(x, "T H"), x=(x, "T H"), weight=(x[0], "H"))
    >>> dims.T, dims.H, dims.type_name
    (3, 8, 'float')
    >>> check("rms_norm", out=(x, "T H"), weight=(x[:, 0], "H"))
    Traceback (most recent call last):
        ...
    ValueError: rms_norm: weight has shape (3,), expected (H): H is 8 in out
    """
    sizes: dict[str, int] = {}
    origin: dict[str, str] = {}
    element: tuple[str, np.dtype] | None = None
    for argument, spec in arrays.items():
        array, shape, dtype = spec[0], array_shape(op, argument, spec[0]), spec[0].dtype
        _bind(op, argument, shape, spec[1], sizes, origin)
        if len(spec) == 3:
            if dtype != spec[2]:
                raise TypeError(f"{op}: {argument} is {array.dtype}, expected {spec[2]}")
        elif element is None:
            if dtype not in FLOAT_TYPES:
                names = ", ".join(str(t) for t in FLOAT_TYPES)
                raise TypeError(f"{op}: {argument} is {dtype}, expected one of {names}")
            element = (argument, dtype)
        elif dtype != element[1]:
            raise TypeError(f"{op}: {argument} is {dtype}, but {element[0]} is {element[1]}; they must be the same")
    return Dims(sizes, None if element is None else element[1])


def array_shape(op: str, argument: str, array: Array) -> tuple[int, ...]:
    """Shape of an argument; TypeError if it is no array."""
    try:
        return array.shape
    except AttributeError:
        raise TypeError(f"{op}: {argument} is a {type(array).__name__}, expected a device array") from None


def _bind(
    op: str, argument: str, shape: tuple[int, ...], text: str, sizes: dict[str, int], origin: dict[str, str]
) -> None:
    """Match one shape; add the names that it is the first to use to `sizes` and `origin`."""
    dimensions = _parse(text)
    if len(shape) != len(dimensions):
        raise ValueError(f"{op}: {argument} has shape {shape}, expected ({', '.join(text.split())})")
    for size, (factor, name, extra) in zip(shape, dimensions, strict=True):
        if not name:
            if size != extra:
                raise ValueError(f"{op}: {argument} has shape {shape}, expected ({', '.join(text.split())})")
        elif name not in sizes:
            sizes[name], rest = divmod(size - extra, factor)
            origin[name] = argument
            if rest or size < extra:
                raise ValueError(
                    f"{op}: {argument} has shape {shape}, expected ({', '.join(text.split())}): no {name} gives {size}"
                )
        elif size != sizes[name] * factor + extra:
            raise ValueError(
                f"{op}: {argument} has shape {shape}, expected ({', '.join(text.split())}): "
                f"{name} is {sizes[name]} in {origin[name]}"
            )


@lru_cache(maxsize=1024)
def _parse(text: str) -> tuple[tuple[int, str, int], ...]:
    """(factor, name, extra) of each dimension: its size is factor * name + extra, or extra where name is empty."""
    dimensions = []
    for token in text.split():
        match = _DIMENSION.fullmatch(token)
        assert match, f"dimension {token!r}"
        if match["size"] is not None:
            dimensions.append((0, "", int(match["size"])))
        else:
            dimensions.append((int(match["factor"] or 1), match["name"], int(match["extra"] or 0)))
    return tuple(dimensions)
