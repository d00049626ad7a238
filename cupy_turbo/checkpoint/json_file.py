"""Reading of JSON files that nobody has vouched for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from cupy_turbo.checkpoint.model_file import find_model_file
from cupy_turbo.core.errors import CheckpointError
from cupy_turbo.core.shown import shown

SIZE_LIMIT = 64 << 20
"""Bytes. The largest known index of a sharded model is under 10 MB, the largest known tokenizer 35 MB."""

DEPTH_LIMIT = 64
"""Objects and lists inside of one another; real files have under ten."""


def read_json_object(path: Path) -> dict[str, object]:
    """Return the object in a JSON file of a model's folder.

    Raises
    ------
    CheckpointError
        If the file cannot be read, is no regular file of that folder, is larger than `SIZE_LIMIT` or nested deeper
        than `DEPTH_LIMIT`, is no JSON, has a key twice in one object, or holds something else than an object.
    """
    return parse_json_object(read_text(path), str(path))


def read_optional_json_object(path: Path) -> dict[str, object]:
    """Return the object in a JSON file; empty if there is no such file. Otherwise as `read_json_object`."""
    return read_json_object(path) if find_model_file(path) is not None else {}


def read_text(path: Path) -> str:
    """Return the text of a file of a model's folder.

    Raises
    ------
    CheckpointError
        As for `read_json_object`, or if it is no UTF-8.
    """
    file = find_model_file(path)
    if file is None:
        raise CheckpointError(f"{path} does not exist")
    try:
        size = file.stat().st_size
        if size > SIZE_LIMIT:
            raise CheckpointError(f"{path} has {size} bytes; the limit for such a file is {SIZE_LIMIT}")
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8: {error}") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def parse_json_object(text: str, source: str) -> dict[str, object]:
    """Return the object that a text holds; raise CheckpointError, naming the source, as `read_json_object` does."""
    try:
        parsed = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{source} cannot be read as JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{source} holds a {type(parsed).__name__}, not an object")
    # Whoever compares or prints a value later recurses as deep as it is nested.
    level: list[object] = [parsed]
    for _ in range(DEPTH_LIMIT):
        level = [each for outer in level for each in _members(outer) if isinstance(each, dict | list)]
    if level:
        raise CheckpointError(f"{source} is nested deeper than {DEPTH_LIMIT} objects or lists")
    return cast("dict[str, object]", parsed)


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        again = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {shown(again)} is there twice")
    return found


def _members(outer: object) -> list[object]:
    if isinstance(outer, dict):
        return list(outer.values())
    return outer if isinstance(outer, list) else []
