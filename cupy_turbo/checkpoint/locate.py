"""open_checkpoint: what a model's name stands for."""

from __future__ import annotations

import os
import re
from pathlib import Path

from cupy_turbo.checkpoint.checkpoint import Checkpoint
from cupy_turbo.checkpoint.folder import open_folder
from cupy_turbo.checkpoint.presets import DEMO_FOLDER, PRESETS, open_random
from cupy_turbo.core.errors import CheckpointError
from cupy_turbo.core.shown import shown

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def open_checkpoint(model: str | Path, revision: str | None = None) -> Checkpoint:
    """Find a model, read its configuration and the list of its tensors, and check one against the other.

    Parameters
    ----------
    model : str or path
        ``"demo"`` (part of the package), a Hugging Face folder, a ``.gguf`` file, an id of the Hugging Face Hub
        (``owner/name``), or ``random:`` and a preset's name or a folder. A local file or folder wins over an id.
    revision : str, optional
        Branch, tag or commit of a Hub id.

    Returns
    -------
    Checkpoint
        No weight has been read.

    Raises
    ------
    UnsupportedModelError
        If the network is not supported, with the list of what is.
    CheckpointError
        If nothing has that name, or its files are missing, damaged or contradictory.

    Examples
    --------
    >>> checkpoint = open_checkpoint("demo")
    >>> checkpoint.config.num_layers, checkpoint.tensors["model.norm.weight"].shape
    (6, (128,))
    """
    if not isinstance(model, str | Path) or not isinstance(revision, str | None):
        raise CheckpointError(f"model and revision must be text or a path, got {shown(model)} and {shown(revision)}")
    # os.path: a name that no file can have (too long, a NUL in it) is one that does not exist
    name, path = str(model), Path(os.path.expanduser(model))
    is_hub_id = (
        isinstance(model, str)
        and _HUB_ID.fullmatch(name) is not None
        and path.suffix != ".gguf"
        and not os.path.exists(path)
    )
    if revision is not None and not is_hub_id:
        raise CheckpointError(f"revision {shown(revision)} was given, but {shown(name)} is no id of the Hub")
    if model == "demo":
        return open_folder(DEMO_FOLDER)
    if name.startswith("random:"):
        return open_random(name.removeprefix("random:"))
    if name and os.path.isdir(path):  # Path("") is the working directory
        return open_folder(path)
    if os.path.isfile(path):
        if path.suffix != ".gguf":
            raise CheckpointError(f"{path} is a file but no .gguf; for safetensors, name the folder with config.json")
        from cupy_turbo.checkpoint.gguf_file import open_gguf

        return open_gguf(path)
    if is_hub_id:
        from cupy_turbo.checkpoint.hub import fetch_model

        return open_folder(fetch_model(name, revision))
    raise CheckpointError(
        f"no model {shown(name)}: no such file or folder. Known forms: demo; a folder with config.json and "
        f"safetensors; a .gguf file; an id owner/name of the Hugging Face Hub; random: and one of "
        f"{', '.join(PRESETS)}"
    )
