"""Files of a model's folder: regular ones, inside of it."""

from __future__ import annotations

from pathlib import Path

from cupy_turbo.core.errors import CheckpointError


def find_model_file(path: Path) -> Path | None:
    """Return the file's own path without symbolic links; None if there is no such file.

    A folder from a stranger may hold a link to any file of this machine, or a pipe that never ends. The cache of
    huggingface_hub has links too: from ``snapshots/REVISION`` to ``blobs`` beside it, which are followed.

    Raises
    ------
    CheckpointError
        If it is no regular file, or a link that leads out of its folder.
    """
    try:
        target, folder = path.resolve(strict=True), path.parent.resolve(strict=True)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RuntimeError) as error:  # links in a circle; a name that no file can have
        raise CheckpointError(f"{path} cannot be opened: {error}") from error
    if not target.is_file():
        raise CheckpointError(f"{path} is no regular file")
    homes = [folder]
    if folder.parent.name == "snapshots":
        homes.append(folder.parents[1] / "blobs")
    if not any(target.is_relative_to(home) for home in homes):
        raise CheckpointError(
            f"{path} is a link that leads out of the model's folder, to {target}; put the file itself there"
        )
    return target
