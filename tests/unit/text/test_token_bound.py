"""A text cannot have fewer tokens than `least_tokens` says, whatever the tokenizer drops, joins or composes."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from cupy_turbo.testing.examples import examples
from cupy_turbo.text import Tokenizer as TurboTokenizer
from cupy_turbo.text import open_tokenizer
from cupy_turbo.text.pieces import byte_alphabet
from cupy_turbo.text.source import TokenizerSource
from tests.unit.text.byte_tokenizers import byte_level, metaspace, sentence_piece, undecoded
from tests.unit.text.test_gguf_tokenizer import DEMO, demo_metadata, sentence_piece_metadata


def qwen() -> TurboTokenizer:
    return open_tokenizer(demo_metadata(ggml__pre="qwen2"))


def open_demo() -> TurboTokenizer:
    return open_tokenizer(Path(DEMO))


def sentence_piece_file() -> TurboTokenizer:
    return open_tokenizer(sentence_piece_metadata())


def changed(change: Callable[[Tokenizer], None]) -> TurboTokenizer:
    """A byte-level tokenizer that knows every byte, but for one change."""
    backend = byte_level()._backend
    change(backend)
    return TurboTokenizer(TokenizerSource(backend=backend))


def strip(backend: Tokenizer) -> None:
    backend.normalizer = normalizers.Strip()


def removed(backend: Tokenizer) -> None:
    split = pre_tokenizers.Split(" ", "removed")
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])


def swallow(backend: Tokenizer) -> None:
    backend.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True)])


def shorten(backend: Tokenizer) -> None:
    backend.normalizer = normalizers.Replace("aaaa", "")


def few_bytes(backend: Tokenizer) -> None:
    backend.model = models.BPE({"a": 0, "b": 1}, [])


texts = st.text() | st.text(" ab\n", max_size=200) | st.text("e\u0301\u0313\u0345α<mask>", max_size=60)


@settings(max_examples=examples(25))
@given(texts)
def test_the_bound_holds(text: str) -> None:
    makers = [open_demo, byte_level, sentence_piece, sentence_piece_file, metaspace, undecoded, qwen]
    changes = [strip, removed, swallow, shorten, few_bytes]
    for tokenizer in [*(make() for make in makers), *(changed(change) for change in changes)]:
        assert tokenizer.least_tokens(text) <= len(tokenizer.encode(text, add_special_tokens=False))


@pytest.mark.parametrize("make", [open_demo, byte_level, sentence_piece, sentence_piece_file, qwen])
def test_tokenizers_of_supported_models_have_a_bound(make: Callable[[], TurboTokenizer]) -> None:
    assert make().least_tokens("x" * 10_000) > 100


@pytest.mark.parametrize("change", [strip, removed, swallow, shorten, few_bytes])
def test_no_bound_where_text_may_vanish(change: Callable[[Tokenizer], None]) -> None:
    assert changed(change).least_tokens("x" * 10_000) == 0


def test_composition_is_reckoned_with() -> None:
    """Four characters become one, of three bytes, which are one token: U+03B1 U+0313 U+0300 U+0345 is U+1F82."""
    spell = {byte: character for character, byte in byte_alphabet().items()}
    first, second, third = (spell[byte] for byte in "\u1f82".encode())
    tokens = [*spell.values(), first + second, first + second + third]
    merges = [(first, second), (first + second, third)]
    backend = Tokenizer(models.BPE({token: token_id for token_id, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    tokenizer = TurboTokenizer(TokenizerSource(backend=backend))
    text = unicodedata.normalize("NFD", "\u1f82") * 1000
    assert (len(text), len(tokenizer.encode(text))) == (4000, 1000)
    assert 0 < tokenizer.least_tokens(text) <= 1000
