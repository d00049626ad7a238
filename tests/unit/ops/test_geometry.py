"""ops/geometry.py: whole warps, bounded by the kind of device."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cupy_turbo.ops.geometry import block_threads


@pytest.mark.parametrize(
    ("kind", "items", "threads"),
    [
        ("cuda", 0, 32),
        ("cuda", 33, 64),
        ("cuda", 512, 512),
        ("cuda", 10**6, 1024),
        ("host", 10**6, 32),
        ("host", 1, 32),
    ],
)
def test_blocks_are_whole_warps_within_the_limit(kind: str, items: int, threads: int) -> None:
    stream = SimpleNamespace(device=SimpleNamespace(kind=kind))
    assert block_threads(stream, items) == threads  # type: ignore[arg-type]
