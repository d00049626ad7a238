"""Look at logits: one prompt through the network, every position, without an engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cupy_turbo.api.loading import build_language_model
from cupy_turbo.checkpoint import open_checkpoint
from cupy_turbo.core.dtypes import parse_dtype
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.models.step import PADDING, Step, StepLimits
from cupy_turbo.models.weights import load_weights


class Forward:
    """A model that maps token ids to the logits of every position.

    Parameters
    ----------
    model : str or Path
        As `LLM`.
    device : Device
        Where it runs; stays open.
    dtype : str, default "float32"
        Type of weights and activations.
    max_tokens : int, default 512
        Longest sequence.
    chunk : int, optional
        Run the prompt in chunks of this many tokens; default all at once.
    """

    def __init__(
        self,
        model: str | Path,
        device: Device,
        *,
        dtype: str = "float32",
        max_tokens: int = 512,
        chunk: int | None = None,
        block_size: int = 16,
    ) -> None:
        checkpoint, kind = open_checkpoint(model), parse_dtype(dtype)
        self.config, self.device = checkpoint.config, device
        self._chunk = chunk or max_tokens
        self._limits = StepLimits(
            max_num_seqs=max_tokens, max_num_tokens=max_tokens, max_model_len=max_tokens, block_size=block_size
        )
        weights = load_weights(checkpoint, self.config, device, kind, progress=False)
        blocks = self._limits.max_blocks_per_seq
        model_, _ = build_language_model(self.config, weights, device, kind, self._limits, num_blocks=blocks)
        self._network = model_.network
        self._step = Step(device, self._limits)
        self._stream = Stream.create(device=device)

    def __call__(self, token_ids: Sequence[int]) -> np.ndarray:
        """Logits after each of `token_ids`, (T, V) float32."""
        ids = np.asarray(token_ids, np.int32)
        starts = range(0, len(ids), self._chunk)
        return np.concatenate([self._run(ids, start, min(start + self._chunk, len(ids))) for start in starts])

    def _run(self, ids: np.ndarray, start: int, stop: int) -> np.ndarray:
        step, count = self._step, stop - start
        step.clear()
        fields = step.inputs.host
        fields["token_ids"][:count] = ids[start:stop]
        fields["positions"][:count] = np.arange(start, stop)
        fields["token_rows"][:count] = 0
        fields["perm"][0] = 0
        fields["query_start"][:2] = 0, count
        fields["context_len"][0] = stop
        fields["sample_tokens"][:count] = np.arange(count)
        fields["init_slots"][0] = 0
        fields["init_stop_ids"][0] = PADDING
        blocks = self._limits.max_blocks_per_seq
        fields["update_slots"][:blocks] = 0
        fields["update_indices"][:blocks] = fields["update_blocks"][:blocks] = np.arange(blocks)
        step.num_tokens = step.num_samples = step.max_query_len = count
        step.num_rows, step.num_inits, step.num_updates = 1, 1, blocks
        step.inputs.upload(self._stream)
        self._network.state.apply(step, self._stream)
        logits = self._network.forward(step, self._stream)
        self._stream.sync()
        return self.device.fetch(logits)
