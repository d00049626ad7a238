"""What a tokenizer.json may ask for: `tokenizers` trusts the file, and some of it ends the process or never ends."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator

from cupy_turbo.core.errors import CheckpointError
from cupy_turbo.core.shown import shown

MAX_GROWTH = 64
"""How many times longer a normaliser may make a text; real ones replace a space by one or three characters."""


def check_normalizer(description: object, source: str) -> None:
    """Look at the normaliser of a tokenizer before `tokenizers` does.

    Parameters
    ----------
    description : object
        The value of `normalizer` in tokenizer.json.
    source : str
        The file, as errors should name it.

    Raises
    ------
    CheckpointError
        If a `Precompiled` one has a table larger than the file (which would be allocated, and end the process), or
        replacements would make a text longer and longer.
    """

    def refused(name: str, problem: str) -> CheckpointError:
        return CheckpointError(f"{source}: normalizer.{name} {problem}")

    growth = 1.0
    for step in _steps(description):
        match step.get("type"):
            case "Precompiled":
                _check_table(step.get("precompiled_charsmap"), refused)
            case "Replace":
                growth *= _growth(step, refused)
            case "Prepend":
                prefix = step.get("prepend")
                if isinstance(prefix, str) and len(prefix) > MAX_GROWTH:
                    raise refused("prepend", f"has {len(prefix)} characters, the limit is {MAX_GROWTH}")
    if growth > MAX_GROWTH:
        raise refused("content", f"makes a text up to {growth:.0f} times longer, the limit is {MAX_GROWTH}")


def _steps(description: object) -> Iterator[dict[str, object]]:
    """Yield the normalisers of a sequence, and of those inside of it."""
    if isinstance(description, dict):
        yield description
        inner = description.get("normalizers")
        for each in inner if isinstance(inner, list) else []:
            yield from _steps(each)


def _growth(step: dict[str, object], refused: Callable[[str, str], CheckpointError]) -> float:
    pattern, content = step.get("pattern"), step.get("content")
    if not isinstance(pattern, dict) or not isinstance(content, str):
        return 1  # `tokenizers` will say what is wrong with it
    found = pattern.get("String", pattern.get("Regex"))
    if found == "":
        raise refused("pattern", "is empty: it would match everywhere")
    shortest = len(found) if isinstance(found, str) and "String" in pattern else 1
    return max(1.0, len(content) / shortest)


def _check_table(encoded: object, refused: Callable[[str, str], CheckpointError]) -> None:
    # the length of its trie in bytes, the trie (4 bytes for each node), and texts
    name = "precompiled_charsmap"
    if not isinstance(encoded, str):
        raise refused(name, f"must be text, got {shown(encoded)}")
    try:
        table = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise refused(name, f"is no base64: {error}") from None
    size = int.from_bytes(table[:4], "little")
    if len(table) < 4 or size % 4 or size > len(table) - 4:
        raise refused(name, f"says that its trie has {size} bytes, but it has {len(table)} bytes in all")
