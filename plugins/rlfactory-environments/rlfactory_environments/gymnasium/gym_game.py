"""Gymnasium's environments, each in a text wrapper."""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from rlfactory_core.errors import RlfactoryError, UsageError
from rlfactory_environments.episodes import imported
from rlfactory_environments.gymnasium.game import Seen
from rlfactory_environments.gymnasium.spaces import actions_of, observation_problem, written

_MARKED = re.compile(r"\x1b\[[0-9;]*m(.*?)\x1b\[0m", re.DOTALL)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RULES = 600  # characters of an environment's own description

NAMES: Mapping[str, Sequence[str]] = {
    "FrozenLakeEnv": ("left", "down", "right", "up"),
    "CliffWalkingEnv": ("up", "right", "down", "left"),
    "TaxiEnv": ("south", "north", "east", "west", "pick up", "drop off"),
    "BlackjackEnv": ("stick", "hit"),
    "CartPoleEnv": ("left", "right"),
    "MountainCarEnv": ("left", "none", "right"),
    "AcrobotEnv": ("-1", "0", "+1"),
}
"""The names of the actions of Gymnasium's own environments, by class, as in their documentation."""

MEANINGS: Mapping[str, str] = {
    "BlackjackEnv": "[your sum, the dealer's open card, whether you have a usable ace]",
    "CartPoleEnv": "[cart position, cart velocity, pole angle, pole's angular velocity]",
    "MountainCarEnv": "[position, velocity]",
    "Continuous_MountainCarEnv": "[position, velocity]",
    "AcrobotEnv": "[cos of angle 1, sin of angle 1, cos of angle 2, sin of angle 2, velocity 1, velocity 2]",
    "PendulumEnv": "[x, y, angular velocity]",
}
"""What the numbers of their observations mean."""

BOUNDS: Mapping[str, tuple[float, float]] = {
    "FrozenLakeEnv": (0.0, 1.0),
    "BlackjackEnv": (-1.0, 1.0),
    "CartPoleEnv": (0.0, 500.0),
}
"""The bounds of an episode's reward, where an environment's documentation gives them."""


class GymGames:
    """Makes environments of one id.

    Args:
        id: as for ``gymnasium.make``; ``module:id`` imports the module first, which registers it.
        arguments: further arguments of ``gymnasium.make``.
        names: the names of the actions; empty: the known ones, else numbers.
        rules: what the model reads about the environment; empty: the first paragraph of its own description.

    Raises:
        MissingExtraError: Gymnasium is not installed.
    """

    def __init__(self, id: str, arguments: Mapping[str, Any], names: Sequence[str], rules: str) -> None:  # noqa: A002
        self._make = imported("gymnasium", "Gymnasium").make
        self._id, self._arguments, self._names, self._rules = id, dict(arguments), tuple(names), rules
        self.reward_bounds = (-math.inf, math.inf)  # of an episode; infinite where they are not known

    def check(self) -> None:
        """
        Raises:
            UsageError: there is no such environment here, or it cannot be played in text.
        """
        try:
            game = self.make()
        except RlfactoryError as error:
            raise UsageError(f"Gymnasium's environment '{self._id}' cannot be played in text. {error}") from error
        except Exception as error:  # the boundary to Gymnasium and to whoever wrote the environment
            raise UsageError(
                f"Gymnasium cannot make '{self._id}' with {self._arguments or 'no arguments'}: {error}. "
                "Environments of other packages are named MODULE:ID, such as minigrid:MiniGrid-Empty-5x5-v0."
            ) from error
        self.reward_bounds = BOUNDS.get(game.kind, self.reward_bounds)
        game.close()

    def make(self) -> GymGame:
        arguments = dict(self._arguments)
        with warnings.catch_warnings():  # of old versions and of headless drawing, of which a user can do nothing
            warnings.simplefilter("ignore")
            environment = self._make(self._id, **arguments)
            if "render_mode" not in arguments and "ansi" in (environment.metadata.get("render_modes") or ()):
                environment.close()
                environment = self._make(self._id, render_mode="ansi", **arguments)
        try:
            return GymGame(environment, self._id, self._names, self._rules)
        except BaseException:
            environment.close()
            raise


class GymGame:
    """One environment.

    Raises:
        UsageError: its spaces cannot be written as text.
    """

    def __init__(self, environment: Any, id: str, names: Sequence[str], rules: str) -> None:  # noqa: A002
        inner = environment.unwrapped
        self.kind = type(inner).__name__
        self._environment, self._id = environment, id
        self._drawn = environment.render_mode == "ansi"
        problem = observation_problem(environment.observation_space)
        if problem and not self._drawn:
            space = str(environment.observation_space)[:200]
            raise UsageError(f"Its observations cannot be written as text: {space}, {problem}. Wrap it first.")
        self._numbers = not problem
        self._actions = actions_of(environment.action_space, names or _own_names(inner))
        self._rules = rules or _described(inner)
        self._meaning = MEANINGS.get(self.kind, "")

    def reset(self, seed: int) -> Seen:
        observation, _ = self._environment.reset(seed=seed)
        about = f"Each observation is {self._meaning}." if self._meaning else ""
        text = "\n\n".join(filter(None, (f"{self._id}. {self._rules}", about, self._actions.rule)))
        return Seen(f"{text}\n\n{self._shown(observation)}", state=written(observation))

    def step(self, reply: str) -> Seen:
        observation, reward, terminated, truncated, _ = self._environment.step(self._actions.read(reply))
        ended = bool(terminated), bool(truncated)
        return Seen(self._shown(observation), written(observation), float(reward), *ended)

    def actions(self) -> tuple[str, ...]:
        if self._actions.examples:
            return self._actions.examples
        space = self._environment.action_space
        space.seed(0)
        return tuple(written(space.sample()) for _ in range(8))

    def close(self) -> None:
        self._environment.close()

    def _shown(self, observation: Any) -> str:
        parts = [f"Observation: {written(observation)}"] if self._numbers else []
        if self._drawn:
            drawn = self._environment.render()
            # A colour marks where the player is; brackets do it in plain text.
            parts.insert(0, _COLOUR.sub("", _MARKED.sub(r"[\1]", str(drawn))).strip("\n"))
        return "\n".join(parts)


def _own_names(inner: Any) -> Sequence[str]:
    """The names of a discrete environment's actions, as far as it says them."""
    named = getattr(inner, "actions", None)  # an enumeration in MiniGrid and its kin
    if inspect.isclass(named) and hasattr(named, "__members__"):
        return [name.replace("_", " ") for name in named.__members__]
    meanings = getattr(inner, "get_action_meanings", None)  # in the Arcade Learning Environment
    if callable(meanings):
        return [str(name).lower() for name in meanings()]
    return NAMES.get(type(inner).__name__, ())


def _described(inner: Any) -> str:
    paragraphs = (" ".join(part.split()) for part in (type(inner).__doc__ or "").split("\n\n"))
    return next((part for part in paragraphs if part and not part.startswith("#")), "")[:_RULES]
