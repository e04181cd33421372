"""Parses blocks of calls with named parameters: ``<invoke name="NAME"><parameter name="KEY">VALUE</parameter>…``.

MiniMax M2 writes them so. DeepSeek-V3.2 and V4 write a mark within each tag, and an attribute that says whether a value
is a string, else JSON. Without the attribute, values have the types of the offered tool's schema (`typed`).
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from rlfactory_core.chat.parsers.json_calls import read_value, typed
from rlfactory_core.chat.parsers.tagged import Arguments
from rlfactory_core.chat.parsers.turn import (
    MAX_CALLS,
    CallObject,
    MalformedError,
    Syntax,
    Text,
    Turn,
    between,
    is_name,
    skip_space,
)
from rlfactory_core.types import ToolSpec


def invoke_syntax(opener: str, close: str, mark: str = "") -> Syntax:
    """The syntax of a block between ``opener`` and ``close``.

    A block that is not closed holds no calls and is one error. A value ends at the first end tag of a parameter and is
    taken as it is.

    Args:
        mark: stands within each tag, before its name.
    """
    string = ' string="true|false"' if mark else ""
    parameter = f'<{mark}parameter name="KEY"{string}>VALUE</{mark}parameter>'
    arguments = Arguments(
        re.compile(rf'<{mark}parameter name="([^"<>\n]*)"(?: string="(true|false)")?>'),
        re.compile(rf"(?P<close></{mark}parameter>\s*)|<{mark}parameter |<{mark}invoke |</{mark}invoke>"),
        f"</{mark}invoke>",
        "a parameter",
        _value,
    )
    head = re.compile(rf'<{mark}invoke name="([^"<>\n]*)">\s*')
    body = f'<{mark}invoke name="NAME">{parameter}…</{mark}invoke>'
    return between(opener, close, partial(_read_block, head, arguments, close), body)


def _read_block(head: re.Pattern[str], arguments: Arguments, close: str, turn: Turn, start: int) -> int:
    found: list[CallObject] = []
    position = skip_space(turn.text, start)
    while not (turn.text.startswith(close, position) and found):
        if turn.num_read + len(found) >= MAX_CALLS:
            raise MalformedError(f"a turn holds at most {MAX_CALLS} calls", position)
        begin = head.match(turn.text, position)
        if begin is None or not is_name(begin[1]):
            raise MalformedError("no call with a name begins", position)
        found.append(arguments.read(turn, begin.end(), begin[1]))
        position = skip_space(turn.text, found[-1].end)
    return turn.add(*found, end=position, close=close)


def _value(text: str, head: re.Match[str], tool: ToolSpec | None) -> Any:
    if head[2] is None:
        return typed(text, tool, head[1])
    if head[2] == "true":
        return text
    found = read_value(Text(text), 0)
    if skip_space(text, found.end) != len(text):
        raise MalformedError("text follows the JSON", found.end)
    return found.value
