"""Encoding and decoding, and what the files of a Hugging Face folder may say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cupy_turbo.core.errors import CheckpointError, InvalidRequestError, UnsupportedModelError
from cupy_turbo.text import Tokenizer, open_tokenizer
from tests.unit.text.byte_tokenizers import byte_level, sentence_piece

DEMO = Path(__file__).resolve().parents[3] / "cupy_turbo" / "assets" / "demo"
GOLDEN = Path(__file__).resolve().parents[2] / "e2e" / "golden" / "demo.json"


def folder_with(tmp_path: Path, **files: object) -> Path:
    """A copy of the demo tokenizer with files replaced; the keys' double underscores are dots."""
    shutil.copy(DEMO / "tokenizer.json", tmp_path)
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name.replace("__", ".")).write_text(text, "utf-8")
    return tmp_path


def test_the_demo_tokenizer_gives_the_reference_ids() -> None:
    tokenizer = open_tokenizer(DEMO)
    for entry in json.loads(GOLDEN.read_text("utf-8"))["prompts"]:
        assert tokenizer.encode(entry["prompt"]) == entry["prompt_ids"]
        assert tokenizer.decode(entry["prompt_ids"]) == entry["prompt"]
    assert (tokenizer.vocab_size, tokenizer.bos_token_id, tokenizer.eos_token_id) == (1024, None, 0)


def test_vocab_size_is_beyond_the_highest_id(tmp_path: Path) -> None:
    description = json.loads((DEMO / "tokenizer.json").read_text("utf-8"))
    description["added_tokens"].append({**description["added_tokens"][0], "id": 1024, "content": "<new>"})
    assert open_tokenizer(folder_with(tmp_path, tokenizer__json=description)).vocab_size == 1025


@pytest.mark.parametrize("text", ["\ud83d", "abc\udcff", "ok \ude00 ok"])
def test_half_a_surrogate_pair_is_refused_with_its_offset(text: str) -> None:
    offset = next(index for index, character in enumerate(text) if 0xD800 <= ord(character) <= 0xDFFF)
    with pytest.raises(InvalidRequestError, match=f"half of a surrogate pair .* at character {offset}:") as caught:
        open_tokenizer(DEMO).encode(text)
    assert (caught.value.parameter, caught.value.value) == ("prompt", text)


@pytest.mark.parametrize("text", [None, 7, b"bytes", ["a"]])
def test_what_is_not_text_is_refused(text: object) -> None:
    with pytest.raises(InvalidRequestError, match=f"prompt must be text, got {type(text).__name__}"):
        open_tokenizer(DEMO).encode(text)  # type: ignore[arg-type]


def test_special_tokens_are_skipped_unless_asked_for() -> None:
    tokenizer = byte_level()
    ids = [*tokenizer.encode("a"), tokenizer.eos_token_id, tokenizer.vocab_size + 5]
    assert tokenizer.decode(ids) == "a"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "a</s>"


@pytest.mark.parametrize("token_id", [-1, 2**32, 2**63])
def test_an_id_that_no_vocabulary_can_have_is_refused(token_id: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"token id {token_id} is out of range"):
        byte_level().decode([token_id])


def test_padding_and_truncation_of_the_training_are_off(tmp_path: Path) -> None:
    description = json.loads((DEMO / "tokenizer.json").read_text("utf-8"))
    description["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    description["padding"] = {
        "strategy": {"Fixed": 50}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }  # fmt: skip
    text = "To be, or not to be"
    assert open_tokenizer(folder_with(tmp_path, tokenizer__json=description)).encode(text) == open_tokenizer(
        DEMO
    ).encode(text)


def test_bos_is_added_if_the_configuration_says_so(tmp_path: Path) -> None:
    config = {"bos_token": "<|endoftext|>", "eos_token": {"content": "<|endoftext|>"}, "add_bos_token": True}
    tokenizer = open_tokenizer(folder_with(tmp_path, tokenizer_config__json=config))
    assert tokenizer.encode("a")[0] == tokenizer.bos_token_id == tokenizer.eos_token_id == 0
    assert tokenizer.encode("a")[1:] == tokenizer.encode("a", add_special_tokens=False)
    config["add_bos_token"], config["add_eos_token"] = False, True
    tokenizer = open_tokenizer(folder_with(tmp_path, tokenizer_config__json=config))
    assert (tokenizer.encode("a")[0], tokenizer.encode("a")[-1]) != (0, 0)
    assert tokenizer.encode("a")[-1] == 0


def test_a_second_bos_is_warned_of(tmp_path: Path) -> None:
    config = {"bos_token": "<|endoftext|>", "add_bos_token": True}
    tokenizer = open_tokenizer(folder_with(tmp_path, tokenizer_config__json=config))
    with pytest.warns(UserWarning, match=r"begins with the BOS token '<\|endoftext\|>' twice"):
        tokenizer.encode("<|endoftext|>Hi")
    tokenizer.encode("<|endoftext|>Hi", add_special_tokens=False)


def test_bos_that_the_vocabulary_lacks_is_refused(tmp_path: Path) -> None:
    config = {"bos_token": "<s>", "add_bos_token": True}
    with pytest.raises(CheckpointError, match="every prompt should get '<s>'"):
        open_tokenizer(folder_with(tmp_path, tokenizer_config__json=config))


def test_where_a_chat_template_may_be(tmp_path: Path) -> None:
    def shown(**files: object) -> str:
        template = open_tokenizer(folder_with(tmp_path, **files)).chat_template
        assert template is not None
        return template

    assert shown(tokenizer_config__json={"chat_template": "config"}) == "config"
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "named"}]
    assert shown(tokenizer_config__json={"chat_template": named}) == "named"
    assert shown(chat_template__json={"chat_template": "json"}) == "json"
    assert shown(chat_template__jinja="jinja") == "jinja"


def test_a_folder_without_tokenizer_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json"):
        open_tokenizer(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"spm")
    with pytest.raises(UnsupportedModelError, match="AutoTokenizer"):
        open_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer__json", "tokenizer_config__json", "special_tokens_map__json"])
def test_a_torn_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match=name.replace("__", ".")):
        open_tokenizer(folder_with(tmp_path, **{name: '{"version": '}))


def test_a_decoder_that_cannot_be_streamed_is_refused_at_once(tmp_path: Path) -> None:
    description = json.loads((DEMO / "tokenizer.json").read_text("utf-8"))
    description["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    with pytest.raises(UnsupportedModelError, match=r"decoder \[WordPiece\] cannot be streamed; supported: ByteLevel"):
        open_tokenizer(folder_with(tmp_path, tokenizer__json=description))


def test_reprs_are_one_line() -> None:
    tokenizer: Tokenizer = sentence_piece()
    assert repr(tokenizer) == "<Tokenizer of 273 tokens, without chat template>"
