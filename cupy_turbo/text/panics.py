"""Panics of Rust libraries, which are no `Exception` to Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cupy_turbo.core.shown import shown_text


@contextmanager
def failures_become(error: Callable[[str], Exception]) -> Iterator[None]:
    """Turn whatever `tokenizers` raises inside of the block into an error of ours.

    It raises plain `Exception` for what it checks. What it does not check is a panic: that class derives from
    `BaseException` and cannot be imported, so it is known by its name.
    """
    try:
        yield
    except BaseException as failure:
        if not isinstance(failure, Exception) and type(failure).__name__ != "PanicException":
            raise
        raise error(shown_text(str(failure))) from failure
