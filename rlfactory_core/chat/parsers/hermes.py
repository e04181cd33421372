"""Hermes-style assistant text: ``<think>…</think>`` and ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``.

What models of the Qwen (2.5, 3) and Hermes families write.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlfactory_core.chat.parsers.json_calls import read_call_object
from rlfactory_core.chat.parsers.turn import Syntax, Turn, behind, read_turn
from rlfactory_core.types import Message, ToolSpec

OPEN, CLOSE = "<tool_call>", "</tool_call>"
RESUME = re.compile(f"{OPEN}|(?P<close>{CLOSE})")


def parse_hermes(text: str, tools: Sequence[ToolSpec] = (), *, thinking_open: bool = False) -> Message:
    """Read one assistant turn; see `read_turn` for thinking and limits.

    A call that is not closed by ``</tool_call>`` is an error even where its JSON is whole: a model that is rewarded
    for half a tag unlearns the tag, and readers of other systems disagree on such text. Where they disagree on white
    space around the JSON, it does not matter here.
    """
    return read_turn(text, tools, HERMES, thinking_open=thinking_open)


def read_tagged_json(turn: Turn, start: int) -> int:
    """The JSON value is read first and its closing tag looked for behind it, so a tag within a string is text."""
    found = read_call_object(turn.text, start)
    end = behind(turn, CLOSE, found.end, found.name)
    turn.call(found.name, found.arguments_text, found.arguments)
    return end


HERMES = Syntax(OPEN, read_tagged_json, f'{OPEN}{{"name": "NAME", "arguments": {{…}}}}{CLOSE}', RESUME, close=CLOSE)
