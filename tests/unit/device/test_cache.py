"""The disk cache never trusts a torn file and never shows half of one."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from cupy_turbo.device.cache import DiskCache, cache_folder, cache_key


def fail() -> bytes:
    raise AssertionError("made again")


def test_an_entry_is_made_once(tmp_path: Path) -> None:
    cache, key = DiskCache(tmp_path), cache_key("source", "flags")
    path = cache.fetch(key, ".so", lambda: b"payload")
    assert path.read_bytes().startswith(b"payload")
    assert cache.fetch(key, ".so", fail) == path
    assert DiskCache(tmp_path).payload(key, ".so", fail) == b"payload"


def test_keys_depend_on_every_part_and_on_where_it_ends() -> None:
    parts = [("a", "b"), ("ab", ""), ("a", "b", ""), ("b", "a")]
    assert len({cache_key(*each) for each in parts}) == len(parts)


@pytest.mark.parametrize("damage", [lambda c: c[:-1], lambda c: c[:10], lambda c: b"", lambda c: b"x" + c[1:]])
def test_a_torn_or_damaged_entry_is_made_again(tmp_path: Path, damage: object) -> None:
    cache = DiskCache(tmp_path)
    path = cache.fetch("0" * 64, ".cubin", lambda: b"payload")
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    assert cache.payload("0" * 64, ".cubin", lambda: b"again") == b"again"
    assert cache.payload("0" * 64, ".cubin", fail) == b"again"


def test_a_failure_to_make_leaves_nothing(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    with pytest.raises(AssertionError):
        cache.fetch("0" * 64, ".so", fail)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert cache.payload("0" * 64, ".so", lambda: b"now") == b"now"


def test_readers_see_whole_entries_while_many_write(tmp_path: Path) -> None:
    payload, seen = os.urandom(1 << 20), []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        seen.append(DiskCache(tmp_path).payload("f" * 64, ".so", lambda: payload))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [payload] * 8
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".so"]


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cache = DiskCache(blocked)
    with pytest.warns(UserWarning, match="CUPY_TURBO_CACHE_DIR"):
        assert cache.payload("0" * 64, ".so", lambda: b"payload") == b"payload"
    assert cache.payload("0" * 64, ".so", fail) == b"payload"  # no second warning: warnings are errors here


def test_the_folder_is_configured_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUPY_TURBO_CACHE_DIR", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("CUPY_TURBO_CACHE_DIR")
    assert cache_folder() == Path.home() / ".cache" / "cupy_turbo"
