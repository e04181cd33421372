"""The task ``verifiers``: any installed environment of verifiers, played by its own rollout at our endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from typing import Any, ClassVar, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from rlfactory_core import Message, Sample
from rlfactory_core.errors import ConfigError
from rlfactory_core.gateway import Endpoint
from rlfactory_core.settings import Natural, Positive
from rlfactory_environments.episodes import SolverOptions, SolverTask
from rlfactory_environments.verifiers.environment import VerifiersEnvironment

Value = TypeVar("Value")


class VerifiersTask(SolverTask):
    """Plays one environment. Its data are the samples, its rollout plays them, and its rubric is the reward."""

    class Config(SolverOptions):
        """Which environment is played, and how."""

        environment: str = ""
        """The name of an installed task set of verifiers (verifiers.v1)."""
        arguments: dict[str, Any] = {}
        """Fields of the task set's configuration."""
        settings: dict[str, Any] = {}
        """Further fields of the environment's configuration, such as an agent's harness."""
        max_turns: Positive | None = None
        """Most turns of a rollout; null: only the environment's own limit."""
        train_samples: Positive = 512
        """Training samples at most."""
        eval_samples: Natural = 64
        """Held-out samples at most, and up to a fifth of the data."""

    config: Config
    rewards = {"verifiers_rubric": 1.0}
    defaults: ClassVar[Mapping[str, Any]] = {"rollout": {"max_turns": 64, "max_tool_calls": 64}}

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(config, seed)
        self._thread = ExitStack()
        self._loop: BlockingPortal | None = None  # in a thread: what the environment serves lives on one loop

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
    def rows(self) -> Mapping[str, Sequence[Sample]]:
        """The environment's data by split."""
        return self.environment.samples(self.config.train_samples, self.config.eval_samples)

    def samples(self, split: str) -> Iterable[Sample]:
        return self.rows[split]

    def check(self, samples: Sequence[Sample]) -> None:
        self.bound(*self.environment.reward_bounds)

    async def open(self) -> None:
        _ = self.rows  # rollouts name their row
        self._loop = self._thread.enter_context(start_blocking_portal())
        await self._run(self.environment.open)

    async def close(self) -> None:
        if self._loop is not None:
            try:
                await self._run(self.environment.close)
            finally:
                await self._run(partial(self._loop.stop, cancel_remaining=True))
                self._thread.close()
                self._loop = None

    async def _run(self, work: Callable[..., Awaitable[Value]], *arguments: object) -> Value:
        """The result of the work on the environment's loop; it is cancelled with its caller."""
        assert self._loop is not None, "the task is not open"
        return await asyncio.wrap_future(self._loop.start_task_soon(work, *arguments))

    async def agent(self, sample: Sample, endpoint: Endpoint) -> dict[str, Any]:
        return await self._run(self.environment.play, sample, endpoint)

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        """What the solver says; without one the row's answer as it is written there, which may be none."""
        if self.solver is not None:
            return self.solver(sample, messages)
        return Message("assistant", str(sample.answer or "I do not know."))
