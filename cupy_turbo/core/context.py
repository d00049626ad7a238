"""`Context`: what the code inside a ``with`` runs on, kept in a stack of the thread."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from cupy_turbo.core.current_device import current_device as current_device
from cupy_turbo.core.current_device import pop_device as pop_device
from cupy_turbo.core.current_device import push_device as push_device
from cupy_turbo.core.stream import Stream

if TYPE_CHECKING:
    from cupy_turbo.core.protocols import Allocator, PinnedAllocator


class Context:
    """A stream, a device allocator and a pinned allocator for the code inside its ``with``.

    Entering puts what is given on top of this thread's stacks; leaving takes exactly that away again, also by an
    exception. A null entry masks nothing: what was current before stays so. One context may be entered again while it
    is entered, and by several threads at once, each of which sees its own. Entering a stream also makes it CuPy's
    current stream on this thread, so that plain CuPy code inside follows.

    Parameters
    ----------
    stream : Stream, optional
        What `current_stream` returns inside.
    allocator : Allocator, optional
        What `current_allocator` returns inside; ``device.allocator`` is one.
    pinned : PinnedAllocator, optional
        What `current_pinned_allocator` returns inside; ``device.pinned_allocator`` is one.

    Notes
    -----
    Left out of order (two generators can do that), an entry stops being seen at once, and the others are untouched.

    **Source:** TurboMind `core/context.h` (`ContextGuard`).

    Examples
    --------
    >>> from cupy_turbo.core.stream import Stream
    >>> from cupy_turbo.device import open_device
    >>> stream = Stream.create(device=open_device("host"))
    >>> with Context(stream=stream):
    ...     with Context():                 # masks nothing
    ...         current_stream() == stream
    True
    >>> current_stream()
    Traceback (most recent call last):
    ValueError: no current stream on this thread: enter a Context that has one
    """

    __slots__ = ("allocator", "pinned", "stream")

    def __init__(
        self,
        stream: Stream | None = None,
        allocator: Allocator | None = None,
        pinned: PinnedAllocator | None = None,
    ) -> None:
        self.stream = Stream() if stream is None else stream
        self.allocator = allocator
        self.pinned = pinned

    def __enter__(self) -> Context:
        frame = _Frame(self)
        frame.activate()  # may raise: then nothing was entered
        _frames.stack.append(frame)
        return self

    def __exit__(self, *exc: object) -> None:
        stack = _frames.stack
        for frame in reversed(stack):
            if frame.context is self and not frame.left:
                frame.left = True
                break
        else:
            raise RuntimeError(f"{self!r} was left on a thread that did not enter it")
        # A device keeps a stack too, which comes down in order: a frame left early waits for those above it.
        while stack and stack[-1].left:
            stack.pop().deactivate()

    def __repr__(self) -> str:
        return f"Context(stream={self.stream!r}, allocator={self.allocator!r}, pinned={self.pinned!r})"


class _Frame:
    """One entering of a context, with what it had then: assigning to the context afterwards changes nothing here."""

    __slots__ = ("_activation", "allocator", "context", "left", "pinned", "stream")

    def __init__(self, context: Context) -> None:
        self.context = context
        self.stream = context.stream
        self.allocator = context.allocator
        self.pinned = context.pinned
        self.left = False
        self._activation: AbstractContextManager[Any] | None = None

    def activate(self) -> None:
        if not self.stream:
            return
        hook = getattr(self.stream.device, "activate", None)
        if hook is not None:
            activation = hook(self.stream._impl)
            activation.__enter__()
            self._activation = activation

    def deactivate(self) -> None:
        if self._activation is not None:
            self._activation.__exit__(None, None, None)


class _Frames(threading.local):
    def __init__(self) -> None:
        self.stack: list[_Frame] = []


_frames = _Frames()


def current_stream() -> Stream:
    """Return the innermost stream that this thread entered.

    Returns
    -------
    Stream

    Raises
    ------
    ValueError
        If there is none.

    Examples
    --------
    >>> from cupy_turbo.device import open_device
    >>> with Context(stream=Stream.create(device=open_device("host"))):
    ...     bool(current_stream())
    True
    """
    for frame in reversed(_frames.stack):
        if frame.stream and not frame.left:
            return frame.stream
    raise ValueError("no current stream on this thread: enter a Context that has one")


def current_allocator() -> Allocator:
    """Return the innermost device allocator that this thread entered.

    Returns
    -------
    Allocator

    Raises
    ------
    ValueError
        If there is none.

    Examples
    --------
    >>> from cupy_turbo.device import open_device
    >>> with Context(allocator=open_device("host").allocator):
    ...     current_allocator().allocate((2, 3), "float32").shape
    (2, 3)
    """
    for frame in reversed(_frames.stack):
        if frame.allocator is not None and not frame.left:
            return frame.allocator
    raise ValueError("no current allocator on this thread: enter a Context that has one")


def current_pinned_allocator() -> PinnedAllocator:
    """Return the innermost allocator of pinned host memory that this thread entered.

    Returns
    -------
    PinnedAllocator

    Raises
    ------
    ValueError
        If there is none.

    Examples
    --------
    >>> from cupy_turbo.device import open_device
    >>> with Context(pinned=open_device("host").pinned_allocator):
    ...     current_pinned_allocator().allocate((4,), "int32").nbytes
    16
    """
    for frame in reversed(_frames.stack):
        if frame.pinned is not None and not frame.left:
            return frame.pinned
    raise ValueError("no current pinned allocator on this thread: enter a Context that has one")
