"""rope_kv_write.cu against its oracle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.dtypes import FLOAT_TYPES, DType, float32
from cupy_turbo.core.protocols import Array, Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.rope_kv_write import rope_kv_write
from cupy_turbo.testing import reference
from cupy_turbo.testing.arrays import Guarded, assert_close
from cupy_turbo.testing.examples import examples


@dataclass
class Case:
    """Host arrays in the order of the operation's arguments."""

    qkv: np.ndarray
    k_cache: np.ndarray
    v_cache: np.ndarray
    cos_sin: np.ndarray
    positions: np.ndarray
    token_rows: np.ndarray
    perm: np.ndarray
    finished: np.ndarray
    block_table: np.ndarray
    num_heads: int

    def run(self, device: Device, stream: Stream) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        written = [Guarded(device, a.shape, a.dtype, a) for a in (self.qkv, self.k_cache, self.v_cache)]
        tables = (self.cos_sin, self.positions, self.token_rows, self.perm, self.finished, self.block_table)
        read: list[Array] = [device.upload(a) for a in tables]
        arrays = [guarded.array for guarded in written]
        rope_kv_write(*arrays, *read, num_heads=self.num_heads, stream=stream)  # type: ignore[call-arg]
        qkv, k_cache, v_cache = (guarded.fetch() for guarded in written)
        return qkv, k_cache, v_cache

    def expected(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return reference.rope_kv_write(*vars(self).values())


def draw(dtype: DType, tokens: int, kv_heads: int, group: int, head_dim: int, seed: int) -> Case:
    """Random sequences: each slot owns blocks of its own, each token has a position of its own."""
    rng = np.random.default_rng(seed)
    slots, max_blocks, block_size = 4, 3, int(rng.choice([1, 5, 16]))
    max_position = max_blocks * block_size
    blocks = rng.permutation(slots * max_blocks).astype(np.int32).reshape(slots, max_blocks)
    places = rng.permutation(slots * max_position)[:tokens]  # (slot, position) pairs, all different
    angles = rng.uniform(0, 2 * np.pi, (max_position, head_dim // 2))
    cache_shape = (slots * max_blocks, kv_heads, block_size, head_dim)
    return Case(
        qkv=rng.normal(size=(len(places), (group + 2) * kv_heads * head_dim)).astype(dtype),
        k_cache=rng.normal(size=cache_shape).astype(dtype),
        v_cache=rng.normal(size=cache_shape).astype(dtype),
        cos_sin=np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32),
        positions=(places % max_position).astype(np.int32),
        token_rows=(places // max_position).astype(np.int32),
        perm=rng.permutation(slots).astype(np.int32),
        finished=np.zeros(slots, np.int32),
        block_table=blocks,
        num_heads=group * kv_heads,
    )


def compare(case: Case, results: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    """What the oracle changes is close to it; what it leaves alone is the same to the bit."""
    before = (case.qkv, case.k_cache, case.v_cache)
    for initial, actual, expected in zip(before, results, case.expected(), strict=True):
        changed = expected != initial.astype(np.float64)
        assert np.array_equal(actual[~changed], initial[~changed])
        assert_close(actual[changed], expected[changed])


@pytest.mark.parametrize("head_dim", [2, 32, 34, 48, 64, 80, 96, 100, 128, 256])
@settings(max_examples=examples(15))
@given(
    dtype=st.sampled_from(FLOAT_TYPES),
    tokens=st.integers(0, 9),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_matches_the_oracle_and_leaves_masked_tokens_alone(
    device: Device,
    stream: Stream,
    dtype: DType,
    tokens: int,
    kv_heads: int,
    group: int,
    head_dim: int,
    seed: int,
    data: st.DataObject,
) -> None:
    case = draw(dtype, tokens, kv_heads, group, head_dim, seed)
    for array, value in ((case.token_rows, -1), (case.perm, -1), (case.finished, 2)):
        masked = data.draw(st.lists(st.booleans(), min_size=len(array), max_size=len(array)))
        array[masked] = value
    compare(case, case.run(device, stream))


@pytest.mark.parametrize("position", [-1, 20, 48, 2**31 - 1])
def test_a_position_outside_the_tables_writes_nothing(device: Device, stream: Stream, position: int) -> None:
    case = draw(float32, 3, kv_heads=1, group=2, head_dim=32, seed=5)
    case.positions[:], case.cos_sin = position, case.cos_sin[:20]  # 20: in the block table, not in the angles
    for initial, actual in zip((case.qkv, case.k_cache, case.v_cache), case.run(device, stream), strict=True):
        assert np.array_equal(actual, initial)


@pytest.mark.parametrize("block", [-1, 12, 2**31 - 1])
def test_a_block_outside_the_cache_writes_nothing(device: Device, stream: Stream, block: int) -> None:
    case = draw(float32, 3, kv_heads=1, group=2, head_dim=32, seed=5)
    case.block_table[:] = block
    for initial, actual in zip((case.qkv, case.k_cache, case.v_cache), case.run(device, stream), strict=True):
        assert np.array_equal(actual, initial)


def test_widths_that_do_not_fit_are_named(device: Device, stream: Stream) -> None:
    case = draw(float32, 1, kv_heads=1, group=2, head_dim=32, seed=5)
    case.num_heads = 3
    with pytest.raises(ValueError, match=r"qkv has 128 columns, expected .* = 160 for num_heads = 3"):
        case.run(device, stream)
