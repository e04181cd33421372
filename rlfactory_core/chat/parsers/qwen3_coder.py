"""Qwen3-Coder's XML: ``<tool_call><function=NAME><parameter=KEY>VALUE</parameter>…</function></tool_call>``.

Qwen3.5 and later write it too, after a thinking block. Values are bare text without escapes; `typed` gives them the
types of the offered tool's schema.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rlfactory_core.chat.parsers.hermes import RESUME
from rlfactory_core.chat.parsers.json_calls import CallObject, typed
from rlfactory_core.chat.parsers.turn import MalformedError, Syntax, Turn, behind, is_name, read_turn, skip_space
from rlfactory_core.tiny import CALL_CLOSE, CALL_OPEN
from rlfactory_core.types import Message, ToolSpec

FUNCTION = "<function="
_END = "</function>"
_NAME = re.compile(r"([^<>\n]*)>\s*")
_PARAMETER = re.compile(r"<parameter=([^<>\n]*)>")
_VALUE_END = re.compile(r"(?P<close></parameter>\s*)|<parameter=|</function>")
BODY = f"{FUNCTION}NAME><parameter=KEY>VALUE</parameter>…{_END}"


def parse_qwen3_coder(text: str, tools: Sequence[ToolSpec] = (), *, thinking_open: bool = False) -> Message:
    """Read one assistant turn; see `read_turn` for thinking and limits.

    A call that is not closed by ``</tool_call>`` is an error, because it may hold half a value, and so is a
    ``<function=`` outside of ``<tool_call>``; other parsers disagree here. A value ends at the first ``</parameter>``;
    the line breaks next to its tags do not belong to it.
    """
    return read_turn(text, tools, _TAGGED, _BARE, thinking_open=thinking_open)


def read_tagged_function(turn: Turn, start: int, opener: str = CALL_OPEN, close: str = CALL_CLOSE) -> int:
    """Read the call between ``opener``, behind which ``start`` is, and ``close``."""
    begin = skip_space(turn.text, start)
    if not turn.text.startswith(FUNCTION, begin):
        raise MalformedError(f"{FUNCTION}NAME> does not follow {opener}", start)
    found = read_function(turn, begin + len(FUNCTION))
    after = behind(turn, close, found.end, found.name, "function")
    turn.call(found.name, found.arguments_text, found.arguments)
    return after


def read_function(turn: Turn, start: int) -> CallObject:
    """Read a function, from after its ``<function=``.

    Raises:
        MalformedError: it is not written as `BODY`.
    """
    text = turn.text
    head = _NAME.match(text, start)
    if head is None or not is_name(head.group(1)):
        raise MalformedError(f"no name follows {FUNCTION}", start)
    name, first = head.group(1), head.end()
    tool = turn.tools.get(name)
    arguments: dict[str, Any] = {}
    position = first
    while parameter := _PARAMETER.match(text, position):
        key, value_start = parameter.group(1), parameter.end()
        end = _VALUE_END.search(text, value_start)
        if end is None or end.lastgroup != "close":
            raise MalformedError(f"the parameter {key[:64]!r} is not closed by </parameter>", value_start, name)
        arguments[key] = typed(_without_breaks(text[value_start : end.start()]), tool, key)
        position = end.end()
    if not text.startswith(_END, position):
        raise MalformedError(f"neither <parameter=KEY> nor {_END} follows", position, name)
    return CallObject(name, text[first:position].rstrip(), arguments, position + len(_END))


def _without_breaks(value: str) -> str:
    return value[value.startswith("\n") : len(value) - (len(value) > 1 and value.endswith("\n"))]


def _refuse_bare(turn: Turn, start: int) -> int:
    found = read_function(turn, start)
    raise MalformedError(f"{FUNCTION}…{_END} stands outside of {CALL_OPEN}", found.end - len(_END), found.name)


RESUME_FUNCTION = re.compile(f"{CALL_OPEN}|{FUNCTION}|(?P<close>{_END})")
_TAGGED = Syntax(CALL_OPEN, read_tagged_function, f"{CALL_OPEN}{BODY}{CALL_CLOSE}", RESUME, close=CALL_CLOSE)
_BARE = Syntax(FUNCTION, _refuse_bare, f"{CALL_OPEN}{BODY}{CALL_CLOSE}", RESUME_FUNCTION)
