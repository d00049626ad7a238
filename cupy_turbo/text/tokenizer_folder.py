"""Tokenizers of Hugging Face folders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import tokenizers

from cupy_turbo.core.errors import CheckpointError, UnsupportedModelError
from cupy_turbo.text.source import TokenizerSource, add_around

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
        If a file is missing or malformed.
    UnsupportedModelError
        If there is only a SentencePiece model.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise _no_tokenizer(folder)
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises plain Exception
        raise CheckpointError(f"{path} is not a tokenizer: {error}") from error
    config = _read_json(folder / "tokenizer_config.json")
    named = {**_read_json(folder / "special_tokens_map.json"), **config}
    special_tokens = {name: text for name in _SPECIAL_TOKENS if (text := _token_text(named.get(name))) is not None}
    _apply_additions(folder, backend, config, special_tokens)
    return TokenizerSource(
        backend=backend, special_tokens=special_tokens, chat_template=_read_chat_template(folder, config)
    )


def _apply_additions(
    folder: Path, backend: tokenizers.Tokenizer, config: Mapping[str, object], special_tokens: Mapping[str, str]
) -> None:
    """Let `add_bos_token` and `add_eos_token`, where given, overrule tokenizer.json (as transformers does)."""
    wanted = {name: config.get(f"add_{name}") for name in ("bos_token", "eos_token")}
    if all(value is None for value in wanted.values()):
        return
    bos, eos = (special_tokens.get(name) if value else None for name, value in wanted.items())
    for token in (bos, eos):
        if token is not None and backend.token_to_id(token) is None:
            raise CheckpointError(f"{folder}: every prompt should get {token!r}, which tokenizer.json does not have")
    add_around(backend, bos=bos, eos=eos)


def _read_chat_template(folder: Path, config: Mapping[str, object]) -> str | None:
    jinja = folder / "chat_template.jinja"
    if jinja.is_file():
        return jinja.read_text(encoding="utf-8")
    template = _read_json(folder / "chat_template.json").get("chat_template", config.get("chat_template"))
    if isinstance(template, list):  # named templates: [{"name": "default", "template": …}, …]
        template = {str(entry["name"]): entry["template"] for entry in template}
    if isinstance(template, Mapping):
        if "default" not in template:
            raise CheckpointError(f"{folder}: of the chat templates {sorted(template)} none is named 'default'")
        template = template["default"]
    return None if template is None else str(template)


def _token_text(token: object) -> str | None:
    """Return a special token's text; files give it as text or as the fields of an added token."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _read_json(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold an object, got {type(content).__name__}")
    return content


def _no_tokenizer(folder: Path) -> Exception:
    if (folder / "tokenizer.model").is_file():
        return UnsupportedModelError(
            f"{folder} has only a SentencePiece model (tokenizer.model); write a tokenizer.json beside it with "
            "transformers: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        )
    return CheckpointError(f"{folder} has no tokenizer.json")
