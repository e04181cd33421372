"""The general format: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>`` as Hermes writes it, in any template.

It is for models whose template belongs to no known family. Turns, roles and the stop token are the template's; the stop
token is what it writes after an assistant's text. If the template writes tools, calls and results itself, they are
written its way. Otherwise the first message tells the model how to call, and results come as
``<tool_response>…</tool_response>`` in a user turn. Such a model may call in another syntax, which is parsed as well.

A template may drop ``<think>`` blocks of past turns; here they stay as they were sampled. Nothing else may differ.

Calls are read in `parse_hermes`'s syntax, in Qwen3-Coder's (with or without ``<tool_call>``), as
``<function=NAME>{…}</function>`` and as ``[Calling tool: NAME({…})]``. A call that is not complete and closed is an
error, and never content.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rlfactory_core.chat.families.llama3 import read_function_json
from rlfactory_core.chat.parsers.json_calls import HERMES, read_arguments, read_tagged_json
from rlfactory_core.chat.parsers.tagged import FUNCTION, RESUME_FUNCTION, read_function, read_tagged_function
from rlfactory_core.chat.parsers.turn import Parser, Syntax, TurnReader, between, named, skip_space
from rlfactory_core.chat.rendering import Entry
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.errors import ChatFormatError
from rlfactory_core.tiny import CALL_OPEN, call_text
from rlfactory_core.types import ToolCall

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_ANSWER = "@@rlfactory-answer@@"
_CALLING, _END = "[Calling tool:", ")]"
_NAME = re.compile(r"\s*([^\s(]*)\(")
_JSON_BODY = re.compile(r"[^<>\n]*>\s*\{")


def _read_tagged(turn: TurnReader, start: int) -> int:
    xml = turn.text.startswith(FUNCTION, skip_space(turn.text, start))
    return read_tagged_function(turn, start) if xml else read_tagged_json(turn, start)


def _read_function(turn: TurnReader, start: int) -> int:
    if _JSON_BODY.match(turn.text, start):
        return read_function_json(turn, start)
    return turn.add(read_function(turn, start))


def _read_bracket(turn: TurnReader, start: int) -> int:
    head = named(_NAME, turn.text, start, f"no NAME( follows {_CALLING}")
    return turn.add(read_arguments(turn.text, head.end(), head[1]), close=_END)


_TAGGED = replace(HERMES, read=_read_tagged)
_FUNCTION = Syntax(FUNCTION, _read_function, HERMES.form, RESUME_FUNCTION, close="</function>")
_BRACKET = replace(between(_CALLING, _END, _read_bracket, "", also=(CALL_OPEN,)), form=HERMES.form)
parse_fallback = Parser((_TAGGED, _FUNCTION, _BRACKET))


class HermesFormat(TemplateFormat):
    """Any other template: calls as JSON between ``<tool_call>`` tags."""

    name = "hermes"
    marks: tuple[str, ...] = ()  # fits any template
    stops: tuple[str, ...] = ()
    parser = parse_fallback
    block = re.compile(r"<think>.*?</think>\s*", re.DOTALL)

    def find_stops(self, tokenizer: PreTrainedTokenizerFast) -> Sequence[str]:
        """The first added token after an assistant's text, and the tokenizer's end-of-text token."""
        messages: list[Entry] = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _ANSWER}]
        try:
            text = self._template.render(messages, [], generation_prompt=False)
        except ChatFormatError:
            text = ""
        token = self._encoder.first_added(text.partition(_ANSWER)[2])
        return list(dict.fromkeys(name for name in (token, tokenizer.eos_token) if name))

    def calls_text(self, calls: Sequence[ToolCall]) -> str:
        return "\n".join(call_text(call.name, call.arguments_text) for call in calls)
