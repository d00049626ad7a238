"""A content-addressed cache on disk for compiled kernels, safe under concurrent processes."""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

_TRAILER_MAGIC = b"cupy_turbo:sha256"
_TRAILER_SIZE = len(_TRAILER_MAGIC) + 32


def cache_folder() -> Path:
    """Return the folder of compiled kernels: `CUPY_TURBO_CACHE_DIR`, else `~/.cache/cupy_turbo`."""
    configured = os.environ.get("CUPY_TURBO_CACHE_DIR")
    return Path(configured).expanduser() if configured else Path("~/.cache/cupy_turbo").expanduser()


def cache_key(*parts: str) -> str:
    """Hash everything that decides a compiler's output: source, flags, compiler version, target."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


class DiskCache:
    """Files whose name is the hash of what made them.

    An entry is the payload followed by the payload's own hash, so that a torn or damaged file is recognised and made
    anew, and so that a shared object can be loaded from the file itself (loaders ignore what follows the image).
    Entries are written beside their place and renamed into it: a reader sees a whole entry or none.

    Parameters
    ----------
    folder : Path, optional
        Default: `cache_folder()`. If it cannot be written, a temporary folder of this process takes its place, with one
        warning.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder()

    def fetch(self, key: str, suffix: str, make: Callable[[], bytes]) -> Path:
        """Return the path of the entry `key`, whose payload `make` computes if it is missing or damaged.

        Parameters
        ----------
        key : str
            From `cache_key`.
        suffix : str
            File suffix with its dot, such as ".so".
        make : callable
            Returns the payload; what it raises passes through, and nothing is stored.
        """
        name = f"{key}{suffix}"
        for folder in (self.folder, _replaced.get(self.folder)):
            if folder is not None and _read(folder / key[:2] / name) is not None:
                return folder / key[:2] / name
        payload = make()
        try:
            return _write(self.folder / key[:2] / name, payload)
        except OSError as error:
            return _write(_replacement(self.folder, error) / key[:2] / name, payload)

    def payload(self, key: str, suffix: str, make: Callable[[], bytes]) -> bytes:
        """Return the payload of the entry `key`; as `fetch` otherwise."""
        return self.fetch(key, suffix, make).read_bytes()[:-_TRAILER_SIZE]


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    payload, trailer = content[:-_TRAILER_SIZE], content[-_TRAILER_SIZE:]
    return payload if trailer == _TRAILER_MAGIC + hashlib.sha256(payload).digest() else None


def _write(path: Path, payload: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=path.stem[:16], suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(payload + _TRAILER_MAGIC + hashlib.sha256(payload).digest())
        os.replace(scratch, path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise
    return path


# By folder that cannot be written; the folders live as long as the process, for loaded objects are mapped from them.
_replaced: dict[Path, Path] = {}
_temporary: list[tempfile.TemporaryDirectory[str]] = []


def _replacement(folder: Path, error: OSError) -> Path:
    if folder not in _replaced:
        warnings.warn(
            f"compiled kernels are not kept: {folder} cannot be written ({error.strerror}); "
            "set CUPY_TURBO_CACHE_DIR to a writable folder",
            stacklevel=5,
        )
        _temporary.append(tempfile.TemporaryDirectory(prefix="cupy_turbo-", ignore_cleanup_errors=True))
        _replaced[folder] = Path(_temporary[-1].name)
    return _replaced[folder]
