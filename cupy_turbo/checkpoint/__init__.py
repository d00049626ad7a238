"""Checkpoints: from a model's name to its configuration and its tensors, whatever kind of file they are in."""

from cupy_turbo.checkpoint.checkpoint import Checkpoint, TensorSpec
from cupy_turbo.checkpoint.locate import open_checkpoint

__all__ = ["Checkpoint", "TensorSpec", "open_checkpoint"]
