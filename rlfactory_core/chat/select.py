"""Choosing a chat format: by name, or by the chat template that comes with the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlfactory_core.errors import ChatFormatError, nearest
from rlfactory_core.protocols import ChatFormat


def choose_format(
    formats: Mapping[str, Callable[..., Any]], tokenizer: Any, *, name: str = "auto", thinking: bool = True
) -> ChatFormat:
    """Make the format called ``name``, or the first whose ``matches(chat_template)`` is true.

    Args:
        formats: registered factories, ``factory(tokenizer, thinking) -> ChatFormat``, by name.

    Raises:
        ChatFormatError: an unknown name, no chat template, or a template that no format knows.
    """
    if name != "auto":
        if name not in formats:
            raise ChatFormatError(f"There is no chat format {name!r}. {nearest(name, formats)}")
        return _make(formats[name], tokenizer, thinking)
    remedy = f"Known formats: {', '.join(sorted(formats)) or 'none'}. Name one with chat.format=NAME."
    template = getattr(tokenizer, "chat_template", None)
    if not isinstance(template, str) or not template:
        raise ChatFormatError(f"The model's tokenizer has no chat template, so no chat format fits it. {remedy}")
    for factory in formats.values():
        matches = getattr(factory, "matches", None)
        if matches is not None and matches(template):
            return _make(factory, tokenizer, thinking)
    start = " ".join(template.split())[:120]
    raise ChatFormatError(f"No chat format knows the model's chat template, which begins {start!r}. {remedy}")


def _make(factory: Callable[..., Any], tokenizer: Any, thinking: bool) -> ChatFormat:
    made: ChatFormat = factory(tokenizer, thinking=thinking)
    return made
