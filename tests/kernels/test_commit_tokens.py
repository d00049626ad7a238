"""commit_tokens.cu against its oracle."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.dtypes import int32
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.commit_tokens import commit_tokens
from cupy_turbo.testing import reference_sampling as reference
from cupy_turbo.testing.arrays import Guarded
from cupy_turbo.testing.examples import examples


def run(device: Device, stream: Stream, rows: list[np.ndarray], state: list[np.ndarray]) -> list[list[int]]:
    """Compare with the oracle; return result_tokens, result_status, last_tokens, finished."""
    results = [Guarded(device, len(rows[0]), int32) for _ in range(2)]
    kept = [Guarded(device, array.shape, int32, array) for array in state]
    arrays = [*(r.array for r in results), *map(device.upload, rows), *(k.array for k in kept)]
    commit_tokens(*arrays, stream=stream)
    actual = [guarded.fetch().tolist() for guarded in (*results, *kept[:2])]
    assert actual == [array.tolist() for array in reference.commit_tokens(*rows, *state)]
    assert [k.fetch().tolist() for k in kept[2:]] == [array.tolist() for array in state[2:]]
    return actual


@settings(max_examples=examples(60))
@given(num_rows=st.integers(0, 70), seed=st.integers(0, 2**32 - 1))
def test_matches_the_oracle(device: Device, stream: Stream, num_rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    slots = rng.permutation(num_rows + 3)[:num_rows]
    slots[rng.random(num_rows) < 0.2] = -1
    finished = rng.choice([0, 0, 0, 2, 4], num_rows + 3)
    tokens, positions = rng.choice([-2, -1, 0, 1, 2, 3, 4], num_rows), rng.integers(0, 6, num_rows)
    last, stop_position = rng.integers(0, 9, num_rows + 3), rng.integers(1, 6, num_rows + 3)
    stop_ids = np.full((num_rows + 3, 32), -1)
    stop_ids[:, 31] = rng.integers(-1, 5, num_rows + 3)  # the last column counts too
    rows, state = [tokens, slots, positions], [last, finished, stop_position, stop_ids]
    run(device, stream, [a.astype(np.int32) for a in rows], [a.astype(np.int32) for a in state])


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_what_ends_a_sequence(device: Device, stream: Stream) -> None:
    """Row by row: runs on, stop id, last position, both (the stop id is told), no finite logits."""
    stop_ids = np.tile(ints(5, -1), (5, 1))
    state = [ints(9, 9, 9, 9, 9), ints(0, 0, 0, 0, 0), ints(8, 8, 8, 8, 8), stop_ids]
    results = run(device, stream, [ints(1, 5, 1, 5, -2), ints(0, 1, 2, 3, 4), ints(6, 6, 7, 7, 6)], state)
    assert results == [[1, 5, 1, 5, -2], [1, 2, 3, 2, 4], [1, 5, 1, 5, 9], [0, 2, 3, 2, 4]]


def test_an_overshoot_row_changes_nothing(device: Device, stream: Stream) -> None:
    state = [ints(9), ints(3), ints(8), ints(-1)[None]]
    assert run(device, stream, [ints(1), ints(0), ints(8)], state) == [[-1], [0], [9], [3]]
