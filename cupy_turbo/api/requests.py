"""From what users pass to what the engine runs: one check for every way in."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupy_turbo.api.sampling_params import SamplingParams
from cupy_turbo.core.errors import ContextLengthError, InvalidRequestError
from cupy_turbo.core.queue import Queue
from cupy_turbo.engine.request import Request, RequestEvent
from cupy_turbo.models.step import MAX_STOP_IDS
from cupy_turbo.text.tokenizer import Tokenizer

Prompt = str | Sequence[int]


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """A prompt as text (None if it came as ids) and as ids."""

    text: str | None
    token_ids: tuple[int, ...]


def is_single_prompt(prompts: object) -> bool:
    """Whether `prompts` is one prompt (text or a non-empty sequence of ids) rather than a list of prompts."""
    if isinstance(prompts, str):
        return True
    if isinstance(prompts, np.ndarray):
        return prompts.ndim == 1
    return isinstance(prompts, Sequence) and len(prompts) > 0 and _is_integer(prompts[0])


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def pair_params(params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    """Return sampling parameters for each of `count` prompts: one for all, or one each.

    Raises
    ------
    InvalidRequestError
        If a list has another length, or something else than `SamplingParams` is passed.
    """
    if params is None:
        params = SamplingParams()
    listed = [params] * count if isinstance(params, SamplingParams) else list(params)
    if len(listed) != count:
        raise InvalidRequestError(
            f"got {len(listed)} sampling_params for {count} prompts; pass one for all or one each",
            parameter="sampling_params",
            value=len(listed),
        )
    for each in listed:
        if not isinstance(each, SamplingParams):
            raise InvalidRequestError(
                f"sampling_params must be SamplingParams, got {type(each).__name__}",
                parameter="sampling_params",
                value=each,
            )
    return listed


class RequestBuilder:
    """Checks prompts and parameters against a model and makes engine requests of them.

    Parameters
    ----------
    tokenizer : Tokenizer
        Encodes text prompts.
    vocab_size : int
        Ids of a prompt must lie below it.
    max_model_len : int
        Tokens of prompt and answer together.
    eos_token_ids : tuple of int
        End a request unless it says `ignore_eos`.
    seed : int
        Seeds requests that bring none: request i gets a seed mixed from (seed, i).
    """

    def __init__(
        self, tokenizer: Tokenizer, *, vocab_size: int, max_model_len: int, eos_token_ids: tuple[int, ...], seed: int
    ) -> None:
        self._tokenizer, self._vocab_size, self._max_model_len = tokenizer, vocab_size, max_model_len
        self._eos_token_ids = eos_token_ids
        self._seeds = _seeds(seed)
        self._count = 0

    def tokenize(self, prompt: Any, *, add_special_tokens: bool = True) -> TokenizedPrompt:
        """Encode a text prompt or check a sequence of ids.

        Raises
        ------
        InvalidRequestError
            If the prompt is empty, no text and no ids, or has ids outside the vocabulary.
        ContextLengthError
            If it leaves no room for one answer token.
        """
        if isinstance(prompt, str):
            ids = self._tokenizer.encode(prompt, add_special_tokens=add_special_tokens)
            tokenized = TokenizedPrompt(prompt, tuple(ids))
        else:
            tokenized = TokenizedPrompt(None, self._check_ids(prompt))
        count = len(tokenized.token_ids)
        if count == 0:
            raise InvalidRequestError("the prompt has 0 tokens; give it at least 1", parameter="prompt", value=prompt)
        if count >= self._max_model_len:
            raise ContextLengthError(
                f"the prompt has {count} tokens, but max_model_len is {self._max_model_len} and an answer needs at "
                f"least 1; shorten the prompt by {count - self._max_model_len + 1} tokens or raise max_model_len",
                parameter="prompt",
                value=count,
            )
        return tokenized

    def _check_ids(self, prompt: Any) -> tuple[int, ...]:
        if isinstance(prompt, bytes | bytearray) or not isinstance(prompt, Sequence | np.ndarray):
            raise InvalidRequestError(
                f"a prompt is text or a sequence of token ids, got {type(prompt).__name__}",
                parameter="prompt",
                value=prompt,
            )
        ids = []
        for index, token in enumerate(prompt):
            if not _is_integer(token) or not 0 <= token < self._vocab_size:
                raise InvalidRequestError(
                    f"token id {token!r} at index {index} is outside the vocabulary: ids are 0 to "
                    f"{self._vocab_size - 1}",
                    parameter="prompt",
                    value=token,
                )
            ids.append(operator.index(token))
        return tuple(ids)

    def build(self, prompt: TokenizedPrompt, params: SamplingParams, events: Queue[RequestEvent]) -> Request:
        """Make the engine's request; `max_tokens` is capped to the room left in the context.

        Raises
        ------
        InvalidRequestError
            If a stop id is outside the vocabulary, or there are too many.
        """
        eos = () if params.ignore_eos else self._eos_token_ids
        stop_ids = tuple(dict.fromkeys((*eos, *params.stop_token_ids)))
        outside = [token for token in params.stop_token_ids if token >= self._vocab_size]
        if outside:
            raise InvalidRequestError(
                f"stop_token_ids {outside} are outside the vocabulary: ids are 0 to {self._vocab_size - 1}",
                parameter="stop_token_ids",
                value=params.stop_token_ids,
            )
        if len(stop_ids) > MAX_STOP_IDS:
            raise InvalidRequestError(
                f"{len(stop_ids)} stop ids with the model's end-of-sequence ids, at most {MAX_STOP_IDS} are possible",
                parameter="stop_token_ids",
                value=params.stop_token_ids,
            )
        length = len(prompt.token_ids)
        room = self._max_model_len - length
        self._count += 1
        return Request(
            request_id=str(self._count - 1),
            prompt_ids=np.array(prompt.token_ids, np.int32),
            stop_position=length + (room if params.max_tokens is None else min(params.max_tokens, room)),
            stop_ids=stop_ids,
            temperature=params.temperature,
            top_k=max(params.top_k, 0),
            top_p=params.top_p,
            min_p=params.min_p,
            seed=next(self._seeds) if params.seed is None else params.seed,
            events=events,
        )


def _seeds(seed: int) -> Iterator[int]:
    """Yield 64-bit seeds. **Source:** SplitMix64 (Steele et al. 2014)."""
    mask, state = (1 << 64) - 1, seed & ((1 << 64) - 1)
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
        yield mixed ^ (mixed >> 31)
