"""The engine thread: schedule a batch, push it, read the one before."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cupy_turbo.core.context import Context
from cupy_turbo.core.errors import (
    CupyTurboError,
    DeviceLostError,
    EngineDeadError,
    InvalidRequestError,
    QueueClosed,
    QueueEmpty,
    RequestFailedError,
)
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.queue import Queue
from cupy_turbo.core.stream import Stream
from cupy_turbo.engine.batch import BatchData
from cupy_turbo.engine.block_manager import BlockManager
from cupy_turbo.engine.config import EngineConfig
from cupy_turbo.engine.fill import BatchFiller
from cupy_turbo.engine.model_executor import ModelExecutor
from cupy_turbo.engine.request import FinishReason, Request
from cupy_turbo.engine.scheduler import Scheduler
from cupy_turbo.engine.slots import SlotTable
from cupy_turbo.engine.step_graphs import StepGraphs, graph_buckets
from cupy_turbo.models.language_model import LanguageModel
from cupy_turbo.models.step import TokenStatus

_log = logging.getLogger("cupy_turbo")

_FINISH: dict[int, FinishReason] = {TokenStatus.STOPPED: "stop", TokenStatus.LENGTH: "length"}


@dataclass(frozen=True, slots=True)
class _Cancel:
    request: Request


class Engine:
    """Runs requests to their end: owns the scheduler, the ring of batches and the executor.

    `submit` and `cancel` may be called from any thread; all scheduling state belongs to the engine thread. Every
    submitted request gets exactly one terminal event, whatever happens.

    Parameters
    ----------
    model : LanguageModel
        Runs on the executor thread.
    device : Device
        Where it runs.
    config : EngineConfig
        Sizes.
    observe : callable, optional
        Called on the engine thread with each batch that has been read, before it is filled again; its events then
        measure time. For timelines and benchmarks.

    Notes
    -----
    One loop serves every number of phases: while a free `BatchData` is left and there is something to run, a batch is
    filled and pushed; then the oldest batch under way is read. With two phases batch k+1 is pushed before the result
    of batch k is known. **Source:** TurboMind `engine/engine.cc`.
    """

    def __init__(
        self,
        model: LanguageModel,
        device: Device,
        config: EngineConfig,
        *,
        observe: Callable[[BatchData], None] | None = None,
    ) -> None:
        self.config, self.device, self._observe = config, device, observe
        self._slots = SlotTable(config.max_num_seqs)
        self._blocks = BlockManager(config.num_blocks, config.max_num_seqs)
        self._scheduler = Scheduler(config.limits, self._slots, self._blocks)
        self._filler = BatchFiller(
            self._slots, self._blocks, block_size=config.block_size, buckets=graph_buckets(config.max_num_seqs)
        )
        self._commands: Queue[Request | _Cancel] = Queue()
        self._outbound: Queue[BatchData] = Queue()
        self._inbound: Queue[BatchData] = Queue()
        timing = observe is not None
        self._free = deque(
            BatchData(device, config.limits, phase=phase, timing=timing) for phase in range(config.phases)
        )
        self._under_way = 0
        self._death: BaseException | None = None
        context = Context(stream=Stream.create(device=device))
        self._executor = ModelExecutor(StepGraphs(model), context, device.index, self._outbound, self._inbound)
        self._thread = threading.Thread(target=self._run, name="cupy_turbo-engine", daemon=True)

    def start(self) -> None:
        """Start the executor thread and the engine thread."""
        self._executor.start()
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Accept a request; its events arrive on ``request.events``.

        Raises
        ------
        InvalidRequestError
            If it could never run: the pool is smaller than its longest sequence.
        EngineDeadError
            If the engine was closed or its device died.
        """
        needed = self._scheduler.blocks_needed(request)
        if needed > self.config.num_blocks:
            size = self.config.block_size
            raise InvalidRequestError(
                f"request {request.request_id} may grow to {request.stop_position} tokens = {needed} KV blocks "
                f"of {size}, but the pool has {self.config.num_blocks}; lower max_tokens or give the engine more KV "
                "memory",
                parameter="max_tokens",
                value=request.stop_position - request.num_prompt_tokens,
            )
        request.on_cancel = self.cancel
        try:
            self._commands.push(request)
        except QueueClosed:
            raise EngineDeadError(self._closed_message()) from self._death

    def cancel(self, request: Request) -> None:
        """End a request as ``"abort"`` as soon as the engine thread gets to it; a no-op once it has ended."""
        with contextlib.suppress(QueueClosed):  # a closing engine ends every request
            self._commands.push(_Cancel(request))

    def close(self) -> None:
        """Abort what is live, let the device finish what is under way, join both threads; idempotent."""
        self._commands.close()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._executor.stop()

    @property
    def is_alive(self) -> bool:
        """Whether requests can be submitted."""
        return self._thread.is_alive() and not self._commands.closed

    def check_integrity(self) -> None:
        """Raise AssertionError unless an idle engine holds no slot and no block."""
        self._blocks.check_integrity()
        assert self._slots.num_held == 0 and self._blocks.num_free == self._blocks.num_blocks
        assert self._scheduler.num_waiting == 0 and len(self._free) == self.config.phases

    # What follows runs on the engine thread.

    def _run(self) -> None:
        try:
            with self.device:
                while self._accept_commands():
                    self._step()
                self._finish_all("abort")
                while self._under_way:
                    self._read_batch()
        except BaseException as error:  # nothing may end this thread without ending the requests
            self._death = error
            _log.error("the engine died: %r", error)
        finally:
            self._commands.close()
            self._executor.stop()
            self._finish_all("abort" if self._death is None else "error", self._death)

    def _accept_commands(self) -> bool:
        """Take what users have asked for, waiting only when there is nothing to run; False once closed."""
        idle = not (self._slots.num_held or self._scheduler.num_waiting or self._under_way)
        try:
            if idle:
                self._obey(self._commands.pop())
            while True:
                self._obey(self._commands.try_pop())
        except QueueEmpty:
            return not self._commands.closed
        except QueueClosed:
            return False

    def _obey(self, command: Request | _Cancel) -> None:
        if isinstance(command, Request):
            self._scheduler.add(command)
            return
        request = command.request
        if self._scheduler.remove(request):
            request.deliver(finish_reason="abort")
        elif request in self._slots.requests:
            self._finish(self._slots.requests.index(request), "abort")

    def _step(self) -> None:
        while self._free and (plan := self._scheduler.schedule()):
            batch = self._free.popleft()
            self._filler.fill(batch, plan)
            self._outbound.push(batch)
            self._under_way += 1
        if self._under_way:
            self._read_batch()

    def _read_batch(self) -> None:
        """Wait for the oldest batch under way and pass its tokens on."""
        batch = self._inbound.pop()
        self._under_way -= 1
        error = batch.error
        try:
            batch.fetched.sync()
        except CupyTurboError as failure:
            error = error or failure
        if self._observe is not None and error is None:
            self._observe(batch)
        slots = np.unique(batch.perm[batch.perm >= 0])
        self._slots.in_flight[slots] -= 1
        self._free.append(batch)
        if isinstance(error, DeviceLostError):
            raise error
        if error is not None:
            _log.error("a step failed, %d requests end with it: %r", len(slots), error)
            for slot in slots.tolist():
                self._finish(slot, "error", error)
        else:
            self._deliver(batch)
        for slot in slots.tolist():
            self._release_if_done(slot)

    def _deliver(self, batch: BatchData) -> None:
        count = batch.num_samples
        slots = batch.inputs.host["sample_slots"][:count].tolist()
        tokens = batch.results.host["tokens"][:count].tolist()
        statuses = batch.results.host["status"][:count].tolist()
        for slot, token, status in zip(slots, tokens, statuses, strict=True):
            if slot < 0 or not self._slots.live[slot]:
                continue  # padding, or a row that had ended before this batch was read
            if status == TokenStatus.RUNNING:
                request = self._slots.requests[slot]
                assert request is not None
                request.deliver((token,))
            elif status == TokenStatus.NON_FINITE:
                message = (
                    "the logits are not finite (NaN, or minus infinity throughout): check the weights and the dtype"
                )
                self._finish(slot, "error", RequestFailedError(message))
            else:
                self._finish(slot, _FINISH[status], tokens=(token,))

    def _finish(
        self,
        slot: int,
        reason: FinishReason,
        error: BaseException | None = None,
        tokens: tuple[int, ...] = (),
    ) -> None:
        """End the request of a slot; the slot itself is released once no batch under way holds it."""
        if not self._slots.live[slot]:
            return
        request = self._slots.requests[slot]
        assert request is not None
        self._slots.live[slot] = False
        self._scheduler.forget(slot)
        request.deliver(tokens, reason, error)
        self._release_if_done(slot)

    def _release_if_done(self, slot: int) -> None:
        held = self._slots.requests[slot] is not None
        if held and not self._slots.live[slot] and not self._slots.in_flight[slot]:
            self._blocks.release(slot)
            self._slots.release(slot)

    def _finish_all(self, reason: FinishReason, error: BaseException | None = None) -> None:
        """Give every request that is left its terminal event."""
        dead = EngineDeadError(self._closed_message()) if error is not None else None
        if dead is not None:
            dead.__cause__ = error
        for command in self._commands.abort():
            if isinstance(command, Request):
                command.deliver(finish_reason=reason, error=dead)
        for request in self._scheduler.drain_waiting():
            request.deliver(finish_reason=reason, error=dead)
        for slot in self._slots.held():
            self._finish(slot, reason, dead)

    def _closed_message(self) -> str:
        if self._death is None:
            return "the engine is closed; make a new LLM"
        return f"the engine is dead ({self._death!r}); make a new LLM"
