"""What a request must satisfy before the engine takes it: checked at the one door that all requests come through."""

from __future__ import annotations

from cupy_turbo.core.errors import ContextLengthError, InvalidRequestError
from cupy_turbo.engine.config import EngineConfig
from cupy_turbo.engine.request import Request
from cupy_turbo.models.step import MAX_STOP_IDS


def blocks_needed(stop_position: int, block_size: int) -> int:
    """Return the blocks of a sequence at its longest; its last token is sampled but never attended to."""
    return -(-(stop_position - 1) // block_size)


def check_request(request: Request, config: EngineConfig) -> None:
    """Refuse what an engine of this size could never run, or could not answer.

    Raises
    ------
    InvalidRequestError
        Naming the value, the limit and the remedy.
    """
    prompt_len, length = request.num_prompt_tokens, request.stop_position
    name = f"request {request.request_id}"
    if not 1 <= prompt_len < length:
        raise InvalidRequestError(
            f"{name} has {prompt_len} prompt tokens and ends at {length}: it needs one and room for one more",
            parameter="prompt",
            value=prompt_len,
        )
    if length > config.max_model_len:
        raise ContextLengthError(
            f"{name} may grow to {length} tokens, but max_model_len is {config.max_model_len}; lower max_tokens",
            parameter="max_tokens",
            value=length - prompt_len,
        )
    if len(request.stop_ids) > MAX_STOP_IDS:
        raise InvalidRequestError(
            f"{name} has {len(request.stop_ids)} stop ids, at most {MAX_STOP_IDS} are possible",
            parameter="stop_token_ids",
            value=request.stop_ids,
        )
    if request.events.capacity is not None:
        raise InvalidRequestError(
            f"{name} wants its events in a queue that holds {request.events.capacity}: a slow consumer would stop the "
            "engine for everybody; use a Queue without a capacity",
            parameter="events",
            value=request.events.capacity,
        )
    needed = blocks_needed(length, config.block_size)
    if needed > config.num_blocks:
        raise InvalidRequestError(
            f"{name} may grow to {length} tokens = {needed} KV blocks of {config.block_size}, but the pool has "
            f"{config.num_blocks}; lower max_tokens or give the engine more KV memory",
            parameter="max_tokens",
            value=length - prompt_len,
        )
