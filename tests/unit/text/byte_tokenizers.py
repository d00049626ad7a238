"""Small tokenizers of each kind, made on the spot, that know every byte."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from cupy_turbo.text.pieces import byte_alphabet
from cupy_turbo.text.source import TokenizerSource
from cupy_turbo.text.tokenizer import Tokenizer as TurboTokenizer

SPECIALS = ["<s>", "</s>", "<|end|>"]


def byte_level_vocabulary() -> list[str]:
    """Return the 256 bytes and a few words, pieces of characters among them, as a byte-level vocabulary spells them."""
    spell = {byte: character for character, byte in byte_alphabet().items()}
    words = [" the", " Paris", "日本".encode(), "日".encode()[:2], "é".encode()[1:] + b"x", b"\xf0\x9f", " "]
    as_bytes = [word if isinstance(word, bytes) else word.encode() for word in words]
    singles = [spell[byte] for byte in range(256)]
    return list(dict.fromkeys([*singles, *("".join(spell[byte] for byte in word) for word in as_bytes)]))


def sentence_piece_vocabulary() -> list[str]:
    """Return byte tokens, single marks and a few words, as a Llama 2 vocabulary spells them."""
    words = ["▁", "▁▁", "▁the", "▁Paris", "a", "b", "日", "▁日", ",", "<0xZZ>", "\ufffd"]
    return ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]


def byte_level() -> TurboTokenizer:
    backend = Tokenizer(models.BPE(_ids(byte_level_vocabulary()), []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return _wrapped(backend, decoders.ByteLevel())


def sentence_piece(*, strip: bool = True) -> TurboTokenizer:
    model = models.BPE(_ids(sentence_piece_vocabulary()), [], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    backend = Tokenizer(model)
    backend.normalizer = normalizers.Replace(" ", "▁")
    end = [decoders.Strip(" ", 1, 0)] if strip else []
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *end]
    return _wrapped(backend, decoders.Sequence(steps))


def metaspace() -> TurboTokenizer:
    return _wrapped(Tokenizer(models.BPE(_ids(sentence_piece_vocabulary()), [])), decoders.Metaspace())


def undecoded() -> TurboTokenizer:
    return _wrapped(Tokenizer(models.WordLevel(_ids(["a", "b", "c"]), unk_token="a")), None)


def _ids(vocabulary: list[str]) -> dict[str, int]:
    return {token: token_id for token_id, token in enumerate(vocabulary)}


def _wrapped(backend: Tokenizer, decoder: decoders.Decoder | None) -> TurboTokenizer:
    backend.decoder = decoder
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIALS])
    backend.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("é ü", normalized=False)])
    return TurboTokenizer(TokenizerSource(backend=backend, special_tokens={"bos_token": "<s>", "eos_token": "</s>"}))
