"""Outputs: the field names that users of vLLM know, frozen, with a repr that fits a notebook cell."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import pytest

from cupy_turbo.api.outputs import CompletionOutput, RequestOutput, StreamDelta


def output(text: str = " there", num_tokens: int = 2, **changes: object) -> RequestOutput:
    completion = CompletionOutput(index=0, text=text, token_ids=tuple(range(num_tokens)), finish_reason="stop")
    values = {"request_id": "7", "prompt": "Hi", "prompt_token_ids": (4, 2), "outputs": [completion], "finished": True}
    return RequestOutput(**{**values, **changes})  # type: ignore[arg-type]


def test_the_field_names() -> None:
    names = [field.name for field in fields(RequestOutput)]
    assert names == ["request_id", "prompt", "prompt_token_ids", "outputs", "finished", "error"]
    assert [field.name for field in fields(CompletionOutput)] == ["index", "text", "token_ids", "finish_reason"]
    assert [field.name for field in fields(StreamDelta)] == ["text", "token_ids", "finish_reason"]


def test_frozen_and_compared_by_value() -> None:
    assert output() == output()
    assert output().text == " there"
    with pytest.raises(FrozenInstanceError):
        output().finished = False  # type: ignore[misc]


def test_a_short_repr_is_complete() -> None:
    assert eval(repr(output())) == output()
    assert repr(output(prompt=None, error="non-finite logits")).endswith(", finished=True, error='non-finite logits')")
    assert "prompt=None" in repr(output(prompt=None))


def test_a_long_repr_says_how_much_it_leaves_out() -> None:
    shown = repr(output(text="x" * 5000, num_tokens=3000, prompt="y" * 4000))
    assert len(shown) < 400
    assert "… (5,000 characters)" in shown
    assert "… (4,000 characters)" in shown
    assert "(0, 1, 2, 3, 4, 5, 6, 7, … 3,000 tokens)" in shown
