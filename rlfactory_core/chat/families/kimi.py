"""Kimi K2: calls with ids of the model's own, ``functions.NAME:INDEX``, between special tokens.

A call is ``<|tool_call_begin|>functions.NAME:INDEX<|tool_call_argument_begin|>{…}<|tool_call_end|>``, and all calls of
a turn stand between ``<|tool_calls_section_begin|>`` and its end. A result repeats the call's id: an id that the model
wrote stays, and any other id is changed to that form.

The template of K2-Thinking empties the thinking blocks of turns up to the last answer; this format keeps them. A copy
of the template that llama.cpp changed counts calls by itself with a method that transformers' sandbox refuses. It shows
no calls to this format, which then writes them itself.

The tokens around all calls are ignored and may be missing, and so may ``functions.`` and the index. A call that is not
closed by ``<|tool_call_end|>`` is an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlfactory_core.chat.parsers.json_calls import read_arguments
from rlfactory_core.chat.parsers.turn import Parser, TurnReader, between, named
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.types import Message, ToolCall

_SECTION, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_OPEN, _ARGUMENTS, _CLOSE = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
_HEAD = re.compile(rf"\s*+(?:functions\.)?([^\s:<|]*)(?::\d+)?\s*+{re.escape(_ARGUMENTS)}")
_ID = re.compile(r"functions\.[^\s:<|]+:\d+")
_WRITTEN = re.compile(rf"({_ID.pattern})\s*{re.escape(_ARGUMENTS)}\s*\Z")
_LONGEST = 400  # characters of an id and what surrounds it


def _read(turn: TurnReader, start: int) -> int:
    head = named(_HEAD, turn.text, start, f"{_ARGUMENTS} does not follow {_OPEN}functions.NAME:INDEX")
    return turn.add(read_arguments(turn.text, head.end(), head[1]), close=_CLOSE)


_BODY = f"functions.NAME:INDEX{_ARGUMENTS}{{…}}"
parse_kimi = Parser((between(_OPEN, _CLOSE, _read, _BODY, also=(_SECTION_END,)),), markup=(_SECTION, _SECTION_END))


class KimiFormat(TemplateFormat):
    """Kimi K2 and K2-Thinking: calls as JSON between special tokens, with ids."""

    name = "kimi-k2"
    marks = ("<|im_middle|>", _SECTION)
    stops = ("<|im_end|>", "[EOS]")
    parser = parse_kimi
    block = re.compile(r"(?<=<think>)(?:(?!</think>).)+", re.DOTALL)

    def _find_id(self, text: str, start: int, end: int) -> re.Match[str] | None:
        return _WRITTEN.search(text, max(0, start - _LONGEST), start)

    def _own_id(self, call_id: str, name: str) -> str:
        if _ID.fullmatch(call_id):
            return call_id
        return f"functions.{name}:{re.sub('[^0-9]', '', call_id)[-4:] or '0'}"

    def calls_text(self, calls: Sequence[ToolCall]) -> str:
        written = (
            f"{_OPEN}{self._own_id(call.id, call.name)}{_ARGUMENTS}{call.arguments_text}{_CLOSE}" for call in calls
        )
        return f"{_SECTION}{''.join(written)}{_SECTION_END}"

    def written(self, message: Message) -> str:
        return re.sub("^<think></think>", lambda _: f"<think>{message.reasoning}</think>", super().written(message))

    def keeps(self, messages: Sequence[Message]) -> bool:
        return not any(message.reasoning for message in messages)
