"""Calls into CUDA: what an error means, and when memory is freed."""

from __future__ import annotations

import gc
import os
import threading
import warnings
from typing import Any

import numpy as np
import pytest

from cupy_turbo.core.errors import DeviceError, DeviceLostError
from cupy_turbo.device.gpu import Gpu, Owner


def test_an_error_is_this_packages_and_the_next_call_works(gpu: Gpu, runtime: Any) -> None:
    runtime.failures["deviceSynchronize"] = [1]
    with pytest.raises(DeviceError, match="cuda:0: cudaError1"):
        gpu.synchronize()
    gpu.synchronize()


@pytest.mark.parametrize("status", [700, 714, 716, 719, 214, 999])
def test_after_a_sticky_error_nothing_calls_cuda_again(gpu: Gpu, runtime: Any, status: int) -> None:
    runtime.failures["deviceSynchronize"] = [status]
    with pytest.raises(DeviceLostError, match="compute-sanitizer"):
        gpu.synchronize()
    runtime.calls.clear()
    for use in (gpu.synchronize, lambda: gpu.allocate(8), lambda: gpu.pin(8), lambda: gpu.call(runtime.memGetInfo)):
        with pytest.raises(DeviceLostError, match=f"cudaError{status}"):
            use()
    assert runtime.calls == []
    assert not gpu.is_usable


def test_a_failed_event_is_an_error_not_a_pending_one(gpu: Gpu, runtime: Any) -> None:
    runtime.unfinished = {7}
    assert gpu.call(gpu.query_event, 7) is False
    assert gpu.call(gpu.query_event, 8) is True
    runtime.failures["eventQuery"] = [700]
    with pytest.raises(DeviceLostError):
        gpu.call(gpu.query_event, 8)


def test_dropped_memory_is_freed_behind_all_queued_work(gpu: Gpu, runtime: Any) -> None:
    kept, dropped, pinned = gpu.allocate(64), gpu.allocate(32), gpu.pin(16)
    pointers = dropped.pointer, pinned.pointer
    runtime.calls.clear()
    del dropped, pinned
    assert runtime.calls == []  # not from a destructor: it may run anywhere
    gpu.allocate(8)
    assert runtime.calls[:3] == [("deviceSynchronize",), ("free", pointers[0]), ("freeHost", pointers[1])]
    assert ("free", kept.pointer) not in runtime.calls


def test_every_view_of_pinned_memory_keeps_it(gpu: Gpu, runtime: Any) -> None:
    view = np.asarray(gpu.pin(64)).view(np.float32).reshape(4, 4)[1:, ::2]
    gpu.collect()
    assert "freeHost" not in runtime.names()
    view[:] = 1.0
    del view
    gpu.collect()
    assert "freeHost" in runtime.names()


def test_out_of_memory_looks_for_cycles_first(gpu: Gpu, runtime: Any) -> None:
    gc.disable()  # else a collection that falls between these lines frees the cycle before memory is short
    try:
        cycle: list[Any] = [gpu.allocate(64)]
        cycle.append(cycle)
        del cycle
        runtime.failures["malloc"] = [2]
        gpu.allocate(128)
    finally:
        gc.enable()
    assert runtime.names()[-4:] == ["malloc", "deviceSynchronize", "free", "malloc"]


def test_out_of_memory_says_how_much_there_is(gpu: Gpu, runtime: Any) -> None:
    runtime.failures["malloc"] = [2, 2]
    with pytest.raises(DeviceError, match="cuda:0 cannot allocate 5,000 bytes: 1,000 of 4,000 are free"):
        gpu.allocate(5000)
    runtime.failures["hostAlloc"] = [2, 2]
    with pytest.raises(DeviceError, match="cannot pin 5,000 bytes"):
        gpu.pin(5000)


def test_a_capture_neither_waits_nor_allocates(gpu: Gpu, runtime: Any) -> None:
    dropped = gpu.allocate(64)
    gpu.capture = []
    del dropped
    runtime.calls.clear()
    for use in (gpu.synchronize, gpu.collect, lambda: gpu.allocate(8), lambda: gpu.pin(8)):
        with pytest.raises(DeviceError, match="while a graph is captured"):
            use()
    assert runtime.calls == []
    gpu.capture = None
    gpu.collect()


def test_a_wait_for_the_device_waits_for_another_threads_capture(gpu: Gpu, runtime: Any) -> None:
    thread = threading.Thread(target=gpu.synchronize)
    with gpu.exclusive:
        thread.start()
        thread.join(0.05)
        assert runtime.calls == []
        runtime.record("end_capture")
    thread.join()
    assert runtime.names() == ["end_capture", "deviceSynchronize"]


def test_a_forked_child_gets_an_error_and_calls_nothing(gpu: Gpu, runtime: Any) -> None:
    memory = gpu.allocate(8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of forks beside threads
        child = os.fork()
    if child == 0:
        runtime.calls.clear()
        try:
            gpu.allocate(8)
        except DeviceError as error:
            del memory
            os._exit(0 if "spawn" in str(error) and runtime.calls == [] else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    gpu.synchronize()  # the parent goes on


def test_what_cuda_can_no_longer_destroy_is_kept(gpu: Gpu, runtime: Any) -> None:
    destroyed = []

    class Raw:
        def __del__(self) -> None:
            destroyed.append(self.__class__)

    Owner(gpu, Raw())
    assert len(destroyed) == 1
    lost = Owner(gpu, Raw())
    runtime.failures["deviceSynchronize"] = [700]
    with pytest.raises(DeviceLostError):
        gpu.synchronize()
    del lost
    assert len(destroyed) == 1
