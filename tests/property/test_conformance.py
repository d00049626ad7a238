"""The conformance suites pass what keeps the contract, name the law that anything else breaks, and need no more."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import cupy_turbo.testing
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.queue import Queue
from cupy_turbo.device.host import HostDevice
from cupy_turbo.testing import ConformanceError, check_queue, check_stream_device
from cupy_turbo.testing.examples import examples
from tests.property.other_queues import WRONG_QUEUES, StandardQueue
from tests.property.wrong_devices import WRONG_DEVICES


@pytest.mark.parametrize("factory", [Queue, StandardQueue])
def test_right_queues(factory: Callable[[int | None], Any]) -> None:
    check_queue(factory, max_examples=examples(50))


@pytest.mark.parametrize("factory", WRONG_QUEUES)
def test_wrong_queues_are_told_which_law_they_break(factory: Callable[[int | None], Any]) -> None:
    with pytest.raises(ConformanceError) as caught:
        check_queue(factory, patience=0.3, max_examples=1)
    assert WRONG_QUEUES[factory] in caught.value.law  # type: ignore[index]
    assert caught.value.law in str(caught.value)
    assert factory.__name__ in str(caught.value)


@pytest.mark.parametrize("policy", ["fifo", "eager", "random"])
def test_our_devices(policy: str, device_kind: str, open_test_device: Callable[..., Device]) -> None:
    if device_kind == "cuda" and policy != "fifo":
        pytest.skip("a GPU has a policy of its own: one run of this test is enough")
    device = open_test_device(policy=policy, seed=7)
    check_stream_device(device, max_examples=examples(30))
    device.close()


def test_plain_cupy(device_kind: str) -> None:
    if device_kind != "cuda":
        pytest.skip("plain CuPy needs a GPU: run with --device cuda")
    from tests.property.plain_cupy import PlainCupy

    check_stream_device(PlainCupy(), max_examples=examples(30))  # type: ignore[arg-type]


@pytest.mark.parametrize("device", WRONG_DEVICES)
def test_wrong_devices_are_told_which_law_they_break(device: type[HostDevice]) -> None:
    with pytest.raises(ConformanceError) as caught:
        check_stream_device(device(policy="random", seed=1), patience=0.3, max_examples=1)
    assert WRONG_DEVICES[device] in caught.value.law
    assert caught.value.law in str(caught.value)


MODULES = sorted({f"cupy_turbo.testing.{home}" for home in cupy_turbo.testing._HOMES.values()})


@pytest.mark.parametrize("name", [*MODULES, "cupy_turbo.testing.program_writer"])
def test_examples_of_the_documentation(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


def test_every_public_name_is_there_and_hypothesis_comes_late() -> None:
    """Without the extra, importing is no error; drawing is one that names it."""
    source = """
import sys
sys.modules["hypothesis"] = None
import cupy_turbo.testing as testing
for name in testing.__all__:
    getattr(testing, name)
try:
    testing.stream_programs()
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "strategies need hypothesis: pip install 'cupy_turbo[test]'"
