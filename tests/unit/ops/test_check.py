"""ops/check.py: what is accepted, what is bound, and what the messages name."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from cupy_turbo.core.dtypes import bfloat16, float16, float32, int32
from cupy_turbo.ops import check as module
from cupy_turbo.ops.check import check


def test_names_are_bound_once_and_found_again() -> None:
    x, starts = np.zeros((3, 8), np.float32), np.zeros(4, np.int32)
    dims = check("op", x=(x, "T 2F"), weight=(x[0, :4], "F"), starts=(starts, "T+1", int32))
    assert (dims.T, dims.F, dims.type_name) == (3, 4, "float")
    assert repr(dims) == "Dims(T=3, F=4, dtype=float32)"


@pytest.mark.parametrize(
    ("shape", "dimensions", "reason"),
    [
        ((3, 8), "T", r"x has shape \(3, 8\), expected \(T\)"),
        ((3,), "4", r"x has shape \(3,\), expected \(4\)"),
        ((7,), "2F", "no F gives 7"),
        ((0,), "R+1", "no R gives 0"),
        ((5,), "R+1 ", None),
        ((2, 3), "T T", "T is 2 in x"),
    ],
)
def test_shapes_that_do_not_fit_are_named(shape: tuple[int, ...], dimensions: str, reason: str | None) -> None:
    arrays = {"x": (np.zeros(shape, np.float32), dimensions)}
    if reason is None:
        check("op", **arrays)
    else:
        with pytest.raises(ValueError, match=f"op: .*{reason}"):
            check("op", **arrays)


def test_element_types_are_one_of_three_and_the_same() -> None:
    half, other = np.zeros(2, np.float16), np.zeros(2, bfloat16)
    assert check("op", x=(half, "N")).dtype == float16
    with pytest.raises(TypeError, match="op: y is bfloat16, but x is float16"):
        check("op", x=(half, "N"), y=(other, "N"))
    with pytest.raises(TypeError, match="op: x is float64, expected one of float16, bfloat16, float32"):
        check("op", x=(np.zeros(2), "N"))


def test_a_declared_dtype_is_kept_to() -> None:
    with pytest.raises(TypeError, match="op: logits is float16, expected float32"):
        check("op", logits=(np.zeros(2, np.float16), "N", float32))


def test_what_is_no_array_is_told() -> None:
    with pytest.raises(TypeError, match="op: x is a list, expected a device array"):
        check("op", x=([1.0], "N"))  # type: ignore[arg-type]


def test_the_example_runs() -> None:
    assert doctest.testmod(module).failed == 0
