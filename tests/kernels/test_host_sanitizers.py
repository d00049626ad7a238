"""Kernels built for AddressSanitizer and UndefinedBehaviorSanitizer: planted mistakes are found and named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cupy_turbo.core.errors import DeviceUnavailableError
from cupy_turbo.device import host_sanitizers
from cupy_turbo.device.host_compiler import compiler_version, find_compiler
from tests.kernels.probe import PROBES

SCRIPT = Path(__file__).parents[2] / "tools" / "host_sanitize.sh"
WITHIN, ELEMENTS = 0, 64
NONE_READ = 100
# Of probes/crashes.cu: the sanitizer, `fault`, `offset`, `amount`, and what the report says.
MISTAKES = {
    "a write behind an array": ("address", 1, ELEMENTS, 1, "use-after-poison.*WRITE of size 4"),
    "a read before an array": ("address", 2, -1, 1, "use-after-poison.*READ of size 4"),
    "a read far behind an array": ("address", 2, ELEMENTS + 400, 1, "use-after-poison.*READ of size 4"),
    "a copy from behind an array": ("address", 8, ELEMENTS, 1, "use-after-poison.*READ of size 16"),
    "beyond a __shared__ array": ("address", 5, 32, 1, "global-buffer-overflow.*right of global variable 'first'"),
    "beyond the dynamic shared memory": ("address", 6, 32, 1, "heap-buffer-overflow.*WRITE of size 4"),
    "beyond a local array": ("address", 7, 4, 1, "stack-buffer-overflow.*WRITE of size 4"),
    "division by zero": ("undefined", 3, WITHIN, 0, "division by zero"),
    "a shift too far": ("undefined", 9, WITHIN, 40, "shift exponent 40 is too large"),
    "a signed overflow": ("undefined", 10, WITHIN, 1, "signed integer overflow"),
    "a misaligned read": ("undefined", 11, WITHIN, 1, "misaligned address"),
    "an index too large": ("undefined", 12, WITHIN, 32, "index 32 out of bounds for type 'int"),
    "a float too large for an int": ("undefined", 14, WITHIN, 3, "3e\\+09 is outside the range"),
    "None read": ("undefined", NONE_READ, WITHIN, 1, "load of null pointer"),
}
RUN = f"""
import sys, numpy as np
from cupy_turbo.device import open_device
from tests.kernels.probe import Out, launch
fault, offset, amount = map(int, sys.argv[1:])
target, source = np.ones({ELEMENTS}, np.int32), np.ones({ELEMENTS}, np.int32)
device = open_device("host", kernel_folders=[{str(PROBES)!r}])
launch(device, "crashes", 1, 32, Out(96, np.int32), target, source, 0, 1, 0, shared_bytes=4096)
if fault == {NONE_READ}:
    source, fault = None, 2
(got,) = launch(device, "crashes", 3, 32, Out(96, np.int32), target, source, offset, amount, fault, shared_bytes=128)
print("ended", got.size)
"""


def run_sanitized(which: str, *args: int, script: str = RUN) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(SCRIPT), sys.executable, "-c", script, *map(str, args)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {host_sanitizers.VARIABLE: which}
    )


@pytest.fixture(autouse=True, scope="module")
def _has_sanitizers(device_kind: str) -> None:
    if device_kind != "host":
        pytest.skip("about the host device's compiler")
    for name in ("libasan.so", "libubsan.so"):
        command = [*find_compiler(), f"-print-file-name={name}"]
        if not os.path.isabs(subprocess.run(command, capture_output=True, text=True, check=True).stdout):
            pytest.skip(f"{compiler_version()} has no {name}")


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_ends_the_process_with_a_report(name: str) -> None:
    which, fault, offset, amount, report = MISTAKES[name]
    done = run_sanitized(which, fault, offset, amount)
    assert done.returncode != 0, done.stdout
    assert done.stdout == ""
    assert_matches(report, done.stderr)
    assert_matches(r"#\d+ 0x[0-9a-f]+ in crashes .*crashes\.cu:\d+", done.stderr)
    assert "cupy_turbo: that was thread (3, 0, 0) of block (1, 0, 0)\n" in done.stderr


def assert_matches(pattern: str, text: str) -> None:
    with pytest.raises(AssertionError, match=f"(?s){pattern}"):
        raise AssertionError(text)


def test_no_mistake_no_report() -> None:
    done = run_sanitized("address,undefined", 2, ELEMENTS - 1, 1)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended 96\n", "")


def test_a_failed_launch_leaves_no_poison_on_the_stacks() -> None:
    """The frames of threads that still waited were left, not returned from; then others use their stacks."""
    script = f"""
import numpy as np
from cupy_turbo.core.errors import KernelError
from cupy_turbo.device import open_device
from tests.kernels.probe import Out, launch
device, ones = open_device("host", kernel_folders=[{str(PROBES)!r}]), np.ones(64, np.int32)
for fault in (1, 2, 3, 4, 10, -1):
    for name, *args in (("crashes", Out(96, np.int32), ones, ones, 0, 1, 13 if fault >= 0 else 0),
                        ("faults", Out(3), np.zeros(64, np.float32), 1)):
        try:
            launch(device, name, 3, 32, *args, shared_bytes=256, **({{"FAULT": fault}} if name == "faults" else {{}}))
        except KernelError as error:
            print(error.kernel, error.block[0])
"""
    done = run_sanitized("address,undefined", script=script)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["crashes", "1", "faults", "1"] * 5


def test_what_cannot_be_watched_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    host_sanitizers.sanitizers.cache_clear()
    try:
        monkeypatch.setenv(host_sanitizers.VARIABLE, "address,memory")
        with pytest.raises(DeviceUnavailableError, match="'memory' is none of address, undefined"):
            host_sanitizers.sanitizers()
        monkeypatch.setenv(host_sanitizers.VARIABLE, " address")
        monkeypatch.setattr(host_sanitizers, "_address_sanitizer", lambda: None)
        with pytest.raises(DeviceUnavailableError, match=r"start it with LD_PRELOAD=.*tools/host_sanitize\.sh"):
            host_sanitizers.sanitizer_flags("g++ (GCC) 12")
        with pytest.raises(DeviceUnavailableError, match=r"needs g\+\+, and the C\+\+ compiler is clang 17"):
            host_sanitizers.sanitizer_flags("clang 17")
    finally:
        host_sanitizers.sanitizers.cache_clear()
