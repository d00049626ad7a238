"""What the pieces of a stream must add up to: exactly the text that decoding everything at once gives."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cupy_turbo.text import Detokenizer, Tokenizer
from tests.unit.text.byte_tokenizers import byte_level, metaspace, sentence_piece, undecoded

TOKENIZERS = {
    "byte_level": byte_level(),
    "sentence_piece": sentence_piece(),
    "sentence_piece_unstripped": sentence_piece(strip=False),
    "metaspace": metaspace(),
    "undecoded": undecoded(),
}
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

kinds = st.sampled_from(sorted(TOKENIZERS))
intervals = st.sampled_from([1, 8])


@st.composite
def streams(draw: st.DrawFn, *, kind: str | None = None) -> tuple[Tokenizer, list[int]]:
    """Any ids of any tokenizer, unknown ones among them; words of multi-byte text, so that characters get finished."""
    tokenizer = TOKENIZERS[kind or draw(kinds)]
    added = st.integers(tokenizer.vocab_size - 5, tokenizer.vocab_size + 1)  # and beyond the vocabulary
    any_id = st.one_of(st.integers(0, tokenizer.vocab_size - 1), added)
    text = st.text("aé日🌶️ ,", max_size=4)
    words = st.builds(lambda word: tokenizer.encode(word, add_special_tokens=False), text)
    parts = draw(st.lists(st.one_of(st.lists(any_id, max_size=6), words), max_size=6))
    return tokenizer, [token_id for part in parts for token_id in part]


def streamed(detokenizer: Detokenizer, ids: Sequence[int], interval: int = 1) -> list[str]:
    starts = range(0, len(ids), interval)
    return [*(detokenizer.push(ids[start : start + interval]) for start in starts), detokenizer.flush()]


@given(streams(), intervals, st.booleans())
def test_pushes_and_flush_add_up_to_decode(stream: tuple[Tokenizer, list[int]], interval: int, skip: bool) -> None:
    tokenizer, ids = stream
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip)
    assert "".join(streamed(detokenizer, ids, interval)) == tokenizer.decode(ids, skip_special_tokens=skip)


@given(st.sampled_from(["byte_level", "sentence_piece"]), st.text(), intervals)
def test_valid_text_never_shows_half_a_character(kind: str, text: str, interval: int) -> None:
    tokenizer = TOKENIZERS[kind]
    deltas = streamed(Detokenizer(tokenizer), tokenizer.encode(text), interval)
    assert all(REPLACEMENT not in delta for delta in deltas) or REPLACEMENT in text
    assert "".join(deltas) == tokenizer.decode(tokenizer.encode(text))


@given(streams(), intervals, st.text("aé日🌶 ", max_size=6))
def test_an_answer_continues_its_prompt(stream: tuple[Tokenizer, list[int]], interval: int, prompt: str) -> None:
    tokenizer, ids = stream
    prompt_ids = tokenizer.encode(prompt, add_special_tokens=False)
    # The prompt ends with a token that closes it: a run of byte tokens that goes on into the answer may lose its valid
    # characters after the fact, which is for the next test.
    prompt_ids.append(tokenizer.encode("a", add_special_tokens=False)[0])
    answer = "".join(streamed(Detokenizer(tokenizer, prompt_ids), ids, interval))
    assert tokenizer.decode(prompt_ids) + answer == tokenizer.decode(prompt_ids + ids)


@pytest.mark.parametrize("kind", ["byte_level", "sentence_piece"])
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_character_begun_in_the_prompt_is_finished_in_the_answer_and_nothing_leaks(kind: str, cut: int) -> None:
    tokenizer = TOKENIZERS[kind]
    begun = tokenizer.encode("日🌶", add_special_tokens=False)  # the pepper has four bytes, each a token of its own
    last = len(begun) - 4 + cut
    detokenizer = Detokenizer(tokenizer, begun[:last])
    assert "".join(streamed(detokenizer, begun[last:])) == "🌶"


@pytest.mark.parametrize("kind", ["byte_level", "sentence_piece"])
def test_a_whole_character_at_the_end_of_the_prompt_does_not_leak(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    detokenizer = Detokenizer(tokenizer, tokenizer.encode("a🌶", add_special_tokens=False))
    assert "".join(streamed(detokenizer, tokenizer.encode("b", add_special_tokens=False))) == "b"
    assert Detokenizer(tokenizer, tokenizer.encode("a🌶", add_special_tokens=False)).flush() == ""


def test_the_space_between_prompt_and_answer_is_the_answers() -> None:
    tokenizer = TOKENIZERS["sentence_piece"]
    word = [token_id for token_id in range(tokenizer.vocab_size) if tokenizer.token(token_id) == "▁Paris"]
    assert "".join(streamed(Detokenizer(tokenizer), word)) == tokenizer.decode(word) == "Paris"
    only_bos = [tokenizer.bos_token_id]
    assert "".join(streamed(Detokenizer(tokenizer, only_bos), word)) == "Paris"
    assert "".join(streamed(Detokenizer(tokenizer, [*only_bos, *word]), word)) == " Paris"


def test_a_character_cut_off_at_the_end_is_flushed_once() -> None:
    tokenizer = TOKENIZERS["byte_level"]
    detokenizer = Detokenizer(tokenizer)
    ids = tokenizer.encode("🌶", add_special_tokens=False)[:-1]
    assert streamed(detokenizer, ids) == [""] * len(ids) + [REPLACEMENT]
    assert detokenizer.flush() == ""


def test_work_per_token_does_not_grow() -> None:
    """Decoding everything again for each token would ask for n^2 / 2 tokens: four million here."""
    tokenizer = CountingTokenizer()
    detokenizer = Detokenizer(tokenizer, prompt_ids=[5] * 1000)
    for _ in range(3000):
        detokenizer.push([5])
    assert tokenizer.num_lookups <= 3000 + 4


class CountingTokenizer(Tokenizer):
    """A byte-level tokenizer that counts the tokens it is asked for."""

    def __init__(self) -> None:
        self._inner = TOKENIZERS["byte_level"]
        self.num_lookups = 0

    def token(self, token_id: int, *, skip_special_tokens: bool = True) -> str | None:
        self.num_lookups += 1
        return self._inner.token(token_id, skip_special_tokens=skip_special_tokens)

    def token_text(self):
        return self._inner.token_text()
