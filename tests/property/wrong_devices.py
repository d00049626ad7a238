"""Host devices with one mistake each, to hold against `check_stream_device`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from cupy_turbo.core.stream import Stream
from cupy_turbo.device.host import HostDevice
from cupy_turbo.device.host_streams import HostCapture, HostEventHandle, HostStreamHandle


class _DeafStream(HostStreamHandle):
    def wait(self, event: HostEventHandle) -> None:
        pass


class _HastyStream(HostStreamHandle):
    def synchronize(self) -> None:
        pass


class _HastyEvent(HostEventHandle):
    def synchronize(self) -> None:
        pass


class _SureEvent(HostEventHandle):
    def query(self) -> bool:
        return True


class _StubbornEvent(HostEventHandle):
    def record(self, stream: HostStreamHandle) -> None:
        if self._record is None:
            super().record(stream)


class DeafStreams(HostDevice):
    def stream_handle(self, priority: int) -> HostStreamHandle:
        return _DeafStream(self, priority)


class HastyStreams(HostDevice):
    def stream_handle(self, priority: int) -> HostStreamHandle:
        return _HastyStream(self, priority)


class HastyEvents(HostDevice):
    def event_handle(self, timing: bool) -> HostEventHandle:
        return _HastyEvent(self, timing)


class SureEvents(HostDevice):
    def event_handle(self, timing: bool) -> HostEventHandle:
        return _SureEvent(self, timing)


class StubbornEvents(HostDevice):
    def event_handle(self, timing: bool) -> HostEventHandle:
        return _StubbornEvent(self, timing)


class HastyDevice(HostDevice):
    def synchronize(self) -> None:
        pass


class RereadsSources(HostDevice):
    """A copy reads its pinned source once it is looked at, however long ago it ran."""

    def fetch(self, array: Any) -> np.ndarray:
        found = super().fetch(array)
        source = getattr(self, "last_source", None)
        return source.copy() if source is not None and source.shape == found.shape else found

    def copy(self, dst: Any, src: Any, *, stream: Stream) -> None:
        self.last_source = src if isinstance(src, np.ndarray) else None
        super().copy(dst, src, stream=stream)


class RunsCaptures(HostDevice):
    @contextmanager
    def capture(self, stream: Stream) -> Iterator[HostCapture]:  # type: ignore[override]
        with super().capture(stream) as captured:
            yield captured
        captured.graph.launch(stream)


WRONG_DEVICES = {
    DeafStreams: "a wait holds back what is queued after it",
    HastyStreams: "Stream.sync returns when all that was queued there has run",
    HastyDevice: "synchronize and fetch wait for every stream",
    HastyEvents: "Event.sync returns when what was queued before the record has run",
    StubbornEvents: "a second record replaces the first",
    SureEvents: "once it says that the event has happened, the work is done",
    RereadsSources: "not a byte of the new is copied",
    RunsCaptures: "a capture runs nothing",
}
"""With the law that each breaks first."""
