"""Calls whose arguments stand between tags of their own.

Qwen3-Coder's is ``<tool_call><function=NAME><parameter=KEY>VALUE</parameter>…</function></tool_call>``, which Qwen3.5
and later write too, after a thinking block. Values are bare text without escapes; `typed` gives them the types of the
offered tool's schema. The line breaks next to a value's tags do not belong to it. A call that is not closed by
``</tool_call>`` is an error, because it may hold half a value, and so is a ``<function=`` outside of ``<tool_call>``;
other parsers disagree here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rlfactory_core.chat.parsers.json_calls import typed
from rlfactory_core.chat.parsers.turn import CallObject, MalformedError, Parser, Syntax, TurnReader, between, named
from rlfactory_core.tiny import CALL_CLOSE, CALL_OPEN
from rlfactory_core.types import ToolSpec


@dataclass(frozen=True, slots=True)
class Arguments:
    """How a family writes the arguments of a call. A value is taken as it is, up to the first end tag."""

    head: re.Pattern[str]  # what stands before a value; its first group is the key
    value_end: re.Pattern[str]  # a match of the group ``close`` ends a value, and any other match makes it malformed
    close: str  # what has to follow the last argument
    form: str  # of one argument, for error messages
    value: Callable[[str, re.Match[str], ToolSpec | None], Any] = lambda text, head, tool: typed(text, tool, head[1])
    """Gives the value of a text, from its head and the offered tool."""

    def read(self, turn: TurnReader, start: int, name: str) -> CallObject:
        """Read the arguments of a call of ``name`` from ``start`` up to ``close``."""
        text, position = turn.text, start
        arguments: dict[str, Any] = {}
        while head := self.head.match(text, position):
            key, begin = head[1], head.end()
            end = self.value_end.search(text, begin)
            if end is None or end.lastgroup != "close":
                raise MalformedError(f"the value of {key[:64]!r} is not closed", begin, name)
            try:
                arguments[key] = self.value(text[begin : end.start()], head, turn.tools.get(name))
            except MalformedError as error:
                raise MalformedError(f"the value of {key[:64]!r} is not right: {error.reason}", begin, name) from None
            position = end.end()
        if not text.startswith(self.close, position):
            raise MalformedError(f"neither {self.form} nor {self.close} follows", position, name)
        return CallObject(name, text[start:position].strip(), arguments, position + len(self.close))


FUNCTION = "<function="
_BEGIN = re.compile(rf"\s*{FUNCTION}")
_END = "</function>"
_NAME = re.compile(r"([^<>\n]*)>\s*")
BODY = f"{FUNCTION}NAME><parameter=KEY>VALUE</parameter>…{_END}"


def read_tagged_function(
    turn: TurnReader, start: int, opener: str = CALL_OPEN, close: str = CALL_CLOSE, arguments: Arguments | None = None
) -> int:
    """Read the call between ``opener``, behind which ``start`` is, and ``close``."""
    begin = _BEGIN.match(turn.text, start)
    if begin is None:
        raise MalformedError(f"{FUNCTION}NAME> does not follow {opener}", start)
    return turn.add(read_function(turn, begin.end(), arguments), close=close, what="function")


def read_function(turn: TurnReader, start: int, arguments: Arguments | None = None) -> CallObject:
    """Read a function, from after its ``<function=``."""
    head = named(_NAME, turn.text, start, f"no name follows {FUNCTION}")
    return (arguments or _ARGUMENTS).read(turn, head.end(), head[1])


def _value(text: str, head: re.Match[str], tool: ToolSpec | None) -> Any:
    return typed(text[text.startswith("\n") : len(text) - (len(text) > 1 and text.endswith("\n"))], tool, head[1])


VERBATIM = Arguments(
    re.compile(r"<parameter=([^<>\n]*)>"),
    re.compile(r"(?P<close></parameter>\s*)|<parameter=|</function>"),
    _END,
    "<parameter=KEY>",
)  # line breaks next to a value's tags belong to it
_ARGUMENTS = replace(VERBATIM, value=_value)


def _refuse_bare(turn: TurnReader, start: int) -> int:
    found = read_function(turn, start)
    raise MalformedError(f"{FUNCTION}…{_END} stands outside of {CALL_OPEN}", found.end - len(_END), found.name)


RESUME_FUNCTION = re.compile(f"{CALL_OPEN}|{FUNCTION}|(?P<close>{_END})")
_BARE = Syntax(FUNCTION, _refuse_bare, f"{CALL_OPEN}{BODY}{CALL_CLOSE}", RESUME_FUNCTION)
parse_qwen3_coder = Parser((between(CALL_OPEN, CALL_CLOSE, read_tagged_function, BODY), _BARE))
