"""GLM-4.5 to 4.7: ``<|user|>``, ``<|assistant|>`` and ``<|observation|>`` turns, calls as keys and values in tags.

A call is ``<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>…</tool_call>``. GLM-4.5 puts line breaks
between the tags, 4.7 does not; both are accepted, and so are calls without arguments. Values other than strings are
JSON; `typed` gives them the types of the offered tool's schema.

A turn has no end token of its own. The model stops with the token that begins the next turn: ``<|observation|>`` after
calls, otherwise ``<|user|>``. That token was sampled, so an observation begins after it. If the model stops with the
wrong one, it stays.

The template empties the thinking blocks of turns before the last user message; this format keeps them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rlfactory_core.chat.parsers.hermes import RESUME
from rlfactory_core.chat.parsers.json_calls import typed
from rlfactory_core.chat.parsers.turn import MalformedError, Syntax, Turn, is_name, read_turn
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.tiny import CALL_CLOSE, CALL_OPEN
from rlfactory_core.types import Message, ToolSpec

_USER, _OBSERVATION = "<|user|>", "<|observation|>"
_THOUGHT = re.compile(r"(<\|assistant\|>\n<think>).*?(</think>)", re.DOTALL)
_NAME = re.compile(r"[^<]*")
_KEY = re.compile(r"<arg_key>([^<]*)</arg_key>\s*<arg_value>")
_VALUE_END = re.compile(r"(?P<close></arg_value>\s*)|<arg_key>|<arg_value>")
_PAIR = "<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>"


class GlmFormat(TemplateFormat):
    """GLM-4.5 to 4.7: calls as keys and values in tags."""

    name = "glm-4.5"
    marks = ("[gMASK]", _OBSERVATION, "<arg_key>")
    stops = (_USER, _OBSERVATION, "<|endoftext|>")

    def parse_text(self, text: str, tools: Sequence[ToolSpec]) -> Message:
        return parse_glm(text, tools, thinking_open=self.thinking_open)

    def stop_of(self, message: Message) -> str:
        return _OBSERVATION if message.tool_calls else _USER

    def keeps(self, messages: Sequence[Message]) -> bool:
        return sum(message.role == "user" for message in messages) <= 1

    def forgetful(self, text: str, messages: Sequence[Message]) -> str:
        return _THOUGHT.sub(r"\1\2", text)


def parse_glm(text: str, tools: Sequence[ToolSpec] = (), *, thinking_open: bool = False) -> Message:
    """Read one assistant turn; see `read_turn` for thinking and limits.

    A call that is not closed by ``</tool_call>`` is an error, because it may hold half a value; other parsers disagree
    here. A value ends at the first ``</arg_value>`` and is taken as it is. Escaped quotes in JSON and a literal ``\\n``
    after the name, on which other parsers also disagree, stay as written, so that the answer to the call (a wrong type,
    an unknown tool) tells the model.
    """
    return read_turn(text, tools, _GLM, thinking_open=thinking_open)


def _read(turn: Turn, start: int) -> int:
    text = turn.text
    head = _NAME.match(text, start)
    position = head.end() if head else start
    name = text[start:position].strip()
    if not is_name(name):
        raise MalformedError(f"no function name follows {CALL_OPEN}", start)
    tool = turn.tools.get(name)
    first = position
    arguments: dict[str, Any] = {}
    while key := _KEY.match(text, position):
        end = _VALUE_END.search(text, key.end())
        if end is None or end.lastgroup != "close":
            raise MalformedError(f"the value of {key.group(1)[:64]!r} is not closed by </arg_value>", key.end(), name)
        arguments[key.group(1)] = typed(text[key.end() : end.start()], tool, key.group(1))
        position = end.end()
    if not text.startswith(CALL_CLOSE, position):
        raise MalformedError(f"neither {_PAIR} nor {CALL_CLOSE} follows", position, name)
    turn.call(name, text[first:position].strip(), arguments)
    return position + len(CALL_CLOSE)


_GLM = Syntax(CALL_OPEN, _read, f"{CALL_OPEN}NAME{_PAIR}…{CALL_CLOSE}", RESUME, close=CALL_CLOSE)
