"""How often two precisions of a model choose the same next token, given the same text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

NextLogits = Callable[[Sequence[int]], np.ndarray]
"""Maps T token ids to (T, V) logits; `testing.forward.Forward` is one."""


def top_choices(logits_of: NextLogits, token_ids: Sequence[int], window: int) -> np.ndarray:
    """Most likely next token at every position of a text, read in windows that do not overlap.

    Parameters
    ----------
    logits_of : callable
        The model.
    token_ids : sequence of int
        The text; the last window may be shorter.
    window : int
        Tokens that the model sees at once.

    Returns
    -------
    numpy.ndarray
        (T,) int64.
    """
    starts = range(0, len(token_ids), window)
    return np.concatenate([logits_of(token_ids[start : start + window]).argmax(axis=1) for start in starts])


def top1_agreement(one: np.ndarray, other: np.ndarray) -> float:
    """Share of positions, 0 to 1, at which two models choose alike."""
    return float(np.mean(one == other))
