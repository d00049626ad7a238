"""How few tokens a text can have: what is far too long is refused without encoding it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tokenizers

from cupy_turbo.text.pieces import byte_alphabet

_BYTE_TOKENS = {f"<0x{byte:02X}>" for byte in range(256)}
_KEEPING = {"ByteLevel", "Metaspace", "Digits", "Split", "Punctuation", "UnicodeScripts", "FixedLength"}
_COMPOSITION = 4  # NFC makes at most four characters one


def characters_per_token(backend: tokenizers.Tokenizer, vocabulary: Iterable[str]) -> int | None:
    """Return the most characters of a text that one token can stand for; None where there is no such number.

    There is none if a part of the tokenizer drops characters, or takes any number of unknown ones as one token.
    """
    known = set(vocabulary)
    longest = max(map(len, known), default=0)
    factor = _normalizer_factor(_description(backend.normalizer))
    steps = list(_steps(_description(backend.pre_tokenizer), "pretokenizers"))
    added = backend.get_added_tokens_decoder().values()
    if factor is None or longest == 0 or any(token.lstrip or token.rstrip for token in added):
        return None
    if any(step.get("type") not in _KEEPING or step.get("behavior") == "Removed" for step in steps):
        return None
    if not all(map(_keeps_text, _steps(_description(backend.post_processor), "processors"))):
        return None
    model = backend.model
    if not isinstance(model, tokenizers.models.BPE):
        return None
    if any(step.get("type") == "ByteLevel" for step in steps):
        knows_all = known.issuperset(byte_alphabet())
    else:
        knows_all = bool(model.byte_fallback) and known >= _BYTE_TOKENS
    knows_all = knows_all or (model.unk_token is not None and not model.fuse_unk)
    return longest * factor if knows_all else None


def _normalizer_factor(description: Mapping[str, object] | None) -> int | None:
    """Return how many characters of a text the normaliser may make one; None if it may drop any number."""
    factor = 1
    for step in _steps(description, "normalizers"):
        match step.get("type"):
            case "NFC" | "NFKC":
                factor *= _COMPOSITION
            case "Prepend" | "Lowercase" | "NFD" | "NFKD" | "ByteLevel":
                pass
            case "Replace":
                pattern, content = step.get("pattern"), step.get("content")
                found = pattern.get("String") if isinstance(pattern, Mapping) else None
                if not isinstance(found, str) or not isinstance(content, str) or len(content) < len(found):
                    return None
            case _:
                return None
    return factor


def _keeps_text(step: Mapping[str, object]) -> bool:
    """Whether a post-processor passes the text's tokens on: a template may leave them out."""
    if step.get("type") != "TemplateProcessing":
        return True
    single = step.get("single")
    return isinstance(single, list) and any(isinstance(piece, Mapping) and "Sequence" in piece for piece in single)


def _description(part: Any) -> Mapping[str, object] | None:
    if part is None:
        return None
    described: Mapping[str, object] = json.loads(part.__getstate__())
    return described


def _steps(description: Mapping[str, object] | None, inner: str) -> Iterator[Mapping[str, object]]:
    """Yield the parts of a sequence, and of those inside of it; nothing for None."""
    if description is None:
        return
    if description.get("type") != "Sequence":
        yield description
        return
    parts = description.get(inner)
    for part in parts if isinstance(parts, list) else []:
        yield from _steps(part, inner)
