"""Running the small kernels in `probes/`: what the tests of the primitives share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream

PROBES = Path(__file__).parent / "probes"
NARROW = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]

Run = Callable[..., list[np.ndarray]]


class Out:
    """An output of a probe: shape, dtype, and what it holds before the launch (poison if not given)."""

    def __init__(self, shape: int | tuple[int, ...], dtype: Any = np.float32, start: Any = None) -> None:
        self.shape, self.dtype, self.start = shape, np.dtype(dtype), start


def launch(device: Device, name: str, grid: Any, block: Any, *args: Any, shared_bytes: int = 0, **defines: Any) -> list:
    """Run a probe; NumPy arrays are uploaded, the `Out`s come back."""
    stream = Stream.create(device=device)
    outputs, converted = [], []
    for arg in args:
        if isinstance(arg, Out):
            if arg.start is None:
                arg = device.empty(arg.shape, arg.dtype)
            else:
                arg = device.upload(np.broadcast_to(np.array(arg.start, arg.dtype), arg.shape).copy())
            outputs.append(arg)
        elif isinstance(arg, np.ndarray):
            arg = device.upload(arg)
        converted.append(arg)
    device.kernel(name, **defines)(grid, block, converted, shared_bytes=shared_bytes, stream=stream)
    stream.sync()
    return [output.get() for output in outputs]
