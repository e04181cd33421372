"""The task ``verifiers``: any installed environment of verifiers, played by its own rollout at our endpoint."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from rlfactory_core import Message, Sample, Section, Task
from rlfactory_core.errors import ConfigError
from rlfactory_core.gateway import Endpoint
from rlfactory_core.settings import Natural, Positive
from rlfactory_environments.solver import Solver, load_solver
from rlfactory_environments.verifiers.environment import INFO, Environment, Played, Row
from rlfactory_environments.verifiers.loading import load
from rlfactory_environments.verifiers.loop import OwnLoop


class VerifiersTask(Task):
    """Plays one environment. Its data are the samples, its rollout plays them, and its rubric is the reward."""

    class Config(Section):
        """Which environment is played, and how."""

        environment: str = ""
        """The name of an installed environment of verifiers; MODULE:NAME calls a function or class that makes one."""
        arguments: dict[str, Any] = {}
        """Of the environment's load_environment, or the fields of a task set's configuration."""
        settings: dict[str, Any] = {}
        """Further fields of the configuration of a verifiers.v1 environment, such as an agent's harness."""
        max_turns: Positive | None = None
        """Of a rollout in a verifiers.v1 environment; by default the environment's own limit alone holds."""
        train_samples: Positive = 512
        """Training samples at most."""
        eval_samples: Natural = 64
        """Held-out samples at most. An environment without data for evaluation gives up to a fifth of its data."""
        solver: str = ""
        """A function that knows the solution, as MODULE:NAME or FILE.py:NAME; see docs/environments.md."""
        reward_low: float | None = None
        """The least reward of an episode, for `plugins check` and `plugins redteam`."""
        reward_high: float | None = None
        """The largest one, for `plugins check` and `plugins redteam`."""

    config: Config
    defaults: ClassVar[Mapping[str, Any]] = {"rollout": {"max_turns": 64, "max_tool_calls": 64}}

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(config, seed)
        self.has_solution = bool(self.config.solver)
        self._loop: OwnLoop | None = None
        self._states: dict[str, Any] = {}  # of rollouts that wait for the others of their group
        self._numbers = itertools.count()

    @property
    def rewards(self) -> Mapping[str, float]:  # type: ignore[override]
        """The environment's rubric, which may compare the rollouts of a group."""
        grouped = bool(self.config.environment) and self.environment.has_group_rewards
        return {"verifiers_group_rubric" if grouped else "verifiers_rubric": 1.0}

    @cached_property
    def environment(self) -> Environment:
        """
        Raises:
            ConfigError: no environment is named, or it cannot be loaded.
            MissingExtraError: verifiers is not installed.
        """
        config = self.config
        if not config.environment:
            raise ConfigError("Name the environment: --environment NAME, as for verifiers' load_environment.")
        return load(config.environment, config.arguments, config.settings, config.max_turns)

    @cached_property
    def rows(self) -> Mapping[str, Sequence[Row]]:
        """The environment's data by split."""
        return self.environment.rows(self.config.train_samples, self.config.eval_samples)

    @cached_property
    def solver(self) -> Solver | None:
        """
        Raises:
            ConfigError: there is no such function.
        """
        return load_solver(self.config.solver) if self.config.solver else None

    def samples(self, split: str) -> Iterable[Sample]:
        for row in self.rows[split]:
            facts = {"row": row.number, "answer": row.told}
            yield Sample(f"{split}-{row.number}", row.messages, answer=row.answer, metadata=facts, split=split)

    def check(self, samples: Sequence[Sample]) -> None:
        own, (low, high) = self.config, self.environment.reward_bounds
        self.reward_bounds = (
            low if own.reward_low is None else own.reward_low,
            high if own.reward_high is None else own.reward_high,
        )

    async def open(self) -> None:
        _ = self.rows  # rollouts name their row
        self._loop = OwnLoop("rlfactory-verifiers")
        await self._loop.run(self.environment.open())

    async def close(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                await loop.run(self.environment.close())
            finally:
                loop.close()

    async def agent(self, sample: Sample, endpoint: Endpoint) -> dict[str, Any]:
        assert self._loop is not None
        work = self.environment.play(sample.split, int(sample.metadata["row"]), endpoint)
        played = await self._loop.run(work)
        facts = _facts(played)
        if played.reward is None:
            facts["rollout"] = str(next(self._numbers))
            self._states[facts["rollout"]] = played.state
        return {"answer": played.answer, "metadata": {INFO: facts}}

    async def score_group(self, rollouts: Sequence[str | None]) -> Sequence[Mapping[str, Any] | None]:
        """What the environment gives to rollouts of one row; None for those that never reached their end."""
        assert self._loop is not None
        states = {name: self._states.pop(name) for name in rollouts if name is not None}
        played = await self._loop.run(self.environment.score_group(list(states.values()))) if states else ()
        found = dict(zip(states, map(_facts, played), strict=True))
        return [found[name] if name is not None else None for name in rollouts]

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        """What the solver says; without one the row's answer as it is written there, which may be none."""
        if self.solver is not None:
            return self.solver(sample, messages)
        return Message("assistant", str(sample.answer or "I do not know."))


def _facts(played: Played) -> dict[str, Any]:
    facts = {"components": dict(played.components), "stop": played.stop, "errors": dict(played.errors)}
    return {**facts, **({} if played.reward is None else {"reward": played.reward})}
