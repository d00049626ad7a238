"""What a batch that was read means for its requests: their tokens, their ends, and the slots they give back."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cupy_turbo.core.errors import RequestFailedError
from cupy_turbo.engine.batch import BatchData
from cupy_turbo.engine.block_manager import BlockManager
from cupy_turbo.engine.request import FinishReason, Request
from cupy_turbo.engine.scheduler import Scheduler
from cupy_turbo.engine.slots import SlotTable
from cupy_turbo.models.step import TokenStatus

_FINISH: dict[int, FinishReason] = {TokenStatus.STOPPED: "stop", TokenStatus.LENGTH: "length"}


class Delivery:
    """Passes tokens on and ends requests; belongs to the engine thread.

    Parameters
    ----------
    slots : SlotTable
        Live sequences; `live` falls when a request ends.
    blocks : BlockManager
        Gets a slot's blocks back once no batch under way holds the slot.
    scheduler : Scheduler
        Forgets what has ended.
    """

    def __init__(self, slots: SlotTable, blocks: BlockManager, scheduler: Scheduler) -> None:
        self._slots, self._blocks, self._scheduler = slots, blocks, scheduler

    def deliver(self, batch: BatchData) -> None:
        """Pass on every sampled token of a batch that went well."""
        slots = batch.inputs.host["sample_slots"][: batch.num_samples]
        rows = np.flatnonzero(self._slots.live[slots] & (slots >= 0))  # no padding, none that had ended before
        tokens = batch.results.host["tokens"][rows].tolist()
        statuses = batch.results.host["status"][rows].tolist()
        for slot, token, status in zip(slots[rows].tolist(), tokens, statuses, strict=True):
            if status == TokenStatus.RUNNING:
                if not self._request(slot).deliver((token,)):
                    self.end(slot, "abort")  # nobody listens any more
            elif status in _FINISH:
                self.end(slot, _FINISH[status], tokens=(token,))
            else:
                self.end(slot, "error", _bad_row(status))

    def fail(self, slots: Iterable[int], cause: BaseException) -> int:
        """End the requests of these slots because a step of theirs failed; return how many had not ended before."""
        live = [slot for slot in slots if self._slots.live[slot]]
        for slot in live:
            self.end(slot, "error", caused(RequestFailedError(f"a step of this request failed: {cause!r}"), cause))
        return len(live)

    def end(
        self, slot: int, reason: FinishReason, error: BaseException | None = None, tokens: tuple[int, ...] = ()
    ) -> None:
        """End the request of a slot, unless it has ended; the slot is released once no batch under way holds it."""
        if not self._slots.live[slot]:
            return
        self._slots.live[slot] = False
        self._scheduler.forget(slot)
        self._request(slot).deliver(tokens, reason, error)
        if not self._slots.in_flight[slot]:
            self._release(slot)

    def give_back(self, batch: BatchData) -> None:
        """Count a batch as read, and release the slots of it that have ended."""
        held = batch.held
        self._slots.in_flight[held] -= 1
        for slot in held[~self._slots.live[held] & (self._slots.in_flight[held] == 0)].tolist():
            self._release(slot)

    def _release(self, slot: int) -> None:
        self._blocks.release(slot)
        self._slots.release(slot)

    def _request(self, slot: int) -> Request:
        request = self._slots.requests[slot]
        assert request is not None, slot
        return request


def caused(error: BaseException, cause: BaseException) -> BaseException:
    """Return `error` with its cause; each request gets one of its own, since raising writes to the exception."""
    error.__cause__ = cause
    return error


def _bad_row(status: int) -> RequestFailedError:
    if status == TokenStatus.NON_FINITE:
        return RequestFailedError(
            "the logits are not finite (NaN, or minus infinity throughout): check the weights and the dtype"
        )
    return RequestFailedError(f"the device gave status {status} for a row that is running: its state was overwritten")
