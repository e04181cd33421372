"""Models that see images on this engine: which do, and what verl is given of the images."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from rlfactory_core.chat import ChatConfig
from rlfactory_core.engines import MakeChat
from rlfactory_core.errors import ModelError
from rlfactory_core.images import picture, sees_images

ANY_TEXT = "."


def shows_images(chat: ChatConfig, model: str | None) -> bool:
    """Whether the model sees images in this run.

    A model whose files cannot be read is not judged: verl says what is wrong with it.
    """
    if chat.format == "vision":
        return True
    if chat.format != "auto" or model is None or find_spec("rlfactory_vision") is None:
        return False
    from transformers import AutoConfig

    found: object = None
    with suppress(Exception):  # a damaged file can raise any error
        found = AutoConfig.from_pretrained(model)
    return sees_images(found)


def check_images(chat: ChatConfig, model: str, make_chat: MakeChat) -> None:
    """Prove, before anything starts, that images get the ids of the model's own processor, and that verl can load it.

    verl itself would go on without a processor, and train on tokens of images without their pixels.

    Raises:
        ChatFormatError: the ids differ; or the model has no image processor of a known kind.
        ModelError: verl and vLLM cannot load the processor.
    """
    if not shows_images(chat, model):
        return
    from transformers import AutoProcessor, AutoTokenizer

    make_chat(AutoTokenizer.from_pretrained(model), images=True).prove()
    try:
        AutoProcessor.from_pretrained(model)
    except Exception as error:  # a damaged file, or a torchvision that does not fit torch, can raise any error
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(
            f"The model '{model}' sees images, and verl and vLLM cannot load its processor: {reason} They need "
            "torchvision for this torch. Install it; or name a text format, such as chat.format=hermes, and images "
            "are names."
        ) from error


def multi_modal(images: Sequence[str]) -> dict[str, Any]:
    """The fields of verl's ``AgentLoopOutput`` for the images of a row.

    verl calls the processor once more on each row's text, of which it keeps only what belongs to the images. The text
    is replaced, for one from a tool that spells the token of an image would count as an image.
    """
    data = {"images": [picture(name) for name in images]} if images else {}
    return {"multi_modal_data": data, "mm_processor_kwargs": {"text": [ANY_TEXT]}}
