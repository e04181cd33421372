"""What a tool returned, as the text that the model sees: serialised, cleaned and cut to size."""

from __future__ import annotations

from collections.abc import Callable

from pydantic_core import to_json

CountTokens = Callable[[str], int]

_BYTES_PER_TOKEN = 4  # of English text under a common tokenizer; used only where none is at hand
_MAX_CHARS_PER_TOKEN = 64  # no vocabulary in use has many longer ones; keeps a huge text from the tokenizer


def to_text(value: object) -> str:
    """Strings as they are, anything else as compact JSON; objects that JSON does not know by their ``str``."""
    if isinstance(value, str):
        return value
    return to_json(value, inf_nan_mode="constants", bytes_mode="base64", fallback=str).decode()


def clean(text: str) -> str:
    """Without lone surrogates, which no tokenizer or file takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def truncate(text: str, max_tokens: int, count_tokens: CountTokens | None = None) -> str:
    """The longest known beginning of ``text`` within ``max_tokens``, and a mark that says how much is missing.

    The mark comes on top of the limit. Without ``count_tokens`` a token is taken as four bytes.
    """
    head = _head_by_bytes(text, max_tokens) if count_tokens is None else _head(text, max_tokens, count_tokens)
    if len(head) == len(text):
        return text
    return f"{head}\n[truncated: the first {len(head)} of {len(text)} characters]"


def _head_by_bytes(text: str, max_tokens: int) -> str:
    limit = max_tokens * _BYTES_PER_TOKEN
    return text if len(text) * 4 <= limit else text.encode()[:limit].decode(errors="ignore")


def _head(text: str, max_tokens: int, count_tokens: CountTokens) -> str:
    """By bisection: token counts grow with the text, near enough, but not in step with it."""
    if (len(text) if text.isascii() else len(text.encode())) <= max_tokens:  # a token has at least one byte
        return text
    low, high = 0, min(len(text), max_tokens * _MAX_CHARS_PER_TOKEN)
    if count_tokens(text[:high]) <= max_tokens:
        return text[:high]
    while high - low > max(1, low // 64):  # to within two percent: each count costs a tokenizer run
        middle = (low + high) // 2
        low, high = (middle, high) if count_tokens(text[:middle]) <= max_tokens else (low, middle)
    return text[:low]
