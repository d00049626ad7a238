"""What a chat template may cost: jinja2's sandbox keeps a template from Python, but not from memory and time."""

from __future__ import annotations

import functools
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_SIZE = 1 << 25
"""Characters of a prompt, or of any value on the way to it; a list counts as its texts and 256 for each element."""
MAX_SECONDS = 1.0
"""Processor time of one rendering; real templates take a millisecond."""
MAX_TEMPLATE = 1 << 17
"""Characters of a template's source; the longest known has 30,000."""

_MAX_WIDTH = 1 << 12  # what a text may be padded to, indented by or repeated in a format
_MAX_BITS = 1 << 13
_ELEMENT = 256  # what an element of a list counts, in characters
_WIDE_FORMAT = re.compile(r"[%:{][^a-zA-Z%{}]*(\d{5}|\*)|{[^{}]*{")  # five digits, or a width taken from an argument
_PADDING = {"center", "ljust", "rjust", "zfill", "expandtabs", "to_bytes"}


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """jinja2's sandbox, in which every loop, call, operator and filter looks at the clock and at sizes.

    One rendering belongs to one thread. A comparison of nested lists is the one thing not looked at.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})  # these are not folded at compile time either

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=_sized, **options)
        self._started = threading.local()
        self.globals.pop("lipsum")  # text of any length for the asking
        for name, function in list(self.filters.items()):
            self.add_filter(name, function)

    def add_filter(self, name: str, function: Callable[..., Any]) -> None:
        """Let templates use a function as a filter, within the limits."""
        self.filters[name] = self._limited(name, function)

    def start_clock(self) -> None:
        """Begin a rendering on this thread."""
        self._started.time = time.thread_time()

    def tick(self) -> None:
        """Raise SecurityError if the rendering has taken too long."""
        if time.thread_time() - self._started.time > MAX_SECONDS:
            raise SecurityError(f"it takes more than {MAX_SECONDS:g} seconds")

    def joined(self, *parts: object) -> str:
        """Return what `~` makes of its operands."""
        return self.concat(str(_sized(part)) for part in parts)

    @staticmethod
    def concat(parts: Iterable[str]) -> str:  # jinja2 joins everything that it writes by this
        """Return the parts as one text, if it is not too long."""
        return "".join(_counted(parts))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute an operator, unless its result would be too large."""
        self.tick()
        _check_operator(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  as jinja2 has it
        """Call a function, unless its result would be too large."""
        __self.tick()
        method = getattr(__obj, "__wrapped__", __obj)  # the sandbox wraps str.format
        name, owner = getattr(method, "__name__", ""), getattr(method, "__self__", None)
        if isinstance(owner, str | bytes | int):
            _check_method(name, owner, [*args, *kwargs.values()])
        return super().call(__context, __obj, *args, **kwargs)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Parse, and put a look at the clock into every loop and macro."""
        if len(source) > MAX_TEMPLATE:
            raise SecurityError(f"it has {len(source)} characters, the limit is {MAX_TEMPLATE}")
        template = super()._parse(source, name, filename)
        for loop in template.find_all((nodes.For, nodes.Macro, nodes.CallBlock)):
            assert isinstance(loop, nodes.For | nodes.Macro | nodes.CallBlock)
            tick = nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None)
            loop.body.insert(0, nodes.ExprStmt(tick).set_lineno(loop.lineno))
        _replace_joins(template)
        template.set_environment(self)
        return template

    def _limited(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        skipped = 1 if hasattr(function, "jinja_pass_arg") else 0

        @functools.wraps(function)  # takes the mark over by which jinja2 knows what to pass first
        def limited(*args: Any, **kwargs: Any) -> Any:
            self.tick()
            _check_filter(name, args[skipped], [*args[skipped + 1 :], *kwargs.values()])
            return function(*args, **kwargs)

        return limited


def _replace_joins(node: nodes.Node) -> None:
    """Replace `a ~ b` by a call: jinja2 has no other hook for it."""
    for field, value in node.iter_fields():
        children = value if isinstance(value, list) else [value]
        for place, child in enumerate(children):
            if not isinstance(child, nodes.Node):
                continue
            _replace_joins(child)
            if isinstance(child, nodes.Concat):
                call = nodes.Call(
                    nodes.EnvironmentAttribute("joined"), child.nodes, [], None, None, lineno=child.lineno
                )
                if isinstance(value, list):
                    value[place] = call
                else:
                    setattr(node, field, call)


def _counted(parts: Iterable[str]) -> Iterator[str]:
    total = 0
    for part in parts:
        total += len(part)
        _check_size(total)
        yield part


def _sized(value: object) -> object:
    """Return the value; raise SecurityError if it is too large to be written."""
    if not isinstance(value, str | int | float):
        _size(value)
    return value


def _size(value: object) -> int:
    """Return about how many characters a value has when written; raise SecurityError if they are too many."""
    total, left = 0, [value]
    while left:
        part = left.pop()
        if isinstance(part, Mapping):
            left.extend(part)
            left.extend(part.values())
        elif isinstance(part, list | tuple):
            left.extend(part)
        total += _ELEMENT + (len(part) if isinstance(part, str | bytes) else 0)
        # a list may hold another many times over, so what is left to look at counts already
        _check_size(total + _ELEMENT * len(left))
    return total


def _length(value: object) -> int:
    """Return what a sequence counts, without what its elements hold; 0 for what is none."""
    if isinstance(value, str | bytes):
        return len(value)
    return _ELEMENT * len(value) if isinstance(value, list | tuple) else 0


def _check_size(size: int) -> None:
    if size > MAX_SIZE:
        raise SecurityError(f"it makes a value of more than {MAX_SIZE} characters")


def _check_width(widths: Iterable[object]) -> int:
    """Return the largest of those that are integers, if it is not too large."""
    largest = max((abs(width) for width in widths if isinstance(width, int)), default=0)
    if largest > _MAX_WIDTH:
        raise SecurityError(f"it asks for a width of {largest}, the limit is {_MAX_WIDTH}")
    return largest


def _check_bits(bits: int) -> None:
    if bits > _MAX_BITS:
        raise SecurityError(f"it makes an integer of {bits} bits, the limit is {_MAX_BITS}")


def _check_format(pattern: str, values: Iterable[object]) -> None:
    if _WIDE_FORMAT.search(pattern):
        raise SecurityError("it has a format with a width that is too large or taken from an argument")
    _check_size(len(pattern) + (pattern.count("%") + pattern.count("{")) * sum(map(_size, values)))


def _check_operator(operator: str, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        bits = max(left.bit_length(), 1)
        if operator == "**":
            _check_bits(bits * max(right, 0))
        elif operator == "*":
            _check_bits(bits + right.bit_length())
    elif operator == "*":
        for sequence, times in ((left, right), (right, left)):
            if isinstance(times, int):
                _check_size(_length(sequence) * max(times, 0))
    elif operator == "+":
        _check_size(_length(left) + _length(right))
    elif operator == "%" and isinstance(left, str):
        _check_format(left, [right])


def _check_method(name: str, owner: str | bytes | int, arguments: list[Any]) -> None:
    if name in _PADDING:
        _check_width(arguments)
    elif name in ("format", "format_map"):
        _check_format(str(owner), arguments)
    elif name == "join" and arguments:
        _check_filter(name, arguments[0], [owner])
    elif name == "translate" and arguments and isinstance(owner, str):
        _check_size(len(owner) * _size(arguments[0]))
    else:
        _check_filter(name, owner, arguments)


def _check_filter(name: str, value: Any, arguments: list[Any]) -> None:
    longest = max((len(each) for each in arguments if isinstance(each, str | bytes)), default=0)
    match name:
        case "replace" if len(arguments) >= 2:
            text, old = str(value), str(arguments[0])
            _check_size(len(text) + text.count(old) * len(str(arguments[1])))
        case "join":
            _check_size(_size(value) + (len(value) * longest if hasattr(value, "__len__") else 0))
        case "indent":
            width = max(_check_width(arguments), longest, 4)
            _check_size(_size(value) + (str(value).count("\n") + 1) * width)
        case "wordwrap" | "xmlattr" | "urlize":
            _check_width(arguments)
            _check_size(_size(value) * (longest + 1))
        case "format":
            _check_format(str(value), arguments)
        case "center" | "batch" | "slice" | "truncate" | "round" | "tojson":
            _check_width(arguments)
            _size(value)
        case "string" | "pprint" | "escape" | "e" | "forceescape" | "list" | "upper" | "lower":
            _size(value)
