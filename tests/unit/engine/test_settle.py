"""After a failure a batch's buffers are used again only when nothing queued can touch them, whatever its events say."""

from __future__ import annotations

import numpy as np
import pytest

from cupy_turbo.core.errors import DeviceLostError
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.device import open_device
from cupy_turbo.engine import engine  # wait_for is looked up where the engine finds it
from cupy_turbo.engine.batch import BatchData
from cupy_turbo.models.step import StepLimits
from cupy_turbo.testing.faults import Fault, inject

LIMITS = StepLimits(max_num_seqs=2, max_num_tokens=4, max_model_len=32, block_size=16)


def upload_without_record(device: Device, times: int = 1) -> tuple[BatchData, np.ndarray]:
    """A batch whose upload is queued and whose `fetched` was never recorded, and what the upload will write."""
    batch, stream = BatchData(device, LIMITS, phase=0), Stream.create(device=device)
    batch.inputs.host["perm"][:] = 7
    for _ in range(times):
        batch.inputs.upload(stream)
    batch.error = RuntimeError("the record failed")
    return batch, batch.inputs.host["perm"]


def test_a_failed_batch_waits_for_the_whole_device() -> None:
    device = open_device("host")
    batch, staging = upload_without_record(device)
    assert engine.wait_for(batch, device) is None
    staging[:] = 8  # the next step's
    assert batch.inputs.device["perm"].get().tolist() == [7, 7]


def test_what_fails_late_is_returned_after_all_has_settled() -> None:
    device = open_device("host")
    with inject(device, Fault(where="run", name="copy", times=3)):
        batch, _ = upload_without_record(device, times=3)
        assert "injected" in str(engine.wait_for(batch, device))
    device.synchronize()  # every failure was had


@pytest.mark.parametrize("error", [None, DeviceLostError("gone")])
def test_a_device_that_cannot_be_waited_for_is_lost(error: Exception | None) -> None:
    device = open_device("host")
    batch, _ = upload_without_record(device)
    with inject(device, Fault(where="sync", times=10_000, error=error)) as (injection,):
        assert isinstance(engine.wait_for(batch, device), DeviceLostError)
    assert injection.fired == 1 if error else injection.fired > 100
