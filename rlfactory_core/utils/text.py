"""Text and JSON: values as text, text cleaned and truncated, and strict parsing."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import NoReturn

from pydantic_core import to_json

__all__ = ["STRICT_JSON", "clean", "to_text", "truncate"]


def clean(text: str) -> str:
    """The text without lone surrogates, which no tokenizer or file accepts."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


CountTokens = Callable[[str], int]

BYTES_PER_TOKEN = 4  # of English text with a common tokenizer; used only if there is no tokenizer
_MAX_CHARS_PER_TOKEN = 64  # vocabularies have hardly any longer tokens; keeps huge texts from the tokenizer


def to_text(value: object) -> str:
    """A string as it is, any other value as compact JSON; objects unknown to JSON become their ``str``."""
    if isinstance(value, str):
        return value
    return to_json(value, inf_nan_mode="constants", bytes_mode="base64", fallback=str).decode()


def truncate(text: str, max_tokens: int, count_tokens: CountTokens | None = None) -> str:
    """The beginning of ``text`` within ``max_tokens``, with a note on how much is missing, which is not counted.

    Without ``count_tokens``, four bytes count as a token.
    """
    head = _head(text, max_tokens, count_tokens or (lambda text: -(-len(text.encode()) // BYTES_PER_TOKEN)))
    if len(head) == len(text):
        return text
    return f"{head}\n[truncated: the first {len(head)} of {len(text)} characters]"


def _head(text: str, max_tokens: int, count_tokens: CountTokens) -> str:
    """Bisects the text, because its token count grows with its length, but not in proportion."""
    if (len(text) if text.isascii() else len(text.encode())) <= max_tokens:  # a token has at least one byte
        return text
    low, high = 0, min(len(text), max_tokens * _MAX_CHARS_PER_TOKEN)
    if count_tokens(text[:high]) <= max_tokens:
        return text[:high]
    while high - low > max(1, low // 64):  # to within two percent: each count costs a tokenizer run
        middle = (low + high) // 2
        low, high = (middle, high) if count_tokens(text[:middle]) <= max_tokens else (low, middle)
    return text[:low]


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:20]} is too large")
    return value


# Python's JSON accepts NaN and infinities, which other JSON parsers refuse when the arguments are written again.
STRICT_JSON = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)
