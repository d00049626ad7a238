"""Chat templates: messages to the prompt that a model was trained on.

A template comes with the model, from a stranger: it runs in jinja2's sandbox, sees only plain JSON-like values, and has
limits of time and size.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, NoReturn, SupportsIndex

from jinja2 import Template, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.utils import Namespace

from cupy_turbo.core.errors import InvalidRequestError
from cupy_turbo.core.shown import shown, shown_text
from cupy_turbo.text.check import check_text
from cupy_turbo.text.template_limits import LimitedEnvironment

_MAX_DEPTH = 64  # lists and mappings inside of one another


def render_chat(
    template: str | None, messages: Sequence[Mapping[str, object]], variables: Mapping[str, object] | None = None
) -> str:
    """Write messages as a prompt.

    Parameters
    ----------
    template : str or None
        Jinja source; None is the error of a model that has none.
    messages : sequence of mappings
        At least one, each with `role` (text) and `content` (text, or a list of text parts, which are joined by a
        newline). `content` may be missing or None where `tool_calls` stand in for it: a template then sees empty text.
        Other entries are passed on.
    variables : mapping, optional
        What else the template sees: `bos_token`, `add_generation_prompt`, `tools`, …

    Raises
    ------
    InvalidRequestError
        If a message is malformed or the template is missing, malformed, or raises.

    Notes
    -----
    **Source:** transformers `utils/chat_template_utils.py`: the names a template may use, and what it must not see.

    Examples
    --------
    >>> template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"
    >>> render_chat(template, [{"role": "user", "content": "Hi"}])
    '[user] Hi'
    """
    chat = check_messages(messages)
    if template is None:
        raise InvalidRequestError(
            "this model has no chat template: it continues text. Use `generate` with a prompt, or pass "
            "`chat_template` (Jinja source)",
            parameter="messages",
            value=None,
        )
    visible = {name: _plain(value) for name, value in (variables or {}).items()}
    environment = _environment()
    environment.start_clock()
    try:
        return _compiled(template).render(visible, messages=chat)
    except Exception as error:  # the template is a stranger's program: whatever it raises is about this request
        raise InvalidRequestError(
            f"the chat template failed: {_reason(error)}", parameter="messages", value=None
        ) from error


def check_messages(messages: object) -> list[dict[str, object]]:
    """Return the messages as plain values with text contents; raise InvalidRequestError at the first malformed one."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise _refused("messages", f'must be a list of {{"role": …, "content": …}}, got {type(messages).__name__}')
    if not messages:
        raise _refused("messages", "must have at least one message, got none")
    return [_check_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _check_message(message: object, where: str) -> dict[str, object]:
    if not isinstance(message, Mapping):
        raise _refused(where, f"must be a mapping with 'role' and 'content', got {type(message).__name__}")
    present = ", ".join(shown(key) for key in list(message)[:8]) or "nothing"
    if not isinstance(message.get("role"), str) or not message["role"]:
        raise _refused(where, f"must have a 'role' such as 'user', 'assistant' or 'system'; it has {present}")
    content = message.get("content")
    if content is None and not message.get("tool_calls"):
        raise _refused(where, f"must have a 'content'; it has {present}")
    plain = {str(key): _plain(value) for key, value in message.items() if key != "content"}
    check_text(plain["role"], f"{where}.role")
    return {**plain, "content": "" if content is None else _content_text(content, f"{where}.content")}


def _content_text(content: object, where: str) -> str:
    """Return a content's text. Parts are joined by a newline, since most templates take text only (as in vLLM)."""
    if isinstance(content, str):
        return check_text(content, where)
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise _refused(where, f"must be text or a list of text parts, got {type(content).__name__}")
    return "\n".join(_part_text(part, f"{where}[{index}]") for index, part in enumerate(content))


def _part_text(part: object, where: str) -> str:
    if isinstance(part, str):
        return check_text(part, where)
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    if not isinstance(part, Mapping) or kind != "text" or "text" not in part:
        raise _refused(where, f'is {kind!r}; only {{"type": "text", "text": …}} is supported')
    return check_text(part["text"], f"{where}.text")


def _refused(where: str, problem: str) -> InvalidRequestError:
    return InvalidRequestError(f"{where} {problem}", parameter=where, value=None)


def _plain(value: object, depth: int = _MAX_DEPTH) -> object:
    """Return a copy made of plain JSON-like values: methods of richer objects would be a way out of the sandbox."""
    if depth < 0:  # a list that holds itself has no bottom
        raise _refused("messages", f"and template variables are nested deeper than {_MAX_DEPTH} lists or mappings")
    if value is None or type(value) in (str, int, float, bool):
        return value
    for kind in (str, int, float):  # a subclass (an enum, a NumPy float) may have methods of its own
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, SupportsIndex):
        return operator.index(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_plain(item, depth - 1) for item in value]
    raise _refused("messages", f"and template variables must be JSON-like values, got {type(value).__name__}")


def _reason(error: Exception) -> str:
    line = getattr(error, "lineno", None)
    where = f" (line {line} of the template)" if line is not None else ""
    named = str(error) if isinstance(error, TemplateError) else f"{type(error).__name__}: {error}"
    return f"{shown_text(named, 500)}{where}"


@lru_cache(maxsize=32)
def _compiled(template: str) -> Template:
    return _environment().from_string(template)


@cache
def _environment() -> LimitedEnvironment:
    environment = LimitedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationTag])
    environment.add_filter("tojson", _tojson)
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    environment.globals["dict"] = _new_dict
    environment.globals["namespace"] = _GuardedNamespace
    return environment


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as models were trained on it; jinja2's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _new_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    """Make a dict: a function, since the class itself would show a template its attributes."""
    return dict(*args, **kwargs)


class _GuardedNamespace(Namespace):
    """jinja2's `namespace`, without attributes that begin with an underscore (a way to Python's own)."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # a namespace may have an attribute `self`
        for name in dict(*args[1:], **kwargs):
            _check_attribute(name)
        Namespace.__init__(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        super().__setitem__(name, value)


def _check_attribute(name: object) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"a namespace cannot have the attribute {name!r}")


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks an answer for training; here it is only its body."""

    tags = {"generation"}  # noqa: RUF012  jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)
