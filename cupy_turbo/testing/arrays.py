"""Device arrays between guards, and comparison by relative error: what a test of a kernel needs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupy_turbo.core.dtypes import bfloat16, float16, float32
from cupy_turbo.core.protocols import Array, Device

TOLERANCE: dict[Any, float] = {float32: 1e-6, float16: 1e-3, bfloat16: 8e-3}
"""Relative error that one rounding to the type explains, with room for the order of a sum."""

_GUARD = 64  # elements before and after; a multiple of 16 bytes, so that the array between stays aligned
_POISON = 0x7B


class Guarded:
    """A device array with a guard on both sides, poisoned unless it is given values.

    Poison is NaN in floating arrays and 0x7B bytes in others: a result that was not written does not pass for right.

    Parameters
    ----------
    device : Device
        Where it lives.
    shape : int or tuple of int
    dtype : numpy.dtype
    values : ndarray, optional
        What it holds at first.

    Examples
    --------
    >>> from cupy_turbo.device import open_device
    >>> guarded = Guarded(open_device("host"), (2, 3), float32)
    >>> guarded.array.shape, bool(np.isnan(guarded.fetch()).all())
    ((2, 3), True)
    """

    def __init__(self, device: Device, shape: int | tuple[int, ...], dtype: Any, values: NDArray[Any] | None = None):
        self._device = device
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        size = int(np.prod(self.shape))
        host = np.empty(size + 2 * _GUARD, dtype)
        if host.dtype.kind in "iu":
            host.view(np.uint8)[:] = _POISON
        else:
            host[:] = np.nan
        if values is not None:
            host[_GUARD : _GUARD + size] = np.asarray(values, host.dtype).reshape(-1)
        self._before = host.copy()
        self._buffer = device.upload(host)
        self.array: Array = self._buffer[_GUARD : _GUARD + size].reshape(*self.shape)

    def fetch(self) -> NDArray[Any]:
        """Wait for the device and return the values; AssertionError if a guard was written."""
        host = self._device.fetch(self._buffer)
        for guard in (slice(None, _GUARD), slice(len(host) - _GUARD, None)):
            before, after = self._before[guard].view(np.uint8), host[guard].view(np.uint8)
            assert np.array_equal(before, after), f"written outside the array of shape {self.shape}"
        return host[_GUARD : len(host) - _GUARD].reshape(self.shape)


def relative_error(actual: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return ``||actual - expected|| / ||expected||``; the plain norm where `expected` is zero. NaN stays NaN.

    Examples
    --------
    >>> relative_error(np.array([3.0, 5.0]), np.array([3.0, 4.0]))
    0.2
    """
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    wide = expected.astype(np.float64)
    scale = float(np.linalg.norm(wide)) or 1.0
    return float(np.linalg.norm(actual.astype(np.float64) - wide)) / scale


def assert_close(actual: NDArray[Any], expected: NDArray[Any], tolerance: float | None = None) -> None:
    """Fail unless the relative error is within the tolerance, by default that of the dtype of `actual`.

    Examples
    --------
    >>> assert_close(np.ones(3, np.float32), np.ones(3))
    >>> assert_close(np.array([1.0, np.nan], np.float32), np.ones(2))
    Traceback (most recent call last):
    AssertionError: relative error nan, tolerance 1e-06
    """
    if tolerance is None:
        tolerance = TOLERANCE[actual.dtype]
    error = relative_error(actual, expected)
    assert error <= tolerance, f"relative error {error:.3g}, tolerance {tolerance:g}"  # NaN is not
