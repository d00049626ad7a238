"""Bad input is refused at the door, with the value, the limit and the remedy; the engine stays well."""

from __future__ import annotations

import dataclasses

import pytest

from cupy_turbo import LLM, SamplingParams
from cupy_turbo.core.errors import ContextLengthError, EngineDeadError, InvalidRequestError


@pytest.fixture(scope="module")
def llm(device_kind):
    with LLM("demo", device=device_kind, max_model_len=32, max_num_seqs=4, block_size=16) as llm:
        yield llm


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("", "0 tokens"),
        ([1, -1], "-1"),
        ([1024], "0 to 1023"),
        ([5279552648203111001], "5279552648203111001"),
        ([2**31], str(2**31)),
        ([1.5], "1.5"),
        ([True, 2], "True"),
        (b"bytes", "bytes"),
        ("half an emoji \ud83d", "14"),
    ],
)
def test_a_bad_prompt_is_named(llm, prompt, words):
    for entry in (lambda: llm.generate([prompt]), lambda: llm.stream(prompt)):
        with pytest.raises(InvalidRequestError, match=words):
            entry()


@pytest.mark.parametrize("length", [32, 33, 1000])
def test_a_long_prompt_is_refused_with_both_numbers(llm, length):
    with pytest.raises(ContextLengthError, match=rf"{length} tokens.*32"):
        llm.generate([1] * length)


def test_the_longest_prompt_leaves_room_for_one_token(llm):
    (output,) = llm.generate([1] * 31, SamplingParams(max_tokens=100))
    assert len(output.outputs[0].token_ids) == 1


def test_no_prompts_no_outputs(llm):
    assert llm.generate([]) == []


def test_one_bad_prompt_refuses_the_call_before_any_runs(llm):
    with pytest.raises(InvalidRequestError):
        llm.generate([[1, 2], [-5]])
    assert len(llm.generate([1, 2], SamplingParams(max_tokens=2))) == 1


@pytest.mark.parametrize("stop_ids", [(1024,), (2**31,)])
def test_a_stop_id_outside_the_vocabulary(llm, stop_ids):
    with pytest.raises(InvalidRequestError, match="stop_token_ids"):
        llm.generate("x", SamplingParams(stop_token_ids=stop_ids))


def test_params_must_fit_the_prompts(llm):
    with pytest.raises(InvalidRequestError, match="2 sampling_params for 1"):
        llm.generate(["a"], [SamplingParams(), SamplingParams()])


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("max_model_len", 5000, "1024"),
        ("max_model_len", 1, ">= 2"),
        ("max_num_seqs", 0, "from 1 to 16384, got 0"),
        ("max_num_batched_tokens", 3, "max_num_seqs"),
        ("block_size", 17, "16, 32, 64"),
        ("phases", 3, "1 .synchronous"),
        ("gpu_memory_utilization", 1.5, "<= 1"),
        ("dtype", "int8", "float32"),
    ],
)
def test_engine_options_are_checked(device_kind, option, value, words):
    with pytest.raises(ValueError, match=words):
        LLM("demo", device=device_kind, **{option: value})


def test_a_closed_model_says_so(device_kind):
    llm = LLM("demo", device=device_kind, max_model_len=32, max_num_seqs=2)
    llm.close()
    llm.close()
    with pytest.raises(EngineDeadError, match="closed"):
        llm.generate("x")


def test_a_request_that_can_never_fit_refuses_the_call_before_any_runs(device_kind, monkeypatch):
    """The second prompt needs two blocks of a pool of one, and the first has not run when that is said."""
    with LLM("demo", device=device_kind, max_model_len=32, max_num_seqs=1, block_size=16) as llm:
        monkeypatch.setattr(llm.engine, "config", dataclasses.replace(llm.engine.config, num_blocks=1))
        monkeypatch.setattr(llm.engine, "submit", lambda request: pytest.fail("a request has run"))
        with pytest.raises(InvalidRequestError, match="2 KV blocks"):
            llm.generate([[1], [1] * 14], SamplingParams(max_tokens=8))
