"""GLM-4.5 to 4.7: ``<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>…</tool_call>``.

GLM-4.5 puts line breaks between the tags and 4.7 none; both are read, and a call without arguments too. Values that
are no strings are JSON; `typed` gives them the types that the offered tool asks for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rlfactory_core.chat.parsers.hermes import CLOSE, OPEN, RESUME
from rlfactory_core.chat.parsers.turn import MalformedError, Syntax, Turn, is_name, read_turn
from rlfactory_core.chat.parsers.typed import typed
from rlfactory_core.types import Message, ToolSpec

_NAME = re.compile(r"[^<]*")
_KEY = re.compile(r"<arg_key>([^<]*)</arg_key>\s*<arg_value>")
_VALUE_END = re.compile(r"(?P<close></arg_value>\s*)|<arg_key>|<arg_value>")
_PAIR = "<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>"


def parse_glm(text: str, tools: Sequence[ToolSpec] = (), *, thinking_open: bool = False) -> Message:
    """Read one assistant turn; see `read_turn` for thinking and limits.

    A call that is not closed by ``</tool_call>`` is an error: peers disagree on it, and what is there may be half a
    value. A value ends at the first ``</arg_value>`` and is taken as it stands. Peers also disagree on JSON whose
    quotes are escaped with backslashes and on a ``\\n`` that is written out behind the name: both stay as written, so
    that the answer to the call (a wrong type, an unknown tool) tells the model.
    """
    return read_turn(text, tools, _GLM, thinking_open=thinking_open)


def _read(turn: Turn, start: int) -> int:
    text = turn.text
    head = _NAME.match(text, start)
    position = head.end() if head else start
    name = text[start:position].strip()
    if not is_name(name):
        raise MalformedError(f"no function name follows {OPEN}", start)
    tool = turn.tools.get(name)
    first = position
    arguments: dict[str, Any] = {}
    while key := _KEY.match(text, position):
        end = _VALUE_END.search(text, key.end())
        if end is None or end.lastgroup != "close":
            raise MalformedError(f"the value of {key.group(1)[:64]!r} is not closed by </arg_value>", key.end(), name)
        arguments[key.group(1)] = typed(text[key.end() : end.start()], tool, key.group(1))
        position = end.end()
    if not text.startswith(CLOSE, position):
        raise MalformedError(f"neither {_PAIR} nor {CLOSE} follows", position, name)
    turn.call(name, text[first:position].strip(), arguments)
    return position + len(CLOSE)


_GLM = Syntax(OPEN, _read, f"{OPEN}NAME{_PAIR}…{CLOSE}", RESUME, close=CLOSE)
