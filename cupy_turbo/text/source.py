"""What a tokenizer is made of, once its file has been read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import tokenizers
from tokenizers import processors


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSource:
    """A tokenizer as read from a folder or a GGUF file.

    Parameters
    ----------
    backend : tokenizers.Tokenizer
        Complete: normaliser, pre-tokenizer, model, post-processor (which adds BOS and EOS) and decoder.
    special_tokens : mapping of str to str
        `bos_token`, `eos_token`, … to the token's text; chat templates see them under these names.
    chat_template : str, optional
        Jinja source.
    """

    backend: tokenizers.Tokenizer
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    chat_template: str | None = None


def add_around(backend: tokenizers.Tokenizer, *, bos: str | None, eos: str | None) -> None:
    """Make `encode` put these tokens before and after a text; None adds none there."""
    before, after = ([] if bos is None else ["BOS"]), ([] if eos is None else ["EOS"])
    # Labels in place of the tokens themselves: the template's syntax gives ':' and ' ' a meaning.
    labelled = [
        {"id": label, "ids": [backend.token_to_id(token)], "tokens": [token]}
        for label, token in (("BOS", bos), ("EOS", eos))
        if token is not None
    ]
    backend.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *after],
        pair=[*before, "$A", *after, *before, "$B", *after],
        special_tokens=labelled,
    )
