"""attention_prefill.cu, on tensor cores, and attention_prefill_simt.cu, without, against the oracle of both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.dtypes import DType, bfloat16, float16, float32
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.attention_prefill import attention_prefill
from cupy_turbo.ops.attention_prefill_simt import attention_prefill_simt
from cupy_turbo.testing import reference_attention
from cupy_turbo.testing.arrays import Guarded, assert_close
from cupy_turbo.testing.examples import examples
from cupy_turbo.testing.paged_case import PagedCase, draw_paged_case

# Element type, head size, block size, and the kernel: "mma" on tensor cores, or so many lanes a query.
Variant = tuple[DType, int, int, str]
VARIANTS: list[Variant] = [
    (bfloat16, 64, 16, "mma"),
    (float16, 128, 32, "mma"),
    (bfloat16, 80, 64, "mma"),
    (float16, 256, 16, "mma"),
    (bfloat16, 16, 24, "mma"),
    (float32, 64, 16, "1"),
    (bfloat16, 40, 128, "1"),
    (float16, 256, 64, "1"),
    (float32, 72, 16, "8"),
    (float32, 256, 32, "16"),
]
ALIKE = VARIANTS[:1] + VARIANTS[5:6] + VARIANTS[8:9]  # one of each kernel, for laws rather than values


def run(
    device: Device,
    stream: Stream,
    case: PagedCase,
    kernel: str,
    *,
    rows: tuple[int, int] | None = None,
    max_query_len: int | None = None,
) -> np.ndarray:
    """Attend, with NaN around every floating array; return (T, Hq, D), NaN where nothing was written."""
    out = Guarded(device, (len(case.qkv), case.num_heads * case.head_dim), case.qkv.dtype)
    floats = [Guarded(device, a.shape, a.dtype, a).array for a in (case.qkv, case.k_cache, case.v_cache)]
    integers = [device.upload(a) for a in (case.block_table, case.perm, case.query_start, case.context_len)]
    first_row, last_row = rows or (0, len(case.perm))
    lengths = np.diff(case.query_start)
    sizes = {
        "num_heads": case.num_heads,
        "first_row": first_row,
        "num_rows": last_row - first_row,
        "max_query_len": max_query_len or int(lengths[first_row:last_row].max(initial=0)),
    }
    if kernel == "mma":
        attention_prefill(
            out.array, *floats, *integers, **sizes, scale=case.scale, use_tensor_cores=True, stream=stream
        )
    else:
        attention_prefill_simt(
            out.array, *floats, *integers, **sizes, scale=case.scale, lanes=int(kernel), stream=stream
        )
    return out.fetch().reshape(len(case.qkv), case.num_heads, case.head_dim)


def expect(case: PagedCase, rows: tuple[int, int] | None = None) -> dict[int, np.ndarray]:
    first_row, last_row = rows or (0, len(case.perm))
    arrays = (case.qkv, case.k_cache, case.v_cache, case.block_table, case.perm, case.query_start, case.context_len)
    return reference_attention.attention_prefill(
        *arrays, first_row=first_row, num_rows=last_row - first_row, scale=case.scale
    )


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    assert np.array_equal(actual.view(np.uint8), expected.view(np.uint8))


@st.composite
def row_lengths(draw: st.DrawFn) -> tuple[int, int]:
    length = draw(st.integers(0, 20) | st.sampled_from([63, 64, 65, 130]))
    return length, length + draw(st.sampled_from([0, 0, 1, 17, 64, 127]))


@settings(max_examples=examples(50))
@given(
    variant=st.sampled_from(VARIANTS),
    heads=st.sampled_from([(1, 1), (1, 3), (2, 2), (1, 8)]),
    rows=st.lists(row_lengths(), min_size=1, max_size=3),
    seed=st.integers(0, 2**32 - 1),
)
def test_matches_the_oracle(
    device: Device, stream: Stream, variant: Variant, heads: tuple[int, int], rows: list[tuple[int, int]], seed: int
) -> None:
    dtype, head_dim, block_size, kernel = variant
    case = draw_paged_case(
        dtype,
        head_dim=head_dim,
        block_size=block_size,
        num_kv_heads=heads[0],
        ratio=heads[1],
        rows=rows,
        seed=seed,
    )
    out = run(device, stream, case, kernel)
    for row, expected in expect(case).items():
        start, stop = case.query_start[row : row + 2]
        assert_close(out[start:stop], expected)


def example(
    variant: Variant, rows: list[tuple[int, int]], *, ratio: int = 2, masked: tuple[int, ...] = ()
) -> PagedCase:
    dtype, head_dim, block_size, _ = variant
    return draw_paged_case(
        dtype,
        head_dim=head_dim,
        block_size=block_size,
        num_kv_heads=1,
        ratio=ratio,
        rows=rows,
        seed=len(rows),
        masked=masked,
    )


def test_any_number_of_query_heads_shares_a_kv_head(device: Device, stream: Stream) -> None:
    for variant in ALIKE:
        case = example(variant, [(3, 20)], ratio=71)
        assert_close(run(device, stream, case, variant[3]), expect(case)[0])


@pytest.mark.parametrize("variant", ALIKE, ids=lambda variant: variant[3])
def test_padding_rows_and_rows_outside_the_range_are_left_alone(
    device: Device, stream: Stream, variant: Variant
) -> None:
    case = example(variant, [(2, 9), (3, 3), (1, 40), (5, 70), (2, 2)], masked=(2,))
    out = run(device, stream, case, variant[3], rows=(1, 4))
    expected = expect(case, rows=(1, 4))
    assert set(expected) == {1, 3}
    for row in range(5):
        tokens = out[slice(*case.query_start[row : row + 2])]
        if row in expected:
            assert_close(tokens, expected[row])
        else:
            assert np.isnan(tokens).all(), f"row {row} was written"


@pytest.mark.parametrize("variant", ALIKE, ids=lambda variant: variant[3])
@pytest.mark.parametrize("cuts", [(7,), (64,), (1, 63, 65, 149)], ids=str)
def test_chunks_give_the_bits_of_the_whole_prompt(
    device: Device, stream: Stream, variant: Variant, cuts: tuple[int, ...]
) -> None:
    length = 150
    case = example(variant, [(length, length)])
    whole = run(device, stream, case, variant[3])
    for start, stop in zip((0, *cuts), (*cuts, length), strict=True):
        chunk = replace(
            case,
            qkv=case.queries(start, stop),
            query_start=np.array([0, stop - start], np.int32),
            context_len=np.array([stop], np.int32),
        )
        assert_same_bits(run(device, stream, chunk, variant[3]), whole[start:stop])


@pytest.mark.parametrize("variant", ALIKE, ids=lambda variant: variant[3])
def test_a_row_has_the_same_bits_in_any_batch(device: Device, stream: Stream, variant: Variant) -> None:
    case = example(variant, [(30, 90), (1, 1), (70, 75)])
    together = run(device, stream, case, variant[3], max_query_len=200)
    for row in range(3):
        start, stop = case.query_start[row : row + 2]
        alone = replace(
            case,
            qkv=case.queries(start, stop),
            perm=case.perm[row : row + 1],
            query_start=np.array([0, stop - start], np.int32),
            context_len=case.context_len[row : row + 1],
        )
        assert_same_bits(run(device, stream, alone, variant[3]), together[start:stop])


@pytest.mark.parametrize("variant", ALIKE, ids=lambda variant: variant[3])
def test_large_scores_do_not_overflow(device: Device, stream: Stream, variant: Variant) -> None:
    case = example(variant, [(70, 70)])
    case = replace(case, qkv=(case.qkv.astype(np.float32) * 300).astype(case.qkv.dtype))
    assert_close(run(device, stream, case, variant[3]), expect(case)[0], tolerance=1e-2)


@pytest.mark.parametrize("variant", ALIKE, ids=lambda variant: variant[3])
def test_very_negative_scores_keep_their_weights(device: Device, stream: Stream, variant: Variant) -> None:
    case = example(variant, [(7, 75)])
    queries = -40 * np.abs(case.qkv.astype(np.float32))
    case = replace(case, qkv=queries.astype(case.qkv.dtype), k_cache=np.abs(case.k_cache))
    assert_close(run(device, stream, case, variant[3]), expect(case)[0], tolerance=1e-2)


def test_nothing_to_do_launches_nothing(device: Device, stream: Stream) -> None:
    for variant in ALIKE:
        case = example(variant, [(4, 4)])
        assert np.isnan(run(device, stream, case, variant[3], rows=(1, 1))).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 3}, "num_heads is 3, must be a positive multiple of the 2 KV heads"),
        ({"num_heads": 2}, "out has 256 columns, expected 128 for 2 heads, 2 KV heads and head_dim 64"),
        ({"num_rows": 2}, "rows 0 to 2 are not within the 1 rows"),
        ({"first_row": -1}, "rows -1 to 0 are not within the 1 rows"),
        ({"use_tensor_cores": True}, "tensor cores take float16 or bfloat16"),
    ],
)
def test_mismatched_arguments_are_named(
    device: Device, stream: Stream, changes: dict[str, int | bool], message: str
) -> None:
    case = draw_paged_case(float32, head_dim=64, block_size=16, num_kv_heads=2, ratio=2, rows=[(2, 2)], seed=0)
    arrays = (case.qkv, case.k_cache, case.v_cache, case.block_table, case.perm, case.query_start, case.context_len)
    out = device.empty((2, 256), float32)
    sizes = {"num_heads": 4, "first_row": 0, "num_rows": 1, "max_query_len": 2, **changes}
    with pytest.raises(ValueError, match=f"attention_prefill: {message}"):
        attention_prefill(out, *map(device.upload, arrays), **sizes, scale=1.0, stream=stream)


def test_head_sizes_that_do_not_fill_vectors_are_refused(device: Device, stream: Stream) -> None:
    case = draw_paged_case(float32, head_dim=12, block_size=16, num_kv_heads=1, ratio=1, rows=[(1, 1)], seed=0)
    with pytest.raises(ValueError, match="head_dim is 12, must be a multiple of 8 from 8 to 256"):
        run(device, stream, case, "1")
