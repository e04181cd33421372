"""Parses blocks of calls with named parameters: ``<invoke name="NAME"><parameter name="KEY">VALUE</parameter>…``.

MiniMax M2 writes them so. DeepSeek-V3.2 and V4 write a mark within each tag, and an attribute that says whether a value
is a string, else JSON. Without the attribute, values have the types of the offered tool's schema (`typed`).
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, NamedTuple

from rlfactory_core.chat.parsers.json_calls import CallObject, add_calls, read_value, typed
from rlfactory_core.chat.parsers.turn import MAX_CALLS, MalformedError, Syntax, Text, Turn, is_name, skip_space


def invoke_syntax(opener: str, close: str, mark: str = "") -> Syntax:
    """The syntax of a block between ``opener`` and ``close``.

    A block that is not closed holds no calls and is one error. A value ends at the first end tag of a parameter and is
    taken as it is.

    Args:
        mark: stands within each tag, before its name.
    """
    string = ' string="true|false"' if mark else ""
    parameter = f'<{mark}parameter name="KEY"{string}>VALUE</{mark}parameter>'
    form = f'{opener}<{mark}invoke name="NAME">{parameter}…</{mark}invoke>{close}'
    resume = re.compile(f"{re.escape(opener)}|(?P<close>{re.escape(close)})")
    return Syntax(opener, partial(_read_block, _tags(mark), close), form, resume, close=close)


class _Tags(NamedTuple):
    """The patterns of a block's tags."""

    head: re.Pattern[str]
    parameter: re.Pattern[str]
    value_end: re.Pattern[str]
    end: str


def _tags(mark: str) -> _Tags:
    return _Tags(
        re.compile(rf'<{mark}invoke name="([^"<>\n]*)">\s*'),
        re.compile(rf'<{mark}parameter name="([^"<>\n]*)"(?: string="(true|false)")?>'),
        re.compile(rf"(?P<close></{mark}parameter>\s*)|<{mark}parameter |<{mark}invoke |</{mark}invoke>"),
        f"</{mark}invoke>",
    )


def _read_block(tags: _Tags, close: str, turn: Turn, start: int) -> int:
    found: list[CallObject] = []
    position = skip_space(turn.text, start)
    while not (turn.text.startswith(close, position) and found):
        if turn.num_read + len(found) >= MAX_CALLS:
            raise MalformedError(f"a turn holds at most {MAX_CALLS} calls", position)
        call = _read_invoke(tags, turn, position)
        found.append(call)
        position = skip_space(turn.text, call.end)
    add_calls(turn, found)
    return position + len(close)


def _read_invoke(tags: _Tags, turn: Turn, start: int) -> CallObject:
    text = turn.text
    head = tags.head.match(text, start)
    if head is None or not is_name(head[1]):
        raise MalformedError("no call with a name begins", start)
    name, position = head[1], head.end()
    arguments: dict[str, Any] = {}
    while parameter := tags.parameter.match(text, position):
        key, value_start = parameter[1], parameter.end()
        end = tags.value_end.search(text, value_start)
        if end is None or end.lastgroup != "close":
            raise MalformedError(f"the parameter {key[:64]!r} is not closed", value_start, name)
        value = text[value_start : end.start()]
        arguments[key] = _value(value, parameter[2], turn, name, key, value_start)
        position = end.end()
    if not text.startswith(tags.end, position):
        raise MalformedError(f"neither a parameter nor {tags.end} follows", position, name)
    return CallObject(name, text[head.end() : position].rstrip(), arguments, position + len(tags.end))


def _value(text: str, is_string: str | None, turn: Turn, name: str, key: str, start: int) -> Any:
    if is_string is None:
        return typed(text, turn.tools.get(name), key)
    if is_string == "true":
        return text
    try:
        found = read_value(Text(text), 0)
    except MalformedError as error:
        raise MalformedError(f"the parameter {key[:64]!r} is not JSON: {error.reason}", start, name) from None
    if skip_space(text, found.end) != len(text):
        raise MalformedError(f"text follows the JSON of the parameter {key[:64]!r}", start, name)
    return found.value
