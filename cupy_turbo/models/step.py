"""One forward pass as data: the packed inputs, the results, and the counts that size its launches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from cupy_turbo.core.protocols import Array, Device
from cupy_turbo.device.arena import Arena

MAX_STOP_IDS = 32
"""Stop ids (end-of-sequence included) that one request may have: the width of a device table."""

PADDING = -1
"""Marks an unused row, slot or update entry; every kernel skips it."""


class TokenStatus(IntEnum):
    """What `ops.commit_tokens` says of a sampled row."""

    MASKED = 0
    """Nothing was sampled: the sequence had ended in an earlier step, or the row is padding."""
    RUNNING = 1
    STOPPED = 2
    """The token is one of the request's stop ids."""
    LENGTH = 3
    """The sequence has reached its last position."""
    NON_FINITE = 4
    """The logits held NaN, or nothing but minus infinity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """The largest step that buffers are sized for.

    Parameters
    ----------
    max_num_seqs : int
        Sequences alive at once, >= 1. Equals the number of slots and the most rows of a step.
    max_num_tokens : int
        Tokens of one step, >= max_num_seqs.
    max_model_len : int
        Tokens of one sequence, prompt and answer together.
    block_size : int
        Tokens of one KV block.
    """

    max_num_seqs: int
    max_num_tokens: int
    max_model_len: int
    block_size: int

    @property
    def max_blocks_per_seq(self) -> int:
        """Width of the block table."""
        return -(-self.max_model_len // self.block_size)

    @property
    def max_block_updates(self) -> int:
        """New block-table entries that one step can need: its tokens' blocks and one ragged end a row."""
        return self.max_num_seqs + self.max_num_tokens // self.block_size


class Step:
    """The inputs and results of one forward pass, in two arenas that each cross the bus in one copy.

    `inputs.host[name]` is what the engine fills, `inputs.device[name]` what kernels read. Rows are sequences; decode
    rows come first, so that for ``row < num_decode_rows`` the row's single token is token number ``row``.

    Parameters
    ----------
    device : Device
        Where the arenas live.
    limits : StepLimits
        Sizes of every field.

    Notes
    -----
    Fields of `inputs` (all int32 unless said; T tokens, R rows, U updates, A admissions):

    =================  ======  ===========================================================================
    token_ids          (T,)    a token id, or ``-slot - 1``: the token that slot sampled last, on the device
    positions          (T,)    index of the token in its sequence
    token_rows         (T,)    row that the token belongs to
    perm               (R,)    slot of the row: which row of the persistent device state it reads and writes
    query_start        (R+1,)  first token of each row
    context_len        (R,)    tokens of the sequence visible after this step's KV write
    sample_tokens      (R,)    token whose hidden state feeds the LM head, a sampled row each
    sample_slots       (R,)    slot of that sampled row
    sample_positions   (R,)    index that the sampled token gets in its sequence
    update_*           (U,)    block-table deltas: slot, index in the row, block
    init_*             (A,)    sampling state of newly admitted slots (init_seed uint64, init_stop_ids (A, 32))
    =================  ======  ===========================================================================

    `results`: `tokens` (R,) and `status` (R,), as `ops.commit_tokens` writes them.

    **Source:** TurboMind's kSetup buffers, packed into one copy; block tables travel as deltas.
    """

    def __init__(self, device: Device, limits: StepLimits) -> None:
        rows, tokens, updates = limits.max_num_seqs, limits.max_num_tokens, limits.max_block_updates
        int32, float32 = np.dtype(np.int32), np.dtype(np.float32)
        self.limits = limits
        self.inputs = Arena(
            device,
            {
                "token_ids": ((tokens,), int32),
                "positions": ((tokens,), int32),
                "token_rows": ((tokens,), int32),
                "perm": ((rows,), int32),
                "query_start": ((rows + 1,), int32),
                "context_len": ((rows,), int32),
                "sample_tokens": ((rows,), int32),
                "sample_slots": ((rows,), int32),
                "sample_positions": ((rows,), int32),
                "update_slots": ((updates,), int32),
                "update_indices": ((updates,), int32),
                "update_blocks": ((updates,), int32),
                "init_slots": ((rows,), int32),
                "init_temperature": ((rows,), float32),
                "init_top_k": ((rows,), int32),
                "init_top_p": ((rows,), float32),
                "init_min_p": ((rows,), float32),
                "init_seed": ((rows,), np.dtype(np.uint64)),
                "init_stop_position": ((rows,), int32),
                "init_stop_ids": ((rows, MAX_STOP_IDS), int32),
            },
        )
        self.results = Arena(device, {"tokens": ((rows,), int32), "status": ((rows,), int32)})
        self.clear()

    def clear(self) -> None:
        """Make this an empty step; fields keep their bytes until they are filled again."""
        self.num_tokens = 0
        self.num_rows = 0
        self.num_decode_rows = 0
        self.num_samples = 0
        self.num_updates = 0
        self.num_inits = 0
        self.max_query_len = 0
        self.is_greedy = False

    def view(self, name: str, count: int) -> Array:
        """First `count` entries of a device input field."""
        return self.inputs.device[name][:count]
