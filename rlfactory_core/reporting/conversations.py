"""The conversations of a trajectory as messages: what other trainers learn from, or a model of another tokenizer.

A trajectory is one conversation, or several if its rows begin with histories that were rewritten, or with prompts of an
agent's own. What was sampled is learnt in one of them only: where a later row repeats it, it has the weight 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlfactory_core.clients.wire import message_to_wire
from rlfactory_core.errors import DataError
from rlfactory_core.rollout.history import DROPPED_THINKING
from rlfactory_core.types import Message, Row, ToolSpec, Trajectory, Turn

REASONING = "reasoning_content"  # DeepSeek's key, which chat templates and most trainers read


@dataclass(slots=True)
class Conversation:
    """Messages up to the last turn of the assistant that is complete.

    Args:
        learnt: whether the trajectory sampled it here, for each turn of the assistant.
    """

    tools: tuple[ToolSpec, ...]
    messages: list[Message] = field(default_factory=list)
    learnt: list[bool] = field(default_factory=list)

    def observe(self, messages: Sequence[Message]) -> None:
        """Add what the model reads; turns of the assistant in it were not sampled here."""
        self.messages += messages
        self.learnt += [False for message in messages if message.role == "assistant"]

    def as_openai(self) -> dict[str, Any]:
        """``messages`` and ``tools`` in OpenAI's format for fine-tuning; turns not to be learnt have ``weight`` 0."""
        learnt = iter(self.learnt)
        entries = []
        for message in self.messages:
            entry = message_to_wire(message, REASONING)
            if message.role == "tool" and message.name:
                entry["name"] = message.name
            if message.role == "assistant" and not next(learnt):
                entry["weight"] = 0
            entries.append(entry)
        return {"messages": entries, "tools": [tool.function_schema for tool in self.tools]}


def conversations(trajectory: Trajectory) -> list[Conversation]:
    """Those of all rows. A turn that a token limit has cut is left out, with what follows it.

    Raises:
        DataError: the messages of a row are not stored, or a call in it is not valid, which no format can write.
    """
    found: list[Conversation] = []
    for row in trajectory.rows:
        first = row.turns[0]
        if not found or first.fork != DROPPED_THINKING:
            tools = trajectory.tools if first.tools is None else first.tools
            found.append(Conversation(tools))
        for observed, turn in _exchanges(trajectory, row, goes_on=first.fork == DROPPED_THINKING):
            found[-1].observe(observed)
            found[-1].messages.append(turn)
            found[-1].learnt.append(True)
    return [each for each in found if any(each.learnt)]


def _exchanges(trajectory: Trajectory, row: Row, *, goes_on: bool) -> Iterator[tuple[Sequence[Message], Message]]:
    """What the model reads before each turn, and the turn."""
    what = f"sample '{trajectory.sample.id}', attempt {trajectory.attempt}"
    for number, turn in enumerate(row.turns):
        if turn.finish == "length":
            return
        if (wrong := next((call for call in turn.message.tool_calls if call.arguments is None), None)) is not None:
            raise DataError(f"{what}: the call {wrong.arguments_text[:80]!r} is not valid.")
        observed: Sequence[Message] = turn.observed
        if not observed and not number and not goes_on:
            own_prompt = trajectory.answer is None and not turn.row
            observed = trajectory.sample.messages if own_prompt else ()
        elif not observed:
            before = row.turns[number - 1] if number else trajectory.turns[_place(trajectory, turn) - 1]
            observed = [result.message for result in before.results]
        if not observed:
            raise DataError(f"{what}: what the model read is not stored; the run is of an earlier version.")
        yield observed, turn.message


def _place(trajectory: Trajectory, turn: Turn) -> int:
    return next(number for number, each in enumerate(trajectory.turns) if each is turn)
