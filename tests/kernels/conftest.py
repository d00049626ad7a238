"""One device and one stream for a module, so that hypothesis can draw many examples for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from tests.kernels.probe import PROBES, Run, launch


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


@pytest.fixture(scope="module")
def cuda_probes() -> Path:
    """Kernels for the tests of the `cuda` device itself."""
    return Path(__file__).with_name("cuda_probes")


@pytest.fixture(scope="module")
def cuda_device(device_kind: str, cuda_probes: Path) -> Iterator[Device]:
    """A GPU with those kernels."""
    from cupy_turbo.device import open_device

    with open_device("cuda", kernel_folders=[cuda_probes]) as opened:
        yield opened
    opened.close()


@pytest.fixture(scope="module")
def spin(cuda_device: Device) -> Any:
    """Queue `spin(out, cycles, value)`; it was launched before, for a first launch may wait for the device."""
    kernel = cuda_device.kernel("spin")

    def launch(out: Any, cycles: int, value: int, on: Stream) -> None:
        kernel(1, 1, (out, cycles, value), stream=on)

    launch(cuda_device.empty(1, np.dtype(np.int32)), 1, 0, Stream.create(device=cuda_device))
    cuda_device.synchronize()
    return launch


class _NeedsGpu(pytest.Module):
    """A file that is skipped as one."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        pytest.skip("what CUDA itself does needs a GPU: run with --device cuda", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Leave the files test_cuda_*.py out on `host`."""
    if module_path.name.startswith("test_cuda_") and parent.config.getoption("--device") != "cuda":
        return _NeedsGpu.from_parent(parent, path=module_path)
    return None


@pytest.fixture(scope="module")
def run_probe(device_kind: str) -> Iterator[Run]:
    """Run a kernel of `probes/`: name, grid, block and arguments; see `probe.launch`."""
    from cupy_turbo.device import open_device

    opened = open_device(device_kind, kernel_folders=[PROBES])
    yield lambda *args, **keywords: launch(opened, *args, **keywords)
    opened.close()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
