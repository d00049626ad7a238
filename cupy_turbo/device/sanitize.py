"""The stream sanitizer: proves that what streams share is ordered, while the programme runs.

Off by default, and then one comparison with None per operation. On, it raises before an operation is queued that
another one, on another stream, is not ordered with.
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from cupy_turbo.core import sanitizing
from cupy_turbo.core.sanitizing import SanitizerWarning
from cupy_turbo.device.sanitizer import Sanitizer as Sanitizer

_switching = threading.Lock()
_of_environment: Sanitizer | None = None


def _leave_forked_child() -> None:
    """Switch off in a forked child: no device works there, and the lock may belong to a thread that is not there."""
    sanitizing.watch = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_forked_child)


@contextmanager
def sanitize() -> Iterator[Sanitizer]:
    """Check the order of all device work that any thread queues inside.

    Two operations that share memory, one of which writes it, must be ordered: by their stream, by an event that the
    one's stream records and the other's waits for, or by a thread that waited for the first before the second was
    queued. Else queueing the second raises, and the device stays usable. So do arrays whose memory was freed, host
    memory that is rewritten while a copy from it is pending (found at the next wait that covers the copy), and a look
    at an arena's host fields before the download was waited for.

    Yields
    ------
    Sanitizer
        Its `findings` are suspicions that are no proof; at the end each becomes a `SanitizerWarning`.

    Raises
    ------
    StreamRaceError
        At the call that queues the second of two unordered operations, naming both and the missing wait.
    SanitizerError
        For the other faults.

    Notes
    -----
    ``CUPY_TURBO_SANITIZE=1`` in the environment switches it on when the first device is opened, until the process
    ends.

    It sees what passes through this package, and not: kernels, copies and waits of plain CuPy or another library
    (wait with `device.synchronize` instead); what Python does with a host array after it was fetched from an arena,
    except writes to the source of a pending copy; accesses inside a kernel beyond its arguments or narrower than
    them; races of the threads of one kernel. It judges the order in which this run queued its work: what a thread has
    waited for counts for all threads from then on, so two threads that were lucky with each other pass.

    Examples
    --------
    >>> import numpy as np
    >>> from cupy_turbo import Event, Stream, open_device
    >>> device = open_device("host")
    >>> upload, compute, ready = (kind.create(device=device) for kind in (Stream, Stream, Event))
    >>> array = device.empty(4, np.uint8)
    >>> with sanitize():
    ...     device.fill(array, 1, stream=upload)
    ...     ready.record(upload)
    ...     device.fill(array, 2, stream=compute)       # nobody waited for `ready`
    Traceback (most recent call last):
    cupy_turbo.core.errors.StreamRaceError: nothing orders fill and fill on the same memory: both write it ...
    """
    with _switching:
        sanitizer = sanitizing.watch if isinstance(sanitizing.watch, Sanitizer) else Sanitizer()
        sanitizer.num_holders += 1
        sanitizing.watch = sanitizer
    try:
        yield sanitizer
    finally:
        with _switching:
            sanitizer.num_holders -= 1
            if not sanitizer.num_holders and sanitizing.watch is sanitizer:
                sanitizing.watch = None
    if not sanitizer.num_holders:
        sanitizer.close_device()
        for finding in sanitizer.findings:
            warnings.warn(finding, SanitizerWarning, stacklevel=3)


@contextmanager
def unsanitized() -> Iterator[None]:
    """Switch the sanitizer off inside, for work that races on purpose; afterwards it starts anew."""
    with _switching:
        watch, sanitizing.watch = sanitizing.watch, None
    try:
        yield
    finally:
        with _switching:
            if isinstance(watch, Sanitizer) and watch.num_holders:
                watch.forget()
                sanitizing.watch = watch


def sanitize_by_environment() -> None:
    """Switch on for good if CUPY_TURBO_SANITIZE asks for it; what `open_device` calls."""
    global _of_environment
    with _switching:
        if _of_environment is None and os.environ.get("CUPY_TURBO_SANITIZE", "0") not in ("", "0"):
            _of_environment = sanitizing.watch if isinstance(sanitizing.watch, Sanitizer) else Sanitizer()
            _of_environment.num_holders += 1
            sanitizing.watch = _of_environment
            atexit.register(_of_environment.close_device)
