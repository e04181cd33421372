"""What all kinds of environments share: a user's solver, samples made of seeds, the text of an observation.

An environment's prompt is known only after its reset, so a sample's own prompt merely names it, and the episode begins
with what the environment says (`EnvStart.messages`). Rewards are given with each step (`EnvStep.reward`), so a task of
these kinds has ``rewards = ENV_REWARDS``, which shows their sum as a metric; a user can add scorers.
"""

from __future__ import annotations

import importlib
import json
import runpy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from rlfactory_core import Section, Task
from rlfactory_core.errors import ConfigError, MissingExtraError
from rlfactory_core.types import Message, Sample

ENV_REWARDS: Mapping[str, float] = {"env_reward": 0.0}  # steps' rewards count without a scorer; this one shows them
EVAL_SEEDS = 2**30  # the first seed of evaluation; training begins at 1, because some environments take 0 for no seed


class SolverOptions(Section):
    """Options of tasks whose environment does not say its solution and its rewards."""

    solver: str = ""
    """A function that knows the solution, as MODULE:NAME or FILE.py:NAME; see docs/environments.md."""
    reward_low: float | None = None
    """The lowest reward of an episode, for `plugins check` and `plugins redteam`; null: as far as it is known."""
    reward_high: float | None = None
    """The highest one, likewise. OpenEnv does not say them, so 0 and 1 are assumed there."""


Solver = Callable[[Sample, Sequence[Message]], Message]
"""The next message of a solution, as `Task.solve`."""


class SolverTask(Task):
    """A task whose ``Config`` has `SolverOptions`."""

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(config, seed)
        self.has_solution = bool(self.config.solver)

    @cached_property
    def solver(self) -> Solver | None:
        """
        Raises:
            ConfigError: there is no such function.
        """
        return _load_solver(self.config.solver) if self.config.solver else None

    def bound(self, low: float, high: float) -> None:
        """Set ``reward_bounds``: the user's, else these."""
        config = self.config
        self.reward_bounds = (
            low if config.reward_low is None else config.reward_low,
            high if config.reward_high is None else config.reward_high,
        )


def _load_solver(name: str) -> Solver:
    """The function ``MODULE:NAME`` or ``FILE.py:NAME``; a text that it returns becomes an assistant message."""
    place, _, attribute = name.rpartition(":")
    try:
        if place.endswith(".py"):
            function = runpy.run_path(str(Path(place).expanduser()))[attribute]
        else:
            function = getattr(importlib.import_module(place), attribute)
    except (ImportError, AttributeError, LookupError, OSError, ValueError) as error:
        raise ConfigError(
            f"task.solver: got {name!r}, which cannot be loaded ({error}); expected MODULE:NAME or FILE.py:NAME of a "
            "function (sample, messages) that returns the next message."
        ) from error
    if not callable(function):
        raise ConfigError(f"task.solver: {name!r} is {function!r:.80}; expected a function (sample, messages).")

    def solve(sample: Sample, messages: Sequence[Message]) -> Message:
        reply = function(sample, messages)
        return Message("assistant", reply) if isinstance(reply, str) else reply

    return solve


def seed_samples(split: str, count: int, name: str) -> Iterator[Sample]:
    """Samples that differ by ``metadata["seed"]``; the seeds of training and of evaluation are disjoint.

    Args:
        name: of the environment, for the sample's prompt.
    """
    first = EVAL_SEEDS if split == "eval" else 1
    for seed in range(first, first + count):
        yield Sample(f"{split}-{seed - first}", f"{name}, seed {seed}", metadata={"seed": seed}, split=split)


def imported(module: str, package: str) -> Any:
    """The module of an optional package; raises `MissingExtraError`, with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"This needs {package}: python -m pip install 'rlfactory-environments[{package.lower()}]'"
        ) from error


def observation_text(observation: Any, fields: Collection[str] = ()) -> str:
    """An observation for the model: a text as it is, a mapping with one text as this text, and all else as JSON.

    Args:
        fields: the keys of a mapping that are shown; empty: all.
    """
    if isinstance(observation, Mapping):
        kept = {key: value for key, value in observation.items() if not fields or key in fields}
        filled = [value for value in kept.values() if value not in (None, "", [], {})]
        observation = filled[0] if len(filled) == 1 and isinstance(filled[0], str) else kept
    return observation if isinstance(observation, str) else json.dumps(observation, ensure_ascii=False, default=str)
