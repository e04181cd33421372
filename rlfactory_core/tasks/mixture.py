"""Several tasks in one run, behind the interface of one: samples, scorers and episodes by `Sample.task`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from rlfactory_core.context import RunContext
from rlfactory_core.errors import BackendError, RlfactoryError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import ChatFormat, Model, PoolRequest, ToolManager
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.rewards.layer import GroupScoring, RewardLayer
from rlfactory_core.rollout import Episode
from rlfactory_core.tasks.parts import TaskParts
from rlfactory_core.tasks.runtime import TaskResources, TaskRuntime
from rlfactory_core.tasks.scorers import TaskScorers
from rlfactory_core.tasks.task import Task
from rlfactory_core.types import Sample, Trajectory

if TYPE_CHECKING:
    from rlfactory_core.config import RunConfig

SUCCESS = "success"
"""The score that means success in each task, if the tasks call it by different names."""


class MixedTask(Task):
    """The tasks of a run; it has nothing of its own."""

    rewards: Mapping[str, float] = {}

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        super().__init__()
        self.tasks = tasks


@dataclass(frozen=True, slots=True)
class MixedParts(TaskParts):
    """The parts of several tasks, by their names in the configuration."""

    members: Mapping[str, TaskParts]

    @classmethod
    def make(cls, config: RunConfig, registry: Registry, task: Task | None = None) -> Self:
        """As `TaskParts.make`, with the `MixedTask` if it is made already."""
        made = task.tasks if isinstance(task, MixedTask) else {}
        members = {name: TaskParts.make(config.of_task(name), registry, made.get(name)) for name in config.tasks}
        task = MixedTask({name: part.task for name, part in members.items()})
        return cls(config, registry, task, MixedScorers.of({n: part.scorers for n, part in members.items()}), members)

    def samples(self, split: str) -> list[Sample]:
        return self._mixed(lambda part: part.samples(split))

    def held_out(self, *, required: bool) -> list[Sample]:
        return self._mixed(lambda part: part.held_out(required=required))

    def each(self) -> Collection[TaskParts]:
        return self.members.values()

    @property
    def top_reward(self) -> float | None:
        """Of the task with the lowest; None if that of a task is not known."""
        tops = [part.top_reward for part in self.members.values()]
        return min((top for top in tops if top is not None), default=None) if None not in tops else None

    def _mixed(self, samples: Callable[[TaskParts], list[Sample]]) -> list[Sample]:
        return [
            replace(sample, id=f"{name}/{sample.id}", task=name)
            for name, part in self.members.items()
            for sample in samples(part)
        ]


@dataclass(frozen=True, slots=True)
class MixedScorers(TaskScorers):
    """The scorers of several tasks; of those with the same name the one with the largest weight stands for all."""

    members: Mapping[str, TaskScorers]

    @classmethod
    def of(cls, members: Mapping[str, TaskScorers]) -> Self:
        weighted: dict[str, tuple[Any, float]] = {}
        for scorers in members.values():
            for key, (scorer, weight) in scorers.weighted.items():
                if key not in weighted or weighted[key][1] < weight:
                    weighted[key] = scorer, weight
        return cls(weighted, MixedLayer(weighted, members), members)

    @property
    def success(self) -> str:
        """The name that all tasks have for it, else ``success``, which each trajectory then has among its scores."""
        names = {scorers.success for scorers in self.members.values()}
        return names.pop() if len(names) == 1 else SUCCESS

    @property
    def pools(self) -> Mapping[str, PoolRequest]:
        return {key: pool for scorers in self.members.values() for key, pool in scorers.pools.items()}


class MixedLayer(RewardLayer):
    """Scores each trajectory by its own task."""

    def __init__(self, weighted: Mapping[str, tuple[Any, float]], members: Mapping[str, TaskScorers]) -> None:
        super().__init__(weighted)
        self._members = members

    def scoring(self, sample: Sample, attempts: int) -> GroupScoring:
        own = self._members[sample.task]
        alike = {scorers.success for scorers in self._members.values()} == {own.success}
        return own.layer.scoring(sample, attempts) if alike else _SuccessScoring(own, sample, attempts)


class _SuccessScoring(GroupScoring):
    """Adds `SUCCESS` to the scores."""

    def __init__(self, scorers: TaskScorers, sample: Sample, attempts: int) -> None:
        super().__init__(scorers.layer, sample, attempts)
        self._success = scorers.success

    async def score(self, index: int, trajectory: Trajectory) -> Trajectory:
        scored = await super().score(index, trajectory)
        if scored.score is None or self._success not in scored.score.components:
            return scored
        components = {**scored.score.components, SUCCESS: scored.score.components[self._success]}
        return replace(scored, score=replace(scored.score, components=components))


class MixedResources(TaskResources):
    """The resources of all tasks."""

    def __init__(self, parts: MixedParts, group: str = "") -> None:
        super().__init__(parts, group)
        self._members = {
            name: TaskResources(part, f"{group}#{name}" if group else "") for name, part in parts.members.items()
        }

    async def open(
        self, progress: Progress | None = None, run: RunContext | None = None, **options: Any
    ) -> TaskRuntime:
        """As `TaskResources.open`; an error names the task."""
        opened = {}
        for name, resources in self._members.items():
            try:
                opened[name] = await resources.open(progress, run, **options)
            except RlfactoryError as error:
                error.args = (f"The task '{name}' of this run: {error}", *error.args[1:])
                raise
            except Exception as error:  # the boundary to a plugin's code, which may fail in any way
                raise BackendError(
                    f"The task '{name}' of this run does not open: {type(error).__name__}: {error}"
                ) from error
        return MixedRuntime(self, opened)

    async def close(self) -> None:
        for resources in reversed(self._members.values()):
            await resources.close()
        for manager in self._managers.values():
            await manager.close()


class MixedRuntime(TaskRuntime):
    """Plays each sample with its own task: its tools, limits, environment and rewards."""

    def __init__(
        self, resources: MixedResources, members: Mapping[str, TaskRuntime], chat: ChatFormat | None = None
    ) -> None:
        super().__init__(resources.parts, resources, chat)
        self._mixed, self._members = resources, members

    def with_chat(self, chat: ChatFormat) -> TaskRuntime:
        return MixedRuntime(self._mixed, {name: each.with_chat(chat) for name, each in self._members.items()}, chat)

    def of(self, sample: Sample) -> TaskRuntime:
        return self._members[sample.task]

    def check(self, samples: Sequence[Sample]) -> None:
        for name, member in self._members.items():
            member.check([sample for sample in samples if sample.task == name])

    async def rollout(self, episode: Episode, model: Model, scoring: GroupScoring | None = None) -> Trajectory:
        return await self.of(episode.sample).rollout(episode, model, scoring)

    def episode(
        self, sample: Sample, temperature: float, seed: int, session: str, manager: ToolManager | None
    ) -> Episode:
        return self.of(sample).episode(sample, temperature, seed, session, manager)
