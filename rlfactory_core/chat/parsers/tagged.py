"""Reads arguments between tags of their own, for all syntaxes that write them so."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlfactory_core.chat.parsers.json_calls import typed
from rlfactory_core.chat.parsers.turn import CallObject, MalformedError, Turn
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

    def read(self, turn: Turn, start: int, name: str) -> CallObject:
        """Read the arguments of a call of ``name`` from ``start`` up to ``close``.

        Raises:
            MalformedError: a value is not closed or not right, or something else stands between the arguments.
        """
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
