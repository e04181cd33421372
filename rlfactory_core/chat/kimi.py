"""Kimi K2: calls with ids of the model's own, ``functions.NAME:INDEX``, between special tokens.

A call is ``<|tool_call_begin|>functions.NAME:INDEX<|tool_call_argument_begin|>{…}<|tool_call_end|>``, and all calls of
a turn stand between ``<|tool_calls_section_begin|>`` and its end. A result repeats the call's id: an id that the model
wrote stays, and any other id is changed to that form.

The template of K2-Thinking empties the thinking blocks of turns up to the last answer; this format keeps them. A copy
of the template that llama.cpp changed counts calls by itself with a method that transformers' sandbox refuses. It shows
no calls to this format, which then writes them itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from rlfactory_core.chat.parsers.json_calls import read_object
from rlfactory_core.chat.parsers.turn import MalformedError, Syntax, Turn, behind, is_name, read_turn
from rlfactory_core.chat.rendering import Entry
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.types import Message, ToolCall, ToolSpec

_SECTION, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_OPEN, _ARGUMENTS, _CLOSE = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
_HEAD = re.compile(rf"\s*((?:functions\.)?([^\s:<|]*)(?::\d+)?)\s*{re.escape(_ARGUMENTS)}")
_ID = re.compile(r"functions\.[^\s:<|]+:\d+")
_WRITTEN = re.compile(rf"({_ID.pattern})\s*{re.escape(_ARGUMENTS)}\s*\Z")
_LONGEST = 400  # characters of an id and what surrounds it
_THOUGHT = re.compile(r"(<think>).*?(</think>)", re.DOTALL)


class KimiFormat(TemplateFormat):
    """Kimi K2 and K2-Thinking: calls as JSON between special tokens, with ids."""

    name = "kimi-k2"
    marks = ("<|im_middle|>", _SECTION)
    stops = ("<|im_end|>", "[EOS]")

    def parse_text(self, text: str, tools: Sequence[ToolSpec]) -> Message:
        """Parse the text; calls keep the ids that the model wrote."""
        message = parse_kimi(text, tools, thinking_open=self.thinking_open)
        calls: list[ToolCall] = []
        position = 0
        for call in message.tool_calls:
            start = text.find(call.arguments_text, position)
            position = start + len(call.arguments_text)
            written = _WRITTEN.search(text, max(0, start - _LONGEST), start) if call.error is None else None
            taken = {other.id for other in calls}
            calls.append(replace(call, id=written[1]) if written and written[1] not in taken else call)
        return replace(message, tool_calls=tuple(calls))

    def entry(self, message: Message) -> Entry:
        entry = super().entry(message)
        if message.role == "tool":
            entry["tool_call_id"] = _own_id(entry["tool_call_id"], entry["name"])
        for call in entry.get("tool_calls", ()):
            call["id"] = _own_id(call["id"], call["function"]["name"])
        return entry

    def calls_text(self, calls: Sequence[ToolCall]) -> str:
        written = (f"{_OPEN}{_own_id(call.id, call.name)}{_ARGUMENTS}{call.arguments_text}{_CLOSE}" for call in calls)
        return f"{_SECTION}{''.join(written)}{_SECTION_END}"

    def keeps(self, messages: Sequence[Message]) -> bool:
        return not any(message.reasoning for message in messages)

    def forgetful(self, text: str, messages: Sequence[Message]) -> str:
        return _THOUGHT.sub(r"\1\2", text)


def _own_id(call_id: str, name: str) -> str:
    if _ID.fullmatch(call_id):
        return call_id
    return f"functions.{name}:{re.sub('[^0-9]', '', call_id)[-4:] or '0'}"


def parse_kimi(text: str, tools: Sequence[ToolSpec] = (), *, thinking_open: bool = False) -> Message:
    """Read one assistant turn; see `read_turn` for thinking and limits.

    The tokens around all calls (``<|tool_calls_section_begin|>`` and its end) are ignored and may be missing, and so
    may ``functions.`` and the index. A call that is not closed by ``<|tool_call_end|>`` is an error. Ids are left out.
    """
    return read_turn(text, tools, _KIMI, thinking_open=thinking_open, markup=(_SECTION, _SECTION_END))


def _read(turn: Turn, start: int) -> int:
    head = _HEAD.match(turn.text, start)
    if head is None or not is_name(head[2]):
        raise MalformedError(f"{_ARGUMENTS} does not follow {_OPEN}functions.NAME:INDEX", start)
    arguments = read_object(turn.text, head.end(), head[2])
    end = behind(turn, _CLOSE, arguments.end, head[2])
    turn.call(head[2], turn.text[arguments.start : arguments.end], arguments.value)
    return end


_KIMI = Syntax(
    _OPEN,
    _read,
    f"{_OPEN}functions.NAME:INDEX{_ARGUMENTS}{{…}}{_CLOSE}",
    re.compile("|".join(map(re.escape, (_OPEN, _SECTION_END))) + f"|(?P<close>{re.escape(_CLOSE)})"),
    close=_CLOSE,
)
