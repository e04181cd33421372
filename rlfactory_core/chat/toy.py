"""A chat format with a token for each byte, which needs no tokenizer and no model."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rlfactory_core.chat.parsers import parse_hermes
from rlfactory_core.tiny import calls_text
from rlfactory_core.types import Message, Role, ToolSpec

_ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
_STOP, _STOP_TEXT = 256, "<stop>"
_FIRST_ROLE = 257  # a turn begins with the token of its role


class ToyChatFormat:
    """A `ChatFormat` whose tokens are UTF-8 bytes, a stop token and one token a role.

    Calls are written as in Qwen3: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``.
    """

    name = "toy"
    stop_token_ids: tuple[int, ...] = (_STOP,)

    def initial_ids(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[int, ...]:
        offered = [{"name": tool.name, "parameters": dict(tool.parameters)} for tool in tools]
        head = self._turn(Message("system", json.dumps(offered))) if offered else ()
        return head + self._turns(messages)

    def observation_ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return self._turns(messages)

    def parse(self, sampled_ids: Sequence[int], tools: Sequence[ToolSpec] = ()) -> Message:
        return parse_hermes(bytes(i for i in sampled_ids if i < _STOP).decode(errors="replace"), tools)

    def decode(self, ids: Sequence[int]) -> str:
        marks = {_STOP: _STOP_TEXT} | {_FIRST_ROLE + i: f"<{role}>" for i, role in enumerate(_ROLES)}
        return b"".join(marks[i].encode() if i in marks else bytes((i,)) for i in ids).decode(errors="replace")

    def prove(self) -> None:
        """Nothing to prove: there is no template."""

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(i for part in text.split(_STOP_TEXT) for i in (_STOP, *part.encode()))[1:]

    def written(self, message: Message) -> str:
        return "\n".join(filter(None, (message.content, calls_text(message)))) + _STOP_TEXT

    def _turn(self, message: Message) -> tuple[int, ...]:
        return (_FIRST_ROLE + _ROLES.index(message.role), *message.content.encode(), _STOP)

    def _turns(self, messages: Sequence[Message]) -> tuple[int, ...]:
        ids = [i for message in messages for i in self._turn(message)]
        return (*ids, _FIRST_ROLE + _ROLES.index("assistant"))
