"""Tokenizers rebuilt from GGUF metadata encode as the ones they were written from."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cupy_turbo.core.errors import CheckpointError, UnsupportedModelError
from cupy_turbo.text import open_tokenizer
from cupy_turbo.text.pre_tokenizer import BYTE_PRE_TOKENIZERS, byte_level_pre_tokenizer

DEMO = Path(__file__).resolve().parents[3] / "cupy_turbo" / "assets" / "demo"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def demo_metadata(**changes: object) -> dict[str, object]:
    """The demo model's tokenizer as a GGUF file would hold it."""
    description = json.loads((DEMO / "tokenizer.json").read_text("utf-8"))
    vocabulary = description["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL, *[NORMAL] * (len(tokens) - 1)],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in description["model"]["merges"]],
        "tokenizer.ggml.eos_token_id": 0,
        **{f"tokenizer.{name.replace('__', '.')}": value for name, value in changes.items()},
    }


# Words of one letter case, so that several merges compete for the same letters; whitespace as Llama 2 scores it.
SCORES = {"▁a": -1.0, "ab": -2.0, "▁ab": -3.0, "bc": -4.0, "abc": -5.0, "▁b": -6.0, "▁▁": -1e9, "▁▁▁▁": -1e9}
SINGLES = {"▁": -10.0, "a": -11.0, "b": -12.0, "c": -13.0}


def sentence_piece_metadata(**changes: object) -> dict[str, object]:
    pieces = {**SCORES, **SINGLES}
    num_bytes = 256
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [
            "<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(num_bytes)), *pieces, "<tool>"
        ],
        "tokenizer.ggml.token_type": [
            UNKNOWN, CONTROL, CONTROL, *[BYTE] * num_bytes, *[NORMAL] * len(pieces), USER_DEFINED
        ],
        "tokenizer.ggml.scores": [*[0.0] * (3 + num_bytes), *pieces.values(), 0.0],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **{f"tokenizer.{name.replace('__', '.')}": value for name, value in changes.items()},
    }  # fmt: skip


def sentence_piece_by_hand(text: str) -> list[str]:
    """Join the neighbours whose joint piece scores highest, leftmost first, until none is left."""
    pieces = {**SCORES, **SINGLES}
    parts = list(("▁" + text).replace(" ", "▁")) if text else []
    while True:
        joints = [(pieces[a + b], -at) for at, (a, b) in enumerate(pairwise(parts)) if a + b in pieces]
        if not joints:
            break
        at = -max(joints)[1]
        parts[at : at + 2] = ["".join(parts[at : at + 2])]
    return [spelled for part in parts for spelled in ([part] if part in pieces else as_bytes(part))]


def as_bytes(character: str) -> list[str]:
    return [f"<0x{byte:02X}>" for byte in character.encode()]


@given(st.text())
def test_byte_level_encodes_as_the_original(text: str) -> None:
    original, rebuilt = open_tokenizer(DEMO), open_tokenizer(demo_metadata())
    assert rebuilt.encode(text) == original.encode(text)
    assert rebuilt.decode(original.encode(text)) == text


@given(st.text("abc 日", max_size=12))
def test_sentence_piece_joins_by_score(text: str) -> None:
    tokenizer = open_tokenizer(sentence_piece_metadata())
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert [tokenizer.token(token_id) for token_id in ids] == sentence_piece_by_hand(text)
    assert tokenizer.decode(ids) == text


def test_bos_is_added_as_the_file_says() -> None:
    llama, gpt = sentence_piece_metadata, demo_metadata
    assert open_tokenizer(llama()).encode("a")[0] == 1  # the kind's own rule
    assert open_tokenizer(llama(ggml__add_bos_token=False)).encode("a") == open_tokenizer(llama()).encode(
        "a", add_special_tokens=False
    )
    assert open_tokenizer(llama(ggml__add_eos_token=True)).encode("a")[-1] == 2
    bos = {"ggml__bos_token_id": 0}
    assert open_tokenizer(gpt(**bos)).encode("a")[0] != 0
    assert open_tokenizer(gpt(**bos, ggml__add_bos_token=True)).encode("a")[0] == 0
    assert open_tokenizer(gpt(**bos, ggml__pre="llama-bpe")).encode("a")[0] == 0


