"""Llama 3.1 to 3.3: ``{"name": …, "parameters": {…}}``, bare or behind ``<|python_tag|>``, and ``<function=NAME>{…}``.

Several calls are separated by ``;``, white space or a further ``<|python_tag|>``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlfactory_core.chat.parsers.json_calls import read_call_object, read_object
from rlfactory_core.chat.parsers.turn import MalformedError, Syntax, Turn, behind, is_name, read_or_refuse, read_turn
from rlfactory_core.types import Message, ToolSpec

_PYTHON_TAG, _FUNCTION, _END = "<|python_tag|>", "<function=", "</function>"
_KEYS = ("parameters", "arguments")
_PARAMETERS = '"name": "NAME", "parameters": {…}'
# Up to the arguments: what else begins with a brace, such as an answer in JSON, is not a call.
_CALL = re.compile(
    r'[\s;]*(?=\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"[^"]*"\s*,\s*"(?:parameters|arguments)")'
)
_NAME = re.compile(r"([^<>\n]*)>")
_RESUME = re.compile(f"{re.escape(_PYTHON_TAG)}|{_FUNCTION}")


def parse_llama3(text: str, tools: Sequence[ToolSpec] = (), *, thinking_open: bool = False) -> Message:
    """Read one assistant turn; see `read_turn` for thinking and limits.

    JSON without ``<|python_tag|>`` is a call only where the turn begins with it (or it follows a call) and it begins
    with a name and parameters; other JSON is content. Nothing but its JSON closes such a call, so whole JSON is a
    whole call, also at the end of the text; ``<function=NAME>{…}`` must be closed by ``</function>``. Behind
    ``<|python_tag|>`` only JSON is read: Llama's built-in tools, called in Python's syntax, are an error.

    Peers disagree on a broken call with a whole one inside (here one error), on both syntaxes in one turn (here both
    are read, in order) and on parameters that are no object (here an error: no tool takes them).
    """
    return read_turn(text, tools, _TAGGED, FUNCTION_JSON, thinking_open=thinking_open, at_start=_read_bare)


def _read_bare(turn: Turn, position: int) -> int:
    while call := _CALL.match(turn.text, position):
        position = read_or_refuse(turn, _BARE, call.end())
    return position


def _read_json(turn: Turn, start: int) -> int:
    found = read_call_object(turn.text, start, _KEYS)
    turn.call(found.name, found.arguments_text, found.arguments)
    return found.end


def _read_tagged(turn: Turn, start: int) -> int:
    return _read_bare(turn, _read_json(turn, start))


def read_function_json(turn: Turn, start: int) -> int:
    """``NAME>{…}</function>``, from behind ``<function=`` on."""
    head = _NAME.match(turn.text, start)
    name = head.group(1) if head else ""
    if head is None or not is_name(name):
        raise MalformedError(f"no name follows {_FUNCTION}", start)
    arguments = read_object(turn.text, head.end(), name)
    end = behind(turn, _END, arguments.end, name)
    turn.call(name, turn.text[arguments.start : arguments.end], arguments.value)
    return end


_BARE = Syntax("", _read_json, f"{{{_PARAMETERS}}}", _RESUME)
_TAGGED = Syntax(_PYTHON_TAG, _read_tagged, f"{_PYTHON_TAG}{{{_PARAMETERS}}}", _RESUME)
FUNCTION_JSON = Syntax(
    _FUNCTION,
    read_function_json,
    f"{_FUNCTION}NAME>{{…}}{_END}",
    re.compile(f"{re.escape(_PYTHON_TAG)}|{_FUNCTION}|(?P<close>{_END})"),
    close=_END,
)
