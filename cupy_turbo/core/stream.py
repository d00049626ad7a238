"""`Stream` and `Event`: shared owners of what a device orders its work by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from cupy_turbo.core.current_device import current_device

if TYPE_CHECKING:
    from cupy_turbo.core.protocols import Device, EventHandle, StreamHandle


class Stream:
    """A sequence of device work that runs in the order it was queued, beside other streams.

    ``Stream()`` is null: false, equal to any other null stream, and every use of it raises `ValueError`. `create`
    makes a real one. Copies, by assignment or by the `copy` module, share one underlying stream; it is destroyed with
    its last owner, and never before the work queued on it has run.

    Notes
    -----
    ``==`` and ``hash`` go by the identity of the underlying stream, not by its handle, which a driver may use again.
    No stream synchronizes with CUDA's default stream. Any thread may use a stream.

    **Source:** TurboMind `core/stream.h`; differs in that the use of a null stream is always an error by name.

    Examples
    --------
    >>> from cupy_turbo.device import open_device
    >>> device = open_device("host")
    >>> stream, null = Stream.create(device=device), Stream()
    >>> bool(stream), bool(null)
    (True, False)
    >>> event = Event.create(device=device)
    >>> event.record(stream)
    >>> other = Stream.create(device=device)
    >>> other.wait(event)           # what `other` gets from here on runs behind `event`
    >>> other.sync()
    >>> null.sync()
    Traceback (most recent call last):
    ValueError: Stream.sync() on a null Stream; make one with Stream.create()
    """

    __slots__ = ("__weakref__", "_impl")

    def __init__(self) -> None:
        self._impl: StreamHandle | None = None

    @classmethod
    def create(cls, priority: int = 0, *, device: Device | None = None) -> Stream:
        """Make a non-blocking stream.

        Parameters
        ----------
        priority : int, default 0
            Lower is more urgent; CUDA clamps it to what the device has (0 to -5 on recent GPUs).
        device : Device, optional
            Where; default is the innermost ``with device:`` of this thread.

        Returns
        -------
        Stream

        Raises
        ------
        ValueError
            If no device is given or current.

        Examples
        --------
        >>> from cupy_turbo.device import open_device
        >>> with open_device("host") as device:
        ...     Stream.create(priority=-1).device is device
        True
        """
        stream = cls()
        stream._impl = (current_device() if device is None else device).stream_handle(priority)
        return stream

    @property
    def device(self) -> Device:
        """The device it belongs to."""
        return self._require("device").device

    @property
    def handle(self) -> int:
        """The raw ``cudaStream_t`` on a GPU, a number of its own on `host`."""
        return self._require("handle").handle

    @property
    def priority(self) -> int:
        """Lower is more urgent."""
        return self._require("priority").priority

    def sync(self) -> None:
        """Wait on this thread until all that was queued here has run.

        Raises
        ------
        ValueError
            If the stream is null.
        DeviceError
            If work on it failed.

        Examples
        --------
        >>> from cupy_turbo.device import open_device
        >>> Stream.create(device=open_device("host")).sync()
        """
        self._require("sync()").synchronize()

    def wait(self, event: Event) -> None:
        """Hold back what is queued here from now on until an event has happened; returns at once.

        Parameters
        ----------
        event : Event
            Its latest `Event.record` before this call counts; later ones do not move this wait. One that was never
            recorded holds nothing back.

        Raises
        ------
        ValueError
            If either is null, or the event belongs to another kind of device.

        Examples
        --------
        >>> from cupy_turbo.device import open_device
        >>> with open_device("host"):
        ...     first, second, event = Stream.create(), Stream.create(), Event.create()
        >>> event.record(first)
        >>> second.wait(event)
        """
        impl = self._require("wait()")
        event_impl = _require_event(event, "Stream.wait()")
        ours, theirs = impl.device, event_impl.device
        # CUDA lets a stream wait for another GPU's event; a host device knows only its own.
        if theirs is not ours and not ours.kind == theirs.kind == "cuda":
            raise ValueError(f"Stream.wait(): the stream is on {ours.name}, the event on another device, {theirs.name}")
        impl.wait(event_impl)

    def __cuda_stream__(self) -> tuple[int, int]:
        """Let CuPy, cuda.core and torch take it as a stream: (protocol version 0, handle)."""
        return 0, self._require("__cuda_stream__()").handle

    def _require(self, call: str) -> StreamHandle:
        if self._impl is None:
            raise ValueError(f"Stream.{call} on a null Stream; make one with Stream.create()")
        return self._impl

    def __bool__(self) -> bool:
        return self._impl is not None

    def __eq__(self, other: object) -> bool:
        return self._impl is other._impl if isinstance(other, Stream) else NotImplemented

    def __hash__(self) -> int:
        return hash((Stream, id(self._impl)))

    def __copy__(self) -> Stream:
        shared = Stream()
        shared._impl = self._impl
        return shared

    def __deepcopy__(self, memo: dict[int, Any]) -> Stream:
        return self.__copy__()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Stream cannot be pickled: its handle means nothing in another process")

    def __repr__(self) -> str:
        if self._impl is None:
            return "Stream()"
        return f"Stream({self._impl.device.name}, handle={self._impl.handle:#x}, priority={self._impl.priority})"


class Event:
    """A point in a stream's work that other streams and threads can wait for.

    ``Event()`` is null and behaves as a null `Stream` does; copies share one underlying event.

    Notes
    -----
    ``==`` and ``hash`` go by the identity of the underlying event.

    **Source:** TurboMind `core/stream.h`, with CUDA's query and elapsed time added.

    Examples
    --------
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

    __slots__ = ("__weakref__", "_impl")

    def __init__(self) -> None:
        self._impl: EventHandle | None = None

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
        return _require_event(self, "Event.device").device

    @property
    def handle(self) -> int:
        """The raw ``cudaEvent_t`` on a GPU, a number of its own on `host`."""
        return _require_event(self, "Event.handle").handle

    @property
    def timing(self) -> bool:
        """Whether it measures time."""
        return _require_event(self, "Event.timing").timing

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
        >>> from cupy_turbo.device import open_device
        >>> Event().record(Stream.create(device=open_device("host")))
        Traceback (most recent call last):
        ValueError: Event.record() on a null Event; make one with Event.create()
        """
        impl = _require_event(self, "Event.record()")
        if not isinstance(stream, Stream):
            raise TypeError(f"Event.record() takes a Stream, got {type(stream).__name__}")
        if stream._impl is None:
            raise ValueError("Event.record() got a null Stream; make one with Stream.create()")
        ours, theirs = impl.device, stream._impl.device
        if theirs is not ours:
            raise ValueError(
                f"Event.record(): the event is on {ours.name}, the stream on another device, {theirs.name}"
            )
        impl.record(stream._impl)

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
        _require_event(self, "Event.sync()").synchronize()

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
        return _require_event(self, "Event.query()").query()

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
        end, start = _require_event(self, call), _require_event(other, call)
        for name, impl in (("this", end), ("the other", start)):
            if not impl.timing:
                raise ValueError(f"{call}: {name} event has no timing; make it with Event.create(timing=True)")
            if not impl.query():
                raise ValueError(f"{call}: {name} event has not happened yet; call its sync() first")
        return end.elapsed_since(start)

    def __bool__(self) -> bool:
        return self._impl is not None

    def __eq__(self, other: object) -> bool:
        return self._impl is other._impl if isinstance(other, Event) else NotImplemented

    def __hash__(self) -> int:
        return hash((Event, id(self._impl)))

    def __copy__(self) -> Event:
        shared = Event()
        shared._impl = self._impl
        return shared

    def __deepcopy__(self, memo: dict[int, Any]) -> Event:
        return self.__copy__()

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Event cannot be pickled: its handle means nothing in another process")

    def __repr__(self) -> str:
        if self._impl is None:
            return "Event()"
        return f"Event({self._impl.device.name}, handle={self._impl.handle:#x}, timing={self._impl.timing})"


def _require_event(event: Event, call: str) -> EventHandle:
    if not isinstance(event, Event):
        raise TypeError(f"{call} takes an Event, got {type(event).__name__}")
    if event._impl is None:
        raise ValueError(f"{call} on a null Event; make one with Event.create()")
    return event._impl
