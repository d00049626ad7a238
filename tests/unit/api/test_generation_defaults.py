"""A checkpoint's recommended sampling is used where a call says nothing, and never silently."""

from __future__ import annotations

import logging

import pytest

from cupy_turbo import SamplingParams
from cupy_turbo.api.generation_defaults import recommended_sampling
from cupy_turbo.api.requests import pair_params
from cupy_turbo.core.errors import CheckpointError


def test_its_values_are_taken_and_told(caplog):
    with caplog.at_level(logging.INFO, "cupy_turbo"):
        params = recommended_sampling({"temperature": 0.6, "top_p": 0.9, "top_k": None, "do_sample": True})
    assert params == SamplingParams(temperature=0.6, top_p=0.9)
    assert "0.6" in caplog.text


def test_what_is_not_applied_is_told(caplog):
    assert recommended_sampling({"repetition_penalty": 1.1}) == SamplingParams()
    assert "repetition_penalty" in caplog.text
    caplog.clear()
    recommended_sampling({"repetition_penalty": 1.0})
    assert not caplog.records


@pytest.mark.parametrize("values", [{"temperature": -1}, {"top_p": 2}, {"top_k": "many"}, {"min_p": float("nan")}])
def test_a_value_out_of_range_names_the_file(values):
    with pytest.raises(CheckpointError, match=r"generation_config\.json"):
        recommended_sampling(values)


def test_a_call_goes_before_the_checkpoint():
    recommended, own = SamplingParams(temperature=0.6), SamplingParams(top_k=3)
    assert pair_params(None, 2, recommended) == [recommended, recommended]
    assert pair_params(own, 1, recommended) == [own]
