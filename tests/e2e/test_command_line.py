"""The command line with a real model behind it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cupy_turbo.cli import main

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = json.loads((Path(__file__).parent / "golden" / "demo.json").read_text("utf-8"))["prompts"][0]


def test_generate_prints_the_reference_text(device_kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    num_tokens = len(GOLDEN["greedy_ids"])
    options = f"--device {device_kind} --dtype float32 --temperature 0 --ignore-eos --max-tokens {num_tokens}"
    assert main(["generate", GOLDEN["prompt"], *options.split()]) == 0
    shown = capsys.readouterr()
    assert shown.out == GOLDEN["greedy_text"] + "\n"
    assert f"[{num_tokens} tokens, " in shown.err


def test_chat_with_a_model_that_only_continues_text_says_so(
    device_kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chat", "--model", "demo", "--device", device_kind, "--message", "Hi"]) == 2
    assert "no chat template" in capsys.readouterr().err


def test_ctrl_c_ends_the_program_with_130(device_kind: str) -> None:
    # Without a limit that it could reach first: 1,000 tokens take seconds on the host, but a GPU may be done.
    script = (
        "import itertools, sys; from cupy_turbo import LLM; from cupy_turbo.cli import main\n"
        "one = LLM.stream; LLM.stream = lambda *a: itertools.chain.from_iterable(one(*a) for _ in itertools.count())\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["generate", "ROMEO:", "--device", device_kind, "--ignore-eos"]
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        # A process started in the background of a shell ignores the signal; this one must not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    process.stdout.read(20)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.decode().strip()) == (130, "interrupted")
