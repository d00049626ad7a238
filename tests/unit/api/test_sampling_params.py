"""Sampling parameters: every limit from both sides, and unknown names with the nearest valid one."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import numpy as np
import pytest

from cupy_turbo.api.sampling_params import MAX_STOP_TOKEN_IDS, SamplingParams
from cupy_turbo.core.errors import InvalidRequestError

REJECTED = object()
TINY = math.ulp(0.0)


def kept(name: str, value: object) -> object:
    """What the parameter holds after it was given this value, or REJECTED; a refusal must name the parameter."""
    try:
        return getattr(SamplingParams(**{name: value}), name)
    except InvalidRequestError as error:
        refused = error
    assert (refused.parameter, refused.value is value) == (name, True)
    assert name in str(refused)
    return REJECTED


def test_the_defaults() -> None:
    params = SamplingParams()
    assert (params.temperature, params.top_k, params.top_p, params.min_p) == (1.0, 0, 1.0, 0.0)
    assert (params.seed, params.max_tokens, params.ignore_eos, params.stop_token_ids) == (None, None, False, ())


@pytest.mark.parametrize(
    ("name", "accepted", "rejected"),
    [
        ("top_k", [-1, 0, 1, 2**31 - 1], [-2, 2**31, 2**63, -(2**63)]),
        ("seed", [None, 0, 1, 2**31, 2**63, 2**64 - 1], [-1, 2**64, -(2**63)]),
        ("max_tokens", [None, 1, 2**31 - 1], [-1, 0, 2**31, 2**63]),
        ("temperature", [0, TINY, 1e-12, 2, 100.0, 3.4e38], [-1, -TINY, 3.5e38, 1e39, 10**400]),
        ("top_p", [TINY, 1e-4, 0.5, 1], [0, -1, math.nextafter(1, 2), 2**31, 2**63]),
        ("min_p", [0, TINY, 0.5, 1], [-1, -TINY, math.nextafter(1, 2), 2**31, 2**63]),
    ],
)
def test_ranges(name: str, accepted: list[object], rejected: list[object]) -> None:
    assert [kept(name, value) for value in accepted] == [max(0, v) if name == "top_k" else v for v in accepted]
    assert [kept(name, value) for value in rejected] == [REJECTED] * len(rejected)


@pytest.mark.parametrize("token_id", [-1, 2**31, 2**63, 1.0, True, None, "1"])
def test_a_stop_token_id_that_the_device_cannot_hold_is_refused(token_id: object) -> None:
    with pytest.raises(InvalidRequestError, match="stop_token_ids must be an integer from 0 to 2147483647"):
        SamplingParams(stop_token_ids=[5, token_id])  # type: ignore[arg-type,list-item]


def test_at_most_31_different_stop_token_ids() -> None:
    ids = tuple(range(MAX_STOP_TOKEN_IDS))
    assert len(ids) == 31
    assert kept("stop_token_ids", [*ids, 0, 0]) == ids
    with pytest.raises(InvalidRequestError, match="has 32 different ids; at most 31 are possible"):
        SamplingParams(stop_token_ids=range(32))  # type: ignore[arg-type]


@pytest.mark.parametrize("ids", [[3, 1], (3, 1), {3: 0, 1: 0}, np.array([3, 1]), iter([3, 1])])
def test_stop_token_ids_from_any_iterable(ids: object) -> None:
    params = SamplingParams(stop_token_ids=ids)  # type: ignore[arg-type]
    assert params.stop_token_ids == (3, 1)
    assert all(type(token_id) is int for token_id in params.stop_token_ids)


@pytest.mark.parametrize("name", ["temperature", "top_k", "top_p", "min_p", "seed", "max_tokens"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True, np.True_, "1", [1], 1j, np.array([1, 2])])
def test_what_is_no_number_is_refused_everywhere(name: str, value: object) -> None:
    assert kept(name, value) is REJECTED


@pytest.mark.parametrize("name", ["top_k", "seed", "max_tokens"])
def test_a_float_is_no_integer(name: str) -> None:
    assert kept(name, 16.0) is REJECTED


@pytest.mark.parametrize("value", [0, 1, None, "yes", "False"])
def test_a_switch_is_true_or_false(value: object) -> None:
    assert kept("ignore_eos", value) is REJECTED


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, Fraction])
def test_other_real_numbers_become_floats(kind: type) -> None:
    params = SamplingParams(temperature=kind(0.5), top_p=kind(0.5))
    assert (params.temperature, params.top_p) == (0.5, 0.5)
    assert type(params.temperature) is type(params.top_p) is float


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int64, np.uint64])
def test_numpy_integers_become_ints(kind: type) -> None:
    params = SamplingParams(top_k=kind(5), seed=kind(5), max_tokens=kind(5), temperature=kind(1))
    assert (params.top_k, params.seed, params.max_tokens) == (5, 5, 5)
    assert type(params.top_k) is type(params.seed) is type(params.max_tokens) is int
    assert SamplingParams(ignore_eos=np.True_).ignore_eos is True


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("temprature", "temperature"),
        ("topk", "top_k"),
        ("max_new_tokens", "max_tokens"),
        ("stop_tokens", "stop_token_ids"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"SamplingParams has no '{wrong}': did you mean '{right}'"):
        SamplingParams(**{wrong: 1})  # type: ignore[arg-type]


def test_an_unknown_name_near_to_none_lists_them_all() -> None:
    with pytest.raises(InvalidRequestError, match=r"no such setting.*temperature, top_k, top_p") as caught:
        SamplingParams(zzz=1)  # type: ignore[call-arg]
    assert (caught.value.parameter, caught.value.value) == ("zzz", 1)
    with pytest.raises(InvalidRequestError, match="did you mean 'top_p'"):
        replace(SamplingParams(), top_q=1)  # type: ignore[call-arg]


def test_keyword_only_frozen_and_without_a_dict() -> None:
    params = SamplingParams(seed=1)
    with pytest.raises(TypeError):
        SamplingParams(0.5)  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        params.seed = 2  # type: ignore[misc]
    assert not hasattr(params, "__dict__")


def test_a_value_like_any_other() -> None:
    params = SamplingParams(temperature=0.5, stop_token_ids=[1, 2])  # type: ignore[arg-type]
    assert params == SamplingParams(temperature=np.float32(0.5), stop_token_ids=(1, 2))
    assert len({params, copy.deepcopy(params), pickle.loads(pickle.dumps(params))}) == 1
    assert repr(params) == "SamplingParams(temperature=0.5, stop_token_ids=(1, 2))"
    assert eval(repr(params)) == params
    assert list(inspect.signature(SamplingParams).parameters)[:2] == ["temperature", "top_k"]


@pytest.mark.parametrize(
    ("temperature", "is_greedy"), [(0, True), (1e-12, True), (9e-6, True), (1e-5, False), (1, False)]
)
def test_greedy_is_below_the_smallest_temperature(temperature: float, is_greedy: bool) -> None:
    assert SamplingParams(temperature=temperature).is_greedy is is_greedy
