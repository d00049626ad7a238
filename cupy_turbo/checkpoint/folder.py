"""A checkpoint in a Hugging Face folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from cupy_turbo.checkpoint.checkpoint import Checkpoint, match_tensors
from cupy_turbo.checkpoint.json_file import read_json_object, read_optional_json_object
from cupy_turbo.checkpoint.safetensors_files import list_safetensors
from cupy_turbo.models.config import ModelConfig

CONFIG_FILES = ("config.json", "generation_config.json")


def read_folder_config(folder: Path) -> ModelConfig:
    """Read and check the configuration of a folder; its weights need not be there yet.

    Raises
    ------
    UnsupportedModelError, CheckpointError
        As `ModelConfig.from_hf` and `read_json_object` do.
    """
    config_file, generation_file = (folder / name for name in CONFIG_FILES)
    return ModelConfig.from_hf(
        read_json_object(config_file),
        source=str(config_file),
        generation_config=read_optional_json_object(generation_file),
    )


def open_folder(folder: Path) -> Checkpoint:
    """Open a folder with `config.json`, safetensors and a tokenizer.

    Raises
    ------
    UnsupportedModelError
        If the network is not supported; nothing but the configuration has been read by then.
    CheckpointError
        If a file is missing or damaged, or the tensors are not those of the configuration.
    """
    config = read_folder_config(folder)
    tensors = match_tensors(config, list_safetensors(folder), str(folder))
    if not {"dtype", "torch_dtype"} & read_json_object(folder / CONFIG_FILES[0]).keys():
        config = dataclasses.replace(config, dtype=tensors["model.embed_tokens.weight"].dtype)
    return Checkpoint(
        config=config,
        generation_config=read_optional_json_object(folder / CONFIG_FILES[1]),
        tensors=tensors,
        tokenizer_source=folder,
        path=folder,
    )
