"""A staging arena: many small arrays that cross the bus in one copy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cupy_turbo.core import sanitizing
from cupy_turbo.core.protocols import Array, Device
from cupy_turbo.core.stream import Stream

ALIGNMENT = 256
"""Bytes; what a CUDA allocation guarantees, so a field may be read with any vector width."""


class Arena:
    """One pinned buffer and one device buffer of the same layout, with typed views of their fields.

    Parameters
    ----------
    device : Device
        Owner of both buffers.
    fields : mapping of str to (shape, dtype)
        The fields, in order; each starts at a multiple of 256 bytes.

    Attributes
    ----------
    host : dict of str to numpy.ndarray
        Views of the pinned buffer.
    device : dict of str to Array
        Views of the device buffer.
    nbytes : int
        Size of either buffer.

    Notes
    -----
    The arena does not wait for its own copies: whoever rewrites `host` after `upload`, or reads it after `download`,
    first synchronises with an event recorded behind that copy. Under the stream sanitizer it is an error to take a
    field from `host` between `download` and that wait: take it when it is needed, not earlier.
    """

    def __init__(self, device: Device, fields: Mapping[str, tuple[tuple[int, ...], np.dtype]]) -> None:
        sizes = {name: int(np.prod(shape, dtype=np.int64)) * dtype.itemsize for name, (shape, dtype) in fields.items()}
        offsets, self.nbytes = {}, 0
        for name, size in sizes.items():
            offsets[name] = self.nbytes
            self.nbytes += -(-size // ALIGNMENT) * ALIGNMENT
        byte = np.dtype(np.uint8)
        self._device = device
        self._host_buffer = device.pinned((self.nbytes,), byte)
        self._device_buffer = device.empty((self.nbytes,), byte)
        self.host: dict[str, np.ndarray] = _HostFields()
        self.device: dict[str, Array] = {}
        for name, (shape, dtype) in fields.items():
            span = slice(offsets[name], offsets[name] + sizes[name])
            self.host[name] = self._host_buffer[span].view(dtype).reshape(shape)
            self.device[name] = self._device_buffer[span].view(dtype).reshape(*shape)

    def upload(self, stream: Stream) -> None:
        """Queue the copy of all fields from host to device on `stream`."""
        self._device.copy(self._device_buffer, self._host_buffer, stream=stream)

    def download(self, stream: Stream) -> None:
        """Queue the copy of all fields from device to host on `stream`."""
        self._device.copy(self._host_buffer, self._device_buffer, stream=stream)


class _HostFields(dict[str, np.ndarray]):
    """The host's views of the fields; the sanitizer hears when one is taken."""

    def __getitem__(self, name: str) -> np.ndarray:
        field = super().__getitem__(name)
        if sanitizing.watch is not None:
            sanitizing.watch.host_access(field)
        return field
