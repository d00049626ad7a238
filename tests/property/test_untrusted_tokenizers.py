"""tokenizer.json, what lies beside it, and the tokenizers of GGUF files: changed in every part.

The library behind them trusts the file: it panics (which is no `Exception`), ends the process, or takes for ever.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cupy_turbo.core.errors import CheckpointError, InvalidRequestError
from cupy_turbo.testing.examples import examples
from cupy_turbo.text import Detokenizer, Tokenizer, open_tokenizer
from tests.property.tokenizer_parts import DEMO, PARTS, VALID, changed
from tests.property.untrusted import attempt, audited, evil_integers, json_values, opened_outside
from tests.unit.text.test_gguf_tokenizer import demo_metadata, sentence_piece_metadata

TEXT = "a" * 40 + " Hello, wörld 日本 🌶 <new> \n\n"


def use(tokenizer: Tokenizer) -> None:
    """Whatever is asked of a tokenizer on the way to an answer; streamed text must stay the text."""
    ids = tokenizer.encode(TEXT)
    assert all(0 <= token_id < 2**32 for token_id in ids)
    assert tokenizer.least_tokens(TEXT) <= len(ids)
    ids = ids[:100]
    tokenizer.decode(ids)
    detokenizer = Detokenizer(tokenizer, ids[:3])
    detokenizer.push(ids)
    detokenizer.flush()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizer")


def try_file(folder: Path, content: str) -> None:
    (folder / "tokenizer.json").write_text(content, "utf-8", "surrogatepass")
    tokenizer = attempt(lambda: open_tokenizer(folder), names=str(folder / "tokenizer.json"))
    if tokenizer is not None:
        attempt(lambda: use(tokenizer))


def test_nothing_ends_the_process_or_takes_more_than_it_may(tmp_path: Path) -> None:
    """In a process of its own, with 2 GiB of memory: what ends it, ends only this test."""
    root = Path(__file__).resolve().parents[2]
    script = f"""
import resource, sys
sys.path.insert(0, {str(root)!r})
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from pathlib import Path
from tests.property import test_untrusted_tokenizers as these, tokenizer_parts
for name, content in tokenizer_parts.kept_files():
    print(name, flush=True)
    these.try_file(Path({str(tmp_path)!r}), content)
