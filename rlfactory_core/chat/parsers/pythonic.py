"""Parses a Python list of calls, ``[NAME(KEY=VALUE, …), …]``, between tags or at the beginning of a turn.

Llama 3.2 and 4 write it if their prompt asks for it, LFM2 always.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from rlfactory_core.chat.parsers.json_calls import CallList, CallObject, add_calls, read_call_list, read_call_object
from rlfactory_core.chat.parsers.literals import PYTHON, read_literal
from rlfactory_core.chat.parsers.turn import (
    MalformedError,
    Syntax,
    Turn,
    behind,
    is_name,
    read_or_refuse,
    read_turn,
    skip_space,
)
from rlfactory_core.types import Message, ToolSpec

START, END = "<|python_start|>", "<|python_end|>"
LFM2_START, LFM2_END = "<|tool_call_start|>", "<|tool_call_end|>"
_BEGINS = re.compile(r"\s*(?=\[\s*[A-Za-z_][\w.-]*\()")
_HEAD = re.compile(r"\s*([^\s()\[\]{}=,'\"]*)\s*\(\s*")
_KEY = re.compile(r"\s*([^\s()\[\]{}=,'\":]+)\s*=\s*")
_NEXT = re.compile(r"\s*(?:,|(?P<end>\)))")
_FORM = "[NAME(KEY=VALUE, …)]"
_KEYS = ("arguments", "parameters")


def parse_pythonic(text: str, tools: Sequence[ToolSpec] = (), *, thinking_open: bool = False) -> Message:
    """Read one assistant turn; see `read_turn` for thinking and limits.

    A list that is not between ``<|python_start|>`` and ``<|python_end|>`` holds calls only at the beginning of the turn
    or after another list; within other text it is content. A list that is not closed holds no calls and is one error.
    All arguments are named. Values are strings, numbers, ``True``, ``False``, ``None`` (or JSON's words for them),
    lists and dictionaries.
    """
    return read_turn(text, tools, _TAGGED, thinking_open=thinking_open, at_start=_read_bare)


def parse_lfm2(text: str, tools: Sequence[ToolSpec] = (), *, thinking_open: bool = False) -> Message:
    """Read one assistant turn as `parse_pythonic`, with calls between ``<|tool_call_start|>`` and its end only.

    Between the tags, calls may be JSON instead, one object or a list, which LFM2 writes if its prompt asks for it.
    """
    return read_turn(text, tools, _LFM2, thinking_open=thinking_open)


def _read_bare(turn: Turn, position: int) -> int:
    while found := _BEGINS.match(turn.text, position):
        position = read_or_refuse(turn, _BARE, found.end())
    return position


def _read_list(turn: Turn, start: int) -> int:
    found = read_call_list(turn, start, _read_call)
    add_calls(turn, found.calls)
    return found.end


def _read_tagged(close: str, turn: Turn, start: int) -> int:
    found = _read_calls(turn, skip_space(turn.text, start))
    end = behind(turn, close, found.end, found.calls[-1].name, "list")
    add_calls(turn, found.calls)
    return end


def _read_calls(turn: Turn, begin: int) -> CallList:
    if turn.text.startswith("{", begin):
        call = read_call_object(turn.text, begin, _KEYS)
        return CallList((call,), call.end)
    if not turn.text.startswith("[", begin):
        raise MalformedError("no list of calls begins", begin)
    in_json = turn.text.startswith("{", skip_space(turn.text, begin + 1))
    return read_call_list(turn, begin, partial(read_call_object, arguments_keys=_KEYS) if in_json else _read_call)


def _read_call(text: str, start: int) -> CallObject:
    head = _HEAD.match(text, start)
    if head is None or not is_name(head[1]):
        raise MalformedError("no NAME( begins a call", start)
    name, position = head[1], head.end()
    arguments: dict[str, Any] = {}
    ends = text.startswith(")", position)
    end = position + 1
    while not ends:
        key = _KEY.match(text, position)
        if key is None:
            raise MalformedError("an argument has no KEY=", position, name)
        value = read_literal(text, key.end(), PYTHON, name)
        arguments[key[1]] = value.value
        following = _NEXT.match(text, value.end)
        if following is None:
            raise MalformedError("neither a comma nor ) follows an argument", value.end, name)
        position = end = following.end()
        ends = following.lastgroup == "end"
    return CallObject(name, text[head.end() : end - 1].strip(), arguments, end)


_BARE = Syntax("", _read_list, _FORM, re.compile(re.escape(START)))
_TAGGED = Syntax(
    START,
    partial(_read_tagged, END),
    f"{START}{_FORM}{END}",
    re.compile(f"{re.escape(START)}|(?P<close>{re.escape(END)})"),
    close=END,
)
_LFM2 = Syntax(
    LFM2_START,
    partial(_read_tagged, LFM2_END),
    f"{LFM2_START}{_FORM}{LFM2_END}",
    re.compile(f"{re.escape(LFM2_START)}|(?P<close>{re.escape(LFM2_END)})"),
    close=LFM2_END,
)
