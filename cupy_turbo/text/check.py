"""Checks of text that comes from outside."""

from __future__ import annotations

import re

from cupy_turbo.core.errors import InvalidRequestError

_SURROGATE = re.compile("[\ud800-\udfff]")


def check_text(text: object, parameter: str) -> str:
    """Return the text; raise InvalidRequestError, naming the parameter, if it is none that UTF-8 can write."""
    if not isinstance(text, str):
        message = f"{parameter} must be text, got {type(text).__name__}"
        raise InvalidRequestError(message, parameter=parameter, value=text)
    found = None if text.isascii() else _SURROGATE.search(text)
    if found is not None:
        raise InvalidRequestError(
            f"{parameter} has half of a surrogate pair (U+{ord(found[0]):04X}) at character {found.start()}: it is not "
            "text; decode the input as UTF-8, or drop that character",
            parameter=parameter,
            value=text,
        )
    return text
