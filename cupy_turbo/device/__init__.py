"""Devices: `open_device` gives one, and all code above talks to `core.protocols.Device`."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

from cupy_turbo.core.errors import DeviceUnavailableError
from cupy_turbo.core.protocols import Device
from cupy_turbo.device.machine import has_nvidia_gpu
from cupy_turbo.device.sanitize import sanitize_by_environment

__all__ = ["open_device"]

_log = logging.getLogger("cupy_turbo")


def open_device(spec: str = "auto", **options: Any) -> Device:
    """Open a device.

    Parameters
    ----------
    spec : str
        "host"; "cuda" or "cuda:N"; "auto": the first GPU if there is one with CuPy installed, else the host. Where
        there is a GPU that cannot be used, "auto" logs why, once, as a warning of the logger "cupy_turbo".
    **options
        host: `policy` ("fifo", "eager", "random" or an object with `choose`), `seed`, `workers`. Both:
        `kernel_folders`, more folders with `.cu` files.

    Raises
    ------
    ValueError
        Unknown spec or option; the message names the valid ones.
    DeviceUnavailableError
        No such device here; one sentence with the remedy.

    Examples
    --------
    >>> open_device("host", policy="eager").name
    'host'
    """
    sanitize_by_environment()
    kind, _, index = spec.partition(":")
    if kind == "cuda" and (not _ or index.isdecimal()):
        return _open_cuda(int(index or 0), options)
    if spec == "host":
        return _open_host(options)
    if spec != "auto":
        raise ValueError(f"device must be auto, host, cuda or cuda:N, got {spec!r}")
    try:
        return _open_cuda(0, options)
    except DeviceUnavailableError as error:
        if has_nvidia_gpu():
            _warn_of_unused_gpu(str(error))
        return _open_host(options)


@functools.cache
def _warn_of_unused_gpu(reason: str) -> None:
    _log.warning("this machine has a GPU, but kernels will run on the host device: %s", reason)


def _open_host(options: dict[str, Any]) -> Device:
    from cupy_turbo.device.host import HostDevice

    _check_options("host", HostDevice, options)
    return HostDevice(**options)


def _open_cuda(index: int, options: dict[str, Any]) -> Device:
    from cupy_turbo.device.cuda import open_cuda

    _check_options("cuda", open_cuda, options)
    return open_cuda(index, **options)


def _check_options(kind: str, opener: Callable[..., Device], options: dict[str, Any]) -> None:
    parameters = inspect.signature(opener).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            raise ValueError(f"device {kind} has no option {name!r}; it has: {', '.join(known) or 'none'}")
