"""How a process that used a GPU ends: silently without `close`, with a named error after a fork or a lost device."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROLOGUE = """
import numpy as np
from cupy_turbo.core.errors import DeviceError, DeviceLostError
from cupy_turbo.core.event import Event
from cupy_turbo.core.stream import Stream
from cupy_turbo.device import open_device
device = open_device("cuda", kernel_folders=[{folder!r}])
stream, event = Stream.create(device=device), Event.create(device=device)
array, pinned = device.upload(np.ones(1024, np.float32)), device.pinned(1024, np.float32)
"""

CAPTURE = """
with device.capture(stream) as captured:
    device.copy(pinned, array, stream=stream)
captured.graph.launch(stream)
event.record(stream)
"""


Run = Callable[..., str]


@pytest.fixture
def run(cuda_probes: Path) -> Run:
    """Run a script behind `PROLOGUE` in a process of its own, and return what it prints."""

    def run_script(script: str, **variables: str) -> str:
        command = [sys.executable, "-c", PROLOGUE.format(folder=str(cuda_probes)) + script]
        # What CuPy has to say of this machine's installation is not the matter here.
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"} | variables
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
        assert (result.returncode, result.stderr) == (0, ""), result.stdout
        return result.stdout

    return run_script


def test_leaving_everything_open_is_silent(run: Run) -> None:
    assert run(CAPTURE + "cycle = [array, stream]; cycle.append(cycle); print('end')") == "end\n"


def test_leaving_with_work_running_and_a_daemon_thread_is_silent(run: Run) -> None:
    script = """
import threading
out = device.empty(1, np.int32)
def work():
    while True:
        device.kernel("spin")(1, 1, (out, 1000000, 1), stream=stream)
        event.record(stream)
        event.sync()
work_thread = threading.Thread(target=work, daemon=True)
work_thread.start()
event.sync()
print("end")
"""
    assert run(script) == "end\n"


def test_closing_first_and_dropping_later_is_silent(run: Run) -> None:
    assert run(CAPTURE + "device.close(); del array, pinned, captured, stream, event; print('end')") == "end\n"


def test_a_lost_device_says_so_from_then_on(run: Run) -> None:
    script = (
        CAPTURE
        + """
stream.sync()
device.kernel("wild")(1, 32, (None,), stream=stream)
uses = [
    stream.sync, stream.sync, device.synchronize, device.memory, array.get, event.query, event.sync,
    lambda: device.empty(1, np.float32), lambda: Stream.create(device=device), lambda: captured.graph.launch(stream),
    lambda: device.fill(array, 0, stream=stream), lambda: device.copy(array, pinned, stream=stream),
    lambda: device.kernel("wild")(1, 1, (array,), stream=stream), lambda: device.kernel("reverse"),
]
for number, use in enumerate(uses):
    try:
        use()
    except DeviceLostError as error:
        assert "cuda:0 is lost" in str(error) and "IllegalAddress" in str(error), error
    else:
        raise AssertionError(number)
del captured, event, pinned
device.close()
print("end")
"""
    )
    assert run(script) == "end\n"


def test_a_forked_child_gets_an_error_and_the_parent_goes_on(run: Run) -> None:
    script = (
        CAPTURE
        + """
import os
child = os.fork()
if child == 0:
    try:
        device.empty(1, np.float32)
    except DeviceError as error:
        assert "spawn" in str(error)
        del array, pinned, captured, stream, event
        print("child", flush=True)
    os._exit(0)
os.waitpid(child, 0)
assert array.get()[0] == 1
print("parent")
"""
    )
    assert run(script) == "child\nparent\n"


def test_processes_share_cubins_and_do_not_trust_torn_ones(run: Run, tmp_path: Path) -> None:
    script = """
scale = device.kernel("scale", TYPE="half")
half = device.upload(np.ones(4, np.float16))
scale(1, 32, (half, half, 4, 2.0, 0), stream=stream)
print(half.get().tolist())
"""
    with ThreadPoolExecutor(2) as pool:  # both start on an empty cache
        first = list(pool.map(lambda _: run(script, CUPY_TURBO_CACHE_DIR=str(tmp_path)), range(2)))
    (cubin,) = tmp_path.rglob("*.cubin")
    whole = cubin.read_bytes()
    cubin.write_bytes(whole[: len(whole) // 2])
    again = run(script, CUPY_TURBO_CACHE_DIR=str(tmp_path))
    assert {*first, again} == {"[2.0, 2.0, 2.0, 2.0]\n"}
    assert cubin.read_bytes() == whole
