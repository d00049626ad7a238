"""The host device's compiler and launches: what is refused, what is cached, and what a process leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cupy_turbo.core.errors import CompileError, DeviceUnavailableError
from cupy_turbo.core.stream import Stream
from cupy_turbo.device import host_compiler, open_device
from cupy_turbo.device.host import HostDevice
from cupy_turbo.device.host_kernel import HostKernel

KERNEL = """#include "turbo.cuh"
extern "C" __global__ void fill(int* out, int value, int shift) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = VALUE << shift;
}
TURBO_EXPORT(fill)
"""
RUN = """
import sys
from cupy_turbo.core.stream import Stream
from cupy_turbo.device import open_device
device = open_device("host", kernel_folders=[sys.argv[1]])
stream, out = Stream.create(device=device), device.empty(64, "int32")
device.kernel("fill")(2, 32, (out, 5, int(sys.argv[2])), stream=stream)
print(out.get()[0])
"""


@pytest.fixture(autouse=True)
def _host_only(device_kind: str) -> None:
    if device_kind != "host":
        pytest.skip("about the host device's compiler")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fill.cu").write_text(KERNEL.replace("VALUE", "value"))
    return tmp_path


@pytest.fixture
def device(folder: Path) -> HostDevice:
    return HostDevice(kernel_folders=[folder])


def run_fill(device: HostDevice) -> int:
    stream, out = Stream.create(device=device), device.empty(64, np.int32)
    device.kernel("fill")(2, 32, (out, 5, 0), stream=stream)
    values = set(out.get().tolist())
    assert len(values) == 1
    return values.pop()


def in_new_process(folder: Path, *args: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, str(folder), *args]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment
    )


def test_two_processes_may_compile_at_once(folder: Path) -> None:
    processes = [in_new_process(folder, "0", CUPY_TURBO_CACHE_DIR=str(folder / "cache")) for _ in range(2)]
    for process in processes:
        assert process.communicate() == ("5\n", "")
        assert process.returncode == 0
    left = [path for path in (folder / "cache").rglob("*") if path.is_file()]
    assert [path.suffix for path in left] == [".so", ".so"]  # the runtime and the kernel; nothing half written


def test_a_process_may_end_with_work_pending(folder: Path) -> None:
    unfinished = RUN.replace("print(out.get()[0])", "")
    done = subprocess.run([sys.executable, "-c", unfinished, folder, "0"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_extra_flags_reach_kernels(folder: Path) -> None:
    process = in_new_process(folder, "40", CUPY_TURBO_HOST_FLAGS="-fsanitize=undefined")
    _, errors = process.communicate()
    assert "fill.cu:3" in errors
    assert "shift exponent 40 is too large" in errors


def test_an_edited_kernel_is_seen_after_reload(folder: Path, device: HostDevice) -> None:
    assert run_fill(device) == 5
    (folder / "fill.cu").write_text(KERNEL.replace("VALUE", "(value + 1)"))
    assert run_fill(device) == 5
    device.reload_kernels()
    assert run_fill(device) == 6


def test_one_kernel_a_set_of_defines(device: HostDevice, folder: Path) -> None:
    (folder / "fill.cu").write_text(KERNEL)
    kernel = device.kernel("fill", VALUE=3, UNUSED="x")
    assert kernel is device.kernel("fill", UNUSED="x", VALUE=3)
    assert kernel is not device.kernel("fill", VALUE=4)


def test_a_compile_error_shows_the_compilers_message(folder: Path, device: HostDevice) -> None:
    (folder / "fill.cu").write_text(KERNEL.replace("VALUE", "no_such_name"))
    with pytest.raises(CompileError, match=r"(?s)fill\.cu does not compile.*fill\.cu:3:.*no_such_name"):
        device.kernel("fill")


def test_a_frame_that_would_overflow_a_fiber_is_refused(folder: Path, device: HostDevice) -> None:
    body = "volatile int large[40000]; large[value] = shift; out[0] = large[shift]"
    (folder / "fill.cu").write_text(KERNEL.replace("out[blockIdx.x * blockDim.x + threadIdx.x] = VALUE << shift", body))
    with pytest.raises(CompileError, match="frame"):
        device.kernel("fill")


def test_more_static_shared_memory_than_cuda_allows_is_refused(folder: Path, device: HostDevice) -> None:
    body = "__shared__ volatile char large[49153]; large[value] = 1; out[0] = large[shift]"
    (folder / "fill.cu").write_text(KERNEL.replace("out[blockIdx.x * blockDim.x + threadIdx.x] = VALUE << shift", body))
    with pytest.raises(CompileError, match=r"bytes of __shared__ variables exceed 49152: use TURBO_DYNAMIC_SHARED"):
        device.kernel("fill")


def test_without_a_compiler_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    host_compiler.find_compiler.cache_clear()
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    try:
        with pytest.raises(DeviceUnavailableError, match=r"no C\+\+ compiler.*apt-get install g\+\+"):
            host_compiler.find_compiler()
        monkeypatch.setenv("CXX", "no-such-compiler")
        with pytest.raises(DeviceUnavailableError, match="CXX=no-such-compiler"):
            host_compiler.find_compiler()
    finally:
        host_compiler.find_compiler.cache_clear()


def test_a_launch_that_cannot_be_is_refused_when_it_is_queued(device: HostDevice) -> None:
    kernel, stream = device.kernel("fill"), Stream.create(device=device)
    assert isinstance(kernel, HostKernel)
    out, other = device.empty(64, np.int32), open_device("host")
    args = (out, 5, 0)
    for grid, block, shared, values, error, message in (
        (1, 1025, 0, args, ValueError, r"block \(1025, 1, 1\) exceeds"),
        (1, (32, 33), 0, args, ValueError, "1 to 1024 threads, got 1056"),
        (1, 0, 0, args, ValueError, "1 to 1024 threads, got 0"),
        ((1, 65536), 1, 0, args, ValueError, r"grid \(1, 65536, 1\) exceeds"),
        (-1, 1, 0, args, ValueError, r"grid \(-1, 1, 1\)"),
        ((1, 1, 1, 1), 1, 0, args, TypeError, "one to three integers"),
        (1.0, 1, 0, args, TypeError, "one to three integers"),
        (1, 1, 232449, args, ValueError, "shared_bytes 232449 .* exceeds the 232448"),
        (1, 1, -1, args, ValueError, "shared_bytes -1"),
        (1, 1, 0, (out, 5), TypeError, "takes 3 arguments"),
        (1, 1, 0, (other.empty(64, np.int32), 5, 0), ValueError, r"fill: int\* out lives on another device"),
        (0, 1, 0, (out, 2**31, 0), OverflowError, "fill: int value"),  # an empty grid does not hide a mistake
    ):
        with pytest.raises(error, match=message):
            kernel(grid, block, values, shared_bytes=shared, stream=stream)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="another device"):
        kernel(1, 1, args, stream=Stream.create(device=other))
    with pytest.raises(ValueError, match="null Stream"):
        kernel(1, 1, args, stream=Stream())
    assert device.schedule.pending() == []


def test_constness_says_what_a_launch_reads_and_writes(device: HostDevice, folder: Path) -> None:
    (folder / "move.cu").write_text(
        '#include "turbo.cuh"\nextern "C" __global__ void move(int* out, const int* in) { out[0] = in[0]; }\n'
        "TURBO_EXPORT(move)\n"
    )
    stream, out, source = Stream.create(device=device), device.empty(2, np.int32), device.empty(3, np.int32)
    device.kernel("move")(1, 1, (out, source), stream=stream)
    (operation,) = device.schedule.pending()
    assert (operation.name, operation.reads, operation.writes) == ("move", [source.address_range], [out.address_range])
