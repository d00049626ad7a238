"""Text of a token sequence as it grows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cupy_turbo.text.tokenizer import Tokenizer

# A character of UTF-8 has at most four bytes and a token at least one: no token before these can be unfinished.
_PROMPT_TOKENS = 4


class Detokenizer:
    """Turn the tokens of an answer into text as they arrive, never half a character.

    Everything that `push` and `flush` return, joined, is `tokenizer.decode` of all tokens pushed, but as the
    continuation of the prompt: with a tokenizer that writes a word's space before the word (`▁Paris`), an answer keeps
    the space that stands between the prompt and it. A character that the prompt's last tokens began and the answer
    finishes belongs to the answer, whole. Work per token does not grow with the length of the answer.

    Parameters
    ----------
    tokenizer : Tokenizer
    prompt_ids : sequence of int
        What the tokens continue; empty for the start of a text. Its own text is never returned.
    skip_special_tokens : bool
        Whether control tokens such as `<|im_end|>` have no text.

    Notes
    -----
    In a run of byte tokens (`<0xE6>`…) of a `▁` tokenizer nothing is returned before the run ends: there,
    `tokenizers` turns every byte of a run that is not UTF-8 as a whole into U+FFFD, valid characters too.

    Examples
    --------
    >>> from cupy_turbo.text import Detokenizer, open_tokenizer
    >>> tokenizer = open_tokenizer("cupy_turbo/assets/demo")
    >>> detokenizer = Detokenizer(tokenizer)
    >>> [detokenizer.push([token_id]) for token_id in tokenizer.encode("日")]
    ['', '', '日']
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt_ids: Sequence[int] = (), *, skip_special_tokens: bool = True
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._text = tokenizer.token_text()
        for token in self._last_tokens(prompt_ids):
            self._text.push(token)
        self._text.forget()

    def push(self, ids: Iterable[int]) -> str:
        """Return the text that these tokens make certain.

        Parameters
        ----------
        ids : iterable of int
            The next tokens, any number. Ids that the tokenizer does not know have no text.

        Returns
        -------
        str
            New text, without U+FFFD for a character that later tokens may still complete.
        """
        tokens = (self._token(token_id) for token_id in ids)
        return "".join(self._text.push(token) for token in tokens if token is not None)

    def flush(self) -> str:
        """Return the text still held back, with U+FFFD for a character that no token will complete any more."""
        return self._text.flush()

    def _token(self, token_id: int) -> str | None:
        return self._tokenizer.token(token_id, skip_special_tokens=self._skip_special_tokens)

    def _last_tokens(self, prompt_ids: Sequence[int]) -> list[str]:
        """Return the prompt's last few tokens that have text, in order."""
        tokens: list[str] = []
        for token_id in reversed(prompt_ids):
            token = self._token(token_id)
            if token is not None:
                tokens.append(token)
            if len(tokens) == _PROMPT_TOKENS:
                break
        return tokens[::-1]
