"""Kernel files are found by name, and a change of any header changes the digest."""

from __future__ import annotations

from pathlib import Path

import pytest

from cupy_turbo.device import source
from cupy_turbo.device.source import KernelLibrary, kernel_folder


def test_extra_folders_come_first(tmp_path: Path) -> None:
    (tmp_path / "rms_norm.cu").write_text("mine")
    library = KernelLibrary([tmp_path])
    assert library.read("rms_norm").text == "mine"
    assert "rms_norm" in library.names()
    assert KernelLibrary().read("rms_norm").path == kernel_folder() / "rms_norm.cu"


def test_an_unknown_kernel_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "here.cu").write_text("")
    with pytest.raises(ValueError, match=r"no kernel 'absent'; there are: .*here"):
        KernelLibrary([tmp_path]).read("absent")


def test_the_digest_covers_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    include = tmp_path / "include"
    include.mkdir()
    (include / "turbo.cuh").write_text("a")
    (tmp_path / "f.cu").write_text("b")
    monkeypatch.setattr(source, "kernel_folder", lambda: tmp_path)
    library = KernelLibrary()
    digests = {library.read("f").digest}
    (include / "turbo.cuh").write_text("c")
    digests.add(library.read("f").digest)
    (tmp_path / "f.cu").write_text("d")
    digests.add(library.read("f").digest)
    (include / "new.cuh").write_text("")
    digests.add(library.read("f").digest)
    assert len(digests) == 4
