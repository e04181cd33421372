"""Values written in another way than JSON: as Python writes them, or with quotes of the family's own.

They are read strictly and in linear time, and nothing is evaluated. What is no value is a `MalformedError`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlfactory_core.chat.parsers.json_calls import COLON, MAX_DEPTH, Value, read_value
from rlfactory_core.chat.parsers.turn import CallObject, MalformedError, named, skip_space

_WORD = re.compile(r"[A-Za-z]+")
_NUMBER = re.compile(r"-?\d")
_STRING = re.compile(r"""'([^'\\]*(?:\\.[^'\\]*)*)'|"([^"\\]*(?:\\.[^"\\]*)*)\"""", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": "", **{c: c for c in "\\'\"/"}}
_HEAD = re.compile(r"\s*+([^\s()\[\]{}=,'\"]*)\s*+\(\s*")
_KEY = re.compile(r"\s*([^\s()\[\]{}=,'\":]+)\s*=\s*")
_NEXT = re.compile(r"\s*(?:,|(?P<end>\)))")
_JSON_WORDS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True)
class Literals:
    """How a syntax writes values; both functions return None if nothing of the kind begins at the position."""

    string: Callable[[str, int], Value | None]
    key: Callable[[str, int], Value | None]  # of a member of an object
    words: Mapping[str, bool | None]


def python_string(text: str, start: int) -> Value | None:
    """A string in single or double quotes; escapes that Python and JSON do not know stay as they are."""
    found = _STRING.match(text, start)
    if found is None:
        return None
    body: str = found[1] if found[1] is not None else found[2]
    if "\\" in body:  # JSON writes rare characters as two escapes, which are one character together
        body = _ESCAPE.sub(_unescape, body).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return Value(body, start, found.end())


PYTHON = Literals(python_string, python_string, {"True": True, "False": False, "None": None, **_JSON_WORDS})


def read_literal(text: str, start: int, literals: Literals, name: str = "", depth: int = 1) -> Value:
    """The value at ``start``, after white space; ``name`` is the tool's, for the error."""
    begin = skip_space(text, start)
    first = text[begin : begin + 1]
    if first and first in "[{":
        if depth > MAX_DEPTH:
            raise MalformedError(f"the call's values are nested deeper than {MAX_DEPTH} levels", begin, name)
        return _read_items(text, begin, literals, name, depth)
    if string := literals.string(text, begin):
        return string
    word = _WORD.match(text, begin)
    if word and word[0] in literals.words:
        return Value(literals.words[word[0]], begin, word.end())
    if _NUMBER.match(text, begin):
        return read_value(text, begin, name)
    raise MalformedError(f"no value stands before {text[begin : begin + 16]!r}", begin, name)


def read_python_call(text: str, start: int, head: re.Pattern[str] = _HEAD) -> CallObject:
    """The call ``NAME(KEY=VALUE, …)`` at ``start``.

    Args:
        head: matches all before the first key; its first group is the name.
    """
    begin = named(head, text, start, "no NAME( begins a call")
    name, position = begin[1], begin.end()
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
    return CallObject(name, text[begin.end() : end - 1].strip(), arguments, end)


def python_text(value: Any) -> str:
    """A JSON value as a Python literal."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{python_text(key)}: {python_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(python_text, value)) + "]"
    return repr(value) if value is None or isinstance(value, bool) else json.dumps(value, ensure_ascii=False)


def _read_items(text: str, begin: int, literals: Literals, name: str, depth: int) -> Value:
    """The list or object that begins with the bracket at ``begin``."""
    close = "]" if text[begin] == "[" else "}"
    items: list[Any] = []
    members: dict[str, Any] = {}
    position = skip_space(text, begin + 1)
    ends = text.startswith(close, position)
    while not ends:
        key = literals.key(text, position) if close == "}" else None
        colon = COLON.match(text, key.end) if key else None
        if close == "}" and colon is None:
            raise MalformedError("an object's key and a colon are missing", position, name)
        item = read_literal(text, colon.end() if colon else position, literals, name, depth + 1)
        if key:
            members[key.value] = item.value
        else:
            items.append(item.value)
        position = skip_space(text, item.end)
        ends = text.startswith(close, position)
        if not ends and not text.startswith(",", position):
            raise MalformedError(f"neither a comma nor {close} follows a value", position, name)
        position = position if ends else skip_space(text, position + 1)
    return Value(items if close == "]" else members, begin, position + 1)


def _unescape(found: re.Match[str]) -> str:
    code = found[1]
    if len(code) > 1:
        return chr(int(code[1:], 16))
    return _ESCAPED.get(code, found[0])
