"""From what users pass to what the engine runs: one check for every way in."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupy_turbo.api.sampling_params import SamplingParams
from cupy_turbo.core.errors import ContextLengthError, InvalidRequestError
from cupy_turbo.core.queue import Queue
from cupy_turbo.core.shown import shown
from cupy_turbo.engine.request import Request, RequestEvent
from cupy_turbo.models.step import MAX_STOP_IDS
from cupy_turbo.text.tokenizer import Tokenizer

Prompt = str | Sequence[int]


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """A prompt as text (None if it came as ids) and as ids."""

    text: str | None
    token_ids: tuple[int, ...]


def listed_prompts(prompts: object) -> list[Any]:
    """Return the prompts of a call as a list: one prompt (text or a non-empty sequence of ids), or several.

    Raises
    ------
    InvalidRequestError
        If it is neither: a mapping or a set has no order, bytes are no text yet.
    """
    if isinstance(prompts, str):
        return [prompts]
    if isinstance(prompts, Mapping | Set | bytes | bytearray | memoryview) or not isinstance(prompts, Iterable):
        raise InvalidRequestError(
            f"prompts must be text, a sequence of token ids, or a list of these, got {_kind(prompts)}",
            parameter="prompts",
            value=prompts,
        )
    if isinstance(prompts, np.ndarray):
        return list(prompts) if prompts.ndim > 1 else [prompts]
    listed = list(prompts)
    return [listed] if listed and _is_integer(listed[0]) else listed


def _is_sequence(prompt: object) -> bool:
    if isinstance(prompt, np.ndarray):
        return prompt.ndim == 1
    return isinstance(prompt, Sequence) and not isinstance(prompt, str | bytes | bytearray | memoryview)


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{name} of {value.ndim} dimensions" if isinstance(value, np.ndarray) else name


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def pair_params(
    params: SamplingParams | Sequence[SamplingParams] | None, count: int, default: SamplingParams
) -> list[SamplingParams]:
    """Return sampling parameters for each of `count` prompts: one for all, one each, or the default for None.

    Raises
    ------
    InvalidRequestError
        If a list has another length, or something else than `SamplingParams` is passed.
    """
    if params is None:
        params = default
    if not isinstance(params, SamplingParams | Sequence):
        raise InvalidRequestError(
            f"sampling_params must be SamplingParams or a list of them, got {type(params).__name__}",
            parameter="sampling_params",
            value=params,
        )
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
        self._seed = seed
        self._indices = itertools.count()  # one step of it is atomic: any thread may build requests

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
            self._check_length(self._tokenizer.least_tokens(prompt), "at least ")
            ids = self._tokenizer.encode(prompt, add_special_tokens=add_special_tokens)
        elif not _is_sequence(prompt):
            raise InvalidRequestError(
                f"a prompt is text or a sequence of token ids, got {_kind(prompt)}", parameter="prompt", value=prompt
            )
        else:
            ids = prompt
        if len(ids) == 0:
            raise InvalidRequestError("the prompt has 0 tokens; give it at least 1", parameter="prompt", value=prompt)
        self._check_length(len(ids))
        return TokenizedPrompt(prompt if isinstance(prompt, str) else None, self._check_ids(ids))

    def _check_length(self, count: int, bound: str = "") -> None:
        if count >= self._max_model_len:
            raise ContextLengthError(
                f"the prompt has {bound}{count} tokens, but max_model_len is {self._max_model_len} and an answer needs "
                f"at least 1; shorten the prompt by {bound}{count - self._max_model_len + 1} tokens or raise "
                "max_model_len",
                parameter="prompt",
                value=count,
            )

    def _check_ids(self, prompt: Sequence[Any]) -> tuple[int, ...]:
        ids = []
        for index, token in enumerate(prompt):
            # a tokenizer may have more tokens than the model has rows: text is checked too
            if not _is_integer(token) or not 0 <= token < self._vocab_size:
                raise InvalidRequestError(
                    f"token id {shown(token)} at index {index} is outside the vocabulary: ids are 0 to "
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
        index = next(self._indices)
        return Request(
            request_id=str(index),
            prompt_ids=np.array(prompt.token_ids, np.int32),
            stop_position=length + (room if params.max_tokens is None else min(params.max_tokens, room)),
            stop_ids=stop_ids,
            temperature=params.temperature,
            top_k=max(params.top_k, 0),
            top_p=params.top_p,
            min_p=params.min_p,
            seed=_mixed_seed(self._seed, index) if params.seed is None else params.seed,
            events=events,
        )


def _mixed_seed(seed: int, index: int) -> int:
    """Return the 64-bit seed of request `index`. **Source:** SplitMix64 (Steele et al. 2014)."""
    mask = (1 << 64) - 1
    state = (seed + (index + 1) * 0x9E3779B97F4A7C15) & mask
    mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
    return mixed ^ (mixed >> 31)
