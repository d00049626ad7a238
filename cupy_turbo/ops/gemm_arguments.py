"""What every matrix product checks of its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np

from cupy_turbo.core.dtypes import c_name
from cupy_turbo.core.protocols import Array
from cupy_turbo.ops.check import FLOAT32, array_shape, check


class _Form(NamedTuple):
    """All of an array that a check looks at."""

    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class GemmArguments:
    """Sizes of ``out[M, N] = x[M, K] @ weight[N, K].T`` and the C names of its types."""

    m: int
    n: int
    k: int
    type_name: str
    out_name: str
    is_aligned: bool
    """Whether every row of `x` and `weight` starts at a multiple of 16 bytes."""


def gemm_arguments(op: str, out: Array, x: Array, weight: Array) -> GemmArguments:
    """Check the arguments of a matrix product.

    Parameters
    ----------
    op : str
        Name of the operation, for messages.
    out : Array, (M, N)
        Dtype of `x`, or float32.
    x : Array, (M, K)
        float32, float16 or bfloat16.
    weight : Array, (N, K)
        Dtype of `x`.

    Raises
    ------
    ValueError
        If a shape does not match.
    TypeError
        If a dtype does not match.
    """
    forms = [_Form(array_shape(op, name, a), a.dtype) for name, a in (("out", out), ("x", x), ("weight", weight))]
    return _of_forms(op, *forms)


@lru_cache(maxsize=4096)  # a model has a handful of products, and each is launched thousands of times
def _of_forms(op: str, out: _Form, x: _Form, weight: _Form) -> GemmArguments:
    """Check shapes and dtypes; one of many launches of the same form pays for it."""
    arrays = [cast(Array, form) for form in (x, weight, out)]
    dims = check(op, x=(arrays[0], "M K"), weight=(arrays[1], "N K"), out=(arrays[2], "M N", out.dtype))
    if out.dtype not in (x.dtype, FLOAT32):
        expected = "float32" if x.dtype == FLOAT32 else f"{x.dtype}, as x, or float32"
        raise TypeError(f"{op}: out is {out.dtype}, expected {expected}")
    is_aligned = dims.K * x.dtype.itemsize % 16 == 0
    return GemmArguments(dims.M, dims.N, dims.K, dims.type_name, c_name(out.dtype), is_aligned)
