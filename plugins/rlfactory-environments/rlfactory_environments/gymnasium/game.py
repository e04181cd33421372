"""What an episode needs of a game, whoever wrote it: texts in, texts out. The calls may block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


class IllegalActionError(ValueError):
    """The model's text is no action of the game, which has not moved; the message is for the model."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the player sees after a reset or a step."""

    text: str
    state: str = ""  # names the state, where the player sees all of it
    reward: float = 0.0  # for the step
    terminated: bool = False  # the game is over
    truncated: bool = False  # a limit of the game's own has cut it
    facts: Mapping[str, object] = field(default_factory=dict)  # for the trajectory's ``info``


class Game(Protocol):
    """One game, played once. An exception other than `IllegalActionError` is a fault of the game."""

    def reset(self, seed: int) -> Seen:
        """Begin; the text has the rules."""
        ...

    def step(self, reply: str) -> Seen:
        """
        Raises:
            IllegalActionError: the text is no action.
        """
        ...

    def actions(self) -> tuple[str, ...]:
        """Some texts that are actions now, as far as they are known."""
        ...

    def close(self) -> None: ...
