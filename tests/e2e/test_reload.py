"""An edited kernel takes effect in a running model, captured decode graphs included."""

from __future__ import annotations

import dataclasses

from cupy_turbo import LLM, SamplingParams
from cupy_turbo.device.source import KernelLibrary

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


def test_reload_kernels_reaches_every_step(device_kind, monkeypatch):
    """After the edit the running model says what a model opened with the edited kernel says."""
    options = {"device": device_kind, "dtype": "float32", "max_num_seqs": 2}
    read = KernelLibrary.read

    def edited(self: KernelLibrary, name: str):
        source = read(self, name)
        if name != "silu_mul":
            return source
        text = source.text.replace("extern", "// edited\nextern", 1).replace("1.0f", "2.0f")
        assert text.count("2.0f") > source.text.count("2.0f")
        return dataclasses.replace(source, text=text, digest=source.digest + "edited")

    with LLM("demo", **options) as llm:
        before = llm.generate("ROMEO:", GREEDY)[0].outputs[0].token_ids
        monkeypatch.setattr(KernelLibrary, "read", edited)
        assert llm.generate("ROMEO:", GREEDY)[0].outputs[0].token_ids == before  # not yet
        llm.device.reload_kernels()
        after = llm.generate("ROMEO:", GREEDY)[0].outputs[0].token_ids
    with LLM("demo", **options) as fresh:
        expected = fresh.generate("ROMEO:", GREEDY)[0].outputs[0].token_ids
    assert after == expected != before
