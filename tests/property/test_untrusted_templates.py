"""Chat templates: no way out of the sandbox, and no more time and memory than a prompt is worth."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cupy_turbo.core.errors import InvalidRequestError
from cupy_turbo.testing.examples import examples
from cupy_turbo.text import chat_template, template_limits
from cupy_turbo.text.chat_template import render_chat
from tests.property.untrusted import attempt, audited, json_values, opened_outside

MESSAGES = [{"role": "user", "content": "hi " * 1000}]
NS = "{% set ns = namespace(s='ab', l=[1, 2], n=3) %}"
TWICE = NS + "{% for i in range(64) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"

BOMBS = [
    *("{{ 'x' * 10**10 }}", "{{ 9999999999 * 'x' }}", "{{ [0] * 9999999999 }}", "{{ 2 ** 99999999999 }}"),
    NS + "{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s|length }}",
    NS + "{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s|length }}",
    NS + "{% for i in range(64) %}{% set ns.l = ns.l + ns.l %}{% endfor %}{{ ns.l|length }}",
    NS + "{% for i in range(64) %}{% set ns.n = ns.n * ns.n %}{% endfor %}{{ ns.n }}",
    *(TWICE + use for use in ("{{ ns.l }}", "{{ ns.l|tojson }}", "{{ ns.l|string|length }}", "{{ 'a' ~ ns.l }}")),
    *(
        TWICE + use
        for use in ("{{ '%s' % ns.l }}", "{{ '{}'.format(ns.l) }}", "{{ ns.l|join('') }}", "{{ ns.l|pprint }}")
    ),
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
    "{% set x = messages[0].content %}" + "{% for a in x %}" * 6 + "{% endfor %}" * 6,  # nothing is called in it
    "{% for i in [1, 2] recursive %}{% if loop.depth < 60 %}{{ loop([1, 2]) }}{% endif %}{% endfor %}",
    "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "{% for i in range(99999) %}{{ messages[0].content }}{% endfor %}",
    "{% set x %}{% for i in range(99999) %}{{ messages[0].content }}{% endfor %}{% endset %}",
    *("{{ 'x'|center(9999999999) }}", "{{ 'x'.center(9999999999) }}", "{{ 'x'.zfill(9999999999) }}"),
    *(
        "{{ '\t'.expandtabs(999999999) }}",
        "{{ (1).to_bytes(9999999999, 'big') }}",
        "{{ 1.5|round(9999999999, 'ceil') }}",
    ),
    *("{{ '%9999999999d' % 1 }}", "{{ '%*d' % (999999999, 1) }}", "{{ '%.9999999999f' % 1.5 }}"),
    *("{{ '{:9999999999}'.format(1) }}", "{{ '{:{}}'.format(1, 999999999) }}", "{{ '%9999999999d'|format(1) }}"),
    *("{{ 'x'|batch(9999999999, 'y')|list }}", "{{ 'x'|slice(9999999999)|list }}", "{{ lipsum(n=999999) }}"),
    *(
        "{{ 'x'|indent(9999999999, true) }}",
        "{{ ('x\n' * 100000)|indent(4000) }}",
        "{{ messages|tojson(indent=9**9) }}",
    ),
    *("{{ ('x' * 10**6)|replace('x', 'y' * 1000) }}", "{{ ('x' * 10**6).replace('', 'y' * 1000) }}"),
    *("{{ ('y' * 10**4).join('x' * 10**6) }}", "{{ ('x' * 10**6)|join('y' * 10**4) }}"),
    *("{{ ('x' * 10**6)|wordwrap(1, true, 'y' * 10**4) }}", "{{ ('x' * 10**6).translate({120: 'y' * 10**4}) }}"),
    *("{{ range(10**9)|list }}", "{{ raise_exception('x' * 10**6) }}", "{{ ''.join(['a' * 10**6] * 100) }}"),
    *(
        "{{ " + "(" * 5000,
        "{{ " + "[" * 3000 + "]" * 3000 + " }}",
        "{{ " + "-" * 5000 + "1 }}",
        "{{ 1" + "+1" * 3000 + " }}",
    ),
    *("{% if 1 %}" * 2000 + "{% endif %}" * 2000, "{% for a in [1] %}" * 30 + "{% endfor %}" * 30, "x" * 10**6),
    NS + "{% for i in range(99999) %}{% set ns.s = ('a' * 30000000)|upper %}{% endfor %}",
]


def render(template: str) -> str:
    return render_chat(template, MESSAGES)


@pytest.mark.parametrize("template", BOMBS, ids=lambda template: template[-40:])
def test_a_bomb_is_refused(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits are lowered, for the test's own time: 16 MiB are a few values of the largest size."""
    monkeypatch.setattr(template_limits, "MAX_SECONDS", 0.2)
    monkeypatch.setattr(template_limits, "MAX_SIZE", 1 << 20)
    assert attempt(lambda: render(template), names="the chat template failed: ", allowed_bytes=24 << 20) is None


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(300) %}{{ messages[0].content[:100] }}{{ i ~ ':' ~ 2 * i }}{% endfor %}",
        "{{ '%s %5.2f' % ('a', 1.5) }}{{ '{:>10} {}'.format('a', [1]) }}{{ 'a'.ljust(20) }}",
        "{{ 'a,b'.split(',')|join(' | ') }}{{ nothing ~ 'a' }}",
        "{{ messages|tojson(indent=4) }}{{ messages[0].content|replace('h', '<h>')|trim|indent(8) }}{{ 2 ** 63 }}",
        "{% macro line(a, b='x') %}{{ a ~ b }}{{ caller() }}{% endmacro %}{% call line('y') %}z{% endcall %}",
        "{{ ('user', 'x')|join }}{{ [1, 2] + [3] }}{{ 7 % 3 }}{{ 1.5 * 2 }}{{ [0] * 3 }}{{ ' a' * 2 }}",
        "{% set content %}{{ messages[0].content }}{% endset %}{{ content|length }}",
        "{% for a, b in {'x': 1}.items() %}{{ a ~ b }}{% endfor %}",
        "{% for m in messages %}{{ loop.index0 ~ loop.last ~ loop.length }}{% else %}none{% endfor %}",
    ],
)
def test_what_real_templates_do_is_not_limited(template: str) -> None:
    assert render(template)


