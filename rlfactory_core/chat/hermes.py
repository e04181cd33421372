"""The general fallback: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>`` as Hermes writes it, in any template.

For models whose template is of no known family, with their own turns, roles and stop token, which is what the template
writes behind an assistant's text. Where the template writes tools, calls and results itself, they stand as it writes
them; where it does not, the first message tells the model how to call, and results come as
``<tool_response>…</tool_response>`` in a user's turn. What such models write instead of Hermes' syntax is read as well
(`parse_fallback`).

A template that knows ``<think>`` blocks may drop those of the past; here they stay as they were sampled, and nothing
else may differ.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlfactory_core.chat.parsers.fallback import parse_fallback
from rlfactory_core.chat.rendering import Entry
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.errors import ChatFormatError
from rlfactory_core.types import Message, ToolCall, ToolSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_BLOCK = re.compile(r"<think>.*?</think>\s*", re.DOTALL)
_SAID = "@@rlfactory-said@@"


class HermesFormat(TemplateFormat):
    """A `ChatFormat` for any template; see `TemplateFormat` for arguments and errors."""

    name = "hermes"
    stops: tuple[str, ...] = ()
    block = _BLOCK  # a thinking block, as the template writes it

    @staticmethod
    def matches(chat_template: str) -> bool:
        return True

    def find_stops(self, tokenizer: PreTrainedTokenizerFast) -> Sequence[str]:
        """The first added token behind an assistant's text, and the tokenizer's own end of text."""
        said: list[Entry] = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _SAID}]
        try:
            text = self._template.render(said, [], generation_prompt=False)
        except ChatFormatError:
            text = ""
        token = self._encoder.first_added(text.partition(_SAID)[2])
        return list(dict.fromkeys(name for name in (token, tokenizer.eos_token) if name))

    def parse_text(self, text: str, tools: Sequence[ToolSpec]) -> Message:
        return parse_fallback(text, tools, thinking_open=self.thinking_open)

    def calls_text(self, calls: Sequence[ToolCall]) -> str:
        return "\n".join(
            f'<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments_text}}}\n</tool_call>'
            for call in calls
        )

    def keeps(self, messages: Sequence[Message]) -> bool:
        """While a single user message is answered by turns that all think, if they may."""
        if not self.knows_thinking():
            return True
        one_user = sum(message.role == "user" for message in messages) == 1
        turns = [message for message in messages if message.role == "assistant"]
        return self.thinking and one_user and all(turn.reasoning for turn in turns)

    def forgetful(self, text: str, messages: Sequence[Message]) -> str:
        return self.block.sub("", text)
