"""Weights arrive whole, fused and converted, whatever file they come from and in whatever order the device copies."""

from __future__ import annotations

import dataclasses
import io
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from cupy_turbo.checkpoint import Checkpoint, TensorSpec, open_checkpoint
from cupy_turbo.core.dtypes import FLOAT_TYPES, DType
from cupy_turbo.core.errors import CheckpointError
from cupy_turbo.core.protocols import Array, Device
from cupy_turbo.device import open_device
from cupy_turbo.models import weight_upload
from cupy_turbo.models.weights import LlamaWeights, load_weights
from tests.unit.checkpoint.tiny_files import CONFIG, Tensors, make_tensors, write_folder, write_gguf


def load(checkpoint: Checkpoint, device: Device, dtype: DType) -> LlamaWeights:
    return load_weights(checkpoint, checkpoint.config, device, dtype, progress=False)


def expected_arrays(tensors: Tensors) -> Iterator[npt.NDArray[np.generic]]:
    """What the fused arrays must hold, in the order of `arrays`."""
    yield tensors["model.embed_tokens.weight"]
    for layer in range(2):
        prefix = f"model.layers.{layer}."
        yield tensors[prefix + "input_layernorm.weight"]
        yield np.concatenate([tensors[f"{prefix}self_attn.{name}_proj.weight"] for name in "qkv"])
        yield tensors[prefix + "self_attn.o_proj.weight"]
        yield tensors[prefix + "post_attention_layernorm.weight"]
        yield np.concatenate([tensors[f"{prefix}mlp.{name}_proj.weight"] for name in ("gate", "up")])
        yield tensors[prefix + "mlp.down_proj.weight"]
    yield tensors["model.norm.weight"]
    yield tensors["lm_head.weight"]


def arrays(weights: LlamaWeights) -> list[Array]:
    layers = [getattr(layer, field.name) for layer in weights.layers for field in dataclasses.fields(layer)]
    return [weights.embed, *layers, weights.norm, weights.lm_head]


