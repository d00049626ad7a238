"""GGUF files: the same tensors and the same configuration as the folder they were converted from."""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from cupy_turbo.checkpoint import open_checkpoint
from cupy_turbo.checkpoint.gguf_file import _can_dequantize, _StoredTensor
from cupy_turbo.checkpoint.gguf_header import read_gguf_header
from cupy_turbo.core.errors import CheckpointError, UnsupportedModelError
from cupy_turbo.models.config import ModelConfig
from tests.unit.checkpoint.tiny_files import CONFIG, interleave, make_tensors, write_folder, write_gguf

KINDS = gguf.GGMLQuantizationType


def test_names_shapes_and_configuration_are_those_of_the_folder(tmp_path: Path) -> None:
    tensors = make_tensors(1)
    folder = open_checkpoint(write_folder(tmp_path / "folder", tensors))
    file = open_checkpoint(write_gguf(tmp_path / "m.gguf", tensors))
    assert {name: spec.shape for name, spec in file.tensors.items()} == {
        name: spec.shape for name, spec in folder.tensors.items()
    }
    assert file.config.rms_norm_eps == pytest.approx(folder.config.rms_norm_eps)
    exact = {"rms_norm_eps": folder.config.rms_norm_eps}
    assert {**{name: getattr(file.config, name) for name in file.config.__slots__}, **exact} == {
        name: getattr(folder.config, name) for name in folder.config.__slots__
    }
    assert file.tokenizer_source["tokenizer.ggml.model"] == "gpt2"
    assert file.tokenizer_source["tokenizer.ggml.tokens"][:2] == ["<0>", "<1>"]


@pytest.mark.parametrize("kind", [KINDS.F32, KINDS.F16, KINDS.BF16, KINDS.Q8_0, KINDS.Q4_1, KINDS.Q4_0, KINDS.Q5_1])
def test_rows_are_those_of_the_package_in_hugging_faces_order(tmp_path: Path, kind: gguf.GGMLQuantizationType) -> None:
    tensors = make_tensors(2)
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", tensors, matrices=kind))
    for name, spec in checkpoint.tensors.items():
        heads = 4 if "q_proj" in name else 2 if "k_proj" in name else None
        # what the file holds, dequantized whole by the package, with the rows put back
        stored = tensors[name] if heads is None else interleave(tensors[name], heads)
        expected = stored
        if stored.ndim > 1:
            expected = np.asarray(gguf.quants.dequantize(gguf.quants.quantize(stored, kind), kind), np.float32)
        if heads is not None:
            pairs = expected.reshape(heads, 16, 2, 64)
            expected = np.concatenate([pairs[:, :, 0], pairs[:, :, 1]], axis=1).reshape(expected.shape)
        assert np.array_equal(spec.read().astype(np.float32), expected), name
        assert np.array_equal(spec.read(5, 38).astype(np.float32), expected[5:38]), name


def test_every_type_that_the_package_dequantizes_can_be_read() -> None:
    readable = {kind.name for kind in gguf.GGML_QUANT_SIZES if _can_dequantize(gguf, kind)}
    assert {"Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "MXFP4"} <= readable
    assert "Q8_K" not in readable


def test_rows_of_several_blocks(tmp_path: Path) -> None:
    raw = np.random.default_rng(0).integers(0, 256, (7, 2 * 144), np.uint8)  # Q4_K: 144 bytes for 256 elements
    raw[:, [1, 3, 145, 147]] = 0x11  # the high bytes of its scales: finite numbers
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("t", raw, raw_dtype=KINDS.Q4_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (described,) = read_gguf_header(path).tensors
    stored = _StoredTensor(path, described, gguf)
    assert stored.shape == (7, 512)
    assert np.array_equal(stored.rows(slice(2, 5)), gguf.quants.dequantize(raw[2:5], KINDS.Q4_K))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(KINDS.F32, "float32"), (KINDS.F16, "float16"), (KINDS.BF16, "bfloat16"), (KINDS.Q8_0, "bfloat16")],
)
def test_dtype_is_that_of_the_matrices_or_bfloat16(tmp_path: Path, kind: gguf.GGMLQuantizationType, dtype: str) -> None:
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", make_tensors(0), matrices=kind))
    assert checkpoint.config.dtype.name == dtype


