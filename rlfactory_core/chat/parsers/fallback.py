"""For models of no known family that were shown Hermes' syntax: what such models write instead is read as well."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlfactory_core.chat.parsers.hermes import HERMES, OPEN, RESUME, read_tagged_json
from rlfactory_core.chat.parsers.json_calls import read_object
from rlfactory_core.chat.parsers.llama3 import read_function_json
from rlfactory_core.chat.parsers.qwen3_coder import FUNCTION, RESUME_FUNCTION, read_function, read_tagged_function
from rlfactory_core.chat.parsers.turn import MalformedError, Syntax, Turn, behind, is_name, read_turn, skip_space
from rlfactory_core.types import Message, ToolSpec

_CALLING, _END = "[Calling tool:", ")]"
_NAME = re.compile(r"\s*([^\s(]*)\(")
_JSON_BODY = re.compile(r"[^<>\n]*>\s*\{")


def parse_fallback(text: str, tools: Sequence[ToolSpec] = (), *, thinking_open: bool = False) -> Message:
    """Read one assistant turn; see `read_turn` for thinking and limits.

    Calls in `parse_hermes`'s syntax, in Qwen3-Coder's (with or without ``<tool_call>``), as
    ``<function=NAME>{…}</function>`` and as ``[Calling tool: NAME({…})]``. Each must be whole and closed: one that is
    not is an error, never half a call and never content.
    """
    return read_turn(text, tools, _TAGGED, _FUNCTION, _BRACKET, thinking_open=thinking_open)


def _read_tagged(turn: Turn, start: int) -> int:
    xml = turn.text.startswith(FUNCTION, skip_space(turn.text, start))
    return read_tagged_function(turn, start) if xml else read_tagged_json(turn, start)


def _read_function(turn: Turn, start: int) -> int:
    if _JSON_BODY.match(turn.text, start):
        return read_function_json(turn, start)
    found = read_function(turn, start)
    turn.call(found.name, found.arguments_text, found.arguments)
    return found.end


def _read_bracket(turn: Turn, start: int) -> int:
    head = _NAME.match(turn.text, start)
    if head is None or not is_name(head.group(1)):
        raise MalformedError(f"no NAME( follows {_CALLING}", start)
    arguments = read_object(turn.text, head.end(), head.group(1))
    end = behind(turn, _END, arguments.end, head.group(1))
    turn.call(head.group(1), turn.text[arguments.start : arguments.end], arguments.value)
    return end


_TAGGED = Syntax(OPEN, _read_tagged, HERMES.form, RESUME, close=HERMES.close)
_FUNCTION = Syntax(FUNCTION, _read_function, HERMES.form, RESUME_FUNCTION, close="</function>")
_BRACKET = Syntax(
    _CALLING, _read_bracket, HERMES.form, re.compile(rf"{re.escape(_CALLING)}|{OPEN}|(?P<close>\)\])"), close=_END
)
