"""slot_init.cu against its oracle."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.slot_init import slot_init
from cupy_turbo.testing import reference
from cupy_turbo.testing.arrays import Guarded
from cupy_turbo.testing.examples import examples

STOP_IDS = 32


def draw_fields(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    return {
        "temperature": rng.random(count, np.float32),
        "top_k": rng.integers(0, 100, count, np.int32),
        "top_p": rng.random(count, np.float32),
        "min_p": rng.random(count, np.float32),
        "seed": rng.integers(0, 2**64, count, np.uint64),
        "stop_position": rng.integers(0, 100, count, np.int32),
        "stop_ids": rng.integers(-1, 100, (count, STOP_IDS), np.int32),
    }


@settings(max_examples=examples(40))
@given(entries=st.integers(0, 9), num_slots=st.integers(9, 12), seed=st.integers(0, 2**32 - 1))
def test_entries_reach_their_slots_and_nothing_else_changes(
    device: Device, stream: Stream, entries: int, num_slots: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    fields = draw_fields(rng, num_slots) | {"finished": rng.integers(0, 5, num_slots, np.int32)}
    new = draw_fields(rng, entries)
    slots = rng.permutation(num_slots)[:entries].astype(np.int32)
    slots[rng.random(entries) < 0.3] = -1
    written = {name: Guarded(device, field.shape, field.dtype, field) for name, field in fields.items()}
    arrays = [guarded.array for guarded in written.values()]
    slot_init(*arrays, device.upload(slots), *map(device.upload, new.values()), stream=stream)
    for name, expected in reference.slot_init(fields, slots, new).items():
        assert np.array_equal(written[name].fetch(), expected), name


def test_a_slot_that_does_not_exist_is_ignored(device: Device, stream: Stream) -> None:
    rng = np.random.default_rng(0)
    fields, new = draw_fields(rng, 2) | {"finished": np.ones(2, np.int32)}, draw_fields(rng, 2)
    written = [Guarded(device, field.shape, field.dtype, field) for field in fields.values()]
    slots = device.upload(np.array([2, 2**31 - 1], np.int32))
    slot_init(*(w.array for w in written), slots, *map(device.upload, new.values()), stream=stream)
    assert all(np.array_equal(w.fetch(), field) for w, field in zip(written, fields.values(), strict=True))
