"""Models of the Hugging Face Hub, by way of huggingface_hub and its cache."""

from __future__ import annotations

from pathlib import Path

from cupy_turbo.checkpoint.folder import CONFIG_FILES, read_folder_config
from cupy_turbo.checkpoint.safetensors_files import INDEX_FILE
from cupy_turbo.core.errors import CheckpointError

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
)
# By name, so that the same weights in other forms (consolidated.safetensors, original/, *.bin) stay where they are.
_WEIGHT_FILES = ("model.safetensors", INDEX_FILE, "model-*-of-*.safetensors")


def fetch_model(model_id: str, revision: str | None) -> Path:
    """Return the local folder of a model of the Hub, downloading what the cache lacks.

    Parameters
    ----------
    model_id : str
        ``owner/name``.
    revision : str, optional
        Branch, tag or commit.

    Raises
    ------
    UnsupportedModelError
        If the network is not supported; only its configuration has been downloaded by then.
    CheckpointError
        If the model or revision does not exist, asks for a licence or a login, or cannot be reached.

    Notes
    -----
    `HF_HUB_OFFLINE`, `HF_HOME`, `HF_TOKEN` and `HF_ENDPOINT` mean what they mean to huggingface_hub.
    """
    read_folder_config(_download(model_id, revision, CONFIG_FILES))
    return _download(model_id, revision, (*CONFIG_FILES, *_TOKENIZER_FILES, *_WEIGHT_FILES))


def _download(model_id: str, revision: str | None, patterns: tuple[str, ...]) -> Path:
    # Imported here: it takes a third of a second that a model on disk need not wait.
    import huggingface_hub
    from huggingface_hub import constants, errors

    where = f"{model_id} (revision {revision})" if revision else model_id
    try:
        return Path(huggingface_hub.snapshot_download(model_id, revision=revision, allow_patterns=list(patterns)))
    except errors.GatedRepoError as error:
        raise CheckpointError(
            f"{where} asks for a licence to be accepted on huggingface.co, then for `hf auth login` or HF_TOKEN"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise CheckpointError(f"{model_id} has no revision {revision!r}") from error
    except errors.RepositoryNotFoundError as error:
        raise CheckpointError(
            f"{where} is not on the Hub, or is private and needs `hf auth login`, and no local file or folder has "
            "that name"
        ) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "the Hub cannot be reached"
        raise CheckpointError(
            f"{where} is not in the local cache and {reason}; name a local folder or .gguf file, or connect once to "
            "download it"
        ) from error
    except Exception as error:
        # Whatever HTTP library huggingface_hub uses this year has errors of its own, and the disk may be full.
        raise CheckpointError(f"{where} could not be downloaded: {type(error).__name__}: {error}") from error
