"""Tokenizer: text to token ids and back, whatever kind of file it came from."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import tokenizers

from cupy_turbo.core.errors import CheckpointError, InvalidRequestError, UnsupportedModelError
from cupy_turbo.text.chat_template import render_chat
from cupy_turbo.text.check import check_text
from cupy_turbo.text.gguf_tokenizer import read_gguf_tokenizer
from cupy_turbo.text.panics import failures_become
from cupy_turbo.text.pieces import TokenText, token_text
from cupy_turbo.text.source import TokenizerSource
from cupy_turbo.text.token_bound import characters_per_token
from cupy_turbo.text.tokenizer_folder import read_tokenizer_folder


def open_tokenizer(source: str | Path | Mapping[str, object], file: Path | None = None) -> Tokenizer:
    """Read the tokenizer of a checkpoint.

    Parameters
    ----------
    source : path or mapping
        `checkpoint.tokenizer_source`: a Hugging Face folder (`tokenizer.json`, `tokenizer_config.json`, chat template)
        or the metadata of a GGUF file (`tokenizer.ggml.model`, `tokenizer.ggml.tokens`, …).
    file : path, optional
        Where metadata are from, as errors should name it.

    Raises
    ------
    CheckpointError
        If a file or entry is missing or malformed.
    UnsupportedModelError
        If the tokenizer is of a kind that is not supported; the message lists those that are.
    """
    if isinstance(source, Mapping):
        with _naming(file):
            return Tokenizer(read_gguf_tokenizer(source))
    folder = Path(source)
    read = read_tokenizer_folder(folder)
    with _naming(folder / "tokenizer.json"):
        return Tokenizer(read)


@contextmanager
def _naming(file: Path | None) -> Iterator[None]:
    try:
        yield
    except (CheckpointError, UnsupportedModelError) as error:
        raise type(error)(f"{file}: {error}" if file is not None else str(error)) from error


class Tokenizer:
    """Text to token ids and back.

    Parameters
    ----------
    source : TokenizerSource
        What `open_tokenizer` read.

    Attributes
    ----------
    vocab_size : int
        One more than the highest token id. A model may have more rows than that; such ids stand for no text.
    bos_token_id, eos_token_id : int or None
        Begin and end of a sequence.
    chat_template : str or None
        Jinja source that turns messages into a prompt.

    Examples
    --------
    >>> from cupy_turbo.text import open_tokenizer
    >>> tokenizer = open_tokenizer("cupy_turbo/assets/demo")
    >>> ids = tokenizer.encode("ROMEO:")
    >>> ids, tokenizer.decode(ids)
    ([835, 26], 'ROMEO:')
    """

    def __init__(self, source: TokenizerSource) -> None:
        backend = source.backend
        # A tokenizer.json may carry the padding, truncation and dropout of its training: none belongs to a prompt.
        backend.no_padding()
        backend.no_truncation()
        if getattr(backend.model, "dropout", None):
            backend.model.dropout = None
        token_text(backend)  # refuses a decoder that cannot be streamed, before any weight is read
        self._backend: tokenizers.Tokenizer = backend
        self._special_tokens = dict(source.special_tokens)
        added = backend.get_added_tokens_decoder().values()
        self._skipped = frozenset(token.content for token in added if token.special)
        vocabulary = backend.get_vocab(with_added_tokens=True)
        self.vocab_size: int = max(vocabulary.values(), default=-1) + 1
        self._characters_per_token = characters_per_token(backend, vocabulary)
        self.bos_token_id: int | None = self._id_of("bos_token")
        self.eos_token_id: int | None = self._id_of("eos_token")
        self.chat_template: str | None = source.chat_template

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text.

        Parameters
        ----------
        text : str
            Special tokens spelled in it (`<|im_start|>`) become that token.
        add_special_tokens : bool
            Whether to add what the model expects around a prompt, usually BOS. A rendered chat has it already.

        Raises
        ------
        InvalidRequestError
            If the text is not a str, has half of a surrogate pair (no UTF-8 exists for it), or is one that the
            model's tokenizer fails on.
        """
        check_text(text, "prompt")
        with failures_become(_cannot_encode):
            ids: list[int] = self._backend.encode(text, add_special_tokens=add_special_tokens).ids
        if add_special_tokens and self.bos_token_id is not None and ids[:2] == [self.bos_token_id] * 2:
            warnings.warn(
                f"the prompt begins with the BOS token {self._special_tokens['bos_token']!r} twice: once in the text, "
                "once added by the tokenizer; leave it out of the text, or pass token ids",
                UserWarning,
                stacklevel=2,
            )
        return ids

    def least_tokens(self, text: str) -> int:
        """Return a number of tokens that `encode` cannot stay below, in no time; 0 if nothing can be said."""
        return 0 if self._characters_per_token is None else -(-len(text) // self._characters_per_token)

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of token ids, with U+FFFD where bytes are not UTF-8.

        Parameters
        ----------
        ids : iterable of int
            Ids that the tokenizer does not know have no text.
        skip_special_tokens : bool
            Whether control tokens have no text either.
        """
        listed = [_token_id(token_id) for token_id in ids]
        with failures_become(lambda reason: CheckpointError(f"the model's tokenizer cannot decode: {reason}")):
            return self._backend.decode(listed, skip_special_tokens=skip_special_tokens)

    def token(self, token_id: int, *, skip_special_tokens: bool = True) -> str | None:
        """Return a token as the vocabulary spells it; None if it has no text."""
        token = self._backend.id_to_token(_token_id(token_id))
        return None if skip_special_tokens and token in self._skipped else token

    def token_text(self) -> TokenText:
        """Return a fresh streaming decoder; `Detokenizer` is the friendly face of it."""
        return token_text(self._backend)

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, object]],
        add_generation_prompt: bool = True,
        *,
        chat_template: str | None = None,
        **variables: object,
    ) -> str:
        """Write messages as the prompt that the model was trained on.

        Encode the result with `add_special_tokens=False`: the template writes BOS itself.

        Parameters
        ----------
        messages : sequence of mappings
            Each with a `role` and a `content` (text, or a list of `{"type": "text", "text": …}`).
        add_generation_prompt : bool
            Whether to end with the head of the assistant's answer.
        chat_template : str, optional
            Jinja source in place of the model's own.
        **variables
            Passed to the template, for example `tools` or `enable_thinking`.

        Raises
        ------
        InvalidRequestError
            If there is no template, a message is malformed, or the template refuses them.
        """
        return render_chat(
            chat_template if chat_template is not None else self.chat_template,
            messages,
            {**self._special_tokens, **variables, "add_generation_prompt": add_generation_prompt},
        )

    def __repr__(self) -> str:
        chat = "with" if self.chat_template is not None else "without"
        return f"<Tokenizer of {self.vocab_size:,} tokens, {chat} chat template>"

    def _id_of(self, name: str) -> int | None:
        token = self._special_tokens.get(name)
        return None if token is None else self._backend.token_to_id(token)


def _cannot_encode(reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"the model's tokenizer fails on this prompt: {reason}", parameter="prompt", value=None)


def _token_id(token_id: int) -> int:
    """Return the id as an int that `tokenizers` takes (32 bits, no sign)."""
    number = operator.index(token_id)
    if not 0 <= number < 2**32:
        raise InvalidRequestError(
            f"token id {number} is out of range: ids start at 0 and have 32 bits", parameter="ids", value=number
        )
    return number
