"""Watching what is done with a file that nobody has vouched for."""

from __future__ import annotations

import os
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from hypothesis import strategies as st

from cupy_turbo.core.errors import CheckpointError, InvalidRequestError, UnsupportedModelError

REFUSALS = (CheckpointError, UnsupportedModelError, InvalidRequestError)
SECONDS = 2.0

EVIL_INTEGERS = [0, 1, -1, 3, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**61, 2**62, 2**63, 2**64 - 1]
"""Where a width, a sign or a product of two ends."""

evil_integers = st.sampled_from(EVIL_INTEGERS) | st.integers(-(2**65), 2**65)

json_values = st.recursive(
    st.none() | st.booleans() | evil_integers | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)

Value = TypeVar("Value")


def attempt(action: Callable[[], Value], *, names: str = "", allowed_bytes: int | None = None) -> Value | None:
    """Run an action on an untrusted file and return its value, or None if it refused the file as it should.

    It fails if the action raises anything else than a refusal, takes more than `SECONDS` of processor time, allocates
    more than `allowed_bytes` in Python, or refuses with a message that is long, is not printable, or lacks `names`.
    """
    if allowed_bytes is not None:
        tracemalloc.start()
    start = time.thread_time()
    try:
        value, refusal = action(), None
    except REFUSALS as error:
        value, refusal = None, str(error)
    finally:
        seconds = time.thread_time() - start
        peak = tracemalloc.get_traced_memory()[1] if allowed_bytes is not None else 0
        tracemalloc.stop()
    assert seconds < SECONDS
    assert allowed_bytes is None or peak <= allowed_bytes
    if refusal is not None:
        assert refusal.isprintable()
        assert len(refusal) < 2000
        assert names in refusal
    return value


_watchers: list[list[tuple[str, str]]] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _watchers and event in ("open", "os.system", "subprocess.Popen", "os.exec", "socket.connect", "import"):
        for events in _watchers:
            events.append((event, os.fspath(arguments[0]) if isinstance(arguments[0], str | os.PathLike) else ""))


@contextmanager
def audited() -> Iterator[list[tuple[str, str]]]:
    """Collect (event, path or name) of what Python is asked for meanwhile: opens, processes, connections, imports."""
    if not getattr(_hook, "is_installed", False):
        sys.addaudithook(_hook)  # there is no way to take one out again
        _hook.is_installed = True  # type: ignore[attr-defined]
    events: list[tuple[str, str]] = []
    _watchers.append(events)
    try:
        yield events
    finally:
        _watchers.remove(events)


def opened_outside(events: list[tuple[str, str]], folder: Path) -> list[str]:
    """Return the files opened outside of a folder, Python's own and this project's left out."""
    own = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix, Path(__file__).parents[2])]
    homes = [folder.resolve(), *own, Path("/proc")]
    opened = [Path(path).resolve() for event, path in events if event == "open" and path]
    return [str(path) for path in opened if not any(path.is_relative_to(home) for home in homes)]
