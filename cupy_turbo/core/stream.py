"""`Stream` and `Event`: shared owners of what a device orders its work by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupy_turbo.core import sanitizing
from cupy_turbo.core.current_device import current_device
from cupy_turbo.core.event import Event as Event
from cupy_turbo.core.handles import StreamHandle
from cupy_turbo.core.shared_handle import SharedHandle, handle_of

if TYPE_CHECKING:
    from cupy_turbo.core.protocols import Device


class Stream(SharedHandle[StreamHandle]):
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

    __slots__ = ()

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
        impl = self._require("sync()")
        if sanitizing.watch is None:
            impl.synchronize()
        else:
            sanitizing.watch.synchronize_stream(impl)

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
        event_impl = handle_of(event, "Event", "Stream.wait()")
        ours, theirs = impl.device, event_impl.device
        # CUDA lets a stream wait for another GPU's event; a host device knows only its own.
        if theirs is not ours and not ours.kind == theirs.kind == "cuda":
            raise ValueError(f"Stream.wait(): the stream is on {ours.name}, the event on another device, {theirs.name}")
        if sanitizing.watch is not None:
            sanitizing.watch.wait(impl, event_impl)
        impl.wait(event_impl)

    def __cuda_stream__(self) -> tuple[int, int]:
        """Let CuPy, cuda.core and torch take it as a stream: (protocol version 0, handle).

        Raises
        ------
        TypeError
            If it is not a stream of a GPU: CUDA would read a small number as one of its own default streams.
        """
        impl = self._require("__cuda_stream__()")
        if impl.device.kind != "cuda":
            raise TypeError(f"a Stream of {impl.device.name} is not a CUDA stream: create it on a cuda device")
        return 0, impl.handle

    def __repr__(self) -> str:
        if self._impl is None:
            return "Stream()"
        return f"Stream({self._impl.device.name}, handle={self._impl.handle:#x}, priority={self._impl.priority})"
