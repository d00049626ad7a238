"""An engine without threads: every choice that two threads would make by chance is asked for, so that it shrinks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from cupy_turbo.core.protocols import Device
from cupy_turbo.core.queue import Queue
from cupy_turbo.engine.batch import BatchData
from cupy_turbo.engine.config import EngineConfig
from cupy_turbo.engine.engine import Engine
from cupy_turbo.engine.request import FinishReason, Request, RequestEvent
from cupy_turbo.models.language_model import LanguageModel
from tests.property.toy_model import ToyModel, answer

BLOCK_SIZE = 16


def toy_config(*, slots: int, tokens: int, blocks: int, phases: int, max_model_len: int = 64) -> EngineConfig:
    return EngineConfig(
        max_model_len=max_model_len,
        max_num_seqs=slots,
        max_num_batched_tokens=tokens,
        block_size=BLOCK_SIZE,
        num_blocks=blocks,
        phases=phases,
    )


class InlineRing:
    """Both queues of the ring: a pushed batch is run at once or, if `is_late`, when the engine waits for it."""

    def __init__(self, run: Callable[[BatchData], None], is_late: Callable[[], bool]) -> None:
        self._run, self._is_late = run, is_late
        self._pushed: deque[BatchData] = deque()
        self._queued: deque[BatchData] = deque()

    def push(self, batch: BatchData) -> None:
        self._pushed.append(batch)
        if not self._is_late():
            self._catch_up()

    def pop(self) -> BatchData:
        self._catch_up()
        return self._queued.popleft()

    def close(self) -> None:
        pass

    def _catch_up(self) -> None:
        while self._pushed:
            self._run(self._pushed[0])
            self._queued.append(self._pushed.popleft())


@dataclass
class Sent:
    """A request with what came back for it."""

    request: Request
    expected: tuple[tuple[int, ...], FinishReason]
    is_disturbed: bool = False
    tokens: list[int] = field(default_factory=list)
    ends: list[RequestEvent] = field(default_factory=list)

    def take(self, event: RequestEvent) -> None:
        assert not self.ends, f"request {self.request.request_id}: an event after its end"
        self.tokens.extend(event.token_ids)
        if event.finish_reason is not None:
            self.ends.append(event)

    def check(self) -> None:
        """Exactly one end; the tokens are those of a quiet run, up to where it was disturbed."""
        tokens, reason = self.expected
        name = f"request {self.request.request_id}"
        assert len(self.ends) == 1, f"{name} has no end"
        assert tuple(self.tokens) == tokens[: len(self.tokens)], f"{name}: wrong tokens"
        if self.ends[0].finish_reason != reason or len(self.tokens) != len(tokens):
            assert self.is_disturbed, f"{name} ended as {self.ends[0]}, not {reason}"
            assert self.ends[0].finish_reason in ("abort", "error")


def toy_request(
    name: str,
    prompt: list[int],
    max_tokens: int,
    seed: int,
    events: Queue[RequestEvent],
    stop_ids: tuple[int, ...] = (),
) -> Sent:
    request = Request(
        request_id=name,
        prompt_ids=np.array(prompt, np.int32),
        stop_position=len(prompt) + max_tokens,
        stop_ids=stop_ids,
        temperature=0.0 if seed % 2 else 1.0,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        seed=seed,
        events=events,
    )
    return Sent(request, answer(prompt, seed=seed, stop_position=request.stop_position, stop_ids=stop_ids))


class SteppedEngine:
    """A real `Engine` with the toy model whose loop is turned by `step`, on the caller's thread."""

    def __init__(
        self,
        device: Device,
        config: EngineConfig,
        *,
        wrap: Callable[[LanguageModel], LanguageModel] = lambda model: model,
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        self.device = device
        self.model = ToyModel(device, config.limits, config.num_blocks)
        self.engine = Engine(wrap(self.model), device, config)
        loop = self.engine._executor._loop
        assert loop is not None

        def run(batch: BatchData) -> None:
            with device, loop.context:
                loop.run_batch(batch)
            if batch.error is not None:
                self._disturb(batch.held.tolist())  # and nobody else

        self.engine._outbound = self.engine._inbound = InlineRing(run, is_late)  # type: ignore[assignment]
        self.events: Queue[RequestEvent] = Queue()
        self.sent: dict[str, Sent] = {}

    def disturb_everybody(self) -> None:
        """Whoever has not ended yet may end as failed."""
        for sent in self.sent.values():
            sent.is_disturbed |= not sent.ends

    def _disturb(self, slots: list[int]) -> None:
        for slot in slots:
            request = self.engine._slots.requests[slot]
            assert request is not None
            self.sent[request.request_id].is_disturbed = True

    def submit(self, prompt: list[int], max_tokens: int, seed: int, stop_ids: tuple[int, ...] = ()) -> Sent:
        sent = toy_request(str(len(self.sent)), prompt, max_tokens, seed, self.events, stop_ids)
        self.sent[sent.request.request_id] = sent
        self.engine.submit(sent.request)
        return sent

    @property
    def is_busy(self) -> bool:
        engine = self.engine
        return bool(engine._slots.num_held or engine._scheduler.num_waiting or engine._under_way or engine._commands)

    def step(self) -> None:
        """One turn of the engine's loop, if there is anything to do, and the look at what came of it."""
        if self.is_busy:
            with self.device:
                self.engine._accept_commands()
                self.engine._step()
        self.take_events()

    def take_events(self) -> None:
        while len(self.events):
            event = self.events.pop()
            self.sent[event.request.request_id].take(event)

    def finish(self, limit: int = 1000) -> None:
        """Step until nothing is left; an engine that never gets there is stuck."""
        for _ in range(limit):
            if not self.is_busy:
                break
            self.step()
        assert not self.is_busy, "the engine is stuck"

    def close(self) -> None:
        """End what is live as `Engine.close` does, and check every request and the books."""
        self.engine._commands.close()
        with self.device:
            self.engine._wind_down()
        self.take_events()
        self.engine.close()

    def check(self) -> None:
        self.engine.check_integrity()
        for sent in self.sent.values():
            sent.check()
