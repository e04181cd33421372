"""Finds what of a conversation a model's chat template leaves out.

It renders the conversation once with marks in the place of its texts, and looks which of them are there. What the
template supports is thereby seen from what it writes, in just this conversation.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlfactory_core.protocols import ChatFormat
from rlfactory_core.types import Message, ToolCall, ToolSpec


@dataclass(frozen=True, slots=True)
class Unwritten:
    """One field of a message that does not reach the model."""

    index: int  # of the message, from 0
    role: str
    field: str
    by_design: bool  # templates of many families leave it out of earlier turns: thinking, and text beside calls

    @property
    def text(self) -> str:
        return f"{self.field} of message {self.index} ({self.role})"


def unwritten(chat: ChatFormat, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Unwritten]:
    """The fields of these messages that a prompt of them does not hold.

    Raises:
        ChatFormatError: the template does not accept such a conversation.
    """
    marks: dict[str, Unwritten] = {}
    marked = [_marked(message, index, marks) for index, message in enumerate(messages)]
    text = chat.decode(chat.initial_ids(marked, tools))
    return [found for mark, found in marks.items() if mark not in text]


def _marked(message: Message, index: int, marks: dict[str, Unwritten]) -> Message:
    """The message with a mark for each of its texts, which is added to ``marks``."""

    def mark(field: str, *, by_design: bool = False) -> str:
        name = f"probe{len(marks)}x"
        marks[name] = Unwritten(index, message.role, field, by_design)
        return name

    def call(each: ToolCall) -> ToolCall:
        what = f"a call of {each.name}"
        arguments = {"probe": mark(f"the arguments of {what}")} if each.arguments else {}
        return ToolCall(each.id, mark(what), json.dumps(arguments), arguments)

    calls = tuple(map(call, message.tool_calls))
    beside = bool(calls)
    named = message.name if message.role == "tool" else message.name and mark("the name", by_design=True)
    return replace(
        message,
        content=mark("the text", by_design=beside) if message.content.strip() else message.content,
        reasoning=message.reasoning and mark("the thinking", by_design=True),
        tool_calls=calls,
        name=named,
    )
