"""Gymnasium's spaces in text: what a model reads of an observation, and how it writes an action."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlfactory_core.errors import UsageError
from rlfactory_environments.gymnasium.game import IllegalActionError

if TYPE_CHECKING:
    from gymnasium import Space

MOST_NUMBERS = 256  # of an observation that is written as text
MOST_ACTIONS = 256  # of a discrete space
MOST_PARTS = 16  # numbers of an action
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_BRACKETED = re.compile(r"\[([^\[\]]*)\]")


def observation_problem(space: Space[Any]) -> str:
    """Why observations of a space cannot be written as text; empty if they can."""
    from gymnasium import spaces

    if isinstance(space, (spaces.Text, spaces.Discrete)):
        return ""
    if isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
        count = math.prod(space.shape)
        return f"it has {count:,} numbers; at most {MOST_NUMBERS} are written" if count > MOST_NUMBERS else ""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return next(filter(None, map(observation_problem, parts)), "")
    return f"a space of the kind {type(space).__name__} has no text"


def plain(value: Any) -> Any:
    """An observation as plain data: numpy's numbers and arrays become Python's, rounded to four places."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return round(value, 4) if isinstance(value, float) else value


def written(value: Any) -> str:
    """An observation as text."""
    data = plain(value)
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)


@dataclass(frozen=True, slots=True)
class Actions:
    """How the actions of a space are written."""

    rule: str  # for the model
    read: Callable[[str], Any]  # raises `IllegalActionError`
    examples: tuple[str, ...] = ()  # some actions


def actions_of(space: Space[Any], names: Sequence[str]) -> Actions:
    """How a model writes actions of a space.

    Args:
        names: of a discrete space's actions, in their order; empty: their numbers.

    Raises:
        UsageError: the space cannot be written as text, or has another number of actions than names.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return _discrete(int(space.n), int(space.start), names)
    if names:
        raise UsageError(f"Only a discrete action space has names, and this one is {space}. Drop action_names.")
    if isinstance(space, spaces.Text):
        return Actions("Reply with a text.", lambda reply: _text(reply, space))
    if isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box)):
        count = math.prod(space.shape)
        if count <= MOST_PARTS:
            return Actions(
                f"Reply with {count} number{'' if count == 1 else 's'} of the space {space}, such as "
                f"{written(space.sample())}.",
                lambda reply: _numbers(reply, space, count),
            )
    raise UsageError(
        f"Its actions cannot be written as text: {str(space)[:200]}. Text, Discrete, and Box, MultiDiscrete and "
        f"MultiBinary of at most {MOST_PARTS} numbers can; wrap the environment in one that has such actions."
    )


def _discrete(count: int, start: int, names: Sequence[str]) -> Actions:
    if count > MOST_ACTIONS:
        raise UsageError(f"It has {count:,} actions; at most {MOST_ACTIONS} can be listed for a model.")
    if names and len(names) != count:
        raise UsageError(f"action_names has {len(names)} names, and the environment {count} actions.")
    shown = tuple(names) or tuple(str(start + number) for number in range(count))
    known = {name.casefold(): start + number for number, name in enumerate(shown)}
    known.update({str(start + number): start + number for number in range(count)})
    rule = f"Reply with one action, and nothing else: {', '.join(shown)}."
    return Actions(rule, lambda reply: _one_of(reply, known, shown), shown)


def _one_of(reply: str, known: Mapping[str, int], shown: Sequence[str]) -> int:
    """The action that is the whole text, its last line, or what stands in the last brackets."""
    lines = reply.strip().splitlines() or [""]
    bracketed = _BRACKETED.findall(reply)
    for text in (reply, lines[-1], *bracketed[-1:]):
        found = known.get(text.strip().strip("[]()*\"'`. ").casefold())
        if found is not None:
            return found
    raise IllegalActionError(f"That is no action. Reply with one of: {', '.join(shown)}.")


def _text(reply: str, space: Any) -> str:
    if space.contains(reply):
        return reply
    raise IllegalActionError(
        f"That is no action: expected {space.min_length} to {space.max_length} characters of the set "
        f"{space.characters!r:.100}."
    )


def _numbers(reply: str, space: Any, count: int) -> Any:
    import numpy as np

    lines = reply.strip().splitlines() or [""]
    found = _NUMBER.findall(lines[-1])
    if len(found) == count:
        try:
            value = np.array([float(text) for text in found]).reshape(space.shape).astype(space.dtype)
        except (ValueError, OverflowError):
            value = None
        whole = np.issubdtype(space.dtype, np.integer)
        if value is not None and not (whole and any("." in text for text in found)) and space.contains(value):
            return value
    raise IllegalActionError(f"That is no action: expected {count} numbers of {space} on the last line.")
