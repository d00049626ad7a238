"""config.json and generation_config.json as text: any JSON, and what is none, in any place."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cupy_turbo.checkpoint import open_checkpoint
from cupy_turbo.checkpoint.folder import read_folder_config
from cupy_turbo.checkpoint.json_file import DEPTH_LIMIT, SIZE_LIMIT, read_json_object
from cupy_turbo.core.errors import CheckpointError
from cupy_turbo.models.config import ModelConfig
from cupy_turbo.models.rope import rope_table
from cupy_turbo.testing.examples import examples
from tests.property.untrusted import attempt, json_values
from tests.unit.checkpoint.tiny_files import CONFIG, make_tensors, write_folder

SCALING = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 32, "mscale": 1.0}
BASE = {**CONFIG, "rope_scaling": SCALING, "dtype": "float32", "bos_token_id": 1, "hidden_act": "silu"}
KEYS = [*BASE, "rope_parameters", "sliding_window", "layer_types", "quantization_config", "use_sliding_window", "zzz"]

# Texts that stand for a value: what JSON writes in two ways, what Python reads and JSON has not, and bombs.
TEXTS = [
    *("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e-999", "-0", "-0.0", "1.0", "1E5", "true", "null"),
    *("9" * 400, "-" + "9" * 400, "9" * 5000, "0." + "0" * 5000 + "1", '"\\ud800"', '"\\u0000"', '"\x7f"', '""'),
    *("[" * 60 + "]" * 60, "[" * 70 + "]" * 70, "[" * 900 + "]" * 900, "[" * 100_000, '{"a":' * 100_000),
    *('{"a":' * 400 + "1" + "}" * 400, "[" + "1," * 100_000 + "1]", '"' + "x" * 1_000_000 + '"', "", "{", "undefined"),
    *('{"rope_type": "linear", "factor": 1e6}', '{"rope_type": "dynamic", "factor": ' + "9" * 400 + "}"),
    *('{"type": "llama3", "factor": 8, "low_freq_factor": 1e-3, "high_freq_factor": 1e6}', "[[2, 3]]", "[true]"),
    *('{"rope_type": "yarn", "factor": 1e6, "beta_fast": 1e6, "beta_slow": 1e-3}', '{"\x1b[2J": 1}', "[null]"),
]


def with_value(key: str, text: str, base: dict[str, object] = BASE) -> str:
    """The base with a key's value replaced by a text."""
    rest = {name: value for name, value in base.items() if name != key}
    return f"{json.dumps(rest)[:-1]}, {json.dumps(key)}: {text}}}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("json")


def read(folder: Path, config: str, generation: str = "{}") -> ModelConfig | None:
    (folder / "config.json").write_text(config, "utf-8", "surrogatepass")
    (folder / "generation_config.json").write_text(generation, "utf-8", "surrogatepass")
    size = len(config) + len(generation)
    config = attempt(lambda: read_folder_config(folder), names=str(folder), allowed_bytes=20 * size + (1 << 20))
    if config is not None:
        assert 1 <= config.vocab_size <= 1 << 20
        assert config.num_heads % config.num_kv_heads == 0
        assert all(0 <= token_id < config.vocab_size for token_id in config.eos_token_ids)
        assert np.isfinite(rope_table(config, min(64, config.max_position))).all()
    return config


@settings(max_examples=examples(150))
@given(key=st.sampled_from(KEYS), text=st.sampled_from(TEXTS) | json_values.map(json.dumps))
@example(key="rms_norm_eps", text="9" * 400)  # no float is that large: comparing raised OverflowError
@example(key="rope_theta", text="9" * 400)
@example(key="hidden_act", text="[" * 900 + "]" * 900)  # printing it recursed
def test_any_value_of_any_key(folder: Path, key: str, text: str) -> None:
    read(folder, with_value(key, text))


@settings(max_examples=examples(100))
@given(
    key=st.sampled_from([*SCALING, "type", "rope_theta", "zzz"]),
    text=st.sampled_from(TEXTS) | json_values.map(json.dumps),
)
def test_any_value_of_any_key_of_the_rope_scaling(folder: Path, key: str, text: str) -> None:
    read(folder, with_value("rope_scaling", with_value(key, text, SCALING)))


@settings(max_examples=examples(60))
@given(text=st.sampled_from(TEXTS) | json_values.map(json.dumps))
@example(text="[" + ",".join(map(str, range(17))) + "]")
@example(text="97")
def test_any_end_of_sequence_in_the_generation_configuration(folder: Path, text: str) -> None:
    read(folder, json.dumps(BASE), '{"eos_token_id": ' + text + "}")


def test_a_wrong_end_of_sequence_names_the_file_that_says_it(folder: Path) -> None:
    for config, generation, file in (
        ({"eos_token_id": 97}, {}, "config"),
        ({}, {"eos_token_id": -1}, "generation_config"),
    ):
        (folder / "config.json").write_text(json.dumps({**BASE, **config}))
        (folder / "generation_config.json").write_text(json.dumps(generation))
        with pytest.raises(CheckpointError, match=rf"^(\S*/)?{file}\.json.*eos_token_id must be ids from 0 to 96"):
            read_folder_config(folder)


@settings(max_examples=examples(60))
@given(st.binary(max_size=40) | json_values.map(lambda value: json.dumps(value).encode()))
@example(b"\xef\xbb\xbf{}")
@example(b"\xff\xfe{\0}\0")
@example(b"")
def test_any_file_for_a_configuration(folder: Path, content: bytes) -> None:
    (folder / "config.json").write_bytes(content)
    attempt(lambda: read_folder_config(folder), names=str(folder / "config.json"), allowed_bytes=1 << 20)


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"x": {"a": 1, "a": 1}}', '{"x": [{"a": 1, "\\u0061": 1}]}'])
def test_a_key_twice_is_refused(folder: Path, text: str) -> None:
    """Readers differ in which of the two counts: what one has checked, another would use."""
    (folder / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json.*the key 'a' is there twice"):
        read_json_object(folder / "config.json")


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_is_bounded(folder: Path, opening: str) -> None:
    closing = {"[": "]", '{"a":': "}"}[opening]
    for depth in (DEPTH_LIMIT - 1, DEPTH_LIMIT, 200, 500, 900, 960, 980, 990, 1000, 5000, 10**6):
        (folder / "config.json").write_text('{"a":' + opening * depth + "1" + closing * depth + "}")
        assert (attempt(lambda: read_json_object(folder / "config.json")) is not None) == (depth < DEPTH_LIMIT)


def test_a_file_too_large_is_not_read(folder: Path) -> None:
    with (folder / "config.json").open("wb") as file:
        file.truncate(SIZE_LIMIT + 1)
    with pytest.raises(CheckpointError, match=f"has {SIZE_LIMIT + 1} bytes; the limit"):
        read_json_object(folder / "config.json")


def test_a_configuration_claims_no_memory_for_weights_that_are_not_there(tmp_path: Path) -> None:
    """Shapes are compared with the files first: a terabyte of parameters in a file of 100 kB is a wrong shape."""
    write_folder(tmp_path, make_tensors(0))
    huge = {**CONFIG, "vocab_size": 1 << 20, "hidden_size": 1 << 17, "num_hidden_layers": 1 << 10, "head_dim": 256}
    (tmp_path / "config.json").write_text(json.dumps(huge))
    assert attempt(lambda: open_checkpoint(tmp_path), names="wrong shape", allowed_bytes=16 << 20) is None
