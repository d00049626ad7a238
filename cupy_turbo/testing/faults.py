"""Making a device fail on purpose: the n-th launch, compilation, allocation, copy, record or wait of a chosen kind.

Patches methods of one device, and of the classes of its handles for calls on that device only; leaving the ``with``
takes everything back. Use it to see what your code does after a failure that no test machine produces by itself.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from cupy_turbo.core.errors import CompileError, DeviceError
from cupy_turbo.core.protocols import Device

Where = Literal["kernel", "compile", "empty", "pinned", "copy", "fill", "capture", "record", "wait", "sync", "run"]

WHERE: dict[str, str] = {
    "kernel": "a launch is refused",
    "compile": "a kernel cannot be compiled",
    "empty": "device memory runs out",
    "pinned": "pinned memory runs out",
    "copy": "a copy cannot be queued",
    "fill": "a fill cannot be queued",
    "capture": "a graph cannot be captured",
    "record": "an event cannot be recorded",
    "wait": "a stream cannot be made to wait for an event",
    "sync": "an event, a stream or the device cannot be waited for",
    "run": "a queued operation fails when the device gets to it (host only)",
}
"""What can be made to fail, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Which calls fail.

    Parameters
    ----------
    where : str
        A key of `WHERE`.
    call : int, default 1
        The first call that fails, counted from 1 among those that match `name`, since `inject`.
    times : int, default 1
        Calls that fail in a row.
    name : str, optional
        Only this kernel, or for "run" this operation ("copy", "fill", "record" or a kernel's name); default any.
    error : exception, optional
        What is raised; default a `CompileError` or `DeviceError` that says it was injected.

    Raises
    ------
    ValueError
        If `where` is unknown, or `call` or `times` is below 1.

    Examples
    --------
    >>> Fault(where="copy", call=3)
    Fault(where='copy', call=3, times=1, name=None, error=None)
    """

    where: Where
    call: int = 1
    times: int = 1
    name: str | None = None
    error: BaseException | None = None

    def __post_init__(self) -> None:
        if self.where not in WHERE:
            raise ValueError(f"where must be one of {', '.join(WHERE)}, got {self.where!r}")
        if self.call < 1 or self.times < 1:
            raise ValueError(f"call and times must be >= 1, got {self.call} and {self.times}")


@dataclass(slots=True)
class Injection:
    """A fault at work; what ``with inject(...)`` gives, one for each fault.

    Attributes
    ----------
    calls : int
        Matching calls so far.
    fired : int
        Calls that were made to fail.
    """

    fault: Fault
    calls: int = 0
    fired: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def check(self, name: str | None = None) -> None:
        """Count a call, and raise if it is its turn to fail."""
        if self.fault.name is not None and self.fault.name != name:
            return
        with self._lock:
            self.calls += 1
            if not self.fault.call <= self.calls < self.fault.call + self.fault.times:
                return
            self.fired += 1
        if self.fault.error is not None:
            raise self.fault.error
        kind = CompileError if self.fault.where == "compile" else DeviceError
        raise kind(f"injected: {WHERE[self.fault.where]} (call {self.calls}{f' of {name}' if name else ''})")


@contextmanager
def inject(device: Device, *faults: Fault) -> Iterator[list[Injection]]:
    """Let calls on a device fail while the ``with`` lasts.

    Parameters
    ----------
    device : Device
        A `host` or `cuda` device; others of the process are not touched.
    *faults : Fault
        Each counts for itself.

    Yields
    ------
    list of Injection
        In the order of the faults.

    Raises
    ------
    ValueError
        If "run" is asked of a device that is not `host`.

    Examples
    --------
    >>> import numpy as np
    >>> from cupy_turbo.device import open_device
    >>> device = open_device("host")
    >>> with inject(device, Fault(where="empty", call=2)) as (injection,):
    ...     first = device.empty(4, np.float32)
    ...     device.empty(4, np.float32)
    Traceback (most recent call last):
    cupy_turbo.core.errors.DeviceError: injected: device memory runs out (call 2)
    >>> injection.fired, device.empty(4, np.float32).size
    (1, 4)
    """
    injections = [Injection(fault) for fault in faults]
    with ExitStack() as stack:
        for injection in injections:
            for owner, method, name_of in _targets(device, injection.fault.where):
                stack.enter_context(_checked(device, owner, method, injection, name_of))
        yield injections


NameOf = Callable[..., "str | None"]
Target = tuple[Any, str, NameOf]


def _targets(device: Any, where: str) -> list[Target]:
    """Return the methods to patch: of the device itself, or of a class that its handles belong to."""
    on_device: dict[str, list[str]] = {
        "empty": ["empty", "upload"], "pinned": ["pinned"], "copy": ["copy"], "fill": ["fill"],
        "capture": ["capture"],
    }  # fmt: skip
    if where in on_device:
        return [(device, method, _nameless) for method in on_device[where]]
    if where == "compile":
        return [(device, "kernel", lambda name, **defines: name)]
    if where == "kernel":
        return [(_kernel_class(device), "__call__", lambda kernel, *args, **options: kernel.name)]
    if where == "run":
        return [(_host_schedule(device), "enqueue", _nameless)]
    stream, event = type(device.stream_handle(0)), type(device.event_handle(False))
    on_handles: dict[str, list[Target]] = {
        "record": [(event, "record", _nameless)],
        "wait": [(stream, "wait", _nameless)],
        "sync": [(event, "synchronize", _nameless), (stream, "synchronize", _nameless),
                 (device, "synchronize", _nameless)],
    }  # fmt: skip
    return on_handles[where]


def _nameless(*args: object, **options: object) -> None:
    return None


def _kernel_class(device: Device) -> type:
    if device.kind == "host":
        from cupy_turbo.device.host_kernel import HostKernel

        return HostKernel
    from cupy_turbo.device.cuda_kernel import CudaKernel

    return CudaKernel


def _host_schedule(device: Any) -> Any:
    if device.kind != "host":
        raise ValueError(f"only a host device can be made to fail while it runs an operation, not {device.name}")
    return device.schedule


@contextmanager
def _checked(device: Device, owner: Any, method: str, injection: Injection, name_of: NameOf) -> Iterator[None]:
    """Put the check before a method of `owner`, for this device only."""
    original = getattr(owner, method)

    @functools.wraps(original)
    def checked(*args: Any, **options: Any) -> Any:
        if injection.fault.where == "run":
            stream, operations = args
            for operation in operations:
                if stream.capture is None:  # what is captured comes by here again when its graph is launched
                    operation.run = _checked_run(injection, operation.name, operation.run)
        elif not isinstance(owner, type) or _device_of(args[0]) is device:
            injection.check(name_of(*args, **options))
        return original(*args, **options)

    was_own = method in vars(owner)
    setattr(owner, method, checked)
    try:
        yield
    finally:
        if was_own:
            setattr(owner, method, original)
        else:
            delattr(owner, method)


def _checked_run(injection: Injection, name: str, run: Callable[[], None] | None) -> Callable[[], None]:
    def checked() -> None:
        injection.check(name)
        if run is not None:
            run()

    return checked


def _device_of(handle: Any) -> Any:
    return handle._device if hasattr(handle, "_device") else handle.device
