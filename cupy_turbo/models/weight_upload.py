"""WeightUpload: file to device through two pinned buffers, so that reading one chunk overlaps the copy of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cupy_turbo.checkpoint.checkpoint import TensorSpec
from cupy_turbo.core.dtypes import DType
from cupy_turbo.core.errors import CheckpointError
from cupy_turbo.core.protocols import Array, Device
from cupy_turbo.core.stream import Event, Stream

STAGING_BYTES = 16 << 20
"""Size of each of the two pinned buffers: large enough for full bus speed, small beside the model."""

_CHECK_ELEMENTS = 1 << 17
"""Elements looked at together for NaN and infinity: they are still in the cache from the conversion."""

_EXPONENT = {"float32": 0x7F800000, "float16": 0x7C00, "bfloat16": 0x7F80}
"""Bits that are all ones in NaN and infinity only."""


class WeightUpload:
    """Convert tensors to one dtype and copy them to a device, chunk by chunk, on a stream of its own.

    Parameters
    ----------
    device : Device
        Where the arrays are.
    dtype : numpy.dtype
        Type of the arrays: float32, float16 or bfloat16.
    largest : int
        Bytes of the largest tensor to come; the buffers need not be larger.
    advance : callable
        Told the bytes of each chunk that is on its way.
    """

    def __init__(self, device: Device, dtype: DType, *, largest: int, advance: Callable[[int], object]) -> None:
        self.device, self.dtype, self.advance = device, dtype, advance
        size = min(STAGING_BYTES, largest) // dtype.itemsize
        self.buffers = [device.pinned((size,), dtype) for _ in range(2)]
        self.copied = [Event.create(device=device) for _ in self.buffers]
        self.stream = Stream.create(device=device)
        self.num_chunks = 0

    def send(self, spec: TensorSpec, target: Array) -> None:
        """Read a tensor once and queue its copies.

        Parameters
        ----------
        spec : TensorSpec
            The tensor.
        target : Array
            Contiguous, of the tensor's shape.

        Raises
        ------
        CheckpointError
            If the file has changed, or a value is not finite in the target's type, naming the tensor.
        """
        if spec.shape != target.shape:
            raise CheckpointError(f"{spec.source}: {spec.name} has the shape {spec.shape}, not {target.shape}")
        row_size = int(np.prod(spec.shape[1:]))
        rows_at_once = max(1, self.buffers[0].size // row_size)
        for start in range(0, spec.shape[0], rows_at_once):
            stop = min(start + rows_at_once, spec.shape[0])
            slot = self.num_chunks % 2
            self.copied[slot].sync()  # until then the device may be reading the buffer
            staged = self.buffers[slot][: (stop - start) * row_size].reshape(stop - start, *spec.shape[1:])
            _convert(spec, spec.read(start, stop), staged)
            self.device.copy(target[start:stop], staged, stream=self.stream)
            self.copied[slot].record(self.stream)
            self.num_chunks += 1
            self.advance(staged.nbytes)

    def finish(self) -> None:
        """Wait until everything is on the device."""
        self.stream.sync()


def _convert(spec: TensorSpec, rows: npt.NDArray[np.generic], staged: npt.NDArray[np.generic]) -> None:
    """Write rows into the staging buffer in its type; a value that is not finite there is an error."""
    source, target = rows.reshape(-1), staged.reshape(-1)
    exponent = _EXPONENT[target.dtype.name]
    bits: npt.NDArray[Any] = target.view(np.uint32 if target.dtype.itemsize == 4 else np.uint16)
    magnitude = 0x7FFFFFFF if target.dtype.itemsize == 4 else 0x7FFF
    for start in range(0, target.size, _CHECK_ELEMENTS):
        part = slice(start, start + _CHECK_ELEMENTS)
        with np.errstate(over="ignore"):  # float16 has no 70,000: reported below, with the tensor's name
            target[part] = source[part]
        # Without the sign the bits of a float sort like its magnitude, so one maximum finds NaN and infinity.
        if int((bits[part] & magnitude).max()) >= exponent:
            raise _not_finite(spec, source[part], target.dtype)


def _not_finite(spec: TensorSpec, values: npt.NDArray[np.generic], dtype: DType) -> CheckpointError:
    if not np.isfinite(values.astype(np.float32)).all():
        return CheckpointError(f"{spec.source}: {spec.name} holds NaN or infinity; the checkpoint is damaged")
    return CheckpointError(
        f"{spec.source}: {spec.name} has values beyond the range of {dtype}; load it as bfloat16 or float32"
    )
