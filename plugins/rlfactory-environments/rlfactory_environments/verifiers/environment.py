"""What a task needs of an environment of verifiers, of either interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlfactory_core.gateway import Endpoint
from rlfactory_core.types import Message

INFO = "verifiers"  # the key of a trajectory's info that has what the environment says of it


@dataclass(frozen=True, slots=True)
class Row:
    """One task of an environment, as the model gets it."""

    number: int  # its place in the environment's own order
    messages: tuple[Message, ...]
    answer: str | None = None
    told: str | None = None  # the column ``answer``, also where it only says where the environment keeps the answer


@dataclass(frozen=True, slots=True)
class Played:
    """One rollout.

    Args:
        answer: the model's last text.
        reward: the whole reward, weighted; None: it is given to a group, by `Environment.score_group`.
        components: what each reward function gives, unweighted, and metrics.
        stop: why it ended, in the environment's words.
        errors: reward functions that raised, which count as 0 in verifiers, by their names.
        state: what `score_group` needs.
    """

    answer: str
    reward: float | None
    components: Mapping[str, float] = field(default_factory=dict)
    stop: str = ""
    errors: Mapping[str, str] = field(default_factory=dict)
    state: Any = None


class Environment(Protocol):
    """An environment whose own rollout plays. All but the properties runs on one event loop of its own."""

    has_group_rewards: bool
    reward_bounds: tuple[float, float]  # infinite where they are not known

    def rows(self, train: int, held_out: int) -> Mapping[str, Sequence[Row]]:
        """At most so many rows for the splits ``train`` and ``eval``, which share none."""
        ...

    async def open(self) -> None: ...

    async def play(self, split: str, number: int, endpoint: Endpoint) -> Played:
        """Play a row with the model at the endpoint.

        Raises:
            ToolUnavailableError: the environment failed, and not the model.
        """
        ...

    async def score_group(self, states: Sequence[Any]) -> Sequence[Played]:
        """Score rollouts of one row together."""
        ...

    async def close(self) -> None: ...
