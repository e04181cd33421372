"""Qwen3-Coder, Qwen3.5 and later, Nemotron 3: ChatML turns with calls in XML, ``<function=…><parameter=…>…``.

What the thinking templates do to history, and we do not: they drop (Qwen3.5, 3.6) or empty (Nemotron) the thinking
blocks of turns before the last user message; Qwen3.8 keeps them. Qwen3-Coder's own template rewrites nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlfactory_core.chat.parsers.qwen3_coder import parse_qwen3_coder
from rlfactory_core.chat.qwen3 import Qwen3Format
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.types import Message, ToolSpec


class Qwen3CoderFormat(Qwen3Format):
    """A `ChatFormat`; see `TemplateFormat` for arguments and errors."""

    name = "qwen3-coder"
    block = re.compile(r"(?<=<\|im_start\|>assistant\n)<think>.*?</think>\n*", re.DOTALL)
    calls_text = TemplateFormat.calls_text

    @staticmethod
    def matches(chat_template: str) -> bool:
        needed = ("<|im_start|>", "<tool_call>", "<function=", "<parameter=")
        return all(text in chat_template for text in needed)

    def parse_text(self, text: str, tools: Sequence[ToolSpec]) -> Message:
        return parse_qwen3_coder(text, tools, thinking_open=self.thinking_open)
