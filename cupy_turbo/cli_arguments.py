"""What may be said on the command line, and what --help teaches."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from cupy_turbo import __version__

PROGRAM = "cupy-turbo"
SUCCESS, FAILURE, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

_EXIT_CODES = "exit codes: 0 done; 1 failed, for example for want of the device; 2 bad usage or input; 130 interrupted"
_GENERATE_EXAMPLES = """examples:
  cupy-turbo generate "ROMEO:"                            the demo model, on the GPU if there is one
  cupy-turbo generate "ROMEO:" --temperature 0            always the most likely token
  cupy-turbo generate "ROMEO:" --seed 1 --max-tokens 50   the same 50 tokens every time
  cupy-turbo generate - --model ./my-llama < prompt.txt   the prompt from a file, a model from a folder
  cupy-turbo generate "Hi" --model model.gguf --device host --dtype float32
"""
_CHAT_EXAMPLES = """examples:
  cupy-turbo chat --model model.gguf                      a conversation; Ctrl-C stops an answer, Ctrl-D leaves
  cupy-turbo chat --model ./my-llama-instruct --system "Answer in one sentence."
  cupy-turbo chat --model model.gguf --message "What is the capital of France?" --temperature 0
  cupy-turbo chat --model model.gguf --message "Hi, I am Ada." --message "What is my name?"

In a conversation, /clear forgets what was said.
"""


class _Parser(argparse.ArgumentParser):
    """Reports bad usage in one line, as every other error is reported."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _Parser(prog=PROGRAM, description="LLM inference whose kernels you can read.", epilog=_EXIT_CODES)
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)

    generate = _command(commands, "generate", "continue a text, printing it as it comes", _GENERATE_EXAMPLES)
    generate.add_argument("prompt", help='text to continue; "-" reads it from stdin')
    generate.add_argument("--echo", action="store_true", help="print the prompt before its continuation")
    _add_model_options(generate, default_model="demo")
    _add_sampling_options(generate)

    chat = _command(commands, "chat", "talk with a chat model", _CHAT_EXAMPLES)
    chat.add_argument("--message", action="append", help="say this and leave after the answer; repeat for more turns")
    chat.add_argument("--system", help="the system message")
    _add_model_options(chat, default_model=None)
    _add_sampling_options(chat)

    _command(commands, "info", "show devices, compilers, caches and supported models", "")
    return parser


def _command(
    commands: argparse._SubParsersAction[_Parser],
    name: str,
    summary: str,
    examples: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"{examples}\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--traceback", action="store_true", help="show where in the program an error arose")
    return parser


def _add_model_options(parser: argparse.ArgumentParser, *, default_model: str | None) -> None:
    group = parser.add_argument_group("model")
    described = "folder, .gguf file, Hugging Face id or random:PRESET"
    if default_model is None:
        group.add_argument("--model", required=True, help=described)
    else:
        group.add_argument("--model", default=default_model, help=f"{described}; default: {default_model}")
    group.add_argument("--revision", help="branch, tag or commit of a Hugging Face id")
    devices = "auto (default: a GPU if there is one), cuda, cuda:N or host"
    group.add_argument("--device", default="auto", type=_device, help=devices)
    dtypes = ("auto", "float32", "float16", "bfloat16")
    group.add_argument("--dtype", default="auto", choices=dtypes, help="default: auto, the checkpoint's")
    group.add_argument("--max-model-len", type=int, metavar="N", help="tokens of prompt and answer together")


def _device(name: str) -> str:
    if re.fullmatch(r"auto|host|cuda(:\d+)?", name) is None:
        raise argparse.ArgumentTypeError(f"must be auto, cuda, cuda:N or host, got {name!r}")
    return name


def _add_sampling_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")
    group.add_argument("--temperature", type=float, default=1.0, metavar="T", help=">= 0; 0 is greedy; default 1.0")
    group.add_argument("--top-k", type=int, default=0, metavar="K", help="candidates; 0 (default) is all")
    group.add_argument("--top-p", type=float, default=1.0, metavar="P", help="probability of the candidates, (0, 1]")
    group.add_argument("--min-p", type=float, default=0.0, metavar="P", help="relative to the most likely, [0, 1]")
    group.add_argument("--seed", type=int, metavar="S", help="fixes the draws; default: a new one each time")
    group.add_argument("--max-tokens", type=int, metavar="N", help="longest answer; default: the room in the context")
    group.add_argument("--ignore-eos", action="store_true", help="go on after the end-of-sequence token")
    group.add_argument("--stop-token-id", type=int, action="append", default=[], metavar="ID", help="repeatable")
