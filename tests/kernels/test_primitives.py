"""The portable primitives by which threads meet, against NumPy: `kernels/include` through the kernels in `probes/`."""

from __future__ import annotations

import numpy as np
import pytest

from cupy_turbo.core.dtypes import c_name
from tests.kernels.probe import NARROW, Out, Run

LANES = np.arange(32)


def draw(rng: np.random.Generator, dtype: np.dtype, size: int) -> np.ndarray:
    """Integers of all magnitudes, of which 1024 signed ones add up without overflow; or normal numbers."""
    if dtype.kind == "u":
        return rng.integers(0, np.iinfo(dtype).max, size, dtype, endpoint=True)
    if dtype.kind == "i":
        limit = np.iinfo(dtype).max // 1024
        return rng.integers(-limit, limit, size, dtype)
    return rng.standard_normal(size).astype(dtype)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.float32, np.int64, np.uint64])
def test_shuffles(run_probe: Run, rng: np.random.Generator, dtype: type) -> None:
    values = draw(rng, np.dtype(dtype), 32)

    def sources(call: str, operand: int, width: int) -> np.ndarray:
        first = LANES & ~(width - 1)
        if call == "__shfl_sync":
            return first | (operand & (width - 1))
        source = {"xor": LANES ^ operand, "up": LANES - operand, "down": LANES + operand}[call.split("_")[3]]
        inside = source >= first if "up" in call else source < first + width
        return np.where(inside, source, LANES)

    for call in ("__shfl_sync", "__shfl_xor_sync", "__shfl_up_sync", "__shfl_down_sync"):
        for operand, width in ((0, 32), (1, 32), (5, 8), (17, 32), (3, 4), (31, 32), (16, 16)):
            (got,) = run_probe(
                "shuffle", 1, 32, Out(32, dtype), values, operand, width, CALL=call, TYPE=c_name(np.dtype(dtype))
            )
            wanted = values[sources(call, operand, width)]
            np.testing.assert_array_equal(got, wanted, err_msg=f"{call} {operand} {width}")


def test_votes(run_probe: Run, rng: np.random.Generator) -> None:
    for predicate in (rng.integers(0, 2, 32), np.zeros(32, int), np.full(32, 5), LANES == 31):
        predicate = predicate.astype(np.int32)
        keys = rng.integers(-2, 3, 32).astype(np.int32)
        bits = np.uint32(1) << LANES.astype(np.uint32)
        ballots, halves, any_of, all_of, matches = run_probe(
            "vote", 1, 32, *(Out(32, kind) for kind in (np.uint32, np.uint32, np.int32, np.int32, np.uint32)),
            predicate, keys,
        )  # fmt: skip
        assert (ballots == bits[predicate != 0].sum(dtype=np.uint32)).all()
        assert (halves[:16] == bits[:16][predicate[:16] != 0].sum(dtype=np.uint32)).all()
        assert (halves[16:] == bits[16:][predicate[16:] == 0].sum(dtype=np.uint32)).all()
        assert ((any_of != 0) == predicate.any()).all()
        assert ((all_of != 0) == predicate.all()).all()
        np.testing.assert_array_equal(matches, [bits[keys == key].sum(dtype=np.uint32) for key in keys])


@pytest.mark.parametrize("threads", [32, 96, 256, 1024])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint32, np.int64, np.uint64])
def test_reductions(run_probe: Run, rng: np.random.Generator, dtype: type, threads: int) -> None:
    kind, blocks = np.dtype(dtype), 3
    values = draw(rng, kind, blocks * threads)
    outs = [Out(blocks * threads, dtype) for _ in range(5)]
    warp_sums, warp_maxima, sums, maxima, butterfly = run_probe(
        "reduce", blocks, threads, *outs, values, TYPE=c_name(kind)
    )
    of_warps, of_blocks = values.reshape(-1, 32), values.reshape(blocks, -1)
    np.testing.assert_array_equal(warp_maxima, np.repeat(of_warps.max(axis=1), 32))
    np.testing.assert_array_equal(maxima, np.repeat(of_blocks.max(axis=1), threads))
    np.testing.assert_array_equal(warp_sums, butterfly)  # bit for bit, also in float
    exact = of_warps.sum(axis=1, dtype=kind if kind.kind in "iu" else np.float64)
    exact_blocks = of_blocks.sum(axis=1, dtype=kind if kind.kind in "iu" else np.float64)
    if kind.kind in "iu":
        np.testing.assert_array_equal(warp_sums, np.repeat(exact, 32))
        np.testing.assert_array_equal(sums, np.repeat(exact_blocks, threads))
    else:
        np.testing.assert_allclose(warp_sums, np.repeat(exact, 32), atol=1e-5)
        np.testing.assert_allclose(sums, np.repeat(exact_blocks, threads), atol=1e-4)


