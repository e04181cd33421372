"""Parses a Python list of calls, ``[NAME(KEY=VALUE, …), …]``, between tags or at the beginning of a turn.

Llama 3.2 and 4 write it if their prompt asks for it, LFM2 always. LFM2 writes JSON between its tags, one object or a
list, if its prompt asks for that.

A list that is not between tags holds calls only at the beginning of the turn or after another list, and never in LFM2;
within other text it is content. A list that is not closed holds no calls and is one error. All arguments are named.
Values are strings, numbers, ``True``, ``False``, ``None`` (or JSON's words for them), lists and dictionaries.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from rlfactory_core.chat.parsers.json_calls import CallList, read_call_list, read_call_object
from rlfactory_core.chat.parsers.literals import PYTHON, read_literal
from rlfactory_core.chat.parsers.turn import (
    CallObject,
    MalformedError,
    Parser,
    Syntax,
    Turn,
    between,
    is_name,
    read_or_refuse,
    skip_space,
)

START, END = "<|python_start|>", "<|python_end|>"
LFM2_START, LFM2_END = "<|tool_call_start|>", "<|tool_call_end|>"
_BEGINS = re.compile(r"\s*(?=\[\s*[A-Za-z_][\w.-]*\()")
_HEAD = re.compile(r"\s*([^\s()\[\]{}=,'\"]*)\s*\(\s*")
_KEY = re.compile(r"\s*([^\s()\[\]{}=,'\":]+)\s*=\s*")
_NEXT = re.compile(r"\s*(?:,|(?P<end>\)))")
_FORM = "[NAME(KEY=VALUE, …)]"
_KEYS = ("arguments", "parameters")


def _read_bare(turn: Turn, position: int) -> int:
    while found := _BEGINS.match(turn.text, position):
        position = read_or_refuse(turn, _BARE, found.end())
    return position


def _read_list(turn: Turn, start: int) -> int:
    found = read_call_list(turn, start, _read_call)
    return turn.add(*found.calls, end=found.end)


def _read_tagged(close: str, turn: Turn, start: int) -> int:
    found = _read_calls(turn, skip_space(turn.text, start))
    return turn.add(*found.calls, end=found.end, close=close, what="list")


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
parse_pythonic = Parser((between(START, END, partial(_read_tagged, END), _FORM),), at_start=_read_bare)
parse_lfm2 = Parser((between(LFM2_START, LFM2_END, partial(_read_tagged, LFM2_END), _FORM),))
