"""What makes two messages of an agent's history the same, and the turns that a framework has taken apart."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rlfactory_core.types import Message

_THOUGHT = re.compile(r"^\s*(?:<think>)?.*?(?:</think(?::\w+)?>|\[/THINK\])", re.DOTALL)
_OWN_CALL = re.compile(r"call_(\d+)_\d+")  # the gateway's ids of calls, with the turn's number


@dataclass(frozen=True, slots=True)
class Key:
    """What is compared of a message. Reasoning, and white space around an assistant's text, make no difference.

    Args:
        calls: names and arguments.
        ids: of the calls; of a tool's result, the id of its call.
    """

    role: str
    text: str
    calls: tuple[tuple[str, str], ...] = ()
    ids: tuple[str, ...] = ()

    @classmethod
    def of(cls, message: Message) -> Key:
        if message.role != "assistant":
            return cls(message.role, message.content, ids=(message.tool_call_id or "",))
        calls = tuple((call.name, _arguments(call.arguments_text, call.arguments)) for call in message.tool_calls)
        text = _THOUGHT.sub("", message.content, count=1).strip()
        return cls("assistant", text, calls, tuple(call.id for call in message.tool_calls))


def same(own: Key, given: Key) -> bool:
    """Whether an agent has sent back a message of a row, as it was or without the text beside its calls."""
    if own.role != "assistant" or given.role != "assistant":
        return own == given
    dropped = not given.text and bool(own.calls) and own.ids == given.ids and bool(turn_of(own.ids))
    return own.calls == given.calls and (own.text == given.text or dropped)


def turn_of(ids: Sequence[str]) -> str:
    """The number of the turn that made all calls with these ids; empty if it is not one turn of the gateway."""
    turns = {found[1] if (found := _OWN_CALL.fullmatch(each)) else "" for each in ids}
    return turns.pop() if len(turns) == 1 else ""


def joined(first: Message, second: Message) -> Message:
    """Two messages of the assistant as one turn."""
    return Message(
        "assistant",
        first.content + second.content,
        reasoning=first.reasoning or second.reasoning,
        tool_calls=(*first.tool_calls, *second.tool_calls),
    )


def rejoined(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages, where the parts of one of the gateway's turns are one message again.

    Frameworks send a turn's text and each of its calls as messages of their own, with the results between them.
    """
    found: list[Message] = []
    for message in messages:
        before = next((n for n in range(len(found) - 1, -1, -1) if found[n].role != "tool"), -1)
        if message.tool_calls and before >= 0 and _parts(found[before], message, adjacent=before == len(found) - 1):
            found[before] = joined(found[before], message)
        else:
            found.append(message)
    return tuple(found)


def _parts(first: Message, second: Message, adjacent: bool) -> bool:
    """Whether two messages of the assistant are parts of one turn: its text and a call, or two of its calls."""
    turn = turn_of([call.id for call in second.tool_calls])
    if first.role != "assistant" or not turn:
        return False
    if not first.tool_calls:
        return adjacent
    return turn == turn_of([call.id for call in first.tool_calls])


def _arguments(text: str, arguments: object) -> str:
    return text.strip() if arguments is None else json.dumps(arguments, sort_keys=True, default=dict)
