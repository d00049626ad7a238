"""Grids and blocks: what CUDA allows, checked alike on both devices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cupy_turbo.core.protocols import LaunchSize

MAX_THREADS = 1024
"""Of one block."""

_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_BLOCK = (1024, 1024, 64)


def grid_extent(kernel: str, size: LaunchSize) -> tuple[int, int, int]:
    """Return (x, y, z) of a grid given as one to three integers; 0 is allowed.

    Raises
    ------
    TypeError, ValueError
        Not one to three integers; or one of them out of range.
    """
    return _extent(kernel, "grid", size, _MAX_GRID)


def block_extent(kernel: str, size: LaunchSize) -> tuple[int, int, int]:
    """Return (x, y, z) of a block of 1 to 1024 threads; errors as `grid_extent`."""
    x, y, z = _extent(kernel, "block", size, _MAX_BLOCK)
    if not 1 <= x * y * z <= MAX_THREADS:
        raise ValueError(f"{kernel}: a block has 1 to {MAX_THREADS} threads, got {x * y * z}")
    return x, y, z


def _extent(kernel: str, what: str, size: LaunchSize, limits: Sequence[int]) -> tuple[int, int, int]:
    extents = tuple(size) if isinstance(size, (tuple, list)) else (size,)
    if len(extents) == 0 or len(extents) > 3:
        raise TypeError(f"{kernel}: {what} takes one to three integers, got {size!r}")
    x, y, z = (*extents, 1, 1)[:3]
    if not type(x) is type(y) is type(z) is int:  # what nearly every launch passes; every launch comes here
        if not all(isinstance(extent, (int, np.integer)) for extent in extents):
            raise TypeError(f"{kernel}: {what} takes one to three integers, got {size!r}")
        x, y, z = int(x), int(y), int(z)
    if not (0 <= x <= limits[0] and 0 <= y <= limits[1] and 0 <= z <= limits[2]):
        raise ValueError(f"{kernel}: {what} {(x, y, z)} exceeds {tuple(limits)}")
    return x, y, z
