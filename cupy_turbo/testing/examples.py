"""How hard property tests search: one number scales them all."""

from __future__ import annotations

import os

VARIABLE = "CUPY_TURBO_EXAMPLES"
"""Environment variable with the factor, > 0: 100 for a long proof, 0.1 under a slow checker. Default 1."""


def examples(count: int) -> int:
    """Scale a property test's number of examples.

    Parameters
    ----------
    count : int
        What the test runs by default, >= 1.

    Returns
    -------
    int
        At least 1.

    Raises
    ------
    ValueError
        If the variable does not hold a number > 0.

    Examples
    --------
    >>> examples(40)  # doctest: +SKIP
    40
    """
    text = os.environ.get(VARIABLE, "1")
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise ValueError(f"{VARIABLE} must be a number > 0, got {text!r}")
    return max(1, round(count * factor))
