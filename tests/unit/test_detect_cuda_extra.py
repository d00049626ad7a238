"""tools/detect_cuda_extra.py: which CUDA extra `make demo` installs, and what it says when it installs none."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "detect_cuda_extra.py"


@pytest.fixture(scope="module")
def detect() -> ModuleType:
    spec = importlib.util.spec_from_file_location("detect_cuda_extra", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("cuda_version", "extra"), [((12, 0), "cuda12"), ((12, 9), "cuda12"), ((13, 0), "cuda13"), ((14, 1), "cuda13")]
)
def test_the_extra_follows_the_driver(detect: ModuleType, cuda_version: tuple[int, int], extra: str) -> None:
    driver = detect.Driver(cuda_version=cuda_version, num_gpus=1, capability=(9, 0))
    assert detect.choose_extra(driver) == (extra, "")


def test_no_driver_and_no_gpu_are_the_same_plain_fact(detect: ModuleType) -> None:
    no_device = detect.Driver(cuda_version=(12, 4), num_gpus=0, init_error=detect.CUDA_ERROR_NO_DEVICE)
    assert detect.choose_extra(None) == detect.choose_extra(no_device) == ("", "no NVIDIA GPU found")


def test_a_driver_that_is_too_old_is_named_with_the_remedy(detect: ModuleType) -> None:
    extra, reason = detect.choose_extra(detect.Driver(cuda_version=(11, 4), num_gpus=1, capability=(8, 6)))
    assert extra == ""
    assert "11.4" in reason
    assert "update it" in reason


def test_a_gpu_that_is_too_old_is_named_with_the_limit(detect: ModuleType) -> None:
    extra, reason = detect.choose_extra(detect.Driver(cuda_version=(12, 4), num_gpus=1, capability=(7, 5)))
    assert extra == ""
    assert "7.5" in reason
    assert "8.0" in reason


def test_a_driver_that_does_not_start_is_told(detect: ModuleType) -> None:
    extra, reason = detect.choose_extra(detect.Driver(cuda_version=(12, 4), num_gpus=0, init_error=803))
    assert extra == ""
    assert "803" in reason
