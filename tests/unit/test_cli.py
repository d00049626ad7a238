"""The command line: what it asks of `LLM`, what it prints where, and its exit codes."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import cupy_turbo
from cupy_turbo import SamplingParams, StreamDelta
from cupy_turbo.cli import main
from cupy_turbo.core.errors import CheckpointError, DeviceUnavailableError, InvalidRequestError, RequestFailedError

ANSWER = ["Good", " mor", "row", ""]


class RecordedLLM:
    """Stands in for the engine: answers with ANSWER, or raises what it is told to, and remembers what was asked."""

    opened: dict[str, Any]
    asked: list[tuple[Any, SamplingParams]]
    num_cancelled: int
    raises: BaseException | None = None
    raises_while_streaming: BaseException | None = None

    def __init__(self, model: str, **options: Any) -> None:
        if isinstance(type(self).raises, BaseException):
            raise type(self).raises
        type(self).opened = {"model": model, **options}
        type(self).asked, type(self).num_cancelled = [], 0

    def __enter__(self) -> RecordedLLM:
        return self

    def __exit__(self, *exc: object) -> None:
        type(self).opened["closed"] = True

    def stream(self, prompt: Any, params: SamplingParams) -> Iterator[StreamDelta]:
        if not prompt:
            raise InvalidRequestError("the prompt has 0 tokens; give it at least 1", parameter="prompt", value=prompt)
        type(self).asked.append((prompt, params))
        return self._deltas()

    def stream_chat(self, messages: Any, params: SamplingParams) -> Iterator[StreamDelta]:
        return self.stream(messages, params)

    def _deltas(self) -> Iterator[StreamDelta]:
        try:
            for index, text in enumerate(ANSWER):
                if index == 2 and type(self).raises_while_streaming is not None:
                    raise type(self).raises_while_streaming
                yield StreamDelta(text, (index,), "length" if index == len(ANSWER) - 1 else None)
        finally:
            type(self).num_cancelled += 1


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> type[RecordedLLM]:
    fresh = type("Fresh", (RecordedLLM,), {})
    monkeypatch.setitem(vars(cupy_turbo), "LLM", fresh)  # does not import the real one, as setattr would
    return fresh


def one_line(text: str) -> str:
    """The single line that stderr holds."""
    (line,) = text.strip().splitlines()
    return line


def test_generate_streams_to_stdout_and_tells_its_speed_on_stderr(
    llm: type[RecordedLLM], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "ROMEO:"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "Good morrow\n"
    assert "4 tokens" in one_line(shown.err)
    assert "tokens/s; end: length" in shown.err
    assert llm.asked == [("ROMEO:", SamplingParams())]
    assert (llm.opened["model"], llm.opened["device"], llm.opened["dtype"], llm.opened["closed"]) == (
        "demo", "auto", "auto", True
    )  # fmt: skip


def test_every_option_arrives(llm: type[RecordedLLM]) -> None:
    line = (
        "generate Hi --model m --revision r --device cuda:1 --dtype float32 --max-model-len 99 --temperature 0.5 "
        "--top-k 5 --top-p 0.9 --min-p 0.1 --seed 7 --max-tokens 8 --ignore-eos --stop-token-id 3 --stop-token-id 4"
    )
    assert main(line.split()) == 0
    params = SamplingParams(
        temperature=0.5, top_k=5, top_p=0.9, min_p=0.1, seed=7, max_tokens=8, ignore_eos=True, stop_token_ids=(3, 4)
    )
    assert llm.asked == [("Hi", params)]
    opened = {name: llm.opened[name] for name in ("model", "revision", "device", "dtype", "max_model_len")}
    assert opened == {"model": "m", "revision": "r", "device": "cuda:1", "dtype": "float32", "max_model_len": 99}


def test_answers_differ_from_run_to_run_unless_seeded(llm: type[RecordedLLM]) -> None:
    seeds = {(main(["generate", "Hi"]), llm.opened["seed"])[1] for _ in range(2)}
    assert len(seeds) == 2


def test_the_prompt_from_stdin_and_echoed(
    llm: type[RecordedLLM], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("two\nlines"))
    assert main(["generate", "-", "--echo"]) == 0
    assert llm.asked[0][0] == "two\nlines"
    assert capsys.readouterr().out == "two\nlinesGood morrow\n"


def test_chat_remembers_the_turns(llm: type[RecordedLLM], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "--model", "m", "--system", "Be brief.", "--message", "Hi", "--message", "Again"]) == 0
    assert capsys.readouterr().out == "Good morrow\n" * 2
    assert [message["role"] for message in llm.asked[0][0]] == ["system", "user"]
    assert llm.asked[1][0] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Good morrow"},
        {"role": "user", "content": "Again"},
    ]


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    return main(["chat", "--model", "m"])


def test_a_conversation_ends_with_its_input_and_clear_forgets(
    llm: type[RecordedLLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert typed(monkeypatch, "Hi", "", "Again", "/clear", "Anew") == 0
    assert [len(messages) for messages, _ in llm.asked] == [1, 3, 1]


def test_ctrl_c_stops_an_answer_and_keeps_what_was_said(
    llm: type[RecordedLLM], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    llm.raises_while_streaming = KeyboardInterrupt()
    assert typed(monkeypatch, "Hi", "Again") == 0
    assert llm.asked[1][0][1] == {"role": "assistant", "content": "Good mor"}
    assert "stopped" in capsys.readouterr().err
    assert llm.num_cancelled == 2


def test_a_failed_answer_does_not_end_the_conversation(
    llm: type[RecordedLLM], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    llm.raises_while_streaming = RequestFailedError("non-finite logits")
    assert typed(monkeypatch, "Hi", "Again") == 0
    assert len(llm.asked) == 2
    assert "non-finite logits (/clear forgets what was said)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CheckpointError("no model is named 'nope'"), 2),
        (InvalidRequestError("max_model_len must be\nan integer"), 2),
        (DeviceUnavailableError("no NVIDIA driver was found: install one"), 1),
        (RuntimeError("a bug"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(
    llm: type[RecordedLLM], capsys: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    llm.raises = error
    assert main(["generate", "Hi"]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert " ".join(str(error).split()) in one_line(shown.err)


def test_traceback_shows_where(llm: type[RecordedLLM], capsys: pytest.CaptureFixture[str]) -> None:
    llm.raises = RuntimeError("a bug")
    assert main(["generate", "Hi", "--traceback"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (["generate", "Hi", "--top-p", "2"], "top_p must be a number in (0, 1], got 2.0"),
        (["generate", "Hi", "--temperature", "nan"], "temperature must be a number in"),
        (["generate", "Hi", "--seed", "-1"], "seed must be an integer from 0"),
        (["generate", ""], "the prompt has 0 tokens"),
        (["generate", "Hi", "--device", "cuda:x"], "must be auto, cuda, cuda:N or host, got 'cuda:x'"),
        (["generate", "Hi", "--dtype", "int8"], "invalid choice: 'int8'"),
        (["generate", "Hi", "--max-tok", "3"], "unrecognized arguments: --max-tok 3"),
        (["generate"], "the following arguments are required: prompt"),
        (["chat", "--message", "Hi"], "the following arguments are required: --model"),
        (["generat"], "invalid choice: 'generat'"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_bad_usage_is_one_line_and_2(
    llm: type[RecordedLLM], capsys: pytest.CaptureFixture[str], line: list[str], problem: str
) -> None:
    assert main(line) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert problem in one_line(shown.err)


@pytest.mark.parametrize("command", [[], ["generate"], ["chat"], ["info"]])
def test_help_teaches(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    assert main([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "exit codes:" in shown
    assert not command or command == ["info"] or f"examples:\n  cupy-turbo {command[0]}" in shown


def test_info_tells_what_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    shown = capsys.readouterr().out
    for fact in ("devices", "host", "compilers", "compiled kernels", "LlamaForCausalLM", "CUPY_TURBO_CACHE_DIR"):
        assert fact in shown


def test_the_module_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cupy_turbo", "--version"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"cupy-turbo {cupy_turbo.__version__}\n", "")


def test_a_reader_that_leaves_early_is_no_error() -> None:
    """`cupy-turbo … | head` must not end in a traceback; the closed pipe stands for head."""
    script = (
        "import os, sys; os.close(1); read, write = os.pipe(); os.close(read); assert write == 1 or os.dup2(write, 1)\n"
        "import cupy_turbo.cli as cli; sys.exit(cli.main(['info']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (1, "")
