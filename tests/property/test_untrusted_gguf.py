"""A GGUF file, changed in every count, length, type, dimension, offset and value: refused by name, or read."""

from __future__ import annotations

import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.checkpoint import Checkpoint, open_checkpoint
from cupy_turbo.core.errors import CheckpointError
from cupy_turbo.models.rope import rope_table
from cupy_turbo.testing.examples import examples
from cupy_turbo.text import open_tokenizer
from tests.property.untrusted import attempt, evil_integers
from tests.unit.checkpoint.tiny_files import make_tensors, write_gguf

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
EXTRA = {
    "llama.rope.scaling.type": "yarn",
    "llama.rope.scaling.factor": 4.0,
    "tokenizer.ggml.merges": ["< 0", "<0 >"],
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.chat_template": "{{ messages[0].content }}",
    "general.alignment": 32,
}


@dataclass(frozen=True)
class Field:
    """Where in the file an integer, a number or a text stands, and what it says."""

    label: str
    position: int
    form: str


def fields_of(content: bytes) -> list[Field]:
    """Every field of a valid file's header."""
    found: list[Field] = []
    position = 4

    def take(label: str, form: str) -> int:
        nonlocal position
        found.append(Field(label, position, form))
        (value,) = struct.unpack_from("<" + form, content, position)
        position += struct.calcsize("<" + form)
        return int(value) if form not in "fd" else 0

    def text(label: str) -> str:
        nonlocal position
        length = take(f"{label}.length", "Q")
        found.append(Field(label, position, f"{min(length, 4)}s"))
        position += length
        return content[position - length : position].decode()

    def value(label: str, kind: int) -> None:
        if kind == 8:
            text(label)
        elif kind == 9:
            element, count = take(f"{label}.element", "I"), take(f"{label}.count", "Q")
            for index in range(count):
                value(f"{label}[{index}]", element)
        else:
            take(label, SCALARS[kind])

    take("version", "I")
    num_tensors, num_entries = take("tensors", "Q"), take("entries", "Q")
    for _ in range(num_entries):
        key = text("key")
        value(key, take(f"{key}.type", "I"))
    for _ in range(num_tensors):
        name = text("name")
        for axis in range(take(f"{name}.dims", "I")):
            take(f"{name}.dim{axis}", "Q")
        take(f"{name}.type", "I")
        take(f"{name}.offset", "Q")
    return found


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, list[Field]]:
    path = write_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf", make_tensors(0), extra_keys=EXTRA)
    return path, path.read_bytes(), fields_of(path.read_bytes())


def use(path: Path) -> Checkpoint:
    """Whatever may be asked of a file on the way to an answer."""
    checkpoint = open_checkpoint(path)
    for spec in checkpoint.tensors.values():
        spec.read()
    assert np.isfinite(rope_table(checkpoint.config, min(64, checkpoint.config.max_position))).all()
    tokenizer = open_tokenizer(checkpoint.tokenizer_source, path)
    tokenizer.decode(tokenizer.encode("<0> text"))
    return checkpoint


def written(content: bytes, field: Field, value: object) -> bytes:
    changed = bytearray(content)
    if field.form.endswith("s"):
        raw = value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
        struct.pack_into("<" + field.form, changed, field.position, raw)
    elif field.form in "fd":
        number = float(value) if isinstance(value, int | float) else float("nan")
        struct.pack_into("<" + field.form, changed, field.position, number if abs(number) < 3e38 else float("inf"))
    else:
        size = struct.calcsize("<" + field.form)
        number = int(value) % 2 ** (8 * size) if isinstance(value, int) else 2 ** (8 * size) - 1
        changed[field.position : field.position + size] = number.to_bytes(size, "little")
    return bytes(changed)


values = st.one_of(
    evil_integers, st.integers(0, 40), st.binary(max_size=4), st.sampled_from([float("nan"), 1e30, -0.0])
)


@settings(max_examples=examples(300))
@given(
    changes=st.lists(st.tuples(st.integers(0, 10_000), values), max_size=3),
    cut=st.none() | st.floats(0, 1),
)
def test_a_changed_file_is_refused_or_read(
    valid: tuple[Path, bytes, list[Field]], changes: list[tuple[int, object]], cut: float | None
) -> None:
    path, content, fields = valid
    for place, value in changes:
        content = written(content, fields[place % len(fields)], value)
    path.write_bytes(content if cut is None else content[: int(cut * len(content))])
    attempt(lambda: use(path), names=str(path), allowed_bytes=16 << 20)


