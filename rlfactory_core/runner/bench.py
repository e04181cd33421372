"""Opens a plugin's task, plays it with policies and scores the episodes, without an engine or a model.

The rollout, the environment, the tools and the rewards are the real ones. Commands for authors and the tests of a task
use it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

from rlfactory_core.chat.toy import ToyChatFormat
from rlfactory_core.context import ToolContext
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import ChatFormat, Env, EnvStart, Tool, ToolManager
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.reporting.rescored import Comparison
from rlfactory_core.rewards.layer import unscored
from rlfactory_core.rollout import ask_env, rollout
from rlfactory_core.runner.loop_thread import LoopThread
from rlfactory_core.runner.policies import Policy, PolicyModel
from rlfactory_core.runner.rescoring import Rescorer
from rlfactory_core.runner.resolving import read, resolve
from rlfactory_core.tasks.runtime import TaskRuntime
from rlfactory_core.tasks.setup import Tasks
from rlfactory_core.tasks.task import Task
from rlfactory_core.types import Sample, Trajectory
from rlfactory_core.utils.aio import gather_all
from rlfactory_core.utils.seeds import derive_seed

ROOM = 100_000_000  # tokens, instead of the configured budgets, which do not fit a format with a token for each byte
DEADLINE_S = 60.0
Value = TypeVar("Value")


class TaskBench:
    """``with TaskBench("my-task") as bench: bench.play(oracle(bench.task), bench.samples())``.

    Args:
        plugin: NAME, DISTRIBUTION:NAME or a file, as for ``--plugin``.
        overrides: changes to the configuration, as ``key=value`` strings or nested plain data.
        chat: writes and parses the policies' turns; by default a format over bytes.
        progress: shows the progress of opening the task.

    Raises:
        UsageError: no such plugin, or it cannot be configured like this.
        BackendError: a service that the task needs does not answer.
        DeadlineError: opening takes longer than ``deadline_s``.
    """

    def __init__(
        self,
        plugin: str,
        overrides: Sequence[str | Mapping[str, Any]] = (),
        *,
        chat: ChatFormat | None = None,
        progress: Progress | None = None,
        deadline_s: float = 3600.0,  # a task may train a model of its own
    ) -> None:
        self.plugin, self.overrides, self.chat = plugin, tuple(overrides), chat or ToyChatFormat()
        self.registry = Registry()
        resolved = resolve(self.registry, read(None, [{"plugin": plugin}, *self.overrides]))
        self.config, self.setup = resolved.config, resolved.tasks.only
        self.closed = TaskRuntime(self.setup)
        self._runtime: TaskRuntime | None = None
        self._progress, self._deadline_s = progress, deadline_s
        self._loop: LoopThread | None = None
        self._rows: dict[str, list[Sample]] = {}
        self._played = 0  # numbers the sessions, which have to differ

    def __enter__(self) -> Self:
        self._loop = LoopThread()
        try:
            opening = self.closed.open(self._progress)
            self._runtime = self.run(opening, self._deadline_s, f"opening the task of '{self.plugin}'")
        except BaseException:
            with contextlib.suppress(Exception):  # the error of opening is the one to raise
                self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self, deadline_s: float = DEADLINE_S) -> None:
        """Close the task and the event loop; a second call does nothing. Raises what the task's own `close` raises.

        Raises:
            DeadlineError: the task's `close` did not end in time.
        """
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.run(self.closed.close(), deadline_s, "closing the task")
            finally:
                loop.close(min(10.0, deadline_s))

    @property
    def task(self) -> Task:
        return self.setup.task

    @property
    def runtime(self) -> TaskRuntime:
        """The open task; a RuntimeError if the bench is not open."""
        return _open(self._runtime)

    @property
    def loop(self) -> LoopThread:
        """The event loop of the task; a RuntimeError if the bench is not open."""
        return _open(self._loop)

    def run(self, work: Coroutine[Any, Any, Value], deadline_s: float = DEADLINE_S, what: str = "it") -> Value:
        """A coroutine on the task's event loop; see `LoopThread.run`."""
        return self.loop.run(work, deadline_s, what)

    def again(self, chat: ChatFormat | None = None) -> TaskBench:
        """A new bench with the same task and configuration, not yet open and without progress."""
        return TaskBench(self.plugin, self.overrides, chat=chat or self.chat, deadline_s=self._deadline_s)

    def samples(self, split: str = "train", limit: int = 8) -> list[Sample]:
        """Samples from all over a split, the same in every call.

        Raises:
            DataError: there are none to train on.
        """
        rows = self.rows(split)
        count = min(limit, len(rows))
        return [rows[index * len(rows) // count] for index in range(count)]

    def rows(self, split: str) -> list[Sample]:
        """All samples of a split, made once."""
        if split not in self._rows:
            self._rows[split] = self.setup.samples(split)
        return self._rows[split]

    def play(
        self,
        policy: Policy,
        samples: Sequence[Sample],
        *,
        seed: int = 0,
        attempts: int = 1,
        manager: ToolManager | None = None,
        chat: ChatFormat | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> list[Trajectory]:
        """Plays all episodes at once; returns them scored, ordered by sample and then by attempt.

        Args:
            manager: replaces the task's own tools.
            chat: replaces the bench's chat format.

        Raises:
            DeadlineError: they did not end in time.
        """
        episodes = (
            self.episode(policy, sample, seed=seed, attempt=attempt, manager=manager, chat=chat)
            for sample in samples
            for attempt in range(attempts)
        )
        return self.run(gather_all(episodes), deadline_s, "playing")

    async def episode(
        self,
        policy: Policy,
        sample: Sample,
        *,
        seed: int = 0,
        attempt: int = 0,
        manager: ToolManager | None = None,
        chat: ChatFormat | None = None,
        around: Callable[[Env], Env] | None = None,
    ) -> Trajectory:
        """One trajectory, scored, for callers on the task's event loop.

        Args:
            around: wraps the task's environment.
        """
        self._played += 1
        seed = derive_seed(seed, sample.id, attempt)
        episode = self.runtime.episode(sample, 1.0, seed, f"bench-{self._played}/{attempt}", manager)
        make_env = episode.make_env
        if around is not None:
            episode = replace(episode, make_env=lambda sample, context: around(make_env(sample, context)))
        limits = replace(episode.limits, max_turn_tokens=ROOM, max_tokens=ROOM)
        episode = replace(episode, limits=limits, attempt=attempt)
        model, agents = PolicyModel(policy, sample, chat or self.chat, seed), self.runtime.agents
        played = await (agents.play(episode, model) if agents else rollout(episode, model))
        return await self.runtime.rewards.score_trajectory(played)

    async def opening(self, sample: Sample) -> EnvStart:
        """The messages and tools that a model gets before its first turn, for callers on the task's event loop."""
        self._played += 1
        context = ToolContext(f"bench-{self._played}/0", sample)
        env = self.runtime.episode(sample, 1.0, 0, context.trajectory_id, None).make_env(sample, context)
        async with contextlib.AsyncExitStack() as ends:
            ends.push_async_callback(context.end)
            ends.push_async_callback(ask_env, env, "close", object)
            return await ask_env(env, "start", EnvStart)

    def manager(self, wrap: Callable[[Tool], Tool], **limits: Any) -> ToolManager:
        """The task's own tools, each wrapped, in a tool manager with the run's configuration.

        Args:
            limits: fields of `config.ToolLimits`, for all of the tools.
        """
        config = self.config.tools
        overrides = {tool.spec.name: {**config.overrides.get(tool.spec.name, {}), **limits} for tool in self.tools}
        manager: ToolManager = self.setup.make_manager(
            [wrap(tool) for tool in self.tools], config.model_copy(update={"overrides": overrides})
        )
        return manager

    @property
    def tools(self) -> Sequence[Tool]:
        """The task's own tools and those that the configuration adds."""
        return self.runtime.tools

    def score(self, trajectories: Sequence[Trajectory], *, deadline_s: float = DEADLINE_S) -> list[Trajectory]:
        """The trajectories, each scored again on its own."""
        scoring = (self.runtime.rewards.score_trajectory(unscored(each)) for each in trajectories)
        return self.run(gather_all(scoring), deadline_s, "scoring")

    def rescore(self, run: str | Path, *, deadline_s: float = 3600.0) -> Comparison:
        """The trajectories of a run or an evaluation, scored anew, beside the rewards that they were given.

        Raises:
            UsageError: there is no such run, or a scorer cannot score stored trajectories.
            DeadlineError: scoring did not end in time.
        """
        rescorer = Rescorer(RunFolder.open(run), Tasks({"": self.setup}), {"": self.runtime.rewards})
        return self.run(rescorer.comparison(), deadline_s, "scoring")

    @property
    def reward_bounds(self) -> tuple[float, float]:
        """The lowest and the highest reward of a trajectory, as declared by the task or by its scorers."""
        return self.setup.reward_bounds


def _open(part: Value | None) -> Value:
    if part is None:
        raise RuntimeError("TaskBench is used outside of its 'with' block")
    return part
