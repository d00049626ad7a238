"""16-bit runs choose what the float32 run chooses, nearly always, on text that the model wrote itself."""

from __future__ import annotations

import pytest

from cupy_turbo import LLM, SamplingParams
from cupy_turbo.testing.agreement import top1_agreement, top_choices
from cupy_turbo.testing.forward import Forward


@pytest.fixture(scope="module")
def text(device_kind):
    """About 600 token ids, sampled at temperature 1."""
    with LLM("demo", device=device_kind, dtype="float32", max_num_seqs=4) as llm:
        params = [SamplingParams(seed=seed, max_tokens=150, ignore_eos=True) for seed in range(4)]
        outputs = llm.generate(["ROMEO:", "KING", "First", "\n"], params)
    return [token for output in outputs for token in output.outputs[0].token_ids]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_teacher_forced_agreement(device, text, dtype):
    expected = top_choices(Forward("demo", device, max_tokens=200), text, 200)
    actual = top_choices(Forward("demo", device, dtype=dtype, max_tokens=200), text, 200)
    assert top1_agreement(expected, actual) >= 0.97