def test_no_output_matrix_means_tied_embeddings(tmp_path: Path) -> None:
    tensors = make_tensors(0, config={**CONFIG, "tie_word_embeddings": True})
    assert open_checkpoint(write_gguf(tmp_path / "m.gguf", tensors)).config.tie_word_embeddings


def test_llama_3_scaling_is_read_from_its_tensor(tmp_path: Path) -> None:
    factors = np.linspace(1, 8, 16, dtype=np.float32)
    path = write_gguf(tmp_path / "m.gguf", make_tensors(0), extra_tensors={"rope_freqs.weight": factors})
    assert open_checkpoint(path).config.rope.frequency_factors == tuple(factors.tolist())
    for wrong in (factors[:8], -factors, factors * np.nan):
        path = write_gguf(tmp_path / "m.gguf", make_tensors(0), extra_tensors={"rope_freqs.weight": wrong})
        with pytest.raises(CheckpointError, match=r"rope_freqs\.weight must be 16 finite"):
            open_checkpoint(path)


def test_rope_scaling_keys_mean_what_config_json_would_say(tmp_path: Path) -> None:
    def rope(**keys: object) -> object:
        extra = {f"llama.rope.scaling.{name}": value for name, value in keys.items()}
        return open_checkpoint(write_gguf(tmp_path / "m.gguf", make_tensors(0), extra_keys=extra)).config.rope

    def from_hf(**scaling: object) -> object:
        return ModelConfig.from_hf({**CONFIG, "rope_scaling": scaling}).rope

    assert rope(type="none") == from_hf()
    assert rope(type="linear", factor=4.0) == from_hf(type="linear", factor=4.0)
    assert rope(type="yarn", factor=16.0, original_context_length=64) == from_hf(
        type="yarn", factor=16.0, original_max_position_embeddings=64
    )
    with pytest.raises(UnsupportedModelError, match="longrope"):
        rope(type="longrope", factor=4.0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.expert_count", 8),
        ("llama.attention.sliding_window", 64),
        ("llama.rope.dimension_count", 16),
        ("llama.attention.value_length", 64),
        ("llama.logit_scale", 0.5),
        ("split.count", 2),
    ],
)
def test_what_would_be_computed_wrongly_is_refused_by_name(tmp_path: Path, key: str, value: object) -> None:
    path = tmp_path / "m.gguf"
    if key in ("llama.rope.dimension_count", "llama.attention.value_length"):
        write_gguf(path, make_tensors(0))
        content = path.read_bytes()
        place = content.index(key.encode()) + len(key) + 4
        path.write_bytes(content[:place] + int(value).to_bytes(4, "little") + content[place + 4 :])
    else:
        write_gguf(path, make_tensors(0), extra_keys={key: value})
    with pytest.raises(UnsupportedModelError, match="parts" if key == "split.count" else key.split(".")[-1]):
        open_checkpoint(path)


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "qwen3")
    writer.add_tensor("token_embd.weight", np.zeros((8, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModelError, match=r"architecture 'qwen3'.*supported: llama"):
        open_checkpoint(tmp_path / "m.gguf")


def test_missing_and_unknown_tensors_are_named(tmp_path: Path) -> None:
    tensors = make_tensors(0)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    extra = {"blk.0.attn_q.bias": np.zeros(128, np.float32)}
    with pytest.raises(
        CheckpointError, match=r"missing: model\.layers\.1\.mlp\.up_proj.*not used.*blk\.0\.attn_q\.bias"
    ):
        open_checkpoint(write_gguf(tmp_path / "m.gguf", tensors, extra_tensors=extra))


def test_two_names_for_one_tensor_are_refused(tmp_path: Path) -> None:
    extra = {"model.norm.weight": np.zeros(64, np.float32)}
    with pytest.raises(CheckpointError, match=r"two tensors for model\.norm\.weight"):
        open_checkpoint(write_gguf(tmp_path / "m.gguf", make_tensors(0), extra_tensors=extra))


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(tmp_path / "m.gguf", make_tensors(0))
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(CheckpointError, match=r"pip install 'cupy_turbo\[gguf\]'"):
        open_checkpoint(path)
