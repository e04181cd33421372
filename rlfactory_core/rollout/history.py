"""What a turn sees of earlier ones, if that is not simply all of it: `RolloutConfig.context`.

Where the history changes, the turn begins a `types.Row`, whose ids are its own rendered prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rlfactory_core.protocols import ChatFormat
from rlfactory_core.rollout.settings import RolloutConfig
from rlfactory_core.types import Message, Sample, ToolSpec

# Why a row begins.
DROPPED_THINKING, COMPACTED, SUMMARIZED = "dropped_thinking", "compacted", "summarized"
CHANGED_TOOLS = "changed_tools"  # the environment offers other tools
REMOVED = "[removed to save space]"  # in the place of a tool's result
SUMMARIZE = Message(
    "user",
    "Everything above will be removed to save space. Write down what you need of it to go on: what was asked, what you "
    "have found, and what is left to do.",
)
NOTES = "Your notes of the work so far:"

Compact = Callable[[Sample, Sequence[Message]], Sequence[Message]]
"""As `Task.compact`."""


def remove_oldest_result(sample: Sample, messages: Sequence[Message]) -> Sequence[Message]:
    """The messages without the text of the oldest tool's result that has one; unchanged if it is the last message."""
    for number, message in enumerate(messages[:-1]):
        if message.role == "tool" and message.content != REMOVED:
            return (*messages[:number], replace(message, content=REMOVED), *messages[number + 1 :])
    return messages


@dataclass(frozen=True, slots=True)
class History:
    """How histories are changed.

    Args:
        tokens: of a turn's context, beyond which the modes compact and summarize change it.
        compact: makes a history shorter; it is called until the history fits, or stays the same.
    """

    mode: Literal["keep", "drop_thinking", "compact", "summarize"] = "keep"
    tokens: int = 0
    compact: Compact = remove_oldest_result

    @classmethod
    def of(cls, config: RolloutConfig, compact: Compact = remove_oldest_result) -> History:
        return cls(config.context, config.context_tokens or config.max_tokens // 2, compact)

    def changed(
        self,
        chat: ChatFormat,
        sample: Sample,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        ids: Sequence[int],
    ) -> tuple[str, Sequence[Message], tuple[int, ...]] | None:
        """Why the next turn begins a row, its messages and its ids; None: it goes on with ``ids``.

        Args:
            messages: all so far, the last observation included.
            ids: of the row so far, with that observation.
        """
        if self.mode == "drop_thinking":
            rendered = chat.initial_ids(messages, tools)
            seen, kept = chat.decode(ids), chat.decode(rendered)  # not the ids, which may differ for the same text
            thoughts = (message.reasoning for message in messages if message.reasoning)
            dropped = any(thought in seen and thought not in kept for thought in thoughts)
            return (DROPPED_THINKING, messages, rendered) if dropped else None
        if self.mode != "compact" or len(ids) <= self.tokens:
            return None
        rendered = tuple(ids)
        before = messages
        while len(rendered) > self.tokens:
            shorter = tuple(self.compact(sample, messages))
            if shorter == tuple(messages):
                break
            messages, rendered = shorter, chat.initial_ids(shorter, tools)
        return None if messages is before else (COMPACTED, messages, rendered)


def with_notes(prompt: Sequence[Message], summary: str) -> Sequence[Message]:
    """The prompt with a summary at its end, in one message, because many templates want the roles to alternate."""
    *before, last = prompt
    notes = f"{NOTES}\n{summary.strip()}"
    if last.role != "user":
        return (*prompt, Message("user", notes))
    return (*before, replace(last, content=f"{last.content}\n\n{notes}"))


KEEP = History()
"""Every turn sees all that was sampled before."""
