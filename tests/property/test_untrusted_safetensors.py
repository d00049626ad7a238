"""Safetensors and their index, changed in every field: refused by name, or read exactly as the configuration says."""

from __future__ import annotations

import functools
import json
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from cupy_turbo.checkpoint import Checkpoint, open_checkpoint, safetensors_files
from cupy_turbo.core.errors import CheckpointError
from cupy_turbo.testing.examples import examples
from tests.property.untrusted import attempt, audited, evil_integers, json_values, opened_outside
from tests.unit.checkpoint.tiny_files import CONFIG, make_tensors, write_folder, write_index

NORM = "model.norm.weight"
Change = tuple[str, object]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("untrusted") / "model", make_tensors(0))


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index, a file beside the folder, and a link to it."""
    outside = tmp_path_factory.mktemp("sharded")
    folder = write_folder(outside / "model", make_tensors(0), num_shards=2)
    (folder / "model.safetensors.index.json").rename(folder / "index.valid")
    save_file({NORM: np.ones(64, np.float32)}, outside / "secret.safetensors")
    (folder / "link.safetensors").symlink_to(outside / "secret.safetensors")
    return folder


@functools.cache
def valid() -> tuple[dict[str, dict[str, object]], bytes]:
    """Header and tensors of a file that is as it should be."""
    content = save(make_tensors(0))
    (length,) = struct.unpack_from("<Q", content)
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def changed(changes: list[Change]) -> bytes:
    header, tensors = json.loads(json.dumps(valid()[0])), valid()[1]
    text, length = None, None
    for kind, value in changes:
        match kind:
            case "dtype" | "shape" | "data_offsets" | "extra field":
                header.setdefault(NORM, {})[kind] = value
            case "rename":
                header[str(value)] = header.pop(NORM, {})
            case "add":
                header[str(value)] = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
            case "drop":
                header.pop(NORM, None)
            case "metadata":
                header["__metadata__"] = value
            case "swap":  # two tensors in one place, and a gap
                header["model.layers.0.input_layernorm.weight"]["data_offsets"] = value
            case "twice":
                text = json.dumps(header)[:-1] + f', "{NORM}": {json.dumps(value)}}}'
            case "text":
                text = value
            case "cut":
                tensors = tensors[: int(str(value))]
            case "length":
                length = value
    encoded = text if isinstance(text, bytes) else (text or json.dumps(header)).encode("utf-8", "surrogatepass")
    size = len(encoded) if length is None else int(str(length)) % 2**64
    return struct.pack("<Q", size) + encoded + tensors


shapes = st.lists(evil_integers, max_size=6)
changes = st.one_of(
    st.tuples(st.just("dtype"), st.sampled_from(["F64", "I8", "BF16", "f32", "F4", "", "F32 ", "C64"]) | json_values),
    st.tuples(st.just("shape"), shapes | json_values),
    st.tuples(st.just("data_offsets"), st.lists(evil_integers, min_size=2, max_size=2) | json_values),
    st.tuples(st.just("swap"), st.lists(st.integers(-4, 600_000), min_size=2, max_size=2)),
    st.tuples(st.sampled_from(["rename", "add"]), st.text(max_size=12)),
    st.tuples(st.sampled_from(["extra field", "metadata", "twice"]), json_values),
    st.tuples(st.just("drop"), st.none()),
    st.tuples(st.just("text"), st.binary(max_size=20)),
    st.tuples(st.just("cut"), st.integers(-40, 40)),
    st.tuples(st.just("length"), evil_integers),
)


def read_all(folder: Path) -> Checkpoint:
    checkpoint = open_checkpoint(folder)
    for spec in checkpoint.tensors.values():
        spec.read()
    return checkpoint


@settings(max_examples=examples(150))
@given(st.lists(changes, min_size=1, max_size=3))
@example([("shape", [2**62, 4])])  # the product is 0 in 64 bits
@example([("shape", [2**63])])
@example([("shape", [-64])])
@example([("shape", [0, 2**63 - 1]), ("data_offsets", [0, 0])])
@example([("data_offsets", [2**64 - 256, 2**64])])
@example([("data_offsets", [256, 0])])
@example([("swap", [0, 256])])
@example([("dtype", "F64")])
@example([("twice", {"dtype": "F32", "shape": [8, 8], "data_offsets": [0, 256]})])
@example([("rename", "\x1b[2J\x1b]0;owned\x07")])  # a terminal must not obey it
@example([("add", "x" * 100_000)])
@example([("text", b"\xff" * 64)])
@example([("text", b'{"a":' * 100_000)])
@example([("text", b"[" * 1_000_000)])
@example([("text", b'{"\\ud800": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}')])
@example([("length", 2**63)])
@example([("length", 2**64 - 1)])
@example([("length", 99_999_999)])
@example([("cut", -1)])
def test_a_header_is_refused_or_means_what_the_configuration_says(folder: Path, changes: list[Change]) -> None:
    (folder / "model.safetensors").write_bytes(changed(changes))
    checkpoint = attempt(lambda: read_all(folder), names=str(folder), allowed_bytes=4 << 20)
    if checkpoint is not None:
        shapes = {name: spec.shape for name, spec in checkpoint.tensors.items()}
        assert shapes == checkpoint.config.tensor_shapes()


def test_a_file_of_many_empty_tensors_is_refused_in_time(tmp_path: Path) -> None:
    """Names that the network does not use were looked up among all that it does, one by one."""
    folder = write_folder(tmp_path, {f"x{index}": np.zeros(0, np.float32) for index in range(50_000)})
    attempt(lambda: open_checkpoint(folder), names="and 49992 more")


index_names = st.sampled_from(
    [
        *("../secret.safetensors", "/etc/passwd.safetensors", "a/../../secret.safetensors", "..\\secret.safetensors"),
        *("C:\\secret.safetensors", "//host/share/x.safetensors", ".safetensors", "..safetensors", "~/x.safetensors"),
        *("model-00001-of-00002.safetensors", "MODEL-00001-OF-00002.safetensors", "x" * 300 + ".safetensors"),
        *("$HOME.safetensors", "x\n.safetensors", "\u202etxt.safetensors", "missing.safetensors", "link.safetensors"),
    ]
)


@settings(max_examples=examples(60))
@given(st.dictionaries(st.sampled_from(sorted(make_tensors(0))), index_names | json_values, min_size=1, max_size=4))
@example({NORM: "../secret.safetensors"})
@example({NORM: "link.safetensors"})
def test_an_index_opens_nothing_outside_of_its_folder(sharded: Path, placed: dict[str, object]) -> None:
    folder = sharded
    index = json.loads((folder / "index.valid").read_text())
    write_index(folder, {**index["weight_map"], **placed})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safetensors_files, "safe_open", audited_open(safetensors_files.safe_open))
        with audited() as events:
            attempt(lambda: read_all(folder), names=str(folder))
    assert opened_outside(events, folder) == []


def audited_open(real: Callable[..., object]) -> Callable[..., object]:
    """The safetensors library opens files in Rust, where Python does not hear of it."""

    def safe_open(path: Path, **options: object) -> object:
        sys.audit("open", str(path), "rb", 0)
        return real(path, **options)

    return safe_open


FILES = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"]


@pytest.mark.parametrize("name", FILES[:3])
@pytest.mark.parametrize("target", ["secret", "../secret", "{outside}/secret", "loop", "/dev/zero", "/dev/stdin", "."])
def test_a_link_that_leads_out_is_not_followed(tmp_path: Path, name: str, target: str) -> None:
    folder = write_folder(tmp_path / "model", make_tensors(0))
    (tmp_path / "secret").write_text(json.dumps(CONFIG))
    (folder / name).unlink(missing_ok=True)
    (folder / "loop").symlink_to("loop")
    (folder / name).symlink_to(target.format(outside=tmp_path))
    with audited() as events:
        assert attempt(lambda: read_all(folder), names=str(folder)) is None or target == "secret"
    assert opened_outside(events, folder) == []


@pytest.mark.parametrize("name", FILES[:3])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    folder = write_folder(tmp_path, make_tensors(0))
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(CheckpointError, match=rf"{name} is no regular file"):
        read_all(folder)


def test_links_of_the_hubs_cache_are_followed(tmp_path: Path) -> None:
    """Snapshots/REVISION/config.json -> ../../blobs/HASH is how huggingface_hub keeps a model."""
    blobs, snapshot = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "0123"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, file in enumerate(sorted(write_folder(tmp_path / "plain", make_tensors(0)).iterdir())):
        file.rename(blobs / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    assert len(read_all(snapshot).tensors) == len(make_tensors(0))
    assert read_all(snapshot.parent / "../snapshots/0123").path is not None


def test_links_inside_of_the_folder_are_followed(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, make_tensors(0))
    (folder / "model.safetensors").rename(folder / "weights")
    (folder / "model.safetensors").symlink_to("weights")
    (tmp_path.parent / "by-link").symlink_to(folder)  # the folder's own name may be a link
    assert len(read_all(tmp_path.parent / "by-link").tensors) == len(make_tensors(0))
