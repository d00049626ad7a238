"""A checkpoint in a GGUF file, dequantized by the gguf package row by row as it is read."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cupy_turbo.checkpoint.checkpoint import NO_DTYPE, Checkpoint, TensorSpec, match_tensors
from cupy_turbo.checkpoint.gguf_config import read_gguf_config
from cupy_turbo.checkpoint.gguf_header import GgufTensor, read_gguf_header
from cupy_turbo.core.dtypes import DType, bfloat16, float16, float32
from cupy_turbo.core.errors import CheckpointError, UnsupportedModelError
from cupy_turbo.core.shown import shown

_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROPE_FACTORS = "rope_freqs.weight"
_UNQUANTIZED: dict[str, DType] = {"F32": float32, "F16": float16, "BF16": bfloat16}

Dequantize = Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.generic]]


def open_gguf(path: Path) -> Checkpoint:
    """Open a GGUF file of the `llama` architecture.

    Parameters
    ----------
    path : path
        The file; every count, length and offset in it is checked before it is used.

    Raises
    ------
    UnsupportedModelError
        If the network is not supported, or the file is one of several parts.
    CheckpointError
        If the package `gguf` is not installed, the file is damaged, or its tensors are not those of its metadata.

    Notes
    -----
    llama.cpp stores the rows of `attn_q` and `attn_k` in the order of its interleaved rotation; `TensorSpec.read` puts
    them back into Hugging Face's order of two halves.
    """
    quantization = _import_gguf(path)
    header = read_gguf_header(path)
    if header.metadata.get("split.count", 1) not in (0, 1):
        raise UnsupportedModelError(f"{path} is one of several parts; join them with llama.cpp's `gguf-split --merge`")
    described = {tensor.name: tensor for tensor in header.tensors}
    stored = {name: _StoredTensor(path, tensor, quantization) for name, tensor in described.items()}
    _check_overlap(path, list(stored.values()))
    embedding = stored.get("token_embd.weight")
    if embedding is None:
        raise CheckpointError(f"{path} has no tensor token_embd.weight")
    factors = stored.pop(_ROPE_FACTORS, None)
    config = read_gguf_config(
        header.metadata,
        str(path),
        vocab_size=embedding.shape[0],
        is_tied="output.weight" not in described,
        dtype_name=_best_dtype(list(stored.values())),
        frequency_factors=() if factors is None else factors.small_vector(),
    )
    heads = {"attn_q": config.num_heads, "attn_k": config.num_kv_heads}
    found: dict[str, TensorSpec] = {}
    for name, tensor in stored.items():
        hf_name, kind = _hf_name(name)
        if hf_name in found:
            raise CheckpointError(f"{path} has two tensors for {hf_name}: {shown(name)} and another")
        found[hf_name] = tensor.spec(hf_name, num_heads=heads.get(kind, 0))
    return Checkpoint(
        config=config,
        generation_config={},
        tensors=match_tensors(config, found, str(path)),
        tokenizer_source=header.metadata,
        path=path,
    )


class _StoredTensor:
    """A tensor's bytes in the file, known to lie inside it."""

    def __init__(self, path: Path, tensor: GgufTensor, gguf: Any) -> None:
        self.path, self.name, self.shape, self.offset = path, tensor.name, tensor.shape, tensor.offset
        kind = _known_kinds(gguf).get(tensor.type_code)
        if kind is None:
            raise UnsupportedModelError(
                f"{path}: {shown(tensor.name)} has the type {tensor.type_code}, which the installed gguf package does "
                "not know; a newer one may"
            )
        self.stored_as: str = kind.name
        block_elements, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        if tensor.shape[-1] % block_elements:
            raise CheckpointError(
                f"{path}: rows of {shown(tensor.name)} have {tensor.shape[-1]} elements, no multiple of the "
                f"{block_elements} of a {kind.name} block"
            )
        self.row_bytes = tensor.shape[-1] // block_elements * block_bytes
        self.num_rows = math.prod(tensor.shape[:-1])
        self.end = tensor.offset + self.num_rows * self.row_bytes
        if self.end > path.stat().st_size:
            raise CheckpointError(
                f"{path} is cut short: {shown(tensor.name)} ends at byte {self.end}, the file at {path.stat().st_size}"
            )
        self.dtype, self.dequantize = _decoder(gguf, kind)

    def rows(self, selected: slice | npt.NDArray[np.intp]) -> npt.NDArray[np.generic]:
        """Read and dequantize rows; (rows, columns)."""
        # Mapped anew for each read, so that pages do not stay resident after it.
        try:
            raw = np.memmap(self.path, np.uint8, "r", self.offset, (self.num_rows, self.row_bytes))
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{self.path}: {self.name} cannot be read any more: {error}; was the file replaced?"
            ) from error
        chosen: npt.NDArray[np.uint8] = np.array(raw[selected])
        with np.errstate(all="ignore"):  # a damaged scale shows as a weight that is not finite
            return self.dequantize(chosen)

    def small_vector(self) -> tuple[float, ...]:
        """Return a one-dimensional float32 tensor of few elements."""
        if len(self.shape) != 1 or self.stored_as != "F32" or self.shape[0] > 1 << 10:
            raise CheckpointError(f"{self.path}: {self.name} is {self.shape} {self.stored_as}, not a few F32 numbers")
        return tuple(float(value) for value in self.rows(slice(0, 1)).reshape(-1))

    def spec(self, hf_name: str, *, num_heads: int) -> TensorSpec:
        """Describe the tensor under its Hugging Face name; `num_heads` > 0 if its rows are to be put back in order."""
        shape = self.shape
        order = _half_split_order(shape[0], num_heads) if num_heads and len(shape) == 2 else None

        def read_rows(start: int, stop: int) -> npt.NDArray[np.generic]:
            if len(shape) == 1:
                return self.rows(slice(0, 1)).reshape(-1)[start:stop]
            return self.rows(slice(start, stop) if order is None else order[start:stop])

        return TensorSpec(hf_name, shape, self.dtype, self.stored_as, str(self.path), read_rows)


