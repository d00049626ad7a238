"""Element types have one spelling each for kernels, and users' spellings are checked."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from cupy_turbo.core import dtypes

KERNEL_TYPES = {
    "float": np.float32,
    "half": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "int": np.int32,
    "unsigned": np.uint32,
    "long long": np.int64,
    "unsigned long long": np.uint64,
    "unsigned char": np.uint8,
}


@pytest.mark.parametrize(("name", "scalar_type"), KERNEL_TYPES.items())
def test_c_names_are_those_of_the_kernels(name: str, scalar_type: type) -> None:
    assert dtypes.c_name(np.dtype(scalar_type)) == name
    assert dtypes.from_c_name(name) == np.dtype(scalar_type)


def test_unsigned_has_two_spellings_and_blanks_do_not_matter() -> None:
    assert dtypes.from_c_name("unsigned  int") == dtypes.from_c_name(" unsigned ") == np.uint32


@pytest.mark.parametrize("name", ["", "float4", "long", "uint32_t"])
def test_unknown_c_name(name: str) -> None:
    with pytest.raises(ValueError, match="unknown kernel type"):
        dtypes.from_c_name(name)


def test_no_c_name_for_complex() -> None:
    with pytest.raises(ValueError, match="complex64"):
        dtypes.c_name(np.dtype(np.complex64))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_parse_takes_name_dtype_and_type(name: str) -> None:
    dtype = getattr(dtypes, name)
    assert dtypes.parse_dtype(name) is dtype
    assert dtypes.parse_dtype(dtype) is dtype
    assert dtypes.parse_dtype(dtype.type) is dtype


@pytest.mark.parametrize("wrong", ["auto", "float64", "bf16", "", None, 16, np.int32, np.dtype(np.float64), float])
def test_parse_refuses_with_the_list(wrong: object) -> None:
    with pytest.raises(ValueError, match="must be float16, bfloat16 or float32, got "):
        dtypes.parse_dtype(wrong)  # type: ignore[arg-type]


def test_compute_types_are_the_three() -> None:
    assert [dtype.name for dtype in dtypes.FLOAT_TYPES] == ["float16", "bfloat16", "float32"]
