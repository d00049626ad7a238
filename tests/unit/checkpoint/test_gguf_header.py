"""A GGUF header says nothing that is believed: every count, length and offset is checked against the file."""

from __future__ import annotations

import random
import struct
import tracemalloc
from pathlib import Path

import gguf
import pytest

from cupy_turbo.checkpoint import open_checkpoint
from cupy_turbo.checkpoint.gguf_header import read_gguf_header
from cupy_turbo.core.errors import CheckpointError, UnsupportedModelError
from tests.unit.checkpoint.tiny_files import make_tensors, write_gguf

EVIL = [0, 1, 5, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**61, 2**63, 2**64 - 1]


def text(value: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(value) if length is None else length) + value


def header(*, tensors: int = 0, entries: int = 0, version: int = 3, magic: bytes = b"GGUF") -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, entries)


def tensor(
    name: bytes = b"t", dims: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0, n: int | None = None
) -> bytes:
    num_dims = len(dims) if n is None else n
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", num_dims, *dims, kind, offset)


def refused(tmp_path: Path, content: bytes, match: str) -> None:
    """Reading fails with a CheckpointError that says `match`, and allocates next to nothing on the way."""
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=match) as caught:
            read_gguf_header(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 600


def test_metadata_and_tensors_are_those_that_the_packages_reader_finds(tmp_path: Path) -> None:
    extra = {"x.a": 3, "x.b": 2.5, "x.c": True, "x.d": "é", "x.e": [1, 2, 3], "x.f": ["p", "q"]}
    path = write_gguf(tmp_path / "m.gguf", make_tensors(0), extra_keys=extra)
    reader, found = gguf.GGUFReader(path), read_gguf_header(path)
    assert found.metadata == {
        key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")
    }
    assert [(t.name, t.shape, t.type_code, t.offset) for t in found.tensors] == [
        (t.name, tuple(reversed(t.shape.tolist())), t.tensor_type.value, t.data_offset) for t in reader.tensors
    ]


@pytest.mark.parametrize("magic", [b"", b"GGU", b"GGML", b"PK\3\4", b"\0\0\0\0"])
def test_another_kind_of_file_is_refused(tmp_path: Path, magic: bytes) -> None:
    refused(tmp_path, header(magic=magic) if magic else b"", "begins with|empty")


@pytest.mark.parametrize("version", [0, 1, 4, 2**32 - 1])
def test_other_versions_are_refused(tmp_path: Path, version: int) -> None:
    refused(tmp_path, header(version=version), f"version {version};")


def test_big_endian_files_are_called_that(tmp_path: Path) -> None:
    refused(tmp_path, b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian")


@pytest.mark.parametrize("count", EVIL[2:])
def test_counts_are_bounded_by_the_file(tmp_path: Path, count: int) -> None:
    refused(tmp_path, header(tensors=count), f"{count} 'tensors'")
    refused(tmp_path, header(entries=count), f"{count} 'metadata entries'")


@pytest.mark.parametrize("length", EVIL[3:])
def test_lengths_of_text_are_bounded_by_the_file(tmp_path: Path, length: int) -> None:
    filler = b"\0" * 16
    refused(tmp_path, header(entries=1) + text(b"k", length) + filler[:2] + struct.pack("<Q", 0), f"{length} bytes")
    value = text(b"key") + struct.pack("<I", 8) + text(b"", length)
    refused(tmp_path, header(entries=1) + value, f"value of 'key' of {length} bytes")
    refused(tmp_path, header(tensors=1) + text(b"", length) + filler, f"tensor name of {length} bytes")


@pytest.mark.parametrize("kind", [0, 5, 8, 12])
@pytest.mark.parametrize("count", EVIL[3:])
def test_lengths_of_arrays_are_bounded_by_the_file(tmp_path: Path, count: int, kind: int) -> None:
    refused(tmp_path, header(entries=1) + text(b"key") + struct.pack("<IIQ", 9, kind, count), f"{count} 'key'")


@pytest.mark.parametrize("kind", [13, 14, 255, 2**32 - 1])
def test_unknown_value_types_are_refused(tmp_path: Path, kind: int) -> None:
    refused(tmp_path, header(entries=1) + text(b"key") + struct.pack("<IQ", kind, 0), f"unknown type {kind}")
    refused(tmp_path, header(entries=1) + text(b"key") + struct.pack("<IIQ", 9, kind, 0), f"unsupported type {kind}")


def test_arrays_of_arrays_are_refused(tmp_path: Path) -> None:
    refused(tmp_path, header(entries=1) + text(b"key") + struct.pack("<IIQ", 9, 9, 1) * 1000, "unsupported type 9")


def test_names_that_are_no_text_and_names_twice_are_refused(tmp_path: Path) -> None:
    entry = text(b"key") + struct.pack("<IB", 0, 7)
    refused(tmp_path, header(entries=2) + entry * 2, "'key' twice")
    refused(tmp_path, header(tensors=2) + tensor() * 2 + b"\0" * 512, "'t' twice")
    refused(tmp_path, header(entries=1) + entry.replace(b"key", b"\xff\xfe\xfd"), "a metadata key that is not UTF-8")


@pytest.mark.parametrize("num_dims", [0, 5, 10**6, 2**32 - 1])
def test_number_of_dimensions_is_bounded(tmp_path: Path, num_dims: int) -> None:
    refused(tmp_path, header(tensors=1) + tensor(n=num_dims) + b"\0" * 64, f"{num_dims} dimensions")


@pytest.mark.parametrize(
    "dims", [(0,), (2**32, 2**32), (2**63, 2), (2**16, 2**16, 2**16, 2**16), (2**64 - 1,), (3, 0xAAAAAAAAAAAAAAAB)]
)
def test_products_that_wrap_are_refused(tmp_path: Path, dims: tuple[int, ...]) -> None:
    refused(tmp_path, header(tensors=1) + tensor(dims=dims) + b"\0" * 64, "which no tensor has")


@pytest.mark.parametrize("offset", [1, 33, 2**20, 2**31, 2**63, 2**64 - 32])
def test_offsets_past_the_end_or_not_aligned_are_refused(tmp_path: Path, offset: int) -> None:
    refused(tmp_path, header(tensors=1) + tensor(offset=offset) + b"\0" * 256, f"begins {offset} bytes")


@pytest.mark.parametrize("alignment", [0, 1, 3, 24, 2**21, 2**31])
def test_alignment_is_a_power_of_two_of_sane_size(tmp_path: Path, alignment: int) -> None:
    entry = text(b"general.alignment") + struct.pack("<II", 4, alignment)
    refused(tmp_path, header(entries=1) + entry, f"alignment {alignment}")


def test_a_tensor_that_ends_past_the_end_of_the_file_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", make_tensors(0))
    content = path.read_bytes()
    for cut in (1, 33, 10_000):
        path.write_bytes(content[:-cut])
        with pytest.raises(CheckpointError, match=r"cut short|past the end"):
            open_checkpoint(path)


def test_rows_that_are_no_whole_blocks_and_types_from_the_future_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header(tensors=1) + tensor(dims=(33,), kind=8) + b"\0" * 512)
    with pytest.raises(CheckpointError, match="33 elements, no multiple of the 32 of a Q8_0 block"):
        open_checkpoint(path)
    path.write_bytes(header(tensors=1) + tensor(kind=999) + b"\0" * 512)
    with pytest.raises(UnsupportedModelError, match="type 999"):
        open_checkpoint(path)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_are_refused_or_read_but_never_anything_else(tmp_path: Path, seed: int) -> None:
    """Cut, overwrite or replace integers at random places of the header: no crash, no other exception, no big array."""
    rng = random.Random(seed)
    path = write_gguf(tmp_path / "m.gguf", make_tensors(0))
    content = path.read_bytes()
    end = read_gguf_header(path).tensors[0].offset
    for _ in range(100):
        damaged = bytearray(content)
        place = rng.randrange(end)
        match rng.randrange(3):
            case 0:
                del damaged[place:]
            case 1:
                damaged[place] = rng.randrange(256)
            case 2:
                damaged[place : place + 8] = struct.pack("<Q", rng.choice(EVIL))
        path.write_bytes(damaged)
        try:
            checkpoint = open_checkpoint(path)
            for spec in checkpoint.tensors.values():
                spec.read()
        except (CheckpointError, UnsupportedModelError):
            pass
