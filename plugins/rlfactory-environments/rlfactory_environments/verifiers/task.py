"""The task ``verifiers``: any installed environment of verifiers, played by its own rollout at our endpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from rlfactory_core import Message, Sample, Section, Task
from rlfactory_core.errors import ConfigError
from rlfactory_core.gateway import Endpoint
from rlfactory_core.settings import Natural, Positive
from rlfactory_environments.solver import Solver, load_solver
from rlfactory_environments.verifiers.environment import Row, VerifiersEnvironment
from rlfactory_environments.verifiers.loop import OwnLoop
from rlfactory_environments.verifiers.rubric import INFO


class VerifiersTask(Task):
    """Plays one environment. Its data are the samples, its rollout plays them, and its rubric is the reward."""

    class Config(Section):
        """Which environment is played, and how."""

        environment: str = ""
        """The name of an installed task set of verifiers (verifiers.v1)."""
        arguments: dict[str, Any] = {}
        """Fields of the task set's configuration."""
        settings: dict[str, Any] = {}
        """Further fields of the environment's configuration, such as an agent's harness."""
        max_turns: Positive | None = None
        """Of a rollout; by default the environment's own limit alone holds."""
        train_samples: Positive = 512
        """Training samples at most."""
        eval_samples: Natural = 64
        """Held-out samples at most, and up to a fifth of the data."""
        solver: str = ""
        """A function that knows the solution, as MODULE:NAME or FILE.py:NAME; see docs/environments.md."""
        reward_low: float | None = None
        """The least reward of an episode, for `plugins check` and `plugins redteam`."""
        reward_high: float | None = None
        """The largest one, for `plugins check` and `plugins redteam`."""

    config: Config
    rewards = {"verifiers_rubric": 1.0}
    defaults: ClassVar[Mapping[str, Any]] = {"rollout": {"max_turns": 64, "max_tool_calls": 64}}

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(config, seed)
        self.has_solution = bool(self.config.solver)
        self._loop: OwnLoop | None = None

    @cached_property
    def environment(self) -> VerifiersEnvironment:
        """
        Raises:
            ConfigError: no environment is named, or it cannot be loaded.
            MissingExtraError: verifiers is not installed.
        """
        config = self.config
        if not config.environment:
            raise ConfigError("Name the environment: --environment NAME of an installed task set of verifiers.")
        return VerifiersEnvironment.load(config.environment, config.arguments, config.settings, config.max_turns)

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
            place = {"row": row.number}
            yield Sample(f"{split}-{row.number}", row.messages, answer=row.answer, metadata=place, split=split)

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
        given = {"components": dict(played.components), "stop": played.stop, "reward": played.reward}
        return {"answer": played.answer, "metadata": {INFO: given}}

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        """What the solver says; without one the row's answer as it is written there, which may be none."""
        if self.solver is not None:
            return self.solver(sample, messages)
        return Message("assistant", str(sample.answer or "I do not know."))
