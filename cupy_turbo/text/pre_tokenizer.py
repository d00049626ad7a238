"""How byte-level tokenizers cut a text into words before they merge bytes: by the names that GGUF files use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Regex, pre_tokenizers

from cupy_turbo.core.errors import UnsupportedModelError
from cupy_turbo.core.shown import shown

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BytePreTokenizer:
    """One way of cutting.

    Parameters
    ----------
    patterns : sequence of str
        Regular expressions, applied in turn: each cuts the pieces that the one before it left, at every match.
    ignore_merges : bool
        Whether a piece that is a token itself is taken whole, whatever the merges say.
    composes : bool
        Whether a text is brought to Unicode's composed form (NFC) first.
    adds_bos : bool
        Whether a prompt begins with BOS when the file does not say.
    """

    patterns: Sequence[str]
    ignore_merges: bool = False
    composes: bool = False
    adds_bos: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        """Return it for `tokenizers`; the bytes of each piece are spelled in the byte alphabet at the end."""
        splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns]
        return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


_GPT2_LIKE = BytePreTokenizer(patterns=[_GPT2])
_DIGITS_ALONE = BytePreTokenizer(patterns=[r"\p{N}", _GPT2])
_LLAMA3_LIKE = BytePreTokenizer(patterns=[_LLAMA3], ignore_merges=True, adds_bos=True)

BYTE_PRE_TOKENIZERS = {
    # What a file without a name means: written before names existed, and cut in this way by llama.cpp.
    "default": BytePreTokenizer(patterns=[r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
    "gpt-2": _GPT2_LIKE,
    "llama-bpe": _LLAMA3_LIKE,
    "llama-v3": _LLAMA3_LIKE,
    "llama3": _LLAMA3_LIKE,
    "qwen2": BytePreTokenizer(patterns=[_QWEN2], composes=True),
    "smollm": _DIGITS_ALONE,
    "starcoder": _DIGITS_ALONE,
    "tekken": BytePreTokenizer(patterns=[_TEKKEN], ignore_merges=True, adds_bos=True),
}


def byte_level_pre_tokenizer(name: str) -> BytePreTokenizer:
    """Return the pre-tokenizer of this name.

    Raises
    ------
    UnsupportedModelError
        If there is none; a near one would cut some texts otherwise, silently.

    Notes
    -----
    **Source:** llama.cpp `llama-vocab.cpp` (names and expressions); the `tokenizer.json` of GPT-2, Llama 3 and Qwen 2;
    Mistral's `tekken.json`.
    """
    if name not in BYTE_PRE_TOKENIZERS:
        supported = ", ".join(sorted(BYTE_PRE_TOKENIZERS))
        raise UnsupportedModelError(f"GGUF pre-tokenizer {shown(name)} is not supported; supported: {supported}")
    return BYTE_PRE_TOKENIZERS[name]
