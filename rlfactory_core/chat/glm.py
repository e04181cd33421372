"""GLM-4.5 and 4.6: ``<|user|>``, ``<|assistant|>`` and ``<|observation|>`` turns, calls as keys and values in tags.

A turn has no end token of its own: the model stops with the token that begins the next one, ``<|observation|>`` behind
calls and ``<|user|>`` elsewhere. That token was sampled, so observations begin behind it; where the model stops with
the wrong one, it stays.

What the template does to history, and we do not: it empties the thinking blocks of turns before the last user message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlfactory_core.chat.parsers.glm import parse_glm
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.types import Message, ToolSpec

_USER, _OBSERVATION = "<|user|>", "<|observation|>"
_THOUGHT = re.compile(r"(<\|assistant\|>\n<think>).*?(</think>)", re.DOTALL)


class GlmFormat(TemplateFormat):
    """A `ChatFormat`; see `TemplateFormat` for arguments and errors."""

    name = "glm-4.5"
    stops = (_USER, _OBSERVATION, "<|endoftext|>")

    @staticmethod
    def matches(chat_template: str) -> bool:
        return all(text in chat_template for text in ("[gMASK]", "<|observation|>", "<arg_key>"))

    def parse_text(self, text: str, tools: Sequence[ToolSpec]) -> Message:
        return parse_glm(text, tools, thinking_open=self.thinking_open)

    def stop_of(self, message: Message) -> str:
        return _OBSERVATION if message.tool_calls else _USER

    def keeps(self, messages: Sequence[Message]) -> bool:
        return sum(message.role == "user" for message in messages) <= 1

    def forgetful(self, text: str, messages: Sequence[Message]) -> str:
        return _THOUGHT.sub(r"\1\2", text)
