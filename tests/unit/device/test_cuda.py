"""The `cuda` device without a GPU: what it refuses, in which order it calls CUDA, what it says where there is none."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cupy_turbo import device as device_module
from cupy_turbo.core.errors import CompileError, DeviceError, DeviceLostError, DeviceUnavailableError
from cupy_turbo.core.protocols import Device, EventHandle, StreamHandle
from cupy_turbo.core.stream import Stream
from cupy_turbo.device import cuda as cuda_module
from cupy_turbo.device import machine, open_device
from cupy_turbo.device.cuda import CudaDevice, explain_no_gpu
from cupy_turbo.installation import describe_installation

F32 = np.dtype(np.float32)


def test_it_is_a_device(cuda: CudaDevice, stream: Stream) -> None:
    assert isinstance(cuda, Device)
    assert isinstance(stream._impl, StreamHandle)
    assert isinstance(cuda.event_handle(True), EventHandle)
    assert (cuda.name, cuda.kind, cuda.compute_capability, cuda.num_processors) == ("cuda:0", "cuda", (9, 0), 132)
    assert stream._impl.raw.options == {"non_blocking": True, "priority": 0}


def test_arguments_travel_as_the_kernel_declares_them(cuda: CudaDevice, stream: Stream, runtime: Any) -> None:
    y, x = cuda.empty(8, F32), cuda.empty(8, np.int32)
    cuda.kernel("scale", TYPE="int")(2, (32, 2), (y, x, 8, 2, 2**64 - 1), shared_bytes=16, stream=stream)
    name, grid, block, arguments, shared = runtime.calls[-1]
    assert (name, grid, block, shared) == ("launch", (2, 1, 1), (32, 2, 1), 16)
    assert [type(argument) for argument in arguments[2:]] == [np.int32, np.float32, np.uint64]
    assert arguments[2:] == [8, 2.0, 2**64 - 1]


def test_what_cannot_be_launched(cuda: CudaDevice, stream: Stream, runtime: Any) -> None:
    kernel = cuda.kernel("scale", TYPE="float")
    y = cuda.empty((8, 8), F32)
    runtime.calls.clear()
    kernel((4, 0), 32, (y, y, 8, 1.0, 0), stream=stream)  # CuPy would launch four blocks
    on_host = open_device("host").empty(8, F32)
    for args, error, message in [
        ((y, y, 8, 1.0), TypeError, "takes 5 arguments"),
        ((y, y, 8.0, 1.0, 0), TypeError, "int n takes an integer"),
        ((y, y.T, 8, 1.0, 0), ValueError, "const float. x takes a C-contiguous array"),
        ((y, on_host, 8, 1.0, 0), TypeError, "const float. x takes an array on cuda:0"),
    ]:
        with pytest.raises(error, match=message):
            kernel(1, 32, args, stream=stream)
    with pytest.raises(ValueError, match="null Stream"):
        kernel(1, 32, (y, y, 8, 1.0, 0), stream=Stream())
    with pytest.raises(ValueError, match="the stream on host"):
        kernel(1, 32, (y, y, 8, 1.0, 0), stream=Stream.create(device=open_device("host")))
    assert runtime.calls == []


def test_more_shared_memory_is_asked_for_once(cuda: CudaDevice, stream: Stream) -> None:
    kernel, y = cuda.kernel("scale", TYPE="float"), cuda.empty(8, F32)
    for shared_bytes, allowed in ((47 << 10, 0), (48 << 10, 48 << 10), (100 << 10, 100 << 10), (60 << 10, 100 << 10)):
        kernel(1, 32, (y, y, 8, 1.0, 0), shared_bytes=shared_bytes, stream=stream)  # 1 KiB more is static
        assert kernel.raw.max_dynamic_shared_size_bytes == allowed
    with pytest.raises(ValueError, match="shared_bytes 231425 with 1024 static bytes exceeds the 232448 of a block"):
        kernel(1, 32, (y, y, 8, 1.0, 0), shared_bytes=(226 << 10) + 1, stream=stream)


def test_a_failed_launch_names_the_kernel_and_its_sizes(cuda: CudaDevice, stream: Stream, runtime: Any) -> None:
    y = cuda.empty(8, F32)
    for status, error in ((1, DeviceError), (719, DeviceLostError)):
        runtime.failures["launch"] = [status]
        with pytest.raises(
            error, match=r"kernel scale, grid \(3, 1, 1\), block \(64, 1, 1\)" if status == 1 else "cuda:0 is lost"
        ):
            cuda.kernel("scale", TYPE="float")(3, 64, (y, y, 8, 1.0, 0), stream=stream)


def test_threads_share_one_compilation(cuda: CudaDevice) -> None:
    with ThreadPoolExecutor(8) as pool:
        kernels = set(pool.map(lambda _: cuda.kernel("scale", TYPE="short"), range(8)))
    assert len(kernels) == 1
    cuda.reload_kernels()
    assert cuda.kernel("scale", TYPE="short") not in kernels


def test_a_kernel_that_did_not_compile_is_tried_again(cuda: CudaDevice, tmp_path: Path) -> None:
    source = tmp_path / "scale.cu"
    text = source.read_text()
    source.write_text(text.replace("by *", "bye *"))
    for _ in range(2):
        with pytest.raises(CompileError, match=r"scale\.cu\(2\).*bye"):
            cuda.kernel("scale", TYPE="float")
    source.write_text(text)
    assert cuda.kernel("scale", TYPE="float").name == "scale"


def test_a_capture_gives_a_graph_that_keeps_what_it_uses(cuda: CudaDevice, stream: Stream, runtime: Any) -> None:
    kernel, y = cuda.kernel("scale", TYPE="float"), cuda.empty(8, F32)
    with cuda.capture(stream) as captured:
        kernel(1, 32, (y, cuda_array := y[:4], 8, 1.0, 0), stream=stream)
        with pytest.raises(DeviceError, match="allocate while a graph is captured"):
            cuda.empty(8, F32)
        with pytest.raises(DeviceError, match="wait for a stream while a graph is captured"):
            stream.sync()
        with pytest.raises(DeviceError, match="another capture"), cuda.capture(stream):
            pass
        with pytest.raises(DeviceError, match="no graph"):
            _ = captured.graph
    assert runtime.names()[-4:] == ["begin_capture", "launch", "end_capture", "upload"]
    assert any(operand is cuda_array for operand in captured.graph._operands)
    captured.graph.launch(stream)
    assert runtime.names()[-1] == "graph"
    stream.sync()


def test_an_exception_in_a_capture_ends_it(cuda: CudaDevice, stream: Stream, runtime: Any) -> None:
    runtime.failures["end_capture"] = [901]  # as CUDA says of a capture that was spoilt
    with pytest.raises(ZeroDivisionError), cuda.capture(stream) as captured:
        _ = 1 // 0
    assert runtime.names()[-1] == "end_capture"
    with pytest.raises(DeviceError, match="no graph"):
        _ = captured.graph
    stream.sync()
    cuda.empty(8, F32)


def test_a_closed_device_gives_nothing_more(cuda: CudaDevice, stream: Stream, runtime: Any) -> None:
    with pytest.raises(DeviceError, match="while a graph is captured"), cuda.capture(stream):
        cuda.close()
    runtime.failures["streamSynchronize"] = [700]
    with pytest.raises(DeviceLostError):
        stream.sync()
    cuda.close()  # silent: what matters is the error that came before
    cuda.close()
    for use in (lambda: cuda.empty(1, F32), lambda: cuda.kernel("scale"), lambda: Stream.create(device=cuda)):
        with pytest.raises(DeviceError, match="cuda:0 is closed"):
            use()


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        (0, "no NVIDIA driver was found: install one"),
        (12020, r"supports CUDA 12\.2 but CuPy here is built for CUDA 13: .*pip install 'cupy_turbo\[cuda12\]'"),
        (13000, "no usable GPU .cudaErrorNoDevice: none.: see nvidia-smi"),
    ],
)
def test_why_there_is_no_gpu(driver: int, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(explain_no_gpu(driver, 13000, "cudaErrorNoDevice: none"))


def test_without_cupy_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    cuda_module._connect.cache_clear()
    with pytest.raises(
        DeviceUnavailableError, match=r"^CuPy cannot be imported \(.*\): pip install 'cupy_turbo\[cuda12\]'"
    ):
        open_device("cuda")
    with pytest.raises(ValueError, match="has no option 'polcy'; it has: kernel_folders"):
        open_device("cuda", polcy="fifo")


@pytest.mark.parametrize(("node", "visible", "warnings"), [
    ("nvidia0", None, 1), ("nvidia0", "0", 1), ("nvidia0", "", 0), ("nvidia0", "-1", 0), ("nvidiactl", None, 0),
])  # fmt: skip
def test_auto_says_once_why_it_leaves_a_gpu_unused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path,
    node: str, visible: str | None, warnings: int,
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, "cupy", None)
    cuda_module._connect.cache_clear()
    device_module._warn_of_unused_gpu.cache_clear()
    (tmp_path / node).touch()
    monkeypatch.setattr(machine, "_DEVICES", tmp_path)
    monkeypatch.setattr(machine, "_WSL_DRIVER", tmp_path / "absent")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    for _ in range(2):
        assert open_device("auto").kind == "host"
    records = [record for record in caplog.records if record.name == "cupy_turbo"]
    assert [record.levelname for record in records] == ["WARNING"] * warnings
    text = describe_installation()
    assert "auto                      is host here" in text
    assert ("not usable, though this machine has a GPU: CuPy cannot be imported" in text) == (warnings == 1)
    if warnings:
        assert "kernels will run on the host device: CuPy cannot be imported" in caplog.text
