"""attention_decode.cu with attention_combine.cu against their oracle, for the lanes of either device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.dtypes import DType, bfloat16, float16, float32
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.attention_decode import attention_decode, attention_decode_scratch
from cupy_turbo.ops.attention_prefill import attention_prefill
from cupy_turbo.testing import reference_attention
from cupy_turbo.testing.arrays import Guarded, assert_close
from cupy_turbo.testing.examples import examples
from cupy_turbo.testing.paged_case import PagedCase, draw_paged_case

# Element type, head size, block size, query heads a KV head, lanes a token.
Variant = tuple[DType, int, int, int, int]
VARIANTS: list[Variant] = [
    (float32, 64, 16, 3, 1),
    (bfloat16, 128, 32, 4, 1),
    (float16, 40, 128, 1, 1),
    (bfloat16, 64, 16, 71, 1),
    (bfloat16, 128, 16, 4, 16),
    (float32, 64, 64, 8, 16),
    (float16, 80, 24, 3, 16),
    (bfloat16, 64, 16, 11, 8),
    (float32, 256, 16, 2, 32),
]
ALIKE = [VARIANTS[0], VARIANTS[4]]


def run(
    device: Device, stream: Stream, case: PagedCase, variant: Variant, *, num_splits: int, num_rows: int | None = None
) -> np.ndarray:
    """Attend, with NaN around every floating array and in the scratch; return (T, Hq, D)."""
    out = Guarded(device, (len(case.qkv), case.num_heads * case.head_dim), case.qkv.dtype)
    floats = [Guarded(device, a.shape, a.dtype, a).array for a in (case.qkv, case.k_cache, case.v_cache)]
    integers = [device.upload(a) for a in (case.block_table, case.perm, case.finished, case.context_len)]
    num_rows = len(case.perm) if num_rows is None else num_rows
    scratch = attention_decode_scratch(num_rows, case.num_heads, case.head_dim, num_splits)
    partial = Guarded(device, scratch, float32)
    attention_decode(
        out.array,
        *floats,
        *integers,
        partial.array,
        num_heads=case.num_heads,
        num_rows=num_rows,
        num_splits=num_splits,
        scale=case.scale,
        lanes=variant[4],
        stream=stream,
    )
    partial.fetch()  # its guards too
    return out.fetch().reshape(len(case.qkv), case.num_heads, case.head_dim)


def expect(case: PagedCase) -> np.ndarray:
    arrays = (case.qkv, case.k_cache, case.v_cache, case.block_table, case.perm, case.finished, case.context_len)
    return reference_attention.attention_decode(*arrays, num_rows=len(case.perm), scale=case.scale)


def example(variant: Variant, contexts: list[int], *, kv_heads: int = 1, masked: tuple[int, ...] = ()) -> PagedCase:
    dtype, head_dim, block_size, ratio, _ = variant
    return draw_paged_case(
        dtype,
        head_dim=head_dim,
        block_size=block_size,
        num_kv_heads=kv_heads,
        ratio=ratio,
        rows=[(1, context) for context in contexts],
        seed=sum(contexts),
        masked=masked,
    )


@settings(max_examples=examples(60))
@given(
    variant=st.sampled_from(VARIANTS),
    kv_heads=st.sampled_from([1, 2]),
    contexts=st.lists(st.integers(1, 70) | st.sampled_from([64, 65, 128, 129, 300, 700]), min_size=1, max_size=4),
    num_splits=st.sampled_from([1, 2, 3, 8, 32]),
)
def test_matches_the_oracle(
    device: Device, stream: Stream, variant: Variant, kv_heads: int, contexts: list[int], num_splits: int
) -> None:
    case = example(variant, contexts, kv_heads=kv_heads)
    out, expected = run(device, stream, case, variant, num_splits=num_splits), expect(case)
    for row in range(len(contexts)):
        assert_close(out[row], expected[row])


@pytest.mark.parametrize("variant", ALIKE, ids=lambda variant: f"{variant[4]} lanes")
def test_masked_rows_give_zeros(device: Device, stream: Stream, variant: Variant) -> None:
    case = example(variant, [5, 80, 0, 90, 3], masked=(1,))
    case.finished[case.perm[3]] = 2
    out = run(device, stream, case, variant, num_splits=4)
    for row in (1, 2, 3):
        assert not out[row].any(), f"row {row}"
    assert_close(out, expect(case))


@pytest.mark.parametrize("variant", ALIKE, ids=lambda variant: f"{variant[4]} lanes")
def test_rows_past_the_count_are_left_alone(device: Device, stream: Stream, variant: Variant) -> None:
    case = example(variant, [5, 80, 7])
    out = run(device, stream, case, variant, num_splits=2, num_rows=2)
    assert_close(out[:2], expect(case)[:2])
    assert np.isnan(out[2]).all()


@pytest.mark.parametrize("variant", ALIKE, ids=lambda variant: f"{variant[4]} lanes")
def test_a_row_has_the_same_bits_in_any_batch(device: Device, stream: Stream, variant: Variant) -> None:
    case = example(variant, [500, 1, 64, 321])
    together = run(device, stream, case, variant, num_splits=4)
    for row in range(4):
        alone = replace(
            case,
            qkv=case.queries(row, row + 1),
            perm=case.perm[row : row + 1],
            context_len=case.context_len[row : row + 1],
        )
        assert np.array_equal(run(device, stream, alone, variant, num_splits=4)[0], together[row])


@pytest.mark.parametrize("variant", ALIKE, ids=lambda variant: f"{variant[4]} lanes")
def test_a_decoded_token_equals_its_row_of_the_prompt(device: Device, stream: Stream, variant: Variant) -> None:
    length = 140
    prompt = draw_paged_case(
        variant[0], head_dim=variant[1], block_size=variant[2], num_kv_heads=1, ratio=2, rows=[(length, length)], seed=9
    )
    out = device.empty((length, 2 * variant[1]), variant[0])
    arrays = (prompt.qkv, prompt.k_cache, prompt.v_cache, prompt.block_table, prompt.perm, prompt.query_start)
    attention_prefill(
        out,
        *map(device.upload, (*arrays, prompt.context_len)),
        num_heads=2,
        first_row=0,
        num_rows=1,
        max_query_len=length,
        scale=prompt.scale,
        stream=stream,
    )
    whole = device.fetch(out).reshape(length, 2, -1)
    for token in (0, 1, 63, 64, 139):
        step = replace(prompt, qkv=prompt.queries(token, token + 1), context_len=np.array([token + 1], np.int32))
        assert_close(run(device, stream, step, variant, num_splits=3)[0], whole[token].astype(np.float64))


def test_large_scores_do_not_overflow(device: Device, stream: Stream) -> None:
    for variant in ALIKE:
        case = example(variant, [200])
        case = replace(case, qkv=(case.qkv.astype(np.float32) * 300).astype(case.qkv.dtype))
        assert_close(run(device, stream, case, variant, num_splits=2), expect(case), tolerance=1e-2)


def test_very_negative_scores_keep_their_weights(device: Device, stream: Stream) -> None:
    for variant in ALIKE:
        case = example(variant, [75, 3])
        queries = -40 * np.abs(case.qkv.astype(np.float32))
        case = replace(case, qkv=queries.astype(case.qkv.dtype), k_cache=np.abs(case.k_cache))
        assert_close(run(device, stream, case, variant, num_splits=2), expect(case), tolerance=1e-2)


def test_no_rows_launch_nothing(device: Device, stream: Stream) -> None:
    case = example(ALIKE[0], [5])
    assert np.isnan(run(device, stream, case, ALIKE[0], num_splits=1, num_rows=0)).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_rows": 2}, "num_rows is 2, must be from 0 to 1"),
        ({"num_splits": 0}, "num_splits is 0, must be at least 1"),
        ({"num_splits": 9}, "partial has 1584 elements, needs 1782"),
    ],
)
def test_mismatched_arguments_are_named(device: Device, stream: Stream, changes: dict[str, int], message: str) -> None:
    case = example(VARIANTS[0], [5])
    arrays = (case.qkv, case.k_cache, case.v_cache, case.block_table, case.perm, case.finished, case.context_len)
    out, partial = device.empty((1, 192), float32), device.empty((1584,), float32)
    sizes = {"num_heads": 3, "num_rows": 1, "num_splits": 8, **changes}
    with pytest.raises(ValueError, match=f"attention_decode: {message}"):
        attention_decode(out, *map(device.upload, arrays), partial, **sizes, scale=1.0, stream=stream)
