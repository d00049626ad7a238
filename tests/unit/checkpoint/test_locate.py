"""What a model's name stands for, on this machine and on the Hub's cache."""

from __future__ import annotations

import json
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from cupy_turbo.checkpoint import open_checkpoint
from cupy_turbo.checkpoint.presets import PRESETS
from cupy_turbo.core.errors import CheckpointError, UnsupportedModelError
from tests.unit.checkpoint.tiny_files import CONFIG, make_tensors, write_folder, write_gguf

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_demo_is_part_of_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = open_checkpoint("demo")
    assert checkpoint.config.vocab_size == 1024
    assert checkpoint.config.eos_token_ids == (0,)
    assert (Path(str(checkpoint.tokenizer_source)) / "tokenizer.json").is_file()


def test_folders_and_files_are_found_by_str_path_and_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_folder(tmp_path / "model", make_tensors(0))
    write_gguf(tmp_path / "m.gguf", make_tensors(0))
    for name in ("model", "m.gguf"):
        for form in (tmp_path / name, str(tmp_path / name), f"~/{name}"):
            assert open_checkpoint(form).path == tmp_path / name


def test_random_models_have_shapes_and_no_tensors(tmp_path: Path) -> None:
    for name in PRESETS:
        checkpoint = open_checkpoint(f"random:{name}")
        assert checkpoint.is_random
        assert not checkpoint.tensors
        assert checkpoint.config.eos_token_ids == ()
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert open_checkpoint(f"random:{tmp_path}").config.vocab_size == 97
    with pytest.raises(CheckpointError, match=r"random:llama-4 is neither a preset \(tiny, .*llama-3.1-8b"):
        open_checkpoint("random:llama-4")


@pytest.mark.parametrize(
    "name", ["", "nothing", "/nowhere/model", "a/b/c", "owner/file.gguf", "../up", "hub id/with space"]
)
def test_a_name_that_stands_for_nothing_lists_the_known_forms(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=r"no such file or folder.*demo; .*\.gguf file; .*Hub; random:"):
        open_checkpoint(name)


def test_a_file_of_another_kind_says_what_to_name(tmp_path: Path) -> None:
    write_folder(tmp_path, make_tensors(0))
    with pytest.raises(CheckpointError, match="name the folder"):
        open_checkpoint(tmp_path / "model.safetensors")


def test_a_revision_of_something_local_is_an_error(tmp_path: Path) -> None:
    for name in ("demo", "random:tiny", str(tmp_path)):
        with pytest.raises(CheckpointError, match="revision 'v1' was given"):
            open_checkpoint(name, revision="v1")


@pytest.fixture
def offline_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Hub's cache in a folder of the test, and no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def cache_model(cache: Path, model_id: str, config: dict[str, object]) -> Path:
    root = cache / f"models--{model_id.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(COMMIT)
    (root / "snapshots").mkdir()
    return write_folder(root / "snapshots" / COMMIT, make_tensors(0), config)


def test_an_id_in_the_cache_needs_no_network(offline_cache: Path) -> None:
    folder = cache_model(offline_cache, "owner/name", CONFIG)
    checkpoint = open_checkpoint("owner/name")
    assert checkpoint.path == folder
    assert open_checkpoint("owner/name", revision="main").config == checkpoint.config


def test_an_id_that_is_not_in_the_cache_says_so(offline_cache: Path) -> None:
    cache_model(offline_cache, "owner/name", CONFIG)
    with pytest.raises(CheckpointError, match="owner/other is not in the local cache and HF_HUB_OFFLINE is set"):
        open_checkpoint("owner/other")
    with pytest.raises(CheckpointError, match=r"owner/name \(revision v2\) is not in the local cache"):
        open_checkpoint("owner/name", revision="v2")


def test_only_the_configuration_of_an_unsupported_model_is_downloaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[list[str]] = []

    def download(model_id: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        return str(write_folder(tmp_path, {}, {**CONFIG, "architectures": ["MambaForCausalLM"]}))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(UnsupportedModelError, match="MambaForCausalLM"):
        open_checkpoint("owner/name")
    assert asked == [["config.json", "generation_config.json"]]


def test_a_local_folder_wins_over_an_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline_cache: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner").mkdir()
    write_folder(tmp_path / "owner" / "name", make_tensors(0))
    assert open_checkpoint("owner/name").path == Path("owner/name")
