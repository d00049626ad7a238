"""`ModelExecutor`: the thread that runs batches; it launches and never waits for the device."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any, NoReturn

import numpy as np

from cupy_turbo.core.context import Context
from cupy_turbo.core.queue import Queue
from cupy_turbo.core.stream import Event, Stream
from cupy_turbo.engine.batch import BatchData
from cupy_turbo.models.language_model import LanguageModel
from cupy_turbo.models.step import PADDING

_log = logging.getLogger("cupy_turbo")


class ModelExecutor:
    """Run every batch of `inbound` through the model, in order, and hand it on to `outbound`.

    ``ModelExecutor()`` is empty and false. A batch comes back as soon as its work is *queued*; its `done` and
    `fetched` events say when it is finished. An exception in a step is stored in ``batch.error``, `done` and `fetched`
    are still recorded, and the next batch runs. Until its slot is initialised again, a sequence of the failed step has
    no valid state on the device (its row of the block table may name blocks of others), so its rows in later batches
    are masked.

    Parameters
    ----------
    model : LanguageModel
        Called as ``prepare``, ``forward``, ``unprepare`` with the context's stream current.
    context : Context
        Its stream is the compute stream, entered by the executor thread.
    device_id : int
        Number of the device that the context's stream belongs to (0 on `host`).
    inbound, outbound : Queue of BatchData
        Where batches come from and go to. Closing `inbound` ends the thread once it is drained; `outbound` is then
        closed in turn, which wakes the engine if it waits there.

    Raises
    ------
    ValueError
        If the context has no stream, or its device is not `device_id`.

    Notes
    -----
    Move-only: copying raises, `move` transfers. Dropping a running executor closes, drains and joins it.
    Inputs and results cross on streams of their own: on one shared copy stream the inputs of step k+1 would queue
    behind the results of step k, which wait for its computation, and nothing would overlap.

    **Source:** TurboMind `engine/model_executor.cc`; differs in that errors travel in the batch and `stop` exists.
    """

    def __init__(
        self,
        model: LanguageModel | None = None,
        context: Context | None = None,
        device_id: int = 0,
        inbound: Queue[BatchData] | None = None,
        outbound: Queue[BatchData] | None = None,
    ) -> None:
        given = [part is not None for part in (model, context, inbound, outbound)]
        self._loop: _ExecutorLoop | None = None
        if not any(given):
            return
        if model is None or context is None or inbound is None or outbound is None:
            raise ValueError("ModelExecutor takes model, context, inbound and outbound together, or nothing")
        self._loop = _ExecutorLoop(model, context, device_id, inbound, outbound)

    def start(self) -> None:
        """Start the executor thread; once only.

        Raises
        ------
        ValueError
            If this executor is empty.
        RuntimeError
            If it was started before.
        """
        self._require("start").start()

    def stop(self) -> None:
        """Close `inbound`, let the queued batches run, join the thread; idempotent, a no-op when empty."""
        if self._loop is not None:
            self._loop.stop()

    def move(self) -> ModelExecutor:
        """Transfer this executor, running or not, to a new owner and become empty."""
        loop, self._loop = self._require("move"), None
        moved = ModelExecutor()
        moved._loop = loop
        return moved

    @property
    def error(self) -> BaseException | None:
        """What ended the thread before its time, None if nothing did."""
        return None if self._loop is None else self._loop.error

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller runs on the executor's thread."""
        return self._loop is not None and self._loop.thread is threading.current_thread()

    @property
    def is_running(self) -> bool:
        """Whether the thread is alive."""
        return self._loop is not None and self._loop.is_alive

    def _require(self, call: str) -> _ExecutorLoop:
        if self._loop is None:
            raise ValueError(f"ModelExecutor.{call}() on an empty executor: it was moved from or never given a model")
        return self._loop

    def __bool__(self) -> bool:
        return self._loop is not None

    def __enter__(self) -> ModelExecutor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def __del__(self) -> None:
        # The thread holds the loop, not this object, so the last owner can still get here while it runs.
        loop = getattr(self, "_loop", None)
        if loop is not None:
            loop.stop()

    def __copy__(self) -> NoReturn:
        raise TypeError("ModelExecutor cannot be copied; use move()")

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        self.__copy__()

    def __repr__(self) -> str:
        if self._loop is None:
            return "ModelExecutor()"
        return f"ModelExecutor({self._loop.stream!r}, {'running' if self.is_running else 'not running'})"


class _ExecutorLoop:
    """What the thread owns: the streams of a step and the two queues."""

    def __init__(
        self,
        model: LanguageModel,
        context: Context,
        device_id: int,
        inbound: Queue[BatchData],
        outbound: Queue[BatchData],
    ) -> None:
        if not context.stream:
            raise ValueError("ModelExecutor needs a context with a stream to compute on")
        self.stream = context.stream
        self.device = self.stream.device
        if self.device.index != device_id:
            raise ValueError(f"device_id is {device_id}, but the context's stream belongs to {self.device.name}")
        self.model, self.context, self.inbound, self.outbound = model, context, inbound, outbound
        self.upload = Stream.create(device=self.device)
        self.download = Stream.create(device=self.device)
        self.thread: threading.Thread | None = None
        self.error: BaseException | None = None
        self._undefined: set[int] = set()
        self._process = os.getpid()

    @property
    def is_alive(self) -> bool:
        return self.thread is not None and self.thread.is_alive()

    def start(self) -> None:
        if self.thread is not None:
            raise RuntimeError("ModelExecutor.start() was called before; an executor starts once")
        self.thread = threading.Thread(target=self._run, name="cupy_turbo-executor", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        if os.getpid() != self._process:  # a forked child has no thread, and the queue's lock may have been held
            return
        self.inbound.close()
        if self.thread is threading.current_thread():
            return
        if self.thread is not None:
            self.thread.join()
        vars(self).pop("model", None)  # a stopped executor keeps no memory of the device

    def _run(self) -> None:
        try:
            with self.device, self.context:
                for batch in self.inbound:  # ends when the queue is closed and drained
                    self.run_batch(batch)
                    self.outbound.push(batch)
        except BaseException as error:
            self.error = error
            _log.error("the executor died: %r", error)
        finally:
            self.inbound.close()
            self.outbound.close()

    def run_batch(self, batch: BatchData) -> None:
        """Queue all of a batch's work; whatever goes wrong is kept in the batch."""
        try:
            self._mask_undefined(batch)
            _record(batch.upload_start, self.upload)
            batch.inputs.upload(self.upload)
            batch.ready.record(self.upload)
            self.stream.wait(batch.ready)
            _record(batch.compute_start, self.stream)
            self.model.prepare(batch)
            self.model.forward(batch)
            self.model.unprepare(batch)
        except BaseException as error:
            batch.error = error
        try:
            batch.done.record(self.stream)
            self.download.wait(batch.done)
            batch.results.download(self.download)
            batch.fetched.record(self.download)
        except BaseException as error:
            batch.error = batch.error or error
        if batch.error is not None:
            self._undefined.update(batch.held.tolist())

    def _mask_undefined(self, batch: BatchData) -> None:
        """Take the rows of failed sequences out of a batch that was filled before the failure was known."""
        if not self._undefined:
            return
        fields = batch.inputs.host
        self._undefined.difference_update(fields["init_slots"][: batch.num_inits].tolist())
        undefined = list(self._undefined)
        for slots in (fields["perm"][: batch.num_rows], fields["sample_slots"][: batch.num_samples]):
            slots[np.isin(slots, undefined)] = PADDING


def _record(event: Event, stream: Stream) -> None:
    if event:
        event.record(stream)
