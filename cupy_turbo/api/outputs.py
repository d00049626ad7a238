"""What a request gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "abort", "error"]

_SHOWN_CHARACTERS = 60
_SHOWN_TOKENS = 8


@dataclass(frozen=True, slots=True, repr=False)
class CompletionOutput:
    """One answer.

    Parameters
    ----------
    index : int, >= 0
        Which answer of its request.
    text : str
        The answer as the continuation of the prompt, without special tokens.
    token_ids : tuple of int
        Its tokens, with the one that ended it.
    finish_reason : 'stop', 'length', 'abort' or 'error', optional
        End of sequence or a stop token; `max_tokens` or the end of the context; cancelled; failed. None: not finished.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None

    def __repr__(self) -> str:
        return (
            f"CompletionOutput(index={self.index}, text={_shortened(self.text)}, "
            f"token_ids={_shortened_ids(self.token_ids)}, finish_reason={self.finish_reason!r})"
        )


@dataclass(frozen=True, slots=True, repr=False)
class RequestOutput:
    """A request and its answers.

    Parameters
    ----------
    request_id : str
        Names the request in messages and logs.
    prompt : str or None
        As given; None for a prompt given as token ids.
    prompt_token_ids : tuple of int
    outputs : list of CompletionOutput
    finished : bool
        Whether every answer has ended.
    error : str, optional
        Why, if an answer's `finish_reason` is 'error'.

    Examples
    --------
    >>> RequestOutput("0", "Hi", (4, 2), [CompletionOutput(0, " there", (7, 1), "stop")], finished=True)
    RequestOutput(request_id='0', prompt='Hi', prompt_token_ids=(4, 2),
        outputs=[CompletionOutput(index=0, text=' there', token_ids=(7, 1), finish_reason='stop')], finished=True)
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: list[CompletionOutput]
    finished: bool
    error: str | None = None

    @property
    def text(self) -> str:
        """The first answer's text."""
        return self.outputs[0].text

    def __repr__(self) -> str:
        prompt = None if self.prompt is None else _shortened(self.prompt)
        ids, error = _shortened_ids(self.prompt_token_ids), "" if self.error is None else f", error={self.error!r}"
        return (
            f"RequestOutput(request_id={self.request_id!r}, prompt={prompt}, prompt_token_ids={ids}, "
            f"outputs={self.outputs!r}, finished={self.finished}{error})"
        )


@dataclass(frozen=True, slots=True)
class StreamDelta:
    """What is new since the last delta of a stream.

    Parameters
    ----------
    text : str
        May be empty while a character is unfinished. All deltas' texts, joined, are the answer's text.
    token_ids : tuple of int
    finish_reason : 'stop', 'length', 'abort' or 'error', optional
        None until the last delta.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None


def _shortened(text: str) -> str:
    """Return the text's repr; of a long one its beginning and its length."""
    if len(text) <= _SHOWN_CHARACTERS:
        return repr(text)
    return f"{text[:_SHOWN_CHARACTERS]!r}… ({len(text):,} characters)"


def _shortened_ids(ids: tuple[int, ...]) -> str:
    if len(ids) <= _SHOWN_TOKENS:
        return repr(ids)
    return f"({', '.join(map(str, ids[:_SHOWN_TOKENS]))}, … {len(ids):,} tokens)"
