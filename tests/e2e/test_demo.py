"""The demo model end to end: what a correct engine must say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cupy_turbo import LLM, SamplingParams

GOLDEN = json.loads((Path(__file__).parent / "golden" / "demo.json").read_text())["prompts"]


@pytest.fixture(scope="module")
def llm(device_kind):
    with LLM("demo", device=device_kind, dtype="float32", max_num_seqs=8) as llm:
        yield llm


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: repr(golden["prompt"][:12]))
def test_greedy_ids_equal_the_reference(llm, golden):
    """Float32 arithmetic on the bfloat16 weights gives transformers' greedy continuation, token for token."""
    assert tuple(llm.tokenizer.encode(golden["prompt"])) == tuple(golden["prompt_ids"])
    greedy = SamplingParams(temperature=0, max_tokens=len(golden["greedy_ids"]), ignore_eos=True)
    (output,) = llm.generate(golden["prompt"], greedy)
    assert list(output.outputs[0].token_ids) == golden["greedy_ids"]
    assert output.outputs[0].text == golden["greedy_text"]
    assert output.outputs[0].finish_reason == "length"


def test_all_prompts_at_once_give_the_same(llm):
    greedy = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)
    outputs = llm.generate([golden["prompt_ids"] for golden in GOLDEN], greedy)
    assert [list(output.outputs[0].token_ids) for output in outputs] == [golden["greedy_ids"] for golden in GOLDEN]


def test_streamed_text_is_the_generated_text(llm):
    params = SamplingParams(temperature=0.9, seed=7, max_tokens=40)
    (output,) = llm.generate("JULIET:", params)
    deltas = list(llm.stream("JULIET:", params))
    assert "".join(delta.text for delta in deltas) == output.outputs[0].text
    assert tuple(token for delta in deltas for token in delta.token_ids) == tuple(output.outputs[0].token_ids)
    assert [delta.finish_reason for delta in deltas[:-1]] == [None] * (len(deltas) - 1)
    assert deltas[-1].finish_reason == output.outputs[0].finish_reason


def test_a_stop_id_ends_the_answer_and_is_not_part_of_the_text(llm):
    greedy = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)
    (whole,) = llm.generate("ROMEO:", greedy)
    ids = list(whole.outputs[0].token_ids)
    stop = ids[5]
    (output,) = llm.generate(
        "ROMEO:", SamplingParams(temperature=0, max_tokens=64, ignore_eos=True, stop_token_ids=(stop,))
    )
    cut = ids[: ids.index(stop) + 1]
    assert list(output.outputs[0].token_ids) == cut
    assert output.outputs[0].finish_reason == "stop"
    assert output.outputs[0].text == llm.tokenizer.decode(cut[:-1])


def test_an_answer_ends_at_the_context_length(device_kind):
    with LLM("demo", device=device_kind, dtype="float32", max_model_len=20, max_num_seqs=2) as llm:
        (output,) = llm.generate("ROMEO:", SamplingParams(temperature=0, ignore_eos=True))
        assert len(output.prompt_token_ids) + len(output.outputs[0].token_ids) == 20
        assert output.outputs[0].finish_reason == "length"
        assert list(output.outputs[0].token_ids) == GOLDEN[0]["greedy_ids"][:18]


def test_a_prompt_in_chunks_gives_the_same(device_kind):
    prompt = GOLDEN[1]["prompt_ids"] + GOLDEN[1]["greedy_ids"][:20]
    greedy = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    for budget in (4, 7, 16):
        with LLM(
            "demo", device=device_kind, dtype="float32", max_num_seqs=2, max_num_batched_tokens=budget, block_size=16
        ) as llm:
            (output,) = llm.generate(prompt, greedy)
        assert list(output.outputs[0].token_ids) == GOLDEN[1]["greedy_ids"][20:32], budget
