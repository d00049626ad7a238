"""What the device remembers of each live sequence between steps, one row a slot."""

from __future__ import annotations

import numpy as np

from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.models.step import MAX_STOP_IDS, Step, StepLimits
from cupy_turbo.ops.block_table_update import block_table_update
from cupy_turbo.ops.slot_init import slot_init


class SlotState:
    """Persistent device rows, indexed by slot: last token, end flag, sampling parameters, block table.

    Because a row's last token lives here, the next step is launched before the host has seen it.

    Parameters
    ----------
    device : Device
        Where the rows live.
    limits : StepLimits
        `max_num_seqs` rows.

    Notes
    -----
    **Source:** TurboMind's `autoreg_ids`, `finished` and `sequence_length` state; addressed by slot instead of being
    permuted each step.
    """

    def __init__(self, device: Device, limits: StepLimits) -> None:
        slots = limits.max_num_seqs
        self.last_tokens = device.empty((slots,), np.dtype(np.int32))
        self.finished = device.empty((slots,), np.dtype(np.int32))
        self.stop_position = device.empty((slots,), np.dtype(np.int32))
        self.temperature = device.empty((slots,), np.dtype(np.float32))
        self.top_k = device.empty((slots,), np.dtype(np.int32))
        self.top_p = device.empty((slots,), np.dtype(np.float32))
        self.min_p = device.empty((slots,), np.dtype(np.float32))
        self.seed = device.empty((slots,), np.dtype(np.uint64))
        self.stop_ids = device.empty((slots, MAX_STOP_IDS), np.dtype(np.int32))
        self.block_table = device.empty((slots, limits.max_blocks_per_seq), np.dtype(np.int32))
        stream = Stream.create(device=device)
        for array in vars(self).values():
            device.fill(array, 0, stream=stream)
        stream.sync()

    def apply(self, step: Step, stream: Stream) -> None:
        """Write a step's admissions and block-table deltas into the rows, on `stream`."""
        count = step.num_inits
        if count:
            slot_init(
                self.temperature,
                self.top_k,
                self.top_p,
                self.min_p,
                self.seed,
                self.stop_position,
                self.stop_ids,
                self.finished,
                step.view("init_slots", count),
                step.view("init_temperature", count),
                step.view("init_top_k", count),
                step.view("init_top_p", count),
                step.view("init_min_p", count),
                step.view("init_seed", count),
                step.view("init_stop_position", count),
                step.view("init_stop_ids", count),
                stream=stream,
            )
        count = step.num_updates
        if count:
            block_table_update(
                self.block_table,
                step.view("update_slots", count),
                step.view("update_indices", count),
                step.view("update_blocks", count),
                stream=stream,
            )
