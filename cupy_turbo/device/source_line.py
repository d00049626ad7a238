"""Which line asked for an operation: the caller's own if there is one, else the engine's."""

from __future__ import annotations

import contextlib
import linecache
import sys
import threading
from pathlib import Path
from types import FrameType

from cupy_turbo.device.race_detector import Origin

_PACKAGE = Path(__file__).resolve().parents[1]
_PLUMBING, _PACKAGED, _STANDARD, _OUTSIDE = range(4)
# Every operation passes through these folders, so a line there tells nobody which operation it was.
_PLUMBING_FOLDERS = tuple(str(_PACKAGE / folder) + "/" for folder in ("core", "device", "ops"))
_STANDARD_FILES = {threading.__file__, contextlib.__file__}

_kinds: dict[str, int] = {}


def find_origin() -> Origin | None:
    """Return the innermost line outside the package that led here.

    On a thread of the package's own there is none: then the innermost line of it that is above streams, devices and
    ops.
    """
    frame: FrameType | None = sys._getframe(1)
    packaged: FrameType | None = None
    innermost = frame
    while frame is not None:
        kind = _kind_of(frame.f_code.co_filename)
        if kind == _OUTSIDE:
            return Origin(frame.f_code.co_filename, frame.f_lineno)
        if kind == _PACKAGED and packaged is None:
            packaged = frame
        frame = frame.f_back
    found = packaged or innermost
    return None if found is None else Origin(found.f_code.co_filename, found.f_lineno)


def _kind_of(path: str) -> int:
    kind = _kinds.get(path)
    if kind is None:
        if path.startswith(_PLUMBING_FOLDERS):
            kind = _PLUMBING
        elif path.startswith(str(_PACKAGE) + "/"):
            kind = _PACKAGED
        elif path in _STANDARD_FILES or path.startswith("<frozen"):
            kind = _STANDARD
        else:
            kind = _OUTSIDE
        _kinds[path] = kind
    return kind


def describe(origin: Origin | None) -> str:
    """Return file, line and what is written there; "an unknown line" for None."""
    if origin is None:
        return "an unknown line"
    text = linecache.getline(origin.path, origin.line).strip()
    return f"{origin.path}:{origin.line}{': ' + text if text else ''}"
