"""No kernel's result depends on the order in which its blocks and their warps run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.protocols import Device
from cupy_turbo.device.host import HostDevice
from cupy_turbo.device.source import KernelLibrary
from cupy_turbo.testing import DrawnPolicy, RecordedPolicy, drawn_policies
from cupy_turbo.testing.examples import examples
from tests.property.kernel_cases import CASES, WideHost, run_case


class OrderError(AssertionError):
    """Two orders of one launch gave different bits."""


def check_orders(kernel: str, host: type[HostDevice], seed: int, policy: object, **options: Any) -> None:
    """Launch in order, then in the orders that the policy makes up; one worker, so that an order is all there is."""
    found = []
    for each in (RecordedPolicy(), policy):
        device = host(policy=each, workers=1, **options)
        found.append(run_case(kernel, device, seed))
        device.close()
    if found[0] != found[1]:
        raise OrderError(f"{kernel} with seed {seed} on {host.__name__} gives other bits under {policy}")


@pytest.mark.parametrize("kernel", sorted(CASES))
def test_no_order_changes_a_bit(kernel: str, device_kind: str) -> None:
    if device_kind != "host":
        pytest.skip("a GPU orders blocks and warps itself: see the test of its repeated launches")

    @settings(max_examples=examples(8))
    @given(host=st.sampled_from([HostDevice, WideHost]), seed=st.integers(0, 2**16), policy=drawn_policies())
    def check(host: type[HostDevice], seed: int, policy: DrawnPolicy) -> None:
        check_orders(kernel, host, seed, policy)

    check()


@pytest.mark.parametrize("kernel", sorted(CASES))
def test_every_launch_gives_the_same_bits(kernel: str, open_test_device: Callable[..., Device]) -> None:
    """On a GPU, whose orders nobody controls; on the host with as many workers as there are."""
    device = open_test_device()
    assert len({tuple(run_case(kernel, device, seed=3)) for _ in range(examples(4))}) == 1
    device.close()


def test_every_kernel_has_a_case() -> None:
    folder = Path(KernelLibrary().folders[-1])
    assert sorted(CASES) == sorted(path.stem for path in folder.glob("*.cu"))
