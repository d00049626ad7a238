"""The engine's settings."""

from __future__ import annotations

from dataclasses import dataclass

from cupy_turbo.models.step import StepLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Sizes of an engine, checked once.

    Parameters
    ----------
    max_model_len : int
        Tokens of one sequence, >= 2 (a prompt token and an answer's).
    max_num_seqs : int
        Sequences alive at once, >= 1.
    max_num_batched_tokens : int
        Tokens of one step, >= max_num_seqs.
    block_size : int
        Tokens of a KV block: 16, 32, 64 or 128.
    num_blocks : int
        Blocks of the pool, >= 1.
    phases : int
        Batches in the ring: 2 looks one batch ahead, 1 is synchronous.
    """

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    num_blocks: int
    phases: int

    def __post_init__(self) -> None:
        if self.max_model_len < 2:
            raise ValueError(f"max_model_len must be >= 2, got {self.max_model_len}")
        if self.max_num_seqs < 1:
            raise ValueError(f"max_num_seqs must be >= 1, got {self.max_num_seqs}")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens is {self.max_num_batched_tokens}, but every one of max_num_seqs = "
                f"{self.max_num_seqs} sequences decodes a token in a step; raise it or lower max_num_seqs"
            )
        if self.block_size not in (16, 32, 64, 128):
            raise ValueError(f"block_size must be 16, 32, 64 or 128, got {self.block_size}")
        if self.num_blocks < 1:
            raise ValueError(f"num_blocks must be >= 1, got {self.num_blocks}")
        if self.phases not in (1, 2):
            raise ValueError(f"phases must be 1 (synchronous) or 2 (one batch ahead), got {self.phases}")

    @property
    def limits(self) -> StepLimits:
        """The sizes that a step's buffers need."""
        return StepLimits(
            max_num_seqs=self.max_num_seqs,
            max_num_tokens=self.max_num_batched_tokens,
            max_model_len=self.max_model_len,
            block_size=self.block_size,
        )