@pytest.fixture(params=["folder", "shards", "gguf"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoint:
    tensors = make_tensors(3)
    if request.param == "gguf":
        return open_checkpoint(write_gguf(tmp_path / "m.gguf", tensors))
    return open_checkpoint(write_folder(tmp_path, tensors, num_shards=1 if request.param == "folder" else 3))


@pytest.mark.parametrize("dtype", FLOAT_TYPES, ids=str)
def test_query_key_value_and_gate_up_are_fused_and_converted(checkpoint: Checkpoint, dtype: DType) -> None:
    with open_device("host") as device:
        weights = load(checkpoint, device, dtype)
        for array, expected in zip(arrays(weights), expected_arrays(make_tensors(3)), strict=True):
            assert array.dtype == dtype
            assert np.array_equal(device.fetch(array), expected.astype(dtype))


@pytest.mark.parametrize("stored", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("dtype", FLOAT_TYPES, ids=str)
def test_any_stored_type_becomes_any_other(tmp_path: Path, stored: type, dtype: DType) -> None:
    tensors = make_tensors(4, stored)
    with open_device("host") as device:
        weights = load(open_checkpoint(write_folder(tmp_path, tensors)), device, dtype)
        for array, expected in zip(arrays(weights), expected_arrays(tensors), strict=True):
            assert np.array_equal(device.fetch(array), expected.astype(dtype))


def test_quantized_matrices_are_those_that_the_package_dequantizes(tmp_path: Path) -> None:
    tensors = make_tensors(5)
    kind = gguf.GGMLQuantizationType.Q4_1
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", tensors, matrices=kind))
    with open_device("host") as device:
        weights = load(checkpoint, device, np.dtype(np.float32))
        gate = tensors["model.layers.1.mlp.gate_proj.weight"].astype(np.float32)
        expected = gguf.quants.dequantize(gguf.quants.quantize(gate, kind), kind)
        assert np.array_equal(device.fetch(weights.layers[1].gate_up)[:96], expected)
        # rows that were put back in order: blocks run along a row, so quantizing first or last is the same
        key = tensors["model.layers.1.self_attn.k_proj.weight"].astype(np.float32)
        expected = gguf.quants.dequantize(gguf.quants.quantize(key, kind), kind)
        assert np.array_equal(device.fetch(weights.layers[1].qkv)[128:192], expected)


def test_tied_embeddings_are_one_array(tmp_path: Path) -> None:
    tied = {**CONFIG, "tie_word_embeddings": True}
    checkpoint = open_checkpoint(write_folder(tmp_path, make_tensors(0, config=tied), tied))
    with open_device("host") as device:
        weights = load(checkpoint, device, np.dtype(np.float32))
        assert weights.lm_head is weights.embed


@pytest.mark.parametrize("seed", range(5))
def test_no_order_of_copies_that_a_gpu_may_choose_mixes_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A staging buffer rewritten before its copy has run would give rows of another chunk."""
    monkeypatch.setattr(weight_upload, "STAGING_BYTES", 1000)  # a few rows: many chunks, buffers reused all the time
    tensors = make_tensors(seed)
    checkpoint = open_checkpoint(write_folder(tmp_path, tensors))
    with open_device("host", policy="random", seed=seed) as device:
        weights = load(checkpoint, device, np.dtype(np.float32))
        assert not device.schedule.pending()
        for array, expected in zip(arrays(weights), expected_arrays(tensors), strict=True):
            assert np.array_equal(device.fetch(array), expected)


def test_each_row_is_read_once_and_staging_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_upload, "STAGING_BYTES", 4096)
    checkpoint = open_checkpoint(write_folder(tmp_path, make_tensors(0)))
    reads: dict[str, list[tuple[int, int]]] = {}

    def watched(spec: TensorSpec) -> TensorSpec:
        def read_rows(start: int, stop: int) -> npt.NDArray[np.generic]:
            reads.setdefault(spec.name, []).append((start, stop))
            return spec.read_rows(start, stop)

        return dataclasses.replace(spec, read_rows=read_rows)

    tensors = {name: watched(spec) for name, spec in checkpoint.tensors.items()}
    with open_device("host") as device:
        load(dataclasses.replace(checkpoint, tensors=tensors), device, np.dtype(np.float32))
        assert device.statistics().pinned_bytes <= 2 * 4096
    assert reads.keys() == checkpoint.tensors.keys()
    for name, parts in reads.items():
        bounds = [0, *(stop for _, stop in parts)]
        assert parts == list(itertools.pairwise(bounds))
        assert bounds[-1] == checkpoint.tensors[name].shape[0]
    assert max(len(parts) for parts in reads.values()) > 5


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("stored", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("dtype", FLOAT_TYPES, ids=str)
def test_a_weight_that_is_not_finite_names_its_tensor(tmp_path: Path, bad: float, stored: type, dtype: DType) -> None:
    tensors = make_tensors(0, stored)
    tensors["model.layers.1.mlp.down_proj.weight"][63, 95] = bad
    checkpoint = open_checkpoint(write_folder(tmp_path, tensors))
    with (
        open_device("host") as device,
        pytest.raises(CheckpointError, match=r"model\.layers\.1\.mlp\.down_proj\.weight holds NaN or infinity"),
    ):
        load(checkpoint, device, dtype)


def test_a_weight_beyond_the_range_of_float16_names_its_tensor_and_the_remedy(tmp_path: Path) -> None:
    tensors = make_tensors(0)
    tensors["model.norm.weight"][7] = -70000.0
    checkpoint = open_checkpoint(write_folder(tmp_path, tensors))
    with open_device("host") as device:
        with pytest.raises(CheckpointError, match=r"model\.norm\.weight has values beyond.*float16.*bfloat16"):
            load(checkpoint, device, np.dtype(np.float16))
        load(checkpoint, device, np.dtype(ml_dtypes.bfloat16))


def test_a_bfloat16_checkpoint_in_float16_is_told_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = open_checkpoint(write_folder(tmp_path, make_tensors(0, ml_dtypes.bfloat16)))
    with open_device("host") as device:
        load(checkpoint, device, np.dtype(ml_dtypes.bfloat16))
        assert caplog.text == ""
        load(checkpoint, device, np.dtype(np.float16))
    assert "may overflow" in caplog.text


def test_largest_and_smallest_finite_weights_pass(tmp_path: Path) -> None:
    for dtype in FLOAT_TYPES:
        limits = ml_dtypes.finfo(dtype)
        tensors = make_tensors(0, dtype)
        tensors["model.norm.weight"][:4] = [limits.max, limits.min, limits.smallest_subnormal, -0.0]
        with open_device("host") as device:
            load(open_checkpoint(write_folder(tmp_path, tensors)), device, dtype)


def test_no_bar_is_drawn_where_nobody_looks(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    checkpoint = open_checkpoint(write_folder(tmp_path, make_tensors(0)))
    assert not sys.stderr.isatty()
    with open_device("host") as device:
        for progress in (True, False):
            load_weights(checkpoint, checkpoint.config, device, np.dtype(np.float32), progress=progress)
    assert capfd.readouterr().err == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_counts_the_bytes_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = open_checkpoint(write_folder(tmp_path, make_tensors(0)))
    for progress in (True, False):
        monkeypatch.setattr(sys, "stderr", Terminal())
        with open_device("host") as device:
            load_weights(checkpoint, checkpoint.config, device, np.dtype(np.float32), progress=progress)
        assert ("loading: 100%" in sys.stderr.getvalue()) == progress
