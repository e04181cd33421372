"""Finds the answer in the oracle's last message, so that another answer can be put in its place."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from rlfactory_core.rewards import extract_answer
from rlfactory_core.tiny import ANSWER_CLOSE, ANSWER_OPEN, answer_text
from rlfactory_core.types import Message, StopReason, ToolCall, Trajectory

_BLOCK = re.compile(r"((?:(?!```).)*```[^`\n]*\n)((?:(?!```).)+?)(\n```(?:(?!```).)*)", re.DOTALL)


FRAMES = ("tags", "block", "whole", "call")
"""The answer is in tags, in the only code block, the whole message, or an argument of a call."""
STEPS = "steps"
"""There is no answer in words: all that was done is the answer, and the last message ends the episode."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A message whose answer can be replaced."""

    kind: str  # one of `FRAMES`, or `STEPS`
    answer: str  # the right one; of `STEPS`, all turns as a text, which tells episodes apart
    before: str = ""  # the text before the tags, or before the answer in its block
    after: str = ""  # the text after the tags, or after the answer in its block
    call: ToolCall | None = None  # the call that submits the answer
    argument: str = ""  # the name of the call's argument that holds the answer
    last: Message | None = None  # of `STEPS`

    @classmethod
    def of_episode(cls, oracle: Trajectory, accepted: Collection[str]) -> Frame | None:
        """That of the last message; without words in it that can be an answer, `STEPS` if the environment ended."""
        turns = [turn.message for turn in oracle.turns]
        frame = cls.of(turns[-1], accepted) if turns else None
        if oracle.stop is not StopReason.ENV_DONE or accepted or (frame is not None and frame.kind != "whole"):
            return frame
        return cls(STEPS, "\n".join(map(turn_text, turns)), last=turns[-1])

    @classmethod
    def of(cls, message: Message, accepted: Collection[str]) -> Frame | None:
        """None where the message holds no answer.

        Args:
            accepted: the sample's answers, to recognise the argument of a call that holds one.
        """
        content, answer = message.content, extract_answer(message.content)
        if answer is not None:
            start = content.rfind(ANSWER_OPEN, 0, content.rfind(ANSWER_CLOSE))
            end = content.find(ANSWER_CLOSE, start) + len(ANSWER_CLOSE)
            return cls("tags", answer, content[:start], content[end:])
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
        """The message with another answer, and with text before and after it, outside of any tags or block."""
        if self.last is not None:
            return replace(self.last, content=before + self.last.content + after)
        if self.call is not None:
            arguments = {**(self.call.arguments or {}), self.argument: answer}
            text = json.dumps(arguments, ensure_ascii=False)
            call = replace(self.call, arguments=arguments, arguments_text=text)
            return Message("assistant", before + after, tool_calls=(call,))
        if self.kind == "whole":
            return before + answer + after
        held = answer if self.kind == "block" else answer_text(answer)
        return f"{before}{self.before}{held}{self.after}{after}"


def turn_text(turn: Message) -> str:
    """A message's text and calls."""
    return " ".join([turn.content, *(f"{call.name}({call.arguments_text})" for call in turn.tool_calls)]).strip()
