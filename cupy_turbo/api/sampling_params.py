"""How the tokens of an answer are chosen and when it ends."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import numbers
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from cupy_turbo.core.errors import InvalidRequestError
from cupy_turbo.core.shown import shown

# A slot's row of stop ids on the device has 32 entries, and one of them is for EOS.
MAX_STOP_TOKEN_IDS = 31
# Below this a temperature is 0: dividing by it would overflow float32 (the same bound as vLLM's).
GREEDY_TEMPERATURE = 1e-5

_INT32_MAX = 2**31 - 1
_FLOAT32_MAX = 3.4028234e38
_BOOLS = (bool, np.bool_)  # a bool is an int to Python, but nobody means one by it

_Settings = TypeVar("_Settings")


def names_checked(cls: type[_Settings]) -> type[_Settings]:
    """Make a dataclass refuse a keyword it does not have with the nearest name that it has.

    Without it a misspelt setting is a bare TypeError, which a server cannot tell from a bug.
    """
    construct = cls.__init__
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

    @functools.wraps(construct)
    def checked(self: _Settings, *args: object, **kwargs: object) -> None:
        for name in kwargs:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
                hint = f"did you mean {near[0]!r}?" if near else "there is no such setting;"
                raise InvalidRequestError(
                    f"{cls.__name__} has no {name!r}: {hint} (it has {', '.join(names)})",
                    parameter=name,
                    value=kwargs[name],
                )
        construct(self, *args, **kwargs)

    cls.__init__ = checked  # type: ignore[assignment]
    return cls


@names_checked
@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the tokens of an answer are chosen and when it ends.

    Candidates are those within `top_k`, `top_p` and `min_p` together; at least one always remains. Draws depend on the
    seed, the token's position and the logits only: never on what else runs at the same time. NumPy scalars are
    accepted wherever numbers are.

    Parameters
    ----------
    temperature : float, >= 0
        Logits are divided by it; 0 (anything below 1e-5) takes the most likely token always.
    top_k : int, 0 to 2**31 - 1
        Only the `top_k` most likely tokens are candidates; 0 (or -1) is off.
    top_p : float, in (0, 1]
        Only the most likely tokens that together have this probability are candidates; 1 is off.
    min_p : float, in [0, 1]
        Only tokens at least this many times as likely as the most likely one are candidates; 0 is off.
    seed : int, 0 to 2**64 - 1, optional
        Fixes the draws of this request. None takes a new seed for each request.
    max_tokens : int, 1 to 2**31 - 1, optional
        Longest answer, in tokens. None is the room left in the context.
    ignore_eos : bool
        Whether to go on after the model's end-of-sequence tokens (all of them); `stop_token_ids` still end the answer.
    stop_token_ids : iterable of int, each 0 to 2**31 - 1
        Tokens that end the answer; at most 31 different ones (the device keeps 32 for a request, EOS included).

    Raises
    ------
    InvalidRequestError
        If a value is out of range or of the wrong type, or a name is unknown; it names the value, the range and, for a
        misspelt name, the nearest one.

    Examples
    --------
    >>> SamplingParams(temperature=0.7, top_p=0.9, max_tokens=64)
    SamplingParams(temperature=0.7, top_p=0.9, max_tokens=64)
    >>> SamplingParams(temprature=0.7)
    Traceback (most recent call last):
    ...
    cupy_turbo.core.errors.InvalidRequestError: SamplingParams has no 'temprature': did you mean 'temperature'? ...
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = None
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self._set("temperature", _number("temperature", self.temperature, low=0.0, high=_FLOAT32_MAX))
        self._set("top_k", max(0, _integer("top_k", self.top_k, low=-1, high=_INT32_MAX)))
        self._set("top_p", _number("top_p", self.top_p, low=0.0, high=1.0, low_is_allowed=False))
        self._set("min_p", _number("min_p", self.min_p, low=0.0, high=1.0))
        if self.seed is not None:
            self._set("seed", _integer("seed", self.seed, low=0, high=2**64 - 1))
        if self.max_tokens is not None:
            self._set("max_tokens", _integer("max_tokens", self.max_tokens, low=1, high=_INT32_MAX))
        if not isinstance(self.ignore_eos, _BOOLS):
            raise _refused("ignore_eos", self.ignore_eos, "must be True or False")
        self._set("ignore_eos", bool(self.ignore_eos))
        self._set("stop_token_ids", _stop_token_ids(self.stop_token_ids))

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken always."""
        return self.temperature < GREEDY_TEMPERATURE

    def __repr__(self) -> str:
        values = ((field, getattr(self, field.name)) for field in dataclasses.fields(self))
        chosen = (f"{field.name}={value!r}" for field, value in values if value != field.default)
        return f"{type(self).__name__}({', '.join(chosen)})"

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # frozen for callers; here it is still being made


def _number(name: str, value: object, *, low: float, high: float, low_is_allowed: bool = True) -> float:
    allowed = f"must be a number in {'[' if low_is_allowed else '('}{low:g}, {high:g}]"
    if isinstance(value, _BOOLS) or not isinstance(value, numbers.Real):
        raise _refused(name, value, allowed)
    try:
        number = float(value)
    except OverflowError:  # an int beyond float
        number = math.inf
    if not low <= number <= high or (number == low and not low_is_allowed):  # written so that NaN fails too
        raise _refused(name, value, allowed)
    return number


def _integer(name: str, value: object, *, low: int, high: int) -> int:
    allowed = f"must be an integer from {low} to {high}"
    if isinstance(value, _BOOLS) or not isinstance(value, numbers.Integral):
        raise _refused(name, value, allowed)
    number = int(value)
    if not low <= number <= high:
        raise _refused(name, value, allowed)
    return number


def _stop_token_ids(value: object) -> tuple[int, ...]:
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise _refused("stop_token_ids", value, "must be a list of token ids")
    ids = [_integer("stop_token_ids", token_id, low=0, high=_INT32_MAX) for token_id in value]
    unique = tuple(dict.fromkeys(ids))
    if len(unique) > MAX_STOP_TOKEN_IDS:
        raise InvalidRequestError(
            f"stop_token_ids has {len(unique)} different ids; at most {MAX_STOP_TOKEN_IDS} are possible (the device "
            f"keeps {MAX_STOP_TOKEN_IDS + 1} for a request, EOS included)",
            parameter="stop_token_ids",
            value=value,
        )
    return unique


def _refused(name: str, value: object, allowed: str) -> InvalidRequestError:
    return InvalidRequestError(f"{name} {allowed}, got {shown(value)}", parameter=name, value=value)
