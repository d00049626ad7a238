"""The command line: generate, chat and info."""

from __future__ import annotations

import argparse
import io
import os
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from cupy_turbo.cli_arguments import BAD_INPUT, FAILURE, INTERRUPTED, PROGRAM, SUCCESS, make_parser
from cupy_turbo.core.errors import (
    CheckpointError,
    CupyTurboError,
    InvalidRequestError,
    RequestFailedError,
    UnsupportedModelError,
)

if TYPE_CHECKING:
    from cupy_turbo.api.llm import LLM
    from cupy_turbo.api.outputs import StreamDelta
    from cupy_turbo.api.sampling_params import SamplingParams


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the program's name; default: those of the process.

    Returns
    -------
    int
        0 done; 1 failed; 2 bad usage or input; 130 interrupted. Errors are one line on stderr.
    """
    try:
        options = make_parser().parse_args(arguments)
    except SystemExit as leave:  # --help, --version or bad usage
        return int(leave.code or 0)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that cannot show a character shows '?'
        sys.stdout.reconfigure(errors="replace")
    commands: dict[str, Callable[[argparse.Namespace], None]] = {"generate": _generate, "chat": _chat, "info": _info}
    try:
        commands[options.command](options)
        sys.stdout.flush()
        return SUCCESS
    except KeyboardInterrupt:
        _report("\ninterrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader has left, as `head` does: nobody is there to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except (InvalidRequestError, CheckpointError, UnsupportedModelError, UnicodeDecodeError) as error:
        return _failed(options, error, BAD_INPUT)
    except Exception as error:
        return _failed(options, error, FAILURE)


def _generate(options: argparse.Namespace) -> None:
    params = _sampling_params(options)
    prompt = sys.stdin.read() if options.prompt == "-" else options.prompt
    with _open_model(options) as llm:
        deltas = llm.stream(prompt, params)
        if options.echo:
            print(prompt, end="", flush=True)
        _print_stream(deltas)


def _chat(options: argparse.Namespace) -> None:
    params = _sampling_params(options)
    with _open_model(options) as llm:
        system = [{"role": "system", "content": options.system}] if options.system is not None else []
        history = list(system)
        if options.message:
            for message in options.message:
                _answer(llm, history, message, params)
            return
        for message in _typed_messages():
            if message.strip() == "/clear":
                history = list(system)
                continue
            try:
                _answer(llm, history, message, params)
            except KeyboardInterrupt:
                _report("\nstopped")
            except (InvalidRequestError, RequestFailedError) as error:  # for example no room left in the context
                _report(f"{error} (/clear forgets what was said)")


def _answer(llm: LLM, history: list[dict[str, str]], message: str, params: SamplingParams) -> None:
    """Print the answer to a message and add both to the history, an answer that was stopped too."""
    said = [*history, {"role": "user", "content": message}]
    parts: list[str] = []
    deltas = llm.stream_chat(said, params)
    try:
        _print_stream(deltas, parts)
    finally:
        history[:] = [*said, {"role": "assistant", "content": "".join(parts)}]


def _typed_messages() -> Iterator[str]:
    """Yield the lines of a conversation until end of file."""
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        _report("Ctrl-C stops an answer, /clear forgets what was said, Ctrl-D leaves")
        _enable_line_editing()
    while True:
        try:
            message = input("> " if is_terminal else "")
        except EOFError:
            return
        if message.strip():
            yield message


def _enable_line_editing() -> None:
    try:
        import readline  # noqa: F401  importing it gives `input` arrow keys and a history
    except ImportError:  # not part of every Python
        return


def _print_stream(deltas: Iterator[StreamDelta], parts: list[str] | None = None) -> None:
    """Print text as it comes, then its speed on stderr; leaving early cancels the request."""
    started = time.perf_counter()
    first = last = started
    num_tokens = 0
    reason = None
    try:
        for delta in deltas:
            last = time.perf_counter()
            first = last if num_tokens == 0 else first
            num_tokens += len(delta.token_ids)
            reason = delta.finish_reason
            if parts is not None:
                parts.append(delta.text)
            print(delta.text, end="", flush=True)
    finally:
        close = getattr(deltas, "close", None)
        if close is not None:
            close()
    print(flush=True)
    rate = (num_tokens - 1) / (last - first) if num_tokens > 1 and last > first else 0.0
    _report(f"[{num_tokens} tokens, the first after {first - started:.2f} s, then {rate:.1f} tokens/s; end: {reason}]")


def _info(options: argparse.Namespace) -> None:
    from cupy_turbo.installation import describe_installation

    print(describe_installation())


def _open_model(options: argparse.Namespace) -> LLM:
    from cupy_turbo import LLM

    return LLM(
        options.model,
        revision=options.revision,
        device=options.device,
        dtype=options.dtype,
        max_model_len=options.max_model_len,
        seed=secrets.randbits(64),  # of requests that bring none: another answer at each run
    )


def _sampling_params(options: argparse.Namespace) -> SamplingParams:
    from cupy_turbo import SamplingParams

    return SamplingParams(
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        seed=options.seed,
        max_tokens=options.max_tokens,
        ignore_eos=options.ignore_eos,
        stop_token_ids=options.stop_token_id,
    )


def _failed(options: argparse.Namespace, error: Exception, code: int) -> int:
    if options.traceback:
        traceback.print_exception(error)
    message = " ".join(str(error).split())  # a compiler's message has lines
    is_ours = isinstance(error, CupyTurboError)
    _report(f"{PROGRAM}: {message if is_ours else f'{type(error).__name__}: {message} (--traceback shows where)'}")
    return code


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
