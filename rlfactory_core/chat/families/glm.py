"""GLM-4.5 to 4.7: ``<|user|>``, ``<|assistant|>`` and ``<|observation|>`` turns, calls as keys and values in tags.

A call is ``<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>…</tool_call>``. GLM-4.5 puts line breaks
between the tags, 4.7 does not; both are accepted, and so are calls without arguments. Values other than strings are
JSON; `typed` gives them the types of the offered tool's schema.

A turn has no end token of its own. The model stops with the token that begins the next turn: ``<|observation|>`` after
calls, otherwise ``<|user|>``. That token was sampled, so an observation begins after it. If the model stops with the
wrong one, it stays.

The template empties the thinking blocks of turns before the last user message; this format keeps them.

Other parsers disagree on three cases. A call that is not closed by ``</tool_call>`` is an error, because it may hold
half a value. Escaped quotes in JSON and a literal ``\\n`` after the name stay as written, so that the answer to the
call (a wrong type, an unknown tool) tells the model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlfactory_core.chat.parsers.tagged import Arguments
from rlfactory_core.chat.parsers.turn import MalformedError, Parser, TurnReader, between, is_name
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.tiny import CALL_CLOSE, CALL_OPEN
from rlfactory_core.types import Message

_USER, _OBSERVATION = "<|user|>", "<|observation|>"
_NAME = re.compile(r"[^<]*")
_PAIR = "<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>"
_ARGUMENTS = Arguments(
    re.compile(r"<arg_key>([^<]*)</arg_key>\s*<arg_value>"),
    re.compile(r"(?P<close></arg_value>\s*)|<arg_key>|<arg_value>"),
    CALL_CLOSE,
    _PAIR,
)


def _read(turn: TurnReader, start: int) -> int:
    head = _NAME.match(turn.text, start)
    name = head[0].strip() if head else ""
    if head is None or not is_name(name):
        raise MalformedError(f"no function name follows {CALL_OPEN}", start)
    return turn.add(_ARGUMENTS.read(turn, head.end(), name))


parse_glm = Parser((between(CALL_OPEN, CALL_CLOSE, _read, f"NAME{_PAIR}…"),))


class GlmFormat(TemplateFormat):
    """GLM-4.5 to 4.7: calls as keys and values in tags."""

    name = "glm-4.5"
    marks = ("[gMASK]", _OBSERVATION, "<arg_key>")
    stops = (_USER, _OBSERVATION, "<|endoftext|>")
    call_stop = _OBSERVATION
    parser = parse_glm
    block = re.compile(r"(?<=<\|assistant\|>\n<think>)(?:(?!</think>).)+", re.DOTALL)

    def keeps(self, messages: Sequence[Message]) -> bool:
        return sum(message.role == "user" for message in messages) <= 1
