"""Reading of JSON files that nobody has vouched for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from cupy_turbo.core.errors import CheckpointError

SIZE_LIMIT = 64 << 20
"""Bytes. The largest known index of a sharded model is under 10 MB."""


def read_json_object(path: Path) -> dict[str, object]:
    """Return the object in a JSON file.

    Raises
    ------
    CheckpointError
        If the file cannot be read, is larger than `SIZE_LIMIT`, is no JSON, or holds something else than an object.
    """
    try:
        size = path.stat().st_size
        if size > SIZE_LIMIT:
            raise CheckpointError(f"{path} has {size} bytes; the limit for a JSON file is {SIZE_LIMIT}")
        parsed = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{path} holds a {type(parsed).__name__}, not an object")
    return cast("dict[str, object]", parsed)


def read_optional_json_object(path: Path) -> dict[str, object]:
    """Return the object in a JSON file; empty if there is no such file. Otherwise as `read_json_object`."""
    return read_json_object(path) if path.exists() else {}
