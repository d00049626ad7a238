"""What the `cuda` device tells the sanitizer, and the switch in the environment; the laws are in tests/property."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cupy_turbo.core.errors import SanitizerError, StreamRaceError
from cupy_turbo.core.stream import Event, Stream
from cupy_turbo.device.cuda import CudaDevice
from cupy_turbo.device.host_sources import checksum
from cupy_turbo.device.sanitize import Sanitizer, sanitize, unsanitized
from cupy_turbo.device.source_line import describe, find_origin

ROOT = Path(__file__).resolve().parents[3]
FLOATS = np.dtype(np.float32)


@pytest.fixture
def watched(cuda: CudaDevice) -> Iterator[Sanitizer]:
    with unsanitized(), sanitize() as sanitizer:
        yield sanitizer
        cuda.synchronize()


def two_streams(cuda: CudaDevice) -> tuple[Stream, Stream]:
    return Stream.create(device=cuda), Stream.create(device=cuda)


def test_a_launch_is_refused_before_cuda_hears_of_it(cuda: CudaDevice, watched: Sanitizer, runtime: Any) -> None:
    first, second = two_streams(cuda)
    scale, x, y = cuda.kernel("scale", TYPE="float"), cuda.empty(8, FLOATS), cuda.empty(8, FLOATS)
    cuda.fill(x, 0, stream=first)
    del runtime.calls[:]
    with pytest.raises(StreamRaceError, match="scale reads bytes 0 to 32 of 'x': bytes 0 to 32 of 32 device bytes"):
        scale(1, 32, [y, x, 8, 1.0, 0], stream=second)
    assert runtime.names() == []
    first.sync()
    scale(1, 32, [y, x, 8, 1.0, 0], stream=second)
    scale(1, 32, [y, x, 8, 1.0, 0], stream=second)
    with pytest.raises(StreamRaceError, match="scale writes bytes 0 to 32 of 'y'"):
        cuda.fill(y, 0, stream=first)
    with pytest.raises(StreamRaceError, match="scale reads bytes 16 to 32 of 'x'"):
        cuda.fill(x[4:], 0, stream=first)
    assert "memsetAsync" not in runtime.names()


def test_events_and_device_wide_waits_order(cuda: CudaDevice, watched: Sanitizer) -> None:
    first, second = two_streams(cuda)
    event, x, pinned = Event.create(device=cuda), cuda.empty(8, FLOATS), cuda.pinned(8, FLOATS)
    cuda.copy(x, pinned, stream=first)
    event.record(first)
    second.wait(event)
    cuda.copy(pinned, x, stream=second)
    cuda.synchronize()
    cuda.fill(x, 0, stream=first)
    with pytest.raises(StreamRaceError):
        cuda.copy(pinned, x, stream=second)
    cuda.memory()  # frees nothing, so it waits for nothing
    with pytest.raises(StreamRaceError):
        cuda.copy(pinned, x, stream=second)


def test_a_launch_that_cuda_cannot_take_leaves_no_trace(cuda: CudaDevice, watched: Sanitizer) -> None:
    first, second = two_streams(cuda)
    scale, x, y = cuda.kernel("scale", TYPE="float"), cuda.empty(8, FLOATS), cuda.empty(8, FLOATS)
    with pytest.raises(ValueError, match="shared_bytes"):
        scale(1, 32, [y, x, 8, 1.0, 0], shared_bytes=1 << 30, stream=first)
    cuda.fill(y, 0, stream=second)


def test_a_graph_counts_when_it_is_launched(cuda: CudaDevice, watched: Sanitizer, runtime: Any) -> None:
    first, second = two_streams(cuda)
    scale, x, y = cuda.kernel("scale", TYPE="float"), cuda.empty(8, FLOATS), cuda.empty(8, FLOATS)
    with cuda.capture(first) as captured:
        cuda.fill(x, 0, stream=first)
        scale(1, 32, [y, x, 8, 1.0, 0], stream=first)
    cuda.fill(y, 0, stream=second)
    del runtime.calls[:]
    with pytest.raises(StreamRaceError, match=r"graph \(scale\) writes"):
        captured.graph.launch(first)
    assert runtime.names() == []
    second.sync()
    captured.graph.launch(first)
    with pytest.raises(StreamRaceError, match=r"graph \(fill\) writes"):
        cuda.fill(x, 0, stream=second)


def test_memory_that_a_device_gives_out_is_new(cuda: CudaDevice, watched: Sanitizer) -> None:
    """Also where nobody heard that the last owner went: CuPy's own pool tells no one."""
    (first, second), array = two_streams(cuda), cuda.empty(8, FLOATS)
    cuda.fill(array, 0, stream=first)
    watched.allocated(array, "device")
    cuda.fill(array, 0, stream=second)


def test_what_waits_to_be_freed_is_freed_memory_until_the_driver_has_it(cuda: CudaDevice, gpu: Any) -> None:
    real = pytest.importorskip("cupy")
    with unsanitized(), sanitize():
        (first, _), array = two_streams(cuda), cuda.empty(64, np.dtype(np.uint8))
        pointer = array.data.ptr
        bare = real.cuda.MemoryPointer(real.cuda.UnownedMemory(pointer, 64, None, 0), 0)
        stale = real.ndarray((64,), np.uint8, memptr=bare)
        cuda.fill(stale, 1, stream=first)
        del array
        gc.collect()
        with pytest.raises(SanitizerError, match=r"freed: its owner is gone, 64 device bytes taken at .*array"):
            cuda.fill(stale, 1, stream=first)
        gpu.collect()
        cuda.fill(stale, 1, stream=first)  # whose it is now nobody can tell


@pytest.mark.parametrize("size", [1, 100, 4 << 20, (4 << 20) + 1, 10_000_003])
def test_checksums_see_both_ends(size: int) -> None:
    memory = np.zeros(size, np.uint8)
    start = memory.__array_interface__["data"][0]
    before = checksum(start, start + size)
    for index in {0, size - 1}:
        memory[index] = 1
        assert checksum(start, start + size) != before
        memory[index] = 0
    assert checksum(start, start + size) == before


def test_an_origin_is_the_line_that_asks() -> None:
    origin = find_origin()
    assert origin is not None and Path(origin.path) == Path(__file__)
    assert describe(origin).endswith("origin = find_origin()")
    assert describe(None) == "an unknown line"


def test_a_forked_child_is_left_alone() -> None:
    source = (
        "import os\nfrom cupy_turbo.core import sanitizing\nfrom cupy_turbo import sanitize\n"
        "with sanitize():\n    child = os.fork()\n    if not child: os._exit(0 if sanitizing.watch is None else 7)\n"
        "    print(os.waitpid(child, 0)[1], sanitizing.watch is not None)\n"
    )
    done = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "0 True\n", done.stderr


RACE = """
from cupy_turbo import Stream, open_device
import numpy as np
device = open_device("host")
array = device.empty(4, np.uint8)
for _ in range(2):
    device.fill(array, 1, stream=Stream.create(device=device))
"""


@pytest.mark.parametrize("value", ["", "0", "1"])
def test_the_environment_switches_it_on(value: str) -> None:
    environment = os.environ | {"CUPY_TURBO_SANITIZE": value}
    done = subprocess.run([sys.executable, "-c", RACE], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ("StreamRaceError: nothing orders fill and fill" in done.stderr) == (value == "1"), done.stderr
    assert (done.returncode != 0) == (value == "1")
