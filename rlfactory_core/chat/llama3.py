"""Llama 3 to 3.3: header turns, one JSON call in a turn, ``{"name": …, "parameters": {…}}``.

The templates trim contents, show tools in the first user message and tool results as JSON strings; they leave out what
an assistant says beside a call, and take one call in a turn. All that holds for what they render: a turn that was
sampled with text beside its call, or with several calls, stays as it was sampled, and each call gets its result.
Llama 3.0's template has neither tools nor calls: its first message then tells the model how to call.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlfactory_core.chat.parsers.llama3 import parse_llama3
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.types import Message, ToolCall, ToolSpec


class Llama3Format(TemplateFormat):
    """A `ChatFormat`; see `TemplateFormat` for arguments and errors."""

    name = "llama3"
    stops = ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")

    @staticmethod
    def matches(chat_template: str) -> bool:
        return "<|start_header_id|>" in chat_template and "<|eot_id|>" in chat_template

    def parse_text(self, text: str, tools: Sequence[ToolSpec]) -> Message:
        return parse_llama3(text, tools, thinking_open=self.thinking_open)

    def calls_text(self, calls: Sequence[ToolCall]) -> str:
        return "; ".join(f'{{"name": "{call.name}", "parameters": {call.arguments_text}}}' for call in calls)
