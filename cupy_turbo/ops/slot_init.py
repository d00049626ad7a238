"""Sampling state of newly admitted sequences."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.check import FLOAT32, INT32, UINT64, check


def slot_init(
    temperature: Array,
    top_k: Array,
    top_p: Array,
    min_p: Array,
    seed: Array,
    stop_position: Array,
    stop_ids: Array,
    finished: Array,
    slots: Array,
    new_temperature: Array,
    new_top_k: Array,
    new_top_p: Array,
    new_min_p: Array,
    new_seed: Array,
    new_stop_position: Array,
    new_stop_ids: Array,
    *,
    stream: Stream,
) -> None:
    """Scatter entries into their slots and clear the slots' end flags.

    Parameters
    ----------
    temperature, top_p, min_p : Array, (S,) float32, written
    top_k, stop_position, finished : Array, (S,) int32, written
    seed : Array, (S,) uint64, written
    stop_ids : Array, (S, N) int32, written
    slots : Array, (A,) int32
        Where each entry goes, all different; -1 for an unused entry.
    new_temperature, new_top_k, new_top_p, new_min_p, new_seed, new_stop_position : Array, (A,)
        An entry's values, in the dtype of their field.
    new_stop_ids : Array, (A, N) int32
    stream : Stream
        What the launch is queued on.

    Notes
    -----
    **Source:** ``kernels/slot_init.cu`` (TurboMind's kSetup).
    """
    dims = check(
        "slot_init",
        temperature=(temperature, "S", FLOAT32),
        top_k=(top_k, "S", INT32),
        top_p=(top_p, "S", FLOAT32),
        min_p=(min_p, "S", FLOAT32),
        seed=(seed, "S", UINT64),
        stop_position=(stop_position, "S", INT32),
        stop_ids=(stop_ids, "S N", INT32),
        finished=(finished, "S", INT32),
        slots=(slots, "A", INT32),
        new_temperature=(new_temperature, "A", FLOAT32),
        new_top_k=(new_top_k, "A", INT32),
        new_top_p=(new_top_p, "A", FLOAT32),
        new_min_p=(new_min_p, "A", FLOAT32),
        new_seed=(new_seed, "A", UINT64),
        new_stop_position=(new_stop_position, "A", INT32),
        new_stop_ids=(new_stop_ids, "A N", INT32),
    )
    if dims.A == 0:
        return
    fields = (temperature, top_k, top_p, min_p, seed, stop_position, stop_ids, finished)
    scalars = (new_temperature, new_top_k, new_top_p, new_min_p, new_seed, new_stop_position)
    kernel = stream.device.kernel("slot_init")
    kernel(dims.A, 32, (*fields, slots, *scalars, new_stop_ids, dims.S, dims.N), stream=stream)
