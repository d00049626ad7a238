"""The one switch of the stream sanitizer: None, or who is told what streams are given.

Whoever queues work or waits for it asks `watch is not None` and does nothing else while it is off. What answers is in
`device.sanitize`; the switch is here because `Stream` and `Event` are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from cupy_turbo.core.handles import EventHandle, StreamHandle


class SanitizerWarning(UserWarning):
    """What the stream sanitizer finds suspect but cannot prove wrong.

    Examples
    --------
    >>> issubclass(SanitizerWarning, Warning)
    True
    """


class Watch(Protocol):
    """What a device tells the sanitizer.

    Examples
    --------
    >>> from cupy_turbo.core import sanitizing
    >>> from cupy_turbo.device.sanitize import sanitize
    >>> with sanitize() as sanitizer:
    ...     sanitizing.watch is sanitizer
    True
    """

    def queue(self, stream: StreamHandle, work: Any) -> None:
        """Hear that work is about to be queued; raise StreamRaceError if it must not be."""

    def launch(self, stream: StreamHandle, graph: object, works: Sequence[Any]) -> None:
        """Hear that a graph of such work is about to be launched."""

    def record(self, event: EventHandle, stream: StreamHandle) -> None:
        """Hear that an event was recorded."""

    def wait(self, stream: StreamHandle, event: EventHandle) -> None:
        """Hear that a stream is about to wait for an event."""

    def synchronize_stream(self, stream: StreamHandle) -> None:
        """Wait for a stream."""

    def synchronize_event(self, event: EventHandle) -> None:
        """Wait for an event."""

    def query(self, event: EventHandle) -> bool:
        """Ask whether an event has happened."""

    def synchronize_device(self, domain: str, wait: Callable[[], None]) -> None:
        """Wait for a device by calling `wait`."""

    def close_device(self, domain: str) -> None:
        """Hear that a device is about to be closed."""

    def allocated(self, array: object, kind: str) -> None:
        """Hear that memory was taken from a device."""

    def released(self, pointer: int) -> None:
        """Hear that memory whose owner had gone was given back to the driver."""

    def host_access(self, array: np.ndarray) -> None:
        """Hear that the host is about to touch memory that copies may write."""


watch: Watch | None = None
"""Who is told; None while the sanitizer is off."""
