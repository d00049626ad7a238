"""embedding.cu against its oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.dtypes import FLOAT_TYPES, DType, float32
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.embedding import embedding
from cupy_turbo.testing import reference
from cupy_turbo.testing.arrays import Guarded
from cupy_turbo.testing.examples import examples


def run(device: Device, stream: Stream, table: np.ndarray, ids: np.ndarray, last: np.ndarray) -> np.ndarray:
    out = Guarded(device, (len(ids), table.shape[1]), table.dtype)
    embedding(out.array, device.upload(table), device.upload(ids), device.upload(last), stream=stream)
    return out.fetch()


@settings(max_examples=examples(40))
@given(
    dtype=st.sampled_from(FLOAT_TYPES),
    tokens=st.integers(0, 9),
    hidden=st.sampled_from([1, 3, 8, 64, 250, 1031]),
    vocab=st.integers(1, 50),
    seed=st.integers(0, 2**32 - 1),
)
def test_rows_are_copied_exactly(
    device: Device, stream: Stream, dtype: DType, tokens: int, hidden: int, vocab: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(vocab, hidden)).astype(dtype)
    last = rng.integers(0, vocab, 5).astype(np.int32)
    ids = rng.integers(-5, vocab, tokens).astype(np.int32)
    expected = reference.embedding(table, ids, last)
    assert np.array_equal(run(device, stream, table, ids, last).astype(np.float64), expected)


@pytest.mark.parametrize("token_id", [4, 2**31 - 1, -3, -(2**31)])
def test_an_id_outside_the_tables_gives_zeros(device: Device, stream: Stream, token_id: int) -> None:
    table, last = np.ones((4, 8), np.float32), np.zeros(2, np.int32)
    assert not run(device, stream, table, np.array([token_id], np.int32), last).any()


@pytest.mark.parametrize("token", [-1, 4, 2**31 - 1])
def test_a_fed_back_token_outside_the_table_gives_zeros(device: Device, stream: Stream, token: int) -> None:
    table, last = np.ones((4, 8), np.float32), np.array([token], np.int32)
    assert not run(device, stream, table, np.array([-1], np.int32), last).any()


def test_mismatched_arguments_are_named(device: Device, stream: Stream) -> None:
    out, table = device.empty((2, 8), float32), device.empty((4, 6), float32)
    ids = device.empty((2,), np.int32)
    with pytest.raises(ValueError, match=r"embedding: table has shape \(4, 6\).* H is 8 in out"):
        embedding(out, table, ids, ids, stream=stream)
