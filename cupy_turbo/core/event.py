"""`Event`: a point in a stream's work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupy_turbo.core import sanitizing
from cupy_turbo.core.current_device import current_device
from cupy_turbo.core.handles import EventHandle
from cupy_turbo.core.shared_handle import SharedHandle, handle_of

if TYPE_CHECKING:
    from cupy_turbo.core.protocols import Device
    from cupy_turbo.core.stream import Stream


def _query(impl: EventHandle) -> bool:
    return impl.query() if sanitizing.watch is None else sanitizing.watch.query(impl)


class Event(SharedHandle[EventHandle]):
    """A point in a stream's work that other streams and threads can wait for.

    ``Event()`` is null and behaves as a null `Stream` does; copies share one underlying event.

    Notes
    -----
    ``==`` and ``hash`` go by the identity of the underlying event.

    **Source:** TurboMind `core/stream.h`, with CUDA's query and elapsed time added.

    Examples
    --------
    >>> from cupy_turbo.core.stream import Stream
    >>> from cupy_turbo.device import open_device
    >>> with open_device("host"):
    ...     stream, start, stop = Stream.create(), Event.create(timing=True), Event.create(timing=True)
    >>> start.query()               # nothing recorded, nothing to wait for
    True
    >>> start.record(stream)
    >>> stop.record(stream)
    >>> stop.sync()
    >>> stop.query(), stop.elapsed_since(start) >= 0
    (True, True)
    """

    __slots__ = ()

    @classmethod
    def create(cls, timing: bool = False, *, device: Device | None = None) -> Event:
        """Make an event that is not recorded yet.

        Parameters
        ----------
        timing : bool, default False
            Whether `elapsed_since` will be asked; costs a little at every record.
        device : Device, optional
            Where; default is the innermost ``with device:`` of this thread.

        Returns
        -------
        Event

        Raises
        ------
        ValueError
            If no device is given or current.

        Examples
        --------
        >>> from cupy_turbo.device import open_device
        >>> Event.create(timing=True, device=open_device("host")).timing
        True
        """
        event = cls()
        event._impl = (current_device() if device is None else device).event_handle(timing)
        return event

    @property
    def device(self) -> Device:
        """The device it belongs to."""
        return self._require("device").device

    @property
    def handle(self) -> int:
        """The raw ``cudaEvent_t`` on a GPU, a number of its own on `host`."""
        return self._require("handle").handle

    @property
    def timing(self) -> bool:
        """Whether it measures time."""
        return self._require("timing").timing

    def record(self, stream: Stream) -> None:
        """Let the event happen when all that is queued on the stream so far has run; returns at once.

        A second record replaces the first: `query` and `sync` then ask about the second.

        Parameters
        ----------
        stream : Stream
            A stream of the same device.

        Raises
        ------
        ValueError
            If either is null, or they belong to different devices.

        Examples
        --------
        >>> from cupy_turbo.core.stream import Stream
        >>> from cupy_turbo.device import open_device
        >>> Event().record(Stream.create(device=open_device("host")))
        Traceback (most recent call last):
        ValueError: Event.record() on a null Event; make one with Event.create()
        """
        impl = self._require("record()")
        stream_impl = handle_of(stream, "Stream", "Event.record()")
        ours, theirs = impl.device, stream_impl.device
        if theirs is not ours:
            raise ValueError(
                f"Event.record(): the event is on {ours.name}, the stream on another device, {theirs.name}"
            )
        impl.record(stream_impl)
        if sanitizing.watch is not None:
            sanitizing.watch.record(impl, stream_impl)

    def sync(self) -> None:
        """Wait on this thread until the latest record has happened; at once if there is none.

        Raises
        ------
        ValueError
            If the event is null.
        DeviceError
            If work before it failed.

        Examples
        --------
        >>> from cupy_turbo.device import open_device
        >>> Event.create(device=open_device("host")).sync()
        """
        impl = self._require("sync()")
        if sanitizing.watch is None:
            impl.synchronize()
        else:
            sanitizing.watch.synchronize_event(impl)

    def query(self) -> bool:
        """Tell whether the latest record has happened, without waiting; true if there is none.

        Raises
        ------
        ValueError
            If the event is null.

        Examples
        --------
        >>> from cupy_turbo.device import open_device
        >>> Event.create(device=open_device("host")).query()
        True
        """
        return _query(self._require("query()"))

    def elapsed_since(self, other: Event) -> float:
        """Measure the time from another event to this one; waits for neither.

        Parameters
        ----------
        other : Event
            The earlier one.

        Returns
        -------
        float, milliseconds
            Negative if this one happened first.

        Raises
        ------
        ValueError
            If either is null, has no timing, was never recorded or has not happened yet.

        Examples
        --------
        >>> from cupy_turbo.device import open_device
        >>> device = open_device("host")
        >>> Event.create(timing=True, device=device).elapsed_since(Event.create(device=device))
        Traceback (most recent call last):
        ValueError: Event.elapsed_since(): the other event has no timing; make it with Event.create(timing=True)
        """
        call = "Event.elapsed_since()"
        end, start = self._require("elapsed_since()"), handle_of(other, "Event", call)
        for name, impl in (("this", end), ("the other", start)):
            if not impl.timing:
                raise ValueError(f"{call}: {name} event has no timing; make it with Event.create(timing=True)")
            if not _query(impl):
                raise ValueError(f"{call}: {name} event has not happened yet; call its sync() first")
        return end.elapsed_since(start)

    def __repr__(self) -> str:
        if self._impl is None:
            return "Event()"
        return f"Event({self._impl.device.name}, handle={self._impl.handle:#x}, timing={self._impl.timing})"
