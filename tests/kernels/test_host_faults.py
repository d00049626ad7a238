"""A kernel that the processor stops on the host device: its launch fails, and everything else goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from cupy_turbo.core.errors import KernelError
from cupy_turbo.device.host_sanitizers import sanitizers
from tests.kernels.probe import Out, Run

ONES = np.ones(64, np.int32)
WRITES_GLOBAL, READS_GLOBAL, DIVIDES, TRAPS = 1, 2, 3, 4  # as in probes/crashes.cu
FAR = 1 << 40

FAULTS: dict[str, tuple[int, Any, Any, int, str]] = {
    "a None read": (
        READS_GLOBAL,
        ONES,
        None,
        5,
        r"reads from address 0x14, off a null pointer \(is an argument None\?\)",
    ),
    "a None written": (WRITES_GLOBAL, None, ONES, 0, "writes to address 0, off a null pointer"),
    "far outside, read": (READS_GLOBAL, ONES, ONES, FAR, "reads from address 0x[0-9a-f]+, where it has no memory"),
    "far outside, written": (WRITES_GLOBAL, ONES, ONES, FAR, "writes to address 0x[0-9a-f]+, where it has no memory"),
    "no address at all": (READS_GLOBAL, ONES, ONES, 1 << 60, "uses an address that no memory can have"),
    "division by zero": (DIVIDES, ONES, ONES, 0, r"divides an integer by zero"),
    "a trap": (TRAPS, ONES, ONES, 0, r"reaches a trap"),
}

PRELUDE = """
import ctypes, faulthandler, os, signal, sys, numpy as np
from cupy_turbo.core.errors import KernelError
from cupy_turbo.device import open_device
from tests.kernels.probe import PROBES, Out, launch
device, ones = open_device("host", kernel_folders=[PROBES]), np.ones(64, np.int32)
def crash():
    try: launch(device, "crashes", 3, 32, Out(96, np.int32), ones, None, 0, 1, 2, shared_bytes=128)
    except KernelError: print("recovered", flush=True)
"""


@pytest.fixture(autouse=True)
def _host_only(device_kind: str) -> None:
    if device_kind != "host":
        pytest.skip("a GPU loses its context with such a launch")
    if sanitizers():
        pytest.skip("a sanitizer ends the process")


def crash(run_probe: Run, target: Any, source: Any, offset: int, divisor: int, fault: int) -> np.ndarray:
    out = Out(8 * 32, np.int32)
    (got,) = run_probe("crashes", 8, 32, out, target, source, offset, divisor, fault, shared_bytes=128)
    return got


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_the_launch_and_names_its_place(run_probe: Run, name: str) -> None:
    fault, target, source, offset, reason = FAULTS[name]
    for _ in range(3):  # the handler is there the next time too
        with pytest.raises(KernelError, match=rf"^crashes: thread \(3, 0, 0\) of block \(1, 0, 0\) {reason}") as caught:
            crash(run_probe, target, source, offset, 0, fault)
        assert (caught.value.kernel, caught.value.block, caught.value.thread) == ("crashes", (1, 0, 0), (3, 0, 0))
    assert crash(run_probe, ONES, ONES, 0, 1, READS_GLOBAL).sum() > 0  # the device lives on


def test_a_fault_on_any_thread_of_python(run_probe: Run) -> None:
    caught: list[Exception] = []

    def run() -> None:
        try:
            crash(run_probe, ONES, ONES, 0, 0, DIVIDES)
        except KernelError as error:
            caught.append(error)

    for _ in range(3):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert len(caught) == 3


@pytest.mark.parametrize("handler", ["", "faulthandler.enable()"])
@pytest.mark.parametrize(
    ("death", "number"),
    [("ctypes.string_at(0)", signal.SIGSEGV), ("os.kill(os.getpid(), signal.SIGFPE)", signal.SIGFPE)],
)
def test_other_faults_are_left_to_who_had_them_before(handler: str, death: str, number: int) -> None:
    script = f"{PRELUDE}\n{handler}\ncrash(); crash()\n{death}\nprint('survived')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-number, "recovered\nrecovered\n"), done.stderr
    assert done.stderr.count("Fatal Python error") == (1 if handler else 0)
    assert not handler or 'File "<string>"' in done.stderr


def test_faulthandler_enabled_later_shows_what_it_always_showed() -> None:
    """It is then asked first, and ends the process: as if there were no handler for kernels."""
    script = f"{PRELUDE}\ncrash()\nfaulthandler.enable()\ncrash()\nprint('survived')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "recovered\n")
    assert done.stderr.count("Fatal Python error: Segmentation fault") == 1
