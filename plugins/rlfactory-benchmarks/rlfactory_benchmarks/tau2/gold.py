"""The expected actions of a task as a script: what `Tau2.solve` plays, and a user that does what it is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import groupby, takewhile
from typing import Any

from rlfactory_core import Message
from rlfactory_core.protocols import Model, Request
from rlfactory_core.rollout import USER_STOP, WrittenModel
from rlfactory_core.tiny import call

__all__ = ["gold_turns", "scripted_user"]

_ASKS = "Please do this, one after the other:"
_ASKED = re.compile(r"^- (\w+)\((\{.*\})\)$", re.MULTILINE)


def gold_turns(task: Any, *, solo: bool) -> Sequence[Message]:
    """The agent's turns: its actions one by one, and the user's as a request; the last one is repeated.

    Alone, the agent acts for the user, too, and ends with ``done``. With a user it ends with all that it has to tell.
    """
    turns: list[Message] = []
    criteria = task.evaluation_criteria
    for is_users, actions in groupby(criteria.actions or (), lambda action: action.requestor == "user" and not solo):
        if is_users:
            lines = (f"- {action.name}({json.dumps(action.arguments)})" for action in actions)
            turns.append(Message("assistant", "\n".join([_ASKS, *lines])))
        else:
            turns += [_calls(action.name, action.arguments) for action in actions]
    facts = "; ".join(criteria.communicate_info or ())
    return (*turns, _calls("done", {}) if solo else Message("assistant", f"That is all. {facts}".strip()))


def _calls(name: str, arguments: dict[str, Any]) -> Message:
    return Message("assistant", "", tool_calls=(call(name, **arguments),))


def scripted_user(task: Any) -> Model:
    """Tells its scenario, does what it is asked in the form of `gold_turns`, and ends when it is asked nothing."""
    instructions = task.user_scenario.instructions
    known = [getattr(instructions, part, None) for part in ("reason_for_call", "known_info")]
    opening = iter([" ".join(filter(None, known)) or str(instructions)])

    def write(request: Request) -> Message:
        for text in opening:
            return Message("assistant", text)
        since = [*takewhile(lambda message: message.role != "user", reversed(request.messages))]
        asked = _ASKED.findall(request.messages[-1 - len(since)].content)
        done = sum(message.role == "tool" for message in since)
        if done < len(asked):
            return _calls(asked[done][0], json.loads(asked[done][1]))
        return Message("assistant", "Done." if asked else USER_STOP)

    return WrittenModel(write)
