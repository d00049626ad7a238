"""block_table_update.cu against its oracle."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.dtypes import int32
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.block_table_update import block_table_update
from cupy_turbo.testing import reference
from cupy_turbo.testing.arrays import Guarded
from cupy_turbo.testing.examples import examples


@settings(max_examples=examples(40))
@given(
    num_slots=st.integers(1, 20),
    max_blocks=st.integers(1, 30),
    updates=st.integers(0, 300),
    seed=st.integers(0, 2**32 - 1),
)
def test_entries_are_written_and_unused_ones_skipped(
    device: Device, stream: Stream, num_slots: int, max_blocks: int, updates: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 1000, (num_slots, max_blocks), np.int32)
    # More places than the table has, each at most once: those past its end must be skipped, as slot -1 is.
    places = rng.permutation((num_slots + 1) * (max_blocks + 1))[:updates]
    slots, indices = (places // (max_blocks + 1)).astype(np.int32), (places % (max_blocks + 1)).astype(np.int32)
    slots[rng.random(len(slots)) < 0.2] = -1
    blocks = rng.integers(0, 1000, len(slots), np.int32)
    written = Guarded(device, table.shape, int32, table)
    block_table_update(written.array, *map(device.upload, (slots, indices, blocks)), stream=stream)
    assert np.array_equal(written.fetch(), reference.block_table_update(table, slots, indices, blocks))


def test_numbers_far_outside_the_table_are_skipped(device: Device, stream: Stream) -> None:
    table = np.zeros((2, 2), np.int32)
    extremes = np.array([-(2**31), 2**31 - 1, 0, 0], np.int32)
    written = Guarded(device, table.shape, int32, table)
    block_table_update(
        written.array, *map(device.upload, (extremes, extremes[::-1].copy(), extremes + 1)), stream=stream
    )
    assert not written.fetch().any()
