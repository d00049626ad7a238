"""How a tokenizer's decoder turns tokens into text, one token at a time.

`tokenizers` decodes a whole sequence at once. Streaming needs the same text token by token, so this module reads the
decoder's description and follows its rules exactly: what a token means never depends on more than the bytes still
waiting for the rest of their character.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping, Sequence
from typing import Protocol

import tokenizers

from cupy_turbo.core.errors import UnsupportedModelError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenText(Protocol):
    """Text of a growing token sequence; what was returned once never changes."""

    def push(self, token: str) -> str:
        """Return the text that this token makes certain, maybe nothing yet."""
        ...

    def flush(self) -> str:
        """Return what was held back: the sequence has ended."""
        ...

    def forget(self) -> None:
        """Drop the whole characters held back; keep an unfinished one, which the next tokens may complete."""
        ...


def byte_alphabet() -> dict[str, int]:
    """Return the byte that each character of a byte-level vocabulary stands for.

    Notes
    -----
    **Source:** GPT-2's `bytes_to_unicode`: printable Latin-1 stands for itself, the other 68 bytes for U+0100 onwards.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    alphabet = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    return alphabet | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTES = byte_alphabet()


class ByteLevelText:
    """Tokens are spelled in the byte alphabet; their bytes, joined, are UTF-8."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: str) -> str:
        """Return the characters completed by this token."""
        try:
            spelled = bytes(_BYTES[character] for character in token)
        except KeyError:  # an added token is not spelled in the alphabet: it stands for itself
            spelled = token.encode()
        return self._utf8.decode(spelled)

    def flush(self) -> str:
        """Return U+FFFD if a character was left unfinished."""
        return self._utf8.decode(b"", final=True)

    def forget(self) -> None:
        """Keep an unfinished character; whole ones are never held back."""


class PieceText:
    """Tokens are text, or one byte each (`<0xE6>`), with a mark such as `▁` for a space.

    Parameters
    ----------
    replacements : sequence of (old, new)
        Applied to each token in turn.
    byte_fallback : bool
        Whether `<0xNN>` is a byte. A run of bytes that is UTF-8 becomes its text and any other run one U+FFFD per byte,
        so nothing of a run is certain before it ends.
    strip : (character, count), optional
        How many leading occurrences are dropped from the text as a whole.
    first_drops : str
        A mark that is dropped from the first token (Metaspace).
    joiner : str
        What stands between tokens.
    """

    def __init__(
        self,
        *,
        replacements: Sequence[tuple[str, str]] = (),
        byte_fallback: bool = False,
        strip: tuple[str, int] | None = None,
        first_drops: str = "",
        joiner: str = "",
    ) -> None:
        self._replacements = replacements
        self._byte_fallback = byte_fallback
        self._strip_character, self._strip_left = strip if strip is not None else ("", 0)
        self._first_drops = first_drops
        self._joiner = joiner
        self._has_token = False
        self._run = bytearray()  # byte tokens since the last token of another kind

    def push(self, token: str) -> str:
        """Return the text that this token makes certain: nothing for a byte, whose run may go on."""
        is_first, self._has_token = not self._has_token, True
        byte = _BYTE_TOKEN.fullmatch(token) if self._byte_fallback else None
        if byte is not None:
            self._run.append(int(byte[1], 16))
            return ""
        if is_first and self._first_drops:
            token = token.replace(self._first_drops, "")
        for old, new in self._replacements:
            token = token.replace(old, new)
        if not is_first:
            token = self._joiner + token
        return self._stripped(self._end_run() + token)

    def flush(self) -> str:
        """Return the text of the run of bytes that was held back."""
        return self._stripped(self._end_run())

    def forget(self) -> None:
        """Drop the whole characters of a run of bytes; keep the bytes of an unfinished one."""
        utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stripped(utf8.decode(bytes(self._run)))
        self._run = bytearray(utf8.getstate()[0])

    def _end_run(self) -> str:
        run = bytes(self._run)
        self._run.clear()
        try:
            return run.decode("utf-8")
        except UnicodeDecodeError:
            return "\N{REPLACEMENT CHARACTER}" * len(run)

    def _stripped(self, text: str) -> str:
        while self._strip_left and text.startswith(self._strip_character):
            text, self._strip_left = text[1:], self._strip_left - 1
        if text:
            self._strip_left = 0
        return text


def token_text(backend: tokenizers.Tokenizer) -> TokenText:
    """Return a fresh decoder that follows the rules of this tokenizer's own.

    Raises
    ------
    UnsupportedModelError
        If the decoder is of a kind whose text cannot be streamed exactly.

    Notes
    -----
    **Source:** the `decoders` module of Hugging Face `tokenizers`.
    """
    decoder = backend.decoder
    if decoder is None:
        return PieceText(joiner=" ")
    # The decoder's own state, not the whole tokenizer's: a vocabulary of 128,000 tokens takes long to write as JSON.
    description: object = json.loads(decoder.__getstate__())
    steps = _flattened(description)
    match [step.get("type") for step in steps]:
        case ["ByteLevel"]:
            return ByteLevelText()
        case ["Metaspace"]:
            mark = str(steps[0]["replacement"])
            drops = "" if steps[0].get("prepend_scheme") == "never" else mark
            return PieceText(replacements=[(mark, " ")], first_drops=drops)
    return _piece_text(steps)


def _flattened(description: object) -> list[Mapping[str, object]]:
    assert isinstance(description, dict), description
    if description.get("type") != "Sequence":
        return [description]
    return [step for part in description["decoders"] for step in _flattened(part)]


def _piece_text(steps: Sequence[Mapping[str, object]]) -> PieceText:
    """Read a Llama-like sequence: any Replace, then at most one each of ByteFallback, Fuse and Strip."""
    remaining = list(steps)
    replacements = []
    while remaining and remaining[0].get("type") == "Replace":
        pattern = remaining[0]["pattern"]
        if not (isinstance(pattern, dict) and "String" in pattern):
            break
        replacements.append((str(pattern["String"]), str(remaining.pop(0)["content"])))
    taken: dict[str, Mapping[str, object]] = {}
    for kind in ("ByteFallback", "Fuse", "Strip"):
        if remaining and remaining[0].get("type") == kind:
            taken[kind] = remaining.pop(0)
    strip = taken.get("Strip")
    # Without Fuse, Strip works on every token; and text stripped at the end is not certain before it.
    if remaining or (strip is not None and ("Fuse" not in taken or strip["stop"] != 0)):
        kinds = ", ".join(str(step.get("type")) for step in steps)
        raise UnsupportedModelError(
            f"the tokenizer's decoder [{kinds}] cannot be streamed; supported: ByteLevel, Metaspace, "
            "and Replace (of a string), ByteFallback, Fuse, Strip (at the start) in this order"
        )
    return PieceText(
        replacements=replacements,
        byte_fallback="ByteFallback" in taken,
        strip=None if strip is None else (str(strip["content"]), int(str(strip["start"]))),
    )
