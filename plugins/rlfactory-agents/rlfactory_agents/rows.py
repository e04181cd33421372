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
from dataclasses import dataclass, field, replace
from itertools import takewhile

from rlfactory_agents.keys import Key, same
from rlfactory_core.types import BRANCH, ToolSpec

# Why a request begins a row: what the agent did to its history.
REPEATED = "repeated_prompt"  # the same prompt again: a second attempt, or one of several answers
CHANGED_TOOLS = "changed_tools"
CUT_TURN = "cut_turn"  # the last answer has no end, because max_tokens cut it
FRESH_PROMPT = "fresh_prompt"  # another question, with the instructions and tools of the first row
SUBAGENT = "subagent"  # a conversation with other instructions, or another question with other tools
COMPACTED = "compacted"  # fewer messages stand for a part of the history
LATE_SYSTEM = "late_system"  # a system message after an answer, which the template writes in a whole conversation only
EDITED_HISTORY = "edited_history"  # messages were changed, or put between others


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


def place(rows: Sequence[RowState], keys: Sequence[Key], offered: str) -> Place:
    """Find the row that a request continues, or why there is none.

    Args:
        keys: of the request's messages, without one that the answer continues.
    """
    if not rows:
        return Place(None, None, "")
    said = max((number for number, key in enumerate(keys, 1) if key.role == "assistant"), default=0)
    appendable = len(keys) > said
    reason = ""
    branch: Place | None = None
    for row in reversed(rows):
        same_so_far = row.common(keys)
        if not said:
            if same_so_far == len(keys) == row.prompt:
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
    return Place(None, None, reason or _fork(rows, keys, offered))


def _fork(rows: Sequence[RowState], keys: Sequence[Key], offered: str) -> str:
    """The reason of a request that continues no row.

    Args:
        rows: the first one is that of the attempt's first request.
    """
    asked = _instructions(keys)
    kin = [row for row in rows if asked == (known := _instructions(row.keys)) or (known and asked.startswith(known))]
    if not kin:
        return SUBAGENT
    fresh = FRESH_PROMPT if rows[0] in kin and rows[0].offered == offered else SUBAGENT
    if not any(key.role == "assistant" for key in keys):
        return COMPACTED if any(_sums_up(row.keys, keys) for row in kin) else fresh
    there, here = max(_places(row.keys, keys) for row in kin)
    if not here:
        return fresh
    return COMPACTED if here < there else EDITED_HISTORY


def _sums_up(row: Sequence[Key], keys: Sequence[Key]) -> bool:
    """Whether a request without answers begins with the question of a row that has some."""
    question = next((key.text for key in row if key.role == "user"), "")
    begun = any(key.role == "user" and key.text.startswith(question) for key in keys)
    return bool(question) and begun and any(key.role == "assistant" for key in row)


def _places(row: Sequence[Key], keys: Sequence[Key]) -> tuple[int, int]:
    """Where the last message that both have stands in the row and in the request, from 1; (0, 0) if there is none."""
    last = {_plain(key): number for number, key in enumerate(row, 1) if key.role != "system"}
    for number in range(len(keys), 0, -1):
        if (there := last.get(_plain(keys[number - 1]))) is not None:
            return there, number
    return 0, 0


def _plain(key: Key) -> Key:
    """The key without the ids of an assistant's calls, which frameworks may replace."""
    return replace(key, ids=()) if key.role == "assistant" else key


def _instructions(keys: Sequence[Key]) -> str:
    """The system messages at the beginning."""
    return "\n".join(key.text for key in takewhile(lambda key: key.role == "system", keys))


def tools_key(tools: Sequence[ToolSpec]) -> str:
    """The tools as a text; keys of a schema may come in any order."""
    return json.dumps([[tool.name, tool.description, dict(tool.parameters)] for tool in tools], sort_keys=True)
