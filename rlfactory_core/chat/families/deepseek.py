"""DeepSeek-V3, R1 and V3.1: ``<｜Assistant｜>`` turns, calls and results between special tokens of their own.

V3 and R1 write ``<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME``, a line break and the arguments in a JSON fence.
V3.1 writes ``<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}``. Both close a call with ``<｜tool▁call▁end｜>``.

The templates change past turns in ways that this format does not:

- They drop thinking from past turns. They open ``<think>`` in the prompt after a user message but not after results,
  so a thinking block that is never closed counts as one only if its tag is there.
- V3's template writes ``<｜tool▁calls▁begin｜>``, the text before calls and ``<｜tool▁outputs▁begin｜>`` in the first
  round of calls only. Here every round looks like the first.

The templates of V3 and R1 do not show tools, so the first message describes them.

The tokens around all calls are ignored and may be missing. A call that is not closed by ``<｜tool▁call▁end｜>`` is an
error, as in `parse_hermes`.
"""
# ruff: noqa: RUF001, RUF002 - the bars in DeepSeek's tokens look like others

from __future__ import annotations

import re
from collections.abc import Sequence

from rlfactory_core.chat.parsers.json_calls import read_arguments
from rlfactory_core.chat.parsers.turn import MalformedError, Parser, TurnReader, behind, between, is_name, skip_space
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.types import Message, ToolCall

_CALLS, _CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_OPEN, _SEPARATOR, _CLOSE = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_HEAD = re.compile(rf"([^<｜\n]*){_SEPARATOR}\s*")
_FENCED = re.compile(r"([^\n`<]*)\n\s*```(?:json)?\s*")
_FENCE = "```"
_OUTPUTS = "<｜tool▁outputs▁begin｜>"
_LATER_OUTPUTS = re.compile(r"(?<=<｜end▁of▁sentence｜>)(?:<｜tool▁outputs▁begin｜>|\n)(?=<｜tool▁output▁begin｜>)")
_THOUGHT = re.compile(r"(?:(?<=<｜Assistant｜>)|(?<=<｜tool▁output▁end｜>))(?:<think>.*?)?</think>\n*", re.DOTALL)
_LATER_CALLS = re.compile(r"(?:<｜tool▁outputs▁end｜>|<｜Assistant｜>)[^｜]*<｜tool▁calls▁begin｜>")


def _read(turn: TurnReader, start: int) -> int:
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
    call = read_arguments(text, position, name)
    end = behind(turn, _FENCE, call.end, name) if fenced else call.end
    return turn.add(call, end=end, close=_CLOSE)


_BODY = f"function{_SEPARATOR}NAME\n```json\n{{…}}\n```"
parse_deepseek = Parser((between(_OPEN, _CLOSE, _read, _BODY, also=(_CALLS_END,)),), markup=(_CALLS, _CALLS_END))


class DeepseekFormat(TemplateFormat):
    """DeepSeek-V3, R1 and V3.1: calls and results between special tokens."""

    name = "deepseek-v3"
    marks = (_CALLS, "<｜Assistant｜>")
    stops = ("<｜end▁of▁sentence｜>",)
    parser = parse_deepseek

    def calls_text(self, calls: Sequence[ToolCall]) -> str:
        written = "\n".join(
            f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{call.name}\n```json\n{call.arguments_text}\n```<｜tool▁call▁end｜>"
            for call in calls
        )
        return f"{_CALLS}{written}{_CALLS_END}"

    def keeps(self, messages: Sequence[Message]) -> bool:
        turns = [message for message in messages if message.role == "assistant"]
        return sum(bool(turn.tool_calls) for turn in turns) <= 1 and not any(turn.reasoning for turn in turns)

    def forgetful(self, text: str, messages: Sequence[Message]) -> str:
        text = _THOUGHT.sub("", text)
        head, begin, rest = text.partition(_CALLS)
        rest = _LATER_CALLS.sub("\n", rest)
        once, outputs, later = rest.partition(_OUTPUTS)
        return head + begin + once + outputs + _LATER_OUTPUTS.sub("", later)
