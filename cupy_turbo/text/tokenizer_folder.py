"""Tokenizers of Hugging Face folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tokenizers

from cupy_turbo.checkpoint.json_file import parse_json_object, read_optional_json_object, read_text
from cupy_turbo.checkpoint.model_file import find_model_file
from cupy_turbo.core.errors import CheckpointError, UnsupportedModelError
from cupy_turbo.core.shown import shown, shown_name
from cupy_turbo.text.panics import failures_become
from cupy_turbo.text.source import TokenizerSource, add_around
from cupy_turbo.text.tokenizer_checks import check_normalizer

_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


def read_tokenizer_folder(folder: Path) -> TokenizerSource:
    """Read `tokenizer.json` and what the files beside it say about special tokens and chats.

    Parameters
    ----------
    folder : Path
        Has `tokenizer.json`; may have `tokenizer_config.json`, `special_tokens_map.json` and the chat template in
        `chat_template.jinja`, `chat_template.json` or the configuration (the first of these that exists).

    Raises
    ------
    CheckpointError
        If a file is missing or malformed, or a link that leads out of the folder.
    UnsupportedModelError
        If there is only a SentencePiece model.
    """
    path = folder / "tokenizer.json"
    if find_model_file(path) is None:
        raise _no_tokenizer(folder)
    text = read_text(path)
    check_normalizer(parse_json_object(text, str(path)).get("normalizer"), str(path))
    with failures_become(lambda reason: CheckpointError(f"{path} is not a tokenizer: {reason}")):
        backend = tokenizers.Tokenizer.from_str(text)
        backend.encode("a")  # a post-processor that names tokens it does not have fails on every text
    config = read_optional_json_object(folder / "tokenizer_config.json")
    named = {**read_optional_json_object(folder / "special_tokens_map.json"), **config}
    texts = {name: _token_text(named.get(name)) for name in _SPECIAL_TOKENS}
    special_tokens = {name: token for name, token in texts.items() if token is not None}
    _apply_additions(folder, backend, config, special_tokens)
    return TokenizerSource(
        backend=backend, special_tokens=special_tokens, chat_template=_read_chat_template(folder, config)
    )


def _apply_additions(
    folder: Path, backend: tokenizers.Tokenizer, config: Mapping[str, object], special_tokens: Mapping[str, str]
) -> None:
    """Let `add_bos_token` and `add_eos_token`, where given, overrule tokenizer.json (as transformers does)."""
    wanted = {name: config.get(f"add_{name}") for name in ("bos_token", "eos_token")}
    for name, value in wanted.items():
        if value is not None and not isinstance(value, bool):
            raise CheckpointError(
                f"{folder / 'tokenizer_config.json'}: add_{name} must be true or false, got {shown(value)}"
            )
    if all(value is None for value in wanted.values()):
        return
    bos, eos = (special_tokens.get(name) if value else None for name, value in wanted.items())
    for token in (bos, eos):
        if token is not None and backend.token_to_id(token) is None:
            raise CheckpointError(
                f"{folder}: every prompt should get {shown(token)}, which tokenizer.json does not have"
            )
    add_around(backend, bos=bos, eos=eos)


def _read_chat_template(folder: Path, config: Mapping[str, object]) -> str | None:
    jinja = folder / "chat_template.jinja"
    if find_model_file(jinja) is not None:
        return read_text(jinja)
    own_file = folder / "chat_template.json"
    template, source = read_optional_json_object(own_file).get("chat_template"), own_file
    if template is None:
        template, source = config.get("chat_template"), folder / "tokenizer_config.json"
    if isinstance(template, list):  # named templates: [{"name": "default", "template": …}, …]
        entries = [each for each in template if isinstance(each, Mapping)]
        template = {str(each.get("name")): each.get("template") for each in entries}
    if isinstance(template, Mapping):
        if "default" not in template:
            names = ", ".join(shown_name(str(name)) for name in sorted(template)[:8])
            raise CheckpointError(f"{source}: of the chat templates [{names}] none is named 'default'")
        template = template["default"]
    if template is not None and not isinstance(template, str):
        raise CheckpointError(f"{source}: chat_template must be text, got {shown(template)}")
    return template


def _token_text(token: object) -> str | None:
    """Return a special token's text; files give it as text or as the fields of an added token."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _no_tokenizer(folder: Path) -> Exception:
    if (folder / "tokenizer.model").is_file():
        return UnsupportedModelError(
            f"{folder} has only a SentencePiece model (tokenizer.model); write a tokenizer.json beside it with "
            "transformers: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        )
    return CheckpointError(f"{folder} has no tokenizer.json")
