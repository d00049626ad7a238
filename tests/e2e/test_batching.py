"""A request gets the same tokens alone, in a crowd, one batch ahead or not."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cupy_turbo import LLM, SamplingParams
from cupy_turbo.testing.examples import examples

OPTIONS = {"dtype": "float32", "max_model_len": 96, "block_size": 16}


@pytest.fixture(scope="module")
def synchronous(device_kind):
    """Runs one request at a time, one batch at a time: what the others are compared with."""
    with LLM("demo", device=device_kind, phases=1, max_num_seqs=1, max_num_batched_tokens=96, **OPTIONS) as llm:
        yield llm


@pytest.fixture(scope="module")
def lookahead(device_kind):
    with LLM("demo", device=device_kind, phases=2, max_num_seqs=64, max_num_batched_tokens=128, **OPTIONS) as llm:
        yield llm
        llm.engine.check_integrity()


@pytest.fixture(scope="module")
def crowded(device_kind):
    """Two phases, few slots: requests wait for one another."""
    with LLM("demo", device=device_kind, phases=2, max_num_seqs=5, max_num_batched_tokens=40, **OPTIONS) as llm:
        yield llm
        llm.engine.check_integrity()


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[int], SamplingParams]:
    prompt = draw(st.lists(st.integers(0, 1023), min_size=1, max_size=30))
    params = SamplingParams(
        temperature=draw(st.sampled_from([0.0, 0.7, 1.3])),
        top_k=draw(st.sampled_from([0, 5, 50])),
        top_p=draw(st.sampled_from([1.0, 0.9])),
        min_p=draw(st.sampled_from([0.0, 0.02])),
        seed=draw(st.integers(0, 2**64 - 1)),
        max_tokens=draw(st.integers(1, 24)),
        stop_token_ids=tuple(draw(st.lists(st.integers(0, 1023), max_size=8))),
    )
    return prompt, params


def answers(llm: LLM, batch: list[tuple[list[int], SamplingParams]]) -> list[tuple[tuple[int, ...], str]]:
    outputs = llm.generate([prompt for prompt, _ in batch], [params for _, params in batch])
    return [(tuple(output.outputs[0].token_ids), output.outputs[0].finish_reason) for output in outputs]


@settings(
    max_examples=examples(5),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(batch=st.lists(requests(), min_size=2, max_size=10))
def test_a_crowd_changes_nothing(synchronous, lookahead, crowded, batch):
    alone = [answers(synchronous, [each])[0] for each in batch]
    assert answers(lookahead, batch) == alone
    assert answers(crowded, batch) == alone


def test_64_requests_of_mixed_lengths(synchronous, lookahead):
    batch = [
        (
            [(7 * i + j) % 1024 for j in range(1 + 5 * i % 31)],
            SamplingParams(temperature=(0.0, 0.8)[i % 2], seed=i, max_tokens=1 + 3 * i % 20),
        )
        for i in range(64)
    ]
    assert answers(lookahead, batch) == [answers(synchronous, [each])[0] for each in batch]
