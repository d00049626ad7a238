"""What `Stream` and `Event` have in common: copies share one handle, and a null one refuses every use by name."""

from __future__ import annotations

from typing import Any, Generic, NoReturn, Self, TypeVar

H = TypeVar("H")


class SharedHandle(Generic[H]):
    """An owner of a device's handle, or null.

    The handle lives as long as any owner: Python's own reference count is the shared one.

    Examples
    --------
    >>> from copy import copy
    >>> from cupy_turbo.core.stream import Stream
    >>> from cupy_turbo.device import open_device
    >>> stream = Stream.create(device=open_device("host"))
    >>> copy(stream) == stream, copy(stream) is stream, stream == Stream()
    (True, False, False)
    """

    __slots__ = ("__weakref__", "_impl")

    def __init__(self) -> None:
        self._impl: H | None = None

    def _require(self, call: str) -> H:
        if self._impl is None:
            noun = type(self).__name__
            raise ValueError(f"{noun}.{call} on a null {noun}; make one with {noun}.create()")
        return self._impl

    def __bool__(self) -> bool:
        return self._impl is not None

    def __eq__(self, other: object) -> bool:
        # Not by the raw handle: a driver gives the number of a destroyed stream to a new one.
        return self._impl is other._impl if isinstance(other, type(self)) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self).__name__, id(self._impl)))

    def __copy__(self) -> Self:
        shared = type(self)()
        shared._impl = self._impl
        return shared

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} cannot be pickled: its handle means nothing in another process")


def handle_of(owner: SharedHandle[H], noun: str, call: str) -> H:
    """Take the handle of an argument.

    Parameters
    ----------
    owner : Stream or Event
        The argument.
    noun : str
        Which of the two it has to be.
    call : str
        What it was given to, for the message.

    Returns
    -------
    StreamHandle or EventHandle

    Raises
    ------
    TypeError
        If it is anything else.
    ValueError
        If it is null.

    Examples
    --------
    >>> from cupy_turbo.core.stream import Event
    >>> handle_of(Event(), "Event", "Stream.wait()")
    Traceback (most recent call last):
    ValueError: Stream.wait() got a null Event; make one with Event.create()
    """
    if not isinstance(owner, SharedHandle) or type(owner).__name__ != noun:
        raise TypeError(f"{call} takes {'an' if noun == 'Event' else 'a'} {noun}, got {type(owner).__name__}")
    if owner._impl is None:
        raise ValueError(f"{call} got a null {noun}; make one with {noun}.create()")
    return owner._impl