def test_limits_change_no_text() -> None:
    """Joining, calling and counting go through the limits; the text must be jinja2's own."""
    template = "{% for m in messages %}{{ loop.index ~ ':' ~ m.role ~ 1.5 ~ [1] ~ none ~ nothing }}{% endfor %}"
    assert render(template + "{{ '%d%%' % 5 }}") == "1:user1.5[1]None5%"
    assert render("{{ 'a' 'b' ~ (1 + 2) }}{{ ('a' ~ 'b')|upper }}{% if 'a' ~ 'b' == 'ab' %}c{% endif %}") == "ab3ABc"


ESCAPES = [
    *("''.__class__", "messages.__class__.__mro__", "messages|attr('__class__')", "raise_exception.__globals__"),
    *("cycler.__init__.__globals__", "strftime_now.__code__", "namespace.__init__", "dict.mro()", "loop.__class__"),
    *("self._TemplateReference__context", "joiner.__init__.__globals__.os", "environment", "tick", "joined", "concat"),
    *("'{0.__class__}'.format(messages)", "'{0.__globals__}'.format(raise_exception)", "'%(__class__)s' % messages"),
    *(
        "messages|map(attribute='__class__')|list",
        "messages|groupby('__class__')",
        "(1).__class__",
        "messages[0].items.__self__",
    ),
    *(
        "messages.append(1)",
        "messages[0].update(a=1)",
        "messages.sort",
        "ns.__class__",
        "caller",
        "varargs",
        "''.format_map.__self__",
    ),
    *(
        "[].__class__.__base__.__subclasses__()",
        "''|attr('__cl' ~ 'ass__')",
        "lipsum.__globals__.os.popen('id').read()",
    ),
]
atoms = st.sampled_from(
    [
        "1",
        "0",
        "-1",
        "9999999999",
        "1.5",
        "''",
        "'ab'",
        "'%s'",
        "'{}'",
        "[]",
        "[1, 2]",
        "{'a': 1}",
        "messages",
        "nothing",
        "ns.s",
        "ns.l",
        "i",
    ]
) | st.sampled_from(ESCAPES)
FILTERS = [
    "length",
    "upper",
    "tojson",
    "list",
    "string",
    "join",
    "first",
    "int",
    "sort",
    "unique",
    "reverse",
    "sum",
    "items",
    "safe",
]
METHODS = [
    "upper()",
    "split()",
    "replace({}, {})",
    "join({})",
    "format({}, {})",
    "center({})",
    "items()",
    "encode()",
    "zfill({})",
    "x",
]
WITH_ARGUMENT = [
    "replace({}, {})",
    "indent({})",
    "center({})",
    "batch({})",
    "default({})",
    "join({})",
    "round({})",
    "truncate({})",
    "attr({})",
]
OPERATORS = ["+", "-", "*", "**", "%", "~", "/", "//", "==", "in", "and", "<"]


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    applied = st.builds(
        lambda a, f, b, c: f"({a})|{f.format(b, c)}", inner, st.sampled_from([*FILTERS, *WITH_ARGUMENT]), inner, inner
    )
    called = st.builds(lambda a, m, b, c: f"({a}).{m.format(b, c)}", inner, st.sampled_from(METHODS), inner, inner)
    operated = st.builds(lambda a, o, b: f"({a} {o} {b})", inner, st.sampled_from(OPERATORS), inner)
    return applied | called | operated | st.builds("[{0}, {0}]".format, inner) | st.builds("range({})".format, inner)


