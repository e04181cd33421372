"""Chat formats of vision-language models: the name of an image becomes the tokens that stand for it.

The Qwen family's templates write ``<|vision_start|><|image_pad|><|vision_end|>`` for an image, and the processor
repeats the pad once for each part that the model sees. Here both happen at once, in the text of a content.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlfactory_core.chat import HermesFormat, Qwen3CoderFormat, Qwen3Format, Qwen25Format, TemplateFormat, choose_format
from rlfactory_core.errors import ChatFormatError
from rlfactory_core.images import Image, parts
from rlfactory_core.protocols import ChatFormat
from rlfactory_core.types import Message, ToolCall
from rlfactory_vision.processor import PAD, QwenVision, processed_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_RUN = re.compile(f"(?:{re.escape(PAD)})+")


class SeesImages(TemplateFormat):
    """A format whose model sees images; see `TemplateFormat`.

    Raises:
        ChatFormatError: as `TemplateFormat`; or the model's folder has no image processor of a known kind.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, thinking: bool = True) -> None:
        super().__init__(tokenizer, thinking)
        self.vision = QwenVision.of(tokenizer)
        self._tokenizer = tokenizer

    def shown(self, content: str) -> str:
        return "".join(self.vision.text(part) if isinstance(part, Image) else part for part in parts(content))

    def decode(self, ids: Sequence[int]) -> str:
        """As for text, with one pad for each image."""
        return _RUN.sub(PAD, super().decode(ids))

    def prove(self) -> None:
        """As for text; then conversations with images have to get the ids of the model's own processor.

        Raises:
            ChatFormatError: they differ; or the text differs.
        """
        super().prove()
        asked, called, seen = _conversation()
        self._compare(self.initial_ids([asked], ()), self._processed([asked]))
        if self.abilities.results:
            theirs = self._processed([asked, called, seen])
            ours = self.observation_ids([seen])
            self._compare(ours, theirs[-len(ours) :])

    def _processed(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The ids that transformers' processor gives: it renders messages of parts, and repeats the pads."""
        entries = self._entries(messages)
        images = []
        for entry in entries:
            found = [part for part in parts(entry["content"]) if part]
            images += [part for part in found if isinstance(part, Image)]
            if any(isinstance(part, Image) for part in found):
                entry["content"] = [
                    {"type": "image"} if isinstance(part, Image) else {"type": "text", "text": part} for part in found
                ]
        text = self._template.render(entries, [], generation_prompt=True)
        return processed_ids(self._tokenizer, self.vision, text, images)

    def _compare(self, ours: tuple[int, ...], theirs: tuple[int, ...]) -> None:
        if ours == theirs:
            return
        place = next((i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), len(theirs))
        raise ChatFormatError(
            f"Chat format {self.name!r} does not write images as the model's own processor does: the ids differ from "
            f"number {place} on, {ours[place : place + 8]} here and {theirs[place : place + 8]} there. Name a text "
            "format, such as chat.format=hermes: then images are names."
        )


class _Qwen3Coder(SeesImages, Qwen3CoderFormat):
    """Qwen3.5 and later."""


class _Qwen25(SeesImages, Qwen25Format):
    """A Qwen2.5-VL whose template has tools."""


class _Qwen3(SeesImages, Qwen3Format):
    """Qwen3-VL."""


class _Hermes(SeesImages, HermesFormat):
    """Qwen2-VL and Qwen2.5-VL as published, whose templates have no tools."""


def vision_format(tokenizer: PreTrainedTokenizerFast, thinking: bool = True) -> ChatFormat:
    """The chat format ``vision``: that of the model's family, with images.

    Raises:
        ChatFormatError: no family fits the template, or the model's folder has no image processor of a known kind.
    """
    formats = {"qwen3-coder": _Qwen3Coder, "qwen2.5": _Qwen25, "qwen3": _Qwen3, "hermes": _Hermes}
    return choose_format(formats, tokenizer, thinking=thinking)


vision_format.matches = lambda _: True  # type: ignore[attr-defined] # see `protocols.ChatFormatFactoryTraits`


def _conversation() -> tuple[Message, Message, Message]:
    """A question with two images of different sizes, a call, and its result with an image."""
    import PIL.Image

    wide, tall = (Image.of(PIL.Image.new("RGB", size, "teal")) for size in ((150, 60), (70, 130)))
    call = ToolCall("call_0", "look", "{}", {})
    return (
        Message("user", f"Compare\n{wide}\nwith{tall}."),
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", f"You see:\n{tall}", tool_call_id="call_0", name="look"),
    )
