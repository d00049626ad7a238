"""Tiny checkpoints in every form, made from one set of random tensors."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from cupy_turbo.models.config import ModelConfig

Tensors = dict[str, npt.NDArray[np.generic]]

CONFIG: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "eos_token_id": 2,
}


def make_tensors(seed: int, dtype: npt.DTypeLike = np.float32, config: dict[str, object] = CONFIG) -> Tensors:
    """Random tensors of every name that the configuration asks for."""
    rng = np.random.default_rng(seed)
    shapes = ModelConfig.from_hf(config).tensor_shapes()
    return {name: rng.standard_normal(shape, np.float32).astype(dtype) for name, shape in shapes.items()}


def write_folder(folder: Path, tensors: Tensors, config: dict[str, object] = CONFIG, num_shards: int = 1) -> Path:
    """Write a Hugging Face folder; more than one shard makes an index."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if num_shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    placed = {name: f"model-{i % num_shards + 1:05}-of-{num_shards:05}.safetensors" for i, name in enumerate(tensors)}
    for file in set(placed.values()):
        save_file({name: tensor for name, tensor in tensors.items() if placed[name] == file}, folder / file)
    write_index(folder, placed)
    return folder


def write_index(folder: Path, placed: object) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": placed}))


def gguf_name(name: str) -> str:
    """llama.cpp's name of a Hugging Face tensor, as its converter says it."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 16)
    return str(names.get_name(name, try_suffixes=(".weight",)))


def interleave(rows: npt.NDArray[np.generic], num_heads: int) -> npt.NDArray[np.generic]:
    """What llama.cpp's converter does to q and k (convert_hf_to_gguf.py, LlamaModel.permute)."""
    return (
        rows.reshape(num_heads, 2, rows.shape[0] // num_heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
    )


def write_gguf(
    path: Path,
    tensors: Tensors,
    *,
    matrices: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    extra_keys: dict[str, object] | None = None,
    extra_tensors: Tensors | None = None,
) -> Path:
    """Write a GGUF file as llama.cpp's converter would: q and k interleaved, matrices quantized, norms float32."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(32)
    writer.add_value_length(32)
    writer.add_rope_dimension_count(32)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"<{token}>" for token in range(97)])
    writer.add_eos_token_id(2)
    for key, value in (extra_keys or {}).items():
        writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    heads = {"self_attn.q_proj.weight": 4, "self_attn.k_proj.weight": 2}
    for name, tensor in tensors.items():
        values = tensor
        for ending, num_heads in heads.items():
            if name.endswith(ending):
                values = interleave(tensor, num_heads)
        kind = matrices if values.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(values.astype(np.float32), kind), raw_dtype=kind)
    for name, tensor in (extra_tensors or {}).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
