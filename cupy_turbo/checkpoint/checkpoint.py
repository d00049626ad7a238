"""Checkpoint and TensorSpec: what is known of a model before any weight is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cupy_turbo.core.dtypes import FLOAT_TYPES
from cupy_turbo.core.errors import CheckpointError
from cupy_turbo.core.shown import shown_name
from cupy_turbo.models.config import ModelConfig

NO_DTYPE = np.dtype(np.void)
"""Stands for a stored type that cannot be loaded."""

_NAMES_SHOWN = 8


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a checkpoint, not read yet.

    Parameters
    ----------
    name : str
        Hugging Face name.
    shape : tuple of int
        As `ModelConfig.tensor_shapes` says it.
    dtype : numpy.dtype
        Type of the arrays that `read` returns: float32 for a quantized tensor, `NO_DTYPE` if it cannot be read.
    stored_as : str
        The file's own word for its type, such as ``"BF16"`` or ``"Q4_1"``.
    source : str
        File that holds it, for messages.
    read_rows : callable
        ``(start, stop) -> ndarray``: those entries of the first axis, from the file.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    stored_as: str
    source: str
    read_rows: Callable[[int, int], npt.NDArray[np.generic]] = field(repr=False)

    def read(self, start: int = 0, stop: int | None = None) -> npt.NDArray[np.generic]:
        """Read rows [start, stop) of the first axis from the file; by default all.

        Raises
        ------
        CheckpointError
            If the file no longer holds what its header promised.
        """
        stop = self.shape[0] if stop is None else stop
        rows = self.read_rows(start, stop)
        expected = (stop - start, *self.shape[1:])
        if rows.shape != expected or rows.dtype != self.dtype:
            raise CheckpointError(
                f"{self.source}: {self.name} was {self.shape} {self.dtype} when the file was opened, "
                f"but rows {start} to {stop} read as {rows.shape} {rows.dtype}; was the file replaced?"
            )
        return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model that can be loaded: its configuration has been read and its tensors have been found.

    Parameters
    ----------
    config : ModelConfig
        The network.
    generation_config : mapping
        The parsed `generation_config.json`; empty if there is none.
    tensors : mapping of str to TensorSpec
        In Hugging Face names, exactly those of `config.tensor_shapes()`; empty if `is_random`.
    tokenizer_source : path or mapping
        What `text.open_tokenizer` reads: a folder, or the metadata of a GGUF file. Random weights have no text of
        their own and borrow the demo model's tokenizer.
    path : path or None
        Folder or file; None for `random:` models.
    is_random : bool
        Whether the weights are to be drawn on the device instead of read.
    """

    config: ModelConfig
    generation_config: Mapping[str, object]
    tensors: Mapping[str, TensorSpec]
    tokenizer_source: Path | Mapping[str, object]
    path: Path | None
    is_random: bool = False


def match_tensors(config: ModelConfig, found: Mapping[str, TensorSpec], source: str) -> dict[str, TensorSpec]:
    """Compare the tensors of a file with those that the configuration asks for, and return the latter.

    Parameters
    ----------
    config : ModelConfig
        Says which tensors there must be.
    found : mapping
        Tensors of the files. Rotary frequencies and the LM head of a model with tied embeddings repeat what the
        configuration says and are dropped.
    source : str
        Folder or file, for the message.

    Raises
    ------
    CheckpointError
        Naming every kind of difference at once (missing, not used, other shape, other type), so that a model saved
        under other names is recognised at a glance.
    """
    expected = config.tensor_shapes()
    known = expected.keys() | ({"lm_head.weight"} if config.tie_word_embeddings else set())
    problems = {
        "missing": [name for name in expected if name not in found],
        "not used by this network": [shown_name(name) for name in found if name not in known and not _is_rotary(name)],
        "wrong shape": [
            f"{name} {found[name].shape} for {shape}"
            for name, shape in expected.items()
            if name in found and found[name].shape != shape
        ],
        "wrong type": [
            f"{name} {found[name].stored_as}"
            for name in expected
            if name in found and found[name].dtype not in FLOAT_TYPES
        ],
    }
    if any(problems.values()):
        listed = "; ".join(f"{problem}: {_listed(names)}" for problem, names in problems.items() if names)
        raise CheckpointError(f"{source}: the tensors are not those of the configuration: {listed}")
    return {name: found[name] for name in expected}


def _is_rotary(name: str) -> bool:
    return name.endswith((".rotary_emb.inv_freq", ".rotary_emb.cos_cached", ".rotary_emb.sin_cached"))


def _listed(names: list[str]) -> str:
    rest = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
