"""The engine thread: schedule a batch, push it, read the one before."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from cupy_turbo.core.context import Context
from cupy_turbo.core.errors import DeviceLostError, EngineDeadError, InvalidRequestError, QueueClosed, QueueEmpty
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.queue import Queue
from cupy_turbo.core.stream import Stream
from cupy_turbo.engine.admission import check_request
from cupy_turbo.engine.batch import BatchData
from cupy_turbo.engine.block_manager import BlockManager
from cupy_turbo.engine.config import EngineConfig
from cupy_turbo.engine.delivery import Delivery, caused
from cupy_turbo.engine.fill import BatchFiller
from cupy_turbo.engine.model_executor import ModelExecutor
from cupy_turbo.engine.request import FinishReason, Request
from cupy_turbo.engine.scheduler import Plan, Scheduler
from cupy_turbo.engine.settle import wait_for
from cupy_turbo.engine.slots import SlotTable
from cupy_turbo.engine.step_graphs import StepGraphs, graph_buckets
from cupy_turbo.models.language_model import LanguageModel

_log = logging.getLogger("cupy_turbo")


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
        Runs on the executor thread; let go by `close`.
    device : Device
        Where it runs.
    config : EngineConfig
        Sizes.
    observe : callable, optional
        Called on the engine thread with each batch that has been read, before it is filled again; its events then
        measure time. For timelines and benchmarks. What it raises is logged.

    Notes
    -----
    One loop serves every number of phases: while a free `BatchData` is left and there is something to run, a batch is
    filled and pushed; then the oldest batch under way is read. With two phases batch k+1 is pushed before the result
    of batch k is known.

    A step that fails before all of it is queued ends the requests in it; the executor masks their rows in the batch
    behind it. A failure that shows only when the device is waited for may have written anywhere, so it ends every
    request that holds a slot. In both cases those that wait go on. A lost device ends everything.

    **Source:** TurboMind `engine/engine.cc`; differs in that a failure ends requests, not the process.
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
        self._delivery = Delivery(self._slots, self._blocks, self._scheduler)
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
        self._process = os.getpid()
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
            If it could never run, or was submitted before.
        EngineDeadError
            If the engine was closed, its device died, or this process was forked from the engine's.
        """
        self.require_alive()
        check_request(request, self.config)
        if request.on_cancel is not None:
            raise InvalidRequestError(
                f"request {request.request_id} was submitted before; make a new Request", parameter="request"
            )
        request.on_cancel = self.cancel
        try:
            self._commands.push(request)
        except QueueClosed:
            raise EngineDeadError(self._closed_message()) from self._death

    def cancel(self, request: Request) -> None:
        """End a request as ``"abort"`` as soon as the engine thread gets to it; a no-op once it has ended."""
        if self.is_forked:  # the lock of the queue may have been held at the fork
            return
        with suppress(QueueClosed):  # a closing engine ends every request
            self._commands.push(_Cancel(request))

    def close(self) -> None:
        """Abort what is live, let the device finish what is under way, join both threads; idempotent.

        Called on one of those threads it only asks for all this. In a forked child it does nothing.
        """
        if self.is_forked:
            return
        self._commands.close()
        if self.is_own_thread:
            return
        if self._thread.ident is None:  # never started: nobody else answers
            self._end_all()
        else:
            self._thread.join()
        self._executor.stop()

    @property
    def is_alive(self) -> bool:
        """Whether requests can be submitted."""
        return not self.is_forked and self._thread.is_alive() and not self._commands.closed

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller runs on the engine's or the executor's thread, where a finalizer may be run."""
        return self._thread is threading.current_thread() or self._executor.is_own_thread

    @property
    def is_forked(self) -> bool:
        """Whether this process is a forked child of the engine's: threads and device stayed with the parent."""
        return os.getpid() != self._process

    def require_alive(self) -> None:
        """Raise EngineDeadError, saying why, if the engine takes no requests here."""
        if self.is_forked or self._commands.closed:
            raise EngineDeadError(self._closed_message()) from self._death

    def check_integrity(self) -> None:
        """Raise AssertionError unless an idle engine holds no slot, no block and no batch under way."""
        self._blocks.check_integrity()
        assert self._slots.num_held == 0 and self._blocks.num_free == self._blocks.num_blocks
        assert self._scheduler.num_waiting == 0 and self._under_way == 0
        assert self._commands.closed or len(self._free) == self.config.phases

    # What follows runs on the engine thread.

    def _run(self) -> None:
        try:
            with self.device:
                while self._accept_commands():
                    self._step()
                self._wind_down()
        except BaseException as error:  # nothing may end this thread without ending the requests
            self._death = error
            _log.error("the engine died: %r", error)
        finally:
            self._commands.close()
            self._end_all()  # before the executor is waited for, which a hung device may keep
            self._executor.stop()
            self._free.clear()  # the staging buffers

    def _wind_down(self) -> None:
        """Abort everything and read what is under way, so that no slot is left."""
        self._end_all()
        while self._under_way:
            self._read_batch()

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
        slot = self._slots.slot_of(request)
        if slot is not None:
            self._delivery.end(slot, "abort")
        elif request.finish_reason is None and self._scheduler.remove(request):
            request.deliver(finish_reason="abort")

    def _step(self) -> None:
        while self._free and (plan := self._scheduler.schedule()):
            self._push(plan)
        if self._under_way:
            self._read_batch()

    def _push(self, plan: Plan) -> None:
        batch = self._free.popleft()
        try:
            self._filler.fill(batch, plan)
        except Exception as error:  # nothing of this step has left the host
            _log.exception("a step could not be filled, %d requests end with it", len(plan.slots))
            self._free.appendleft(batch)
            if not self._delivery.fail(plan.slots, error):
                raise  # with nobody to end, the same plan would come for ever
            return
        try:
            self._outbound.push(batch)
        except QueueClosed:
            raise self._executor_death() from None
        self._under_way += 1

    def _read_batch(self) -> None:
        """Wait for the oldest batch under way and pass its tokens on."""
        try:
            batch = self._inbound.pop()
        except QueueClosed:
            raise self._executor_death() from None
        self._under_way -= 1
        error, late = batch.error, wait_for(batch, self.device)
        if error is None and late is None:
            self._delivery.deliver(batch)
            self._show(batch)
        else:
            self._fail(batch, error, late)
        self._delivery.give_back(batch)
        self._free.append(batch)

    def _executor_death(self) -> BaseException:
        return self._executor.error or EngineDeadError("the executor thread ended early")

    def _fail(self, batch: BatchData, error: BaseException | None, late: Exception | None) -> None:
        for cause in (error, late):
            if isinstance(cause, DeviceLostError) or not isinstance(cause, Exception | None):
                raise cause
        cause = late or error
        assert cause is not None
        slots = batch.held.tolist() if late is None else self._slots.held()
        _log.error("a step failed, %d requests end with it: %r", len(slots), cause)
        self._delivery.fail(slots, cause)

    def _show(self, batch: BatchData) -> None:
        if self._observe is not None:
            try:
                self._observe(batch)
            except Exception:
                _log.exception("the observer of %r raised", batch)

    def _end_all(self) -> None:
        """Give every request that is left its terminal event."""
        dead = self._death
        for command in self._commands.abort():
            if isinstance(command, Request):
                self._scheduler.add(command)
        for request in self._scheduler.drain_waiting():
            request.deliver((), *self._last_words(dead))
        for slot in self._slots.held():
            self._delivery.end(slot, *self._last_words(dead))

    def _last_words(self, dead: BaseException | None) -> tuple[FinishReason, BaseException | None]:
        if dead is None:
            return "abort", None
        return "error", caused(EngineDeadError(self._closed_message()), dead)

    def _closed_message(self) -> str:
        if self.is_forked:
            return (
                f"the engine runs in process {self._process}, from which this one was forked: make a new LLM here, or "
                "start processes with multiprocessing's 'spawn' method"
            )
        if self._death is None:
            return "the engine is closed; make a new LLM"
        return f"the engine is dead ({self._death!r}); make a new LLM"