def test_control_and_user_defined_tokens_are_found_in_text() -> None:
    tokenizer = open_tokenizer(sentence_piece_metadata())
    ids = tokenizer.encode("a</s><tool>", add_special_tokens=False)
    assert [tokenizer.token(token_id, skip_special_tokens=False) for token_id in ids] == ["▁a", "</s>", "<tool>"]
    assert tokenizer.decode(ids) == "a<tool>"


def test_no_space_prefix_where_the_file_says_so() -> None:
    tokenizer = open_tokenizer(sentence_piece_metadata(ggml__add_space_prefix=False))
    ids = tokenizer.encode("a a", add_special_tokens=False)
    assert [tokenizer.token(token_id) for token_id in ids] == ["a", "▁a"]
    assert tokenizer.decode(ids) == "a a"


def test_names_and_template_come_along() -> None:
    tokenizer = open_tokenizer(demo_metadata(chat_template="{{ eos_token }}{{ messages[0].content }}"))
    assert (tokenizer.vocab_size, tokenizer.bos_token_id, tokenizer.eos_token_id) == (1024, None, 0)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}]) == "<|endoftext|>Hi"


@pytest.mark.parametrize(
    ("name", "text", "pieces"),
    [
        ("gpt-2", "don't 123 x", ["don", "'t", "Ġ123", "Ġx"]),
        ("smollm", "don't 123 x", ["don", "'t", "Ġ", "1", "2", "3", "Ġx"]),
        ("llama-bpe", "DON'T 12345 x\n\n", ["DON", "'T", "Ġ", "123", "45", "Ġx", "ĊĊ"]),
        ("qwen2", "DON'T 12", ["DON", "'T", "Ġ", "1", "2"]),
        ("tekken", "camelCase 12/\n", ["camel", "Case", "Ġ", "1", "2", "/Ċ"]),
        ("default", "a.1234 b", ["a", ".", "123", "4", "Ġb"]),
    ],
)
def test_words_are_cut_as_the_name_says(name: str, text: str, pieces: list[str]) -> None:
    cut = byte_level_pre_tokenizer(name).build().pre_tokenize_str(text)
    assert [piece for piece, _ in cut] == pieces


def test_unknown_kinds_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedModelError, match="model 'bert' is not supported; supported: 'gpt2', 'llama'"):
        open_tokenizer(demo_metadata(ggml__model="bert"))
    with pytest.raises(UnsupportedModelError, match=r"pre-tokenizer 'dbrx' is not supported; supported: .*smollm"):
        open_tokenizer(demo_metadata(ggml__pre="dbrx"))
    assert "dbrx" not in BYTE_PRE_TOKENIZERS


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"ggml__tokens": None}, "tokenizer.ggml.tokens is missing"),
        ({"ggml__merges": None}, "tokenizer.ggml.merges is missing"),
        ({"ggml__merges": ["a ☃"]}, "merges has 'a ☃'"),
        ({"ggml__token_type": [1, 1]}, "token_type has 2 entries for 1024 tokens"),
        ({"ggml__token_type": ["x"] * 1024}, "token_type must be an integer"),
        ({"ggml__eos_token_id": 1024}, "eos_token_id is 1024, but the vocabulary has 1024 tokens"),
        ({"ggml__tokens": ["a", "a"], "ggml__token_type": [1, 1]}, "tokens has 'a' 2 times"),
    ],
)
def test_malformed_metadata_is_named(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(CheckpointError, match=problem):
        open_tokenizer(demo_metadata(**changes))


def test_scores_are_required_and_counted() -> None:
    with pytest.raises(CheckpointError, match="scores has 1 entries"):
        open_tokenizer(sentence_piece_metadata(ggml__scores=[0.0]))
    with pytest.raises(CheckpointError, match="scores is missing"):
        open_tokenizer(sentence_piece_metadata(ggml__scores=None))
