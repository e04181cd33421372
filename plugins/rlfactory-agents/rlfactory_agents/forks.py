"""Why a request begins a row: what the agent did to its history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from rlfactory_agents.keys import Key
from rlfactory_core.types import BRANCH

__all__ = ["BRANCH", "CHANGED_TOOLS", "CUT_TURN", "LATE_SYSTEM", "REPEATED", "History", "fork"]

REPEATED = "repeated_prompt"  # the same prompt again: a second attempt, or one of several answers
CHANGED_TOOLS = "changed_tools"
CUT_TURN = "cut_turn"  # the last answer has no end, because max_tokens cut it
FRESH_PROMPT = "fresh_prompt"  # another question, with the instructions and tools of the first row
SUBAGENT = "subagent"  # a conversation with other instructions, or another question with other tools
COMPACTED = "compacted"  # fewer messages stand for a part of the history
LATE_SYSTEM = "late_system"  # a system message after an answer, which the template writes in a whole conversation only
EDITED_HISTORY = "edited_history"  # messages were changed, or put between others


@dataclass(frozen=True, slots=True)
class History:
    """The messages of a row, and its tools."""

    keys: Sequence[Key]
    offered: str


def fork(rows: Sequence[History], keys: Sequence[Key], offered: str) -> str:
    """The reason of a request that continues no row.

    Args:
        rows: the first one is that of the attempt's first request.
    """
    kin = [row for row in rows if _kin(_instructions(row.keys), _instructions(keys))]
    if not kin:
        return SUBAGENT
    fresh = FRESH_PROMPT if rows[0] in kin and rows[0].offered == offered else SUBAGENT
    if not any(key.role == "assistant" for key in keys):
        return COMPACTED if any(_sums_up(row.keys, keys) for row in kin) else fresh
    there, here = max(_places(row.keys, keys) for row in kin)
    if not here:
        return fresh
    return COMPACTED if here < there else EDITED_HISTORY


def _kin(row: str, given: str) -> bool:
    """Whether instructions are those of a row, or add something to them."""
    return row == given or bool(row and given.startswith(row))


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
