"""Arguments are converted to what the kernel's own text declares."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cupy_turbo.core.protocols import Device
from cupy_turbo.device import open_device
from cupy_turbo.device.signature import parse_signature

TEXT = """
// extern "C" __global__ void scale(int in_a_comment);
#include "turbo.cuh"
#define OUT float /* not TYPE */
__device__ int scale_one(int x) { return x; }
extern "C" __global__ void __launch_bounds__(256) scale(OUT* __restrict__ out,  // a comment, with a comma
                                                        const TYPE* __restrict__ x, TYPE const* y, const void* any,
                                                        int count, const unsigned seed, unsigned long long key,
                                                        float factor) {
}
TURBO_EXPORT(scale)
"""


def test_parameters_are_parsed_with_macros_resolved() -> None:
    signature = parse_signature(TEXT, "scale", {"TYPE": "ELEMENT", "ELEMENT": "bf16"})
    assert [str(parameter) for parameter in signature.parameters] == [
        "float* out",
        "const bf16* x",
        "const bf16* y",
        "const void* any",
        "int count",
        "unsigned seed",
        "unsigned long long key",
        "float factor",
    ]
    assert [parameter.is_const for parameter in signature.parameters] == [False, True, True, True] + [False] * 4


def test_a_define_wins_over_the_files_own_default() -> None:
    text = '#ifndef TYPE\n#define TYPE half\n#endif\nextern "C" __global__ void f(TYPE* x) {}'
    assert str(parse_signature(text, "f", {}).parameters[0]) == "half* x"
    assert str(parse_signature(text, "f", {"TYPE": "float"}).parameters[0]) == "float* x"


def test_a_kernel_without_parameters() -> None:
    for inside in ("", "void"):
        assert parse_signature(f'extern "C" __global__ void f({inside}) {{}}', "f", {}).parameters == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('extern "C" __global__ void g(int x) {}', "f.cu has no extern"),
        ('extern "C" __global__ void f(float** x) {}', "neither a scalar nor a plain pointer"),
        ('extern "C" __global__ void f(TYPE* x) {}', "unknown kernel type 'TYPE'"),
        ('extern "C" __global__ void f(int) {}', "neither a scalar nor a plain pointer"),
    ],
)
def test_what_cannot_be_parsed_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_signature(text, "f", {})


@pytest.fixture
def device() -> Device:
    return open_device("host")


def convert(declarations: str, *values: object) -> list[Any]:
    return parse_signature(f'extern "C" __global__ void f({declarations}) {{}}', "f", {}).convert(values)


def test_scalars_take_the_declared_type() -> None:
    types = ["int", "long long", "unsigned", "unsigned long long", "float", "double", "bool"]
    converted = convert(
        ", ".join(f"{name} p{i}" for i, name in enumerate(types)), -(2**31), np.int8(-5), 2**32 - 1, 2**64 - 1,
        0.1, 1, True,
    )  # fmt: skip
    assert [value.dtype for value in converted] == ["int32", "int64", "uint32", "uint64", "float32", "float64", "bool"]
    assert converted[4] == np.float32(0.1)
    assert int(converted[3]) == 2**64 - 1


@pytest.mark.parametrize(
    ("declaration", "value", "error"),
    [
        ("int x", 2**31, OverflowError),
        ("int x", -(2**31) - 1, OverflowError),
        ("unsigned x", -1, OverflowError),
        ("unsigned long long x", 2**64, OverflowError),
        ("int x", 1.0, TypeError),
        ("int x", np.float32(1), TypeError),
        ("int x", "1", TypeError),
        ("int x", None, TypeError),
        ("float x", "1", TypeError),
        ("float x", 1e39, OverflowError),
        ("float x", 10**400, OverflowError),
        ("bool x", 1, TypeError),
        ("float* x", 5, TypeError),
        ("float* x", np.zeros(3, np.float32), TypeError),
    ],
)
def test_a_value_that_does_not_fit_names_kernel_and_parameter(declaration: str, value: object, error: type) -> None:
    with pytest.raises(error, match=r"^f: .*x"):
        convert(declaration, value)


def test_infinity_and_nan_are_floats() -> None:
    assert convert("float x, float y", np.inf, float("-inf")) == [np.inf, -np.inf]
    assert np.isnan(convert("float x", np.nan)[0])


def test_pointers(device: Device) -> None:
    matrix = device.empty((4, 6), np.float32)
    assert convert("float* x, void* y, float* z", matrix, matrix, None)[2] is None
    with pytest.raises(TypeError, match=r"f: float\* x .*float32.*bfloat16"):
        convert("float* x", device.empty(4, ml_dtypes.bfloat16))
    with pytest.raises(ValueError, match="contiguous"):
        convert("float* x", matrix[:, 2:])


def test_the_number_of_arguments(device: Device) -> None:
    with pytest.raises(TypeError, match=r"f takes 2 .*int x, float y.*got 1"):
        convert("int x, float y", 1)
