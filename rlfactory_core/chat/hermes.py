"""The general format: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>`` as Hermes writes it, in any template.

It is for models whose template belongs to no known family. Turns, roles and the stop token are the template's; the stop
token is what it writes after an assistant's text. If the template writes tools, calls and results itself, they are
written its way. Otherwise the first message tells the model how to call, and results come as
``<tool_response>…</tool_response>`` in a user turn. Such a model may call in another syntax, which is parsed as well.

A template may drop ``<think>`` blocks of past turns; here they stay as they were sampled. Nothing else may differ.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlfactory_core.chat.llama3 import read_function_json
from rlfactory_core.chat.parsers.hermes import HERMES, RESUME, read_tagged_json
from rlfactory_core.chat.parsers.json_calls import read_object
from rlfactory_core.chat.parsers.qwen3_coder import FUNCTION, RESUME_FUNCTION, read_function, read_tagged_function
from rlfactory_core.chat.parsers.turn import MalformedError, Syntax, Turn, behind, is_name, read_turn, skip_space
from rlfactory_core.chat.rendering import Entry
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.errors import ChatFormatError
from rlfactory_core.tiny import CALL_OPEN, call_text
from rlfactory_core.types import Message, ToolCall, ToolSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_BLOCK = re.compile(r"<think>.*?</think>\s*", re.DOTALL)
_SAID = "@@rlfactory-said@@"
_CALLING, _END = "[Calling tool:", ")]"
_NAME = re.compile(r"\s*([^\s(]*)\(")
_JSON_BODY = re.compile(r"[^<>\n]*>\s*\{")


class HermesFormat(TemplateFormat):
    """Any other template: calls as JSON between ``<tool_call>`` tags."""

    name = "hermes"
    marks: tuple[str, ...] = ()  # fits any template
    stops: tuple[str, ...] = ()
    block = _BLOCK  # a thinking block, as the template writes it

    def find_stops(self, tokenizer: PreTrainedTokenizerFast) -> Sequence[str]:
        """The first added token after an assistant's text, and the tokenizer's end-of-text token."""
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
        return "\n".join(call_text(call.name, call.arguments_text) for call in calls)

    def keeps(self, messages: Sequence[Message]) -> bool:
        """True without thinking; with it, only for a single user message that is answered by turns that all think."""
        if not self.knows_thinking():
            return True
        one_user = sum(message.role == "user" for message in messages) == 1
        turns = [message for message in messages if message.role == "assistant"]
        return self.thinking and one_user and all(turn.reasoning for turn in turns)

    def forgetful(self, text: str, messages: Sequence[Message]) -> str:
        return self.block.sub("", text)


def parse_fallback(text: str, tools: Sequence[ToolSpec] = (), *, thinking_open: bool = False) -> Message:
    """Read one assistant turn; see `read_turn` for thinking and limits.

    Accepts calls in `parse_hermes`'s syntax, in Qwen3-Coder's (with or without ``<tool_call>``), as
    ``<function=NAME>{…}</function>`` and as ``[Calling tool: NAME({…})]``. A call that is not complete and closed is an
    error, and never content.
    """
    return read_turn(text, tools, _TAGGED, _FUNCTION, _BRACKET, thinking_open=thinking_open)


def _read_tagged(turn: Turn, start: int) -> int:
    xml = turn.text.startswith(FUNCTION, skip_space(turn.text, start))
    return read_tagged_function(turn, start) if xml else read_tagged_json(turn, start)


def _read_function(turn: Turn, start: int) -> int:
    if _JSON_BODY.match(turn.text, start):
        return read_function_json(turn, start)
    found = read_function(turn, start)
    turn.call(found.name, found.arguments_text, found.arguments)
    return found.end


def _read_bracket(turn: Turn, start: int) -> int:
    head = _NAME.match(turn.text, start)
    if head is None or not is_name(head.group(1)):
        raise MalformedError(f"no NAME( follows {_CALLING}", start)
    arguments = read_object(turn.text, head.end(), head.group(1))
    end = behind(turn, _END, arguments.end, head.group(1))
    turn.call(head.group(1), turn.text[arguments.start : arguments.end], arguments.value)
    return end


_TAGGED = Syntax(CALL_OPEN, _read_tagged, HERMES.form, RESUME, close=HERMES.close)
_FUNCTION = Syntax(FUNCTION, _read_function, HERMES.form, RESUME_FUNCTION, close="</function>")
_BRACKET = Syntax(
    _CALLING, _read_bracket, HERMES.form, re.compile(rf"{re.escape(_CALLING)}|{CALL_OPEN}|(?P<close>\)\])"), close=_END
)
