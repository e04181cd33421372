"""Mutations of whole episodes. A reward that accepts one of them pays for steps and not for the outcome.

What the oracle's steps earn is not held against the reward: an episode counts as accepted if it earns at least half of
what is left after them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from rlfactory_core.testing.redteam.mutation import Case, Material, Mutation, mutation
from rlfactory_core.types import Message

STEPS = 4  # of the oracle, that are repeated or left out
_wrong = partial(mutation, "wrong")
_ONCE = "Reward a step once, or only the outcome: what is rewarded each time is repeated up to the limit of turns."


@_wrong("a step again and again", _ONCE)
def repeated(material: Material) -> Iterable[Case]:
    """Each of the oracle's steps but the last, repeated until the episode ends."""
    for number, step in enumerate(material.turns[:-1][:STEPS], 1):
        yield Case((step,), f"step {number}", after=number, adds=True)


@_wrong("every call there is", _ONCE)
def all_calls(material: Material) -> Iterable[Case]:
    """The calls of the oracle on all samples, one a turn, in another order than here; then silence."""
    own = [call for turn in reversed(material.turns) for call in turn.tool_calls]
    calls = [*(call for call in material.known_calls if call not in own), *own]
    steps = [Message("assistant", "", tool_calls=(call,)) for call in calls]
    return [Case((*steps, ""), after=0, credited=len(material.turns) - 1, adds=True)] if steps else []


@_wrong("an end before the last steps", "Let the last steps earn something, or the policy will leave them out.")
def early_end(material: Material) -> Iterable[Case]:
    for number in range(1, len(material.turns) - 1)[:STEPS]:
        yield Case(("",), f"after step {number}", after=number)


@_wrong(
    "the whole solution of another question", "Compare with what is asked: the same steps do not solve every sample."
)
def other_episode(material: Material) -> Iterable[Case]:
    return [Case(each, after=0) for each in material.other_episodes[:1] if len(each) > 1]


EPISODES = tuple(each for each in tuple(globals().values()) if isinstance(each, Mutation))
"""All mutations of this file in its order."""
