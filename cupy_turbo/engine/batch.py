"""`BatchData`: one slot of the ring that the engine fills and the executor runs."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Event
from cupy_turbo.models.step import Step, StepLimits

_NO_SLOTS = np.empty(0, np.int64)


class BatchData(Step):
    """A step on its way between two threads, with the events that order it on the device.

    Parameters
    ----------
    device : Device
        Where its arenas and events live.
    limits : StepLimits
        Sizes of the arenas.
    phase : int
        Its number in the ring, 0 <= phase < phases. Pinned staging and device inputs belong to the phase and are
        rewritten only after that phase's `fetched`.
    timing : bool, default False
        Make events that measure time, and keep the start of the copy and of the computation too.

    Attributes
    ----------
    ready : Event
        Recorded on the upload stream behind the inputs; the compute stream waits for it.
    done : Event
        Recorded on the compute stream behind the results; the download stream waits for it. Recorded even when the
        step failed, so that nobody waits for ever.
    fetched : Event
        Recorded on the download stream; the engine syncs on it, the only host sync of a step.
    bucket : int
        Rows that a captured graph of this step has, 0 where none fits (a step with prefill).
    held : numpy.ndarray
        (n,) int64, the slots that have a row in this step, each once. They are not released before it was read.
    error : BaseException or None
        What the step died of. Its requests end with it; the slot comes back all the same.

    Notes
    -----
    Not copyable: two owners of one staging buffer would overwrite each other. **Source:** TurboMind `engine/batch.h`.
    """

    def __init__(self, device: Device, limits: StepLimits, *, phase: int, timing: bool = False) -> None:
        self.phase = phase
        self.bucket = 0
        self.held = _NO_SLOTS
        self.error: BaseException | None = None
        self.ready = Event.create(timing, device=device)
        self.done = Event.create(timing, device=device)
        self.fetched = Event.create(timing, device=device)
        self.upload_start = Event.create(True, device=device) if timing else Event()
        self.compute_start = Event.create(True, device=device) if timing else Event()
        super().__init__(device, limits)

    def clear(self) -> None:
        """Make this an empty batch for the next step."""
        super().clear()
        self.bucket = 0
        self.held = _NO_SLOTS
        self.error = None

    @property
    def perm(self) -> np.ndarray:
        """Slot of each row, (num_rows,) int32, -1 for padding; a view of the staging arena."""
        return self.inputs.host["perm"][: self.num_rows]

    def __copy__(self) -> NoReturn:
        raise TypeError("BatchData cannot be copied: its staging buffers have one owner")

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        self.__copy__()

    def __reduce__(self) -> NoReturn:
        self.__copy__()

    def __repr__(self) -> str:
        state = f", error={self.error!r}" if self.error else ""
        return (
            f"BatchData(phase={self.phase}, rows={self.num_rows}, decode_rows={self.num_decode_rows}, "
            f"tokens={self.num_tokens}, samples={self.num_samples}, bucket={self.bucket}{state})"
        )
