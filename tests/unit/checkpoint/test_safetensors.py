"""Safetensors folders: what is read, and what is refused before anything is."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from cupy_turbo.checkpoint import open_checkpoint
from cupy_turbo.core.errors import CheckpointError, UnsupportedModelError
from tests.unit.checkpoint.tiny_files import CONFIG, make_tensors, write_folder, write_index


@pytest.mark.parametrize("num_shards", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_every_tensor_comes_back_whole_and_in_parts(tmp_path: Path, num_shards: int, dtype: type) -> None:
    tensors = make_tensors(0, dtype)
    checkpoint = open_checkpoint(write_folder(tmp_path, tensors, num_shards=num_shards))
    assert checkpoint.tensors.keys() == tensors.keys()
    assert checkpoint.config.dtype == dtype  # the file's, where config.json does not say
    for name, tensor in tensors.items():
        spec = checkpoint.tensors[name]
        assert (spec.shape, spec.dtype) == (tensor.shape, tensor.dtype)
        assert np.array_equal(spec.read(), tensor)
        assert np.array_equal(spec.read(3, 10), tensor[3:10])


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux lists the mappings of a process")
def test_nothing_stays_mapped_between_reads(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_folder(tmp_path, make_tensors(0)))
    kept = checkpoint.tensors["model.embed_tokens.weight"].read()
    assert str(tmp_path) not in Path("/proc/self/maps").read_text("utf-8")
    assert kept.shape == (97, 64)


def test_what_repeats_the_configuration_is_ignored(tmp_path: Path) -> None:
    tensors = make_tensors(0)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(16, np.float32)
    tied = {**CONFIG, "tie_word_embeddings": True}
    checkpoint = open_checkpoint(write_folder(tmp_path, tensors, tied))
    assert "lm_head.weight" not in checkpoint.tensors
    assert len(checkpoint.tensors) == len(tensors) - 2


def test_every_kind_of_difference_is_named_in_one_message(tmp_path: Path) -> None:
    """vllm#16555: untied, with the LM head under another prefix."""
    tensors = make_tensors(0)
    tensors["model.lm_head.weight"] = tensors.pop("lm_head.weight")
    tensors["model.layers.0.self_attn.q_proj.bias"] = np.zeros(128, np.float32)
    tensors["model.norm.weight"] = np.ones(65, np.float32)
    tensors["model.layers.1.mlp.up_proj.weight"] = np.zeros((96, 64), np.int32)
    write_folder(tmp_path, tensors)
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(tmp_path)
    message = str(caught.value)
    assert "missing: lm_head.weight" in message
    assert "not used by this network: " in message
    assert "model.lm_head.weight" in message
    assert "q_proj.bias" in message
    assert "wrong shape: model.norm.weight (65,) for (64,)" in message
    assert "wrong type: model.layers.1.mlp.up_proj.weight I32" in message


def test_a_model_without_any_known_name_is_refused_in_a_short_message(tmp_path: Path) -> None:
    write_folder(tmp_path, {f"transformer.{i}": np.zeros(1, np.float32) for i in range(200)})
    with pytest.raises(CheckpointError, match=r"and 13 more.*and 192 more") as caught:
        open_checkpoint(tmp_path)
    assert len(str(caught.value)) < 1500


def test_an_unsupported_network_is_refused_though_its_weights_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "architectures": ["Qwen3ForCausalLM"]}))
    with pytest.raises(UnsupportedModelError, match="Qwen3ForCausalLM"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("num_bytes", [0, 4, 8, 100, -1, -4096])
def test_a_file_cut_short_is_refused(tmp_path: Path, num_bytes: int) -> None:
    file = write_folder(tmp_path, make_tensors(0)) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:num_bytes])
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("length", [0, 1, 2**20, 2**31, 2**63, 2**64 - 1])
def test_a_header_of_impossible_length_is_refused(tmp_path: Path, length: int) -> None:
    file = write_folder(tmp_path, make_tensors(0)) / "model.safetensors"
    file.write_bytes(length.to_bytes(8, "little") + file.read_bytes()[8:])
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        open_checkpoint(tmp_path)


def test_bytes_after_the_end_are_refused(tmp_path: Path) -> None:
    file = write_folder(tmp_path, make_tensors(0)) / "model.safetensors"
    file.write_bytes(file.read_bytes() + b"\0\0\0\0")
    with pytest.raises(CheckpointError):
        open_checkpoint(tmp_path)


def test_a_git_lfs_pointer_is_called_by_its_name(tmp_path: Path) -> None:
    write_folder(tmp_path, {})
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(CheckpointError, match="git lfs pull"):
        open_checkpoint(tmp_path)


def test_a_file_replaced_after_opening_is_noticed(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_folder(tmp_path, make_tensors(0)))
    spec = checkpoint.tensors["model.norm.weight"]
    save_file({"model.norm.weight": np.ones(64, np.float16)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="replaced"):
        spec.read()
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="cut short"):
        spec.read()


@pytest.mark.parametrize(
    "file",
    [
        *("../secret.safetensors", "/etc/secret.safetensors", "sub/x.safetensors", "..\\x.safetensors"),
        *("C:x.safetensors", "..", "", "x.bin", "x\0.safetensors", 7, None),
    ],
)
def test_an_index_reaches_no_file_outside_its_folder(tmp_path: Path, file: object) -> None:
    folder = write_folder(tmp_path / "model", make_tensors(0), num_shards=2)
    save_file({"model.norm.weight": np.ones(64, np.float32)}, tmp_path / "secret.safetensors")
    write_index(folder, {"model.norm.weight": file})
    with pytest.raises(CheckpointError, match="no file of this folder"):
        open_checkpoint(folder)


def test_an_index_that_disagrees_with_its_files_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, make_tensors(0), num_shards=2)
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    first, second = sorted(set(index.values()))
    write_index(folder, {**index, "model.norm.weight": second if index["model.norm.weight"] == first else first})
    with pytest.raises(CheckpointError, match=r"disagree on 1 tensors, for example model\.norm\.weight"):
        open_checkpoint(folder)
    write_index(folder, index)
    (folder / second).unlink()
    with pytest.raises(CheckpointError, match=f"{second} does not exist"):
        open_checkpoint(folder)


@pytest.mark.parametrize("text", ["", "[1]", '{"weight_map": 3}', '{"weight_map": {}}', "[" * 100_000, "\xff"])
def test_an_index_that_is_no_index_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.safetensors.index.json").write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=r"index\.json"):
        open_checkpoint(tmp_path)


def test_a_folder_with_other_weights_says_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor"):
        open_checkpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin \(pickled weights are not read"):
        open_checkpoint(tmp_path)
    (tmp_path / "m.gguf").touch()
    with pytest.raises(CheckpointError, match=r"name the \.gguf file itself"):
        open_checkpoint(tmp_path)
