"""Where kernels live: `<name>.cu` files and the headers that they share."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def kernel_folder() -> Path:
    """Return the folder with the kernels and `include/`.

    An installed package carries it as `cupy_turbo/kernels`; in a checkout, and so under ``pip install -e``, it lies
    beside the package, and edits take effect in place.

    Raises
    ------
    FileNotFoundError
        If neither exists: the installation is incomplete.
    """
    for folder in (_PACKAGE / "kernels", _PACKAGE.parent / "kernels"):
        if (folder / "include" / "turbo.cuh").is_file():
            return folder
    raise FileNotFoundError(f"no kernels/ in {_PACKAGE} or beside it: reinstall cupy_turbo")


@dataclass(frozen=True, slots=True)
class KernelSource:
    """One `.cu` file as it was read.

    Parameters
    ----------
    name : str
        File stem, which is also the kernel's entry.
    path : Path
        Where it was read.
    text : str
        Its content.
    digest : str
        Hash of the file and of every header that it can include: equal digests compile to equal code.
    """

    name: str
    path: Path
    text: str
    digest: str


class KernelLibrary:
    """Every kernel source that a device can compile.

    Files are read at each call, so that an edited kernel is seen by the next `Device.reload_kernels`.

    Parameters
    ----------
    extra_folders : sequence of Path, optional
        Folders with more `.cu` files, searched before the project's own: for tests and for experiments.
    """

    def __init__(self, extra_folders: Sequence[Path | str] = ()) -> None:
        self.folders = (*(Path(folder) for folder in extra_folders), kernel_folder())

    @property
    def include_folder(self) -> Path:
        """The headers; the only folder that a compiler is told to search."""
        return self.folders[-1] / "include"

    def names(self) -> list[str]:
        """Names of all kernels, sorted."""
        return sorted({path.stem for folder in self.folders for path in folder.glob("*.cu")})

    def read(self, name: str) -> KernelSource:
        """Read `<name>.cu`.

        Raises
        ------
        ValueError
            If there is no such kernel; names those that exist.
        """
        for folder in self.folders:
            path = folder / f"{name}.cu"
            if path.is_file():
                text = path.read_text(encoding="utf-8")
                return KernelSource(name, path, text, self._digest(text))
        raise ValueError(f"no kernel {name!r}; there are: {', '.join(self.names())}")

    def _digest(self, text: str) -> str:
        digest = hashlib.sha256(text.encode())
        for header in sorted(self.include_folder.glob("*.cuh")):
            digest.update(f"\0{header.name}\0".encode() + header.read_bytes())
        return digest.hexdigest()
