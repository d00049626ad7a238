"""The header of a GGUF file, every count, length and offset checked against the file before it is used.

The gguf package's own reader checks none of them: a few wrong bytes make it allocate what they say, or read past the
end of the file.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from cupy_turbo.core.errors import CheckpointError
from cupy_turbo.core.shown import shown

VERSIONS = (2, 3)
MAX_DIMS = 4
MAX_ENTRIES = 1 << 16
"""Most metadata entries, and most tensors; the largest published models have a few thousand."""
MAX_ARRAY = 1 << 20
"""Most elements of a metadata array; vocabularies have up to 300,000, and their merges up to twice as many."""
MAX_NAME_BYTES = 1 << 10
MAX_TEXT_BYTES = 1 << 24

_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor as the header describes it.

    Parameters
    ----------
    name : str
        llama.cpp's name.
    shape : tuple of int
        Slowest axis first, as in NumPy (the file has them the other way round).
    type_code : int
        A `GGMLQuantizationType`.
    offset : int
        Bytes from the start of the file.
    """

    name: str
    shape: tuple[int, ...]
    type_code: int
    offset: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Metadata and tensor list of a GGUF file.

    Parameters
    ----------
    metadata : dict of str to object
        int, float, bool, str, or list of one of these.
    tensors : tuple of GgufTensor
        With sizes not yet checked: they depend on the type, see `gguf_file`.
    """

    metadata: dict[str, object]
    tensors: tuple[GgufTensor, ...]


def read_gguf_header(path: Path) -> GgufHeader:
    """Read metadata and tensor list.

    Parameters
    ----------
    path : path
        Untrusted file.

    Raises
    ------
    CheckpointError
        If it is no GGUF file of version 2 or 3 in little-endian order, is cut short, or any count, length, type,
        alignment, number of dimensions or offset is impossible; nothing has been allocated by then that the file does
        not fill.

    Notes
    -----
    **Source:** ggml's `docs/gguf.md`.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _HeaderReader(content, str(path)).read()
    except (OSError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} cannot be read as GGUF: {error}") from error


class _HeaderReader:
    """A cursor over the mapped file that refuses to step past its end."""

    def __init__(self, content: mmap.mmap, source: str) -> None:
        self.content = content
        self.size = len(content)
        self.position = 0
        self.source = source

    def read(self) -> GgufHeader:
        magic = self.content[:4]
        if magic != b"GGUF":
            raise self.error(f"begins with {magic!r}, not with b'GGUF'")
        self.position = 4
        version = self.unsigned("I")
        if version not in VERSIONS:
            swapped = version != 0 and version & 0xFFFF == 0
            detail = "is in big-endian order" if swapped else f"has GGUF version {version}"
            raise self.error(f"{detail}; versions {VERSIONS} in little-endian order are supported")
        num_tensors = self.count("tensors", MAX_ENTRIES, bytes_each=24)
        num_entries = self.count("metadata entries", MAX_ENTRIES, bytes_each=13)
        metadata: dict[str, object] = {}
        for _ in range(num_entries):
            key = self.string(MAX_NAME_BYTES, "a metadata key")
            if key in metadata:
                raise self.error(f"has the metadata key {shown(key)} twice")
            metadata[key] = self.value(self.unsigned("I"), key)
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment not in {1 << bit for bit in range(3, 21)}:
            raise self.error(f"has general.alignment {shown(alignment)}, which is no power of two from 8 to 2^20")
        return GgufHeader(metadata, self.tensors(num_tensors, alignment))

    def tensors(self, count: int, alignment: int) -> tuple[GgufTensor, ...]:
        relative = [self.tensor() for _ in range(count)]
        start = -(-self.position // alignment) * alignment
        found: dict[str, GgufTensor] = {}
        for tensor in relative:
            if tensor.name in found:
                raise self.error(f"has the tensor {shown(tensor.name)} twice")
            if tensor.offset % alignment or start + tensor.offset > self.size:
                raise self.error(
                    f"says {shown(tensor.name)} begins {tensor.offset} bytes into its tensors, which is past the end "
                    f"of the file ({self.size} bytes) or no multiple of {alignment}"
                )
            found[tensor.name] = GgufTensor(tensor.name, tensor.shape, tensor.type_code, start + tensor.offset)
        return tuple(found.values())

    def tensor(self) -> GgufTensor:
        name = self.string(MAX_NAME_BYTES, "a tensor name")
        num_dims = self.unsigned("I")
        if not 1 <= num_dims <= MAX_DIMS:
            raise self.error(f"says {shown(name)} has {num_dims} dimensions; 1 to {MAX_DIMS} are possible")
        dims = [self.unsigned("Q") for _ in range(num_dims)]
        total = 1
        for dim in dims:  # Python's integers do not wrap
            total *= dim
        if not 0 < total < 1 << 48:
            raise self.error(f"says {shown(name)} has the shape {dims}, which no tensor has")
        return GgufTensor(name, tuple(reversed(dims)), self.unsigned("I"), self.unsigned("Q"))

    def value(self, kind: int, key: str) -> object:
        if kind in _SCALARS:
            return self.unpack("<" + _SCALARS[kind])[0]
        if kind == _STRING:
            return self.string(MAX_TEXT_BYTES, f"the value of {shown(key)}")
        if kind != _ARRAY:
            raise self.error(f"has {shown(key)} of unknown type {kind}")
        element = self.unsigned("I")
        if element == _STRING:
            what = f"an element of {shown(key)}"
            return [self.string(MAX_TEXT_BYTES, what) for _ in range(self.count(key, MAX_ARRAY, bytes_each=8))]
        if element not in _SCALARS:
            raise self.error(f"has {shown(key)}, an array of unsupported type {element}")
        form = _SCALARS[element]
        length = self.count(key, MAX_ARRAY, bytes_each=struct.calcsize(form))
        return list(self.unpack(f"<{length}{form}"))

    def count(self, what: str, limit: int, *, bytes_each: int) -> int:
        value = self.unsigned("Q")
        if value > limit or value * bytes_each > self.size - self.position:
            raise self.error(
                f"says it has {value} {shown(what)}; the limit is {limit}, and {self.size - self.position} bytes follow"
            )
        return value

    def string(self, limit: int, what: str) -> str:
        length = self.unsigned("Q")
        if length > limit or length > self.size - self.position:
            raise self.error(
                f"has {what} of {length} bytes; the limit is {limit}, and {self.size - self.position} bytes follow"
            )
        text = self.content[self.position : self.position + length]
        self.position += length
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.error(f"has {what} that is not UTF-8: {error.reason} at byte {error.start}") from None

    def unsigned(self, form: str) -> int:
        return int(self.unpack("<" + form)[0])

    def unpack(self, form: str) -> tuple[int | float | bool, ...]:
        if struct.calcsize(form) > self.size - self.position:
            raise self.error(f"is cut short: it ends at byte {self.size}, within its header")
        values = struct.unpack_from(form, self.content, self.position)
        self.position += struct.calcsize(form)
        return values

    def error(self, problem: str) -> CheckpointError:
        return CheckpointError(f"{self.source} {problem}")
