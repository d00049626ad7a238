"""What the laws of streams are tried with: a device, and short words for the work that they need."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupy_turbo.core.protocols import Array, Device
from cupy_turbo.core.stream import Event, Stream

_BUSY_BYTES, _BUSY_FILLS = 64 << 20, 16  # what keeps a GPU from having run everything before it is asked


class Bench:
    """The device under test.

    Parameters
    ----------
    device : Device
    patience : float, seconds
        After which what is waited for counts as lost.
    max_examples : int
        Random programs to try.
    """

    def __init__(self, device: Device, patience: float, max_examples: int) -> None:
        self.device, self.patience, self.max_examples = device, patience, max_examples
        self._ballast = None if device.kind == "host" else device.empty(_BUSY_BYTES, np.uint8)

    def stream(self) -> Stream:
        """Make a stream."""
        return Stream.create(device=self.device)

    def event(self) -> Event:
        """Make an event."""
        return Event.create(device=self.device)

    def array(self) -> Array:
        """Take 16 zero bytes of device memory."""
        return self.device.upload(np.zeros(16, np.uint8))

    def pinned(self, byte: int = 0) -> np.ndarray:
        """Take 16 bytes of pinned memory."""
        memory = self.device.pinned(16, np.uint8)
        memory[:] = byte
        return memory

    def busy(self, stream: Stream) -> None:
        """Queue work that takes a while, so that what follows is pending when it is looked at."""
        for _ in range(_BUSY_FILLS if self._ballast is not None else 0):
            self.device.fill(self._ballast, 0, stream=stream)  # type: ignore[arg-type]

    def result(self, stream: Stream, byte: int) -> np.ndarray:
        """Queue a chain of work that ends with `byte` in the pinned memory that is returned."""
        array, target = self.array(), self.pinned()
        self.busy(stream)
        self.device.fill(array, byte, stream=stream)
        self.device.copy(target, array, stream=stream)
        return target


def holds(memory: Any, byte: int) -> None:
    """Fail unless every byte is `byte`."""
    assert (memory == byte).all(), f"{memory.tolist()} where {byte} was due"