@pytest.mark.parametrize("value", [0, 1, 2**16, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1, -1, b"\xff\xff\xff\xff"])
def test_each_field_alone(valid: tuple[Path, bytes, list[Field]], value: object) -> None:
    """All counts, lengths, types, dimensions and offsets, one after the other, each at every end of its range."""
    path, content, fields = valid
    seen: set[str] = set()
    for field in fields:
        kind = field.label.split("[")[0] if "[" in field.label else field.label
        kind = kind if not kind.startswith("blk.1.") else "blk.1"
        if kind + field.form in seen:
            continue
        seen.add(kind + field.form)
        path.write_bytes(written(content, field, value))
        attempt(lambda: open_checkpoint(path), names=str(path), allowed_bytes=4 << 20)
    assert len(seen) > 80


def test_refusals_name_file_and_field(valid: tuple[Path, bytes, list[Field]]) -> None:
    path, content, fields = valid
    by_label = {field.label: field for field in fields}
    for label, value, words in [
        ("llama.attention.head_count", 0, "num_attention_heads"),
        ("llama.attention.layer_norm_rms_epsilon", float("nan"), "rms_norm_eps"),
        ("llama.attention.layer_norm_rms_epsilon.type", 99, "llama.attention.layer_norm_rms_epsilon"),
        ("tokenizer.ggml.tokens.element", 9, "tokenizer.ggml.tokens"),
        ("tokenizer.ggml.tokens.count", 2**40, "tokenizer.ggml.tokens"),
        ("general.alignment", 24, "general.alignment"),
        ("token_embd.weight.dims", 10**6, "token_embd.weight"),
        ("token_embd.weight.dim0", 2**63, "token_embd.weight"),
        ("token_embd.weight.offset", 2**40, "token_embd.weight"),
        ("token_embd.weight.type", 999, "token_embd.weight"),
        ("output_norm.weight.offset", 0, "output_norm.weight"),  # the bytes of another tensor
        ("general.architecture", b"\xff\xff\xff\xff", "general.architecture"),
    ]:
        path.write_bytes(written(content, by_label[label], value))
        with pytest.raises(Exception, match=words) as caught:
            open_checkpoint(path)
        assert str(path) in str(caught.value)


def test_tensors_that_share_bytes_are_refused(tmp_path: Path) -> None:
    """A file of any size could otherwise claim any amount of memory, one tensor at a time."""
    path = write_gguf(tmp_path / "m.gguf", make_tensors(0))
    content = path.read_bytes()
    norms = [field for field in fields_of(content) if field.label.endswith("norm.weight.offset")]
    path.write_bytes(written(content, norms[0], struct.unpack_from("<Q", content, norms[1].position)[0]))
    with pytest.raises(CheckpointError, match="they overlap"):
        open_checkpoint(path)


def test_a_file_cut_after_it_was_opened_is_noticed(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", make_tensors(0))
    spec = open_checkpoint(path).tensors["lm_head.weight"]
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(CheckpointError, match=r"output\.weight cannot be read any more"):
        spec.read()
    path.unlink()
    with pytest.raises(CheckpointError, match="cannot be read any more"):
        spec.read()


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


@pytest.mark.parametrize(
    "entries",
    [
        [text(b"k") + struct.pack("<IIQ", 9, 8, 1 << 20) + text(b"abcdef") * (1 << 20)],
        [text(b"k") + struct.pack("<IIQ", 9, 0, 1 << 20) + bytes(1 << 20)],
        [text(b"%06d" % index) + struct.pack("<IB", 7, 1) for index in range(1 << 16)],
        [text(b"k") + struct.pack("<IIQ", 9, 9, 2**40) + struct.pack("<IQ", 9, 1) * 100_000],
    ],
    ids=["texts", "bytes", "entries", "nested"],
)
def test_the_largest_headers_take_memory_and_time_in_proportion(tmp_path: Path, entries: list[bytes]) -> None:
    """In a process of its own, which may take 16 times the file and no more."""
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries))
    script = f"""
import resource, time
from pathlib import Path
from cupy_turbo.checkpoint.gguf_header import read_gguf_header
from cupy_turbo.core.errors import CheckpointError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
start = time.process_time()
try:
    read_gguf_header(Path({str(path)!r}))
except CheckpointError:
    pass
print(time.process_time() - start, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    seconds, grown = map(float, done.stdout.split())
    assert seconds < 2
    assert grown < 16 * path.stat().st_size + (8 << 20)
