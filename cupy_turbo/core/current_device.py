"""The thread's stack of devices, which `with device:` pushes and pops."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cupy_turbo.core.protocols import Device


class _Devices(threading.local):
    def __init__(self) -> None:
        self.stack: list[Device] = []


_devices = _Devices()


def current_device() -> Device:
    """Return the device of the innermost ``with device:`` on this thread.

    Returns
    -------
    Device

    Raises
    ------
    ValueError
        If there is none.

    Examples
    --------
    >>> from cupy_turbo.device import open_device
    >>> with open_device("host"):
    ...     print(current_device().name)
    host
    """
    if not _devices.stack:
        raise ValueError("no current device on this thread: use `with device:` or pass device=…")
    return _devices.stack[-1]


def push_device(device: Device) -> None:
    """Make a device this thread's current one; what a device's ``__enter__`` calls.

    Parameters
    ----------
    device : Device
        The same device may be pushed more than once.

    Examples
    --------
    >>> from cupy_turbo.device import open_device
    >>> device = open_device("host")
    >>> push_device(device)
    >>> current_device() is device
    True
    >>> pop_device(device)
    """
    _devices.stack.append(device)


def pop_device(device: Device) -> None:
    """Take back the innermost push of a device; what a device's ``__exit__`` calls.

    Parameters
    ----------
    device : Device
        Exactly one push of this device is taken back, wherever in the stack it lies.

    Raises
    ------
    RuntimeError
        If this thread did not push it.

    Examples
    --------
    >>> from cupy_turbo.device import open_device
    >>> pop_device(open_device("host"))
    Traceback (most recent call last):
    RuntimeError: host was left on a thread that did not enter it
    """
    for index in reversed(range(len(_devices.stack))):
        if _devices.stack[index] is device:
            del _devices.stack[index]
            return
    raise RuntimeError(f"{device.name} was left on a thread that did not enter it")
