"""JSON within a turn's text, parsed strictly and in linear time, and bare text as a value of the schema's type.

What cannot be read is a `MalformedError`, written so that a model can learn from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlfactory_core.chat.parsers.turn import (
    MAX_CALLS,
    CallObject,
    MalformedError,
    Parser,
    Text,
    TurnReader,
    between,
    is_name,
    skip_space,
)
from rlfactory_core.chat.schemas import argument_types, kind
from rlfactory_core.tiny import CALL_CLOSE, CALL_OPEN
from rlfactory_core.types import ToolSpec
from rlfactory_core.utils.text import STRICT_JSON

MAX_DEPTH = 64  # deeper nesting would make later stages (validation, pickling, writing) recurse too deeply
_MAX_MEMBERS = 16  # a call has two to four
COLON = re.compile(r"\s*:\s*")
_NEXT = re.compile(r"\s*(?:,\s*|(?P<end>}))")


@dataclass(frozen=True, slots=True)
class Value:
    """A JSON value with its place in the text."""

    value: Any
    start: int
    end: int


def read_value(text: str, start: int, name: str = "") -> Value:
    """The JSON value at ``start``, after white space; ``name`` is the tool's, if it is known, for the error."""
    begin = skip_space(text, start)
    try:
        value, end = STRICT_JSON.raw_decode(text, begin)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"the call is not valid JSON ({_words(error)})", start, name) from None
    if _too_deep(value):
        raise MalformedError(f"the call's JSON is nested deeper than {MAX_DEPTH} levels", end, name)
    return Value(value, begin, end)


def read_whole(text: str) -> Any:
    """The JSON value that is the whole text, white space aside."""
    found = read_value(Text(text), 0)
    if skip_space(text, found.end) != len(text):
        raise MalformedError("text follows the JSON", found.end)
    return found.value


def read_object(text: str, start: int, name: str = "") -> Value:
    """The arguments object at ``start``.

    Raises:
        MalformedError: as `read_value`, or it is another kind of value.
    """
    found = read_value(text, start, name)
    if not isinstance(found.value, dict):
        raise MalformedError(f"the arguments are a JSON {kind(found.value)}, not an object", found.end, name)
    return found


def read_arguments(text: str, start: int, name: str) -> CallObject:
    """The call of ``name`` whose arguments object is at ``start``."""
    found = read_object(text, start, name)
    return CallObject(name, text[found.start : found.end], found.value, found.end)


def read_call_object(text: str, start: int, arguments_keys: tuple[str, ...] = ("arguments",)) -> CallObject:
    """``{"name": …, "arguments": {…}}``; other members are ignored, and the last member of a key counts."""
    begin = skip_space(text, start)
    if not text.startswith("{", begin):
        found = read_value(text, begin)
        raise MalformedError(f"the call is a JSON {kind(found.value)}, not an object", found.end)
    members: dict[str, Value] = {}
    end = _read_members(text, begin, members)
    name = members["name"].value if "name" in members else None
    if not isinstance(name, str) or not is_name(name):
        raise MalformedError('the call has no "name" string', end)
    written = next((members[key] for key in arguments_keys if key in members), None)
    if written is None:
        raise MalformedError(f'the call has no "{arguments_keys[0]}" object', end, name)
    if not isinstance(written.value, dict):
        raise MalformedError(f'"{arguments_keys[0]}" is a JSON {kind(written.value)}, not an object', end, name)
    return CallObject(name, text[written.start : written.end], written.value, end)


def read_call_list(
    turn: TurnReader, begin: int, read: Callable[[str, int], CallObject] = read_call_object, close: str = ""
) -> int:
    """Read the list whose ``[`` is at ``begin``, each call with ``read``, and add them; returns where reading goes on.

    Args:
        close: has to follow the list.
    """
    found: list[CallObject] = []
    position = begin + 1
    while turn.num_read + len(found) < MAX_CALLS:
        call = read(turn.text, position)
        found.append(call)
        position = skip_space(turn.text, call.end)
        if turn.text.startswith("]", position):
            return turn.add(*found, end=position + 1, close=close, what="list")
        if not turn.text.startswith(",", position):
            raise MalformedError("the list of calls is not right (expecting ',' or ']')", position, call.name)
        position += 1
    raise MalformedError(f"a turn holds at most {MAX_CALLS} calls", position)


def _read_members(text: str, begin: int, members: dict[str, Value]) -> int:
    position = skip_space(text, begin + 1)
    if text.startswith("}", position):
        return position + 1
    for _ in range(_MAX_MEMBERS):
        if not text.startswith('"', position):
            raise MalformedError(
                "the call is not valid JSON (expecting property name enclosed in double quotes)", begin
            )
        key = read_value(text, position)
        colon = COLON.match(text, key.end)
        if colon is None:
            raise MalformedError("the call is not valid JSON (expecting ':' delimiter)", begin)
        value = members[key.value] = read_value(text, colon.end())
        following = _NEXT.match(text, value.end)
        if following is None:
            raise MalformedError("the call is not valid JSON (expecting ',' delimiter)", begin)
        position = following.end()
        if following.lastgroup == "end":
            return position
    raise MalformedError(f"the call's JSON object has more than {_MAX_MEMBERS} members", position)


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [each for each in level if isinstance(each, (dict, list))]
        if not level:
            return False
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return True


def _words(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg[:1].lower() + error.msg[1:]
    return "nested too deeply" if isinstance(error, RecursionError) else "a number or word that JSON does not have"


_PYTHON_WORDS: Mapping[str, bool | None] = {"True": True, "False": False, "None": None}  # as templates write them


def typed(text: str, tool: ToolSpec | None, argument: str) -> Any:
    """The value of an argument that the model wrote as bare text.

    Text stays text if the schema asks for a string only. Otherwise it is parsed as JSON (or Python's ``True``,
    ``False`` and ``None``). If the schema allows the type of that value, or names no type, the value counts. In all
    other cases the text stays, and validation tells the model which type is expected. For example,
    ``anyOf: [string, object]`` gives an object if one is written, and ``anyOf: [string, null]`` gives the text ``5``
    but null for ``null``. References are followed. No quotes are added and no backslashes are removed.

    Args:
        tool: None if it is unknown; then the value counts if the text is JSON, as for an unknown argument.
    """
    types = argument_types(tool.parameters, argument) if tool else set()
    if types == {"string"}:
        return text
    stripped = text.strip()
    if stripped in _PYTHON_WORDS:
        value = _PYTHON_WORDS[stripped]
    else:
        try:
            value = read_whole(text)
        except MalformedError:
            return text
    return value if not types or kind(value) in types else text


def read_tagged_json(turn: TurnReader, start: int) -> int:
    """Read the JSON value first and then its closing tag, so that a tag within a string is text."""
    return turn.add(read_call_object(turn.text, start), close=CALL_CLOSE)


HERMES = between(CALL_OPEN, CALL_CLOSE, read_tagged_json, '{"name": "NAME", "arguments": {…}}')
parse_hermes = Parser((HERMES,))
"""Reads thinking and ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, as Qwen 2.5, 3 and Hermes write it.

A call that is not closed by ``</tool_call>`` is an error even if its JSON is complete: a model that is rewarded for
half a tag unlearns the tag, and other parsers disagree on such text. White space around the JSON is ignored.
"""
