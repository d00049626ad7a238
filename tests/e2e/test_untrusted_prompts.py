"""One check for every way in: what is no prompt is refused at once, by name, and the model goes on."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo import LLM, SamplingParams
from cupy_turbo.core.errors import ContextLengthError, InvalidRequestError
from cupy_turbo.core.shown import shown
from cupy_turbo.testing.examples import examples
from tests.property.untrusted import attempt, evil_integers, json_values

DEMO = Path(__file__).resolve().parents[2] / "cupy_turbo" / "assets" / "demo"
ONE = SamplingParams(temperature=0, max_tokens=1)
OTHER_VOCABULARY = 5279552648203111001  # an id that wraps to a valid one in 32 bits: vllm#26797
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


@pytest.fixture(scope="module")
def llm(device_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    """The demo model with a chat template, and room for 32 tokens."""
    folder = tmp_path_factory.mktemp("chat") / "model"
    shutil.copytree(DEMO, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    with LLM(folder, device=device_kind, max_model_len=32, max_num_seqs=4, block_size=16) as llm:
        yield llm
        assert len(llm.generate("x", ONE)) == 1
        llm.close()
        llm.engine.check_integrity()


def drained(deltas: Iterator[Any]) -> list[Any]:
    return list(deltas)


DOORS: dict[str, Callable[[LLM, Any], object]] = {
    "generate": lambda llm, prompt: llm.generate(prompt, ONE),
    "generate a list": lambda llm, prompt: llm.generate([[1, 2], prompt], ONE),
    "stream": lambda llm, prompt: drained(llm.stream(prompt, ONE)),
}
CHAT_DOORS: dict[str, Callable[[LLM, Any], object]] = {
    "chat": lambda llm, messages: llm.chat(messages, ONE),
    "chat a list": lambda llm, messages: llm.chat([[{"role": "user", "content": "a"}], messages], ONE),
    "stream_chat": lambda llm, messages: drained(llm.stream_chat(messages, ONE)),
}

BAD_PROMPTS = [
    ("", "0 tokens"),
    ("half \ud83d", r"character 5"),
    ("\udcff from bytes", r"character 0"),
    (b"bytes", "bytes"),
    (b"", "bytes"),
    (bytearray(b"x"), "bytearray"),
    (memoryview(b"x"), "memoryview"),
    (None, "NoneType"),
    (5, "int"),
    (1.5, "float"),
    ({"prompt": "a"}, "dict"),
    ({1, 2}, "set"),
    (object(), "object"),
    ([1, -1], "-1"),
    ([1, 1024], "1024 at index 1.*0 to 1023"),
    ([2**31], str(2**31)),
    ([2**32 + 1], str(2**32 + 1)),
    ([2**63], str(2**63)),
    ([OTHER_VOCABULARY], str(OTHER_VOCABULARY)),
    ([10**5000], "integer of 16610 bits"),
    ([1, 1.0], r"1\.0 at index 1"),
    ([1, float("nan")], "nan"),
    ([1, True], "True"),
    ([1, None], "None"),
    ([1, "2"], "'2'"),
    ([1, [2]], r"\[2\]"),
    ([1, b"x" * 10**6], "at index 1"),
    (np.array([], np.int64), "0 tokens"),
    (np.array(5), "ndarray of 0 dimensions"),
    (np.zeros((1, 1, 2), np.int32), "ndarray of 2 dimensions|ndarray of 3 dimensions"),
    (np.array([1.0, 2.0]), r"1\.0"),
    (np.array([1, 2**64 - 1], np.uint64), str(2**64 - 1)),
    (np.array([-1], np.int8), "-1"),
    (np.array([True, False]), "True"),
    (np.array([1 + 1j]), "1"),
    (np.array(["a", "b"]), "a"),
    (np.array([1, None], object), "None"),
    ([1] * 32, r"32 tokens, but max_model_len is 32"),
    ("a " * 1000, r"tokens, but max_model_len is 32"),
]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("prompt", "words"), BAD_PROMPTS, ids=shown)
def test_what_is_no_prompt_is_refused_at_every_door(llm: LLM, door: str, prompt: object, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words) as caught:
        DOORS[door](llm, prompt)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


GOOD_PROMPTS = [
    *("a", "日本 🌶", "\x00\x1b[2J\u202e", "<|endoftext|>", [0], [1023], (1, 2), range(3)),
    *(np.array([1, 2], kind) for kind in (np.int8, np.uint8, np.int32, np.int64, np.uint64, object)),
    *([np.int64(5)], [np.uint8(5), 7], [1] * 31),
]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("prompt", GOOD_PROMPTS, ids=shown)
def test_every_spelling_of_a_prompt_is_taken_at_every_door(llm: LLM, door: str, prompt: object) -> None:
    assert DOORS[door](llm, prompt)


def test_lists_of_prompts_in_every_container(llm: LLM) -> None:
    for prompts in (
        ["a", [1, 2]],
        ("a", (1, 2)),
        iter(["a", [1, 2]]),
        np.ones((2, 3), np.int32),
        [np.ones(3, int), "b"],
    ):
        assert len(llm.generate(prompts, ONE)) == 2
    for prompts in ([], (), iter([])):
        assert llm.generate(prompts, ONE) == []
    for prompts in ([[]], [""], ["a", []], [np.array([], int)]):
        with pytest.raises(InvalidRequestError, match="0 tokens"):
            llm.generate(prompts, ONE)
    for prompts in ({"a": 1}, {"a", "b"}, None, 5, b"", b"ab"):
        with pytest.raises(InvalidRequestError, match="must be text, a sequence of token ids, or a list of these"):
            llm.generate(prompts, ONE)


@pytest.mark.parametrize("door", CHAT_DOORS)
@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (None, "must be a list .* got NoneType"),
        (5, "must be a list .* got int"),
        ({"role": "user", "content": "a"}, "must be a list .* got dict"),
        (b"abc", "must be a list .* got bytes"),
        ([], "at least one message"),
        ([None], r"messages\[0\] must be a mapping|must be a list"),
        ([{"role": "user"}], r"messages\[0\] must have a 'content'"),
        ([{"message": "a"}], r"messages\[0\] must have a 'role'.*it has 'message'"),
        ([{"role": "user", "content": "\udcff"}], r"messages\[0\].content has half of a surrogate pair"),
        ([{"role": "\ud800", "content": "a"}], r"messages\[0\].role has half of a surrogate pair"),
        ([{"role": "user", "content": 5}], r"messages\[0\].content must be text"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "is 'image_url'; only"),
        ([{"role": "user", "content": "word " * 1000}], "tokens, but max_model_len is 32"),
        ([{"role": "user", "content": "a", "extra": object()}], "JSON-like"),
    ],
    ids=shown,
)
def test_malformed_messages_are_refused_at_every_door(llm: LLM, door: str, messages: object, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        CHAT_DOORS[door](llm, messages)


def test_the_template_may_be_chosen_and_its_variables_set(llm: LLM) -> None:
    hello = [{"role": "user", "content": "Hi"}]
    (output,) = llm.chat(hello, ONE, chat_template="{{ add_generation_prompt }}{{ flag }}", flag=7)
    assert output.prompt == "True7"
    (output,) = llm.chat(hello, ONE, chat_template="{{ add_generation_prompt }}", add_generation_prompt=False)
    assert output.prompt == "False"
    for template in (5, "{{ 1 / 0 }}", "{{"):
        with pytest.raises(InvalidRequestError, match="the chat template failed"):
            llm.chat(hello, ONE, chat_template=template)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "prompt",
    [
        "word " * 2_000_000,
        "a" * 10_000_000,
        " " * 10_000_000,
        "\n" * 10_000_000,
        "日" * 3_333_333,
        "🌶" * 2_500_000,
        [1] * 5_000_000,
        np.ones(5_000_000, np.int64),
    ],
    ids=lambda value: repr(value[:3]),
)
def test_ten_megabytes_are_refused_in_a_moment(llm: LLM, door: str, prompt: object) -> None:
    """Before they are encoded: that took seconds, for a prompt of a thousand times the context."""
    start = time.thread_time()
    with pytest.raises(ContextLengthError, match=r"tokens, but max_model_len is 32"):
        DOORS[door](llm, prompt)
    assert time.thread_time() - start < 0.5


def test_ten_megabytes_of_messages_are_refused_in_a_moment(llm: LLM) -> None:
    start = time.thread_time()
    for messages in ([{"role": "user", "content": "word " * 2_000_000}], [{"role": "user", "content": "w"}] * 50_000):
        with pytest.raises(InvalidRequestError, match=r"tokens, but max_model_len is 32|takes more than 1"):
            llm.chat(messages, ONE)
    assert time.thread_time() - start < 3


def test_a_long_prompt_is_encoded_once_in_time(device_kind: str) -> None:
    """Time per token does not grow with the prompt: up to the limit it is encoded, beyond it is not."""
    with LLM("demo", device=device_kind, max_num_seqs=1) as llm:
        for text in ("x" * 1000, "word " * 300, " " * 2000):
            tokens = len(llm.tokenizer.encode(text))
            if tokens < 1024:
                assert len(llm.generate(text, ONE)[0].prompt_token_ids) == tokens


@pytest.mark.parametrize("params", [5, "greedy", {"temperature": 0}, object(), [SamplingParams(), None], [5]])
def test_what_are_no_sampling_params_are_refused(llm: LLM, params: Any) -> None:
    for door in (
        lambda: llm.generate(["a"] * (len(params) if isinstance(params, list) else 1), params),
        lambda: llm.stream("a", params),
        lambda: llm.chat([{"role": "user", "content": "a"}], params),
    ):
        with pytest.raises(InvalidRequestError, match="sampling_params"):
            door()


@pytest.mark.parametrize(
    "params",
    [
        *({"top_k": value} for value in (-1, 0, 1, 1023, 1024, 1025, 2**31 - 1)),
        *({"seed": value} for value in (0, 2**31, 2**32, 2**63, 2**64 - 1)),
        *({"max_tokens": value} for value in (1, 30, 31, 32, 2**31 - 1)),
        *({"stop_token_ids": value} for value in ([0], [1023], list(range(31)))),
        *({"temperature": value} for value in (1e-12, 1e-5, 1e30, 3.4e38)),
        *({"top_p": value} for value in (5e-324, 1e-4, 1)),
        *({"min_p": value} for value in (0, 5e-324, 1)),
    ],
    ids=str,
)
def test_both_ends_of_every_parameter_run(llm: LLM, params: dict[str, Any]) -> None:
    (output,) = llm.generate("a", SamplingParams(**{"max_tokens": 2, **params}))
    assert output.outputs[0].finish_reason in ("length", "stop")
    assert all(0 <= token < 1024 for token in output.outputs[0].token_ids)


@pytest.mark.parametrize("ids", [[1024], [2**31 - 1], [0, 5, 1024]])
def test_a_stop_id_beyond_the_vocabulary_is_refused_at_every_door(llm: LLM, ids: list[int]) -> None:
    params = SamplingParams(stop_token_ids=tuple(ids))
    for door in (lambda: llm.generate("a", params), lambda: llm.stream("a", params)):
        with pytest.raises(InvalidRequestError, match="outside the vocabulary: ids are 0 to 1023"):
            door()


anything = json_values | st.binary(max_size=9) | evil_integers | st.lists(evil_integers, max_size=5)


@settings(max_examples=examples(60))
@given(value=anything | st.text(st.characters(exclude_categories=[]), max_size=9))
def test_anything_is_answered_or_refused(llm: LLM, value: object) -> None:
    for door in DOORS.values():
        attempt(lambda door=door: door(llm, value))  # type: ignore[misc]
    attempt(lambda: llm.chat(value, ONE))  # type: ignore[arg-type]


def test_a_tokenizer_with_more_tokens_than_the_model_has_rows(device_kind: str, tmp_path: Path) -> None:
    """Its last tokens have no embedding: a prompt with one is refused, not read from beyond the table."""
    folder = tmp_path / "model"
    shutil.copytree(DEMO, folder)
    text = (folder / "tokenizer.json").read_text("utf-8")
    added = '"added_tokens": [{"id": 1024, "content": "<new>", "single_word": false, "lstrip": false, "rstrip": false, '
    text = text.replace('"added_tokens": [', added + '"normalized": false, "special": true}, ', 1)
    assert "<new>" in text
    (folder / "tokenizer.json").write_text(text, "utf-8")
    with LLM(folder, device=device_kind, max_model_len=32, max_num_seqs=1) as llm:
        assert llm.tokenizer.vocab_size == 1025
        with pytest.raises(
            InvalidRequestError, match="token id 1024 at index 1 is outside the vocabulary: ids are 0 to 1023"
        ):
            llm.generate("a<new>b")
        assert len(llm.generate("a", ONE)) == 1
