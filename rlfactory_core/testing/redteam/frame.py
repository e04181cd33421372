"""Where the answer stands in the last message of somebody who knows it, so that another can be put in its place."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from rlfactory_core.rewards.answers import CLOSE, OPEN, extract_answer
from rlfactory_core.types import Message, ToolCall

_BLOCK = re.compile(r"((?:(?!```).)*```[^`\n]*\n)((?:(?!```).)+?)(\n```(?:(?!```).)*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Frame:
    """A message with a hole.

    Args:
        kind: the answer is what stands in ``<answer>`` tags, in the only block of code, the whole content, or an
            argument of a call.
        answer: the right one.
        before: what stands before the tags, or before the answer in its block.
        after: what stands behind them, or behind it.
        call: that submits the answer.
        argument: of the call.
    """

    kind: Literal["tags", "block", "whole", "call"]
    answer: str
    before: str = ""
    after: str = ""
    call: ToolCall | None = None
    argument: str = ""

    @classmethod
    def of(cls, message: Message, accepted: Collection[str]) -> Frame | None:
        """None where the message holds no answer.

        Args:
            accepted: the sample's answers, by which an argument of a call is known to be one.
        """
        content, answer = message.content, extract_answer(message.content)
        if answer is not None:
            start = content.rfind(OPEN, 0, content.rfind(CLOSE))
            return cls("tags", answer, content[:start], content[content.find(CLOSE, start) + len(CLOSE) :])
        for call in message.tool_calls:
            texts = {name: value for name, value in (call.arguments or {}).items() if isinstance(value, str)}
            for name, value in texts.items():
                if value in accepted or len(texts) == 1:
                    return cls("call", value, call=call, argument=name)
        block = _BLOCK.fullmatch(content)
        if block and content.strip() not in accepted:
            return cls("block", block[2], block[1], block[3])
        return cls("whole", content.strip()) if content.strip() else None

    def say(self, answer: str, before: str = "", after: str = "") -> Message | str:
        """The message with another answer, and with more around it: outside of the tags or the block, if any."""
        if self.call is not None:
            return Message("assistant", before + after, tool_calls=(self._submitting(self.call, answer),))
        if self.kind == "whole":
            return before + answer + after
        held = answer if self.kind == "block" else tagged(answer)
        return f"{before}{self.before}{held}{self.after}{after}"

    def _submitting(self, call: ToolCall, answer: str) -> ToolCall:
        arguments: Mapping[str, object] = {**(call.arguments or {}), self.argument: answer}
        return replace(call, arguments=arguments, arguments_text=json.dumps(arguments, ensure_ascii=False))


def tagged(answer: str) -> str:
    """In its tags, as `Task.solve` writes it by default."""
    return f"{OPEN} {answer} {CLOSE}"