def _check_overlap(path: Path, stored: list[_StoredTensor]) -> None:
    """Refuse tensors that share bytes: a small file could ask for any amount of memory by them."""
    for before, after in itertools.pairwise(sorted(stored, key=lambda tensor: tensor.offset)):
        if before.end > after.offset:
            raise CheckpointError(
                f"{path}: {shown(before.name)} ends at byte {before.end}, but {shown(after.name)} begins at "
                f"{after.offset}: they overlap"
            )


def _half_split_order(num_rows: int, num_heads: int) -> npt.NDArray[np.intp] | None:
    """Row of the file for each row in Hugging Face's order: the inverse of (heads, 2, D/2) -> (heads, D/2, 2)."""
    if num_rows % (2 * num_heads):
        return None  # match_tensors will name the wrong shape
    return np.arange(num_rows).reshape(num_heads, -1, 2).swapaxes(1, 2).reshape(-1)


@functools.cache
def _known_kinds(gguf: Any) -> dict[int, Any]:
    return {kind.value: kind for kind in gguf.GGMLQuantizationType if kind in gguf.GGML_QUANT_SIZES}


@functools.cache
def _decoder(gguf: Any, kind: Any) -> tuple[DType, Dequantize]:
    """Type that rows have once read, and how to get it from their bytes."""
    if kind.name in _UNQUANTIZED:
        dtype = _UNQUANTIZED[kind.name]
        return dtype, lambda rows: rows.view(dtype)
    if not _can_dequantize(gguf, kind):
        return NO_DTYPE, lambda rows: rows
    return float32, lambda rows: np.asarray(gguf.quants.dequantize(rows, kind), np.float32)


def _can_dequantize(gguf: Any, kind: Any) -> bool:
    block_bytes = gguf.GGML_QUANT_SIZES[kind][1]
    try:
        gguf.quants.dequantize(np.zeros((1, block_bytes), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


def _best_dtype(stored: list[_StoredTensor]) -> str:
    """Name the type of the matrices if they all have one; bfloat16, for its range, if they are quantized."""
    kinds = {tensor.stored_as for tensor in stored if len(tensor.shape) > 1}
    if len(kinds) == 1:
        return _UNQUANTIZED.get(kinds.pop(), bfloat16).name
    return bfloat16.name


def _hf_name(name: str) -> tuple[str, str]:
    """Hugging Face's name of a tensor, and llama.cpp's word for its role; a name that is not known stays as it is."""
    found = re.fullmatch(r"blk\.(0|[1-9]\d{0,3})\.(\w+)\.weight", name)
    if found is None or found[2] not in _LAYER_NAMES:
        return _NAMES.get(name, name), ""
    return f"model.layers.{found[1]}.{_LAYER_NAMES[found[2]]}.weight", found[2]


def _import_gguf(path: Path) -> Any:
    try:
        import gguf
    except ImportError as error:
        raise CheckpointError(
            f"{path} needs the gguf package, which is not installed: pip install 'cupy_turbo[gguf]'"
        ) from error
    return gguf
