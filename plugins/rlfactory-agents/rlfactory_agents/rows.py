"""The rows of an agent's trajectory, and to which of them a request belongs.

An agent sends its whole history with each request. A request that repeats what a row has seen, and adds messages to it,
continues the row: only the new messages are encoded, and nothing that was sampled is encoded again. Any other request
begins a row, whose ids are its own rendered prompt. Assistant messages are compared by the text and the calls that were
given to the agent, because frameworks drop reasoning and write arguments anew; calls by the ids that the gateway gave
them, where a framework drops the text beside them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from rlfactory_agents.forks import BRANCH, CHANGED_TOOLS, CUT_TURN, REPEATED, History, fork
from rlfactory_agents.keys import Key, same
from rlfactory_core.types import Message, ToolSpec


@dataclass(frozen=True, slots=True)
class End:
    """A place in a row at which an answer of the model ends."""

    messages: int  # so many of the row's messages, the answer included
    tokens: int  # so many of the row's ids
    complete: bool  # whether the answer has an end, so that more can be appended
    unsampled: tuple[int, ...] = ()  # the end, if a stop text of the agent's ended the answer and not the model


@dataclass(slots=True)
class RowState:
    """A row that may still grow.

    Args:
        offered: what identifies the tools that its prompt shows.
        prompt: the number of messages before the first answer.
    """

    index: int
    offered: str
    prompt: int
    keys: list[Key] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    images: int = 0  # that its answers have seen
    busy: bool = False  # whether an answer is being sampled at its end
    held: bool = False  # whether the sampler may hold a cache of it

    def common(self, keys: Sequence[Key]) -> int:
        """How many of the first messages are the same."""
        count = 0
        for own, given in zip(self.keys, keys, strict=False):
            if not same(own, given):
                break
            count += 1
        return count


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request belongs.

    Args:
        row: the row whose history it repeats; None: it has to be rendered whole.
        end: the end in that row after which its new messages follow.
        fork: why it begins a row; empty if it continues ``row``, or begins the first row.
    """

    row: RowState | None
    end: End | None
    fork: str


def place(rows: Sequence[RowState], messages: Sequence[Message], keys: Sequence[Key], offered: str) -> Place:
    """Find the row that a request continues, or why there is none.

    Args:
        messages: without one that the answer continues.
        keys: of the messages.
    """
    if not rows:
        return Place(None, None, "")
    said = max((number for number, each in enumerate(messages, 1) if each.role == "assistant"), default=0)
    appendable = len(messages) > said
    reason = ""
    branch: Place | None = None
    for row in reversed(rows):
        same_so_far = row.common(keys)
        if not said:
            if same_so_far == len(messages) == row.prompt:
                reason = REPEATED if row.offered == offered else reason or CHANGED_TOOLS
            continue
        end = next((each for each in row.ends if each.messages == said), None)
        if same_so_far < said or end is None:
            continue
        if row.offered != offered:
            reason = reason or CHANGED_TOOLS
        elif not end.complete:
            reason = reason or CUT_TURN
        elif appendable:
            if end is row.ends[-1] and not row.busy:
                return Place(row, end, "")
            branch = branch or Place(row, end, BRANCH)
    if branch is not None:
        return branch
    return Place(None, None, reason or fork([History(row.keys, row.offered) for row in rows], keys, offered))


def tools_key(tools: Sequence[ToolSpec]) -> str:
    """The tools as a text; keys of a schema may come in any order."""
    return json.dumps([[tool.name, tool.description, dict(tool.parameters)] for tool in tools], sort_keys=True)