def test_maximum_ignores_nan_and_a_sum_does_not(run_probe: Run) -> None:
    values = np.full(64, -np.inf, np.float32)
    values[3], values[40] = np.nan, -3.0
    outs = [Out(64) for _ in range(5)]
    sums, maxima, _, block_maxima, _ = run_probe("reduce", 1, 64, *outs, values, TYPE="float")
    assert np.isnan(sums[:32]).all()
    assert (maxima[:32] == -np.inf).all()
    assert (maxima[32:] == -3).all()
    assert (block_maxima == -3).all()


def test_voting_barriers(run_probe: Run, rng: np.random.Generator) -> None:
    predicate = rng.integers(0, 2, (4, 96)).astype(np.int32)
    predicate[1], predicate[2] = 0, 9
    any_of, all_of, count, seen = run_probe("barrier", 4, 96, *(Out((4, 96), np.int32) for _ in range(4)), predicate)
    assert (seen == 96).all()
    np.testing.assert_array_equal(any_of != 0, np.repeat(predicate.any(axis=1), 96).reshape(4, 96))
    np.testing.assert_array_equal(all_of != 0, np.repeat(predicate.all(axis=1), 96).reshape(4, 96))
    np.testing.assert_array_equal(count, np.repeat((predicate != 0).sum(axis=1), 96).reshape(4, 96))


def test_atomics_across_blocks(run_probe: Run) -> None:
    blocks, threads = 64, 64
    count = blocks * threads
    every = np.arange(count)
    starts = Out(6, np.int32, 0), Out(3, np.uint32, [0, 0, 2**32 - 1]), Out(3, np.uint64, [0, 0, 2**64 - 1])
    ints, words, longs, floats, tickets, _, guarded = run_probe(
        "atomics", blocks, threads, *starts, Out(1, np.float32, 0), Out(count, np.int32), Out(1, np.int32, 0),
        Out(1, np.int32, 0),
    )  # fmt: skip
    assert ints.tolist() == [every.sum(), (every ^ 0x2A).max(), -every.max(), 7, 2**31 - 1, count]
    assert words.tolist() == [every.sum(), 2**31 + count - 1, 2**32 - count]
    assert longs.tolist() == [count << 33, 2**63 + count - 1, 2**64 - count]
    assert floats.tolist() == [count / 2]
    assert sorted(tickets) == list(every)  # each add returned its own old value
    assert guarded.tolist() == [blocks]


def test_dynamic_shared_memory(run_probe: Run, rng: np.random.Generator) -> None:
    values = rng.standard_normal((5, 96), np.float32)
    (got,) = run_probe("reverse", 5, 96, Out((5, 96)), values, shared_bytes=96 * 4, BARRIER=1)
    np.testing.assert_array_equal(got, values[:, ::-1])


def test_asynchronous_copies_fill_with_zeros(run_probe: Run, rng: np.random.Generator) -> None:
    values = rng.standard_normal((3 * 32 * 4,), np.float32)
    (got,) = run_probe(
        "async_copy", 1, 32, Out(values.size), values, 70, shared_bytes=values.nbytes, GROUPS=3, PENDING=0
    )
    np.testing.assert_array_equal(got[: 70 * 4], values[: 70 * 4])
    assert (got[70 * 4 :] == 0).all()


def test_waiting_for_a_group_waits_for_those_before_it(run_probe: Run, rng: np.random.Generator) -> None:
    values = rng.standard_normal((3 * 32 * 4,), np.float32)
    (got,) = run_probe(
        "async_copy", 1, 32, Out(values.size), values, 96, shared_bytes=values.nbytes, GROUPS=3, PENDING=1
    )
    np.testing.assert_array_equal(got[: 2 * 32 * 4], values[: 2 * 32 * 4])


def test_ldmatrix_in_all_forms(run_probe: Run, rng: np.random.Generator) -> None:
    matrices = rng.integers(0, 2**16, (4, 8, 8), np.uint16)
    (got,) = run_probe("ldmatrix", 1, 32, Out((12, 32), np.uint32), matrices.reshape(32, 8).view(np.uint32))
    plain = matrices.view(np.uint32).reshape(4, 32)
    transposed = np.ascontiguousarray(matrices.transpose(0, 2, 1)).view(np.uint32).reshape(4, 32)
    np.testing.assert_array_equal(got, np.concatenate([plain, transposed, plain[:2], transposed[:2]]))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_mma(run_probe: Run, rng: np.random.Generator, dtype: np.dtype) -> None:
    for scale in (1.0, 1e-3, 100.0):
        a = (scale * rng.standard_normal((16, 16))).astype(dtype)
        b = rng.standard_normal((16, 8)).astype(dtype)
        c = rng.standard_normal((16, 8)).astype(np.float32)
        (got,) = run_probe("mma", 1, 32, Out((16, 8)), a, b, c, TYPE=c_name(dtype))
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        error = np.abs(got - (wide_a @ wide_b + c))
        assert (error <= 1e-6 * (np.abs(wide_a) @ np.abs(wide_b) + np.abs(c))).all()
