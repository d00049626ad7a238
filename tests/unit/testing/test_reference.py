"""cupy_turbo/testing: the examples of the oracles run, and a comparison fails where it must."""

from __future__ import annotations

import doctest
import importlib

import numpy as np
import pytest

from cupy_turbo.core.dtypes import float16
from cupy_turbo.testing.arrays import Guarded, assert_close


@pytest.mark.parametrize("name", ["arrays", "reference", "reference_sampling"])
def test_the_examples_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"cupy_turbo.testing.{name}"), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1.1])
def test_one_wrong_element_does_not_pass(wrong: float) -> None:
    actual = np.ones(1000, np.float16)
    assert_close(actual, np.ones(1000))
    actual[999] = wrong
    with pytest.raises(AssertionError, match="relative error"):
        assert_close(actual, np.ones(1000))


def test_a_guard_that_was_written_is_found() -> None:
    from cupy_turbo.core.stream import Stream
    from cupy_turbo.device import open_device

    with open_device("host") as device:
        guarded = Guarded(device, 8, float16)
        assert np.isnan(guarded.fetch()).all()
        stream = Stream.create(device=device)
        device.fill(guarded._buffer[:65], 0, stream=stream)  # one element too early
        with pytest.raises(AssertionError, match="written outside the array"):
            guarded.fetch()
    device.close()
