"""The device that tests run on: `host` unless ``--device cuda`` says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from cupy_turbo.core.protocols import Device

# No deadline: the first call of a test may compile. No database: what a run does depends on its seed only.
settings.register_profile(
    "cupy_turbo", deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("cupy_turbo")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", choices=("host", "cuda"), default="host", help="what the device fixtures open")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "races: races on purpose; the stream sanitizer, if it is on, looks away")


@pytest.fixture(autouse=True)
def look_away(request: pytest.FixtureRequest) -> Iterator[None]:
    """Switch off, for a test marked `races`, the sanitizer that CUPY_TURBO_SANITIZE=1 has switched on."""
    if request.node.get_closest_marker("races") is None:
        yield
        return
    from cupy_turbo.device.sanitize import unsanitized

    with unsanitized():
        yield


@pytest.fixture(scope="session")
def device_kind(request: pytest.FixtureRequest) -> str:
    """``"host"`` or ``"cuda"``, for the few tests that cannot be the same on both."""
    return str(request.config.getoption("--device"))


@pytest.fixture
def device(device_kind: str) -> Iterator[Device]:
    """A device of its own for one test, closed after it; not entered, so that no test leans on a current device."""
    from cupy_turbo.device import open_device

    opened = open_device(device_kind)
    yield opened
    opened.close()


@pytest.fixture
def open_test_device(device_kind: str) -> Callable[..., Device]:
    """Open a device for a state machine, which closes it; the options (policy, seed) are for `host` only."""
    from cupy_turbo.device import open_device

    def open_it(**host_options: object) -> Device:
        return open_device(device_kind, **(host_options if device_kind == "host" else {}))

    return open_it
