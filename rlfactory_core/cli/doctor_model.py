"""``rlfactory doctor --model``: which chat format a model gets, and whether it is exact on the model's own template."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rlfactory_core.chat.settings import ChatConfig
from rlfactory_core.cli.options import needs_local
from rlfactory_core.errors import ChatFormatError, ModelError
from rlfactory_core.plugins.diagnostics import Check
from rlfactory_core.protocols import ChatFormat

if TYPE_CHECKING:
    from rlfactory_core.plugins.registry import Registry

_LACKS = {
    "system": "system messages; their texts begin the user message that follows",
    "tools": "tools; the first message describes them",
    "results": "tool results; they are sent as the user's turns",
}


def model_checks(model: str, registry: Registry) -> Iterator[Check]:
    """Loads the configuration and the tokenizer, no weights.

    Args:
        model: a folder or a hub id, as for ``rlfactory run --model``.

    Raises:
        MissingExtraError: the embedded engine's packages are not installed.
    """
    with needs_local():
        from rlfactory_core.engines.local.memory import model_size
        from rlfactory_core.engines.local.model.loading import load_tokenizer
    try:
        size = model_size(model)
        tokenizer = load_tokenizer(model)
    except ModelError as error:
        yield Check("problem", "model", str(error))
        return
    vocabulary = size.shape.vocabulary
    yield Check("ok", "model", f"{size.parameters:,} parameters, {size.shape.layers} layers, {vocabulary:,} embeddings")
    largest = max(tokenizer.get_vocab().values())
    said = f"{type(tokenizer).__name__}, ids up to {largest:,}; the model has {vocabulary:,}"
    yield Check("ok" if largest < vocabulary else "problem", "tokenizer", said)
    yield from _format_checks(tokenizer, registry)


def _format_checks(tokenizer: Any, registry: Registry) -> Iterator[Check]:
    from rlfactory_core.runner.making import make_chat

    registry.load_all()
    for thinking in (True, False):
        try:
            chat = make_chat(ChatConfig(thinking=thinking), registry)(tokenizer)
        except ChatFormatError as error:
            yield Check("problem", "chat format", str(error))
            return
        if thinking:
            yield Check("ok", "chat format", f"{chat.name}, by the model's chat template")
            yield from _lacks(chat)
        setting = f"chat.thinking={str(thinking).lower()}"
        try:
            chat.prove()
        except ChatFormatError as error:
            yield Check("problem", "proof", f"{setting}: {error}")
        else:
            yield Check("ok", "proof", f"{setting}: ids appended turn by turn are those of the rendered conversation")


def _lacks(chat: ChatFormat) -> Iterator[Check]:
    abilities = getattr(chat, "abilities", None)  # a format of a plugin need not have a template
    for name, text in _LACKS.items():
        if abilities is not None and not getattr(abilities, name):
            yield Check("note", "template", f"it does not write {text}")
