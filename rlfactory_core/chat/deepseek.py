"""DeepSeek-V3, R1 and V3.1: ``<｜Assistant｜>`` turns, calls and results between special tokens of their own.

What the templates do to history, and we do not:

- They drop thinking from past turns. They open ``<think>`` in the prompt behind a user message, and not behind
  results, so a thinking block that is never closed is read as one only where it has its tag.
- V3's begins calls and results properly only once in a conversation: later rounds lack ``<｜tool▁calls▁begin｜>``, what
  was said before the calls, and ``<｜tool▁outputs▁begin｜>``. Here every round looks like the first.

V3's and R1's templates do not show tools: the first message then tells the model about them.
"""
# ruff: noqa: RUF001, RUF002 - the bars in DeepSeek's tokens look like others

from __future__ import annotations

import re
from collections.abc import Sequence

from rlfactory_core.chat.parsers.deepseek import parse_deepseek
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.types import Message, ToolCall, ToolSpec

_CALLS, _CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_OUTPUTS = "<｜tool▁outputs▁begin｜>"
_LATER_OUTPUTS = re.compile(r"(?<=<｜end▁of▁sentence｜>)(?:<｜tool▁outputs▁begin｜>|\n)(?=<｜tool▁output▁begin｜>)")
_THOUGHT = re.compile(r"(?<=<｜Assistant｜>)(?:<think>.*?)?</think>\n*", re.DOTALL)
_LATER_CALLS = re.compile(r"(?:<｜tool▁outputs▁end｜>|<｜Assistant｜>)[^｜]*<｜tool▁calls▁begin｜>")


class DeepseekFormat(TemplateFormat):
    """A `ChatFormat`; see `TemplateFormat` for arguments and errors."""

    name = "deepseek-v3"
    stops = ("<｜end▁of▁sentence｜>",)

    @staticmethod
    def matches(chat_template: str) -> bool:
        return "<｜tool▁calls▁begin｜>" in chat_template and "<｜Assistant｜>" in chat_template

    def parse_text(self, text: str, tools: Sequence[ToolSpec]) -> Message:
        return parse_deepseek(text, tools, thinking_open=self.thinking_open)

    def calls_text(self, calls: Sequence[ToolCall]) -> str:
        written = "\n".join(
            f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{call.name}\n```json\n{call.arguments_text}\n```<｜tool▁call▁end｜>"
            for call in calls
        )
        return f"{_CALLS}{written}{_CALLS_END}"

    def keeps(self, messages: Sequence[Message]) -> bool:
        turns = [message for message in messages if message.role == "assistant"]
        return sum(bool(turn.tool_calls) for turn in turns) <= 1 and not any(turn.reasoning for turn in turns)

    def forgetful(self, text: str, messages: Sequence[Message]) -> str:
        text = _THOUGHT.sub("", text)
        head, begin, rest = text.partition(_CALLS)
        rest = _LATER_CALLS.sub("\n", rest)
        once, outputs, later = rest.partition(_OUTPUTS)
        return head + begin + once + outputs + _LATER_OUTPUTS.sub("", later)
