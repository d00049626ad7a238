"""One generation as the engine sees it: ids in, events out, exactly one terminal event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from cupy_turbo.core.errors import QueueClosed
from cupy_turbo.core.queue import Queue

FinishReason = Literal["stop", "length", "abort", "error"]

GREEDY_TEMPERATURE = 1e-5
"""Below it sampling is greedy, as in vLLM; `ops.sample` draws the same line."""


class RequestEvent(NamedTuple):
    """New tokens of a request, the end of it, or both.

    Attributes
    ----------
    request : Request
        Whose event it is; requests may share one queue.
    token_ids : tuple of int
        Tokens since the last event, possibly none.
    finish_reason : str or None
        None while the request goes on. ``"stop"`` a stop id was sampled (it is the last token), ``"length"``
        `max_tokens` or the context is full, ``"abort"`` cancelled or shut down, ``"error"`` see `error`.
    error : BaseException or None
        Why, when `finish_reason` is ``"error"``.
    """

    request: Request
    token_ids: tuple[int, ...] = ()
    finish_reason: FinishReason | None = None
    error: BaseException | None = None


@dataclass(eq=False, kw_only=True)
class Request:
    """A prompt, its sampling state, and the queue that its events go to.

    Parameters
    ----------
    request_id : str
        Names the request in messages and outputs.
    prompt_ids : numpy.ndarray
        (P,) int32, P >= 1.
    stop_position : int
        Tokens that the sequence may reach, prompt included; > P.
    stop_ids : tuple of int
        Ids that end it, at most 32.
    temperature, top_k, top_p, min_p, seed
        As `SamplingParams`; the seed is resolved (0 <= seed < 2**64).
    events : Queue of RequestEvent
        Where the engine pushes events; the consumer pops them. Without a capacity. Closing it cancels the request at
        its next token.

    Attributes
    ----------
    on_cancel : callable or None
        Set by the engine that took the request.
    finish_reason : str or None
        As in its last `RequestEvent`; set just before that is pushed.
    """

    request_id: str
    prompt_ids: np.ndarray
    stop_position: int
    stop_ids: tuple[int, ...]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    events: Queue[RequestEvent]
    on_cancel: Callable[[Request], None] | None = field(default=None, init=False, repr=False)
    finish_reason: FinishReason | None = field(default=None, init=False)

    @property
    def num_prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.prompt_ids)

    @property
    def is_greedy(self) -> bool:
        """Whether it takes the most likely token: a temperature too small to divide by counts as zero."""
        return self.temperature < GREEDY_TEMPERATURE

    def cancel(self) -> None:
        """Ask the engine to end this request; it ends as ``"abort"`` unless it has ended before. Thread-safe."""
        if self.on_cancel is not None and self.finish_reason is None:
            self.on_cancel(self)

    def deliver(
        self,
        token_ids: tuple[int, ...] = (),
        finish_reason: FinishReason | None = None,
        error: BaseException | None = None,
    ) -> bool:
        """Push an event unless the request has ended; the first terminal event wins. Called on the engine thread.

        Returns
        -------
        bool
            Whether it was pushed: not after the end, nor to a queue that its owner has closed.
        """
        if self.finish_reason is not None:
            return False
        self.finish_reason = finish_reason
        try:
            self.events.push(RequestEvent(self, token_ids, finish_reason, error))
        except QueueClosed:
            return False
        return True
