"""argmax.cu against its oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.dtypes import int32
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.argmax import argmax
from cupy_turbo.testing import reference_sampling as reference
from cupy_turbo.testing.arrays import Guarded
from cupy_turbo.testing.examples import examples


def run(
    device: Device, stream: Stream, logits: np.ndarray, slots: list[int], finished: list[int], limit: int
) -> list[int]:
    """Compare with the oracle, and return the tokens."""
    tokens = Guarded(device, len(slots), int32)
    slots_host, finished_host = np.array(slots, np.int32), np.array(finished, np.int32)
    uploaded = [device.upload(array) for array in (logits, slots_host, finished_host)]
    argmax(tokens.array, *uploaded, vocab_limit=limit, stream=stream)
    actual = tokens.fetch().tolist()
    assert actual == reference.argmax(logits, slots_host, finished_host, limit).tolist()
    return actual


@settings(max_examples=examples(60))
@given(
    rows=st.integers(0, 6),
    vocab=st.integers(1, 300) | st.sampled_from([1024, 8191]),
    seed=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_matches_the_oracle(
    device: Device, stream: Stream, rows: int, vocab: int, seed: int, data: st.DataObject
) -> None:
    logits = np.random.default_rng(seed).normal(size=(rows, vocab)).astype(np.float32)
    if data.draw(st.booleans()):
        logits = logits.round()  # many ties, and -0 beside +0
    odd_values = st.sampled_from([np.nan, -np.nan, np.inf, -np.inf])
    if rows:
        places = st.tuples(st.integers(0, rows - 1), st.integers(0, vocab - 1))
        for place, value in data.draw(st.dictionaries(places, odd_values, max_size=3)).items():
            logits[place] = value
    slots = data.draw(st.lists(st.integers(-1, 3), min_size=rows, max_size=rows))
    finished = data.draw(st.lists(st.sampled_from([0, 0, 0, 2]), min_size=4, max_size=4))
    run(device, stream, logits, slots, finished, data.draw(st.integers(1, vocab)))


def test_the_vocabulary_of_a_large_model(device: Device, stream: Stream) -> None:
    logits = np.zeros((2, 128_256), np.float32)
    logits[0, 128_255] = logits[1, 77_777] = 1
    assert run(device, stream, logits, [0, 0], [0], 128_256) == [128_255, 77_777]


def test_ties_go_to_the_lowest_index_and_minus_zero_is_zero(device: Device, stream: Stream) -> None:
    assert run(device, stream, np.array([[-1, -0.0, 0.0, -2]], np.float32), [0], [0], 4) == [1]


def test_padding_of_the_vocabulary_is_never_taken(device: Device, stream: Stream) -> None:
    logits = np.array([[1, 2, 9, np.nan]], np.float32)
    assert run(device, stream, logits, [0], [0], limit=2) == [1]


@pytest.mark.parametrize("values", [[0, np.nan, 1], [-np.inf] * 3])
def test_useless_logits_are_told(device: Device, stream: Stream, values: list[float]) -> None:
    assert run(device, stream, np.array([values], np.float32), [0], [0], 3) == [-2]


@pytest.mark.parametrize("limit", [0, 4, -1])
def test_a_limit_outside_the_vocabulary_is_an_error(device: Device, stream: Stream, limit: int) -> None:
    with pytest.raises(ValueError, match=f"vocab_limit is {limit}, must be from 1 to 3"):
        run(device, stream, np.zeros((1, 3), np.float32), [0], [0], limit)
