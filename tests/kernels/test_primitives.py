"""Every portable primitive of `kernels/include` against NumPy, through the small kernels in `probes/`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cupy_turbo.core.dtypes import c_name
from cupy_turbo.core.errors import KernelError
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.device import open_device

PROBES = Path(__file__).parent / "probes"
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NARROW = [np.dtype(np.float16), BFLOAT16]
LANES = np.arange(32)

Run = Callable[..., list[np.ndarray]]


class Out:
    """An output of a probe: shape, dtype, and what it holds before the launch (poison if not given)."""

    def __init__(self, shape: int | tuple[int, ...], dtype: Any = np.float32, start: Any = None) -> None:
        self.shape, self.dtype, self.start = shape, np.dtype(dtype), start


def launch(device: Device, name: str, grid: Any, block: Any, *args: Any, shared_bytes: int = 0, **defines: Any) -> list:
    """Run a probe; NumPy arrays are uploaded, the `Out`s come back."""
    stream = Stream.create(device=device)
    outputs, converted = [], []
    for arg in args:
        if isinstance(arg, Out):
            if arg.start is None:
                arg = device.empty(arg.shape, arg.dtype)
            else:
                arg = device.upload(np.broadcast_to(np.array(arg.start, arg.dtype), arg.shape).copy())
            outputs.append(arg)
        elif isinstance(arg, np.ndarray):
            arg = device.upload(arg)
        converted.append(arg)
    device.kernel(name, **defines)(grid, block, converted, shared_bytes=shared_bytes, stream=stream)
    stream.sync()
    return [output.get() for output in outputs]


@pytest.fixture(scope="module")
def probes(device_kind: str) -> Iterator[Device]:
    opened = open_device(device_kind, kernel_folders=[PROBES])
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def run(probes: Device) -> Run:
    return lambda *args, **keywords: launch(probes, *args, **keywords)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def draw(rng: np.random.Generator, dtype: np.dtype, size: int) -> np.ndarray:
    """Integers of all magnitudes, of which 1024 signed ones add up without overflow; or normal numbers."""
    if dtype.kind == "u":
        return rng.integers(0, np.iinfo(dtype).max, size, dtype, endpoint=True)
    if dtype.kind == "i":
        limit = np.iinfo(dtype).max // 1024
        return rng.integers(-limit, limit, size, dtype)
    return rng.standard_normal(size).astype(dtype)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.float32, np.int64, np.uint64])
def test_shuffles(run: Run, rng: np.random.Generator, dtype: type) -> None:
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
            (got,) = run(
                "shuffle", 1, 32, Out(32, dtype), values, operand, width, CALL=call, TYPE=c_name(np.dtype(dtype))
            )
            wanted = values[sources(call, operand, width)]
            np.testing.assert_array_equal(got, wanted, err_msg=f"{call} {operand} {width}")


def test_votes(run: Run, rng: np.random.Generator) -> None:
    for predicate in (rng.integers(0, 2, 32), np.zeros(32, int), np.full(32, 5), LANES == 31):
        predicate = predicate.astype(np.int32)
        keys = rng.integers(-2, 3, 32).astype(np.int32)
        bits = np.uint32(1) << LANES.astype(np.uint32)
        ballots, halves, any_of, all_of, matches = run(
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
def test_reductions(run: Run, rng: np.random.Generator, dtype: type, threads: int) -> None:
    kind, blocks = np.dtype(dtype), 3
    values = draw(rng, kind, blocks * threads)
    outs = [Out(blocks * threads, dtype) for _ in range(5)]
    warp_sums, warp_maxima, sums, maxima, butterfly = run("reduce", blocks, threads, *outs, values, TYPE=c_name(kind))
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


def test_maximum_ignores_nan_and_a_sum_does_not(run: Run) -> None:
    values = np.full(64, -np.inf, np.float32)
    values[3], values[40] = np.nan, -3.0
    outs = [Out(64) for _ in range(5)]
    sums, maxima, _, block_maxima, _ = run("reduce", 1, 64, *outs, values, TYPE="float")
    assert np.isnan(sums[:32]).all()
    assert (maxima[:32] == -np.inf).all()
    assert (maxima[32:] == -3).all()
    assert (block_maxima == -3).all()


def test_voting_barriers(run: Run, rng: np.random.Generator) -> None:
    predicate = rng.integers(0, 2, (4, 96)).astype(np.int32)
    predicate[1], predicate[2] = 0, 9
    any_of, all_of, count, seen = run("barrier", 4, 96, *(Out((4, 96), np.int32) for _ in range(4)), predicate)
    assert (seen == 96).all()
    np.testing.assert_array_equal(any_of != 0, np.repeat(predicate.any(axis=1), 96).reshape(4, 96))
    np.testing.assert_array_equal(all_of != 0, np.repeat(predicate.all(axis=1), 96).reshape(4, 96))
    np.testing.assert_array_equal(count, np.repeat((predicate != 0).sum(axis=1), 96).reshape(4, 96))


def test_atomics_across_blocks(run: Run) -> None:
    blocks, threads = 64, 64
    count = blocks * threads
    every = np.arange(count)
    starts = Out(6, np.int32, 0), Out(3, np.uint32, [0, 0, 2**32 - 1]), Out(3, np.uint64, [0, 0, 2**64 - 1])
    ints, words, longs, floats, tickets, _, guarded = run(
        "atomics", blocks, threads, *starts, Out(1, np.float32, 0), Out(count, np.int32), Out(1, np.int32, 0),
        Out(1, np.int32, 0),
    )  # fmt: skip
    assert ints.tolist() == [every.sum(), (every ^ 0x2A).max(), -every.max(), 7, 2**31 - 1, count]
    assert words.tolist() == [every.sum(), 2**31 + count - 1, 2**32 - count]
    assert longs.tolist() == [count << 33, 2**63 + count - 1, 2**64 - count]
    assert floats.tolist() == [count / 2]
    assert sorted(tickets) == list(every)  # each add returned its own old value
    assert guarded.tolist() == [blocks]


def test_dynamic_shared_memory(run: Run, rng: np.random.Generator) -> None:
    values = rng.standard_normal((5, 96), np.float32)
    (got,) = run("reverse", 5, 96, Out((5, 96)), values, shared_bytes=96 * 4, BARRIER=1)
    np.testing.assert_array_equal(got, values[:, ::-1])


def test_asynchronous_copies_fill_with_zeros(run: Run, rng: np.random.Generator) -> None:
    values = rng.standard_normal((3 * 32 * 4,), np.float32)
    (got,) = run("async_copy", 1, 32, Out(values.size), values, 70, shared_bytes=values.nbytes, GROUPS=3, PENDING=0)
    np.testing.assert_array_equal(got[: 70 * 4], values[: 70 * 4])
    assert (got[70 * 4 :] == 0).all()


def test_waiting_for_a_group_waits_for_those_before_it(run: Run, rng: np.random.Generator) -> None:
    values = rng.standard_normal((3 * 32 * 4,), np.float32)
    (got,) = run("async_copy", 1, 32, Out(values.size), values, 96, shared_bytes=values.nbytes, GROUPS=3, PENDING=1)
    np.testing.assert_array_equal(got[: 2 * 32 * 4], values[: 2 * 32 * 4])


def test_ldmatrix_in_all_forms(run: Run, rng: np.random.Generator) -> None:
    matrices = rng.integers(0, 2**16, (4, 8, 8), np.uint16)
    (got,) = run("ldmatrix", 1, 32, Out((12, 32), np.uint32), matrices.reshape(32, 8).view(np.uint32))
    plain = matrices.view(np.uint32).reshape(4, 32)
    transposed = np.ascontiguousarray(matrices.transpose(0, 2, 1)).view(np.uint32).reshape(4, 32)
    np.testing.assert_array_equal(got, np.concatenate([plain, transposed, plain[:2], transposed[:2]]))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_mma(run: Run, rng: np.random.Generator, dtype: np.dtype) -> None:
    for scale in (1.0, 1e-3, 100.0):
        a = (scale * rng.standard_normal((16, 16))).astype(dtype)
        b = rng.standard_normal((16, 8)).astype(dtype)
        c = rng.standard_normal((16, 8)).astype(np.float32)
        (got,) = run("mma", 1, 32, Out((16, 8)), a, b, c, TYPE=c_name(dtype))
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        error = np.abs(got - (wide_a @ wide_b + c))
        assert (error <= 1e-6 * (np.abs(wide_a) @ np.abs(wide_b) + np.abs(c))).all()


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
def test_rounding_is_to_nearest_even(run: Run, dtype: np.dtype) -> None:
    floats = hard_floats(dtype)
    elements = np.resize(every_value(dtype), floats.size)
    count = floats.size
    narrow, narrow_vec, packed, wide, wide_vec = run(
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
def test_vectors(run: Run, rng: np.random.Generator, dtype: np.dtype, width: int) -> None:
    a, b = (rng.standard_normal((32, width)).astype(dtype) for _ in range(2))
    outs = Out(32), Out((32, width)), Out((32, width)), Out(32), Out((32, width), dtype)
    dots, axpys, products, sums, copies = run("vectors", 1, 32, *outs, a, b, 0.75, TYPE=c_name(dtype), WIDTH=width)
    x, y = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_allclose(dots, 1 + (x * y).sum(axis=1), atol=2e-6)
    np.testing.assert_allclose(axpys, y + 0.75 * x, atol=1e-6)
    np.testing.assert_allclose(products, x + x * y, atol=2e-6)
    np.testing.assert_allclose(sums, (x + x * y).sum(axis=1), atol=1e-5)
    np.testing.assert_array_equal(copies, a)


def test_philox_gives_the_published_words(run: Run) -> None:
    # Random123's kat_vectors for philox4x32-10: counter, key, result.
    known = [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ]
    words = [[[int(word, 16) for word in part.split()] for part in row] for row in known]
    counters = np.array([row[0] for row in words], np.uint32)
    keys = np.array([row[1][0] | row[1][1] << 32 for row in words], np.uint64)
    got, uniform = run("random_words", 1, 3, Out((3, 4), np.uint32), Out(3), keys, counters)
    assert got.tolist() == [row[2] for row in words]
    assert uniform[0] == 2.0**-24  # neither 0
    assert uniform[1] == 1 - 2.0**-24  # nor 1


def test_mathematics(run: Run, rng: np.random.Generator) -> None:
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 88.7, 88.8, -87.4, -103.9, -104.1, 1e-30, 3e38, 1.0, -1.0]
    x = np.concatenate([np.array(special), rng.uniform(-104, 89, 500), rng.standard_normal(500)]).astype(np.float32)
    y = rng.permutation(x)
    out, bits = run("mathematics", 1, 32, Out((9, x.size)), Out((5, x.size), np.int32), x, y, x.size)
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


def test_every_index_of_a_three_dimensional_grid(run: Run) -> None:
    grid, block = (3, 4, 2), (5, 2, 3)
    (got,) = run("indices", grid, block, Out((24 * 30, 6), np.uint32))
    wanted = [
        (*block_index[::-1], *thread_index[::-1])
        for block_index in np.ndindex(grid[::-1])
        for thread_index in np.ndindex(block[::-1])
    ]
    np.testing.assert_array_equal(got, wanted)


def test_scalars_arrive_as_the_signature_says(run: Run) -> None:
    ints, words, floats = run(
        "scalars", 1, 1, Out(3, np.int64), Out(2, np.uint64), Out(2, np.float64),
        -(2**31), -(2**63), 2**32 - 1, np.uint64(2**64 - 1), 0.1, 0.1, None,
    )  # fmt: skip
    assert ints.tolist() == [-(2**31), -(2**63), 1]
    assert words.tolist() == [2**32 - 1, 2**64 - 1]
    assert floats.tolist() == [float(np.float32(0.1)), 0.1]


def test_an_empty_grid_launches_nothing(run: Run) -> None:
    (got,) = run("reverse", 0, 32, Out(4, np.float32, 5), np.zeros(4, np.float32), BARRIER=1)
    (also,) = run("reverse", (3, 0), 32, Out(4, np.float32, 5), np.zeros(4, np.float32), BARRIER=1)
    assert got.tolist() == also.tolist() == [5] * 4


@pytest.fixture
def host_only(device_kind: str) -> None:
    if device_kind != "host":
        pytest.skip("a GPU answers these mistakes with a hang, garbage or a lost context, not with an error")


FAULTS = {
    0: (40, "at a barrier that not all its threads reach"),
    1: (32, "in a warp collective that not all its threads reach"),
    2: (32, "barrier while other threads wait at one of another kind"),
    3: (32, "in a different collective"),
    4: (32, "mask that leaves it out"),
    5: (32, "misaligned"),
    6: (32, "not 16-byte aligned"),
    7: (32, "outside the block's shared memory"),
    8: (64, "in a warp collective that not all its threads reach"),
    9: (48, "whole warps"),
}


@pytest.mark.usefixtures("host_only")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_mistake_ends_the_launch_and_names_its_place(run: Run, probes: Device, fault: int) -> None:
    threads, reason = FAULTS[fault]
    threads = max(threads, 64) if fault == 0 else threads
    with pytest.raises(KernelError, match=f"^faults: thread .* of block .*{reason}") as caught:
        run("faults", 8, threads, Out(8), np.zeros(64, np.float32), 5, shared_bytes=256, FAULT=fault)
    assert caught.value.kernel == "faults"
    assert caught.value.block == (5, 0, 0)
    # The device lives on, and the same kernel runs where nothing is wrong.
    (got,) = run("faults", 8, threads, Out(8), np.zeros(64, np.float32), -1, shared_bytes=256, FAULT=fault)
    assert (got == 1).all()


@pytest.mark.usefixtures("host_only")
def test_a_missing_barrier_is_found(rng: np.random.Generator) -> None:
    values = rng.standard_normal((1, 64)).astype(np.float32)
    found = []
    for seed in range(1, 6):
        device = open_device("host", seed=seed, kernel_folders=[PROBES])
        for barrier in (0, 1):
            (got,) = launch(device, "reverse", 1, 64, Out((1, 64)), values, shared_bytes=256, BARRIER=barrier)
            found.append((barrier, np.array_equal(got, values[:, ::-1])))
    assert (0, True) not in found
    assert (1, False) not in found


@pytest.mark.usefixtures("host_only")
def test_shared_memory_starts_poisoned_in_every_block(run: Run) -> None:
    (got,) = run("uninitialised", 40, 1, Out(80), shared_bytes=16)
    assert np.isnan(got).all()


@pytest.mark.usefixtures("host_only")
def test_a_copy_that_nobody_waited_for_has_not_arrived(run: Run) -> None:
    values = np.ones(3 * 32 * 4, np.float32)
    (got,) = run("async_copy", 1, 32, Out(values.size), values, 96, shared_bytes=values.nbytes, GROUPS=3, PENDING=1)
    assert np.isnan(got[2 * 32 * 4 :]).all()


@pytest.mark.usefixtures("host_only")
def test_a_seed_decides_the_order_of_blocks_and_threads() -> None:
    def orders(seed: int) -> tuple[list[int], list[int]]:
        device = open_device("host", seed=seed, workers=1, kernel_folders=[PROBES])
        blocks, threads = launch(device, "order", 7, 96, Out(7, np.int32), Out(192, np.int32), np.zeros(3, np.int32))
        assert sorted(blocks) == list(range(7))
        assert sorted(threads[:96]) == sorted(threads[96:]) == list(range(96))
        return blocks.tolist(), threads.tolist()

    assert orders(0)[0] == list(range(7))
    assert orders(0)[1][:96] == list(range(96))
    assert orders(3) == orders(3)
    assert len({tuple(orders(seed)[0]) for seed in range(6)}) > 2
    assert len({tuple(orders(seed)[1]) for seed in range(6)}) == 6
