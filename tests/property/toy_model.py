"""A language model of two tiny kernels, and the same in Python: a wrong row, block or byte shows as a wrong token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cupy_turbo.core.context import current_stream
from cupy_turbo.core.protocols import Device
from cupy_turbo.device import open_device
from cupy_turbo.engine.request import FinishReason
from cupy_turbo.models.slot_state import SlotState
from cupy_turbo.models.step import Step, StepLimits
from cupy_turbo.ops.commit_tokens import commit_tokens

KERNELS = Path(__file__).parent / "kernels"
"""What a device that runs `ToyModel` is opened with, as one of its `kernel_folders`."""

VOCAB_SIZE = 50


def open_toy_device(kind: str, **host_options: object) -> Device:
    """Open a device that knows the two kernels; the options (policy, seed) are for `host` only."""
    return open_device(kind, kernel_folders=[KERNELS], **(host_options if kind == "host" else {}))


_MASK = (1 << 64) - 1


class ToyModel:
    """The next token is a hash of all the sequence's tokens, read back through its blocks.

    The device state, the admissions, the block table and the ends are the real ones.
    """

    def __init__(self, device: Device, limits: StepLimits, num_blocks: int) -> None:
        self.state = SlotState(device, limits)
        self.limits = limits
        self.cache = device.empty((num_blocks * limits.block_size,), np.dtype(np.uint64))
        self.sampled = device.empty((limits.max_num_seqs,), np.dtype(np.int32))

    def prepare(self, step: Step) -> None:
        self.state.apply(step, current_stream())

    def forward(self, step: Step) -> None:
        stream, state, tokens, samples = current_stream(), self.state, step.num_tokens, step.num_samples
        sizes = (self.limits.block_size, self.limits.max_blocks_per_seq)
        arrays = (
            *(step.view(name, tokens) for name in ("token_ids", "positions", "token_rows")),
            step.view("perm", step.num_rows),
            *(state.finished, state.last_tokens, state.block_table),
        )
        write = stream.device.kernel("toy_write")
        write(-(-tokens // 32), 32, (self.cache, *arrays, tokens, *sizes), stream=stream)
        arrays = (
            *(step.view(name, samples) for name in ("sample_tokens", "sample_slots", "sample_positions")),
            step.view("positions", tokens),
            *(state.finished, state.seed, state.block_table),
        )
        sample = stream.device.kernel("toy_sample")
        arguments = (self.sampled[:samples], self.cache, *arrays, samples, VOCAB_SIZE, *sizes)
        sample(-(-samples // 32), 32, arguments, stream=stream)

    def unprepare(self, step: Step) -> None:
        samples, state = step.num_samples, self.state
        commit_tokens(
            step.results.device["tokens"][:samples],
            step.results.device["status"][:samples],
            self.sampled[:samples],
            step.view("sample_slots", samples),
            step.view("sample_positions", samples),
            state.last_tokens,
            state.finished,
            state.stop_position,
            state.stop_ids,
            stream=current_stream(),
        )


def cached(token: int, position: int) -> int:
    """What `toy_write` keeps of a token."""
    value = (token * 0x9E3779B97F4A7C15 + position) & _MASK
    value = ((value ^ (value >> 29)) * 0xBF58476D1CE4E5B9) & _MASK
    return value ^ (value >> 32)


def next_token(tokens: Sequence[int], seed: int) -> int:
    """The token behind these; -2 where the model's draw is not a number."""
    hashed = seed
    for position, token in enumerate(tokens):
        hashed = _extend(hashed, token, position)
    return _draw(hashed, len(tokens))


def answer(
    prompt: Sequence[int], *, seed: int, stop_position: int, stop_ids: Sequence[int] = ()
) -> tuple[tuple[int, ...], FinishReason]:
    """All tokens of a request that nobody disturbs, and how it ends; a draw that is not a number ends it as "error"."""
    hashed, tokens = seed, []
    for position, token in enumerate(prompt):
        hashed = _extend(hashed, token, position)
    for length in range(len(prompt), stop_position):
        token = _draw(hashed, length)
        if token < 0:
            return tuple(tokens), "error"
        tokens.append(token)
        if token in stop_ids:
            return tuple(tokens), "stop"
        hashed = _extend(hashed, token, length)
    return tuple(tokens), "length"


def _extend(hashed: int, token: int, position: int) -> int:
    hashed = ((hashed ^ cached(token, position)) * 0x94D049BB133111EB) & _MASK
    return hashed ^ (hashed >> 31)


def _draw(hashed: int, position: int) -> int:
    drawn = ((hashed + position) * 0x9E3779B97F4A7C15) & _MASK
    return -2 if drawn >> 58 == 0 else (drawn >> 32) % VOCAB_SIZE
