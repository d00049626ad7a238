"""Waiting for a batch in such a way that its buffers can be used again, also after a failure."""

from __future__ import annotations

from cupy_turbo.core.errors import DeviceLostError
from cupy_turbo.core.protocols import Device
from cupy_turbo.engine.batch import BatchData

ATTEMPTS = 1000
"""Waits for the device after a failure; each may report one more operation that failed."""


def wait_for(batch: BatchData, device: Device) -> Exception | None:
    """Wait until the device has let go of a batch; return a failure that showed only now, None if there is none.

    A step that failed may have recorded only some of its events, so that `fetched` is an old record and says nothing:
    its staging could be rewritten while a copy still reads it. Then the whole device is waited for.
    """
    late: Exception | None = None
    try:
        batch.fetched.sync()
    except Exception as error:
        late = error
    if late is None and batch.error is None:
        return None
    for _ in range(ATTEMPTS):
        if isinstance(late, DeviceLostError):
            return late
        try:
            device.synchronize()
            return late
        except Exception as error:
            late = error if late is None or isinstance(error, DeviceLostError) else late
    lost = DeviceLostError(f"the device cannot be waited for: {late!r}")
    lost.__cause__ = late
    return lost
