"""gpt-oss: harmony messages on channels, one call in a turn, ended by ``<|call|>``; an answer ends with ``<|return|>``.

What the template does to history, and we do not: it drops the analysis of calls once an answer follows, and of answers
that are past, whose ``<|return|>`` becomes ``<|end|>``. It writes what was said beside a call as analysis, and the
recipient before the channel; a model that writes it behind is read as well. ``reasoning_effort`` is the template's.

OpenAI's ``openai-harmony`` 0.0.8 renders and parses this family on token ids. It is not used: it downloads its own
vocabulary at first use and fails without a network, and knows neither a fine-tune's tokenizer nor its template.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlfactory_core.chat.parsers.harmony import parse_harmony
from rlfactory_core.chat.rendering import Entry
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.types import Message, ToolSpec

_ANALYSIS = re.compile(r"<\|channel\|>analysis<\|message\|>.*?<\|end\|><\|start\|>assistant", re.DOTALL)


class GptOssFormat(TemplateFormat):
    """A `ChatFormat`; see `TemplateFormat` for arguments and errors."""

    name = "gpt-oss"
    stops = ("<|return|>", "<|call|>", "<|endoftext|>")
    past_ends = ("<|end|>",)

    @staticmethod
    def matches(chat_template: str) -> bool:
        return "<|channel|>" in chat_template and "<|return|>" in chat_template

    def knows_thinking(self) -> bool:
        return True

    def parse_text(self, text: str, tools: Sequence[ToolSpec]) -> Message:
        return parse_harmony(text, tools, thinking_open=self.thinking_open)

    def entry(self, message: Message) -> Entry:
        entry = super().entry(message)
        thinking = message.reasoning
        if message.tool_calls:  # the template takes either of the two
            thinking = "\n".join(filter(None, (message.reasoning, message.content)))
            entry["content"] = ""
        if thinking:
            entry["thinking"] = thinking
        return entry

    def keeps(self, messages: Sequence[Message]) -> bool:
        turns = [message for message in messages if message.role == "assistant"]
        return all(turn.tool_calls for turn in turns) or (len(turns) == 1 and messages[-1].role == "assistant")

    def forgetful(self, text: str, messages: Sequence[Message]) -> str:
        return _ANALYSIS.sub("", text).replace("<|return|>", "<|end|>")
