"""DeepSeek-V3, R1 and V3.1: calls between their own special tokens.

V3 and R1 write ``<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME``, a line break and the arguments in a JSON fence,
V3.1 ``<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}``; both close with ``<｜tool▁call▁end｜>``.
"""
# ruff: noqa: RUF001, RUF002 - the bars in DeepSeek's tokens look like others

from __future__ import annotations

import re
from collections.abc import Sequence

from rlfactory_core.chat.parsers.json_calls import read_object
from rlfactory_core.chat.parsers.turn import MalformedError, Syntax, Turn, behind, is_name, read_turn, skip_space
from rlfactory_core.types import Message, ToolSpec

_OPEN, _SEPARATOR, _CLOSE = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_AROUND = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_HEAD = re.compile(rf"([^<｜\n]*){_SEPARATOR}\s*")
_FENCED = re.compile(r"([^\n`<]*)\n\s*```(?:json)?\s*")
_FENCE = "```"


def parse_deepseek(text: str, tools: Sequence[ToolSpec] = (), *, thinking_open: bool = False) -> Message:
    """Read one assistant turn; see `read_turn` for thinking and limits.

    The tokens around all calls (``<｜tool▁calls▁begin｜>`` and its end) mean nothing here: peers read calls with and
    without them. A call that is not closed by ``<｜tool▁call▁end｜>`` is an error, as in `parse_hermes`.
    """
    return read_turn(text, tools, _DEEPSEEK, thinking_open=thinking_open, markup=_AROUND)


def _read(turn: Turn, start: int) -> int:
    text = turn.text
    head = _HEAD.match(text, skip_space(text, start))
    if head is None:
        raise MalformedError(f"{_SEPARATOR} does not follow {_OPEN}function", start)
    name, position, fenced = head.group(1).strip(), head.end(), False
    if not text.startswith("{", position):
        fence = _FENCED.match(text, position)
        if name != "function" or fence is None:
            raise MalformedError("the arguments are not JSON in a ```json fence below the name", position, name)
        name, position, fenced = fence.group(1).strip(), fence.end(), True
    if not is_name(name):
        raise MalformedError("the call has no function name", position)
    arguments = read_object(text, position, name)
    end = behind(turn, _FENCE, arguments.end, name) if fenced else arguments.end
    end = behind(turn, _CLOSE, end, name)
    turn.call(name, text[arguments.start : arguments.end], arguments.value)
    return end


_DEEPSEEK = Syntax(
    _OPEN,
    _read,
    f"{_OPEN}function{_SEPARATOR}NAME\n```json\n{{…}}\n```{_CLOSE}",
    re.compile(f"{_OPEN}|{_AROUND[1]}|(?P<close>{_CLOSE})"),
    close=_CLOSE,
)
