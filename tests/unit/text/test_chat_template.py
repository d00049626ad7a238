"""Chat templates: what they may use, what they must not reach, and errors that say which message is at fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from cupy_turbo.core.errors import InvalidRequestError
from cupy_turbo.text import open_tokenizer
from cupy_turbo.text.chat_template import render_chat

DEMO = Path(__file__).resolve().parents[3] / "cupy_turbo" / "assets" / "demo"
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HELLO = [{"role": "user", "content": "Hello"}]


def rendered(template: str, **variables: object) -> str:
    return render_chat(template, HELLO, variables)


def test_messages_become_the_models_prompt() -> None:
    messages = [{"role": "system", "content": "Be brief."}, *HELLO]
    assert render_chat(CHATML, messages, {"add_generation_prompt": True}) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ {'a': 'é<b>'} | tojson }}", '{"a": "é<b>"}'),
        ("{{ [1, 2] | tojson(indent=1) }}", "[\n 1,\n 2\n]"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{% for i in range(5) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{% set ns = namespace(count=0) %}{% set ns.count = 3 %}{{ ns.count }}", "3"),
        ("{{ dict(a=1).a }}", "1"),
        ("{% generation %}answer{% endgeneration %}", "answer"),
        ("  {% if true %}\nx\n  {% endif %}\n", "x\n"),  # blocks leave no blank lines behind
        ("{{ messages[0].name is defined }}{{ nothing }}", "False"),
        ("{{ bos_token }}{{ flag }}", "<s>True"),
    ],
)
def test_templates_find_what_transformers_gives_them(template: str, text: str) -> None:
    assert rendered(template, bos_token="<s>", flag=True) == text


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append({'role': 'x'}) }}",
        "{{ messages[0].update(role='x') }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__globals__['__builtins__'] }}",
        "{{ self._TemplateReference__context }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ namespace(__class__=1) }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ '{0.__class__.__init__.__globals__}'.format(raise_exception) }}",
        "{{ (''|attr('__class__'))|attr('__mro__') }}",
        "{{ 'a'.format_map.__func__ }}",
        "{% for x in range(10 ** 9) %}{% endfor %}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_the_sandbox_holds(template: str) -> None:
    """Either the template fails, or it is shown nothing: attributes of Python are undefined to it."""
    try:
        text = rendered(template)
    except InvalidRequestError:
        return
    assert text == ""


def test_objects_with_methods_do_not_reach_a_template() -> None:
    with pytest.raises(InvalidRequestError, match="must be JSON-like values, got PosixPath"):
        rendered("{{ tools.unlink() }}", tools=Path("/nowhere"))


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("\n{% if %}", r"\(line 2 of the template\)"),
        ("{{ 1 + 'a' }}", "TypeError"),
        ("{{ nothing.deeper }}", "'nothing' is undefined"),
    ],
)
def test_a_template_that_fails_says_why(template: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"the chat template failed: .*{reason}"):
        rendered(template)


def test_no_template_says_what_to_do() -> None:
    tokenizer = open_tokenizer(DEMO)
    with pytest.raises(InvalidRequestError, match=r"no chat template.*`generate`.*`chat_template`"):
        tokenizer.apply_chat_template(HELLO)
    assert tokenizer.apply_chat_template(HELLO, chat_template="{{ messages[0].content }}") == "Hello"


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ("Hello", "messages must be a list .* got str"),
        (None, "messages must be a list .* got NoneType"),
        ([], "at least one message"),
        (["Hello"], r"messages\[0\] must be a mapping .* got str"),
        ([*HELLO, {"content": "x"}], r"messages\[1\] must have a 'role' .* it has 'content'"),
        ([{"role": 3, "content": "x"}], r"messages\[0\] must have a 'role'"),
        ([{"role": "user", "contents": "x"}], r"messages\[0\] must have a 'content'; it has 'role', 'contents'"),
        ([{"role": "user", "content": 3}], r"messages\[0\].content must be text or a list of text parts, got int"),
        ([{"role": "user", "content": "\ud83d"}], r"messages\[0\].content has half of a surrogate pair .* character 0"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": "…"}]}],
            r"messages\[0\].content\[0\] is 'image_url'; only",
        ),
        ([{"role": "user", "content": [{"type": "text"}]}], r"messages\[0\].content\[0\] is 'text'; only"),
        ([{"role": "user", "content": "x", "extra": object()}], "must be JSON-like values, got object"),
    ],
)
def test_malformed_messages_are_named(messages: object, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        render_chat(CHATML, messages)  # type: ignore[arg-type]


def test_text_parts_are_joined_and_tool_calls_need_no_content() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert render_chat("{{ messages[0].content }}", [{"role": "user", "content": parts}]) == "one\ntwo"
    call = {"role": "assistant", "tool_calls": [{"name": "f"}]}
    assert render_chat("{{ messages[0].content }}{{ messages[0].tool_calls[0].name }}", [call]) == "f"
