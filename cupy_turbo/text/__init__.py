"""Text to tokens and back: tokenizers, streaming detokenisation, chat templates."""

from cupy_turbo.text.detokenizer import Detokenizer
from cupy_turbo.text.tokenizer import Tokenizer, open_tokenizer

__all__ = ["Detokenizer", "Tokenizer", "open_tokenizer"]
