"""Tokenizers of GGUF files, rebuilt as `tokenizers` objects from the file's metadata."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import SupportsIndex

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers

from cupy_turbo.core.errors import CheckpointError, UnsupportedModelError
from cupy_turbo.core.shown import shown
from cupy_turbo.text.panics import failures_become
from cupy_turbo.text.pre_tokenizer import byte_level_pre_tokenizer
from cupy_turbo.text.source import TokenizerSource, add_around

# `tokenizer.ggml.token_type`
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4

MAX_PIECE = 256
"""Characters of a `llama` vocabulary's token: the ways to cut one in two are tried. SentencePiece's default is 16."""

_SPECIAL_TOKENS = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    tokens: list[str]
    types: list[int]

    def ids(self) -> dict[str, int]:
        return {token: token_id for token_id, token in enumerate(self.tokens)}

    def of_type(self, kind: int) -> list[str]:
        return [token for token, its_kind in zip(self.tokens, self.types, strict=True) if its_kind == kind]


def read_gguf_tokenizer(metadata: Mapping[str, object]) -> TokenizerSource:
    """Rebuild the tokenizer that a GGUF file describes.

    Parameters
    ----------
    metadata : mapping of str to object
        The file's key-value pairs, at least those under `tokenizer.`; arrays as sequences.

    Raises
    ------
    CheckpointError
        If an entry is missing, or entries disagree.
    UnsupportedModelError
        If the kind (`tokenizer.ggml.model`) or the pre-tokenizer (`tokenizer.ggml.pre`) is not supported.

    Notes
    -----
    **Source:** llama.cpp `llama-vocab.cpp` (meaning of the keys and their defaults).
    """
    kind = metadata.get("tokenizer.ggml.model")
    vocabulary = _read_vocabulary(metadata)
    match kind:
        case "gpt2":
            backend, adds_bos = _byte_level(metadata, vocabulary)
        case "llama":
            backend, adds_bos = _sentence_piece(metadata, vocabulary), True
        case _:
            raise UnsupportedModelError(
                f"GGUF tokenizer.ggml.model {shown(kind)} is not supported; supported: 'gpt2', 'llama'"
            )
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in vocabulary.of_type(_CONTROL)])
    backend.add_tokens([AddedToken(token, normalized=False) for token in vocabulary.of_type(_USER_DEFINED)])
    special_tokens = _read_special_tokens(metadata, vocabulary)
    bos = special_tokens.get("bos_token") if _switch(metadata, "add_bos_token", adds_bos) else None
    eos = special_tokens.get("eos_token") if _switch(metadata, "add_eos_token", False) else None
    add_around(backend, bos=bos, eos=eos)
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise CheckpointError(f"tokenizer.chat_template must be text, got {shown(template)}")
    return TokenizerSource(backend=backend, special_tokens=special_tokens, chat_template=template)


def _byte_level(metadata: Mapping[str, object], vocabulary: _Vocabulary) -> tuple[tokenizers.Tokenizer, bool]:
    name = str(metadata.get("tokenizer.ggml.pre", "default"))
    pre_tokenizer = byte_level_pre_tokenizer(name)
    ids = vocabulary.ids()
    merges = []
    for merge in _array(metadata, "tokenizer.ggml.merges"):
        left, _, right = str(merge).partition(" ")
        if left not in ids or right not in ids or left + right not in ids:
            raise CheckpointError(
                f"tokenizer.ggml.merges has {shown(merge)}, of which the vocabulary lacks a part or the whole"
            )
        merges.append((left, right))
    with failures_become(_malformed):
        backend = tokenizers.Tokenizer(models.BPE(ids, merges, ignore_merges=pre_tokenizer.ignore_merges))
    if pre_tokenizer.composes:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizer.build()
    backend.decoder = decoders.ByteLevel()
    return backend, pre_tokenizer.adds_bos


def _sentence_piece(metadata: Mapping[str, object], vocabulary: _Vocabulary) -> tokenizers.Tokenizer:
    scores = [_score(score) for score in _array(metadata, "tokenizer.ggml.scores")]
    _check_length("tokenizer.ggml.scores", len(scores), len(vocabulary.tokens))
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    with failures_become(_malformed):
        model = models.BPE(
            vocabulary.ids(),
            _merges_by_score(vocabulary, scores),
            unk_token=vocabulary.tokens[_id_in(vocabulary, "unknown", unknown)],
            fuse_unk=True,
            byte_fallback=True,
        )
    backend = tokenizers.Tokenizer(model)
    adds_space = _switch(metadata, "add_space_prefix", True)
    prepend: list[normalizers.Normalizer] = [normalizers.Prepend("▁")] if adds_space else []
    backend.normalizer = normalizers.Sequence([*prepend, normalizers.Replace(" ", "▁")])
    strip: list[decoders.Decoder] = [decoders.Strip(" ", 1, 0)] if adds_space else []
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return backend


def _merges_by_score(vocabulary: _Vocabulary, scores: list[float]) -> list[tuple[str, str]]:
    """Return every way to make a token from two others, best token first.

    SentencePiece joins the two neighbours whose joint token has the highest score; BPE joins the pair that comes first
    in its list. Listing the pairs by score makes them the same.
    """
    normal = {
        token: score
        for token, kind, score in zip(vocabulary.tokens, vocabulary.types, scores, strict=True)
        if kind == _NORMAL
    }
    longest = max(normal, key=len, default="")
    if len(longest) > MAX_PIECE:
        raise CheckpointError(
            f"tokenizer.ggml.tokens has {shown(longest)} of {len(longest)} characters, the limit is {MAX_PIECE}"
        )
    ranked = sorted(normal, key=lambda token: -normal[token])
    return [
        (token[:cut], token[cut:])
        for token in ranked
        for cut in range(1, len(token))
        if token[:cut] in normal and token[cut:] in normal
    ]


def _read_vocabulary(metadata: Mapping[str, object]) -> _Vocabulary:
    tokens = [_text(token) for token in _array(metadata, "tokenizer.ggml.tokens")]
    if len(set(tokens)) != len(tokens):
        token, count = Counter(tokens).most_common(1)[0]
        raise CheckpointError(f"tokenizer.ggml.tokens has {shown(token)} {count} times")
    types = [_NORMAL] * len(tokens)
    if "tokenizer.ggml.token_type" in metadata:
        types = [_integer(kind, "token_type") for kind in _array(metadata, "tokenizer.ggml.token_type")]
    _check_length("tokenizer.ggml.token_type", len(types), len(tokens))
    return _Vocabulary(tokens, types)


def _read_special_tokens(metadata: Mapping[str, object], vocabulary: _Vocabulary) -> dict[str, str]:
    return {
        name: vocabulary.tokens[_id_in(vocabulary, role, token_id)]
        for role, name in _SPECIAL_TOKENS.items()
        if (token_id := metadata.get(f"tokenizer.ggml.{role}_token_id")) is not None
    }


def _id_in(vocabulary: _Vocabulary, role: str, token_id: object) -> int:
    number = _integer(token_id, f"{role}_token_id")
    if not 0 <= number < len(vocabulary.tokens):
        raise CheckpointError(
            f"tokenizer.ggml.{role}_token_id is {number}, but the vocabulary has {len(vocabulary.tokens)} tokens"
        )
    return number


def _array(metadata: Mapping[str, object], key: str) -> list[object]:
    value = metadata.get(key)
    if not isinstance(value, Iterable) or isinstance(value, str):
        raise CheckpointError(f"GGUF tokenizer: {key} is missing or not an array")
    return list(value)


def _integer(value: object, name: str) -> int:
    if not isinstance(value, SupportsIndex):
        raise CheckpointError(f"tokenizer.ggml.{name} must be an integer, got {shown(value)}")
    return operator.index(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise CheckpointError(f"tokenizer.ggml.tokens must be texts, got {shown(value)}")
    return value


def _score(value: object) -> float:
    if not isinstance(value, int | float) or value != value:
        raise CheckpointError(f"tokenizer.ggml.scores must be numbers, got {shown(value)}")
    return float(value)


def _switch(metadata: Mapping[str, object], name: str, default: bool) -> bool:
    value = metadata.get(f"tokenizer.ggml.{name}", default)
    if not isinstance(value, bool):
        raise CheckpointError(f"tokenizer.ggml.{name} must be true or false, got {shown(value)}")
    return value


def _malformed(reason: str) -> CheckpointError:
    return CheckpointError(f"tokenizer.ggml.tokens and merges make no tokenizer: {reason}")


def _check_length(key: str, length: int, num_tokens: int) -> None:
    if length != num_tokens:
        raise CheckpointError(f"{key} has {length} entries for {num_tokens} tokens")
