"""Element types: as NumPy knows them, as kernels spell them and as users write them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

DType = np.dtype[Any]

float16: DType = np.dtype(np.float16)
bfloat16: DType = np.dtype(ml_dtypes.bfloat16)
float32: DType = np.dtype(np.float32)
float64: DType = np.dtype(np.float64)
bool_: DType = np.dtype(np.bool_)
int8: DType = np.dtype(np.int8)
int16: DType = np.dtype(np.int16)
int32: DType = np.dtype(np.int32)
int64: DType = np.dtype(np.int64)
uint8: DType = np.dtype(np.uint8)
uint16: DType = np.dtype(np.uint16)
uint32: DType = np.dtype(np.uint32)
uint64: DType = np.dtype(np.uint64)

#: What weights and activations may be, narrowest first.
FLOAT_TYPES: tuple[DType, ...] = (float16, bfloat16, float32)

_C_NAMES: dict[DType, str] = {
    float32: "float",
    float16: "half",
    bfloat16: "bf16",
    float64: "double",
    bool_: "bool",
    int8: "signed char",
    uint8: "unsigned char",
    int16: "short",
    uint16: "unsigned short",
    int32: "int",
    uint32: "unsigned",
    int64: "long long",
    uint64: "unsigned long long",
}
_FROM_C: dict[str, DType] = {name: dtype for dtype, name in _C_NAMES.items()} | {"unsigned int": uint32}


def c_name(dtype: DType) -> str:
    """Spell a dtype as kernels do.

    Parameters
    ----------
    dtype : numpy.dtype or what makes one

    Returns
    -------
    str
        ``"float"``, ``"half"``, ``"bf16"``, ``"int"``, ``"unsigned"``, ``"long long"`` …

    Raises
    ------
    ValueError
        If no kernel type has these elements.

    Examples
    --------
    >>> c_name(bfloat16), c_name(uint64)
    ('bf16', 'unsigned long long')
    """
    dtype = np.dtype(dtype)
    if dtype not in _C_NAMES:
        raise ValueError(f"kernels have no type for {dtype}; they have {', '.join(map(str, _C_NAMES))}")
    return _C_NAMES[dtype]


def from_c_name(name: str) -> DType:
    """Find the dtype of a type in a kernel's signature.

    Parameters
    ----------
    name : str
        A spelling that `c_name` gives, or ``"unsigned int"``; any run of blanks counts as one.

    Returns
    -------
    numpy.dtype

    Raises
    ------
    ValueError
        If it is no type that kernels take.

    Examples
    --------
    >>> from_c_name("half"), from_c_name("unsigned   char")
    (dtype('float16'), dtype('uint8'))
    """
    dtype = _FROM_C.get(" ".join(name.split()))
    if dtype is None:
        raise ValueError(f"unknown kernel type {name!r}; known are {', '.join(_FROM_C)}")
    return dtype


def parse_dtype(name: str | DType | type[Any]) -> DType:
    """Read the element type that a user asks for.

    Parameters
    ----------
    name : str or numpy.dtype or scalar type
        ``"bfloat16"``, ``"float16"`` or ``"float32"``, or the same as a dtype or scalar type.

    Returns
    -------
    numpy.dtype
        One of `FLOAT_TYPES`.

    Raises
    ------
    ValueError
        If it is anything else; the message lists what there is.

    Examples
    --------
    >>> parse_dtype("bfloat16") is bfloat16
    True
    >>> parse_dtype("int4")
    Traceback (most recent call last):
    ValueError: dtype must be float16, bfloat16 or float32, got 'int4'
    """
    for dtype in FLOAT_TYPES:
        if name == dtype.name if isinstance(name, str) else _is_dtype(name, dtype):
            return dtype
    raise ValueError(f"dtype must be float16, bfloat16 or float32, got {name!r}")


def _is_dtype(name: object, dtype: DType) -> bool:
    # np.dtype(None) is float64 and `dtype == None` is a deprecated comparison, so ask for the two kinds by type.
    return isinstance(name, np.dtype | type) and np.dtype(name) == dtype
