"""Values that strangers sent, as messages show them: short, on one line, and never an error of their own."""

from __future__ import annotations

import reprlib

_LIMIT = 80
_MANY_BITS = 1 << 10  # Python refuses to print an integer of more than 4,300 digits

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = _LIMIT
_short.maxlist = _short.maxtuple = _short.maxdict = 8
_short.maxlevel = 3


def shown(value: object) -> str:
    """Return the `repr` of a value, cut to 80 characters, whatever the value is and however large.

    Examples
    --------
    >>> shown([1, "two"]), shown(10**5000), len(shown("x" * 10**7))
    ("[1, 'two']", '<an integer of 16610 bits>', 80)
    """
    if type(value) is int and value.bit_length() > _MANY_BITS:
        return f"<an integer of {value.bit_length()} bits>"
    try:
        text = " ".join(_short.repr(value).split())
    except Exception:  # the integer is inside of something, or the object's own __repr__ fails
        return f"<{type(value).__name__}>"
    return text if len(text) <= _LIMIT else f"{text[: _LIMIT - 1]}…"


def shown_text(text: str, limit: int = 300) -> str:
    r"""Return the beginning of a text, what is not printable escaped: for messages of libraries, which quote files.

    Examples
    --------
    >>> shown_text("unknown variant `\x1b[2J`"), len(shown_text("x" * 10**7))
    ('unknown variant `\\x1b[2J`', 300)
    """
    cut = text if len(text) <= limit else f"{text[: limit - 1]}…"
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def shown_name(name: str) -> str:
    r"""Return a name as it is if it is short and printable; else quoted and escaped, so that no terminal obeys it.

    Examples
    --------
    >>> shown_name("model.norm.weight"), shown_name("x\x1b[2J")
    ('model.norm.weight', "'x\\x1b[2J'")
    """
    return name if name.isprintable() and len(name) <= _LIMIT else shown(name)