expressions = st.recursive(atoms, grown, max_leaves=6)
statements = st.recursive(
    st.builds("{{{{ {} }}}}".format, expressions)
    | st.builds("{{% set ns.s = {} %}}".format, expressions)
    | st.builds("{{% set ns.l = [ns.l, {}] %}}".format, expressions),
    lambda inner: (
        st.builds("{{% for i in {} %}}{}{{% endfor %}}".format, expressions, inner)
        | st.builds("{{% if {} %}}{}{{% endif %}}".format, expressions, inner)
        | st.builds("{{% set ns.s %}}{}{{% endset %}}".format, inner)
        | st.builds(
            "{% macro m(i) %}{0}{% endmacro %}{{{{ m(1) }}}}".replace("{%", "{{%").replace("%}", "%}}").format, inner
        )
        | st.builds("{}{}".format, inner, inner)
    ),
    max_leaves=6,
)


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=statements)
@example(program="{{ ''.__class__.__mro__[1].__subclasses__() }}")
@example(program="{% include '/etc/passwd' %}")
@example(program="{% import 'os' as os %}{{ os.system('true') }}")
@example(program="{% extends '../x' %}")
def test_any_program_renders_or_is_refused_and_touches_nothing(tmp_path: Path, program: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(template_limits, "MAX_SECONDS", 0.1)
        with audited() as events:
            text = attempt(lambda: render(NS + program), names="the chat template failed: ")
    assert [event for event in events if event[0] not in ("import", "open")] == []
    assert opened_outside(events, tmp_path) == []  # jinja2 imports a module of its own to tell an error's line
    assert text is None or not any(mark in text for mark in ("<class", "<module", "<frame", "subclasses", "root:"))


@settings(max_examples=examples(60))
@given(st.text(max_size=60) | st.binary(max_size=20).map(lambda raw: raw.decode("latin-1")))
def test_any_text_for_a_template(template: str) -> None:
    attempt(lambda: render(template), names="the chat template failed: ")


@settings(max_examples=examples(100))
@given(json_values)
@example({"role": "user", "content": [{"type": "text", "text": "a", "x": [[[[]]]]}]})
def test_any_json_for_messages(value: object) -> None:
    for messages in (
        value,
        [value],
        [{"role": "user", "content": value}],
        [{"role": "user", "content": "a", "extra": value}],
    ):
        attempt(lambda messages=messages: render_chat("{{ messages }}", messages), names="")  # type: ignore[misc]


def test_messages_without_a_bottom_are_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    deep: object = 1
    for _ in range(5000):
        deep = {"a": deep}
    for value in (endless, deep):
        with pytest.raises(InvalidRequestError, match="nested deeper than 64"):
            render_chat("{{ messages }}", [{"role": "user", "content": "a", "extra": value}])


def test_each_thread_has_its_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """One slow template must not end another that renders at the same time, nor give it more time."""
    monkeypatch.setattr(template_limits, "MAX_SECONDS", 0.2)
    slow = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    started = threading.Barrier(4)

    def run(template: str) -> bool:
        started.wait()
        try:
            return bool(render(template))
        except InvalidRequestError:
            return False

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, [slow, "a", slow, "{{ messages|length }}"])) == [False, True, False, True]


def test_a_conversation_of_ten_megabytes_renders_in_time() -> None:
    messages = [{"role": "user", "content": "word " * 2000} for _ in range(1000)]
    template = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    )
    start = time.thread_time()
    assert len(render_chat(template, messages)) > 10_000_000
    assert time.thread_time() - start < 2
    assert chat_template._compiled(template) is chat_template._compiled(template)
