"""Qwen3 and its kin: ChatML turns, Hermes-style JSON tool calls, tool results in a shared user turn.

Covers every tokenizer whose own template writes these (Qwen3, Qwen3-2507 instruct and thinking, Qwen3-VL, Hermes 3).

What the thinking template does to history, and we do not: it drops the thinking blocks of assistant turns that lie
before the last user message, and the empty block (``thinking=False``) of every turn but the last. Sampled ids are never
rewritten here, so later turns are conditioned on what was really sampled; `proof` checks that nothing else differs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlfactory_core.chat.hermes import HermesFormat
from rlfactory_core.chat.parsers.hermes import parse_hermes
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.types import Message, ToolSpec


class Qwen3Format(HermesFormat):
    """A `ChatFormat`; see `TemplateFormat` for arguments and errors."""

    name = "qwen3"
    stops = ("<|im_end|>", "<|endoftext|>")
    block = re.compile(r"(?<=<\|im_start\|>assistant\n)<think>\n.*?</think>\n\n", re.DOTALL)
    find_stops = TemplateFormat.find_stops

    @staticmethod
    def matches(chat_template: str) -> bool:
        """Whether a template writes ChatML turns with Hermes-style JSON calls (and not Qwen3-Coder's XML)."""
        needed = ("<|im_start|>", "<tool_call>", "<tool_response>", '"arguments"')
        plain = chat_template.replace('\\"', '"')
        return all(text in plain for text in needed) and "<function=" not in plain

    def parse_text(self, text: str, tools: Sequence[ToolSpec]) -> Message:
        return parse_hermes(text, tools, thinking_open=self.thinking_open)
