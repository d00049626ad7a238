"""`TextStream`: the iterator over an answer that is being written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from cupy_turbo.api.outputs import StreamDelta
from cupy_turbo.engine.request import Request, RequestEvent
from cupy_turbo.text.detokenizer import Detokenizer


class TextStream(Iterator[StreamDelta]):
    """Deltas of one request, in order; the last carries the ``finish_reason``.

    Leaving it cancels the request: `close`, the end of a ``with``, an exception in here, or dropping it, also when
    it was never iterated (a generator that was never started would not notice).

    Parameters
    ----------
    request : Request
        Submitted; its events are read here and nowhere else.
    detokenizer : Detokenizer
        Started with its prompt.
    """

    def __init__(self, request: Request, detokenizer: Detokenizer) -> None:
        self._request, self._detokenizer = request, detokenizer
        self._is_closed = False

    def __next__(self) -> StreamDelta:
        """Wait for the next delta.

        Raises
        ------
        RequestFailedError, EngineDeadError
            If the request failed.
        """
        if self._is_closed:
            raise StopIteration
        try:
            while True:
                delta = self._delta(self._request.events.pop())
                if delta.text or delta.token_ids or delta.finish_reason:
                    self._is_closed = delta.finish_reason is not None
                    return delta
        except BaseException:
            self.close()
            raise

    def _delta(self, event: RequestEvent) -> StreamDelta:
        if event.error is not None:
            raise event.error
        ids, reason = event.token_ids, event.finish_reason
        text = self._detokenizer.push(ids[:-1] if reason == "stop" else ids)  # a stop token is not part of the text
        if reason is not None:
            text += self._detokenizer.flush()
        return StreamDelta(text=text, token_ids=ids, finish_reason=reason)

    def close(self) -> None:
        """Cancel the request unless it has ended; idempotent."""
        self._is_closed = True
        self._request.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        request = getattr(self, "_request", None)
        if request is not None:
            request.cancel()  # a no-op once it has ended

    def __repr__(self) -> str:
        return f"TextStream(request {self._request.request_id}{', closed' if self._is_closed else ''})"
