"""Llama 3 and 4: header turns, calls as JSON, ``{"name": …, "parameters": {…}}``.

A call is bare or follows ``<|python_tag|>``; the form ``<function=NAME>{…}</function>`` is read as well. Several calls
are separated by ``;``, white space or a further ``<|python_tag|>``. JSON without ``<|python_tag|>`` is a call only at
the beginning of the turn or after a call, and only if it begins with a name and parameters; other JSON is content.
After ``<|python_tag|>`` only JSON is accepted: calls of Llama's built-in tools in Python's syntax are an error.

Other parsers disagree on three cases. A broken call with a complete one inside is one error here. Both syntaxes in one
turn are read in order. Parameters that are not an object are an error.

The templates trim contents, show tools in the first user message and write tool results as JSON strings. They leave
out text beside a call, and accept one call in a turn. A sampled turn with text beside its call, or with several calls,
stays as it was sampled, and each call gets its result. Llama 3.0's template has neither tools nor calls, so the first
message tells the model how to call.

Llama 4's template writes text beside calls between ``<|python_start|>`` and ``<|python_end|>``, and any number of calls
behind it. For templates that ask Llama 4 for a Python list of calls, see `pythonic`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from rlfactory_core.chat.parsers.json_calls import read_arguments, read_call_object
from rlfactory_core.chat.parsers.turn import Parser, Syntax, TurnReader, between, named, read_bare
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.types import ToolCall

_PYTHON_TAG, _FUNCTION, _END = "<|python_tag|>", "<function=", "</function>"
_KEYS = ("parameters", "arguments")
_PARAMETERS = '"name": "NAME", "parameters": {…}'
# Matches up to the arguments, because other text in braces, such as an answer in JSON, is not a call.
_CALL = re.compile(
    r'[\s;]*(?=\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"[^"]*"\s*,\s*"(?:parameters|arguments)")'
)
_NAME = re.compile(r"([^<>\n]*)>")
_PYTHON_START, _PYTHON_END = "<|python_start|>", "<|python_end|>"
_RESUME = re.compile("|".join(map(re.escape, (_PYTHON_TAG, _PYTHON_START, _PYTHON_END, _FUNCTION))))


def _read_json(turn: TurnReader, start: int) -> int:
    return turn.add(read_call_object(turn.text, start, _KEYS))


def _read_tagged(turn: TurnReader, start: int) -> int:
    return _read_bare(turn, _read_json(turn, start))


def read_function_json(turn: TurnReader, start: int) -> int:
    """Read ``NAME>{…}</function>``, which follows ``<function=``."""
    head = named(_NAME, turn.text, start, f"no name follows {_FUNCTION}")
    return turn.add(read_arguments(turn.text, head.end(), head[1]), close=_END)


_BARE = Syntax("", _read_json, f"{{{_PARAMETERS}}}", _RESUME)
_read_bare = partial(read_bare, _CALL, _BARE)
_TAGGED = Syntax(_PYTHON_TAG, _read_tagged, f"{_PYTHON_TAG}{{{_PARAMETERS}}}", _RESUME)
FUNCTION_JSON = between(_FUNCTION, _END, read_function_json, "NAME>{…}", also=(_PYTHON_TAG,))
parse_llama3 = Parser((_TAGGED, FUNCTION_JSON), at_start=_read_bare)
parse_llama4 = Parser(
    (Syntax(_PYTHON_END, _read_bare, _BARE.form, _RESUME),), markup=(_PYTHON_START,), at_start=_read_bare
)


class Llama3Format(TemplateFormat):
    """Llama 3 to 3.3: one JSON call in a turn."""

    name = "llama3"
    marks = ("<|start_header_id|>", "<|eot_id|>")
    stops = ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")
    parser = parse_llama3

    def calls_text(self, calls: Sequence[ToolCall]) -> str:
        return "; ".join(f'{{"name": "{call.name}", "parameters": {call.arguments_text}}}' for call in calls)


class Llama4Format(Llama3Format):
    """Llama 4 with its own template: any number of JSON calls in a turn."""

    name = "llama4"
    marks = ("<|header_start|>", '"parameters": ')
    stops = ("<|eot|>", "<|eom|>", "<|end_of_text|>")
    parser = parse_llama4