print("all")
"""
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, env=environment)
    assert done.stdout.split("\n")[-2:] == ["all", ""], (done.returncode, done.stdout[-200:], done.stderr[-2000:])


paths = st.lists(st.integers(0, 50), min_size=1, max_size=5)


@settings(max_examples=examples(60))
@given(path=paths, value=json_values)
@example(path=[0], value=None)
def test_any_value_in_any_place_of_tokenizer_json(folder: Path, path: list[int], value: object) -> None:
    description = copy.deepcopy(VALID)
    inner: object = description
    for step in path[:-1]:
        children = (
            list(inner) if isinstance(inner, dict) else list(range(len(inner))) if isinstance(inner, list) else []
        )
        if not children or not isinstance(inner[children[step % len(children)]], dict | list):  # type: ignore[index]
            break
        inner = inner[children[step % len(children)]]  # type: ignore[index]
    keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))  # type: ignore[arg-type]
    if keys:
        inner[keys[path[-1] % len(keys)]] = value  # type: ignore[index]
    try_file(folder, json.dumps(description))


@settings(max_examples=examples(40))
@given(
    config=st.dictionaries(
        st.sampled_from(["bos_token", "eos_token", "add_bos_token", "add_eos_token", "chat_template", "unk_token"]),
        json_values
        | st.sampled_from(["<|endoftext|>", {"content": "<|endoftext|>"}, [{"name": "default"}], {"default": 5}]),
    )
)
@example(config={"chat_template": [{"name": "default", "template": 5}]})
@example(config={"chat_template": ["default"]})
@example(config={"chat_template": [{"template": "x"}]})
@example(config={"chat_template": {"\x1b[2J": "x"}})
@example(config={"add_bos_token": "false", "bos_token": "<|endoftext|>"})
@example(config={"add_bos_token": True, "bos_token": "\x1b[2J"})
def test_any_tokenizer_config(folder: Path, config: dict[str, object]) -> None:
    (folder / "tokenizer.json").write_text(json.dumps(VALID), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    tokenizer = attempt(lambda: open_tokenizer(folder), names=str(folder), allowed_bytes=8 << 20)
    (folder / "tokenizer_config.json").unlink()
    if tokenizer is not None:
        use(tokenizer)


@pytest.mark.parametrize(
    "name",
    ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "chat_template.json"],
)
def test_files_beside_it_are_bounded_text_inside_of_the_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(VALID), "utf-8")
    (tmp_path / "secret").write_text("{}")
    for content in (
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"[" * 10**6,
        b'{"a": 1, "a": 1}' if name.endswith("json") else b"\xff",
    ):
        (folder / name).write_bytes(content)
        if not (name.endswith("jinja") and content.startswith(b"[")):
            assert attempt(lambda: open_tokenizer(folder), names=str(folder / name), allowed_bytes=8 << 20) is None
    (folder / name).unlink()
    for target in ("../secret", "/dev/zero"):
        (folder / name).symlink_to(target)
        with audited() as events:
            assert attempt(lambda: open_tokenizer(folder), names=str(folder / name)) is None
        (folder / name).unlink()
        assert opened_outside(events, folder) == []
    os.mkfifo(folder / name)
    with pytest.raises(CheckpointError, match=f"{name} is no regular file"):
        open_tokenizer(folder)


def test_a_tokenizer_that_panics_on_a_prompt_refuses_the_prompt(tmp_path: Path) -> None:
    """`re` that gives up after too many steps: the panic must not pass through `except Exception`."""
    (tmp_path / "tokenizer.json").write_text(json.dumps(changed("pre_tokenizer", PARTS["pre_tokenizer"][2])))
    tokenizer = open_tokenizer(tmp_path)
    with pytest.raises(InvalidRequestError, match=r"the model's tokenizer fails on this prompt: .*retry-limit"):
        tokenizer.encode("a" * 40 + "!")
    assert tokenizer.decode(tokenizer.encode("b")) == "b"


def test_dropout_of_the_training_is_off(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(changed("model", {**VALID["model"], "dropout": 0.5})))
    tokenizer = open_tokenizer(tmp_path)
    assert {tuple(tokenizer.encode(TEXT)) for _ in range(20)} == {tuple(open_tokenizer(DEMO).encode(TEXT))}


metadata_values = st.one_of(
    json_values, evil_integers, st.lists(st.text(max_size=3), max_size=6), st.lists(st.floats(), max_size=6)
)


@settings(max_examples=examples(50))
@given(
    is_llama=st.booleans(),
    changes=st.dictionaries(
        st.sampled_from(
            [
                *("model", "pre", "tokens", "token_type", "merges", "scores", "bos_token_id", "eos_token_id"),
                *("unknown_token_id", "padding_token_id", "add_bos_token", "add_eos_token", "add_space_prefix"),
            ]
        ),
        metadata_values,
        min_size=1,
        max_size=3,
    ),
)
@example(is_llama=True, changes={"scores": ["x"] * 272})
@example(is_llama=True, changes={"add_bos_token": "no"})
@example(is_llama=True, changes={"unknown_token_id": 2**63})
@example(is_llama=False, changes={"tokens": [5], "token_type": [1], "merges": []})
@example(is_llama=False, changes={"pre": "x" * 10**6})
@example(is_llama=False, changes={"merges": ["", " ", "a", "a b c"]})
@example(is_llama=False, changes={"token_type": [3] * 1024})
def test_any_metadata_of_a_gguf_tokenizer(is_llama: bool, changes: dict[str, object]) -> None:
    metadata = sentence_piece_metadata() if is_llama else demo_metadata()
    metadata |= {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    tokenizer = attempt(
        lambda: open_tokenizer(metadata, Path("some/m.gguf")), names="some/m.gguf: ", allowed_bytes=8 << 20
    )
    if tokenizer is not None:
        attempt(lambda: use(tokenizer))


@pytest.mark.parametrize(("length", "count"), [(10**6, 1), (5000, 200), (256, 500)])
def test_long_pieces_do_not_make_a_sentence_piece_vocabulary_take_for_ever(length: int, count: int) -> None:
    """Every way to cut every piece in two was tried: with pieces of a megabyte, for hours."""
    pieces = [
        f"{index:04}".rjust(length, "ab") if length < 4 else "ab" * (length // 2 - 2) + f"{index:04}"
        for index in range(count)
    ]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", *pieces],
        "tokenizer.ggml.scores": [0.0] * (count + 1),
    }
    assert (attempt(lambda: open_tokenizer(metadata), names="tokenizer.ggml.tokens") is None) == (length > 256)
