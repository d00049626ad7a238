"""The arithmetic of `kernels/include` and what a launch passes, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from cupy_turbo.core.dtypes import c_name
from tests.kernels.probe import NARROW, Out, Run


def every_value(dtype: np.dtype) -> np.ndarray:
    return np.arange(2**16, dtype=np.uint16).view(dtype)


def hard_floats(dtype: np.dtype) -> np.ndarray:
    """Every value of the type, every tie between neighbours and what lies next to a tie, and special values."""
    finite = every_value(dtype).astype(np.float32)
    finite = np.sort(finite[np.isfinite(finite)])
    ties = ((finite[:-1].astype(np.float64) + finite[1:]) / 2).astype(np.float32)
    near = np.concatenate([np.nextafter(ties, np.float32(side)) for side in (-np.inf, np.inf)])
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-40, 65519.99, 65520, 3.3895e38, 3.4e38, -3.4e38]
    values = np.concatenate([finite, ties, near, np.array(special, np.float32)])
    return np.resize(values, -(-values.size // 8) * 8)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_rounding_is_to_nearest_even(run_probe: Run, dtype: np.dtype) -> None:
    floats = hard_floats(dtype)
    elements = np.resize(every_value(dtype), floats.size)
    count = floats.size
    narrow, narrow_vec, packed, wide, wide_vec = run_probe(
        "convert", 4, 32, Out(count, dtype), Out(count, dtype), Out(count, np.uint32), Out(count), Out(count),
        floats, elements, count, TYPE=c_name(dtype),
    )  # fmt: skip
    with np.errstate(over="ignore"):  # beyond the largest value is infinity, as wanted
        wanted, negated = floats.astype(dtype), (-floats).astype(dtype)
    is_nan = np.isnan(floats)
    for got in (narrow, narrow_vec):
        np.testing.assert_array_equal(got.view(np.uint16)[~is_nan], wanted.view(np.uint16)[~is_nan])
        assert np.isnan(got[is_nan].astype(np.float32)).all()
    pairs = packed.view(np.uint16).reshape(-1, 2)
    np.testing.assert_array_equal(pairs[~is_nan, 0], wanted.view(np.uint16)[~is_nan])
    np.testing.assert_array_equal(pairs[~is_nan, 1], negated.view(np.uint16)[~is_nan])
    for got in (wide, wide_vec):
        np.testing.assert_array_equal(got, elements.astype(np.float32))  # exact; NaN equals NaN here


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("dtype", [*NARROW, np.dtype(np.float32)], ids=str)
def test_vectors(run_probe: Run, rng: np.random.Generator, dtype: np.dtype, width: int) -> None:
    a, b = (rng.standard_normal((32, width)).astype(dtype) for _ in range(2))
    outs = Out(32), Out((32, width)), Out((32, width)), Out(32), Out((32, width), dtype)
    dots, axpys, products, sums, copies = run_probe(
        "vectors", 1, 32, *outs, a, b, 0.75, TYPE=c_name(dtype), WIDTH=width
    )
    x, y = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_allclose(dots, 1 + (x * y).sum(axis=1), atol=2e-6)
    np.testing.assert_allclose(axpys, y + 0.75 * x, atol=1e-6)
    np.testing.assert_allclose(products, x + x * y, atol=2e-6)
    np.testing.assert_allclose(sums, (x + x * y).sum(axis=1), atol=1e-5)
    np.testing.assert_array_equal(copies, a)


def test_philox_gives_the_published_words(run_probe: Run) -> None:
    # Random123's kat_vectors for philox4x32-10: counter, key, result.
    known = [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ]
    words = [[[int(word, 16) for word in part.split()] for part in row] for row in known]
    counters = np.array([row[0] for row in words], np.uint32)
    keys = np.array([row[1][0] | row[1][1] << 32 for row in words], np.uint64)
    got, uniform = run_probe("random_words", 1, 3, Out((3, 4), np.uint32), Out(3), keys, counters)
    assert got.tolist() == [row[2] for row in words]
    assert uniform[0] == 2.0**-24  # neither 0
    assert uniform[1] == 1 - 2.0**-24  # nor 1


def test_mathematics(run_probe: Run, rng: np.random.Generator) -> None:
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 88.7, 88.8, -87.4, -103.9, -104.1, 1e-30, 3e38, 1.0, -1.0]
    x = np.concatenate([np.array(special), rng.uniform(-104, 89, 500), rng.standard_normal(500)]).astype(np.float32)
    y = rng.permutation(x)
    out, bits = run_probe("mathematics", 1, 32, Out((9, x.size)), Out((5, x.size), np.int32), x, y, x.size)
    wide, other = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(all="ignore"):
        wanted = np.array([
            np.exp(wide), np.exp2(wide), np.log(np.abs(wide)), np.log2(np.abs(wide)), 1 / np.sqrt(np.abs(wide)),
            np.sqrt(np.abs(wide)), np.fmax(wide, other), np.fmin(wide, other), wide * other + 1,
        ])  # fmt: skip
        limit = np.array([3e-7, 3e-7, 3e-7, 3e-7, 3e-7, 2e-7, 0, 0, 1e-7])[:, None]
        narrow = wanted.astype(np.float32)
        close = np.abs(out - wanted) <= limit * np.abs(wanted) + 3e-45
    np.testing.assert_array_equal(close | (out == narrow) | (np.isnan(out) & np.isnan(narrow)), True)
    words, signed = x.view(np.uint32), x.view(np.int32)
    texts = [f"{word:032b}" for word in words]
    np.testing.assert_array_equal(bits[0], [text.count("1") for text in texts])
    np.testing.assert_array_equal(bits[1], [32 - text.rindex("1") if "1" in text else 0 for text in texts])
    np.testing.assert_array_equal(bits[2], [text.index("1") if "1" in text else 32 for text in texts])
    high = words.astype(np.uint64) * y.view(np.uint32) >> np.uint64(32)
    np.testing.assert_array_equal(bits[3].view(np.uint32), high)
    np.testing.assert_array_equal(bits[4], signed)


def test_every_index_of_a_three_dimensional_grid(run_probe: Run) -> None:
    grid, block = (3, 4, 2), (5, 2, 3)
    (got,) = run_probe("indices", grid, block, Out((24 * 30, 6), np.uint32))
    wanted = [
        (*block_index[::-1], *thread_index[::-1])
        for block_index in np.ndindex(grid[::-1])
        for thread_index in np.ndindex(block[::-1])
    ]
    np.testing.assert_array_equal(got, wanted)


def test_scalars_arrive_as_the_signature_says(run_probe: Run) -> None:
    ints, words, floats = run_probe(
        "scalars", 1, 1, Out(3, np.int64), Out(2, np.uint64), Out(2, np.float64),
        -(2**31), -(2**63), 2**32 - 1, np.uint64(2**64 - 1), 0.1, 0.1, None,
    )  # fmt: skip
    assert ints.tolist() == [-(2**31), -(2**63), 1]
    assert words.tolist() == [2**32 - 1, 2**64 - 1]
    assert floats.tolist() == [float(np.float32(0.1)), 0.1]


def test_an_empty_grid_launches_nothing(run_probe: Run) -> None:
    (got,) = run_probe("reverse", 0, 32, Out(4, np.float32, 5), np.zeros(4, np.float32), BARRIER=1)
    (also,) = run_probe("reverse", (3, 0), 32, Out(4, np.float32, 5), np.zeros(4, np.float32), BARRIER=1)
    assert got.tolist() == also.tolist() == [5] * 4
