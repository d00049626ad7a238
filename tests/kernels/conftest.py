"""One device and one stream for a module, so that hypothesis can draw many examples for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream


@pytest.fixture(scope="module")
def device(device_kind: str) -> Iterator[Device]:
    """The device of the module's tests, closed after them."""
    from cupy_turbo.device import open_device

    with open_device(device_kind) as opened:
        yield opened
    opened.close()


@pytest.fixture(scope="module")
def stream(device: Device) -> Stream:
    return Stream.create(device=device)
