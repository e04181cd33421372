"""Parses Hermes-style text: ``<think>…</think>`` and ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``.

Models of the Qwen (2.5, 3) and Hermes families write it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlfactory_core.chat.parsers.json_calls import read_call_object
from rlfactory_core.chat.parsers.turn import Turn, between, read_turn
from rlfactory_core.tiny import CALL_CLOSE, CALL_OPEN
from rlfactory_core.types import Message, ToolSpec


def parse_hermes(text: str, tools: Sequence[ToolSpec] = (), *, thinking_open: bool = False) -> Message:
    """Read one assistant turn; see `read_turn` for thinking and limits.

    A call that is not closed by ``</tool_call>`` is an error even if its JSON is complete: a model that is rewarded for
    half a tag unlearns the tag, and other parsers disagree on such text. White space around the JSON is ignored.
    """
    return read_turn(text, tools, HERMES, thinking_open=thinking_open)


def read_tagged_json(turn: Turn, start: int) -> int:
    """Read the JSON value first and then its closing tag, so that a tag within a string is text."""
    return turn.add(read_call_object(turn.text, start), close=CALL_CLOSE)


HERMES = between(CALL_OPEN, CALL_CLOSE, read_tagged_json, '{"name": "NAME", "arguments": {…}}')
