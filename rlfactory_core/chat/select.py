"""Chooses a chat format by name, or by the model's chat template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlfactory_core.chat.rendering import remedy, template_of
from rlfactory_core.errors import ChatFormatError, nearest
from rlfactory_core.plugins.attributes import optional_attributes
from rlfactory_core.protocols import ChatFormat, ChatFormatFactoryTraits

_GENERAL = "hermes"  # fits any template, so it is tried last


def choose_format(
    formats: Mapping[str, Callable[..., ChatFormat]],
    tokenizer: Any,
    *,
    name: str = "auto",
    thinking: bool = True,
    images: bool = False,
) -> ChatFormat:
    """Make the format called ``name``, or the first whose ``matches(chat_template)`` is true, the general one last.

    Args:
        formats: registered factories, ``factory(tokenizer, thinking) -> ChatFormat``, by name.
        images: the model sees images, so the format has to be one that shows them.

    Raises:
        ChatFormatError: an unknown name, no chat template, or a template that no format knows.
        PluginError: a factory has a misspelt attribute.
    """
    if name != "auto":
        if name not in formats:
            raise ChatFormatError(f"There is no chat format {name!r}. {nearest(name, formats)}")
        return formats[name](tokenizer, thinking=thinking)
    known = f"Known formats: {', '.join(sorted(formats)) or 'none'}. Name one with chat.format=NAME."
    template = template_of(tokenizer)
    if template is None:
        raise ChatFormatError(
            f"The model's tokenizer has no chat template, so no chat format fits it. {remedy(tokenizer)} {known}"
        )
    for key in sorted(formats, key=lambda key: key == _GENERAL):
        traits = optional_attributes(formats[key], ChatFormatFactoryTraits, f"The factory of the chat format '{key}'")
        if traits.sees_images == images and traits.matches is not None and traits.matches(template):
            return formats[key](tokenizer, thinking=thinking)
    if images:
        raise ChatFormatError(
            "The model sees images, and no installed chat format shows it any. Install one: python -m pip install "
            "rlfactory-vision. Or name a text format, such as chat.format=hermes, and images are names."
        )
    start = " ".join(template.split())[:120]
    raise ChatFormatError(f"No chat format knows the model's chat template, which begins {start!r}. {known}")
