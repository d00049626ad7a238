"""A valid tokenizer.json, and parts of one that `tokenizers` was seen to stumble over."""

from __future__ import annotations

import base64
import json
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "cupy_turbo" / "assets" / "demo"
VALID = json.loads((DEMO / "tokenizer.json").read_text("utf-8"))
SPECIAL = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


def charsmap(size: int, nodes: bytes = b"", texts: bytes = b"") -> dict[str, str]:
    table = base64.b64encode(size.to_bytes(4, "little") + nodes + texts).decode()
    return {"type": "Precompiled", "precompiled_charsmap": table}


def replace(pattern: dict[str, str], content: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def template(single: list[object], specials: dict[str, object]) -> dict[str, object]:
    return {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": specials}


S, A, B = (
    {"SpecialToken": {"id": "<s>", "type_id": 0}},
    {"Sequence": {"id": "A", "type_id": 0}},
    {"Sequence": {"id": "B", "type_id": 0}},
)
PARTS: dict[str, list[object]] = {
    "model": [
        {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "<unk>"},
        {
            "type": "WordPiece",
            "vocab": {"a": 0},
            "unk_token": "?",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 2**63,
        },
        {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 7, "byte_fallback": False},
        {"type": "Unigram", "vocab": [], "unk_id": None, "byte_fallback": True},
        {
            "type": "Unigram",
            "vocab": [["a", -1e308], ["b", 1e308], ["ab", -1e308]],
            "unk_id": 0,
            "byte_fallback": False,
        },
        {"type": "BPE", "vocab": {}, "merges": []},
        {**VALID["model"], "continuing_subword_prefix": "##☃"},
        {**VALID["model"], "merges": [["☃", "b"]]},
        {**VALID["model"], "merges": [["a"]]},
        {**VALID["model"], "merges": [["a", "a"]] * 10},
        {**VALID["model"], "vocab": {**VALID["model"]["vocab"], "zz": 2**32 - 1}},
        {**VALID["model"], "vocab": {**VALID["model"]["vocab"], "zz": 2**63}},
        {**VALID["model"], "vocab": {**VALID["model"]["vocab"], "zz": 5}},
        {**VALID["model"], "unk_token": "<none>", "dropout": 1.0},
        {**VALID["model"], "dropout": -1},
        {"type": "Foo"},
    ],
    "normalizer": [
        charsmap(2**32 - 1),
        charsmap(2**31, bytes(64)),
        charsmap(8, b"\xff" * 8),
        charsmap(4, b"\0\xff\xff\xff", b"\xff"),
        charsmap(3, b"abc"),
        {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
        {"type": "Precompiled", "precompiled_charsmap": "?"},
        {"type": "Precompiled", "precompiled_charsmap": 5},
        {"type": "Sequence", "normalizers": [{"type": "NFC"}, charsmap(2**32 - 1)]},
        {"type": "Sequence", "normalizers": [replace({"String": "a"}, "a" * 60)] * 6},
        replace({"String": ""}, "x" * 1000),
        replace({"Regex": ""}, "x"),
        replace({"Regex": "a*?"}, "x"),
        replace({"Regex": "(a+)+$"}, "x"),
        replace({"Regex": "("}, "x"),
        {"type": "Prepend", "prepend": "x" * 10**6},
        {"type": "Strip", "strip_left": True, "strip_right": True},
    ],
    "pre_tokenizer": [
        {"type": "FixedLength", "length": 0},
        {"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated", "invert": False},
        {"type": "Split", "pattern": {"Regex": "(a|aa|a*)+$"}, "behavior": "Isolated", "invert": False},
        {"type": "Split", "pattern": {"Regex": "(?<=a+)("}, "behavior": "Isolated", "invert": False},
        {"type": "CharDelimiterSplit", "delimiter": "ab"},
        {"type": "Metaspace", "replacement": "", "prepend_scheme": "always", "split": True},
        {"type": "Sequence", "pretokenizers": []},
    ],
    "post_processor": [
        template([S, A], {}),
        template([B], {}),
        template([S], {"<s>": {"id": "<s>", "ids": [2**31 + 5], "tokens": ["<s>"]}}),
        template([S, A], {"<s>": {"id": "<s>", "ids": [0] * 1000, "tokens": []}}),
        {
            "type": "RobertaProcessing",
            "sep": ["x", 2**31],
            "cls": ["y", 0],
            "trim_offsets": True,
            "add_prefix_space": False,
        },
        {"type": "Sequence", "processors": []},
    ],
    "decoder": [
        {"type": "Strip", "content": " ", "start": 2**63, "stop": 2**63},
        {
            "type": "Sequence",
            "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 2**63, "stop": 0}],
        },
        {"type": "Sequence", "decoders": []},
        {"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": True},
        {"type": "Replace", "pattern": {"Regex": "("}, "content": ""},
        {"type": "Replace", "pattern": {"String": ""}, "content": "x"},
        {"type": "Metaspace", "replacement": "▁▁", "prepend_scheme": "first", "split": True},
        {"type": "BPEDecoder", "suffix": ""},
    ],
    "added_tokens": [
        [{"id": 2**32 - 1, "content": "<new>", **SPECIAL}],
        [{"id": 5, "content": "<new>", **SPECIAL}],
        [{"id": 1024, "content": "", **SPECIAL}],
        [{"id": 1024 + index, "content": f"<{index}>", **SPECIAL} for index in range(3000)],
        [{"id": 1024, "content": "a" * 10**6, **SPECIAL}],
        [{"id": 0, "content": "a", **SPECIAL}, {"id": 0, "content": "a", **SPECIAL}],
    ],
    "truncation": [{"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 5}],
    "padding": [
        {
            "strategy": {"Fixed": 2**62},
            "direction": "Right",
            "pad_to_multiple_of": 0,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "x",
        }
    ],
    "version": ["99"],
}


def changed(part: str, value: object) -> dict[str, object]:
    return {**VALID, part: value}


def kept_files() -> list[tuple[str, str]]:
    """Every part that `tokenizers` was seen to stumble over, and texts that are no tokenizer at all."""
    parts = [
        (f"{part} {index}", json.dumps(changed(part, value)))
        for part, values in PARTS.items()
        for index, value in enumerate(values)
    ]
    whole = [
        "",
        "[]",
        '"x"',
        "null",
        "{}",
        "[" * 100_000,
        '{"model":' * 100_000,
        '{"version": "1.0", "version": "1.0"}',
    ]
    escaped = json.dumps(changed("normalizer", charsmap(2**32 - 1))).replace(
        "precompiled_charsmap", "precompiled\\u005fcharsmap"
    )
    repeated = escaped[:-1] + ', "normalizer": null}'
    return parts + [(f"whole {index}", text) for index, text in enumerate([*whole, escaped, repeated])]
