"""JSON within a turn's text: strict, linear, with reasons that the model can learn from."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn

from rlfactory_core.chat.parsers.turn import MalformedError, is_name, skip_space

MAX_DEPTH = 64  # what is nested deeper would make later stages (validation, pickling, writing) recurse too deeply
_MAX_MEMBERS = 16  # a call has two to four
_COLON = re.compile(r"\s*:\s*")
_NEXT = re.compile(r"\s*(?:,\s*|(?P<end>}))")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:20]} is too large")
    return value


# An infinite number would come out as a word that JSON does not have wherever the arguments are written.
STRICT_JSON = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)


@dataclass(frozen=True, slots=True)
class Value:
    """A JSON value with its place in the text."""

    value: Any
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CallObject:
    """A whole call; ``end`` is where it ends in the text."""

    name: str
    arguments_text: str
    arguments: dict[str, Any]
    end: int


def read_value(text: str, start: int, name: str = "") -> Value:
    """The JSON value that begins at ``start``, behind white space.

    Raises:
        MalformedError: it is not JSON, or nested deeper than `MAX_DEPTH`; ``name`` is the tool's, where it is known.
    """
    begin = skip_space(text, start)
    try:
        value, end = STRICT_JSON.raw_decode(text, begin)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"the call is not valid JSON ({_words(error)})", start, name) from None
    if isinstance(value, (dict, list)) and _too_deep(text, value, begin, end):
        raise MalformedError(f"the call's JSON is nested deeper than {MAX_DEPTH} levels", end, name)
    return Value(value, begin, end)


def read_object(text: str, start: int, name: str = "") -> Value:
    """The arguments object that begins at ``start``.

    Raises:
        MalformedError: as `read_value`, or it is another kind of value.
    """
    found = read_value(text, start, name)
    if not isinstance(found.value, dict):
        raise MalformedError(f"the arguments are a JSON {kind(found.value)}, not an object", found.end, name)
    return found


def read_call_object(text: str, start: int, arguments_keys: tuple[str, ...] = ("arguments",)) -> CallObject:
    """``{"name": …, "arguments": {…}}``; other members are ignored, and the last of several with one key counts.

    Raises:
        MalformedError: it is not JSON, or not such an object.
    """
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
        colon = _COLON.match(text, key.end)
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


def kind(value: Any) -> str:
    """JSON's word for the type of a value."""
    if value is None:
        return "null"
    names = {bool: "boolean", str: "string", list: "array", int: "number", float: "number"}
    return names.get(type(value), "object")


def _too_deep(text: str, value: dict[str, Any] | list[Any], start: int, end: int) -> bool:
    body = text[start:end]
    if body.count("{") + body.count("[") <= MAX_DEPTH:
        return False
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        inner: Iterable[Any] = chain.from_iterable(v.values() if type(v) is dict else v for v in level)
        level = [v for v in inner if type(v) is dict or type(v) is list]
        if not level:
            return False
    return True


def _words(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg[:1].lower() + error.msg[1:]
    return "nested too deeply" if isinstance(error, RecursionError) else "a number or word that JSON does not have"
